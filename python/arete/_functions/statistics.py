"""Spreads, norms, histograms, quantiles and what else sorts or counts elements."""
from __future__ import annotations

import builtins
from collections import namedtuple

from .. import _C, _ops
from .._C import Tensor
from .._signatures import SIGNATURES
from ._methods import METHODS, also_method

# ---- spreads and norms


def _spread(name, title, example):
    def function(input, dim=None, unbiased=None, keepdim=False, *, correction=None, out=None):
        if isinstance(dim, builtins.bool):  # var(x, unbiased)
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None or unbiased else 0
        return operator(input, dim, correction=correction, keepdim=keepdim, out=out)

    operator = _C.Operator(name, SIGNATURES[f"_{name}"])
    function.__name__ = name
    function.__doc__ = f"""The {title} of all elements or over `dim` (an int or several).

    `correction` is taken off the count: 1 by default, 0 with unbiased=False. The result is NaN where nothing is left.

    >>> arete.{name}(arete.tensor([[1.0, 3.0], [2.0, 6.0]]), dim=1)
    tensor([{example}])
    """
    METHODS[name] = function
    return function


var = _spread("var", "variance", "2., 8.")
std = _spread("std", "standard deviation", "1.4142, 2.8284")


@also_method
def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Variance and mean.

    >>> arete.var_mean(arete.tensor([1.0, 3.0]))
    (tensor(2.), tensor(2.))
    """
    if isinstance(dim, builtins.bool):
        dim, unbiased = None, dim
    return var(input, dim, unbiased, keepdim, correction=correction), input.mean(dim, keepdim)


@also_method
def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Standard deviation and mean.

    >>> arete.std_mean(arete.tensor([1.0, 3.0]), correction=0)
    (tensor(1.), tensor(2.))
    """
    if isinstance(dim, builtins.bool):
        dim, unbiased = None, dim
    return std(input, dim, unbiased, keepdim, correction=correction), input.mean(dim, keepdim)


@also_method
def norm(input: Tensor, p="fro", dim=None, keepdim: bool = False, out=None, dtype=None):
    """(sum |x|^p)^(1/p); "fro" is p = 2, "nuc" the sum of singular values.

    >>> arete.norm(arete.tensor([[3.0, 4.0], [6.0, 8.0]]), dim=1)
    tensor([ 5., 10.])
    >>> arete.norm(arete.tensor([3.0, -4.0]), p=1)
    tensor(7.)
    """
    if dtype is not None:
        input = input.to(dtype)
    if p == "nuc":
        from .. import linalg

        result = linalg.matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)
    else:
        p = 2.0 if p in ("fro", None) else float(p)
        result = _ops.norm(input, p, dim, keepdim)
    return out.copy_(result) if out is not None else result


# ---- different ones, counts


@also_method
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim=None):
    """The different elements in order (or slices along dim), with each one's place and counts if asked for.

    >>> arete.unique(arete.tensor([3, 1, 3, 2]))
    tensor([1, 2, 3])
    >>> arete.unique(arete.tensor([3, 1, 3, 2]), return_inverse=True, return_counts=True)
    (tensor([1, 2, 3]), tensor([2, 0, 2, 1]), tensor([1, 1, 2]))
    """
    return _asked(_ops.unique(input, sorted, return_inverse, return_counts, dim), return_inverse, return_counts)


@also_method
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim=None):
    """The first of each group of equal neighbours, with each one's group and sizes if asked for.

    >>> arete.unique_consecutive(arete.tensor([1, 1, 2, 1]), return_counts=True)
    (tensor([1, 2, 1]), tensor([2, 1, 1]))
    """
    return _asked(_ops.unique_consecutive(input, return_inverse, return_counts, dim), return_inverse, return_counts)


def _asked(results, return_inverse, return_counts):
    values, inverse, counts = results
    result = (values,) + ((inverse,) if return_inverse else ()) + ((counts,) if return_counts else ())
    return result if len(result) > 1 else values


@also_method
def histogram(input: Tensor, bins=100, *, range=None, weight=None, density: bool = False, out=None):  # noqa: A002
    """Counts (or sums of weights, or densities) and edges: `bins` is 1-d edges, or how many equal intervals of `range`
    (lowest and highest) or of the data's range there are.

    Elements outside of the intervals are not counted; the last one includes its upper edge.

    >>> hist, edges = arete.histogram(arete.tensor([1.0, 2.0, 2.5, 4.0]), bins=3, range=(1.0, 4.0))
    >>> hist, edges
    (tensor([1., 2., 1.]), tensor([1., 2., 3., 4.]))
    """
    if isinstance(bins, Tensor):
        result = _ops.histogram(input, bins, weight=weight, density=density)
    else:
        low, high = range if range is not None else (None, None)
        result = _ops.histogram_count(input, bins, min=low, max=high, weight=weight, density=density)
    return tuple(o.copy_(r) for o, r in zip(out, result)) if out is not None else result


