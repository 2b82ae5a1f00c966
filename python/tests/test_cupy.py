"""arete.cupy and arete.cupyx: CuPy's names, kernels from Python functions, SciPy's functions against plain loops of NumPy."""
import math

import fake_gpus
import numpy
import nvrtc
import pytest

import arete
import arete.cupy as cp
from arete import cupyx
from arete.cupyx import jit
from arete.cupyx.scipy import linalg, ndimage, signal, sparse, special
from arete.cupyx.scipy.sparse.linalg import LinearOperator, cg, gmres, spsolve

RANDOM = numpy.random.default_rng(0)


def test_a_program_of_cupys_guide():
    x = cp.arange(10, dtype=cp.float32).reshape(2, 5)
    squared = cp.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared_diff_generic")
    y = squared(x, cp.arange(5, dtype=cp.float32))
    assert isinstance(y, cp.ndarray) and cp.asnumpy(y)[1].tolist() == [25.0] * 5
    added = cp.ElementwiseKernel("T x, raw T y", "T z", "z = x + y[_ind.size() - i - 1]", "add_reverse")
    assert cp.asnumpy(added(cp.arange(3.0), cp.arange(3.0))).tolist() == [2, 2, 2]
    counted = cp.ElementwiseKernel("", "int64 y", "y = 2 * i", "count_up")(size=3)
    assert isinstance(counted, cp.ndarray) and cp.asnumpy(counted).tolist() == [0, 2, 4]
    norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
    assert numpy.allclose(cp.asnumpy(norm(x, axis=1)), numpy.linalg.norm(cp.asnumpy(x), axis=1))
    add = cp.RawKernel("""extern "C" __global__ void my_add(const float* x1, const float* x2, float* y) {
        int tid = blockDim.x * blockIdx.x + threadIdx.x;
        y[tid] = x1[tid] + x2[tid];
    }""", "my_add")
    x1 = x2 = cp.arange(25, dtype=cp.float32).reshape(5, 5)
    y = cp.zeros((5, 5), dtype=cp.float32)
    add((5,), (5,), (x1, x2, y))
    assert (cp.asnumpy(y) == 2 * cp.asnumpy(x1)).all()
    assert cp.get_array_module(x) is cp and cp.get_array_module(numpy.ones(1)) is numpy


def test_fuse():
    @cp.fuse(kernel_name="f")
    def f(x, y):
        return cp.sqrt((x - y) ** 2) + 1, x * y

    a, b = f(cp.arange(4.0), 2.0)
    assert cp.asnumpy(a).tolist() == [3, 2, 1, 2] and cp.asnumpy(b).tolist() == [0, 2, 4, 6]
    assert cp.asnumpy(cp.fuse(lambda x: x + x)(cp.ones(2))).tolist() == [2, 2]
    twice = cp.fuse(lambda x: x + x)(numpy.ones(2))
    assert type(twice) is numpy.ndarray and twice.tolist() == [2, 2]


def test_streams_events_and_pools():
    device = cp.cuda.Device(0)
    with device, device, cp.cuda.Stream(non_blocking=True) as stream:
        start, end = cp.cuda.Event(), cp.cuda.Event()
        start.record(), end.record(stream)
        end.synchronize(), stream.synchronize()
    assert cp.cuda.get_elapsed_time(start, end) >= 0 and cp.cuda.Stream.null.done
    with pytest.raises(ValueError, match="disable_timing"):
        cp.cuda.get_elapsed_time(start, cp.cuda.Event(disable_timing=True))
    pool = cp.get_default_memory_pool()
    assert pool.used_bytes() >= 0 and pool.total_bytes() >= pool.used_bytes()
    pool.free_all_blocks(), cp.get_default_pinned_memory_pool().free_all_blocks(), cp.cuda.set_allocator(cp.cuda.MemoryPool().malloc)
    with pytest.raises(NotImplementedError, match="own allocator"):
        cp.cuda.set_allocator(lambda size: None)
    if not cp.is_available():
        assert cp.cuda.runtime.getDeviceCount() == 0
        with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="NoDevice"):
            cp.cuda.runtime.getDevice()


def test_memory_of_the_host_and_numbers_of_kernels():
    assert cp.cuda.stream.Stream is cp.cuda.Stream and cp.cuda.stream.Event is cp.cuda.Event
    a = numpy.frombuffer(cp.cuda.alloc_pinned_memory(24), numpy.float64, 3)
    a[...] = [1, 2, 3]
    assert cp.array(a).sum() == 6
    b = cupyx.zeros_like_pinned(cp.ones((2, 3), dtype=cp.float32))
    turned = numpy.ones((2, 3)).T
    assert cupyx.zeros_like_pinned(turned).strides == turned.strides and cupyx.zeros_like_pinned(turned, order="C").flags.c_contiguous
    assert type(b) is numpy.ndarray and b.shape == (2, 3) and b.dtype == numpy.float32 and not b.any()
    assert cupyx.empty_pinned(numpy.int64(4), "int16").nbytes == 8 and cupyx.empty_like_pinned(b, shape=(0, 2)).size == 0
    assert cp.uint32(7) == 7 and cp.uint64(1).dtype == numpy.uint64
    for name, args in (("normal", (1, 2)), ("uniform", (3, 4)), ("gamma", (2.0,)), ("rand", ())):
        x = getattr(cp.random, name)(*args, **({} if name == "rand" else {"size": 3}), dtype=cp.float32)
        assert x.dtype == cp.float32 and (name != "uniform" or bool(((x >= 3) & (x <= 4)).all()))
    with pytest.raises(ValueError, match="scale < 0"):
        cp.random.normal(0, -1, 3)
    with pytest.raises(OverflowError, match="exceeds valid bounds"):
        cp.random.uniform(0, math.inf)


