"""Averages of a model's weights over training (SWA, EMA), and the schedule that goes with them.

    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    for x, y in loader:
        ...
        optimizer.step()
        averaged.update_parameters(model)
    update_bn(loader, averaged)   # where the model has batch norms
"""
from __future__ import annotations

import copy
import itertools
import math
from typing import Any, Callable, Iterable, Optional, Sequence

from .. import _C
from .._grad_mode import no_grad
from ..nn import Module
from ._schedule import LRScheduler, _assign, _per_group

__all__ = ["AveragedModel", "update_bn", "SWALR", "get_ema_multi_avg_fn", "get_swa_multi_avg_fn", "get_ema_avg_fn", "get_swa_avg_fn"]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"decay must be between 0 and 1, not {decay}")


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable:
    """A function of two lists which makes averaged = decay * averaged + (1 - decay) * current, in place.

    >>> averaged = [arete.zeros(2)]
    >>> arete.optim.swa_utils.get_ema_multi_avg_fn(0.75)(averaged, [arete.ones(2)], 1)
    >>> averaged
    [tensor([0.2500, 0.2500])]
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(averaged: Sequence, current: Sequence, num_averaged: Any) -> None:
        for a, c in zip(averaged, current):
            if a.is_floating_point() or a.is_complex():
                a.add_((c.to(a.dtype) - a) * (1 - decay))
            else:
                a.copy_(a * decay + c * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable:
    """A function of two lists which makes `averaged` the mean of all models so far, in place.

    >>> averaged = [arete.zeros(2)]
    >>> arete.optim.swa_utils.get_swa_multi_avg_fn()(averaged, [arete.ones(2)], arete.tensor(1))
    >>> averaged
    [tensor([0.5000, 0.5000])]
    """

    @no_grad()
    def swa_update(averaged: Sequence, current: Sequence, num_averaged: Any) -> None:
        weight = 1.0 / (float(num_averaged) + 1)
        for a, c in zip(averaged, current):
            if a.is_floating_point() or a.is_complex():
                a.add_((c.to(a.dtype) - a) * weight)
            else:
                a.copy_(a + (c - a) * weight)

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable:
    """A function (averaged, current, count) giving the new exponential average of one parameter.

    >>> arete.optim.swa_utils.get_ema_avg_fn(0.75)(arete.zeros(2), arete.ones(2), 1)
    tensor([0.2500, 0.2500])
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(averaged: Any, current: Any, num_averaged: Any) -> Any:
        return decay * averaged + (1 - decay) * current

    return ema_update


def get_swa_avg_fn() -> Callable:
    """A function (averaged, current, count) giving the new mean of one parameter.

    >>> arete.optim.swa_utils.get_swa_avg_fn()(arete.zeros(2), arete.ones(2), 1)
    tensor([0.5000, 0.5000])
    """

    @no_grad()
    def swa_update(averaged: Any, current: Any, num_averaged: Any) -> Any:
        return averaged + (current - averaged) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of `model` (as `.module`) whose parameters are the average of those seen by `update_parameters`.

    The average is the mean by default; `avg_fn(averaged, current, count)` or `multi_avg_fn(averaged_list, current_list,
    count)` replace it. With `use_buffers` the buffers are averaged too, else they are copied. `n_averaged` counts.

    >>> model = nn.Linear(2, 2)
    >>> average = arete.optim.swa_utils.AveragedModel(model)
    >>> average.update_parameters(model)
    >>> average.n_averaged, average(arete.ones(1, 2)).shape
    (tensor(1), arete.Size([1, 2]))
    """

    def __init__(self, model: Module, device: Any = None, avg_fn: Optional[Callable] = None,
                 multi_avg_fn: Optional[Callable] = None, use_buffers: bool = False) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("give avg_fn or multi_avg_fn, not both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", _C.tensor(0, dtype=_C.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _averaged(self, model: Module) -> list:
        return list(itertools.chain(model.parameters(), model.buffers())) if self.use_buffers else list(model.parameters())

    def update_parameters(self, model: Module) -> None:
        """Takes the weights of `model` into the average; the first call copies them."""
        mine = [p.detach() for p in self._averaged(self.module)]
        new = [p.detach().to(m.device) for m, p in zip(mine, self._averaged(model))]
        count = int(self.n_averaged)
        with no_grad():
            if count == 0:
                for m, p in zip(mine, new):
                    m.copy_(p)
            elif self.avg_fn is not None:
                for m, p in zip(mine, new):
                    m.copy_(self.avg_fn(m, p, self.n_averaged.to(m.device)))
            else:
                (self.multi_avg_fn or get_swa_multi_avg_fn())(mine, new, self.n_averaged)
            if not self.use_buffers:
                for m, b in zip(self.module.buffers(), model.buffers()):
                    m.detach().copy_(b.detach().to(m.device))
            self.n_averaged += 1


def update_bn(loader: Iterable, model: Module, device: Any = None) -> None:
    """Computes the running statistics of the model's batch norms anew, as plain means over all batches of `loader`.

    A batch that is a list or tuple gives its first element to the model.

    >>> model = nn.BatchNorm1d(2)
    >>> arete.optim.swa_utils.update_bn([arete.tensor([[1.0, 2.0], [3.0, 4.0]])], model)
    >>> model.running_mean
    tensor([2., 3.])
    """
    norms = {m: m.momentum for m in model.modules() if hasattr(m, "reset_running_stats") and hasattr(m, "momentum")}
    if not norms:
        return
    was_training = model.training
    model.train()
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    try:
        with no_grad():
            for batch in loader:
                if isinstance(batch, (list, tuple)):
                    batch = batch[0]
                model(batch if device is None else batch.to(device))
    finally:
        for m, momentum in norms.items():
            m.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """Goes from the rate it meets to `swa_lr` within `anneal_epochs` epochs ("cos" or "linear") and stays there.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = arete.optim.swa_utils.SWALR(optimizer, swa_lr=0.2, anneal_epochs=3, anneal_strategy="linear")
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.8, 0.6, 0.4, 0.2, 0.2]
    """

    def __init__(self, optimizer: Any, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos",
                 last_epoch: int = -1) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be 'cos' or 'linear', not {anneal_strategy!r}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be an int of at least 0, not {anneal_epochs}")
        for group, rate in zip(optimizer.param_groups, _per_group(optimizer, swa_lr, "swa_lr")):
            _assign(group, "swa_lr", rate)
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch: float) -> float:
        """How far the way to swa_lr has been gone."""
        part = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return part if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * part)) / 2

    def get_lr(self) -> list:
        self._check_called_from_step()
        # The start is found from the rate and the share of the epoch before: other schedulers may have moved it.
        step = self._step_count - 1 if self.anneal_epochs else max(1, self._step_count)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            goal, rate = group["swa_lr"], group["lr"]
            start = goal if before == 1 else (rate - before * goal) / (1 - before)
            rates.append(goal * now + start * (1 - now))
        return rates
