"""Cross entropy of logits whose classes are spread over processes: only numbers of each row travel."""
from __future__ import annotations

import contextlib
from typing import Any, Iterator, Optional

from ... import _C, _operators
from ...autograd import Function
from ...nn import functional as F
from .. import distributed_c10d as c10d
from ._dtensor import HANDLERS, DTensor, spread_over
from ._rules import on_whole_tensors
from .placement_types import Replicate, Shard

__all__ = ["loss_parallel"]

_depth = 0


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """A block in which `cross_entropy` takes logits whose classes are in parts: results of `ColwiseParallel(use_local_output=False)`.
    Each process has the logits and gradients of its classes alone. The loss is a DTensor that all have. Targets are
    classes, and `label_smoothing` is refused.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> head = dist.tensor.parallel.parallelize_module(nn.Linear(2, 4), dist.init_device_mesh("cpu", (1,)),
    ...     dist.tensor.parallel.ColwiseParallel(use_local_output=False))
    >>> with dist.tensor.parallel.loss_parallel():
    ...     nn.functional.cross_entropy(head(arete.zeros(3, 2)), arete.tensor([0, 1, 2])).backward()
    >>> head.weight.grad.shape
    Size([4, 2])
    >>> dist.destroy_process_group()
    """
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


class _CrossEntropy(Function):
    """The negative logarithms of the targets' probabilities, for rows of logits of which this process has `first` and those after it."""

    @staticmethod
    def forward(ctx: Any, logits: Any, target: Any, first: int, group: Any) -> Any:
        x = logits if logits.dtype == _C.float64 else logits.float()
        if x.shape[-1]:
            most = x.amax(-1)
        else:
            most = _operators.full(x.shape[:-1], float("-inf"), dtype=x.dtype, device=x.device)
        c10d.all_reduce(most, c10d.ReduceOp.MAX, group)
        elsewhere = (target < first) | (target >= first + x.shape[-1])
        at = (target - first).masked_fill(elsewhere, 0)
        if x.shape[-1]:
            own = (x.gather(-1, at.unsqueeze(-1)).squeeze(-1) - most).masked_fill(elsewhere, 0.0)
        else:
            own = _operators.zeros_like(most)
        sums = _operators.stack([(x - most.unsqueeze(-1)).exp().sum(-1), own])
        c10d.all_reduce(sums, group=group)
        ctx.save_for_backward(logits, at, elsewhere, most + sums[0].log())
        return sums[0].log() - sums[1]

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        logits, at, elsewhere, total = ctx.saved_tensors
        x = logits if logits.dtype == _C.float64 else logits.float()
        slopes = (x - total.unsqueeze(-1)).exp()
        if x.shape[-1]:
            slopes.scatter_add_(-1, at.unsqueeze(-1), -(~elsewhere).to(slopes.dtype).unsqueeze(-1))
        return (slopes * g.unsqueeze(-1)).to(logits.dtype), None, None, None


def _cross_entropy(input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,  # noqa: A002
                   reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0) -> Any:
    if not isinstance(input, DTensor):
        raise NotImplementedError("cross_entropy: the target is spread over processes, and the logits are not")
    if isinstance(target, DTensor):
        target = target.full_tensor()
    mesh, shape = input.device_mesh, input.shape
    classes = 1 if len(shape) > 1 else 0
    if all(isinstance(p, Replicate) for p in input.placements):
        return spread_over(F.cross_entropy(input.to_local(), target, weight, size_average, ignore_index, reduce, reduction,
                                           label_smoothing), mesh)
    if not _depth:
        return on_whole_tensors(F.cross_entropy, "cross_entropy", (input, target, weight, size_average, ignore_index, reduce, reduction,
                                                                   label_smoothing), {})
    if mesh.ndim != 1 or input.placements != (Shard(classes),):
        raise ValueError(f"cross_entropy within loss_parallel(): logits are spread along their classes, Shard({classes}), over a mesh of "
                         f"one dimension, got {input.placements} on {mesh}")
    if label_smoothing or target.is_floating_point():
        raise NotImplementedError("cross_entropy within loss_parallel(): label_smoothing and targets of probabilities are not supported")
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
    local = input.to_local()
    if classes == 1:
        local = local.movedim(1, -1)
    number, first = Shard.local_shard_size_and_offset(shape[classes], mesh.size(), mesh.get_local_rank())
    if tuple(local.shape[:-1]) != tuple(target.shape):
        raise ValueError(f"cross_entropy: logits of shape {tuple(shape)} and a target of shape {tuple(target.shape)} do not fit")
    ignored = target == ignore_index
    wrong = ((target < 0) | (target >= shape[classes])) & ~ignored
    if target.device.type == "cpu" and wrong.any():
        raise IndexError(f"Target {int(target[wrong][0])} is out of bounds.")
    target = target.masked_fill(ignored, 0)
    losses = _CrossEntropy.apply(local.contiguous(), target, first, mesh.get_group())
    weights = (~ignored).to(losses.dtype)
    if weight is not None:
        weights = weights * (weight.full_tensor() if isinstance(weight, DTensor) else weight).to(losses.dtype)[target]
    losses = losses.masked_fill(ignored, 0.0) * weights
    if reduction == "mean":
        losses = losses.sum() / weights.sum()
    elif reduction == "sum":
        losses = losses.sum()
    elif reduction != "none":
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return spread_over(losses.to(local.dtype), mesh)


HANDLERS["cross_entropy"] = _cross_entropy