def test_the_cuda_array_interface():
    fake_gpus.run("""
    import arete.cupy as cp
    from arete import _cuda_streams
    from arete._kernels._launch import tensor_of

    class Foreign:
        def __init__(self, t, **others):
            self.__cuda_array_interface__ = {**t.__cuda_array_interface__, **others}

    class Driver:
        known = {}

        def cuPointerGetAttribute(self, found, attribute, address):
            found._obj.value = self.known.get(address.value, -2)
            return 0 if address.value in self.known and attribute == 9 else 1

    _cuda_streams.driver = Driver
    x, there = torch.arange(12.0, device="cuda").reshape(3, 4), torch.ones(5, device="cuda:1")
    Driver.known = {x.data_ptr(): 0, there.data_ptr(): 1}
    for stream in (1, torch.cuda.Stream(1).cuda_stream):  # of the other GPU
        t = tensor_of(Foreign(there, stream=stream))
        assert t.device == there.device and t.data_ptr() == there.data_ptr() and torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        assert tensor_of(Foreign(x)).device == x.device
    for v in (x, x.t(), x[:, 1:3], torch.zeros(0, 2, device="cuda", dtype=torch.bool)):
        t = tensor_of(Foreign(v, stream=1))
        assert t.dtype is v.dtype and t.device == v.device and t.shape == v.shape and t.stride() == v.stride()
        assert cp.asarray(Foreign(v)).shape == tuple(v.shape)
    cp.asarray(Foreign(x))[0, 0] = 7
    assert x[0, 0] == 7
    for others, error in (({"typestr": ">f4"}, TypeError), ({"mask": x}, TypeError), ({"strides": (6, 4)}, ValueError)):
        try:
            tensor_of(Foreign(x, **others))
        except error:
            continue
        raise AssertionError(others)
    assert torch.as_tensor(Foreign(x)).data_ptr() == x.data_ptr() and torch.as_tensor(Foreign(x), device="cpu").is_cpu
    """)


def test_the_memory_of_an_array():
    fake_gpus.run("""
    import arete.cupy as cp

    x = cp.arange(12.0).reshape(3, 4)
    for v in (x, x[1:, ::2], x.T):
        assert v.data.ptr == v._tensor.data_ptr() == int(v.data) and v.data.device_id == 0
    second = cp.ndarray((2,), cp.float64, memptr=x.data + 32)
    second[:] = 7
    assert x[1, :2].tolist() == [7, 7]
    """)


def test_the_module_of_arrays():
    x = cp.ones(2)
    assert cp.get_array_module(x) is cp and cp.get_array_module(numpy.ones(2)) is numpy
    for argument in (x, x._tensor):
        assert cupyx.scipy.get_array_module(numpy.ones(2), argument) is cupyx.scipy
    scipy = pytest.importorskip("scipy")
    assert cupyx.scipy.get_array_module(numpy.ones(2)) is scipy


def test_scatters():
    for name, f in (("add", numpy.add), ("max", numpy.maximum), ("min", numpy.minimum)):
        a, expected = RANDOM.normal(size=(4, 3)), None
        x, expected = cp.array(a), a.copy()
        index, values = numpy.array([1, 1, 3]), RANDOM.normal(size=(3, 3))
        getattr(cupyx, f"scatter_{name}")(x, cp.array(index), cp.array(values))
        f.at(expected, index, values)
        assert numpy.allclose(cp.asnumpy(x), expected)


# --- jit ---

TILE = 8


@jit.rawkernel()
def copied(x, y, size):
    """y = 2 x and what Python's // and % make of the place."""
    tid = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    ntid = jit.gridDim.x * jit.blockDim.x
    for i in range(tid, size, ntid):
        y[i] = x[i] * 2 + (i - 500) // 3 + (i - 500) % 7 - (-i) ** 2


