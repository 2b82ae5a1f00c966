"""arete.numpy against NumPy, and kernels written as snippets of C."""
import math

import numpy
import pytest

import arete as torch
import arete.numpy as np

A = numpy.random.default_rng(0).normal(size=(3, 4))
B = numpy.random.default_rng(1).normal(size=(3, 4))
CALLS = [
    ("add", (A, B), {}), ("subtract", (A, 2.0), {}), ("divide", (1.0, A), {}), ("power", (abs(A), 1.5), {}),
    ("maximum", (A, B), {}), ("minimum", (A, 0.5), {}), ("hypot", (A, B), {}), ("arctan2", (A, B), {}),
    ("exp", (A,), {}), ("tanh", (A,), {}), ("rint", (A,), {}), ("log1p", (abs(A),), {}), ("clip", (A, -0.5, 0.5), {}),
    ("sum", (A,), {}), ("sum", (A,), dict(axis=1, keepdims=True)), ("mean", (A,), dict(axis=0)),
    ("std", (A,), dict(ddof=1)), ("var", (A,), dict(axis=(0, 1))), ("prod", (A,), dict(axis=1)), ("max", (A,), dict(axis=0)),
    ("argmin", (A,), dict(axis=1)), ("cumsum", (A,), {}), ("cumsum", (A,), dict(axis=1)), ("any", (A > 1,), dict(axis=0)),
    ("median", (A,), dict(axis=1)), ("median", (A,), {}), ("count_nonzero", (A > 0,), {}),
    ("reshape", (A, (4, 3)), {}), ("transpose", (A,), {}), ("swapaxes", (A, 0, 1), {}), ("expand_dims", (A, 1), {}),
    ("concatenate", ([A, B],), dict(axis=1)), ("stack", ([A, B],), dict(axis=1)), ("vstack", ([A, B],), {}),
    ("tile", (A, (2, 1)), {}), ("repeat", (A, 2), dict(axis=0)), ("flip", (A,), dict(axis=1)), ("roll", (A, 2), {}),
    ("pad", (A, 1), {}), ("pad", (A, ((1, 0), (0, 2))), {}), ("tril", (A,), {}), ("take", (A, [2, 0]), dict(axis=1)),
    ("sort", (A,), dict(axis=0)), ("argsort", (A,), {}), ("dot", (A, B.T), {}), ("matmul", (A, B.T), {}),
    ("outer", (A[0], B[0]), {}), ("inner", (A, B), {}), ("einsum", ("ij,kj->ik", A, B), {}),
    ("convolve", (A[0], numpy.array([1.0, 2.0, 3.0])), {}), ("convolve", (A[0], numpy.array([1.0, 2.0, 3.0]), "same"), {}),
    ("convolve", (A[0], numpy.array([1.0, 2.0, 3.0]), "valid"), {}), ("where", (A > 0, A, B), {}),
    ("isclose", (A, A + 1e-9), {}), ("histogram", (A,), dict(bins=5)), ("nonzero", (A > 0,), {}), ("unique", (numpy.array([3, 1, 3]),), {}),
    ("arange", (5,), {}), ("arange", (0, 1, 0.25), {}), ("linspace", (0, 1, 7), {}), ("zeros", ((2, 3),), {}),
    ("full", ((2,), 1.5), {}), ("eye", (3,), {}), ("array", ([[1, 2], [3, 4]],), {}), ("array", ([0.1, 0.2],), {}),
]


def convert(x):
    if isinstance(x, numpy.ndarray):
        return np.array(x)
    return [convert(v) for v in x] if isinstance(x, list) and x and isinstance(x[0], numpy.ndarray) else x


@pytest.mark.parametrize("name,args,options", CALLS, ids=[f"{c[0]}{i}" for i, c in enumerate(CALLS)])
def test_like_numpy(name, args, options):
    expected = getattr(numpy, name)(*args, **options)
    found = getattr(np, name)(*[convert(a) for a in args], **options)
    for e, f in zip(expected if isinstance(expected, tuple) else [expected], found if isinstance(found, (tuple, list)) else [found]):
        e, f = numpy.asarray(e), np.asnumpy(f)
        assert f.dtype == e.dtype and f.shape == e.shape
        assert numpy.allclose(f, e, rtol=1e-12, atol=1e-12)