def histogramdd(input: Tensor, bins, *, range=None, weight=None, density: bool = False):  # noqa: A002
    """Counts (or sums of weights, or densities) of points in a grid, and its edges.

    `bins` holds edges for each element of the last dimension, or how many equal intervals of `range` (the lowest and
    highest value of each element in turn) or of the data's range there are; one number stands for all.

    >>> hist, edges = arete.histogramdd(arete.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), bins=2)
    >>> hist
    tensor([[0., 1.],
            [1., 1.]])
    >>> edges[0]
    tensor([0.0000, 0.5000, 1.0000])
    >>> arete.histogramdd(arete.ones(3, 2), bins=2, range=[0.0, 1.0])
    Traceback (most recent call last):
    RuntimeError: range should have 4 elements, but got 2
    """
    rank = input.size(-1)
    bins = [bins] * rank if isinstance(bins, int) else list(bins)
    if not builtins.all(isinstance(b, Tensor) for b in bins):
        points = input.detach().reshape(-1, rank)
        if range is not None and len(range) != 2 * rank:
            raise RuntimeError(f"range should have {2 * rank} elements, but got {len(range)}")
        edges = []
        for d, count in enumerate(bins):
            if range is not None:
                low, high = range[2 * d], range[2 * d + 1]
            elif points.numel() == 0:
                low, high = 0.0, 1.0
            else:
                low, high = points[:, d].min().item(), points[:, d].max().item()
            if low == high:
                low, high = low - 0.5, high + 0.5
            edges.append(_ops.linspace(low, high, count + 1, dtype=input.dtype, device=input.device))
        bins = edges
    return _histogramdd_result(_ops.histogramdd(input, bins, weight=weight, density=density), tuple(bins))


_histogramdd_result = namedtuple("histogramdd", ("hist", "bin_edges"))


# ---- order


def _with_tensor(name, place, doc):
    """A record whose argument number `place` may be a number where it wants a tensor."""

    def function(*args, **kwargs):
        if len(args) > place and not isinstance(args[place], Tensor):
            like = next(a for a in args if isinstance(a, Tensor))
            number = _C.tensor(args[place], dtype=like.dtype if like.is_floating_point() else None, device=like.device)
            args = (*args[:place], number, *args[place + 1:])
        return operator(*args, **kwargs)

    operator = getattr(_ops, name)
    function.__name__ = name
    function.__doc__ = doc
    return function


quantile = _with_tensor("quantile", 1, """quantile(input, q, dim=None, keepdim=False, *, interpolation="linear")

    The values below which shares q (a number or a vector, in [0, 1]) lie, of all elements or along dim; NaN wins.

    A vector q comes first in the shape. float32 and float64; interpolation "linear", "lower", "higher", "midpoint" or
    "nearest".

    >>> arete.quantile(arete.tensor([4.0, 1.0, 2.0, 3.0]), arete.tensor([0.25, 0.5]))
    tensor([1.7500, 2.5000])
    >>> arete.quantile(arete.ones(3), 2.0)
    Traceback (most recent call last):
    arete.ArgumentError: quantile() q values must be in the range [0, 1]...
    """)
nanquantile = _with_tensor("nanquantile", 1, """nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear")

    quantile() of the elements that are not NaN; NaN where there are none.

    >>> arete.nanquantile(arete.tensor([1.0, arete.nan, 2.0]), 0.5)
    tensor(1.5000)
    """)
METHODS["quantile"], METHODS["nanquantile"] = quantile, nanquantile
searchsorted = _with_tensor("searchsorted", 1, """searchsorted(sorted_sequence, input, *, out_int32=False, right=False, ...)

    Where values would have to be put into a sorted sequence (n), or in each row of (..., n) those of (..., m).

    The place is before equal elements, with right=True after them. int64 in the shape of the values.

    >>> arete.searchsorted(arete.tensor([1, 3, 5]), arete.tensor([0, 3, 6]))
    tensor([0, 1, 3])
    >>> arete.searchsorted(arete.tensor([1, 3, 5]), 3, right=True)
    tensor(2)
    """)
bucketize = _with_tensor("bucketize", 0, """bucketize(input, boundaries, *, out_int32=False, right=False)

    The number of the interval between sorted boundaries (n) in which each element lies, 0 to n.

    An element equal to a boundary lies below it, with right=True above.

    >>> arete.bucketize(arete.tensor([0.5, 1.0, 7.0]), arete.tensor([1.0, 5.0]))
    tensor([0, 0, 2])
    """)
