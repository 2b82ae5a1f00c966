"""Gradients limited in norm or value."""

from __future__ import annotations

import math
from typing import Any, Iterable, List, Optional, Union

from ... import _C
from ..._C import Tensor
from ...distributed._norms import total_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_norm",
    "clip_grad_value_",
    "get_total_norm",
    "clip_grads_with_norm_",
]

Tensors = Union[Tensor, Iterable[Tensor]]


def _listed(tensors: Tensors) -> List[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads(parameters: Tensors) -> List[Tensor]:
    return [p.grad for p in _listed(parameters) if p.grad is not None]


def get_total_norm(
    tensors: Tensors,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: Optional[bool] = None,
) -> Tensor:
    """The norm of all tensors' elements together (a 0-d tensor). Of those that are spread over processes the elements of all count,
    so all processes call it, and it is a DTensor.

    >>> nn.utils.get_total_norm([arete.tensor([3.0]), arete.tensor([4.0])])
    tensor(5.)
    """
    parts = _listed(tensors)
    norm_type = float(norm_type)
    if not parts:
        return _C.tensor(0.0)
    spread = [t for t in parts if getattr(t, "_spec", None) is not None]
    if spread:
        total = total_norm(spread, norm_type, _C._total_norm)
        own = [t for t in parts if getattr(t, "_spec", None) is None]
        if own:
            total = _C._total_norm([total, _C._total_norm(own, norm_type).to(total.device)], norm_type)
    else:
        total = _C._total_norm(parts, norm_type)
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return spread[0]._spec.same_in_all(total) if spread else total


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: Optional[bool] = None
) -> None:
    """Scales the gradients in place by max_norm / total_norm where that is below 1.

    >>> w = arete.tensor([3.0, 4.0], requires_grad=True)
    >>> w.square().sum().backward()
    >>> nn.utils.clip_grads_with_norm_([w], 1.0, arete.tensor(10.0))
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    _C._clip_grads_with_norm(_listed(parameters), float(max_norm), total_norm)


def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: Optional[bool] = None,
) -> Tensor:
    """Limits the norm of all gradients together, in place; gives the norm before that.

    With error_if_nonfinite RuntimeError where the norm is infinite or NaN.

    >>> w = arete.tensor([3.0, 4.0], requires_grad=True)
    >>> w.square().sum().backward()
    >>> nn.utils.clip_grad_norm_([w], 1.0), w.grad
    (tensor(10.), tensor([0.6000, 0.8000]))
    """
    parameters = _listed(parameters)
    total = get_total_norm(_grads(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grad_norm(*args: Any, **kwargs: Any) -> Tensor:
    """The older name of :func:`clip_grad_norm_`.

    >>> nn.utils.clip_grad_norm([arete.ones(2, requires_grad=True)], 1.0)
    tensor(0.)
    """
    return clip_grad_norm_(*args, **kwargs)


def clip_grad_value_(
    parameters: Tensors, clip_value: float, foreach: Optional[bool] = None
) -> None:
    """Limits every element of the gradients to [-clip_value, clip_value], in place.

    >>> w = arete.tensor([3.0, -4.0], requires_grad=True)
    >>> w.square().sum().backward()
    >>> nn.utils.clip_grad_value_([w], 7.0)
    >>> w.grad
    tensor([ 6., -7.])
    """
    _C._clip_grad_value(_listed(parameters), float(clip_value))
