"""Kernels of users: the whole language of ElementwiseKernel and ReductionKernel, kernels in the C part of CUDA C++ on the CPU, and that
what is made of them compiles for GPUs."""
import io
import math
import weakref

import nvrtc
import numpy
import pytest

import arete
import arete.cupy
from arete import _kernels, cupyx
from arete._kernels import _elementwise, _reduction, _text
from arete._kernels import ElementwiseKernel, In, InOut, Out, RawKernel, RawModule, ReductionKernel, SourceModule
from arete.cupyx.scipy import ndimage

DEVICES = ["cpu"] + ["cuda"] * arete.cuda.is_available()
needs_nvrtc = pytest.mark.skipif(nvrtc.opened() is None, reason="no NVRTC")


def window(x):
    k = ElementwiseKernel("raw T x, raw int64 idx", "T y", """
        T s = 0;
        for (int j = 0; j < 3; j++) {
          if (j == 1) continue;
          s += x[idx[i] + j];
        }
        y = s;""", "window_sum")
    index = arete.tensor([0, 3, 7], device=x.device)
    return k, k(x, index, size=3), x[index] + x[index + 2]


def indices(x):
    m = x.reshape(2, 5).t()
    k = ElementwiseKernel("T x, raw T a", "T z, int64 w",
                          "ptrdiff_t idx[] = {_ind.get()[1], _ind.get()[0]};\nz = x + a[idx];\n"
                          "w = i * 100 + _ind.get()[0] * 10 + a.shape()[1] + n + a.ndim", "indices", reduce_dims=False)
    z, w = k(m, m.t())
    expected = arete.tensor([[(5 * 0 + 2 * r + c) * 100 + r * 10 + 5 + 10 + 2 for c in range(2)] for r in range(5)])
    return k, arete.cat([z, w.to(z.dtype)]), arete.cat([2 * m, expected.to(x.device).to(z.dtype)])


def branches(x):
    k = ElementwiseKernel("T x, T low, int32 mode", "T y", """
        T v = x;
        while (v > 4) v -= (T)3;
        switch (mode) {
          case 0: y = v; break;
          case 1: v = clamp_low(v, low);
          default: y = v * 2;
        }""", "branches", preamble="template <class U>\n__device__ U clamp_low(U v, U low) { return v < low ? low : v; }")
    v = x.clone()
    for _ in range(5):
        v = arete.where(v > 4, v - 3, v)
    return k, k(x, 2.0, 1), v.clamp(min=2) * 2


def counts(x):
    k = ElementwiseKernel("raw T x", "raw int32 y", "atomicAdd(&y[(int)x[i] % SIZE], seen)", "counts", loop_prep="int seen = 1",
                          after_loop="seen = 0", options=("-DSIZE=4",))
    y = arete.zeros(4, dtype=arete.int32, device=x.device)
    k(x, y, size=len(x))
    return k, y, arete.bincount(x.long() % 4, minlength=4).to(arete.int32)


def many(x):
    """More elements than threads, where statements let a thread have several, and where they do not."""
    n = 1 << 21
    shifted = ElementwiseKernel("raw T x", "T y", "const int k = (int)i % 10; if (k == 3) continue; y = x[k] + (T)(i / 10);", "shifted")
    ending = ElementwiseKernel("raw T x", "T y", "const int k = (int)i % 10; if (k == 3) return; y = x[k] + (T)(i / 10);", "ending")
    out = [k(x, arete.zeros(n + 5, dtype=x.dtype, device=x.device)) for k in (shifted, ending)]
    i = arete.arange(n + 5, device=x.device)
    expected = arete.where(i % 10 == 3, 0, x[i % 10] + (i // 10).to(x.dtype))
    return shifted, arete.cat(out), arete.cat([expected, expected])


def halves(x):
    k = ElementwiseKernel("float16 x, bfloat16 b", "float16 y", "if (x > b) y = x; else { y = b; y += x; }", "halves")
    a, b = x.half() / 3, arete.full((10,), 1.25, device=x.device).bfloat16()
    return k, k(a, b), arete.where(a.float() > 1.25, a, (a.float() + 1.25).half())


def folded(x):
    k = ReductionKernel("T x, raw T w", "T y, int64 n", "(x - w[i % 2]) * scale(x)", "a + b", "y = a;\nif (y > 100) y = 100; n = 3", "0",
                        "folded", reduce_type="float64",
                        preamble="__device__ double scale(double v) { for (int k = 0; k < 2; ++k) v *= 0.5; return v; }")
    m = x.reshape(5, 2)
    w = arete.tensor([1.0, 2.0], device=x.device).to(x.dtype)
    y, n = k(m, w, axis=1)
    return k, y + (n - 3).to(y.dtype), ((m - w) * m / 4).sum(1)


def most(x):
    k = ReductionKernel("raw T w, T x", "T y", "x + 0 * w[0]", "max(a, b)", "y = -a", "100", "most")
    return k, k(x, x), arete.tensor(-100, dtype=x.dtype, device=x.device)


CASES = [window, indices, branches, counts, many, halves, folded, most]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_statements(case, dtype, device):
    _, found, expected = case(arete.arange(10, device=device).to(getattr(arete, dtype)))
    assert found.dtype is expected.dtype and arete.allclose(found, expected)


def no_launch(self, launches, call, bound, device, sources, made=(), *args, results=0, **options):
    """In the place of Compiled.run: what the launch would have written to."""
    tensors = tuple(arete.empty(sizes, dtype=dtype) for sizes, dtype in made[:results])
    return tensors[0] if len(tensors) == 1 else tensors


@needs_nvrtc
@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_statements_compile_for_gpus(case, check, monkeypatch):
    monkeypatch.setattr(_text.Compiled, "run", no_launch)
    for module in (_elementwise, _reduction):
        monkeypatch.setattr(module, "is_checking", lambda device: check)
    kernel, _, _ = case(arete.arange(10.0))
    assert kernel._compiled
    for compiled in kernel._compiled.values():
        assert compiled.checked is check and nvrtc.problems(compiled.text, compiled.options) == ""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 2), (-1, 1)])
