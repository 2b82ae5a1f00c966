"""PyCUDA's names: the programs of its tutorial, on the GPU where there is one, else on the CPU; and structs as arguments of kernels."""
import ctypes

import numpy
import nvrtc
import pytest

import arete.cupy
import arete.pycuda.autoinit  # noqa: F401
import arete.pycuda.driver as drv
from arete.pycuda import cumath, curandom, gpuarray, tools
from arete.pycuda.compiler import SourceModule
from arete.pycuda.elementwise import ElementwiseKernel
from arete.pycuda.reduction import ReductionKernel
from arete.pycuda.scan import ExclusiveScanKernel, InclusiveScanKernel

DEVICES = ["cpu"] + ["cuda"] * arete.cuda.is_available()


def test_tutorial():
    a = numpy.arange(16, dtype=numpy.float32).reshape(4, 4)
    memory = drv.mem_alloc(a.nbytes)
    drv.memcpy_htod(memory, a)
    double = SourceModule("""
        __global__ void doublify(float *a) {
          int idx = threadIdx.x + threadIdx.y * 4;
          a[idx] *= 2;
        }""").get_function("doublify")
    double(memory, block=(4, 4, 1))
    back = numpy.empty_like(a)
    drv.memcpy_dtoh(back, memory)
    assert numpy.array_equal(back, 2 * a)
    double.prepare("P").prepared_call((1, 1), (4, 4, 1), memory)
    assert numpy.array_equal(drv.from_device_like(memory, a), 4 * a)
    copy = a.copy()
    double(drv.InOut(copy), block=(4, 4, 1))
    assert numpy.array_equal(copy, 2 * a)
    x = gpuarray.to_gpu(a)
    double(x, block=(4, 4, 1))
    assert numpy.array_equal(x.get(), 2 * a) and numpy.array_equal((2 * x).get(), 4 * a)


def test_memory():
    a = numpy.arange(8, dtype=numpy.int32)
    memory = drv.to_device(a)
    drv.memcpy_htod(int(memory) + 8, numpy.int32(-1))  # an address in it
    other = drv.mem_alloc_like(a)
    drv.memcpy_dtod(other, memory, a.nbytes)
    assert drv.from_device(other, (2, 4), numpy.int32).tolist() == [[0, 1, -1, 3], [4, 5, 6, 7]]
    drv.memset_d32(other, 0x3f800000, 4)
    drv.memset_d8(int(other) + 16, 255, 4)
    assert drv.from_device(other, 4, numpy.float32).tolist() == [1] * 4 and drv.from_device(int(other) + 16, 1, numpy.int32) == -1
    with pytest.raises(drv.LogicError, match="64 bytes are copied"):
        drv.memcpy_htod(memory, numpy.zeros(16, numpy.float32))
    with pytest.raises(drv.LogicError, match="in no memory"):
        drv.memcpy_dtoh(a, 16)
    address = int(memory)
    memory.free()
    with pytest.raises(drv.LogicError):
        drv.memcpy_dtoh(a, address)
    pinned = drv.pagelocked_empty((2, 3), numpy.float64)
    assert pinned.shape == (2, 3) and pinned.dtype == numpy.float64


def test_the_memory_of_arrays():
    x = gpuarray.to_gpu(numpy.arange(6, dtype=numpy.float32))
    kernel = SourceModule("__global__ void add(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }").get_function("add")
    kernel(x.gpudata, numpy.int32(x.mem_size - 1), block=(8, 1, 1))
    assert x.get().tolist() == [1, 2, 3, 4, 5, 5]
    drv.memcpy_htod(x.gpudata, numpy.full(2, 7, numpy.float32))
    behind = x[2:].gpudata  # whose address is known as long as it is there
    assert x.get().tolist() == [7, 7, 3, 4, 5, 5] and drv.from_device(int(behind), 1, numpy.float32) == 3


def test_the_memory_of_variables():
    module = SourceModule("""__constant__ float factors[3];
    __global__ void scale(float *x) { x[threadIdx.x] *= factors[threadIdx.x]; }""")
    place, size = module.get_global("factors")
    assert size == 12 and int(place) != 0
    drv.memcpy_htod(place, numpy.array([1, 2, 3], numpy.float32))
    drv.memcpy_htod(place + 8, numpy.array([5], numpy.float32))
    x = numpy.ones(3, numpy.float32)
    module.get_function("scale")(drv.InOut(x), block=(3, 1, 1))
    assert x.tolist() == [1, 2, 5]


def test_moments():
    stream, first, last = drv.Stream(), drv.Event(), drv.Event()
    with pytest.raises(ValueError):
        first.time_till(last)
    assert first.record(stream) is first
    gpuarray.to_gpu(numpy.ones(1000)).sum()
    last.record(stream).synchronize()
    stream.wait_for_event(last)
    stream.synchronize()
    assert first.time_till(last) >= 0 and last.time_since(first) == first.time_till(last) and last.query() and stream.is_done()


