"""Reductions and normalizations that leave out the elements where a mask is False, under the names of torch.masked.

`mask` broadcasts to the input. Where a whole slice is masked out, sums, products, norms and extrema give the value that
changes nothing (0, 1, 0 and the limits of the dtype), averages nan."""
from __future__ import annotations

from .. import _C, linalg
from .._C import Tensor
from .._operators import _ops, iinfo, where

__all__ = ["amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean",
           "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var"]


def _lowest(dtype):
    return -float("inf") if dtype.is_floating_point else _limits(dtype).min


def _highest(dtype):
    return float("inf") if dtype.is_floating_point else _limits(dtype).max


def _limits(dtype):
    return iinfo(dtype)


def _whole_mask(input, mask):
    if mask.dim() > input.dim():
        raise IndexError("expected broadcastable mask (got mask dimensionality higher than of the input)")
    return mask.to(_C.bool).expand(input.shape)


def _filled(input, mask, value):
    """The input with `value` where the mask is False; its gradient is zero there."""
    if mask is None:
        return input
    return where(_whole_mask(input, mask), input, _C.tensor(value, dtype=input.dtype, device=input.device))


def _dims(dim, rank):
    """Ascending dimensions; None and () stand for all."""
    if dim is None or dim == ():
        return tuple(range(rank))
    rank = max(rank, 1)
    result = set()
    for d in (dim,) if isinstance(dim, int) else dim:
        if not -rank <= d < rank:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {d})")
        if d % rank in result:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        result.add(d % rank)
    return tuple(sorted(result))


def _sum_dtype(input, dtype):
    if dtype is not None:
        return dtype
    return input.dtype if input.is_floating_point() or input.is_complex() else _C.int64


def sum(input: Tensor, dim=None, *, keepdim=False, dtype=None, mask=None) -> Tensor:  # noqa: A001
    """The sum over dimensions.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.sum(x, 1, mask=mask)
    tensor([1., 7.])
    >>> arete.masked.sum(x, 2, mask=mask)
    Traceback (most recent call last):
    IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)
    """
    return _filled(input, mask, 0).sum(_dims(dim, input.dim()), keepdim, dtype=_sum_dtype(input, dtype))


def prod(input: Tensor, dim=None, *, keepdim=False, dtype=None, mask=None) -> Tensor:
    """The product over dimensions.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.prod(x, 1, mask=mask)
    tensor([ 1., 12.])
    """
    result = _filled(input, mask, 1).to(_sum_dtype(input, dtype))
    for d in reversed(_dims(dim, input.dim())):
        result = result.prod(d, keepdim)
    return result


def cumsum(input: Tensor, dim: int, *, dtype=None, mask=None) -> Tensor:
    """Running sums along dim.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.cumsum(x, 1, mask=mask)
    tensor([[1., 1.],
            [3., 7.]])
    """
    return _filled(input, mask, 0).cumsum(_dims(dim, input.dim())[0], dtype=dtype or input.dtype)


def cumprod(input: Tensor, dim: int, *, dtype=None, mask=None) -> Tensor:
    """Running products along dim.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.cumprod(x, 1, mask=mask)
    tensor([[ 1.,  1.],
            [ 3., 12.]])
    """
    return _filled(input, mask, 1).cumprod(_dims(dim, input.dim())[0], dtype=dtype or input.dtype)


def amax(input: Tensor, dim=None, *, keepdim=False, dtype=None, mask=None) -> Tensor:
    """The largest element over dimensions.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.amax(x, 1, mask=mask)
    tensor([1., 4.])
    """
    return _filled(input, mask, _lowest(input.dtype)).amax(_dims(dim, input.dim()), keepdim).to(dtype or input.dtype)


def amin(input: Tensor, dim=None, *, keepdim=False, dtype=None, mask=None) -> Tensor:
    """The smallest element over dimensions.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.amin(x, 1, mask=mask)
    tensor([1., 3.])
    """
    return _filled(input, mask, _highest(input.dtype)).amin(_dims(dim, input.dim()), keepdim).to(dtype or input.dtype)


def argmax(input: Tensor, dim=None, *, keepdim=False, dtype=None, mask=None) -> Tensor:
    """Where the largest element stands, as torch has it in the dtype of the input.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.argmax(x, 1, mask=mask)
    tensor([0., 1.])
    """
    return _filled(input, mask, _lowest(input.dtype)).argmax(dim, bool(keepdim)).to(dtype or input.dtype)


def argmin(input: Tensor, dim=None, *, keepdim=False, dtype=None, mask=None) -> Tensor:
    """Where the smallest element stands, as torch has it in the dtype of the input.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.argmin(x, 1, mask=mask)
    tensor([0., 0.])
    """
    return _filled(input, mask, _highest(input.dtype)).argmin(dim, bool(keepdim)).to(dtype or input.dtype)


def _count(input, dims, keepdim, mask):
    inside = _ops.ones(input.shape, dtype=_C.bool, device=input.device) if mask is None else _whole_mask(input, mask)
    return inside.sum(dims, keepdim)