@pytest.mark.parametrize("shape", [(3, 700, 5), (700, 2, 3), (1, 4, 3000), (2, 0, 3)])
def test_reductions_of_statements(shape, axis, device):
    k = ReductionKernel("T x", "T y", "x * x", "a + b", "y = a; if (y < 0) y = 0", "0", "squares")
    x = arete.randn(shape, dtype=arete.float64, device=device)
    dims = tuple(range(3)) if axis is None else axis
    for v in (x, x.transpose(0, 2).contiguous().transpose(0, 2)):
        assert arete.allclose(k(v, axis=axis, keepdims=True), (v * v).sum(dims, keepdim=True))
    assert k(x, axis=axis).shape == (x * x).sum(dims).shape


@pytest.mark.parametrize("device", DEVICES)
def test_calls_are_prepared_once(device, monkeypatch):
    """A call like an earlier one is not looked at again in Python, and one that is not like it is."""
    looked = []
    before = ElementwiseKernel._call
    monkeypatch.setattr(ElementwiseKernel, "_call", lambda self, *args: looked.append(1) or before(self, *args))
    k = ElementwiseKernel("T x, T y, int32 k", "T z", "if (x > y) z = x * k; else z = y;", "branching")
    x, y = arete.randn(6, 4, device=device), arete.randn(6, 4, device=device)

    def check(x, y, factor, news):
        del looked[:]
        result = k(x, y, factor)
        assert arete.allclose(result, arete.where(x > y, x * factor, y)) and result.dtype is x.dtype and len(looked) == news

    check(x, y, 2, 1)
    check(y, x, 5, 0)                       # other memory and numbers
    check(x + 1, y, numpy.int32(3), 1)      # a number of another type
    check(x - 1, y, numpy.int32(-3), 0)
    check(x.mT, y.mT, 2, 1)                 # another layout
    check(x.mT, y.mT.contiguous(), 2, 1)
    check(x.mT * 2, y.mT.contiguous(), 2, 0)
    check(x[0], y, 2, 1)                    # another shape
    check(x[3], y, 2, 0)                    # the same, elsewhere
    check(x.double(), y.double(), 2, 1)
    check(x[:0], y[:0], 2, 0)               # another number of elements
    out = arete.empty_like(x)
    version = out._version
    for count in (1, 2):
        assert k(x, y, 4, out) is out and out._version == version + count
        assert arete.allclose(out, arete.where(x > y, x * 4, y))
    with pytest.raises(RuntimeError, match="no gradient"):
        k(x.clone().requires_grad_(), y, 2)
    with pytest.raises(OverflowError):
        k(x, y, 1 << 40)
    with pytest.raises(TypeError):
        k(x, y.double(), 2)
    for order in (1, -1):  # which of two numbers that a letter stands for came first changes nothing
        twice = ElementwiseKernel("raw float32 x, T a", "T y", "y = a; y += a;", "twice")
        for number, dtype in ((2.0, arete.float32), (numpy.float64(2), arete.float64))[::order]:
            assert twice(x, number, size=3).dtype is dtype
    sums = ReductionKernel("T x, int64 low", "T y", "i >= low ? x : 0", "a + b", "y = a", "0", "sums")
    for low in (0, 5, 20):
        for axis in (None, 0, (0, 1), (1,)):
            if axis is None:
                assert arete.allclose(sums(x, low), x.flatten()[low:].sum())
            assert sums(x, 0, axis=axis, keepdims=True).shape == x.sum(axis, keepdim=True).shape


@pytest.mark.parametrize("make", [
    lambda: ElementwiseKernel("float32 x", "float32 y", "y = x + 1"),
    lambda: ElementwiseKernel("float32 x", "float32 y", "if (x > 0) y = x; else y = 0;"),
    lambda: ReductionKernel("float32 x", "float32 y", "x", "a + b", "y = a", None),
    lambda: ReductionKernel("float32 x", "float32 y", "x > 0 ? x : 0", "a + b", "y = a", "5"),
])
def test_kernels_that_were_called_go_away(make):
    kernel = make()
    for _ in range(2):
        kernel(arete.ones(3))
    gone = weakref.ref(kernel)
    del kernel
    assert gone() is None


class Wrapped:
    """As arrays of arete.numpy are."""

    def __init__(self, tensor):
        self._tensor = tensor


def test_arrays_around_tensors_come_back():
    x = Wrapped(arete.arange(4.0))
    for k in (ElementwiseKernel("T x", "T y", "y = x * 2", "k"), ElementwiseKernel("T x", "T y", "if (x < 9) y = x * 2", "k")):
        y = k(x)
        assert type(y) is Wrapped and y._tensor.tolist() == [0, 2, 4, 6]
        out = Wrapped(arete.zeros(4))
        assert k(x, out) is out and out._tensor.tolist() == [0, 2, 4, 6]
    total = ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0")(x)
    assert type(total) is Wrapped and total._tensor.item() == 6


