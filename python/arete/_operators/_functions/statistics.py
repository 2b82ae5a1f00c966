"""Norms, different elements, histograms."""
from __future__ import annotations

import builtins
from collections import namedtuple

from .. import _ops
from ..._C import Tensor
from ._methods import also_method, given, numpy_names

# ---- norms


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
        result = _ops.linalg_matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)
    else:
        p = 2.0 if p in ("fro", None) else float(p)
        result = _ops.norm(input, p, dim, keepdim)
    return given(out, result)


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
@numpy_names
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
        result = _ops.histogram(input, bins, min=low, max=high, weight=weight, density=density)
    return given(out, result)


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
