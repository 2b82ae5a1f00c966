"""Histograms, and the edges of their bins."""
from __future__ import annotations

import builtins as _b
import math as _math
import operator as _operator

from .. import _C, _operators as _t
from .._kernels import RawKernel
from .._kernels._parameters import C_NAMES
from ._array import cast, ndarray, tensor_of, wrap
from ._creation import linspace
from ._types import OF_TENSOR, PROMOTED_NATIVE, number_type

__all__ = ["histogram", "histogram_bin_edges", "histogram2d", "histogramdd"]


# Of one kernel for a GPU, where bins are equally wide. A block counts in shared memory, where each bin has 2^COPIES counters side by side
# for neighbouring threads: with 32 no two lanes of a warp meet in a bank, whatever they count. The place among the edges is computed, and
# looked up only where rounding could have moved it.
_COUNT = """__device__ void count(EDGE t, const EDGE* edges, int bins, EDGE low, EDGE high, EDGE scale, EDGE near, unsigned* own) {
  if (!(t >= low && t <= high)) return;
  const EDGE place = (t - low) * scale;
  int k = min((int)place, bins - 1);
  const EDGE beyond = place - (EDGE)k;
  if (!(beyond > near && beyond < 1 - near)) {
    while (k > 0 && t < edges[k]) --k;
    while (k < bins - 1 && t >= edges[k + 1]) ++k;
  }
  atomicAdd(&own[k << COPIES], 1u);
}
extern "C" __global__ void histogram(const ELEMENT* x, long long n, const EDGE* edges, int bins, EDGE scale, EDGE near,
                                     long long* counts) {
  extern __shared__ unsigned seen[];
  const unsigned copies = 1u << COPIES;
  for (int k = threadIdx.x; k < bins << COPIES; k += blockDim.x) seen[k] = 0;
  __syncthreads();
  unsigned* own = seen + (threadIdx.x & (copies - 1));
  const EDGE low = edges[0], high = edges[bins];
  const long long step = (long long)gridDim.x * blockDim.x;
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + (LOADS - 1) * step < n; i += LOADS * step) {
    ELEMENT v[LOADS];
    #pragma unroll
    for (int j = 0; j < LOADS; ++j) v[j] = x[i + j * step];
    #pragma unroll
    for (int j = 0; j < LOADS; ++j) count((EDGE)v[j], edges, bins, low, high, scale, near, own);
  }
  #pragma unroll 1
  for (; i < n; i += step) count((EDGE)x[i], edges, bins, low, high, scale, near, own);
  __syncthreads();
  for (int k = threadIdx.x; k < bins; k += blockDim.x) {
    unsigned long long sum = 0;
    for (unsigned c = 0; c < copies; ++c) sum += seen[(k << COPIES) + (c + k & copies - 1)];
    if (sum) atomicAdd((unsigned long long*)&counts[k], sum);
  }
}"""
_SLOTS, _THREADS, _BLOCKS, _LOADS = 8192, 512, 528, 8  # counters of a block; as many blocks as a large GPU holds
_kernels = {}


def _is_countable(t, edges):
    """Whether the kernel counts the elements in such bins."""
    return t.dtype in C_NAMES and t.dtype not in (_C.bool, _C.float16, _C.bfloat16) and (
        edges.dtype in (_C.float32, _C.float64) and 0 < t.numel() and edges.numel() <= _SLOTS + 1)