def test_iteration_reads_elements_in_their_turn():
    def running(np, wrapped=lambda a: a):
        a, seen = np.arange(5), []
        for i, x in enumerate(wrapped(a)):
            seen.append(int(x))
            a[i + 1:] += x
        return seen

    assert running(np) == running(numpy) == [0, 1, 3, 7, 15]
    assert running(np, lambda a: a[::-1][::-1]) == running(numpy, lambda a: a[::-1][::-1])
    assert [type(x) for x in np.arange(2.0)] == [np.ndarray] * 2 and [int(x) for x in np.arange(3)[::-1]] == [2, 1, 0]


def test_arange_of_numbers_that_doubles_have_not():
    for args in ((3, 0, -(2**62)), (0, 5, 2**62 + 1), (2**60, 2**60 + 3)):
        assert np.arange(*args).tolist() == numpy.arange(*args).tolist()
    with pytest.raises((OverflowError, ValueError)):
        np.arange(10**400)


def test_bits_of_the_lowest_numbers():
    for name in ("int8", "int16", "int32", "int64"):
        a = numpy.array([numpy.iinfo(name).min, -1, numpy.iinfo(name).max], name)
        assert np.bitwise_count(np.array(a)).tolist() == numpy.bitwise_count(a).tolist()


def test_modules():
    np.random.seed(1)
    assert np.random.rand(3, 2).dtype == np.float64 and np.random.normal(size=(4,)).shape == (4,)
    assert 0 <= np.random.randint(0, 5, size=(100,)).min().item() and len(np.unique(np.random.choice(10, 4, replace=False))) == 4
    np.cuda.Stream.null.synchronize()
    assert np.get_array_module(np.zeros(1)) is np and np.get_array_module(numpy.zeros(1)) is numpy
    assert np.array([1.0], dtype="float32").dtype == torch.float32 and np.array([1], dtype=numpy.int8).dtype == torch.int8
    with pytest.raises(TypeError):
        np.zeros(2, dtype="nonsense")


def test_save_and_load(tmp_path):
    np.save(tmp_path / "a.npy", np.array(A))
    assert numpy.array_equal(np.asnumpy(np.load(tmp_path / "a.npy")), A)


def test_elementwise_kernel():
    squared = np.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "squared")
    x, y = torch.rand(3, 1), torch.rand(4)
    assert torch.allclose(squared(x, y), (x - y) ** 2)
    assert torch.allclose(squared(x, 2.0), (x - 2) ** 2)
    out = torch.empty(3, 4)
    assert squared(x, y, out) is out and torch.allclose(out, (x - y) ** 2)
    generic = np.ElementwiseKernel(
        "T x, S k", "T lo, T hi", "T t = x * k; lo = t < 0 ? t : 0; hi = max(t, (T)0) + (k > 1 && x != 0 ? 1 : 0);", "parts")
    for dtype in (torch.float32, torch.float64, torch.int32, torch.float16):
        a = torch.tensor([-2, 0, 3]).to(dtype)
        lo, hi = generic(a, torch.tensor(2, dtype=torch.int64))
        assert lo.dtype is dtype and lo.tolist() == [-4, 0, 0] and hi.tolist() == [1, 0, 7]
    many = np.ElementwiseKernel(
        "float64 x", "float64 y",
        "/* a comment */ double a = sin(x) * 2.5e-1 + powf(fabs(x), 1.5f); a += exp(-x) / 3; // more\n y = isnan(a) ? -1.0 : a", "many")
    v = torch.rand(5, dtype=torch.float64)
    assert torch.allclose(many(v), v.sin() * 0.25 + v**1.5 + (-v).exp() / 3)
    integers = np.ElementwiseKernel("int32 a, int32 b", "int32 c", "c = (a / b) * 10 + a % b + (a << 1 & 7)", "integers")
    assert integers(torch.tensor([-7, 9], dtype=torch.int32), torch.tensor([2, 4], dtype=torch.int32)).tolist() == [
        -31 + (-14 & 7), 21 + (18 & 7)]
    w = torch.rand(3, requires_grad=True)
    squared(w, 1.0).sum().backward()
    assert torch.allclose(w.grad, 2 * (w.detach() - 1))


@pytest.mark.parametrize("operation", [
    "z = x +", "z = foo(x)", "z = w", "for (;; z = x", "z == x", "y = x", "z = x ? 1", "z = (x", "z = x $ 2", "z[0] = x",
    "unknown t = x; z = t", "z = sin(x, x)", "z += x", ""])
