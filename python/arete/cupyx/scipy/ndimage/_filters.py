"""Filters of pictures: correlations, and the extremes, ranks and medians of neighbours."""
from __future__ import annotations

import itertools
import math

from .... import _C, _operators as _t
from ...._kernels import ElementwiseKernel
from ....numpy._types import PROMOTED_NATIVE
from .._arrays import dtype_given, each, floating, given, like, tensor

__all__ = [
    "convolve", "convolve1d", "correlate", "correlate1d", "gaussian_filter", "gaussian_filter1d", "gaussian_gradient_magnitude",
    "gaussian_laplace", "generic_gradient_magnitude", "grey_closing", "grey_dilation", "grey_erosion", "grey_opening", "laplace",
    "maximum_filter", "maximum_filter1d", "median_filter", "minimum_filter", "minimum_filter1d", "percentile_filter", "prewitt",
    "rank_filter", "sobel", "uniform_filter", "uniform_filter1d",
]

_MODES = {"grid-mirror": "reflect", "grid-wrap": "wrap", "grid-constant": "constant"}


def _mode(mode):
    mode = _MODES.get(mode, mode)
    if mode not in ("reflect", "mirror", "nearest", "wrap", "constant"):
        raise RuntimeError(f"boundary mode not supported: {mode!r}")
    return mode


def _beyond(i, n, mode):
    """Where positions outside of [0, n) are read from; of "constant" any place."""
    if mode == "reflect":
        i = i % (2 * n)
        return _t.where(i < n, i, 2 * n - 1 - i)
    if mode == "mirror":
        period = max(2 * (n - 1), 1)
        i = i % period
        return _t.where(i < n, i, period - i)
    return i % n if mode == "wrap" else i.clamp(0, n - 1)


def _padded(t, before, after, mode, cval):
    """With more elements along each dimension."""
    for d, (low, high) in enumerate(zip(before, after)):
        if not low and not high:
            continue
        n = t.shape[d]
        if mode == "constant":
            sizes = list(t.shape)
            parts = []
            for count in (low, high):
                sizes[d] = count
                parts.append(_t.full(sizes, cval, dtype=t.dtype, device=t.device))
            t = _t.cat([parts[0], t, parts[1]], d)
        else:
            t = t.index_select(d, _beyond(_t.arange(-low, n + high, device=t.device), n, mode))
    return t


