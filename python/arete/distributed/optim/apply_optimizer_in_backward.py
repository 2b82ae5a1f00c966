"""Optimizers that step as soon as a parameter's gradient is there, which then makes room for the next one's."""
from __future__ import annotations

from typing import Any, Iterable

from ...nn.parallel.distributed import _exchanged_by, _step_own

__all__: list = []


def _apply_optimizer_in_backward(optimizer_class: type, params: Iterable[Any], optimizer_kwargs: dict, register_hook: bool = True) -> None:
    """Gives each parameter an optimizer of its own, which steps during backward() when the gradient of the parameter is complete; then
    `grad` is None. Several for one parameter step in the order in which they came. With `register_hook=False` they are only kept in
    `_in_backward_optimizers`, and whoever asked for this lets them step. Those of a network in DistributedDataParallel step when
    gradients have been exchanged, and not in `no_sync()`.

    >>> from arete.distributed.optim import _apply_optimizer_in_backward
    >>> w = arete.nn.Parameter(arete.ones(2))
    >>> _apply_optimizer_in_backward(arete.optim.SGD, [w], {"lr": 0.5})
    >>> (3 * w).sum().backward()
    >>> w.tolist(), w.grad
    ([-0.5, -0.5], None)
    """
    for param in params:
        optimizer = optimizer_class([param], **optimizer_kwargs)
        if not hasattr(param, "_in_backward_optimizers"):
            param._in_backward_optimizers, param._optimizer_classes, param._optimizer_kwargs = [], [], []
            param._steps_in_backward = False
        param._in_backward_optimizers.append(optimizer)
        param._optimizer_classes.append(optimizer_class)
        param._optimizer_kwargs.append(optimizer_kwargs)
        if register_hook and not param._steps_in_backward:
            param._steps_in_backward = True
            param.register_post_accumulate_grad_hook(_step)
            wrapper = _exchanged_by.get(id(param))
            if wrapper is not None:
                wrapper._step_after_exchange()


def _step(param: Any) -> None:
    if id(param) not in _exchanged_by:
        _step_own(param)


def _get_in_backward_optimizers(module: Any) -> list:
    """The optimizers that the module's parameters have so, for checkpoints."""
    return [optimizer for p in module.parameters() for optimizer in getattr(p, "_in_backward_optimizers", ())]
