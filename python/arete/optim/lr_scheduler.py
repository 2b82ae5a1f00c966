"""Learning-rate schedules, with PyTorch's names, arguments and numbers.

A scheduler is made after its optimizer, sets the rate of epoch 0 at once, and is stepped after `optimizer.step()`:

    scheduler = arete.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    for epoch in range(100):
        train(...)
        scheduler.step()

All that is asked of an optimizer is `param_groups`: a list of groups that support `group[key]`, `group[key] = value` and
`key in group`. A rate may be a number or a tensor with one element, which is then written in place.
"""
from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections import Counter
from typing import Any, Callable, Iterable, Optional, Sequence, Union

from ._cyclic import CyclicLR, OneCycleLR
from ._schedule import LRScheduler, _assign, _check_optimizer, _copied, _per_group

__all__ = [
    "LRScheduler", "LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR",
    "SequentialLR", "PolynomialLR", "CosineAnnealingLR", "ChainedScheduler", "ReduceLROnPlateau", "CyclicLR",
    "CosineAnnealingWarmRestarts", "OneCycleLR",
]

_LRScheduler = LRScheduler  # its name of old, of which programs derive theirs


class _FunctionLR(LRScheduler):
    """What the two schedules by user functions share. Functions are kept out of the state, objects with `__call__` are in it."""

    def __init__(self, optimizer: Any, lr_lambda: Union[Callable, Sequence[Callable]], last_epoch: int = -1) -> None:
        _check_optimizer(optimizer)
        self.lr_lambdas = _per_group(optimizer, lr_lambda, "lr_lambda")
        for f in self.lr_lambdas:
            if not callable(f):
                raise TypeError(f"lr_lambda must be callable, not {type(f).__name__}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict:
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [None if hasattr(f, "__code__") or not hasattr(f, "__dict__") else dict(f.__dict__)
                               for f in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict) -> None:
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for f, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"]):
            if saved is not None:
                f.__dict__.update(saved)


class LambdaLR(_FunctionLR):
    """Rate = initial rate * lr_lambda(epoch). One function, or one per group.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = arete.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.8, 0.4, 0.2667, 0.2]
    """

    def get_lr(self) -> list:
        self._check_called_from_step()
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas)]


class MultiplicativeLR(_FunctionLR):
    """Each epoch multiplies the rate by lr_lambda(epoch).

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = arete.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(scheduler.get_last_lr()[0])
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.8, 0.4, 0.2, 0.1]
    """

    def get_lr(self) -> list:
        self._check_called_from_step()
        rates = self._current()
        return rates if self._is_initial else [rate * f(self.last_epoch) for rate, f in zip(rates, self.lr_lambdas)]


