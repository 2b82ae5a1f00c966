"""numba.cuda's names: programs as Numba's users write them, and what is refused."""
import math

import arete
import arete.numpy as np
import numpy
import nvrtc
import pytest
from arete.numba import cuda, float32, float64, int32
from arete.numba.cuda.random import (
    create_xoroshiro128p_states, init_xoroshiro128p_states, xoroshiro128p_normal_float32, xoroshiro128p_normal_float64,
    xoroshiro128p_uniform_float32, xoroshiro128p_uniform_float64,
)
from arete.numba.types import Signature

TILE = 8
SCALE = 3.0


@cuda.jit
def product(a, b, c):
    """A tile of the result a block."""
    left = cuda.shared.array(shape=(TILE, TILE), dtype=float32)
    right = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for t in range((a.shape[1] + TILE - 1) // TILE):
        left[ty, tx] = 0
        right[ty, tx] = 0
        if y < a.shape[0] and tx + t * TILE < a.shape[1]:
            left[ty, tx] = a[y, tx + t * TILE]
        if x < b.shape[1] and ty + t * TILE < b.shape[0]:
            right[ty, tx] = b[ty + t * TILE, x]
        cuda.syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@cuda.jit
def block_sum(data, result):
    part = cuda.shared.array(64, int32)
    tid = cuda.threadIdx.x
    i = cuda.grid(1)
    part[tid] = data[i] if i < len(data) else 0
    cuda.syncthreads()
    s = 1
    while s < cuda.blockDim.x:
        if tid % (2 * s) == 0:
            part[tid] += part[tid + s]
        s *= 2
        cuda.syncthreads()
    if tid == 0:
        cuda.atomic.add(result, 0, part[0])


@cuda.jit(device=True)
def escape(re, im, rounds):
    x = 0.0
    y = 0.0
    for k in range(rounds):
        x, y = x * x - y * y + re, 2.0 * x * y + im
        if x * x + y * y >= 4:
            return k
    return rounds


@cuda.jit
def mandelbrot(x0, y0, step, image, rounds):
    start_x, start_y = cuda.grid(2)
    step_x, step_y = cuda.gridsize(2)
    for x in range(start_x, image.shape[1], step_x):
        for y in range(start_y, image.shape[0], step_y):
            image[y, x] = escape(x0 + x * step, y0 + y * step, rounds)


@cuda.jit("void(float32[:], float64[:], int32)", fastmath=True, cache=True)
def scaled(x, out, n):
    last = cuda.local.array(2, float64)
    i = cuda.grid(1)
    if i < n:
        last[1] = x[i] * SCALE
        out[i] = math.sqrt(last[1])


@cuda.jit
def histogram(values, low, width, bins):
    start, stride = cuda.grid(1), cuda.gridsize(1)
    for i in range(start, values.shape[0], stride):
        k = int32((values[i] - low) / width)
        if k >= 0 and k < bins.shape[0]:
            cuda.atomic.add(bins, k, 1)


@cuda.jit
def reversed_by_blocks(x):
    shared = cuda.shared.array(0, float64)
    shared[cuda.threadIdx.x] = x[cuda.threadIdx.x]
    cuda.syncthreads()
    x[cuda.threadIdx.x] = shared[cuda.blockDim.x - 1 - cuda.threadIdx.x] + cuda.laneid * 0


def test_tiles_in_shared_memory():
    a, b = numpy.arange(115, dtype=numpy.float32).reshape(5, 23), numpy.ones((23, 7), numpy.float32)
    c = cuda.device_array((5, 7), dtype=float32)
    product[(1, 1), (TILE, TILE)](cuda.to_device(a), cuda.to_device(b), c)
    assert numpy.array_equal(c.copy_to_host(), a @ b) and c.dtype == numpy.float32


def test_arrays_of_numpy_are_copied_there_and_back():
    data, result = numpy.arange(150), numpy.zeros(1, numpy.int64)
    data.flags.writeable = False
    block_sum[3, 64](data, result)
    assert result[0] == data.sum()
    x = numpy.arange(8.0)
    stream = cuda.stream()
    reversed_by_blocks[1, 8, stream, 64](x)
    stream.synchronize()
    assert numpy.array_equal(x, numpy.arange(8.0)[::-1])
    t = arete.arange(8.0, dtype=arete.float64)
    reversed_by_blocks[1, 8, 0, 64](t)
    assert t.tolist() == x.tolist()


def test_functions_of_kernels():
    image = np.zeros((6, 9), dtype=np.int64)
    mandelbrot[(2, 2), (4, 4)](-2.0, -1.0, 0.35, image, 20)
    assert [[int(image[y, x]) for x in range(9)] for y in range(6)] == [
        [escape.py_func(-2.0 + x * 0.35, -1.0 + y * 0.35, 20) for x in range(9)] for y in range(6)]


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 200, 5000])
def test_elements_are_put_together(n):
    @cuda.reduce
    def add(a, b):
        return a + b

    greatest = cuda.Reduce(lambda a, b: a if a > b else b)
    whole = (numpy.arange(n) * 37 % 101) - 150
    for x in (whole, whole / 2.0):
        assert add(x) == x.sum() and add(x, init=7) == x.sum() + 7 and add(cuda.to_device(x)) == x.sum()
        assert greatest(x) == 0 and greatest(x, init=-1000) == max(x, default=-1000) and add(x, size=3) == x[:3].sum()
        assert add(x).dtype == x.dtype
        out = cuda.device_array(2, x.dtype)
        out[1] = 5
        assert add(x, res=out) is None and out.tolist() == [x.sum(), 5]
    with pytest.raises(ValueError, match="write it with def"):
        [cuda.reduce(f)(numpy.arange(3)) for f in (lambda a, b: a + b, lambda a, b: a * b)]
    with pytest.raises(TypeError, match="1D"):
        add(numpy.ones((2, 2)))