def test_results_written_are_noted():
    x = arete.ones(3, requires_grad=True)
    y = x * 1
    z = (y * y).sum()
    with arete.no_grad():
        ElementwiseKernel("raw T x", "T y", "y = x[i]", "overwrite")(arete.zeros(3), y.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        z.backward()


@pytest.mark.parametrize("call, error, text", [
    (lambda k: k("raw T x", "T y", "y = x[i +\n1]")(arete.ones(3), size=3), IndexError, "line 2: index 3 is out of range for x"),
    (lambda k: k("T x", "T y", "int a = 1;\ny = a +;")(arete.ones(3)), ValueError, "line 2: unexpected ';'"),
    (lambda k: k("T x", "T y", "x = 1; y = x; if (x) y = 2;")(arete.ones(3)), ValueError, "cannot be assigned to"),
    (lambda k: k("T x", "T y", "if (x) y = x")(arete.ones(3, requires_grad=True)), RuntimeError, "have no gradient"),
    (lambda k: k("T x", "T y", "if (x) y = x")(arete.ones(3), size=3), ValueError, "only if all of the ndarray are 'raw'"),
    (lambda k: k("raw T x", "T y", "y = x[0]")(arete.ones(3)), ValueError, "Loop size is undecided"),
    (lambda k: k("raw T x", "raw T y", "y[i] = x[0]")(arete.ones(3)), ValueError, "undecided"),
    (lambda k: k("T x, T z", "T y", "if (x) y = z")(arete.ones(3), arete.ones(2)), ValueError, "could not be broadcast"),
    (lambda k: k("raw float32 x", "T y", "y = x[0]")(arete.ones(3).int(), size=2), TypeError, "array of float32, not of int32"),
    (lambda k: k("raw T x", "T y", "y = x[0]")(3.0, size=2), TypeError, "must be an array"),
    (lambda k: k("T x, T w", "T y", "if (x) y = w")(arete.ones(3), arete.ones(3, device="meta")), RuntimeError, "on one device"),
    (lambda k: k("T n", "T y", "y = n"), ValueError, "the kernel's own"),
    (lambda k: k("T x", "T y", "y = x", "a b"), ValueError, "identifier"),
    (lambda k: k("T x", "float32 y", "if (x) y = x")(arete.ones(3), arete.ones(3).double()), TypeError, "output 'y' is of float32"),
])
def test_errors_of_statements(call, error, text):
    with pytest.raises(error, match=text):
        call(ElementwiseKernel)


# --- kernels in the C part of CUDA C++, on the CPU ---

SOURCE = r"""
#define TILE 8
#define SQUARE(x) ((x) * (x))
__constant__ float weights[3] = {1, 2.5f, -1};
__device__ int steps_of(long long n) {
  int c = 0;
  while (n != 1) {
    n = n % 2 ? 3 * n + 1 : n / 2;
    if (++c > 1000) return -1;
  }
  return c;
}
extern "C" {
__global__ void steps(int* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) out[i] = steps_of(i + 1);
}
__global__ void product(const float* a, const float* b, float* c, int n) {
  __shared__ float left[TILE][TILE + 1], right[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float s = 0;
  for (int t = 0; t < (n + TILE - 1) / TILE; ++t) {
    left[threadIdx.y][threadIdx.x] = row < n && t * TILE + threadIdx.x < n ? a[row * n + t * TILE + threadIdx.x] : 0.f;
    right[threadIdx.y][threadIdx.x] = col < n && t * TILE + threadIdx.y < n ? b[(t * TILE + threadIdx.y) * n + col] : 0.f;
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < TILE; k++) s += left[threadIdx.y][k] * right[k][threadIdx.x];
    __syncthreads();
  }
  if (row < n && col < n) c[row * n + col] = s;
}
__global__ void squares(const double* x, double* out, int n) {
  extern __shared__ double row[];
  int t = threadIdx.x;
  double v = 0;
  for (int i = blockIdx.x * blockDim.x + t; i < n; i += blockDim.x * gridDim.x) v += SQUARE(x[i]);
  row[t] = v;
  __syncthreads();
  for (int s = blockDim.x / 2; s >= 32; s >>= 1) {
    if (t < s) row[t] += row[t + s];
    __syncthreads();
  }
  if (t >= 32) return;
  v = row[t];
  for (int o = 16; o; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
  if (t == 0) atomicAdd(out, v);
}
__global__ void parts(int* out, unsigned char* bytes, float* f) {
  int local[4] = {1, 2, 3};
  unsigned u = 0xffffffffu;
  int i = threadIdx.x;
  local[i % 4] += 10;
  int total = 0;
  for (int k = 0; k < 4; ++k) {
    if (k == 1) continue;
    if (k == 3 && i == 2) break;
    total += local[k];
  }
  switch (i) {
    case 0: total += 100; break;
    case 1: total += 200;
    case 2: total += 400; break;
    default: total += 1000;
  }
  out[i] = total + (u + 2u) + (char)(i + 127) / 64;
  bytes[i] = i * 100;
  f[i] = weights[i % 3] + powf(2, i) + (i ? sqrtf(i) : -1);
  int* p = out + 8;
  *p = 7;
  p[i] = i++ - 1;
  *(p + 9 + threadIdx.x) = i;
}
__global__ void beyond(float* x, int by) {
  x[threadIdx.x + by] = 2;
}
}
"""


def raw(name):
    return RawKernel(SOURCE, name)


@pytest.mark.parametrize("device", DEVICES)
def test_device_functions_and_loops(device):
    out = arete.zeros(500, dtype=arete.int32, device=device)
    raw("steps")((4,), (64,), (out, numpy.int32(500)))

    def steps(n):
        count = 0
        while n != 1:
            n, count = 3 * n + 1 if n % 2 else n // 2, count + 1
        return count

    assert out.tolist() == [steps(i + 1) for i in range(500)]


@pytest.mark.parametrize("device", DEVICES)
def test_small_numbers_are_read_as_they_lie(device):
    source = '#include "user_kernel.cuh"\nextern "C" ' \
             "__global__ void k(signed char* a, short* b, bool* c, float16* d, bfloat16* e, float* y) {" \
             " y[0] = a[1]; y[1] = b[1]; y[2] = c[1]; y[3] = d[1]; y[4] = e[1]; y[5] = a[1] + b[1]; d[0] = e[1]; a[0] = 300; c[0] = 0.5; }"
    a, b, c, d, e = (arete.tensor([0, v]).to(getattr(arete, t)).to(device) for v, t in (
        (-3, "int8"), (-300, "int16"), (True, "bool"), (1.5, "float16"), (-2.25, "bfloat16")))
    y = arete.zeros(6, device=device)
    RawKernel(source, "k")((1,), (1,), (a, b, c, d, e, y))
    assert y.tolist() == [-3, -300, 1, 1.5, -2.25, -303] and (d[0].item(), a[0].item(), c[0].item()) == (-2.25, 44, True)


@pytest.mark.parametrize("device", DEVICES)
def test_shared_memory_and_barriers(device):
    a, b, c = (f(20, 20, device=device) for f in (arete.randn, arete.randn, arete.zeros))
    raw("product")((3, 3), (8, 8), (a, b, c, numpy.int32(20)))
    assert arete.allclose(c, a @ b, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_shuffles_atomics_and_dynamic_shared_memory(device):
    x, out = (f(n, dtype=arete.float64, device=device) for f, n in ((arete.randn, 10000), (arete.zeros, 1)))
    raw("squares")((7,), (128,), (x, out, numpy.int32(10000)), shared_mem=128 * 8)
    assert arete.allclose(out, (x * x).sum())


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_are_those_of_c(device):
    out, small, f = (arete.zeros(n, dtype=t, device=device) for n, t in ((25, arete.int32), (8, arete.uint8), (8, arete.float32)))
    raw("parts")((1,), (8,), (out, small, f))
    assert out.tolist() == [116, 603, 414, 1014, 1014, 1004, 1014, 1014, 7, *range(-1, 7), *range(1, 9)]
    assert small.tolist() == [i * 100 % 256 for i in range(8)]
    assert numpy.allclose(f.cpu().numpy(), [(1, 2.5, -1)[i % 3] + 2**i + (i**0.5 if i else -1) for i in range(8)])


@pytest.mark.parametrize("by", [1, -1, 10**6])
def test_accesses_are_checked(by):
    x = arete.zeros(9)[:8]
    line = SOURCE[: SOURCE.index("x[threadIdx.x + by]")].count("\n") + 1
    with pytest.raises(IndexError, match=rf"line {line}: element \d+ of x, which has 8, by thread \(\d, 0, 0\) .*x\[threadIdx"):
        raw("beyond")((1,), (8,), (x, numpy.int32(by)))
    raw("beyond")((1,), (7,), (x, numpy.int32(1)))
    assert x.tolist() == [0] + [2] * 7


@pytest.mark.parametrize("source, error, text", [
    ("__global__ void k(float* x) {\n  x[0] = f(3);\n}", ValueError, r"line 2: unknown function f\(\).*x\[0\] = f\(3\);"),
    ("__global__ void k(float* x) {\n\n  x[0] = ;\n}", ValueError, "line 3: unexpected ';'"),
    ("__global__ void k(float* x) { x[0] = 1.5 % 2; }", ValueError, "'%' is for integers"),
    ("__global__ void k(float* x) { x[0] = y; }", ValueError, "unknown name 'y'"),
    ("__global__ void k(float* x) { asm(\"nop;\"); }", NotImplementedError, "line 1: 'asm' cannot run on the CPU"),
    ("__device__ float f(float v) { return f(v); }\n__global__ void k(float* x) { x[0] = f(1); }", NotImplementedError, "calls itself"),
    ("__global__ void other(float* x) {}", ValueError, "no __global__ function of this name"),
    ("__global__ void k(int* x) {}", TypeError, "another type than the parameter"),
    ("__global__ void k(float* x, int n) {}", TypeError, "number of arguments is wrong"),
    ("__global__ void k(float x) {}", TypeError, "a tensor where the kernel has a number"),
    ("__global__ void k(float* x) {", ValueError, "without '}'"),
    ("__global__ void k(float* x) { float t[2]; t[(int)x[0] + 2] = 1; }", IndexError, "index 3 is out of range for t, which has 2"),
    ("__device__ float f(float v) { return v; }\n__device__ int f(int v) { return -v; }\n__global__ void k(float* x) { x[0] = f(1); }",
     NotImplementedError, "line 2: an overload of 'f' cannot run"),
    ("template <class T> __device__ T f(T v) { return v; }\ntemplate <> __device__ int f<int>(int v) { return -v; }\n"
     "__global__ void k(float* x) { x[0] = f(1); }", NotImplementedError, "line 2: a specialization of a template cannot run"),
    ("#if 1 +\n#endif\n__global__ void k(float* x) {}", ValueError, "line 1: this #if is no condition"),
    ("\n#if (1\n#endif\n__global__ void k(float* x) {}", ValueError, "line 2: this #if is no condition"),
    ("#if 1 / 0\n#endif\n__global__ void k(float* x) {}", ValueError, "line 1: a division by 0"),
    ("#if 1 && 1 / 0\n#endif\n__global__ void k(float* x) {}", ValueError, "line 1: a division by 0"),
    ("#if 1 ? 2 % 0 : 1\n#endif\n__global__ void k(float* x) {}", ValueError, "line 1: a division by 0"),
    ("#if 1 ? 2\n#endif\n__global__ void k(float* x) {}", ValueError, "line 1: this #if is no condition"),
    ("#if 'a' == 97\n#endif\n__global__ void k(float* x) {}", NotImplementedError, "line 1: character constants"),
    ("__global__ void k(float* x) {\n  x[0] = 'a';\n}", NotImplementedError, "line 2: character constants"),
    ("#elif 1\n__global__ void k(float* x) {}", ValueError, "line 1: an #elif without its #if"),
    ('__global__ void k(float* x) { printf("%d", x[0]); }', ValueError, "'%d' is no conversion of this argument"),
    ('__global__ void k(float* x) { printf("%f"); }', ValueError, "expected ','"),
    ('__global__ void k(float* x) { printf("%s", x[0]); }', NotImplementedError, "printf.. of '%s' cannot run"),
    ("__global__ void k(float* x) { switch ((int)x[0]) { default: switch (1) { case 1: break; } case 3: x[0] = 5; } }",
     NotImplementedError, "a case behind the default"),
])
def test_errors_of_sources(source, error, text):
    with pytest.raises(error, match=text):
        RawKernel(source, "k")((1,), (1,), (arete.ones(1),))


@pytest.mark.parametrize("condition, holds", [
    ("1", True), ("0", False), ("defined(A)", True), ("!defined B", True), ("defined(A) && defined(B)", False), ("A == 7", True),
    ("B", False), ("A % 4 == 3 && (A << 1) > 13", True), ("TWICE(A) - 14", False), ("~0 == -1 && 0x10u == 16", True),
    ("2 + 3 * 4 == 14 && 20 / 3 == 6", True), ("1 | 6 ^ 2 & 3", True), ("defined(B) && 1 / B", False), ("A == 7 || 1 % B", True),
    ("0 && (1 ? 1 / 0 : 2 % 0)", False),
    ("A ? 0 : 1 / 0", False), ("B ? 1 / 0 : A - 7 ? 0 : 3", True), ("(1 ? 0 : 1) || 0", False), ("A > 6 ? A > 7 ? 1 : 0 : 1", False),
    ("__CUDA_ARCH__ >= 700 && defined(__CUDACC__) && defined __CUDACC_RTC__", True),
])
@pytest.mark.parametrize("device", DEVICES)
def test_conditions_of_the_preprocessor(condition, holds, device):
    x = arete.zeros(4, device=device)
    RawKernel(f"""
#define A 7
#define TWICE(v) (2 * (v))
#if {condition}
#define FIRST 1
#else
#define FIRST 2
#endif
#if 0
#  error this isn't read
#if 1
no code
#elif 1
nor this
#endif
#elif {condition}
#define SECOND 1
#elif A == 7
#define SECOND 2
#else
#define SECOND 3
#endif
#ifdef B
#elif defined(A)
#define THIRD 1
#elif defined(TWICE)
#define THIRD 2
#endif
extern "C" __global__ void k(float* x) {{ x[0] = FIRST; x[1] = SECOND; x[2] = THIRD; }}""", "k")((1,), (1,), (x,))
    assert x.tolist() == [1 if holds else 2, 1 if holds else 2, 1, 0]


@pytest.mark.parametrize("device", DEVICES)
def test_threads_print(device, capfd):
    RawKernel(r"""extern "C" __global__ void k(const float* x, unsigned char c, long long big) {
      int i = threadIdx.x;
      if (i != 1) printf("%d%c %5.2f|%-4u|%x %lld " "%e\t%%\n", -i, c + i, x[i], 7u, 255, big, (double)x[i] / 4);
      if (i == 2) printf("end\n");
    }""", "k")((1,), (3,), (arete.tensor([1.5, 2.5, 3.5], device=device), numpy.uint8(65), numpy.int64(2**40)))
    if device == "cuda":
        arete.cuda.synchronize()
    assert capfd.readouterr().out == ("0A  1.50|7   |ff 1099511627776 3.750000e-01\t%\n"
                                      "-2C  3.50|7   |ff 1099511627776 8.750000e-01\t%\nend\n")


@pytest.mark.parametrize("device", DEVICES)
def test_products_of_24_bits(device):
    a, b = [3, -5, 0x7FFFFF, 0x1000003, -0x800000], [7, 9, 3, 5, 2]
    x, y = arete.tensor(a, dtype=arete.int32, device=device), arete.tensor(b, dtype=arete.int32, device=device)
    out = arete.zeros(2, 5, dtype=arete.int32, device=device)
    RawKernel("""extern "C" __global__ void k(const int* a, const int* b, int* out) {
      int i = threadIdx.x;
      out[i] = __mul24(a[i], b[i]);
      out[5 + i] = (int)__umul24((unsigned)a[i], (unsigned)b[i]);
    }""", "k")((1,), (5,), (x, y, out))
    wrap = [((v & 0xFFFFFF) ^ 0x800000) - 0x800000 for v in a]
    assert out[0].tolist() == [p * q for p, q in zip(wrap, b)]
    assert out[1].tolist() == [numpy.uint32((v & 0xFFFFFF) * q % 2**32).astype(numpy.int32) for v, q in zip(a, b)]


@pytest.mark.parametrize("memory, text", [
    ("float t[3]; float* p = t; p[i ? 3 : 2] = 1;", "element 3 of t, which has 3, by thread .1, 0, 0. of block .0"),
    ("float t[4]; float* p = t; p[i ? -1 : 0] = 1;", "element -1 of t, which has 4"),
    ("__shared__ float t[4]; float* p = t; p[blockIdx.x ? -1 : 3] = 1;", "element -1 of t, which has 4, by thread .0, 0, 0. of block .1"),
    ("extern __shared__ float t[]; t[blockIdx.x ? 2 : 3] = 1; t[blockIdx.x ? 2 : 3 + i] = 1;", "element 4 of t, which has 4, by thread .1"),
])
def test_no_thread_or_block_has_memory_of_another(memory, text):
    with pytest.raises(IndexError, match=text):
        RawKernel(f"__global__ void k(float*) {{ int i = threadIdx.x; {memory} }}", "k")((2,), (8,), (arete.ones(1),), shared_mem=16)


@pytest.mark.parametrize("device", DEVICES)
def test_values_of_statements_are_those_of_c(device):
    k = RawKernel("""
    extern "C" __global__ void k(int* out, unsigned char* c, int n) {
      int s = 0;
      while (n > 0) { s += WIDTH; n -= 1; }
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      out[i] = s + TIMES - ONE;
      if (i > 0) return;
      int before = c[0]++;
      out[0] += before * 100 + (c[1]--) * 1000;
      const int& kept = before + 1;
      before = 50;
      out[0] += kept * 10000;
      switch (before) { case 50: switch (1) { default: ; } case 3: c[2]++; break; default: c[2] = 9; }
    }""", "k", ("-D", "WIDTH=3", "--define-macro=TIMES=3", "-D ONE"))
    out, c = arete.zeros(16 * 256, dtype=arete.int32, device=device), arete.tensor([5, 7, 0], dtype=arete.uint8, device=device)
    k((16,), (256,), (out, c, numpy.int32(2)))
    assert out[0].item() == 8 + 500 + 7000 + 60000 and bool((out[1:] == 8).all())
    assert c.tolist() == [6, 6, 1]


@pytest.mark.parametrize("device", DEVICES)
def test_integers_of_python_are_any_integer(device):
    k = RawKernel("""extern "C" __global__ void k(double* x, int a, short b, unsigned char c, long long d) {
      x[0] = a; x[1] = b; x[2] = c; x[3] = d;
    }""", "k")
    x = arete.zeros(4, dtype=arete.float64, device=device)
    k((1,), (1,), (x, -5, -6, 7, 1 << 40))
    assert x.tolist() == [-5, -6, 7, 1 << 40]
    if device == "cpu":
        wrong = (1 << 40, 1, 1, 1), (1, 1 << 15, 1, 1), (1, 1, -1, 1), (1.0, 1, 1, 1), (numpy.float32(1), 1, 1, numpy.int32(1))
        for arguments in wrong:
            with pytest.raises(TypeError, match="another type than the parameter"):
                k((1,), (1,), (x, *arguments))


def test_scalars_of_cupy_are_numbers_where_a_kernel_takes_one():
    cp = arete.cupy
    k = RawKernel("""template <class T> __global__ void k(T* x, int n, /* *, */ const float v, const int *m, double *out) {
      x[0] = n; x[1] = v; x[2] = *m; *out = 7;
    }""", "k<float>")
    x, out = cp.zeros(3, dtype=cp.float32), cp.zeros(())
    k((1,), (1,), (x, cp.int32(4), cp.float32(2.5), cp.array(6, dtype=cp.int32), out))
    assert x.tolist() == [4, 2.5, 6] and float(out) == 7

    @cupyx.jit.rawkernel()
    def added(x, n):
        x[0] += n

    added((1,), (1,), (x, cp.float32(3)))
    assert x[0] == 7


@pytest.mark.parametrize("device", DEVICES)
def test_inverses_of_the_error_function(device):
    statements = "for (;;) break; a = erfinv(1 - p); b = erfcinv(p); c = normcdfinv(p / 2);"
    k = ElementwiseKernel("T p", "T a, T b, T c", statements, "inverses")
    p = arete.tensor([1e-300, 1e-20, 1e-3, 0.05, 0.3, 1.0, 1.5, 1.99], dtype=arete.float64, device=device)
    a, b, c = (v.cpu() for v in k(p))
    back = arete.tensor([math.erfc(v) for v in b.tolist()], dtype=arete.float64)
    assert arete.allclose(back, p.cpu(), rtol=1e-11, atol=0) and arete.allclose(c, -(2**0.5) * b, rtol=1e-12, atol=0)
    assert arete.allclose(a[3:], b[3:], rtol=1e-9) and k(p * 0)[1][0].item() == numpy.inf


@needs_nvrtc
def test_these_sources_are_cuda():
    assert nvrtc.problems(SOURCE) == ""


@pytest.mark.parametrize("device", DEVICES)
def test_templates_by_name(device):
    k = RawKernel("template <typename T, int N> __global__ void k(T* x) { for (int j = 0; j < N; ++j) x[j] = (T)j / 2; }", "k<float, 3>")
    x = arete.zeros(4, device=device)
    k((1,), (1,), (x,))
    assert x.tolist() == [0, 0.5, 1, 0]
    module = RawModule(code=k.code, name_expressions=["k<double, 2>"])
    y = arete.zeros(3, dtype=arete.float64, device=device)
    module.compile()
    module.get_function("k<double, 2>")((1,), (1,), (y,))
    assert y.tolist() == [0, 0.5, 0]
    with pytest.raises(ValueError, match="not among the name_expressions"):
        module.get_function("k<float, 2>")
    with pytest.raises(NotImplementedError, match="jitify is not there"):
        RawModule(code="", jitify=True)


@pytest.mark.parametrize("variable, shared", [
    ("__device__ int total;", "total"), ("static __device__ __align__(8) float t[2] = {1, 2}, u;", "t"),
    ("__device__ const int* at;", "at"), ("__constant__ int c[2];", None), ("const __device__ int c = 1;", None),
    ("__device__ constexpr int c[] = {1, 2};", None),
    ("// __device__ int total;\n#define F __device__\nF int f(int k = 2) { return k; }\n__device__ int g() { int i = 0; return i; }", None),
])
def test_instances_of_templates_do_not_share_variables(variable, shared):
    module = RawModule(code=f"{variable}\n__global__ void a(int* x) {{}}\n__global__ void b(int* x) {{}}\n"
                            "template <class T> __global__ void c(T* x) {}")
    assert module.get_function("a") is module.get_function("a") and module.get_function("b").name == "b"
    if shared is None:
        module.get_function("c<int>")
    else:
        with pytest.raises(NotImplementedError, match=f"share the variable '{shared}'"):
            module.get_function("c<int>")


needs_gpu = pytest.mark.skipif(len(DEVICES) == 1, reason="needs a GPU")


@pytest.mark.parametrize("block_size", [96, 128, 1000, 1024])
def test_indices_of_32_bits_do_not_come_around(block_size, monkeypatch):
    launched = []
    monkeypatch.setattr(_text.Compiled, "run", lambda self, *args, grid, block, **options: launched.append((self.text, grid[0] * block[0])))
    for count in (1000, 2**31 - 1024, 2**31 - 1023, 2**31 - 1, 2**31):
        # Each thread has one element, so that the grid is as large as it can be.
        few = ElementwiseKernel("", "raw int32 x", "if (i > 9) return; x[0] = 1", "few")
        few(arete.zeros(1, dtype=arete.int32), size=count, block_size=block_size)
        text, threads = launched.pop()
        is_short = "for (unsigned _i" in text
        assert is_short == (count <= 2**31 - 1024) and (not is_short or count - 1 + threads < 2**32)


@needs_gpu
def test_as_many_elements_as_32_bits_count_are_seen_once():
    k = ElementwiseKernel("", "raw int32 x", "if (i < 99) atomicAdd(&x[(int)i], 1); else return", "first")
    for count in (500, 2**31 - 1024, 2**31 - 1023, 2**31 - 1):  # prepared for the first, too
        x = arete.zeros(99, dtype=arete.int32, device="cuda")
        k(x, size=count, block_size=96)
        assert x.eq(1).all(), count


def test_variables_of_modules():
    module = RawModule(code=r"""
    __constant__ float weights[3];
    extern "C" __device__ int calls = 5;
    extern "C" __global__ void weighted(float* x) { x[threadIdx.x] *= weights[threadIdx.x]; if (threadIdx.x == 0) ++calls; }
    extern "C" __global__ void called(int* x) { *x = calls; }""")
    memory = module.get_global("weights")
    assert memory.size == 12 and int(memory + 4) == memory.ptr + 4
    weights = arete.cupy.ndarray((3,), arete.cupy.float32, memory)
    weights[...] = arete.cupy.array([1, 2, 3], dtype="float32")
    x, n = arete.ones(3, device=DEVICES[-1]), arete.zeros(1, dtype=arete.int32, device=DEVICES[-1])
    module.get_function("weighted")((1,), (3,), (x,))
    module.get_function("called")((1,), (1,), (n,))  # in the same module
    assert x.tolist() == [1, 2, 3] and n.item() == 6
    assert arete.cupy.ndarray((1,), "int32", memptr=module.get_global("calls")).item() == 6
    with pytest.raises(ValueError, match="no such variable"):
        module.get_global("missing")
    with pytest.raises(ValueError, match="do not fit"):
        arete.cupy.ndarray((4,), arete.cupy.float32, memory)


@needs_gpu
def test_attributes_and_occupancy():
    kernel = RawKernel("""extern "C" __global__ void __launch_bounds__(256) k(float* x) {
      __shared__ float s[64];
      s[threadIdx.x % 64] = x[threadIdx.x];
      __syncthreads();
      x[threadIdx.x] = s[(threadIdx.x + 1) % 64];
    }""", "k")
    facts = kernel.attributes
    assert kernel.shared_size_bytes == 256 and kernel.max_threads_per_block == 256 and 0 < kernel.num_regs == facts["num_regs"]
    assert kernel.local_size_bytes == 0 and kernel.binary_version >= 50 and len(facts) == 10
    kernel.max_dynamic_shared_size_bytes = 40 << 10
    assert kernel.max_dynamic_shared_size_bytes == 40 << 10
    with pytest.raises(ValueError, match="does not take this value"):
        kernel.max_dynamic_shared_size_bytes = 1 << 30
    driver = arete.cupy.cuda.driver
    few = driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, 256, 40 << 10)
    assert 1 <= few < driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel, 256, 0)
    blocks, threads = driver.occupancyMaxPotentialBlockSize(kernel.kernel, 0, 0)
    assert 0 < threads <= 256 and blocks >= 1