def _windows(t, sizes, origins, mode, cval):
    """With one more dimension for each of t's: the elements under a window of these sizes."""
    before = [s // 2 + o for s, o in zip(sizes, origins)]
    for s, b in zip(sizes, before):
        if not 0 <= b < s:
            raise ValueError("invalid origin")
    if not t.numel():
        return _t.empty([*t.shape, *sizes], dtype=t.dtype, device=t.device)
    t = _padded(t, before, [s - 1 - b for s, b in zip(sizes, before)], mode, cval)
    for d, s in enumerate(sizes):
        t = t.unfold(d, s, 1)
    return t


# Of one kernel for a GPU; the sizes are numbers of the compiler, which unrolls. The first threads make STRIP x SIDE results each, whose
# windows lie inside of the picture: each row that they need is read once, 16 bytes at a time where rows begin at multiples of them, and
# taken into all of them; the weights stay in registers. The others make one result of the border each, read as the mode says.
# Where weights of 0 do not count (SKIP) only what is no number can be wrong, which is then made anew like a result of the border.
_STENCIL = """
  const int rows = (int)x.shape()[0], columns = (int)x.shape()[1];
  const int across = max(columns - BEFORE - AFTER, 0) / SIDE, down = max(rows - UP - DOWN, 0) / STRIP;
  int r, c, count = 1;
  if (i < (ptrdiff_t)across * down) {
    r = (int)i / across * STRIP + UP;
    c = (int)i % across * SIDE + BEFORE;
    const ptrdiff_t first = (ptrdiff_t)((int)i / across * STRIP) * columns + (int)i % across * SIDE;
    T s[STRIP * SIDE];
    for (int k = 0; k < STRIP * SIDE; ++k) s[k] = 0;
    #pragma unroll
    for (int a = 0; a < HEIGHT + STRIP - 1; ++a) {
      T row[BEFORE + SIDE + AFTER];
      #pragma unroll
      for (int b = 0; b < BEFORE + SIDE + AFTER; b += SIDE) {
#ifdef VECTORS
        const Several v = *(const Several*)(x.data() + first + (ptrdiff_t)a * columns + b);
        #pragma unroll
        for (int j = 0; j < SIDE; ++j) row[b + j] = v.of[j];
#else
        #pragma unroll
        for (int j = 0; j < SIDE; ++j) row[b + j] = x[first + (ptrdiff_t)a * columns + b + j];
#endif
      }
      #pragma unroll
      for (int k = 0; k < STRIP; ++k) {
        if (a < k || a >= k + HEIGHT) continue;
        #pragma unroll
        for (int b = 0; b < WIDTH; ++b) {
          #pragma unroll
          for (int j = 0; j < SIDE; ++j) s[k * SIDE + j] += row[BEFORE - LEFT + b + j] * w[(a - k) * WIDTH + b];
        }
      }
    }
    #pragma unroll
    for (int k = 0; k < STRIP; ++k) {
      const ptrdiff_t to = first + (ptrdiff_t)(UP + k) * columns + BEFORE;
#ifdef VECTORS
      Several v;
      #pragma unroll
      for (int j = 0; j < SIDE; ++j) v.of[j] = s[k * SIDE + j];
      *(Several*)(y.data() + to) = v;
#else
      #pragma unroll
      for (int j = 0; j < SIDE; ++j) y[to + j] = s[k * SIDE + j];
#endif
    }
    bool wrong = false;
    #pragma unroll
    for (int k = 0; k < STRIP * SIDE; ++k) wrong = wrong || s[k] != s[k];
    count = SKIP && wrong ? STRIP * SIDE : 0;
  } else {
    const int whole = (rows - down * STRIP) * columns, side = columns - across * SIDE;
    const int k = (int)(i - (ptrdiff_t)across * down);
    r = k / columns;
    c = k - r * columns;
    if (k < whole) {
      if (r >= UP) r += down * STRIP;
    } else {
      r = (k - whole) / side;
      c = (k - whole) - r * side;
      r += UP;
      if (c >= BEFORE) c += across * SIDE;
    }
  }
  #pragma unroll 1
  for (int k = 0; k < count; ++k) {
    const int row = r + k / SIDE, column = c + k % SIDE;
    T sum = 0;
    #pragma unroll 1
    for (int a = 0; a < HEIGHT; ++a) {
      const int p = row + a - UP;
      const ptrdiff_t begin = (ptrdiff_t)beyond(p, rows) * columns;
      #pragma unroll 1
      for (int b = 0; b < WIDTH; ++b) {
        const int q = column + b - LEFT;
        const T weight = w[a * WIDTH + b];
        if (SKIP && weight == (T)0) continue;
        T v = cval;
        if (MODE != 4 || (p >= 0 && p < rows && q >= 0 && q < columns)) v = x[begin + beyond(q, columns)];
        sum += v * weight;
      }
    }
    y[(ptrdiff_t)row * columns + column] = sum;
  }"""
_SEVERAL = """#ifdef VECTORS
struct alignas(16) Several {
  T of[SIDE];
};
#endif
"""
# _beyond for kernels, whose options say MODE (its number in KERNEL_MODES) and PLACE, the type of places.
BEYOND = """__device__ PLACE beyond(PLACE i, PLACE n) {
  if (i >= 0 && i < n) return i;
  if (MODE == 2 || MODE == 4) return i < 0 ? 0 : n - 1;
  const PLACE period = MODE == 0 ? 2 * n : MODE == 1 ? (n > 1 ? 2 * n - 2 : 1) : n;
  i = (i % period + period) % period;
  return i < n ? i : MODE == 0 ? period - 1 - i : period - i;
}"""
KERNEL_MODES = ("reflect", "mirror", "nearest", "wrap", "constant")
_stencils = {}


def _stencil(t, weights, before, after, mode, cval, skip):
    t, weights = t.contiguous(), weights.contiguous()
    y = _t.empty(t.shape, dtype=t.dtype, device=t.device)
    side, strip = 16 // t.itemsize, 4 if weights.numel() <= 49 else 2
    vectors = t.device.type == "cuda" and t.shape[1] % side == 0 and (t.data_ptr() | y.data_ptr()) % 16 == 0
    edges = [-(-n // side) * side for n in (before[1], after[1])]
    key = *before, *after, mode, side, vectors, skip
    if key not in _stencils:
        numbers = {"UP": before[0], "LEFT": before[1], "DOWN": after[0], "RIGHT": after[1], "STRIP": strip, "SIDE": side,
                   "HEIGHT": weights.shape[0], "WIDTH": weights.shape[1],
                   "BEFORE": edges[0], "AFTER": edges[1], "SKIP": int(skip),
                   "MODE": KERNEL_MODES.index(mode), "PLACE": "int"}
        _stencils[key] = ElementwiseKernel("raw T x, raw T w, T cval", "raw T y", _STENCIL, "stencil", preamble=_SEVERAL + BEYOND,
                                           options=[*(f"-D{name}={v}" for name, v in numbers.items()), *["-DVECTORS"] * vectors])
    rows, columns = t.shape
    down, across = max(rows - before[0] - after[0], 0) // strip, max(columns - edges[0] - edges[1], 0) // side
    count = down * across + rows * columns - down * strip * across * side
    return _stencils[key](t, weights, float(cval), y, size=count)


def _correlated(t, weights, origins, mode, cval, skip=False):
    """The sum of neighbours times weights; with `skip` neighbours of weight 0 do not count, so that NaN among them does no harm."""
    if weights.dim() != t.dim():
        raise RuntimeError("filter weights array has incorrect shape.")
    before = [s // 2 + o for s, o in zip(weights.shape, origins)]
    after = [s - 1 - b for s, b in zip(weights.shape, before)]
    if any(b < 0 or a < 0 for b, a in zip(before, after)):
        raise ValueError("invalid origin")
    if not t.numel():
        return t
    if t.dtype.is_complex or weights.dtype.is_complex:
        parts = [(t.real, complex(cval).real), (t.imag, complex(cval).imag)] if t.dtype.is_complex else [(t, cval)]
        factors = [weights.real, weights.imag] if weights.dtype.is_complex else [weights]
        r = [[_correlated(v, w, origins, mode, c, skip) for w in factors] for v, c in parts]
        if len(parts) == len(factors):
            return _t._ops.complex(r[0][0] - r[1][1], r[0][1] + r[1][0])
        return _t._ops.complex(*itertools.chain(*r))
    differentiated = _C.is_grad_enabled() and (t.requires_grad or weights.requires_grad)
    if t.device.type == "cuda" and t.dim() == 2 and t.numel() < 1 << 31 and weights.numel() <= 121 and not differentiated:
        return _stencil(t, weights, before, after, mode, cval, skip)
    shape = t.shape
    t = _padded(t, before, after, mode, cval)

    def one_by_one():
        y = _t.zeros(shape, dtype=t.dtype, device=t.device)
        for at, w in zip(itertools.product(*map(range, weights.shape)), weights.reshape(-1).tolist()):
            if w or not skip:
                y.add_(t[tuple(slice(k, k + n) for k, n in zip(at, shape))], alpha=w)
        return y

    if t.device.type == "cpu" and weights.numel() and (weights.numel() <= 64 or weights.numel() == max(weights.shape)):
        # Memory is read once for each weight, by loops of vectors, and no windows are written for a product of matrices.
        return one_by_one()
    if 1 <= t.dim() <= 3:
        conv = (_t._ops.conv1d, _t._ops.conv2d, _t._ops.conv3d)[t.dim() - 1]
        y = conv(t[None, None], weights[None, None])[0, 0]
        return one_by_one() if skip and bool(y.isnan().any()) else y
    products = t
    for d, s in enumerate(weights.shape):
        products = products.unfold(d, s, 1)
    products = products * weights
    products = _t.where(weights == 0, 0.0, products) if skip else products
    return products.sum(list(range(weights.dim(), 2 * weights.dim())))


def _weights_for(t, weights):
    """In the dtype of a picture, or complex."""
    real = t.real.dtype if t.dtype.is_complex else t.dtype
    return weights.to(t.device, PROMOTED_NATIVE[real, _C.complex64] if weights.dtype.is_complex else real)


def _kept(t, dtype):
    """What filters along one axis after the other, or sums of several, have in between: whole numbers where the result has them, with
    what is behind the point cut off, as SciPy, which keeps it in the result."""
    return t if t.dtype.is_complex or dtype.is_floating_point or dtype.is_complex else t.to(_C.int64).to(dtype)


def _given(input, t, output):
    return given(input, _kept(t, dtype_given(input, output)), output)


def correlate(input, weights, output=None, mode="reflect", cval=0.0, origin=0):
    """The sum of each element's neighbours times `weights`, whose conjugates count where they are complex. Neighbours of weight 0 do not
    count, even if they are NaN."""
    t = floating(tensor(input))
    w = _weights_for(t, tensor(weights)).conj()
    return _given(input, _correlated(t, w, each(origin, t.dim(), "origin"), _mode(mode), cval, True), output)


def convolve(input, weights, output=None, mode="reflect", cval=0.0, origin=0):
    """The same with the weights turned around, and not conjugated."""
    t = floating(tensor(input))
    w = _weights_for(t, tensor(weights))
    origins = [-o - (s % 2 == 0) for o, s in zip(each(origin, t.dim(), "origin"), w.shape)]
    return _given(input, _correlated(t, w.flip(list(range(w.dim()))), origins, _mode(mode), cval, True), output)


def _along(t, weights, axis, mode, cval, origin=0):
    shape = [1] * t.dim()
    shape[axis] = -1
    origins = [0] * t.dim()
    origins[axis] = origin
    w = _weights_for(t, weights) if isinstance(weights, _C.Tensor) else _t.tensor(
        weights, dtype=t.real.dtype if t.dtype.is_complex else t.dtype, device=t.device)
    return _correlated(t, w.reshape(shape), origins, mode, cval)


def correlate1d(input, weights, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
    t = floating(tensor(input))
    return _given(input, _along(t, tensor(weights).conj(), axis % t.dim(), _mode(mode), cval, origin), output)


def convolve1d(input, weights, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
    w = tensor(weights).flip(0).conj()
    return correlate1d(input, w, axis, output, mode, cval, -origin - (w.numel() % 2 == 0))


def _gaussian(sigma, order, radius):
    """Weights of the Gaussian's derivative of an order, as they correlate."""
    if order < 0:
        raise ValueError("order must be non-negative")
    x = range(-radius, radius + 1)
    phi = [math.exp(-0.5 * v * v / (sigma * sigma)) for v in x]
    total = sum(phi)
    phi = [p / total for p in phi]
    q = [1.0] + [0.0] * order  # the polynomial before the Gaussian
    for _ in range(order):
        q = [(k + 1) * (q[k + 1] if k < order else 0.0) - (q[k - 1] / (sigma * sigma) if k else 0.0) for k in range(order + 1)]
    return [p * sum(c * v**k for k, c in enumerate(q)) for v, p in zip(x, phi)][::-1]


def _gauss_along(t, sigma, axis, order, mode, cval, truncate, radius=None):
    radius = int(truncate * sigma + 0.5) if radius is None else radius
    return _along(t, _gaussian(sigma, order, radius), axis, mode, cval)


def gaussian_filter1d(input, sigma, axis=-1, order=0, output=None, mode="reflect", cval=0.0, truncate=4.0, *, radius=None):
    t = floating(tensor(input))
    return _given(input, _gauss_along(t, sigma, axis % t.dim(), order, _mode(mode), cval, truncate, radius), output)


def _gauss(t, sigmas, orders, modes, cval, truncate, dtype):
    for axis, (sigma, order, mode) in enumerate(zip(sigmas, orders, modes)):
        if sigma > 1e-15:
            t = _kept(_gauss_along(floating(t), sigma, axis, order, _mode(mode), cval, truncate), dtype)
    return _kept(t, dtype)


def gaussian_filter(input, sigma, order=0, output=None, mode="reflect", cval=0.0, truncate=4.0):
    """A blur by `sigma` pixels, or a derivative of it, along every dimension."""
    t = floating(tensor(input))
    n = t.dim()
    modes = each(mode, n, "mode") if not isinstance(mode, str) else [mode] * n
    dtype = dtype_given(input, output)
    return given(input, _gauss(t, each(sigma, n, "sigma"), each(order, n, "order"), modes, cval, truncate, dtype), output)


def gaussian_laplace(input, sigma, output=None, mode="reflect", cval=0.0, truncate=4.0):
    """The sum of second derivatives of a blur."""
    t = floating(tensor(input))
    n, dtype = t.dim(), dtype_given(input, output)
    parts = [_gauss(t, each(sigma, n, "sigma"), [2 * (d == axis) for d in range(n)], [mode] * n, cval, truncate, dtype)
             for axis in range(n)]
    return given(input, sum(parts[1:], parts[0]), output)


def gaussian_gradient_magnitude(input, sigma, output=None, mode="reflect", cval=0.0, truncate=4.0):
    """The length of the gradient of a blur."""
    t = floating(tensor(input))
    n, dtype = t.dim(), dtype_given(input, output)
    parts = [_gauss(t, each(sigma, n, "sigma"), [int(d == axis) for d in range(n)], [mode] * n, cval, truncate, dtype) for axis in range(n)]
    return given(input, floating(sum(p * p for p in parts)).sqrt(), output)


def generic_gradient_magnitude(input, derivative, output=None, mode="reflect", cval=0.0, extra_arguments=(), extra_keywords=None):
    """The length of the gradient that `derivative(input, axis, output, mode, cval, ...)` gives."""
    t = floating(tensor(input))
    given_options = extra_keywords or {}
    dtype = dtype_given(input, output)
    parts = [_kept(tensor(derivative(like(input, t), axis, None, mode, cval, *extra_arguments, **given_options)), dtype)
             for axis in range(t.dim())]
    return given(input, floating(sum(p * p for p in parts)).sqrt(), output)


def laplace(input, output=None, mode="reflect", cval=0.0):
    """The sum of second differences."""
    t = floating(tensor(input))
    dtype = dtype_given(input, output)
    parts = [_kept(_along(t, [1.0, -2.0, 1.0], axis, _mode(mode), cval), dtype) for axis in range(t.dim())]
    return given(input, sum(parts[1:], parts[0]), output)


def _edges(input, axis, output, mode, cval, smooth):
    t = floating(tensor(input))
    axis %= t.dim()
    dtype = dtype_given(input, output)
    t = _kept(_along(t, [-1.0, 0.0, 1.0], axis, _mode(mode), cval), dtype)
    for d in range(t.dim()):
        if d != axis:
            t = _kept(_along(floating(t), smooth, d, _mode(mode), cval), dtype)
    return given(input, t, output)


def sobel(input, axis=-1, output=None, mode="reflect", cval=0.0):
    """Sobel's derivative along an axis."""
    return _edges(input, axis, output, mode, cval, [1.0, 2.0, 1.0])


def prewitt(input, axis=-1, output=None, mode="reflect", cval=0.0):
    """Prewitt's derivative along an axis."""
    return _edges(input, axis, output, mode, cval, [1.0, 1.0, 1.0])


def _mean(t, size, axis, mode, cval, origin, dtype):
    if dtype.is_floating_point or dtype.is_complex or t.dtype.is_complex:
        return _along(t, [1.0 / size] * size, axis, mode, cval, origin)
    return _kept(_along(t, [1.0] * size, axis, mode, cval, origin) / size, dtype)  # sums of whole numbers are exact


def uniform_filter1d(input, size, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
    t = floating(tensor(input))
    return given(input, _mean(t, size, axis % t.dim(), _mode(mode), cval, origin, dtype_given(input, output)), output)


def uniform_filter(input, size=3, output=None, mode="reflect", cval=0.0, origin=0):
    """The mean of each element's neighbours."""
    t, dtype = floating(tensor(input)), dtype_given(input, output)
    for axis, (s, o) in enumerate(zip(each(size, t.dim(), "size"), each(origin, t.dim(), "origin"))):
        if s > 1:
            t = _mean(floating(t), s, axis, _mode(mode), cval, o, dtype)
    return given(input, t, output)


# --- order ---

def _footprint(t, size, footprint):
    """The sizes of a window, and which of its elements count (None: all)."""
    if footprint is not None:
        f = tensor(footprint).to(_C.bool)
        return list(f.shape), None if f.all().item() else f
    if size is None:
        raise RuntimeError("no footprint or filter size provided")
    return each(size, t.dim(), "size"), None


def _extreme(input, size, footprint, output, mode, cval, origin, name):
    t = tensor(input)
    sizes, chosen = _footprint(t, size, footprint)
    origins, reduce = each(origin, t.dim(), "origin"), getattr(_t._ops, name)
    if chosen is None:
        for d, (s, o) in enumerate(zip(sizes, origins)):
            one = [1] * t.dim()
            one[d] = s
            t = reduce(_windows(t, one, [o if k == d else 0 for k in range(t.dim())], _mode(mode), cval).flatten(t.dim()), -1)
    else:
        w = _windows(t, sizes, origins, _mode(mode), cval).flatten(t.dim())
        t = reduce(w[..., chosen.reshape(-1).to(w.device)], -1)
    return given(input, t, output)


def maximum_filter(input, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0):
    """The largest of each element's neighbours."""
    return _extreme(input, size, footprint, output, mode, cval, origin, "amax")


def minimum_filter(input, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0):
    """The smallest of each element's neighbours."""
    return _extreme(input, size, footprint, output, mode, cval, origin, "amin")


def _one_axis(t, size, axis, origin):
    sizes, origins = [1] * t.dim(), [0] * t.dim()
    sizes[axis], origins[axis] = size, origin
    return sizes, origins


def maximum_filter1d(input, size, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
    sizes, origins = _one_axis(tensor(input), size, axis, origin)
    return maximum_filter(input, sizes, None, output, mode, cval, origins)


def minimum_filter1d(input, size, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
    sizes, origins = _one_axis(tensor(input), size, axis, origin)
    return minimum_filter(input, sizes, None, output, mode, cval, origins)


def cut(shape, count, limit):
    """How what has `count` elements for each one of a shape is cut into parts of at most `limit`, where one along the first dimension with
    several has no more: (this dimension, where parts begin, how many elements of it they have at most); None where nothing is to be cut."""
    d = next((d for d, n in enumerate(shape) if n > 1), None)
    if d is None or count * math.prod(shape) <= limit:
        return None
    step = max(limit // (count * math.prod(shape[d + 1:])), 1)
    return d, range(0, shape[d], step), step


_SORTED = 1 << 20, 1 << 26  # elements of windows that are sorted together, on the CPU and on a GPU


def rank_filter(input, rank, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0):
    """The neighbour that is `rank`th in order, counted from 0 or, below 0, from the end."""
    t = tensor(input)
    sizes, chosen = _footprint(t, size, footprint)
    count = math.prod(sizes) if chosen is None else int(chosen.sum())
    if not -count <= rank < count:
        raise RuntimeError("rank not within filter footprint size")
    w = _windows(t, sizes, each(origin, t.dim(), "origin"), _mode(mode), cval)

    def ranked(w):
        # Windows have many times the elements of the picture: not all of them are in memory together.
        parts = cut(w.shape[:t.dim()], math.prod(sizes), _SORTED[t.device.type == "cuda"])
        if parts is not None:
            d, starts, step = parts
            return _t.cat([ranked(w.narrow(d, at, min(step, w.shape[d] - at))) for at in starts], d)
        w = w.flatten(t.dim())
        w = w if chosen is None else w[..., chosen.reshape(-1).to(w.device)]
        return w.sort(-1)[0][..., rank].contiguous()  # a view would keep all that is sorted

    return given(input, ranked(w), output)


def _count(t, size, footprint):
    sizes, chosen = _footprint(t, size, footprint)
    return math.prod(sizes) if chosen is None else int(chosen.sum().item())


def median_filter(input, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0):
    """The neighbour in the middle."""
    return rank_filter(input, _count(tensor(input), size, footprint) // 2, size, footprint, output, mode, cval, origin)


def percentile_filter(input, percentile, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0):
    """The neighbour that `percentile` percent of them lie below."""
    if not -100 <= percentile <= 100:
        raise RuntimeError("invalid percentile")
    count = _count(tensor(input), size, footprint)
    percentile += 100 * (percentile < 0)
    rank = count - 1 if percentile == 100 else int(count * percentile / 100)
    return rank_filter(input, rank, size, footprint, output, mode, cval, origin)


def grey_erosion(input, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0):
    return minimum_filter(input, size, footprint, output, mode, cval, origin)


def grey_dilation(input, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0):
    """The largest neighbour, under the window turned around."""
    t = tensor(input)
    sizes, chosen = _footprint(t, size, footprint)
    origins = [-o - (s % 2 == 0) for o, s in zip(each(origin, t.dim(), "origin"), sizes)]
    if chosen is not None:
        chosen = chosen.flip(list(range(chosen.dim())))
    return maximum_filter(input, sizes, chosen, output, mode, cval, origins)


def grey_opening(input, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0):
    """An erosion, and a dilation of it."""
    return grey_dilation(grey_erosion(input, size, footprint, None, mode, cval, origin), size, footprint, output, mode, cval, origin)


def grey_closing(input, size=None, footprint=None, output=None, mode="reflect", cval=0.0, origin=0):
    """A dilation, and an erosion of it."""
    return grey_erosion(grey_dilation(input, size, footprint, None, mode, cval, origin), size, footprint, output, mode, cval, origin)