def test_source_that_cannot_be_parsed():
    @cuda.jit
    def kernel(y):
        """A text whose second line begins
before the function does."""
        y[0] = 1

    with pytest.raises(SyntaxError):
        kernel[1, 1](np.zeros(1))


def test_signatures_are_held():
    x, out = numpy.arange(5, dtype=numpy.float32), numpy.zeros(5)
    scaled.forall(5)(x, out, 5)
    assert numpy.allclose(out, numpy.sqrt(x * 3.0))
    for bad in ((x.astype(float), out, 5), (x.reshape(1, 5), out, 5), (x, out, x), (x, out)):
        with pytest.raises(TypeError):
            scaled[1, 8](*bad)
    found = Signature.of("(f4[:, :], int32, float64[:])").arguments
    assert found == (float32[:, :], int32, float64[:]) == Signature.of((float32[:, :], int32, float64[:])).arguments


def test_counts_by_atomics():
    values = numpy.random.default_rng(0).normal(size=500)
    bins = cuda.to_device(numpy.zeros(10, numpy.int32))
    start, end = cuda.event(), cuda.event()
    start.record()
    histogram[4, 32](cuda.to_device(values), -2.0, 0.4, bins)
    end.record()
    end.synchronize()
    places = ((values + 2.0) / 0.4).astype(int)
    assert bins.copy_to_host().tolist() == numpy.bincount(places[(places >= 0) & (places < 10)], minlength=10).tolist()
    assert cuda.event_elapsed_time(start, end) >= 0


def test_what_is_refused():
    for bad, text in ((lambda: cuda.jit(debug=True), "checked"), (lambda: cuda.jit(["void(f4)"]), "one signature"),
                      (lambda: cuda.jit("f4(f4)", device=True), "no signature"), (lambda: cuda.device_array(3, strides=(8,)), "strides")):
        with pytest.raises(NotImplementedError, match=text):
            bad()
    with pytest.raises(TypeError, match="gives nothing"):
        cuda.jit("f4(f4)")
    with pytest.raises(AttributeError, match="launch two"):
        cuda.cg
    with pytest.raises(AttributeError, match="arete.compile"):
        arete.numba.njit
    message = "index 4 is out of range for (x, which has|an array or a dimension of) 4"
    with arete.kernels.checked(), pytest.raises(IndexError, match=message):
        reversed_by_blocks[1, 8, 0, 64](numpy.zeros(4))


WEIGHTS = numpy.array([[0.25, 0.5, 0.25], [1.0, 2.0, 4.0]])


@cuda.jit(device=True)
def weight(k, j):
    return WEIGHTS[k, j]


@cuda.jit(device=True)
def neighbours(x, y, i):
    row = x[i]
    kept = cuda.local.array(3, float64)
    for d in (-1, 0, 1):
        at = min(max(i + d, 0), x.shape[0] - 1)
        kept[d + 1] = x[at, 0] * weight(0, d + 1) + row[row.shape[0] - 1] * WEIGHTS[1][d + 1]
    line = y[i]
    line[0] = line[1] = kept[0] + kept[1] + kept[2]
    line[2] = row.size + len(line)


@cuda.jit
def smoothed(x, y):
    i = cuda.grid(1)
    if i < x.shape[0]:
        neighbours(x, y, i)


def test_parts_of_arrays_constants_and_loops_over_tuples():
    x, y = numpy.arange(12.0).reshape(4, 3) ** 2, numpy.zeros((4, 3))
    with cuda.stream().auto_synchronize() as stream:
        smoothed[1, 32, stream](x, y)
    padded = numpy.pad(x[:, 0], 1, mode="edge")
    wanted = 0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:] + 7 * x[:, 2]
    assert numpy.allclose(y, numpy.stack([wanted, wanted, numpy.full(4, 6.0)], 1))

    @cuda.jit
    def writes_constants(x):
        WEIGHTS[0, 0] = x[0, 0]

    with pytest.raises(TypeError, match="'WEIGHTS' is a constant"):
        writes_constants[1, 1](x)


PRICES = cuda.to_device(numpy.array([[10.0, 25], [5, 15]], dtype=numpy.float32))