class StepLR(LRScheduler):
    """Multiplies the rate by gamma every `step_size` epochs.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = arete.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(scheduler.get_last_lr()[0])
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.8, 0.8, 0.4, 0.4, 0.2]
    """

    def __init__(self, optimizer: Any, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list:
        self._check_called_from_step()
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self._current()
        return [rate * self.gamma for rate in self._current()]

    def _get_closed_form_lr(self) -> list:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Multiplies the rate by gamma at each of the milestones; one that is listed twice counts twice.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = arete.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(scheduler.get_last_lr()[0])
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.8, 0.4, 0.4, 0.2]
    """

    def __init__(self, optimizer: Any, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def load_state_dict(self, state_dict: dict) -> None:
        super().load_state_dict(state_dict)
        self.milestones = Counter(self.milestones)

    def get_lr(self) -> list:
        self._check_called_from_step()
        count = self.milestones[self.last_epoch]
        return [rate * self.gamma ** count for rate in self._current()] if count else self._current()

    def _get_closed_form_lr(self) -> list:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma ** passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The rate times `factor` for the first `total_iters` epochs.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = arete.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(scheduler.get_last_lr()[0])
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.4, 0.4, 0.8, 0.8]
    """

    def __init__(self, optimizer: Any, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1.0:
            raise ValueError(f"factor must be between 0 and 1, not {factor}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list:
        self._check_called_from_step()
        rates = self._current()
        if self.last_epoch == 0:
            return [rate * self.factor for rate in rates]
        return [rate * (1.0 / self.factor) for rate in rates] if self.last_epoch == self.total_iters else rates

    def _get_closed_form_lr(self) -> list:
        now = 1.0 if self.last_epoch >= self.total_iters else self.factor
        return [base * now for base in self.base_lrs]


class LinearLR(LRScheduler):
    """A factor that goes linearly from `start_factor` to `end_factor` in `total_iters` epochs.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = arete.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.4, 0.6, 0.8, 0.8]
    """

    def __init__(self, optimizer: Any, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
                 last_epoch: int = -1) -> None:
        if not 0 < start_factor <= 1.0:
            raise ValueError(f"start_factor must be above 0 and at most 1, not {start_factor}")
        if not 0 <= end_factor <= 1.0:
            raise ValueError(f"end_factor must be between 0 and 1, not {end_factor}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list:
        self._check_called_from_step()
        rates = self._current()
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in rates]
        if self._is_initial or self.last_epoch > self.total_iters:
            return rates
        rise = self.end_factor - self.start_factor
        change = 1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)
        return [rate * change for rate in rates]

    def _get_closed_form_lr(self) -> list:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + (self.end_factor - self.start_factor) * done) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiplies the rate by gamma every epoch.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = arete.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(scheduler.get_last_lr()[0])
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.8, 0.4, 0.2, 0.1]
    """

    def __init__(self, optimizer: Any, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list:
        self._check_called_from_step()
        return self._current() if self._is_initial else [rate * self.gamma for rate in self._current()]

    def _get_closed_form_lr(self) -> list:
        return [base * self.gamma ** self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Initial rate * (1 - epoch / total_iters) ** power, and 0 afterwards.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = arete.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.8, 0.6, 0.4, 0.2, 0.0]
    """

    def __init__(self, optimizer: Any, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list:
        self._check_called_from_step()
        epoch, total = self.last_epoch, self.total_iters
        if self._is_initial or epoch > total:
            return self._current()
        change = ((1.0 - epoch / total) / (1.0 - (epoch - 1) / total)) ** self.power
        return [rate * change for rate in self._current()]

    def _get_closed_form_lr(self) -> list:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left ** self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate down to `eta_min` in `T_max` epochs, and up again after them.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = arete.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.8, 0.6828, 0.4, 0.1172, 0.0]
    """

    def __init__(self, optimizer: Any, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list:
        self._check_called_from_step()
        rates, epoch, low = self._current(), self.last_epoch, self.eta_min
        if self._is_initial:
            return rates
        if self._step_count == 1 and epoch > 0:
            return self._get_closed_form_lr()
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [rate + (base - low) * rise for base, rate in zip(self.base_lrs, rates)]
        change = (1 + math.cos(math.pi * epoch / self.T_max)) / (1 + math.cos(math.pi * (epoch - 1) / self.T_max))
        return [change * (rate - low) + low for rate in rates]

    def _get_closed_form_lr(self) -> list:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that starts anew after `T_0` epochs, then after `T_mult` times as many, and so on.

    `step(epoch)` takes fractions: `step(epoch + i / len(loader))` after each batch.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = arete.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.8, 0.4, 0.8, 0.4, 0.8]
    """

    def __init__(self, optimizer: Any, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"T_0 must be a positive int, not {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"T_mult must be an int of at least 1, not {T_mult}")
        if not isinstance(eta_min, (int, float)):
            raise ValueError(f"eta_min must be a number, not {type(eta_min).__name__}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list:
        self._check_called_from_step()
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: Optional[float] = None) -> None:
        """Goes on by one epoch, or to the given one, which may have a fraction."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(f"epoch must not be negative, got {epoch}")
        else:
            self._find_cycle(epoch)
        self._go_to(math.floor(epoch))

    def _find_cycle(self, epoch: float) -> None:
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_i, self.T_cur = self.T_0, epoch % self.T_0
        else:
            cycle = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult ** cycle - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult ** cycle


class _OfSchedulers(LRScheduler):
    """What has other schedulers in it."""

    def _take(self, schedulers: Sequence[LRScheduler], optimizer: Any) -> None:
        if len(schedulers) < 1:
            raise ValueError(f"{type(self).__name__} needs at least one scheduler")
        for i, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(f"schedulers[{i}] is a ReduceLROnPlateau, which needs a metric at each step")
            if scheduler.optimizer is not optimizer:
                raise ValueError(f"schedulers[{i}] belongs to another optimizer")
        self._schedulers, self.optimizer = list(schedulers), optimizer

    def state_dict(self) -> dict:
        state = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict) -> None:
        inner = state_dict["_schedulers"]
        if len(inner) != len(self._schedulers):
            raise ValueError(f"the state has {len(inner)} schedulers, this {type(self).__name__} has {len(self._schedulers)}")
        self.__dict__.update({key: value for key, value in state_dict.items() if key != "_schedulers"})
        for scheduler, state in zip(self._schedulers, inner):
            scheduler.load_state_dict(state)


class SequentialLR(_OfSchedulers):
    """Runs one scheduler after the other; `milestones` are the epochs at which the next one takes over.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> warmup = arete.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> decay = arete.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> scheduler = arete.optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[2])
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.4, 0.4, 0.8, 0.4, 0.2]
    """

    def __init__(self, optimizer: Any, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1) -> None:
        self._take(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(f"{len(schedulers)} schedulers need {len(schedulers) - 1} milestones, not {len(milestones)}")
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        # The schedulers' own first steps are undone: each of them takes it when its turn comes.
        for group in optimizer.param_groups:
            _assign(group, "lr", _copied(group["initial_lr"]))
        for scheduler in self._inner():
            scheduler.last_epoch -= 1
        self._schedulers[0]._initial_step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def _inner(self) -> list:
        """The schedulers, with those inside of nested SequentialLRs in their place."""
        found: list = []
        for scheduler in self._schedulers:
            found += scheduler._inner() if isinstance(scheduler, SequentialLR) else [scheduler]
        return found

    def _initial_step(self) -> None:
        self._schedulers[0]._initial_step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            if hasattr(scheduler, "_find_cycle"):
                scheduler._find_cycle(0)
            scheduler._go_to(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_OfSchedulers):
    """Steps several schedulers at once, each upon the rates that the one before it left.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> warmup = arete.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> decay = arete.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> scheduler = arete.optim.lr_scheduler.ChainedScheduler([warmup, decay])
    >>> rates = []
    >>> for _ in range(4):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.4, 0.2, 0.2, 0.1]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optional[Any] = None) -> None:
        self._take(schedulers, schedulers[0].optimizer if optimizer is None and schedulers else optimizer)
        self._last_lr = self._current()

    def step(self) -> None:  # type: ignore[override]
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._current()


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate by `factor` when `step(metric)` has seen no better metric for more than `patience` epochs.

    "Better" is below the best so far by more than `threshold` (mode="min"; relative or, with threshold_mode="abs", absolute) or
    above it (mode="max"). After a reduction `cooldown` epochs are not counted; rates stay above `min_lr`, and changes smaller
    than `eps` are not made.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = arete.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     scheduler.step(loss)
    >>> scheduler.get_last_lr()
    [0.4]
    >>> arete.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=1.0)
    Traceback (most recent call last):
    ValueError: factor must be below 1, not 1.0
    """

    def __init__(self, optimizer: Any, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
                 threshold_mode: str = "rel", cooldown: int = 0, min_lr: Union[Sequence[float], float] = 0,
                 eps: float = 1e-8) -> None:
        _check_optimizer(optimizer)
        if factor >= 1.0:
            raise ValueError(f"factor must be below 1, not {factor}")
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', not {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold_mode must be 'rel' or 'abs', not {threshold_mode!r}")
        self.optimizer = optimizer
        self.factor = factor
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.min_lrs = _per_group(optimizer, min_lr, "min_lr")
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._current()
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self._reset()

    def _reset(self) -> None:
        """Forgets the best metric and the counters."""
        self.mode_worse = math.inf if self.mode == "min" else -math.inf
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether epochs after a reduction are not yet counted."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether a metric is better than the best so far."""
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            limit = best * (1.0 + sign * self.threshold)
        else:
            limit = best + sign * self.threshold
        return a > limit if sign > 0 else a < limit

    def step(self, metrics: Any, epoch: Optional[int] = None) -> None:  # type: ignore[override]
        """Takes the metric of an epoch, and lowers the rates if it has been no better for too long."""
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn("step(metrics, epoch) is deprecated: call step(metrics)", UserWarning, stacklevel=2)
        self.last_epoch = epoch
        if self.is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(epoch)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._current()

    def _reduce_lr(self, epoch: int) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(f"the optimizer has {len(groups)} parameter groups by now, but min_lr {len(self.min_lrs)} values")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, low in zip(groups, self.min_lrs):
            old = float(group["lr"])
            new = max(old * self.factor, low)
            if old - new > self.eps:
                _assign(group, "lr", new)
