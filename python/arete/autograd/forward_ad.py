"""Forward mode: tensors that carry a tangent, which every operator gives to its results.

Inside a level make_dual() gives a tensor a tangent, and unpack_dual() tells that of a result: the product of the Jacobian with it. Nothing
has to be recorded for that; where history is recorded, tangents can be differentiated, and gradients of dual tensors are dual. A call is
made a second time for its tangents (C++: arete/autograd/forward_mode.h), and functions of autograd.Function are asked for theirs (`jvp`).

>>> import arete.autograd.forward_ad as fwAD
>>> with fwAD.dual_level():
...     x = fwAD.make_dual(arete.tensor([1.0, 2.0]), arete.tensor([1.0, 0.0]))
...     fwAD.unpack_dual(x**3).tangent
tensor([3., 0.])
"""
from __future__ import annotations

import contextlib
from typing import NamedTuple, Optional

from .. import _C
from .._C import Tensor

__all__ = ["UnpackedDualTensor", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual", "dual_level"]


class UnpackedDualTensor(NamedTuple):
    """What unpack_dual() gives: `primal`, the values, and `tangent`, which is None where there is none.

    >>> from arete.autograd import forward_ad
    >>> forward_ad.unpack_dual(arete.ones(2))
    UnpackedDualTensor(primal=tensor([1., 1.]), tangent=None)
    """

    primal: Tensor
    tangent: Optional[Tensor]


def __getattr__(name: str) -> int:
    if name == "_current_level":  # of this thread; below 0: none
        return 0 if _C._has_dual_level() else -1
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _check_level(level) -> None:
    if level not in (None, 0):
        raise RuntimeError(f"there is one level of forward mode, of number 0, not {level}")


def enter_dual_level() -> int:
    """Begins a level on this thread, whose number is 0. RuntimeError inside another one.

    >>> from arete.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     forward_ad.enter_dual_level()
    Traceback (most recent call last):
    arete.AutogradError: Nested forward mode AD is not supported at the moment...
    """
    _C._enter_dual_level()
    return 0


def exit_dual_level(*, level: Optional[int] = None) -> None:
    """Ends it; tensors lose their tangents. RuntimeError where there is none.

    >>> from arete.autograd import forward_ad
    >>> level = forward_ad.enter_dual_level()
    >>> forward_ad.exit_dual_level(level=level)
    """
    _check_level(level)
    _C._exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: Optional[int] = None) -> Tensor:
    """A view of the tensor with this tangent, of the same sizes; both floating point or complex, and neither of them dual.

    The tangent's memory is that of the dual tensor's if it lies as the tensor does: writes in place change it. RuntimeError without a
    level.

    >>> from arete.autograd import forward_ad
    >>> forward_ad.make_dual(arete.ones(2), arete.ones(2))
    Traceback (most recent call last):
    arete.AutogradError: Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first...
    """
    _check_level(level)
    return _C._make_dual(tensor, tangent)


def unpack_dual(tensor: Tensor, *, level: Optional[int] = None) -> UnpackedDualTensor:
    """The values and the tangent of a tensor: a view without tangent, and None for a tensor that has none or outside of a level.

    >>> from arete.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     forward_ad.unpack_dual(forward_ad.make_dual(arete.ones(1), arete.zeros(1)) + 1)
    UnpackedDualTensor(primal=tensor([2.]), tangent=tensor([0.]))
    """
    _check_level(level)
    tangent = _C._tangent_of(tensor)
    return UnpackedDualTensor(tensor if tangent is None else _C._primal_of(tensor), tangent)


class dual_level(contextlib.ContextDecorator):
    """A level for a block or a function.

    >>> from arete.autograd import forward_ad
    >>> with forward_ad.dual_level():
    ...     y = forward_ad.make_dual(arete.tensor(2.0), arete.tensor(1.0)).exp()
    ...     print(forward_ad.unpack_dual(y).tangent)
    tensor(7.3891)
    >>> print(forward_ad.unpack_dual(y).tangent)
    None
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *error) -> None:
        exit_dual_level()