@pytest.mark.skipif(len(DEVICES) > 1, reason="there is a GPU")
def test_without_a_gpu_kernels_have_no_attributes():
    kernel = RawKernel('extern "C" __global__ void k(float* x) { *x = 1; }', "k")
    for ask in (lambda: kernel.num_regs, lambda: kernel.attributes, lambda: kernel.kernel.ptr,
                lambda: arete.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel, 32, 0)):
        with pytest.raises(NotImplementedError, match="of kernels are those of GPUs"):
            ask()
    kernel.max_dynamic_shared_size_bytes = 64 << 10
    x = arete.zeros(1)
    kernel((1,), (1,), (x,), shared_mem=64 << 10)
    assert x.item() == 1
    with pytest.raises(ValueError, match="is no kernel"):
        arete.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(5, 32, 0)


def test_compilers_say_what_is_wrong_to_a_stream_too():
    log = io.StringIO()
    with pytest.raises(ValueError):
        RawModule(code="template <class T> __global__ void f(T* x) {\n  x[0] = c;\n}", name_expressions=["f<int>"]).compile(log)
    assert "c" in log.getvalue() and "2" in log.getvalue()


def test_prepared_functions_of_pycuda():
    f = SourceModule("__global__ void f(float* x, short n, double v) { for (int i = 0; i < n; ++i) x[i] = v; }").get_function("f")
    x = arete.numpy.zeros(4, dtype="float32")
    with pytest.raises(RuntimeError, match="says first"):
        f.prepared_call((1, 1), (1, 1, 1), x, 3, 2)
    for types in ("Phd", ["P", numpy.int16, numpy.float64]):
        f.prepare(types).prepared_call((1, 1), (1, 1, 1), x, 3, 2)
        assert x.tolist() == [2, 2, 2, 0]
    f.prepared_async_call((1, 1), (1, 1, 1), None, x, 1, 7.5)
    assert x.tolist() == [7.5, 2, 2, 0]
    with pytest.raises(TypeError, match="prepared for 3"):
        f.prepared_call((1, 1), (1, 1, 1), x)
    with pytest.raises(OverflowError, match="16 bits"):
        f.prepared_call((1, 1), (1, 1, 1), x, 1 << 20, 1)
    with pytest.raises(ValueError, match="types of a kernel's arguments"):
        f.prepare("Pz")