@pytest.mark.parametrize("n", [0, 1, 2, 100, 1025])
def test_scans(n):
    a = numpy.random.default_rng(n).integers(-9, 10, n).astype(numpy.int32)
    x = gpuarray.to_gpu(a)
    assert InclusiveScanKernel(numpy.int32, "a+b")(x) is x and numpy.array_equal(x.get(), numpy.cumsum(a))
    out = gpuarray.zeros(n, numpy.int32)
    x = gpuarray.to_gpu(a)
    ExclusiveScanKernel(numpy.int32, "max(a, b)", "-100")(x, out)
    wanted = numpy.concatenate([[-100], numpy.maximum.accumulate(a)[:-1]])[:n] if n else a
    assert numpy.array_equal(out.get(), wanted) and numpy.array_equal(x.get(), a)
    # Which of a and b comes first counts: the last one that is not 0.
    assert InclusiveScanKernel(numpy.int32, "b ? b : a")(gpuarray.to_gpu(a)).get().tolist() == [
        next((v for v in a[k::-1] if v), 0) for k in range(n)]
    with pytest.raises(ValueError, match="takes a vector"):
        InclusiveScanKernel(numpy.float32, "a+b")(x)


def test_random_numbers_and_tools():
    x = curandom.rand((100, 200))
    assert x.dtype == numpy.float32 and 0 <= x.get().min() < 0.01 and 0.49 < x.get().mean() < 0.51
    one, two = (curandom.XORWOWRandomNumberGenerator(lambda count: numpy.full(count, 5)) for _ in range(2))
    a, b = one.gen_normal(1000, numpy.float64), gpuarray.zeros(1000)
    two.fill_normal(b)
    assert numpy.array_equal(a.get(), b.get()) and abs(a.get().std() - 1) < 0.1
    assert tools.dtype_to_ctype(numpy.uint16) == "unsigned short" and tools.DeviceMemoryPool().allocate(16).size == 16
    tools.make_default_context().synchronize()
    with pytest.raises(ValueError):
        tools.dtype_to_ctype(numpy.complex64)


class Entered(drv.Stream):
    """A stream that counts how often it was the current one."""
    times = 0

    def __enter__(self):
        self.times += 1
        return super().__enter__()


def test_streams_of_functions_are_the_current_ones():
    x, y, k = gpuarray.arange(0, 4, 1, dtype=numpy.float32), gpuarray.zeros(4, "float32"), gpuarray.to_gpu(numpy.array([2, 0]))
    generator = curandom.PhiloxRandomNumberGenerator()
    total = ReductionKernel(numpy.float32, neutral="0", reduce_expr="a+b")
    scan = InclusiveScanKernel(numpy.float32, "a+b")
    calls = [
        lambda s: curandom.rand(4, stream=s),
        lambda s: generator.gen_uniform(4, "float32", s), lambda s: generator.gen_normal(4, "float32", s),
        lambda s: generator.fill_uniform(y, s), lambda s: generator.fill_normal(y, s), lambda s: scan(x, y, queue=s),
        lambda s: total(x, stream=s), lambda s: gpuarray.take(x, k, stream=s), lambda s: gpuarray.if_positive(x, x, x, y, s),
        lambda s: gpuarray.sum(x, stream=s), lambda s: gpuarray.dot(x, x, stream=s), lambda s: gpuarray.subset_dot(k, x, x, stream=s),
        lambda s: gpuarray.max(x, s), lambda s: gpuarray.min(x, s)]
    for call in calls:
        stream = Entered()
        found, wanted = call(stream), call(None)
        stream.synchronize()
        assert stream.times > 0
        if call in calls[5:]:
            assert numpy.array_equal(found.get(), wanted.get())
        with pytest.raises(TypeError, match="a stream is one of"):
            call("a stream")
    assert gpuarray.if_positive(x, 2 * x, x, y) is y and y.get().tolist() == [0, 2, 4, 6]
    assert gpuarray.dot(x, x, "float64").dtype == numpy.float64 == gpuarray.subset_dot(k, x, x, "float64").dtype


def test_what_is_remembered_for_each_context(monkeypatch):
    calls = []

    @tools.context_dependent_memoize
    def kernel_for(kind, *, size=1):
        """Makes one."""
        calls.append((kind, size))
        return object()

    first = kernel_for("f4")
    assert kernel_for("f4") is first is not kernel_for("f4", size=2) and kernel_for.__doc__ == "Makes one."
    with monkeypatch.context() as patched:
        patched.setattr(drv, "_device", lambda: arete.device("cuda:7"))
        assert kernel_for("f4") is not first
    assert kernel_for("f4") is first and len(calls) == 3
    tools.clear_context_caches()
    assert kernel_for("f4") is not first and len(calls) == 4
    assert tools.make_default_context(lambda device: ("made of", device.number)) == ("made of", arete.cuda.current_device())


