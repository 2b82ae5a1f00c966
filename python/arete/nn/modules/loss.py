"""Losses. `reduction`: "none", "mean" or "sum"; size_average and reduce are its older form."""

from __future__ import annotations

import warnings
from typing import Callable, Optional

from ..._C import Tensor
from .. import functional as F
from ._records import check, layer
from .distance import PairwiseDistance
from .module import Module

__all__ = [
    "L1Loss",
    "NLLLoss",
    "NLLLoss2d",
    "PoissonNLLLoss",
    "GaussianNLLLoss",
    "KLDivLoss",
    "MSELoss",
    "BCELoss",
    "BCEWithLogitsLoss",
    "HingeEmbeddingLoss",
    "MultiLabelMarginLoss",
    "SmoothL1Loss",
    "HuberLoss",
    "SoftMarginLoss",
    "CrossEntropyLoss",
    "MultiLabelSoftMarginLoss",
    "CosineEmbeddingLoss",
    "MarginRankingLoss",
    "MultiMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "CTCLoss",
]


class _Loss(Module):
    """What losses share."""

    reduction: str

    def __init__(
        self,
        size_average: Optional[bool] = None,
        reduce: Optional[bool] = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        if size_average is not None or reduce is not None:  # the older words
            reduction = "mean" if size_average is None or size_average else "sum"
            if not (reduce is None or reduce):
                reduction = "none"
            warnings.warn(
                "size_average and reduce args will be deprecated, please use "
                f"reduction='{reduction}' instead.",
                stacklevel=3,
            )
        self.reduction = reduction


class _WeightedLoss(_Loss):
    def __init__(
        self,
        weight: Optional[Tensor] = None,
        size_average: Optional[bool] = None,
        reduce: Optional[bool] = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


@layer
class L1Loss(_Loss):
    """|input - target|.

    >>> nn.L1Loss()(arete.tensor([1.0, 2.0]), arete.tensor([1.0, 4.0]))
    tensor(1.)
    """


@layer
class NLLLoss(_WeightedLoss):
    """-input at the classes `target` (N, ...), for log probabilities (N, C, ...).

    >>> nn.NLLLoss()(arete.tensor([[-1.0, -2.0], [-3.0, -4.0]]), arete.tensor([0, 1]))
    tensor(2.5000)
    """


class NLLLoss2d(NLLLoss):
    """NLLLoss under its older name for images.

    >>> nn.NLLLoss2d()(arete.zeros(1, 3, 2, 2), arete.zeros(1, 2, 2, dtype=arete.int64)).shape
    arete.Size([])
    """


@layer
class PoissonNLLLoss(_Loss):
    """exp(x) - target x, or with log_input=False x - target log(x + eps).

    >>> nn.PoissonNLLLoss()(arete.zeros(2), arete.tensor([1.0, 3.0]))
    tensor(1.)
    """

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


@layer
class GaussianNLLLoss(_Loss):
    """(log var + (input - target)^2 / var) / 2, called with (input, target, var).

    >>> nn.GaussianNLLLoss()(arete.tensor([1.0]), arete.tensor([3.0]), arete.tensor([1.0]))
    tensor(2.)
    """


@layer
class KLDivLoss(_Loss):
    """target * (log target - input), `input` in logarithms; "batchmean" divides by the batch.

    >>> p = arete.tensor([[0.5, 0.5]])
    >>> nn.KLDivLoss(reduction="batchmean")(arete.tensor([[0.25, 0.75]]).log(), p)
    tensor(0.1438)
    """


@layer
class MSELoss(_Loss):
    """(input - target)^2.

    >>> nn.MSELoss()(arete.tensor([1.0, 2.0]), arete.tensor([1.0, 4.0]))
    tensor(2.)
    >>> nn.MSELoss(reduction="none")(arete.tensor([1.0, 2.0]), arete.tensor([1.0, 4.0]))
    tensor([0., 4.])
    """


@layer
class BCELoss(_WeightedLoss):
    """Binary cross entropy of probabilities.

    >>> nn.BCELoss()(arete.tensor([0.5, 0.5]), arete.tensor([1.0, 0.0]))
    tensor(0.6931)
    """


@layer
class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of logits; pos_weight scales the positive term.

    >>> nn.BCEWithLogitsLoss()(arete.zeros(2), arete.tensor([1.0, 0.0]))
    tensor(0.6931)
    """


@layer
class HingeEmbeddingLoss(_Loss):
    """x where target is 1, max(0, margin - x) where it is -1.

    >>> nn.HingeEmbeddingLoss(reduction="none")(arete.tensor([0.25, 0.25]), arete.tensor([1, -1]))
    tensor([0.2500, 0.7500])
    """


@layer
class MultiLabelMarginLoss(_Loss):
    """Hinge of every class outside the target against every class in it.

    Targets hold the classes, then -1 where there are no more.

    >>> nn.MultiLabelMarginLoss()(arete.tensor([0.5, 1.0, 0.25]), arete.tensor([1, -1, 0]))
    tensor(0.2500)
    """


@layer
class SmoothL1Loss(_Loss):
    """Quadratic / beta below beta, linear beyond.

    >>> nn.SmoothL1Loss(reduction="none")(arete.tensor([0.5, 3.0]), arete.zeros(2))
    tensor([0.1250, 2.5000])
    """


@layer
class HuberLoss(_Loss):
    """Quadratic up to delta, linear with slope delta beyond.

    >>> nn.HuberLoss(reduction="none", delta=2.0)(arete.tensor([0.5, 3.0]), arete.zeros(2))
    tensor([0.1250, 4.0000])
    """


@layer
class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input)).

    >>> nn.SoftMarginLoss()(arete.zeros(2), arete.tensor([1.0, -1.0]))
    tensor(0.6931)
    """


@layer
class CrossEntropyLoss(_WeightedLoss):
    """Cross entropy of logits (N, C, ...) against classes (N, ...) or probabilities (N, C, ...).

    >>> loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    >>> loss(arete.zeros(2, 4), arete.tensor([0, 3]))
    tensor(1.3863)
    >>> loss(arete.zeros(2, 4), arete.tensor([0, 4]))
    Traceback (most recent call last):
    IndexError: Target 4 is out of bounds. Operator: cross_entropy. Argument: target. Expected: classes in [0, 4)
    """


@layer
class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Binary cross entropy with logits, averaged over the classes.

    >>> nn.MultiLabelSoftMarginLoss()(arete.zeros(1, 3), arete.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.6931)
    """


@layer
class CosineEmbeddingLoss(_Loss):
    """1 - cos(x1, x2) where target is 1, max(0, cos - margin) where it is -1.

    >>> a, b = arete.tensor([[1.0, 0.0]]), arete.tensor([[3.0, 4.0]])
    >>> nn.CosineEmbeddingLoss()(a, b, arete.tensor([1]))
    tensor(0.4000)
    """


@layer
class MarginRankingLoss(_Loss):
    """max(0, -target * (input1 - input2) + margin).

    >>> a, b = arete.tensor([1.0]), arete.tensor([3.0])
    >>> nn.MarginRankingLoss(margin=0.5)(a, b, arete.tensor([1]))
    tensor(2.5000)
    """


@layer
class MultiMarginLoss(_WeightedLoss):
    """Hinge (to the power p) of every other class against the target's.

    >>> nn.MultiMarginLoss()(arete.tensor([[0.5, 1.0, 0.25]]), arete.tensor([1]))
    tensor(0.2500)
    >>> nn.MultiMarginLoss(p=3)
    Traceback (most recent call last):
    arete.ArgumentError: only p == 1 and p == 2 supported...
    """


@layer
class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin).

    >>> a, p, n = arete.tensor([[0.0, 0.0]]), arete.tensor([[3.0, 4.0]]), arete.tensor([[6.0, 0.0]])
    >>> nn.TripletMarginLoss(margin=2.0, eps=0.0)(a, p, n)
    tensor(1.)
    """


class TripletMarginWithDistanceLoss(_Loss):
    """The triplet margin loss with a distance of one's own.

    >>> loss = nn.TripletMarginWithDistanceLoss(distance_function=lambda x, y: (x - y).abs().sum(-1))
    >>> loss(arete.tensor([[0.0]]), arete.tensor([[2.0]]), arete.tensor([[1.0]]))
    tensor(2.)
    """

    __constants__ = ["margin", "swap", "reduction"]

    def __init__(
        self,
        *,
        distance_function: Optional[Callable[[Tensor, Tensor], Tensor]] = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(None, None, reduction)
        if margin <= 0:
            raise ValueError(
                "TripletMarginWithDistanceLoss: expected margin to be greater than 0, got "
                f"{margin} instead"
            )
        self.distance_function = distance_function or PairwiseDistance()
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


@layer
class CTCLoss(_Loss):
    """Connectionist temporal classification of log probabilities (T, N, C).

    >>> log_probs = arete.full((3, 1, 2), 0.5).log()
    >>> nn.CTCLoss(reduction="none")(log_probs, arete.tensor([[1]]), [3], [1])
    tensor([0.2877])
    """