def test_modules_as_pycuda_has_them():
    module = SourceModule("""
    __global__ void multiply_them(float *dest, float *a, float *b) {
      const int i = threadIdx.x;
      dest[i] = a[i] * b[i];
    }""")
    a, b = numpy.random.rand(2, 40).astype(numpy.float32)
    dest = numpy.zeros_like(a)
    module.get_function("multiply_them")(Out(dest), In(a), In(b), block=(40, 1, 1), grid=(1, 1))
    assert numpy.allclose(dest, a * b)
    with pytest.raises(ValueError, match=r"line 2: unknown name 'c'|\(2\): error: identifier"):
        SourceModule("__global__ void f(float* x) {\n  x[0] = c;\n}").get_function("f")(InOut(a), block=(1, 1, 1))


@needs_gpu
def test_the_checked_mode_of_gpus():
    x = arete.ones(8, device="cuda")
    k = ElementwiseKernel("raw T x", "raw T y", "int k = 1;\ny[i + k] = x[i]", "behind")
    y = arete.zeros(8, device="cuda")
    with arete.kernels.checked(), pytest.raises(IndexError, match="line 2: index 8 is out of range for an array or a dimension of 8"):
        k(x, y, size=8)
    assert y[1:].tolist() == [1] * 7  # and a first element that stood for the one behind
    total = ReductionKernel("raw T x, T v", "T y", "x[i + 1] + v", "a + b", "y = a; if (y < 0) y = 0", "0", "total")
    with arete.kernels.checked(), pytest.raises(IndexError, match="index 8 is out of range"):
        total(x, x)


