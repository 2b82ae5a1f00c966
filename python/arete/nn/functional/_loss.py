"""Losses that are more than one operator, or take numbers where that wants tensors."""

from __future__ import annotations

from typing import Any, Callable, Optional

from ... import _operators
from ..._C import Tensor
from ..._operators import _ops


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Optional[Callable[[Tensor, Tensor], Tensor]] = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """triplet_margin_loss with a distance of one's own (pairwise_distance by default).

    >>> a, p, n = arete.tensor([[0.0]]), arete.tensor([[2.0]]), arete.tensor([[1.0]])
    >>> F.triplet_margin_with_distance_loss(a, p, n, distance_function=lambda x, y: (x - y).abs().sum(-1))
    tensor(2.)
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = distance_function or _ops.pairwise_distance
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            f"The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and "
            f"negative {negative.dim()}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _operators.minimum(far, distance(positive, negative))
    loss = (near - far + margin).clamp_min(0)
    return loss if reduction == "none" else getattr(loss, reduction)()


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log var + (input - target)^2 / var) / 2, variances not below eps.

    >>> F.gaussian_nll_loss(arete.tensor([1.0]), arete.tensor([3.0]), arete.tensor([1.0]))
    tensor(2.)
    >>> F.gaussian_nll_loss(arete.ones(1), arete.ones(1), arete.tensor([-1.0]))
    Traceback (most recent call last):
    arete.ArgumentError: var has negative entry/entries. Operator: gaussian_nll_loss. Argument: var
    """
    if not isinstance(var, Tensor):
        var = _operators.full_like(input, float(var))
    return _ops.gaussian_nll_loss(input, target, var, full, eps, reduction)