@jit.rawkernel()
def product(a, b, c):
    left = jit.shared_memory(numpy.float32, (TILE, TILE))
    right = jit.shared_memory(cp.float32, (TILE, TILE))
    col, row = jit.grid(2)
    tx, ty = jit.threadIdx.x, jit.threadIdx.y
    total = 0
    for t in range((a.shape[1] + TILE - 1) // TILE):
        k = t * TILE
        left[ty, tx] = a[row, k + tx] if row < a.shape[0] and k + tx < a.shape[1] else 0
        right[ty][tx] = b[k + ty, col] if col < b.shape[1] and k + ty < b.shape[0] else 0
        jit.syncthreads()
        for j in jit.range(TILE, unroll=True):
            total += left[ty, j] * right[j, tx]
        jit.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = total


def escapes(x, y):
    r = 0
    while r < 50:
        if x * x + y * y > 4.0:
            return r
        x, y = x * x - y * y - 0.5, 2 * x * y + 0.5
        r += 1
    return r


@jit.rawkernel(device=True)
def put(out, i, j, v):
    out[i, j] = v


@jit.rawkernel()
def julia(out):
    i, j = jit.grid(2)
    h, w = out.shape
    if i < h and j < w:
        put(out, i, j, escapes(3.0 * i / h - 1.5, 3.0 * j / w - 1.5))


@jit.rawkernel()
def counted(x, counts):
    seen = jit.shared_memory(numpy.int32, 4)
    t = jit.threadIdx.x
    if t < 4:
        seen[t] = 0
    jit.syncthreads()
    for i in range(jit.grid(1), len(x), jit.gridsize(1)):
        jit.atomic_add(seen, int(min(max(math.floor(x[i] * 4), 0), 3)), 1)
    jit.syncthreads()
    if t < 4:
        jit.atomic_add(counts, t, seen[t])


@jit.rawkernel()
def warped(x, y):
    v = x[jit.threadIdx.x]
    for k in jit.range(0, 5, 1, unroll=5):
        v += jit.shfl_xor_sync(0xffffffff, v, 1 << k)
    y[jit.threadIdx.x] = v if not (jit.laneid() == 3) else -1.5


DEVICE = "cuda" if cp.is_available() else "cpu"


def run_jit(kernel):
    if kernel is copied:
        x, y = arete.arange(1000.0, device=DEVICE), arete.zeros(1000, device=DEVICE)
        copied[4, 64, cp.cuda.get_current_stream()](x, y, 1000)
        copied((4,), (64,), (x, y, numpy.uint32(1000)))
        i = arete.arange(1000, device=DEVICE)
        return y, x * 2 + (i - 500) // 3 + (i - 500) % 7 - i * i
    if kernel is product:
        a, b, c = arete.randn(20, 30, device=DEVICE), arete.randn(17, 30, device=DEVICE).t(), cp.zeros((20, 17), dtype=cp.float32)
        product[(3, 3), (8, 8)](a, b, c)
        return c._tensor, a @ b
    if kernel is julia:
        out = arete.zeros(40, 30, dtype=arete.int64, device=DEVICE)
        julia[(5, 4), (8, 8)](out)
        return out, arete.tensor([[escapes(3.0 * i / 40 - 1.5, 3.0 * j / 30 - 1.5) for j in range(30)] for i in range(40)])
    if kernel is counted:
        x, counts = arete.rand(1000, device=DEVICE), arete.zeros(4, dtype=arete.int64, device=DEVICE)
        counted[3, 64](x, counts)
        return counts, arete.histc(x, 4, 0, 1).long()
    x, y = arete.rand(32, device=DEVICE), arete.zeros(32, device=DEVICE)
    warped[1, 32](x, y)
    expected = x.sum().repeat(32)
    expected[3] = -1.5
    return y, expected


KERNELS = [copied, product, julia, counted, warped]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_kernels_of_python(kernel):
    found, expected = run_jit(kernel)
    assert arete.allclose(found.cpu(), expected.cpu().to(found.dtype), atol=1e-5)


@pytest.mark.skipif(nvrtc.opened() is None, reason="no NVRTC")
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_kernels_of_python_compile_for_gpus(kernel):
    run_jit(kernel)
    for compiled, *_ in kernel._compiled.values():
        assert nvrtc.problems(compiled.text) == "" and nvrtc.problems(compiled.text, ["-DARETE_CHECKED"]) == ""


@pytest.mark.skipif(nvrtc.opened() is None, reason="no NVRTC")
def test_kernels_of_filters_compile_for_gpus():
    for sizes in ((3, 3), (5, 5), (11, 11), (1, 17), (17, 1)):
        around = [s // 2 for s in sizes]
        for skip in (False, True):
            ndimage._filters._stencil(arete.ones(5, 5), arete.ones(sizes), around, around, "mirror", 0.0, skip)
    assert ndimage._filters._stencils
    for kernel in ndimage._filters._stencils.values():
        for more in ([], ["-DVECTORS"]):
            assert not any(nvrtc.problems(c.text, [*c.options, *more]) for c in kernel._compiled.values())


@pytest.mark.parametrize("order, mode", [(0, "constant"), (1, "grid-wrap"), (2, "constant"), (3, "reflect"), (4, "mirror"), (5, "nearest")])
def test_kernels_of_resampling_do_what_operators_do(order, mode):
    """On the CPU operators resample; the kernels of GPUs are interpreted, and compile where NVRTC is."""
    interpolation, numbers = ndimage._interpolation, numpy.random.default_rng(order)
    for shape, by_matrix in (((40, 50), True), ((40, 50), False), ((3, 4, 5), False)):
        sampler = interpolation._Sampler(arete.tensor(numbers.normal(size=shape)), order, mode, 2.5, True)
        places = arete.tensor([[0.8, 0.6, -12.0], [-0.6, 0.8, 25.0]] if by_matrix else numbers.uniform(-9, 60, (len(shape), 7, 3)),
                              dtype=arete.float64)
        size = [60, 70] if by_matrix else [7, 3]
        found, wanted = sampler.at(places, size, by_matrix=by_matrix), sampler._by_kernel(places, size, by_matrix)
        assert arete.allclose(found, wanted, atol=1e-12) and (mode != "constant" or bool((found == 2.5).any()))
        kernel = interpolation._kernel_at(len(shape), order, sampler.mode, sampler.edge, by_matrix)
        assert kernel._compiled
        for compiled in kernel._compiled.values() if nvrtc.opened() else ():
            assert not nvrtc.problems(compiled.text, compiled.options)


def bad(body):
    """A kernel whose source is the body of another function."""
    return jit.rawkernel()(body)


def _beyond(x):
    x[jit.grid(1) + 1] = 1


def _slice(x):
    x[0] = x[0:1]


def _text(x):
    print(x[0])


def _no_value(x):
    x[0] = y + 1  # noqa: F821


def _or(x):
    if jit.grid(1) or x[0] and not (jit.grid(1) or x[0]):
        x[0] = 2
    x[0] = jit.grid(1) or 7


def _with(x):
    with x:
        pass


def _gives(x):
    return x[0]


def _float_index(x):
    x[1.5] = 0


def _itself(x):
    x[0] = _recurs(1)


def _recurs(v):
    return _recurs(v - 1)


def _dims(x):
    x[0, 1] = 2


def _unrolled(x):
    for i in jit.range(4, unroll=x.size):
        x[i] = 1


@pytest.mark.parametrize("body, error, text", [
    (_beyond, IndexError, "index 4 is out of range for x, which has 4"), (_slice, NotImplementedError, "elements, not slices"),
    (_text, NotImplementedError, r"line \d+: kernels do not know print\(\)"), (_no_value, NameError, "'y' has no value yet"),
    (_with, NotImplementedError, "no 'with'"), (_or, NotImplementedError, r"line \d+: 'and' and 'or' of numbers have no value"),
    (_gives, TypeError, "a kernel returns nothing"), (_float_index, TypeError, "an index is an integer"),
    (_itself, NotImplementedError, "calls itself"), (_dims, IndexError, "x has 1 dimensions, and 2 indices"),
    (_unrolled, TypeError, "one option: unroll"),
])
def test_errors_of_python_kernels(body, error, text):
    with pytest.raises(error, match=text):
        bad(body)[1, 4](arete.zeros(4))


def test_more_errors_of_python_kernels():
    with pytest.raises(TypeError, match="takes 3 arguments"):
        copied[1, 1](arete.zeros(1))
    with pytest.raises(RuntimeError, match="no gradient"):
        copied[1, 1](arete.zeros(1, requires_grad=True), arete.zeros(1), 1)
    with pytest.raises(RuntimeError, match="is for kernels"):
        jit.syncthreads()
    with pytest.raises(TypeError, match="for other kernels to call"):
        put[1, 1](arete.zeros(1, 1), 0, 0, 1)


# --- SciPy's functions ---

X = RANDOM.normal(size=(7, 9))
BEYOND = {
    "reflect": lambda i, n: i % (2 * n) if i % (2 * n) < n else 2 * n - 1 - i % (2 * n),
    "mirror": lambda i, n: i % (2 * n - 2) if i % (2 * n - 2) < n else 2 * n - 2 - i % (2 * n - 2),
    "nearest": lambda i, n: min(max(i, 0), n - 1), "wrap": lambda i, n: i % n,
    "constant": lambda i, n: i if 0 <= i < n else None,
}


def neighbours(x, sizes, mode, cval=0.0):
    """Of each element the window around it."""
    out = numpy.empty((*x.shape, *sizes))
    for i in numpy.ndindex(*out.shape):
        at = [BEYOND[mode](p + q - s // 2, n) for p, q, s, n in zip(i[:2], i[2:], sizes, x.shape)]
        out[i] = cval if None in at else x[tuple(at)]
    return out


@pytest.mark.parametrize("mode", BEYOND)
def test_filters(mode):
    w = RANDOM.normal(size=(3, 4))
    windows = neighbours(X, (3, 4), mode, 0.5)
    x = cp.array(X)
    assert numpy.allclose(cp.asnumpy(ndimage.correlate(x, cp.array(w), mode=mode, cval=0.5)), (windows * w).sum((2, 3)))
    flat = windows.reshape(7, 9, -1)
    for f, expected in ((ndimage.maximum_filter, flat.max(-1)), (ndimage.minimum_filter, flat.min(-1)),
                        (ndimage.median_filter, numpy.sort(flat)[..., 6])):
        assert numpy.allclose(cp.asnumpy(f(x, (3, 4), mode=mode, cval=0.5)), expected)
    shape = numpy.array([[1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 0, 0]], dtype=bool)
    found = ndimage.maximum_filter(x, footprint=cp.array(shape), mode=mode, cval=0.5)
    assert numpy.allclose(cp.asnumpy(found), windows[..., shape].max(-1))
    odd = neighbours(X, (3, 3), mode, 0.5)
    assert numpy.allclose(cp.asnumpy(ndimage.convolve(x, cp.array(w[:, :3]), mode=mode, cval=0.5)), (odd * w[::-1, 2::-1]).sum((2, 3)))
    assert numpy.allclose(cp.asnumpy(ndimage.uniform_filter(x, 3, mode=mode)), neighbours(X, (3, 3), mode).mean((2, 3)))
    edges = numpy.outer([1, 2, 1], [-1, 0, 1])
    assert numpy.allclose(cp.asnumpy(ndimage.sobel(x, mode=mode)), (neighbours(X, (3, 3), mode) * edges).sum((2, 3)))
    k = numpy.exp(-0.5 * (numpy.arange(-4, 5) / 1.0) ** 2)
    k /= k.sum()
    for order, factor in ((0, 1), (1, numpy.arange(-4, 5)), (2, numpy.arange(-4, 5) ** 2 - 1.0)):
        weights = k * factor * k[:, None]
        assert numpy.allclose(cp.asnumpy(ndimage.gaussian_filter(x, 1.0, order=(0, order), mode=mode)),
                              (neighbours(X, (9, 9), mode) * weights).sum((2, 3)))


@pytest.mark.parametrize("mode", BEYOND)
def test_the_kernel_of_filters_is_the_filter(mode):
    # GPUs run it; here the interpreter does.
    for t in (arete.tensor(X), arete.randn(29, 17, dtype=arete.float64), arete.randn(5, 33, dtype=arete.float64).mT):
        for sizes, before in (((3, 4), [1, 2]), ((8, 7), [4, 3]), ((1, 3), [0, 1]), ((4, 1), [2, 0])):
            w = arete.randn(sizes, dtype=arete.float64)
            after = [n - 1 - b for n, b in zip(sizes, before)]
            found = ndimage._filters._stencil(t, w, before, after, mode, 0.5, False)
            assert arete.allclose(found, ndimage._filters._correlated(t, w, [0, 0], mode, 0.5))
            bad, holes = t.clone(), w.clone()
            bad[2, 3], bad[0, 0], bad[3, 4], holes[0, -1], holes[-1, 0] = math.nan, math.inf, -math.inf, 0, 0
            for skip in (False, True):
                found = ndimage._filters._stencil(bad, holes, before, after, mode, 0.5, skip)
                wanted = ndimage._filters._correlated(bad, holes, [0, 0], mode, 0.5, skip)
                assert arete.allclose(found, wanted, equal_nan=True) and bool(found.isnan().any()) >= (not skip)


def test_integers_and_outputs():
    x = cp.array(numpy.arange(12, dtype=numpy.uint8).reshape(3, 4))
    assert ndimage.uniform_filter(x, 3).dtype == numpy.uint8 and ndimage.uniform_filter(x, 3, output=cp.float32).dtype == numpy.float32
    out = cp.zeros((3, 4))
    assert ndimage.laplace(x, out) is out and isinstance(ndimage.laplace(arete.ones(2, 2)), arete.Tensor)


def test_label():
    x = numpy.array([[1, 1, 0, 0, 1], [0, 1, 0, 1, 0], [0, 0, 0, 1, 1], [1, 0, 1, 0, 0]])
    found, count = ndimage.label(cp.array(x))
    assert count == 5 and cp.asnumpy(found).tolist() == [[1, 1, 0, 0, 2], [0, 1, 0, 3, 0], [0, 0, 0, 3, 3], [4, 0, 5, 0, 0]]
    found, count = ndimage.label(cp.array(x), cp.ones((3, 3)))
    assert count == 3 and cp.asnumpy(found)[3].tolist() == [3, 0, 2, 0, 0]
    snake = numpy.zeros((30, 31), dtype=int)
    snake[::2] = 1
    snake[1::4, -1] = snake[3::4, 0] = 1
    assert ndimage.label(cp.array(snake))[1] == 1
    assert ndimage.label(cp.zeros((2, 2)))[1] == 0


def test_resampling():
    x = cp.array(X)
    c = numpy.array([[0.5, 2.25, -1, 6], [1.5, 8, 2, 8]])
    found = cp.asnumpy(ndimage.map_coordinates(x, cp.array(c), order=1, cval=-5))
    mean = X[:2, 1:3].mean()
    assert numpy.allclose(found, [mean, 0.75 * X[2, 8] + 0.25 * X[3, 8], -5, X[6, 8]])
    assert numpy.allclose(cp.asnumpy(ndimage.shift(x, (1, -2), order=1)), numpy.pad(X, ((1, 0), (0, 2)))[:7, 2:])
    assert numpy.allclose(cp.asnumpy(ndimage.rotate(x, 90, order=1, mode="nearest")), numpy.rot90(X))
    big = cp.asnumpy(ndimage.zoom(x, 2, order=1))
    assert big.shape == (14, 18) and numpy.allclose(big[[0, 0, -1], [0, -1, -1]], X[[0, 0, -1], [0, -1, -1]])
    wide = numpy.arange(3000) % 7
    for dtype in (cp.float16, cp.float32):
        moved = ndimage.shift(cp.array(wide, dtype=dtype), 1, order=1, mode="grid-wrap")
        assert numpy.array_equal(cp.asnumpy(moved), numpy.roll(wide, 1)) and moved.dtype == dtype
    assert float(ndimage.map_coordinates(cp.array(wide, dtype=cp.float16), cp.array([[2501.5]]), order=1)[0]) == wide[2501:2503].mean()
    for other in ("wrap", "grid-constant"):
        with pytest.raises(NotImplementedError, match="resampling has no mode"):
            ndimage.shift(x, 1, order=1, mode=other)
    with pytest.raises(RuntimeError, match="spline order not supported"):
        ndimage.zoom(x, 2, order=6)


def cardinal(x, order):
    """The B-spline of an order around 0, by its definition: differences of powers."""
    if abs(x) >= (order + 1) / 2:
        return 0.0
    terms = [(-1) ** j * math.comb(order + 1, j) * max(x + (order + 1) / 2 - j, 0.0) ** order for j in range(order + 2)]
    return math.fsum(terms) / math.factorial(order)


@pytest.mark.parametrize("mode", ["mirror", "reflect", "grid-wrap", "constant"])
@pytest.mark.parametrize("order", [2, 3, 4, 5])
def test_splines_go_through_the_elements_and_are_what_they_are_between(order, mode):
    """The coefficients solve the system of samples, and the values between are sums of B-splines."""
    x, n = RANDOM.normal(size=(2, 11)), 11
    place = BEYOND[{"grid-wrap": "wrap", "constant": "mirror"}.get(mode, mode)]
    samples = numpy.zeros((n, n))
    for i in range(n):
        for k in range(-3, 4):
            samples[i, place(i + k, n)] += cardinal(k, order)
    coefficients = numpy.linalg.solve(samples, x.T).T
    found = ndimage.spline_filter1d(cp.array(x), order, mode=mode)
    assert numpy.allclose(cp.asnumpy(found), coefficients, rtol=0, atol=1e-12) and found.dtype == numpy.float64
    at = numpy.array([0.0, 0.3, 1.5, 4.75, 9.5, 10.0])
    wanted = [[sum(c[place(k, n)] * cardinal(p - k, order) for k in range(-8, n + 8)) for p in at] for c in coefficients]
    places = numpy.stack([numpy.repeat([0.0, 1.0], 6).reshape(2, 6), numpy.tile(at, (2, 1))])
    one = [ndimage.map_coordinates(cp.array(row), cp.array(at[None]), order=order, mode=mode) for row in x]
    assert numpy.allclose([cp.asnumpy(o) for o in one], wanted, rtol=0, atol=1e-12)
    assert numpy.allclose(cp.asnumpy(ndimage.map_coordinates(cp.array(x), cp.array(places), order=order, mode=mode)), wanted, atol=1e-12)
    stretched = ndimage.zoom(cp.array(x), (1, 3), order=order, mode=mode)
    assert numpy.allclose(cp.asnumpy(stretched), [[sum(c[place(k, n)] * cardinal(p - k, order) for k in range(-8, n + 8))
                                                   for p in numpy.linspace(0, n - 1, 3 * n)] for c in coefficients], rtol=0, atol=1e-12)
    if mode != "constant":  # the places on the border may be beyond it by a rounding
        turned = ndimage.rotate(cp.array(x), 180, order=order, mode=mode)
        assert numpy.allclose(cp.asnumpy(turned), x[::-1, ::-1], atol=1e-10)


def test_resampled_whole_numbers_are_the_nearest():
    x = numpy.array([[10, 13, 250, 255], [0, 0, 255, 3]], dtype=numpy.uint8)
    linear = cp.asnumpy(ndimage.shift(cp.array(x), (0, 0.5), order=1, mode="nearest"))
    assert linear.tolist() == [[10, 12, 132, 253], [0, 0, 128, 129]] and linear.dtype == numpy.uint8
    cubic = cp.asnumpy(ndimage.zoom(cp.array(x), (1, 4)))  # runs over both ends, which are kept
    assert cubic.min() == 0 and cubic.max() == 255
    assert numpy.array_equal(cp.asnumpy(ndimage.zoom(cp.array(x), 1)), x)
    grid = ndimage.zoom(cp.array([[0.0, 4.0]]), (1, 2), order=1, mode="nearest", grid_mode=True)
    assert cp.asnumpy(grid).tolist() == [[0, 1, 3, 4]]


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolutions(mode):
    a, b = RANDOM.normal(size=20), RANDOM.normal(size=5)
    for f in (signal.convolve, signal.fftconvolve):
        assert numpy.allclose(cp.asnumpy(f(cp.array(a), cp.array(b), mode)), numpy.convolve(a, b, mode))
    assert numpy.allclose(cp.asnumpy(signal.correlate(cp.array(a), cp.array(b), mode)), numpy.correlate(a, b, mode))
    rows = [numpy.convolve(x, y, mode) for x, y in zip(X, X[:, :4])]
    for axes in (1, [-1]):
        assert numpy.allclose(cp.asnumpy(signal.fftconvolve(cp.array(X), cp.array(X[:, :4]), mode, axes)), rows)
    one = signal.fftconvolve(cp.array(X), cp.array(X[:1, :4]), mode, 1)
    assert numpy.allclose(cp.asnumpy(one), [numpy.convolve(x, X[0, :4], mode) for x in X])
    with pytest.raises(ValueError, match="incompatible shapes"):
        signal.fftconvolve(cp.array(X), cp.array(X[:2]), mode, 1)
    whole = signal.convolve(cp.arange(5), cp.array([1, 2]), mode)
    assert whole.dtype == numpy.int64 and cp.asnumpy(whole).tolist() == numpy.convolve(numpy.arange(5), [1, 2], mode).tolist()
    w = RANDOM.normal(size=(3, 3))
    for boundary, border in (("fill", "constant"), ("wrap", "wrap"), ("circular", "wrap"), ("symm", "reflect"), ("symmetric", "reflect")):
        found = cp.asnumpy(signal.convolve2d(cp.array(X), cp.array(w), "same", boundary))
        assert numpy.allclose(found, (neighbours(X, (3, 3), border) * w[::-1, ::-1]).sum((2, 3)))


def test_signals():
    x = RANDOM.normal(size=(3, 50))
    b, a = [0.2, 0.3, -0.1], [2.0, -0.4, 0.25]
    expected = numpy.zeros_like(x)
    for n in range(50):
        for k in range(3):
            if n >= k:
                expected[:, n] += (b[k] * x[:, n - k] - (a[k] * expected[:, n - k] if k else 0)) / a[0]
    assert numpy.allclose(cp.asnumpy(signal.lfilter(b, a, cp.array(x))), expected)
    single = cp.array(x, dtype=cp.float32)
    assert signal.lfilter(b, a, single).dtype == numpy.float32
    assert numpy.allclose(cp.asnumpy(signal.lfilter(cp.array(b), cp.array(a), single)), expected, atol=1e-5)
    assert signal.lfilter(cp.array(b), a, single).dtype == numpy.float64
    with pytest.raises(NotImplementedError, match="coefficients"):
        signal.lfilter([1j], [1.0], cp.array(x))
    first, state = signal.lfilter(b, a, cp.array(x[:, :20]), zi=cp.zeros((3, 2)))
    second, _ = signal.lfilter(b, a, cp.array(x[:, 20:]), zi=state)
    assert numpy.allclose(numpy.hstack([cp.asnumpy(first), cp.asnumpy(second)]), expected)
    t = numpy.arange(64) * 2 * math.pi / 64
    assert numpy.allclose(cp.asnumpy(signal.hilbert(cp.array(numpy.cos(5 * t)))), numpy.exp(5j * t))
    assert numpy.allclose(cp.asnumpy(signal.resample(cp.array(numpy.cos(5 * t)), 32)), numpy.cos(5 * t[::2]))
    assert numpy.allclose(cp.asnumpy(signal.resample(cp.array(numpy.cos(5 * t)), 128))[::2], numpy.cos(5 * t))
    line = signal.detrend(cp.array(3 * t + 1))
    assert numpy.allclose(cp.asnumpy(line), 0)
    taps = cp.asnumpy(signal.firwin(31, 0.25))
    assert math.isclose(taps.sum(), 1) and abs((taps * (-1.0) ** numpy.arange(31)).sum()) < 1e-3
    assert numpy.allclose(cp.asnumpy(signal.medfilt(cp.array([1.0, 9, 2, 8, 3]), 3)), [1, 2, 8, 3, 3])


def test_linear_algebra():
    a, b = RANDOM.normal(size=(4, 4)), RANDOM.normal(size=4)
    factors = linalg.lu_factor(cp.array(a))
    assert numpy.allclose(a @ cp.asnumpy(linalg.lu_solve(factors, cp.array(b))), b)
    assert numpy.allclose(a.T @ cp.asnumpy(linalg.lu_solve(factors, cp.array(b), trans=1)), b)
    p, low, up = map(cp.asnumpy, linalg.lu(cp.array(a)))
    assert numpy.allclose(p @ low @ up, a)
    for trans, lower in ((0, True), (1, False)):
        m = numpy.tril(a) if lower else numpy.triu(a)
        x = cp.asnumpy(linalg.solve_triangular(cp.array(a), cp.array(b), trans, lower))
        assert numpy.allclose((m.T if trans else m) @ x, b)
    assert cp.asnumpy(linalg.toeplitz(cp.array([1, 2, 3]), cp.array([9, 4]))).tolist() == [[1, 4], [2, 1], [3, 2]]
    assert cp.asnumpy(linalg.hankel(cp.array([1, 2, 3]))).tolist() == [[1, 2, 3], [2, 3, 0], [3, 0, 0]]
    assert cp.asnumpy(linalg.circulant(cp.array([1, 2, 3]))).tolist() == [[1, 3, 2], [2, 1, 3], [3, 2, 1]]
    assert numpy.allclose(numpy.linalg.eigvals(cp.asnumpy(linalg.companion(cp.array([1.0, -3, 2])))), [2, 1])
    assert numpy.allclose(cp.asnumpy(linalg.dft(4)) @ b, numpy.fft.fft(b))
    assert numpy.allclose(cp.asnumpy(special.gamma(cp.array([0.5, -0.5, -1.5, 5]))), [math.gamma(v) for v in (0.5, -0.5, -1.5, 5)])
    one, two, z = cp.array(a), cp.array(a[0].astype("f")), cp.array(b * 1j)
    assert cp.asnumpy(linalg.toeplitz(cp.array([1, 2]), cp.array([1, 0.5]))).tolist() == [[1, 0.5], [2, 1]]
    assert cp.asnumpy(linalg.hankel(cp.array([1, 2]), cp.array([2, 0.5]))).tolist() == [[1, 2], [2, 0.5]]
    assert numpy.allclose(cp.asnumpy(linalg.lu_solve(factors, z)), numpy.linalg.solve(a, b * 1j))
    assert numpy.allclose(numpy.triu(a) @ cp.asnumpy(linalg.solve_triangular(one, z)), b * 1j)
    turned = cp.array(a * (1 + 2j))
    for trans, m in enumerate((a * (1 + 2j), a.T * (1 + 2j), a.T * (1 - 2j))):
        assert numpy.allclose(m @ cp.asnumpy(linalg.lu_solve(linalg.lu_factor(turned), z, trans)), b * 1j)
    assert linalg.solve_triangular(one, two).dtype == numpy.float64
    weighted = special.logsumexp(cp.array(b), b=cp.array([1.0, 2, 3, 4]))
    assert math.isclose(float(weighted), math.log((numpy.arange(1, 5) * numpy.exp(b)).sum()))


def test_options_of_scipys_are_done_or_refused():
    bad = cp.array([[1.0, float("nan")], [0.0, 1.0]])
    for call in (lambda: linalg.lu_factor(bad), lambda: linalg.lu(bad), lambda: linalg.solve_triangular(bad, cp.ones(2), check_finite=True),
                 lambda: linalg.lu_solve(linalg.lu_factor(cp.eye(2)), bad)):
        with pytest.raises(ValueError, match="must not contain infs or NaNs"):
            call()
    assert linalg.lu_factor(bad, check_finite=False)[0].shape == (2, 2)
    with pytest.raises(NotImplementedError, match="not measured"):
        signal.choose_conv_method(cp.ones(3), cp.ones(3), measure=True)
    twice = LinearOperator((2, 2), lambda x: 2 * x, matmat=lambda x: 3 * x)
    assert (twice @ cp.ones(2)).tolist() == [2, 2] and (twice @ cp.ones((2, 1))).tolist() == [[3], [3]]


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_matrix", "coo_matrix"])
def test_sparse_matrices(kind):
    make = getattr(sparse, kind)
    a = RANDOM.normal(size=(5, 4)) * (RANDOM.random((5, 4)) < 0.5)
    b = RANDOM.normal(size=(4, 6)) * (RANDOM.random((4, 6)) < 0.5)
    m, n = make(cp.array(a)), make(cp.array(b))
    dense = lambda s: cp.asnumpy(s.toarray())  # noqa: E731
    assert numpy.allclose(dense(m), a) and m.nnz == (a != 0).sum() and m.format == kind[:3]
    assert numpy.allclose(dense(m @ n), a @ b) and numpy.allclose(cp.asnumpy(m @ cp.array(b)), a @ b)
    assert numpy.allclose(cp.asnumpy(m @ cp.array(b[:, 0])), a @ b[:, 0])
    assert numpy.allclose(dense(m.T), a.T) and numpy.allclose(dense(m + m * 2 - m.multiply(m)), 3 * a - a * a)
    assert numpy.allclose(cp.asnumpy(m.sum(0)), a.sum(0)[None]) and numpy.allclose(cp.asnumpy(m.diagonal(-1)), numpy.diagonal(a, -1))
    assert numpy.allclose(dense(make((cp.array([1.0, 2, 3]), (cp.array([0, 0, 1]), cp.array([1, 1, 0]))))), [[0, 3], [3, 0]])
    if kind != "coo_matrix":
        again = make((m.data, m.indices, m.indptr), shape=m.shape)
        assert numpy.allclose(dense(again), a)
    i = make(cp.array([[3, 0], [250, 7]], dtype=cp.uint8))
    assert (i * 2.5).dtype == (i / 2).dtype == (i * numpy.float64(2)).dtype == (numpy.float64(2) * i).dtype == numpy.float64
    assert dense(numpy.float64(2) * i).tolist() == [[6, 0], [500, 14]]
    assert cp.asnumpy(i - cp.array([[1, 1], [0, 0]], dtype=cp.uint8)).tolist() == [[2, 255], [250, 7]]
    assert dense(i - i).tolist() == [[0, 0], [0, 0]] and (i - i).dtype == numpy.uint8
    assert cp.asnumpy(i.sum(0)).tolist() == [[253, 7]] and cp.asnumpy(i.astype(bool).sum(1)).tolist() == [[1], [2]]
    twin, other = make(m, copy=True), m.copy()
    ones = cp.ones(4, dtype=cp.float32)
    f = make(cp.eye(4, dtype=cp.float32))
    assert cp.asnumpy(f @ ones.astype("d")).tolist() == [1, 1, 1, 1]
    if kind == "csc_matrix":
        with pytest.raises(ValueError, match="read-only"):
            f.data[:] = 5
        f.data = f.data * 5
        b = make(cp.array([[1.0, 2], [3, 4]]))
        b.data = cp.array([5, 6, 7, 8])
        assert dense(b).tolist() == [[5, 7], [6, 8]]
    else:
        f.data[:] = 5
        assert make(f).data[0] == 5
        f.data *= 1
    assert cp.asnumpy(f @ ones.astype("d")).tolist() == cp.asnumpy(f @ ones).tolist() == [5, 5, 5, 5]
    m.data = m.data * 2
    assert numpy.allclose(dense(twin), a) and numpy.allclose(dense(other), a) and numpy.allclose(dense(m), 2 * a)
    out = cp.zeros((5, 4))
    assert m.toarray(out=out) is out and numpy.allclose(cp.asnumpy(out), 2 * a) and m.toarray(order="F").flags.f_contiguous
    with pytest.raises(ValueError, match="outside"):
        make((cp.array([1.0]), (cp.array([7]), cp.array([0]))), shape=(2, 2))


def test_sparse_solvers():
    n = 40
    assert cp.asnumpy(sparse.diags(cp.array([1.0, 2])).toarray()).tolist() == [[1, 0], [0, 2]]
    one, two = (sparse.random(5, 6, 0.5, random_state=s).toarray() for s in (3, cp.random.RandomState(3)))
    assert (one == two).all() and (one != 0).sum() == 15
    a = sparse.diags([[-1.0] * (n - 1), [2.5] * n, [-1.0] * (n - 1)], [-1, 0, 1], format="csr")
    b = cp.array(RANDOM.normal(size=n))
    exact = numpy.linalg.solve(cp.asnumpy(a.toarray()), cp.asnumpy(b))
    x, info = cg(a, b, tol=1e-10)
    assert info == 0 and numpy.allclose(cp.asnumpy(x), exact)
    _, info = cg(a, b, tol=1e-10, maxiter=2)
    assert info == 2
    x, info = gmres(LinearOperator((n, n), lambda v: a @ v), b, tol=1e-10, restart=15)
    assert info == 0 and numpy.allclose(cp.asnumpy(x), exact)
    assert numpy.allclose(cp.asnumpy(spsolve(a, b)), exact)
    turned = numpy.linalg.solve(cp.asnumpy(a.toarray()) * 1j, cp.asnumpy(b))  # of a complex matrix and a real right side
    x, info = gmres(a * 1j, b, tol=1e-10, restart=n)
    assert info == 0 and numpy.allclose(cp.asnumpy(x), turned)
    assert numpy.allclose(cp.asnumpy(spsolve(a * 1j, b)), turned)
    x, info = gmres(LinearOperator((n, n), lambda v: a @ v * 1j), b, tol=1e-10, restart=n)
    assert info == 0 and numpy.allclose(cp.asnumpy(x), turned)
    assert numpy.allclose(cp.asnumpy(spsolve(a, b.astype("f"))), exact) and cg(a, b.astype("f"))[0].dtype == numpy.float64