def test_streams_are_contexts():
    entered = []

    class Stream:
        def __enter__(self):
            entered.append(self)

        def __exit__(self, *error):
            pass

    class Copied(InOut):
        def to_device(self):
            assert entered
            return super().to_device()

    x = numpy.ones(2, dtype=numpy.float32)
    double = SourceModule("__global__ void f(float* x) { x[threadIdx.x] *= 2; }").get_function("f")
    double(Copied(x), block=(2, 1, 1), stream=Stream())
    assert x.tolist() == [2, 2]
    with pytest.raises(TypeError, match="a stream is one of arete.cuda"):
        double(InOut(x), block=(2, 1, 1), stream=7)


def test_reversed_arrays():
    x = arete.numpy.arange(3, dtype="float32")
    twice = ElementwiseKernel("T x", "T y", "y = 2 * x", "twice")
    assert type(twice(x[::-1])) is arete.numpy.ndarray and twice(x[::-1]).tolist() == [4, 2, 0]
    total = ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")
    for write in (lambda: twice(x, x[::-1]), lambda: raw("beyond")((1,), (1,), (x[::-1], numpy.int32(0))), lambda: total(x, x[::-1])):
        with pytest.raises(ValueError, match="negative step"):
            write()
    cupyx.scatter_add(x[::-1], arete.numpy.array([0, 0]), 5)
    assert x.tolist() == [0, 1, 12]
    ndimage.shift(x, 0, output=x[::-1], order=1)
    assert x.tolist() == [12, 1, 0]