def _counted(t, edges, low, high):
    """How many elements are in each of the bins, which are equally wide between low and high."""
    bins, dtypes = edges.numel() - 1, (t.dtype, edges.dtype)
    copies = min((_SLOTS // bins).bit_length() - 1, 5)
    if (*dtypes, copies) not in _kernels:
        options = [f"-DELEMENT={C_NAMES[t.dtype]}", f"-DEDGE={C_NAMES[edges.dtype]}", f"-DCOPIES={copies}", f"-DLOADS={_LOADS}"]
        _kernels[*dtypes, copies] = RawKernel(_COUNT, "histogram", options)
    scale = bins / (high - low)
    kind, rounding = ("d", 2.0**-50) if edges.dtype is _C.float64 else ("f", 2.0**-21)
    near = min(rounding * (bins + max(abs(low), abs(high)) * scale), 1.0)
    counts, blocks = _t.zeros(bins, dtype=_C.int64, device=t.device), min(-(-t.numel() // (_THREADS * _LOADS)), _BLOCKS)
    arguments = [t.contiguous(), t.numel(), edges, ("i", bins), (kind, scale), (kind, near), counts]
    _kernels[*dtypes, copies]._kernel.launch(blocks, _THREADS, arguments, 4 * bins << copies, lambda pair, place: pair)
    return counts


def _range(t, given):
    if given is not None:
        low, high = given
        if low > high:
            raise ValueError("max must be larger than min in range parameter.")
        if not (_math.isfinite(low) and _math.isfinite(high)):
            raise ValueError(f"supplied range of [{low}, {high}] is not finite")
    elif not t.numel():
        low, high = 0, 1
    else:
        low, high = _t.stack(_t.aminmax(t)).tolist()
        if not (_math.isfinite(low) and _math.isfinite(high)):
            raise ValueError(f"autodetected range of [{low}, {high}] is not finite")
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _width(t, name):
    """The width of bins that a rule gives."""
    n = t.numel()
    x = t.to(_C.float64)
    ptp = float(x.max() - x.min())

    def fd():
        q = _t.quantile(x, x.new_tensor([0.75, 0.25]))
        return 2.0 * float(q[0] - q[1]) / n ** (1 / 3)

    def sturges():
        return ptp / (_math.log2(n) + 1)

    def doane():
        if n <= 2:
            return 0.0
        sg1 = _math.sqrt(6.0 * (n - 2) / ((n + 1.0) * (n + 3)))
        sigma = float(x.std(correction=0))
        return ptp / (1.0 + _math.log2(n) + _math.log2(1.0 + abs(float((((x - x.mean()) / sigma)**3).mean())) / sg1)) if sigma > 0 else 0.0

    def auto():
        return _b.min(fd() or sturges(), sturges())

    rules = {"fd": fd, "sturges": sturges, "doane": doane, "auto": auto, "sqrt": lambda: ptp / _math.sqrt(n),
             "rice": lambda: ptp / (2.0 * n**(1 / 3)),
             "scott": lambda: (24.0 * _math.pi**0.5 / n)**(1 / 3) * float(x.std(correction=0))}
    if name not in rules:
        raise ValueError(f"{name!r} is not a valid estimator for `bins`")
    return rules[name]()


def histogram_bin_edges(a, bins=10, range=None, weights=None):  # noqa: A002
    """The edges of bins, by their number or by a rule (`'auto'`, `'fd'`, ...)."""
    t = tensor_of(a).reshape(-1)
    t = t if t.dtype is not _C.bool else t.to(_C.uint8)
    kind = OF_TENSOR[t.dtype] if t.is_floating_point() else None  # of edges that are made
    if isinstance(bins, str):
        if weights is not None:
            raise TypeError("Automated estimation of the number of bins is not supported for weighted data")
        low, high = _range(t, range)
        if range is not None:
            t = t[(t >= low) & (t <= high)]
        width = _width(t, bins) if t.numel() else 0
        if width and not t.is_floating_point() and width < 1:
            width = 1
        n = int(_math.ceil((high - low) / width)) if width else 1
        return linspace(low, high, n + 1, dtype=kind)
    if number_type(bins) is None and tensor_of(bins).dim() == 1:
        edges = tensor_of(bins)
        if _b.bool((edges[1:] < edges[:-1]).any()):
            raise ValueError("`bins` must increase monotonically, when an array")
        return wrap(edges)
    try:
        n = _operator.index(bins)
    except TypeError:
        raise TypeError("`bins` must be an integer, a string, or an array") from None
    if n < 1:
        raise ValueError("`bins` must be positive, when an integer")
    low, high = _range(t, range)
    return linspace(low, high, n + 1, dtype=kind)


def histogram(a, bins=10, range=None, density=None, weights=None):  # noqa: A002
    """Counts in bins, or sums of weights, or a density, and the edges of the bins."""
    t = tensor_of(a).reshape(-1)
    equal = t.device.type == "cuda" and weights is None and isinstance(bins, int) and t.dtype is not _C.bool
    if equal:
        range = _range(t, range)  # noqa: A001
    edges = histogram_bin_edges(wrap(t), bins, range, weights)
    d = PROMOTED_NATIVE[t.dtype, edges._tensor.dtype]
    e, n = cast(edges._tensor, d).to(t.device), edges.size - 1
    if equal and _is_countable(t, e):
        counts = _counted(t, e, *range)
        return wrap(counts / _t.diff(e).to(_C.float64) / counts.sum() if density else counts), edges
    x = cast(t, d)
    inside = (x >= e[0]) & (x <= e[-1])
    at = (_t.searchsorted(e.contiguous(), x[inside].contiguous(), right=True) - 1).clamp(max=n - 1)
    if weights is None:
        counts = _t.bincount(at, None, n)
    else:
        w = tensor_of(weights)
        if w.numel() != t.numel():
            raise ValueError("weights should have the same shape as a.")
        w = w.reshape(-1)[inside]
        counts = _t.zeros(n, dtype=w.dtype, device=w.device).index_add(0, at, w)
    if density:
        widths = _t.diff(edges._tensor).to(_C.float64)
        return wrap(counts / widths / counts.sum()), edges
    return wrap(counts), edges


def histogramdd(sample, bins=10, range=None, density=None, weights=None):  # noqa: A002
    """Counts in bins of several axes, and the edges along each."""
    if isinstance(sample, ndarray) or hasattr(sample, "shape"):
        t = tensor_of(sample)
        columns = list((t.unsqueeze(1) if t.dim() == 1 else t).unbind(1))
    else:
        columns = [tensor_of(c) for c in sample]
    k = len(columns)
    bins = [bins] * k if number_type(bins) is not None or isinstance(bins, str) else list(bins)
    if len(bins) != k:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    ranges = [None] * k if range is None else list(range)
    if len(ranges) != k:
        raise ValueError("range argument must have one entry per dimension")
    edges = [histogram_bin_edges(wrap(c), b, r) for c, b, r in zip(columns, bins, ranges)]
    at, inside = None, None
    for c, e in zip(columns, edges):
        x, e = c.to(_C.float64), e._tensor.to(_C.float64)
        place = (_t.searchsorted(e.contiguous(), x.contiguous(), right=True) - 1)
        place = _t.where(x == e[-1], e.numel() - 2, place)
        ok = (x >= e[0]) & (x <= e[-1])
        at = place if at is None else at * (e.numel() - 1) + place
        inside = ok if inside is None else inside & ok
    shape = [e.size - 1 for e in edges]
    w = None if weights is None else tensor_of(weights).to(_C.float64)[inside]
    counts = _t.bincount(at[inside], w, _math.prod(shape)).reshape(shape).to(_C.float64)
    if density:
        total = counts.sum()
        for i, e in enumerate(edges):
            counts = counts / _t.diff(e._tensor).reshape([-1 if j == i else 1 for j in _b.range(k)])
        counts = counts / total
    return wrap(counts), tuple(edges)


def histogram2d(x, y, bins=10, range=None, density=None, weights=None):  # noqa: A002
    """Counts in bins of two axes, and the edges along each."""
    if len(tensor_of(x)) != len(tensor_of(y)):
        raise ValueError("x and y must have the same length.")
    n = len(bins) if number_type(bins) is None else 1
    if n not in (1, 2):
        bins = [bins, bins]
    counts, edges = histogramdd([x, y], bins, range, density, weights)
    return counts, edges[0], edges[1]
