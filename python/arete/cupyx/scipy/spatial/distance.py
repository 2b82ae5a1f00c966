"""Distances between vectors and of all pairs of rows, under the names of scipy.spatial.distance."""
from __future__ import annotations

import math

from .... import _operators as _t, linalg as _l
from .._arrays import floating, like, tensor, together
from ..stats import _relative_entropy

__all__ = ["canberra", "cdist", "chebyshev", "cityblock", "correlation", "cosine", "distance_matrix", "euclidean", "hamming", "hellinger",
           "jensenshannon", "kl_divergence", "minkowski", "pdist", "russellrao", "sqeuclidean", "squareform"]


def _cosine(u, v):
    return 1 - (u * v).sum(-1) / (u.square().sum(-1) * v.square().sum(-1)).sqrt()


def _jensenshannon(u, v):
    p, q = u / u.sum(-1, True), v / v.sum(-1, True)
    middle = (p + q) / 2
    return ((_relative_entropy(p, middle) + _relative_entropy(q, middle)).sum(-1).clamp_min(0) / 2).sqrt()


def _norm(p):
    return lambda u, v: _l.vector_norm(u - v, p, -1)


# Of vectors along the last axis, the others broadcast.
_METRICS = {
    "canberra": lambda u, v: ((u - v).abs() / (u.abs() + v.abs())).where((u != 0) | (v != 0), 0.0).sum(-1),
    "chebyshev": _norm(math.inf),
    "cityblock": _norm(1),
    "correlation": lambda u, v: _cosine(u - u.mean(-1, True), v - v.mean(-1, True)),
    "cosine": _cosine,
    "euclidean": _norm(2),
    "hamming": lambda u, v: (u != v).to(u.dtype).mean(-1),
    "hellinger": lambda u, v: (1 - (u * v).sqrt().sum(-1)).clamp_min(0).sqrt(),
    "jensenshannon": _jensenshannon,
    "kl_divergence": lambda u, v: _relative_entropy(u, v).sum(-1),
    "russellrao": lambda u, v: 1 - ((u != 0) & (v != 0)).to(u.dtype).mean(-1),
    "sqeuclidean": lambda u, v: (u - v).square().sum(-1),
}
_SHORT_NAMES = {
    "canberra": "canberra", "chebyshev": "chebychev cheby cheb ch", "cityblock": "cblock cb c", "correlation": "co", "cosine": "cos",
    "euclidean": "euclid eu e", "hamming": "matching hamm ha h", "jensenshannon": "js", "kl_divergence": "kl_div kld",
    "minkowski": "mi m pnorm", "sqeuclidean": "sqe sqeuclid"}
_ALIASES = {alias: name for name, aliases in _SHORT_NAMES.items() for alias in aliases.split()}
_NORMS = {"chebyshev": math.inf, "cityblock": 1.0, "euclidean": 2.0}
_BYTES = 1 << 26  # of the differences of pairs that are there at once


def _of_two(name):
    def function(u, v):
        x, y = together(floating(tensor(u)), floating(tensor(v)))
        return like(u, _METRICS[name](x, y))

    function.__name__ = name
    function.__doc__ = f"The distance {name!r} of two vectors, or of those along the last axis of arrays."
    return function


globals().update({name: _of_two(name) for name in _METRICS})


def minkowski(u, v, p):
    """(sum(|u - v| ** p)) ** (1 / p) of two vectors, or of those along the last axis of arrays."""
    x, y = together(floating(tensor(u)), floating(tensor(v)))
    return like(u, _norm(p)(x, y))


def _exponent(name, /, w=None, **options):
    """p of the norms among the metrics, None of others."""
    if w is not None:
        raise NotImplementedError("distances with weights: scale the coordinates")
    p = float(options.pop("p", 2)) if name == "minkowski" else _NORMS.get(name)
    if options:
        raise TypeError(f"the metric {name!r} has no option {next(iter(options))!r}")
    if p is not None and not p > 0:
        raise ValueError("p must be greater than 0")
    return p


def _distances(x, y, metric, options):
    """Of all rows of x to all rows of y."""
    metric = metric.lower() if isinstance(metric, str) else metric
    name = _ALIASES.get(metric, metric)
    if not isinstance(name, str) or name not in _METRICS and name != "minkowski":
        raise ValueError(f"Unknown Distance Metric: {metric}")
    p = _exponent(name, **options)
    if p is not None and not x.dtype.is_complex:  # by differences: products of vectors lose digits of points that are near
        return _t.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist")
    f = _norm(p) if p is not None else _METRICS[name]
    rows = max(1, _BYTES // max(1, y.numel() * x.element_size()))
    parts = [f(x[i:i + rows, None], y[None]) for i in range(0, x.shape[0], rows)]
    return _t.cat(parts) if parts else x.new_empty(0, y.shape[0])


def _points(a, name):
    t = floating(tensor(a))
    if t.dim() != 2:
        raise ValueError(f"{name} must be a 2-dimensional array.")
    return t


def _into(out, found, a):
    if out is None:
        return like(a, found)
    if tuple(out.shape) != tuple(found.shape):
        raise ValueError(f"Output array has incorrect shape: {tuple(out.shape)}, not {tuple(found.shape)}.")
    tensor(out).copy_(found)
    return out


def cdist(XA, XB, metric="euclidean", out=None, **kwargs):
    """Distances of each row of XA (m, d) to each of XB (n, d): (m, n). The metric is the name of a function of this module, or a short
    one; `p` is an option of "minkowski"."""
    x, y = together(_points(XA, "XA"), _points(XB, "XB"))
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"XA and XB must have the same number of columns (i.e. feature dimension): {x.shape[1]} and {y.shape[1]}")
    return _into(out, _distances(x, y, metric, kwargs), XA)


def pdist(X, metric="euclidean", *, out=None, **kwargs):
    """Distances of all pairs of rows (n, d), of the first to all behind it, of the second, ...: n (n - 1) / 2; squareform() makes a
    matrix of them."""
    x = _points(X, "X")
    i, j = _t.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return _into(out, _distances(x, x, metric, kwargs)[i, j], X)


def squareform(X, force="no", checks=True):
    """The symmetric matrix of the distances that pdist() gives, or they of the matrix."""
    t = tensor(X)
    if force not in ("no", "tovector", "tomatrix") or t.dim() not in (1, 2) or (force, t.dim()) in (("tovector", 1), ("tomatrix", 2)):
        raise ValueError(f"squareform(): an array of {t.dim()} dimensions with force={force!r}")
    if t.dim() == 2:
        if t.shape[0] != t.shape[1]:
            raise ValueError("The matrix argument must be square.")
        if checks and not (bool((t == t.mT).all()) and not bool(t.diagonal().any())):
            raise ValueError("Distance matrix 'X' must be symmetric and its diagonal must be zero.")
        i, j = _t.triu_indices(t.shape[0], t.shape[0], 1, device=t.device)
        return like(X, t[i, j])
    n = (1 + math.isqrt(1 + 8 * t.numel())) // 2 if t.numel() else 1
    if n * (n - 1) // 2 != t.numel():
        raise ValueError("Incompatible vector size. It must be a binomial coefficient n choose 2 for some integer n >= 2.")
    matrix = t.new_zeros(n, n)
    i, j = _t.triu_indices(n, n, 1, device=t.device)
    matrix[i, j] = t
    return like(X, matrix + matrix.mT)


def distance_matrix(x, y, p=2.0):
    """Minkowski's distances of each row of x to each of y."""
    return cdist(x, y, "minkowski", p=p)