def mean(input: Tensor, dim=None, *, keepdim=False, dtype=None, mask=None) -> Tensor:
    """The mean over dimensions.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.mean(x, 1, mask=mask)
    tensor([1.0000, 3.5000])
    >>> arete.masked.mean(arete.tensor([1, 2]))
    Traceback (most recent call last):
    ValueError: mean(): Could not infer output dtype. Input dtype must be either a floating point or ...
    """
    dtype = dtype or input.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError("mean(): Could not infer output dtype. Input dtype must be either a floating point or complex "
                         f"dtype. Got: {dtype}")
    count = _count(input, _dims(dim, input.dim()), keepdim, mask)
    return sum(input, dim, keepdim=keepdim, dtype=dtype, mask=mask) / count


def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype=None, mask=None) -> Tensor:
    """The median along dim, the lower of two middle ones.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.median(x, 1, mask=mask)
    tensor([1., 3.])
    """
    floating = input.is_floating_point()
    # Ordinary numbers in float32 besides nan, which nanmedian leaves out.
    values = _filled(input if floating else input.to(_C.float32), mask, float("nan"))
    result = values.nanmedian(_dims(dim, input.dim())[0], keepdim)[0]
    if floating:
        return result
    if bool(result.isnan().any()):
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    return result.to(dtype or input.dtype)


def logsumexp(input: Tensor, dim=None, *, keepdim: bool = False, dtype=None, mask=None) -> Tensor:
    """log(sum(exp(x))) over dimensions.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.logsumexp(x, 1, mask=mask)
    tensor([1.0000, 4.3133])
    """
    filled = _filled(input, mask, _lowest(input.dtype))
    return _ops.logsumexp(filled, _dims(dim, input.dim()), keepdim).to(dtype or input.dtype)


def logaddexp(input: Tensor, other: Tensor, *, dtype=None, input_mask=None, other_mask=None) -> Tensor:
    """log(exp(a) + exp(b)) of two tensors with a mask each.

    >>> mask = arete.tensor([True, False])
    >>> arete.masked.logaddexp(arete.zeros(2), arete.zeros(2), other_mask=mask)
    tensor([0.6931, 0.0000])
    """
    a = _filled(input, input_mask, _lowest(input.dtype))
    return _ops.logaddexp(a, _filled(other, other_mask, _lowest(other.dtype))).to(dtype or input.dtype)


def norm(input: Tensor, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None) -> Tensor:  # noqa: A002
    """(sum |x|^ord)^(1/ord) over dimensions.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.norm(x, 2.0, 1, mask=mask)
    tensor([1., 5.])
    """
    filled = _filled(input, mask, float("inf") if ord == -float("inf") else 0)
    return linalg.vector_norm(filled, ord, _dims(dim, input.dim()), bool(keepdim), dtype=dtype or input.dtype)


def var(input: Tensor, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None) -> Tensor:
    """The variance over dimensions; `correction` (1, or 0 if not `unbiased`) is taken off the count.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.var(x, 1, mask=mask)
    tensor([   nan, 0.5000])
    """
    if unbiased is not None and correction is not None:
        raise ValueError("Only one of unbiased and correction may be given")
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    if dtype is None:
        dtype = input.dtype if input.is_floating_point() or input.is_complex() else _C.float32
    dims = _dims(dim, input.dim())
    count = _count(input, dims, True, mask)
    distance = input - sum(input, dims, keepdim=True, dtype=dtype, mask=mask) / count
    total = sum(distance * distance, dims, keepdim=keepdim, dtype=dtype, mask=mask)
    return (total / (count.reshape(total.shape).to(dtype) - correction).clamp(min=0)).to(dtype)


def std(input: Tensor, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None) -> Tensor:
    """The standard deviation over dimensions.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.std(x, 1, mask=mask)
    tensor([   nan, 0.7071])
    """
    return var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask).sqrt()


def softmax(input: Tensor, dim: int, *, dtype=None, mask=None) -> Tensor:
    """exp(x) / sum(exp(x)) along dim; zero where masked out.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.softmax(x, 1, mask=mask)
    tensor([[1.0000, 0.0000],
            [0.2689, 0.7311]])
    """
    return _ops.softmax(_filled(input, mask, _lowest(input.dtype)), dim, dtype=dtype or input.dtype)


def log_softmax(input: Tensor, dim: int, *, dtype=None, mask=None) -> Tensor:
    """x - log(sum(exp(x))) along dim; -inf where masked out.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.log_softmax(x, 1, mask=mask)
    tensor([[ 0.0000,    -inf],
            [-1.3133, -0.3133]])
    """
    return _ops.log_softmax(_filled(input, mask, _lowest(input.dtype)), dim, dtype=dtype or input.dtype)


def softmin(input: Tensor, dim: int, *, dtype=None, mask=None) -> Tensor:
    """exp(-x) / sum(exp(-x)) along dim; zero where masked out.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.softmin(x, 1, mask=mask)
    tensor([[1.0000, 0.0000],
            [0.7311, 0.2689]])
    """
    return _ops.softmax(-_filled(input, mask, _highest(input.dtype)), dim, dtype=dtype or input.dtype)


def normalize(input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype=None, mask=None):  # noqa: A002
    """x / max(norm(x), eps) along dim; zero where masked out.

    >>> x, mask = arete.tensor([[1.0, 5.0], [3.0, 4.0]]), arete.tensor([[True, False], [True, True]])
    >>> arete.masked.normalize(x, 2.0, 1, mask=mask)
    tensor([[1.0000, 0.0000],
            [0.6000, 0.8000]])
    """
    size = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled(input, mask, 0) / size.clamp(min=eps)