def test_bad_snippets(operation):
    with pytest.raises(ValueError):
        np.ElementwiseKernel("float32 x", "float32 z", operation, "bad")(torch.ones(2))


def test_bad_kernels():
    for bad in [("x", "float32 z"), ("float32 x", ""), ("float32 x", "float32 x"), ("raw T", "T y"), ("what x", "float32 y")]:
        with pytest.raises((ValueError, TypeError)):
            np.ElementwiseKernel(*bad, "z = x")
    k = np.ElementwiseKernel("T x, T y", "T z", "z = x + y", "k")
    with pytest.raises(TypeError, match="mismatched"):
        k(torch.ones(2), torch.ones(2, dtype=torch.float64))
    with pytest.raises(TypeError):
        k(torch.ones(2))
    with pytest.raises(TypeError, match="follows from no input"):
        np.ElementwiseKernel("T x", "S z", "z = x", "k")(torch.ones(2))


def test_options_that_kernels_do_not_have_are_refused():
    kernel = np.ElementwiseKernel("T x", "T z", "z = x", "k")
    for call in (lambda: kernel(torch.ones(2), stream=1), lambda: np.RawModule(code="", nonsense=True)):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            call()
    with pytest.raises(ValueError, match="by no 'nvcc'"):
        np.RawKernel("", "k", backend="nvcc")


def test_reduction_kernel():
    norm = np.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
    x = torch.rand(3, 4, 5)
    assert torch.allclose(norm(x), x.norm()) and torch.allclose(norm(x, axis=1), x.norm(2, 1))
    assert norm(x, axis=(0, 2), keepdims=True).shape == (1, 4, 1)
    count = np.ReductionKernel("T x, T limit", "int64 n", "x > limit ? 1 : 0", "a + b", "n = a", "0", "count")
    assert count(x, 0.5).item() == (x > 0.5).sum().item() and count(x, 0.5).dtype is torch.int64
    largest = np.ReductionKernel("float16 x", "float32 y", "fabs(x)", "max(a, b)", "y = a", "0", "largest")
    assert largest(torch.tensor([-3.0, 2.0]).half()).item() == 3
    product = np.ReductionKernel("float32 x", "float32 y", "x", "a * b", "y = a", "1", "product")
    assert product(torch.full((2, 3), 2.0)).item() == 64 and product(torch.full((2, 3), 2.0), axis=1).tolist() == [8, 8]
    either = np.ReductionKernel("T x", "bool y", "x > 3", "a || b", "y = a", "false", "either")
    assert either(torch.tensor([1.0, 5.0])).item() is True
    with pytest.raises(ValueError):
        np.ReductionKernel("T x", "T y", "x", "x + 1", "y = a", "0")
    assert math.isclose(norm(torch.ones(4)).item(), 2)


SOURCE = r"""
extern "C" __global__ void scale(float* x, float a, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * a + OFFSET;
}
extern "C" __global__ void iota(int* x, int n, bool twice) {
  extern __shared__ int row[];
  row[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x < n) x[threadIdx.x] = row[threadIdx.x] * (twice ? 2 : 1);
}
"""


def test_raw_kernels():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.arange(1000.0, device=device)
    np.RawKernel(SOURCE, "scale", ("-DOFFSET=1",))((4,), (256,), (x, numpy.float32(2), x.numel()))
    assert torch.equal(x.cpu(), torch.arange(1000.0) * 2 + 1)
    module = np.RawModule(code=SOURCE, options=("-DOFFSET=0",))
    y = torch.zeros(64, dtype=torch.int32, device=device)
    module.get_function("iota")((1, 1), (64, 1, 1), (y, numpy.int32(60), True), shared_mem=256)
    assert y.tolist() == [2 * i for i in range(60)] + [0] * 4
    with pytest.raises(ValueError, match=r"(scale\.cu\(4\)|line 4).*OFFSET"):
        np.RawKernel(SOURCE, "scale")((1,), (1,), (x, numpy.float32(2), 3))
    for call in [lambda k: k((1,), (2048,), (x, numpy.float32(1), 3)), lambda k: k((1,), (0,), (x, numpy.float32(1), 3)),
                 lambda k: k((1, 1, 1, 1), (1,), ()),
                 lambda k: k((1,), (1,), (object(),))]:
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            call(np.RawKernel(SOURCE, "scale", ("-DOFFSET=1",)))