def test_outputs_and_axes_of_reductions():
    total = ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")
    x = arete.ones(2, 3)
    assert total(x, axis=numpy.int64(1)).tolist() == [3, 3]
    with pytest.raises(ValueError, match=r"the output has shape \(2, 2\), and the result \(2,\)"):
        total(x, axis=1, out=arete.zeros(2, 2))


def test_all_names():
    assert set(_kernels.__all__) <= set(dir(_kernels))


def test_arrays_of_records_and_texts_are_no_arguments():
    f = RawKernel('extern "C" __global__ void f(float* x) { x[0] = 1; }', "f")
    for dtype in ([("a", "f4"), ("b", "i4")], "U3", "datetime64[s]", ">f4"):
        with pytest.raises(TypeError, match="kernels take arrays of numbers"):
            f((1,), (1,), (numpy.zeros(3, dtype),))


class Count(int):
    """A number of elements that is no plain int."""


@pytest.mark.parametrize("size", [3, Count(3), True, -1])
def test_numbers_of_elements_of_any_kind(size):
    k = ElementwiseKernel("raw T x", "raw T y", "y[i] = x[i] + 1", "count_up")
    for _ in range(3):
        y = k(arete.arange(8.), arete.zeros(8), size=size)
        assert y.tolist() == [i + 1 if i < size else 0 for i in range(8)]