def test_kernels_of_elements():
    a, b = numpy.linspace(0, 1, 1000, dtype=numpy.float32), numpy.linspace(1, 3, 1000, dtype=numpy.float32)
    x, y = gpuarray.to_gpu(a), gpuarray.to_gpu(b)
    z = gpuarray.empty_like(x)
    ElementwiseKernel("float a, float *x, float b, float *y, float *z", "z[i] = a*x[i] + b*y[i]", "lin_comb")(5, x, 6, y, z)
    assert numpy.allclose(z.get(), 5 * a + 6 * b)
    dot = ReductionKernel(numpy.float32, neutral="0", reduce_expr="a+b", map_expr="x[i]*y[i]", arguments="float *x, float *y")
    assert numpy.allclose(float(dot(x, y)), float(a.astype(float) @ b))
    largest = ReductionKernel(numpy.float32, neutral="-1e30f", reduce_expr="fmaxf(a, b)")
    assert largest(y) == 3 and numpy.allclose(cumath.exp(x).get(), numpy.exp(a))
    assert gpuarray.arange(0, 4, 1, dtype=numpy.float32).dtype == numpy.float32 and float(gpuarray.max(y)) == 3
    with pytest.raises(RuntimeError, match="non-contiguous"):
        ElementwiseKernel("float *x", "x[i] = 0")(x[::2])
    with pytest.raises(RuntimeError, match="vector argument"):
        ElementwiseKernel("float a", "a = 0")


STRUCTS = r"""
struct Point { float x, y; double z; unsigned char tag; };
typedef struct { int n; long long step; } Range;
__device__ float length(const Point& p, float by) { return sqrtf(p.x * p.x + p.y * p.y) * by; }
extern "C" __global__ void move(double* out, const Point p, Range r, float3 f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < r.n) out[i] = p.z * r.step + length(p, 2.0f) + f.y * i + p.tag;
}"""


@pytest.mark.parametrize("device", DEVICES)
def test_structs_as_arguments(device):
    """NumPy's records, arrays of one, and those of ctypes."""
    point = numpy.dtype([("x", "f4"), ("y", "f4"), ("z", "f8"), ("tag", "u1")], align=True)
    float3 = numpy.dtype([(n, "f4") for n in "xyz"])

    class Range(ctypes.Structure):
        _fields_ = [("n", ctypes.c_int), ("step", ctypes.c_longlong)]

    kernel = arete.cupy.RawKernel(STRUCTS, "move")
    out = arete.zeros(5, dtype=arete.float64, device=device)
    p, f = numpy.array([(3, 4, 0.5, 7)], point), numpy.array((1, 2, 3), float3)
    for a, b in ((p[0], f), (p[0:1].reshape(()), f[()])):
        out.zero_()
        kernel((1,), (8,), (out, a, Range(4, 10), b))
        assert out.tolist() == [22, 24, 26, 28, 0]
    if device == "cpu":
        for wrong in (numpy.float32(3), f):
            with pytest.raises(TypeError, match="not the struct that the kernel takes"):
                kernel((1,), (8,), (out, wrong, Range(4, 10), f))
        for member, s, message in (("float* p", "S s", "a struct's member that is no number"),
                                   ("float v[3]", "S s", "a struct's member that is no number"),
                                   ("float v", "S* s", "a pointer to structs")):
            with pytest.raises(NotImplementedError, match=message):
                text = f'struct S {{ {member}; }};\nextern "C" __global__ void f({s}, float*) {{}}'
                arete.cupy.RawKernel(text, "f")((1,), (1,), (f, out))
    with pytest.raises(TypeError, match="Unsupported type"):
        kernel((1,), (8,), (out, p, Range(4, 10), f))


@pytest.mark.skipif(nvrtc.opened() is None, reason="no NVRTC")
def test_texts_compile_for_gpus():
    sums = ElementwiseKernel("float a, float *x, const double *y", "x[i] = a * halved(x[i]) + y[i]", preamble="""
__device__ float halved(float v) { return v / 2; }""", loop_prep="float t = a", after_loop="t = 0")
    largest = ReductionKernel(numpy.float32, neutral="-1e30f", reduce_expr="fmaxf(a, b)")
    for text in (STRUCTS, sums._kernel.code, largest._map._kernel.code):
        assert nvrtc.problems(text) == ""


def test_memory_as_argument():
    x = arete.cupy.zeros(4, dtype="float32")
    memory = drv.to_device(numpy.ones(4, numpy.float32))
    kernel = arete.cupy.RawKernel('extern "C" __global__ void f(float* x, const float* y) { x[threadIdx.x] = y[threadIdx.x]; }', "f")
    if x.device.type == "cuda" or not arete.cuda.is_available():
        kernel((1,), (3,), (x, memory + 4))
        assert x.tolist() == [1, 1, 1, 0]