@cuda.jit
def totals(quantities, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = quantities[i] * PRICES[1, i] + PRICES.shape[0]


def test_arrays_of_the_device_from_elsewhere_are_those_of_now():
    """Their elements were part of the kernel, as they were at its first launch."""
    quantities, out = numpy.array([1.0, 2], dtype=numpy.float32), numpy.zeros(2, dtype=numpy.float32)
    for row in ([5, 15], [50, 150], [7, 8]):
        PRICES[1] = row
        totals[1, 32](quantities, out)
        assert out.tolist() == [row[0] + 2, 2 * row[1] + 2]

    @cuda.jit(device=True)
    def inner(i):
        return PRICES[0, i]

    @cuda.jit
    def by_function(out):
        out[0] = inner(0)

    @cuda.jit
    def writes(out):
        PRICES[0, 0] = out[0]

    with pytest.raises(TypeError, match="take the array 'PRICES' as an argument"):
        by_function[1, 1](out)
    with pytest.raises(TypeError, match="'PRICES' is a constant"):
        writes[1, 1](out)


@cuda.jit
def drawn(states, even, even32, normal, normal32):
    i = cuda.grid(1)
    if i < even.shape[0]:
        for k in range(even.shape[1]):
            even[i, k] = xoroshiro128p_uniform_float64(states, i)
            even32[i, k] = xoroshiro128p_uniform_float32(states, i)
            normal[i, k] = xoroshiro128p_normal_float64(states, i)
            normal32[i, k] = xoroshiro128p_normal_float32(states, i)


def test_streams_of_copies_are_the_current_ones():
    class Entered(type(cuda.stream())):
        times = 0

        def __enter__(self):
            self.times += 1
            return super().__enter__()

    states, x = create_xoroshiro128p_states(4, 1), numpy.arange(3.0)
    for call in (lambda s: create_xoroshiro128p_states(4, 1, stream=s), lambda s: init_xoroshiro128p_states(states, 1, stream=s),
                 lambda s: cuda.to_device(x, s), lambda s: cuda.to_device(x, s, to=cuda.to_device(x)),
                 lambda s: cuda.device_array(3, stream=s), lambda s: cuda.device_array_like(x, s)):
        stream = Entered()
        call(stream)
        stream.synchronize()
        assert stream.times > 0
        with pytest.raises(TypeError, match="a stream is one of"):
            call("a stream")


def test_random_numbers_of_threads():
    def draw(seed, start=0):
        out = [numpy.zeros((64, 200), dtype=d) for d in ("f8", "f4", "f8", "f4")]
        states = create_xoroshiro128p_states(64, seed, start)
        first = states.get()
        drawn[2, 32](states, *out)
        return first, states.get(), out

    first, after, out = draw(1)
    for x in out[:2]:
        assert x.min() >= 0 and x.max() < 1 and abs(x.mean() - 0.5) < 0.01 and abs(x.var() - 1 / 12) < 0.005
        assert abs(numpy.corrcoef(x[:-1].ravel(), x[1:].ravel())[0, 1]) < 0.03 and len(numpy.unique(x)) > 12000
    for x in out[2:]:
        assert abs(x.mean()) < 0.03 and abs(x.var() - 1) < 0.05 and abs((x**4).mean() - 3) < 0.3
    # The words of the first thread, by the algorithm.
    a, b = map(int, first[0])
    words = []
    for _ in range(200 * 6):
        words.append((a + b) % 2**64)
        b ^= a
        a = ((a << 24 | a >> 40) ^ b ^ (b << 16)) % 2**64
        b = (b << 37 | b >> 27) % 2**64
    assert (a, b) == tuple(map(int, after[0])) and [w // 2**11 / 2**53 for w in words[::6]] == out[0][0].tolist()
    assert [w // 2**40 / 2**24 for w in words[1::6]] == out[1][0].tolist()
    again, other, later = draw(1), draw(2), draw(1, 10)
    assert numpy.array_equal(again[2][0], out[0]) and not (other[2][0] == out[0]).any() and numpy.array_equal(later[0][:54], first[10:])


@pytest.mark.skipif(nvrtc.opened() is None, reason="no NVRTC")
def test_texts_compile_for_gpus():
    test_tiles_in_shared_memory()
    test_arrays_of_numpy_are_copied_there_and_back()
    test_functions_of_kernels()
    test_signatures_are_held()
    test_counts_by_atomics()
    test_parts_of_arrays_constants_and_loops_over_tuples()
    test_arrays_of_the_device_from_elsewhere_are_those_of_now()
    test_random_numbers_of_threads()
    for kernel in (drawn, totals, product, block_sum, mandelbrot, scaled, histogram, reversed_by_blocks, smoothed):
        texts = [(c.text, c.options) for c, *_ in kernel._compiled.values()]
        assert texts and [p for t, o in texts for check in ((), ("-DARETE_CHECKED",)) if (p := nvrtc.problems(t, (*o, *check)))] == []
    assert scaled.options == ("--use_fast_math",)