@pytest.mark.parametrize("device", DEVICES)
def test_plans_for_any_sizes(device, monkeypatch):
    """Calls that differ in sizes alone have one plan; others have plans of their own, and the same results."""
    slow = []
    for kind in (ElementwiseKernel, ReductionKernel):
        original = kind._call
        monkeypatch.setattr(kind, "_call", lambda self, *args, original=original: slow.append(self.name) or original(self, *args))
    statements = ElementwiseKernel("T x, T y, float32 c", "T z", "if (x > 0) z = x * c; else z = y;", "statements")
    expression = ElementwiseKernel("T x, T y", "T z", "z = x + y", "expression")
    raw = ElementwiseKernel("raw T x, int64 k", "raw T z", "z[i] = x[n - 1 - i] + k;", "raw")
    mixed = ElementwiseKernel("T x, raw T w", "T z", "z = x * w[i % w.size()] + w.ndim;", "mixed")
    largest = ReductionKernel("T x", "T y", "x > 0 ? x : -x", "a > b ? a : b", "y = a", "0", "largest")
    dot = ReductionKernel("T x, raw T w", "T y", "x * w[i]", "a + b", "y = a", "0", "dot")

    def check(shape):
        x = arete.randn(*shape, device=device)
        y, w = arete.randn(*shape, device=device), arete.arange(3., device=device)
        flat = x.reshape(-1)
        assert arete.equal(statements(x, y, 2.0), arete.where(x > 0, x * 2, y)) and arete.equal(expression(x, y), x + y)
        out = arete.empty_like(x)
        assert statements(x, y, 3.0, out) is out and arete.equal(out, arete.where(x > 0, x * 3, y))
        z = arete.empty_like(flat)
        raw(flat, 1, z, size=flat.numel())
        assert arete.equal(z, flat.flip(0) + 1)
        places = arete.arange(flat.numel(), device=device) % 3
        assert arete.allclose(mixed(x, w), (flat * w[places] + 1).reshape(x.shape))
        if flat.numel():
            assert largest(x).shape == () and largest(x) == x.abs().max() and largest(x, keepdims=True).shape == (1,) * x.dim()
            assert arete.allclose(dot(x, flat), (flat * flat).sum(), rtol=1e-5)

    for n in (5, 1):
        check((n,))
        check((n, 3))
    seen = len(slow)
    for n in (2, 7, 300, 4000, 70000, 0):
        check((n,))
    for n in (4, 0, 900):
        check((n, 2))
    assert len(slow) == seen  # no further size took the long way
    m = arete.randn(6, 4, device=device)
    t = m.t()
    assert arete.equal(statements(t, t, 2.0), arete.where(t > 0, t * 2, t)) and arete.equal(expression(t, m[:, :1].t()), t + m[:, 0])
    assert largest(t) == m.abs().max() and arete.equal(largest(m, axis=0), m.abs().amax(0))
    assert arete.equal(statements(m, m[0], 2.0), arete.where(m > 0, m * 2, m[0]))
    assert float(statements(arete.tensor(2.0, device=device), arete.tensor(1.0, device=device), 4.0)) == 8


def test_threads_have_one_element_where_statements_may_end_them():
    """Written out, by a macro, by an option, or by functions that count threads."""
    def alone(operation, preamble="", options=()):
        return ElementwiseKernel("float32 x", "float32 y", operation, "k", preamble=preamble, options=options)._alone

    assert alone("if (x > 0) return; y = x;") and alone("y = threadIdx.x;")
    assert alone("if (x > 0) SKIP; y = x;", "#define SKIP return") and alone("if (x > 0) SKIP; y = x;", options=["-DSKIP=return"])
    assert alone("y = at();", "__device__ int at() { return blockIdx.x; }")
    assert not alone("if (x > 0) { y = twice(x); } else { y = 0; }", "__device__ float twice(float x) { return 2 * x; }")


def test_indices_are_of_64_bits():
    """Though kernels of fewer elements than 2^31 count them in 32."""
    squares = ElementwiseKernel("raw T x", "T y", "y = i * i * n + x[0]", "squares")
    found = squares(arete.tensor([1]), size=100_000)
    assert found[-1].item() == 99_999**2 * 100_000 + 1 and found[70_000].item() == 70_000**2 * 100_000 + 1
