"""Elements one by one: choice, writing at indices, differences."""
from __future__ import annotations

import builtins

from ... import _C
from .. import _ops
from ..._C import Tensor
from ._methods import METHODS, also_method, given, numpy_names

# ---- choice


def _where_method(self, condition, other):
    """This tensor where the condition holds, `other` elsewhere.

    >>> arete.tensor([1, 2]).where(arete.tensor([True, False]), 0)
    tensor([1, 0])
    """
    return _ops.where(condition, self, other)


METHODS["where"] = _where_method


@also_method
@numpy_names
def nonzero(input: Tensor, *, out=None, as_tuple: bool = False):
    """The positions of elements that are not zero: (n, rank), or a tuple of vectors.

    >>> arete.nonzero(arete.tensor([[0, 5], [7, 0]]))
    tensor([[0, 1],
            [1, 0]])
    >>> arete.nonzero(arete.tensor([[0, 5], [7, 0]]), as_tuple=True)
    (tensor([0, 1]), tensor([1, 0]))
    """
    if as_tuple and out is not None:
        raise _C.ArgumentError("nonzero does not support the out kwarg when as_tuple is True: expected out=None, "
                               f"got {type(out).__name__}. Operator: nonzero. Argument: out")
    return _ops.nonzero_numpy(input) if as_tuple else _ops.nonzero(input, out=out)


# ---- writing


@also_method
def index_put_(input, indices, values, accumulate=False):
    """input[indices] = values, or += with accumulate (where places repeat, all add up), in place.

    >>> arete.zeros(3).index_put_((arete.tensor([0, 2]),), arete.tensor(5.0))
    tensor([5., 0., 5.])
    """
    if isinstance(values, Tensor) and values.dtype != input.dtype:
        raise RuntimeError(f"Index put requires the source and destination dtypes match, got {input.dtype} for the "
                           f"destination and {values.dtype} for the source.")
    input._put_at(tuple(slice(None) if i is None else i for i in indices), values, accumulate)
    return input


@also_method
def index_put(input, indices, values, accumulate=False):
    """A copy with `values` written (or added) at `indices`.

    >>> arete.index_put(arete.zeros(3), (arete.tensor([0, 0, 2]),), arete.tensor([1.0, 2.0, 5.0]), accumulate=True)
    tensor([3., 0., 5.])
    """
    return index_put_(input.clone(), indices, values, accumulate)


@also_method
def fill_diagonal_(self, fill_value, wrap: bool = False):
    """Writes a number to the elements whose indices are all equal; `wrap` begins anew below each square of a tall matrix.

    RuntimeError for fewer than two dimensions, and for more if they are not of one size.

    >>> arete.zeros(2, 3).fill_diagonal_(1)
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    if self.dim() < 2:
        raise RuntimeError("dimensions must larger than 1")
    if self.dim() > 2:
        if len(set(self.shape)) > 1:
            raise RuntimeError("all dimensions of input must be of equal length")
        self.as_strided((self.shape[0],), (sum(self.stride()),), self.storage_offset()).fill_(fill_value)
        return self
    rows, columns = self.shape
    for first in range(0, rows if wrap and columns else 1, columns + 1):
        self[first:].diagonal().fill_(fill_value)
    return self


# ---- derivatives


@also_method
@numpy_names
def gradient(input: Tensor, *, spacing=1, dim=None, edge_order: int = 1):
    """Derivatives along dimensions; `spacing` is a step for all, or for each dimension a step or its coordinates.

    A tuple with a tensor like the input for each dimension. edge_order is 1 or 2.

    >>> arete.gradient(arete.tensor([1.0, 4.0, 9.0, 16.0]))
    (tensor([3., 4., 6., 7.]),)
    >>> arete.gradient(arete.tensor([1.0, 4.0, 9.0]), spacing=2.0)
    (tensor([1.5000, 2.0000, 2.5000]),)
    >>> arete.gradient(arete.tensor([1.0]))
    Traceback (most recent call last):
    arete.ArgumentError: torch.gradient expected each dimension size to be at least edge_order+1...
    """
    if isinstance(dim, int):
        dim = [dim]
    if isinstance(spacing, Tensor):
        spacing = spacing.item() if spacing.dim() == 0 else [spacing]  # one step for all dimensions, as a number
    if not isinstance(spacing, (list, tuple)):
        return tuple(_ops.gradient(input, spacing=spacing, dim=dim, edge_order=edge_order))
    real = input.real.dtype if input.is_complex() else input.dtype if input.is_floating_point() else None
    steps = [s if isinstance(s, Tensor) else
             _C.tensor(s, dtype=_C.complex128 if isinstance(s, builtins.complex) else real or _C.get_default_dtype(), device=input.device)
             for s in spacing]
    return tuple(_ops.gradient(input, spacing=steps, dim=dim, edge_order=edge_order))


def _to_overwrite(t: Tensor) -> Tensor:
    # What history saves of a tensor that is about to be written over has to be a copy.
    return t.clone() if t.requires_grad or _C._has_outer_history(t) else t


def _polygamma(self, n: int):
    """The n-th derivative of the digamma function.

    >>> arete.tensor([1.0]).polygamma(1)
    tensor([1.6449])
    """
    return _ops.polygamma(n, self)


def _polygamma_(self, n: int):
    """polygamma(), written into this tensor.

    >>> arete.tensor([1.0]).polygamma_(1)
    tensor([1.6449])
    """
    if not (self.is_floating_point() or self.is_complex()):
        raise RuntimeError(f"result type Float can't be cast to the desired output type {self.dtype}")
    return self.copy_(_ops.polygamma(n, _to_overwrite(self)))


def _float_power_(self, exponent):
    """float_power(), written into this tensor, which must have the dtype of the result.

    >>> arete.tensor([2.0], dtype=arete.float64).float_power_(3)
    tensor([8.], dtype=arete.float64)
    >>> arete.tensor([2.0]).float_power_(3)
    Traceback (most recent call last):
    RuntimeError: the base given to float_power_ has dtype arete.float32 but the operation's result requires dtype arete.float64
    """
    result = _ops.float_power(_to_overwrite(self), exponent)
    if result.dtype != self.dtype:
        raise RuntimeError(f"the base given to float_power_ has dtype {self.dtype} but the operation's result requires "
                           f"dtype {result.dtype}")
    return self.copy_(result)


METHODS["polygamma"], METHODS["polygamma_"] = _polygamma, _polygamma_
METHODS["float_power_"] = _float_power_
