"""Losses. `reduction` is "none", "mean" or "sum"; size_average and reduce are its older form."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Optional

import arete
from arete import Tensor, _ops

from ._common import check_reduction, reduced, reduction_of


def _warn_sizes(name: str, input: Tensor, target: Tensor) -> None:
    if target.size() != input.size():
        warnings.warn(
            f"Using a target size ({target.size()}) that is different to the input size "
            f"({input.size()}). This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
            stacklevel=3,
        )


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    ignore_index: int = -100,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits (N, C, ...) against classes (N, ...) or probabilities (N, C, ...).

    Targets equal to ignore_index count nothing; `weight` has one factor for each class.

    >>> F.cross_entropy(arete.zeros(2, 4), arete.tensor([0, 3]))
    tensor(1.3863)
    >>> F.cross_entropy(arete.zeros(2, 4), arete.tensor([0, 3]), reduction="none")
    tensor([1.3863, 1.3863])
    >>> F.cross_entropy(arete.zeros(2, 4), arete.tensor([0, 4]))
    Traceback (most recent call last):
    IndexError: Target 4 is out of bounds. Operator: cross_entropy. Argument: target. Expected: classes in [0, 4)
    """
    if size_average is not None or reduce is not None:
        reduction = reduction_of(size_average, reduce, reduction)
    return _ops.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    ignore_index: int = -100,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    """-input at the classes `target`, for log probabilities (N, C, ...).

    (N, C, ...), (N, ...) -> () or, with reduction "none", (N, ...).

    >>> F.nll_loss(arete.tensor([[-1.0, -2.0], [-3.0, -4.0]]), arete.tensor([0, 1]))
    tensor(2.5000)
    >>> F.nll_loss(arete.zeros(2, 4), arete.tensor([0]))
    Traceback (most recent call last):
    arete.ArgumentError: Expected input batch_size (2) to match target batch_size (1)...
    """
    reduction = reduction_of(size_average, reduce, reduction)
    return _ops.nll_loss(input, target, weight, ignore_index, reduction)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    weight: Optional[Tensor] = None,
) -> Tensor:
    """(input - target)^2.

    >>> F.mse_loss(arete.tensor([1.0, 2.0]), arete.tensor([1.0, 4.0]))
    tensor(2.)
    >>> F.mse_loss(arete.tensor([1.0, 2.0]), arete.tensor([1.0, 4.0]), reduction="none")
    tensor([0., 4.])
    >>> F.mse_loss(arete.ones(2), arete.ones(2), reduction="max")
    Traceback (most recent call last):
    arete.ArgumentError: max is not a valid value for reduction...
    """
    _warn_sizes("mse_loss", input, target)
    reduction = reduction_of(size_average, reduce, reduction)
    return _ops.mse_loss(input, target, reduction, weight)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    weight: Optional[Tensor] = None,
) -> Tensor:
    """|input - target|.

    >>> F.l1_loss(arete.tensor([1.0, 2.0]), arete.tensor([1.0, 4.0]))
    tensor(1.)
    """
    _warn_sizes("l1_loss", input, target)
    reduction = reduction_of(size_average, reduce, reduction)
    return _ops.l1_loss(input, target, reduction, weight)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Quadratic / beta below beta, linear beyond.

    >>> F.smooth_l1_loss(arete.tensor([0.5, 3.0]), arete.zeros(2), reduction="none")
    tensor([0.1250, 2.5000])
    """
    _warn_sizes("smooth_l1_loss", input, target)
    return _ops.smooth_l1_loss(
        input, target, reduction_of(size_average, reduce, reduction), float(beta)
    )


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Optional[Tensor] = None,
) -> Tensor:
    """Quadratic up to delta, linear with slope delta beyond.

    >>> F.huber_loss(arete.tensor([0.5, 3.0]), arete.zeros(2), reduction="none", delta=2.0)
    tensor([0.1250, 4.0000])
    """
    _warn_sizes("huber_loss", input, target)
    return _ops.huber_loss(input, target, reduction, float(delta), weight)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    """-(y log x + (1 - y) log(1 - x)) for probabilities x.

    ValueError for a target of another shape.

    >>> F.binary_cross_entropy(arete.tensor([0.5, 0.25]), arete.tensor([1.0, 0.0]), reduction="none")
    tensor([0.6931, 0.2877])
    """
    if target.size() != input.size():
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size "
            f"({input.size()}) is deprecated. Please ensure they have the same size."
        )
    reduction = reduction_of(size_average, reduce, reduction)
    return _ops.binary_cross_entropy(input, target, weight, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    pos_weight: Optional[Tensor] = None,
) -> Tensor:
    """binary_cross_entropy of sigmoid(input), accurate for large logits; pos_weight scales the positive term.

    >>> F.binary_cross_entropy_with_logits(arete.zeros(2), arete.tensor([1.0, 0.0]))
    tensor(0.6931)
    >>> F.binary_cross_entropy_with_logits(arete.zeros(2), arete.zeros(3))
    Traceback (most recent call last):
    ValueError: Target size (arete.Size([3])) must be the same as input size (arete.Size([2]))
    """
    if target.size() != input.size():
        raise ValueError(
            f"Target size ({target.size()}) must be the same as input size ({input.size()})"
        )
    reduction = reduction_of(size_average, reduce, reduction)
    return _ops.binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target * (log target - input), `input` in logarithms; "batchmean" divides by the batch.

    >>> p = arete.tensor([[0.5, 0.5]])
    >>> F.kl_div(arete.tensor([[0.25, 0.75]]).log(), p, reduction="batchmean")
    tensor(0.1438)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if reduction == "mean" and size_average is None and reduce is None:
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support "
            "size. 'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition.",
            stacklevel=2,
        )
    return _ops.kl_div(input, target, reduction, log_target)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos(x1, x2) where target is 1, max(0, cos - margin) where it is -1.

    >>> a, b = arete.tensor([[1.0, 0.0]]), arete.tensor([[3.0, 4.0]])
    >>> F.cosine_embedding_loss(a, b, arete.tensor([1]))
    tensor(0.4000)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    return _ops.cosine_embedding_loss(input1, input2, target, float(margin), reduction)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    """x where target is 1, max(0, margin - x) where it is -1.

    >>> F.hinge_embedding_loss(arete.tensor([0.25, 0.25]), arete.tensor([1, -1]), reduction="none")
    tensor([0.2500, 0.7500])
    """
    reduction = reduction_of(size_average, reduce, reduction)
    return _ops.hinge_embedding_loss(input, target, float(margin), reduction)


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target * (input1 - input2) + margin).

    >>> F.margin_ranking_loss(arete.tensor([1.0]), arete.tensor([3.0]), arete.tensor([1]), margin=0.5)
    tensor(2.5000)
    """
    if input1.dim() != input2.dim() or input1.dim() != target.dim():
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.size()}, input2: {input2.size()}, target: {target.size()} "
        )
    reduction = reduction_of(size_average, reduce, reduction)
    return _ops.margin_ranking_loss(input1, input2, target, float(margin), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin).

    (N, D) or (D) each -> () or, with reduction "none", (N).

    >>> a, p, n = arete.tensor([[0.0, 0.0]]), arete.tensor([[3.0, 4.0]]), arete.tensor([[6.0, 0.0]])
    >>> F.triplet_margin_loss(a, p, n, margin=2.0, eps=0.0)
    tensor(1.)
    >>> F.triplet_margin_loss(a, p, n, margin=0.0)
    Traceback (most recent call last):
    ValueError: margin must be greater than 0, got 0.0
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _ops.triplet_margin_loss(
        anchor, positive, negative, float(margin), float(p), eps, swap, reduction
    )


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
    check_reduction(reduction)
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
        far = arete.minimum(far, distance(positive, negative))
    return reduced((near - far + margin).clamp_min(0), reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: Optional[bool] = None,
    eps: float = 1e-8,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(x) - target x, or with log_input=False x - target log(x + eps).

    >>> F.poisson_nll_loss(arete.zeros(2), arete.tensor([1.0, 3.0]), reduction="none")
    tensor([1., 1.])
    """
    reduction = reduction_of(size_average, reduce, reduction)
    check_reduction(reduction)
    return _ops.poisson_nll_loss(input, target, log_input, full, eps, reduction)


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
        var = arete.full_like(input, float(var))
    return _ops.gaussian_nll_loss(input, target, var, full, eps, reduction)


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target * input)).

    >>> F.soft_margin_loss(arete.tensor([0.0, 1.0]), arete.tensor([1.0, -1.0]), reduction="none")
    tensor([0.6931, 1.3133])
    """
    reduction = reduction_of(size_average, reduce, reduction)
    return _ops.soft_margin_loss(input, target, reduction)


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    """Hinge of every class outside the target against every class in it.

    (N, C) or (C), targets of the same shape: the classes, then -1 where there are no more.

    >>> F.multilabel_margin_loss(arete.tensor([0.5, 1.0, 0.25]), arete.tensor([1, -1, 0]))
    tensor(0.2500)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    return _ops.multilabel_margin_loss(input, target, reduction)


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross entropy with logits, averaged over the classes.

    >>> F.multilabel_soft_margin_loss(arete.zeros(1, 3), arete.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.6931)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    return _ops.multilabel_soft_margin_loss(input, target, weight, reduction)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Optional[Tensor] = None,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
) -> Tensor:
    """Hinge (to the power p) of every other class against the target's.

    (N, C), (N) -> () or, with reduction "none", (N).

    >>> F.multi_margin_loss(arete.tensor([[0.5, 1.0, 0.25]]), arete.tensor([1]))
    tensor(0.2500)
    >>> F.multi_margin_loss(arete.ones(1, 3), arete.tensor([1]), p=3)
    Traceback (most recent call last):
    ValueError: only p == 1 and p == 2 supported
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    return _ops.multi_margin_loss(input, target, p, float(margin), weight, reduction)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification of log probabilities (T, N, C).

    targets (N, S), or all of them one after the other; lengths (N) each. zero_infinity: samples that
    cannot be aligned count 0.

    >>> log_probs = arete.full((3, 1, 2), 0.5).log()
    >>> F.ctc_loss(log_probs, arete.tensor([[1]]), [3], [1], reduction="none")
    tensor([0.2877])
    """
    if not isinstance(input_lengths, Tensor):
        input_lengths = arete.tensor(list(input_lengths), dtype=arete.int64)
    if not isinstance(target_lengths, Tensor):
        target_lengths = arete.tensor(list(target_lengths), dtype=arete.int64)
    return _ops.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity
    )
