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

__all__ = [
    "LRScheduler", "LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR",
    "SequentialLR", "PolynomialLR", "CosineAnnealingLR", "ChainedScheduler", "ReduceLROnPlateau", "CyclicLR",
    "CosineAnnealingWarmRestarts", "OneCycleLR",
]


def _copied(value: Any) -> Any:
    return value.detach().clone() if hasattr(value, "fill_") else value


def _assign(group: Any, key: str, value: Any) -> None:
    """Sets a value of a group, in place where it is a tensor."""
    old = group[key] if key in group else None
    if hasattr(old, "fill_"):
        old.fill_(float(value))
    else:
        group[key] = value


def _per_group(optimizer: Any, value: Any, name: str) -> list:
    """A list with one value per group, from one value or a list."""
    count = len(optimizer.param_groups)
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise ValueError(f"{name} has {len(value)} values for the optimizer's {count} parameter groups")
        return list(value)
    return [value] * count


def _check_optimizer(optimizer: Any) -> None:
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"{type(optimizer).__name__} is not an optimizer: it has no param_groups")


def _mark_steps(optimizer: Any) -> None:
    """Makes the optimizer note that it was stepped, so that a wrong order of calls can be told."""
    if getattr(optimizer, "_schedulers_watch", False) or not hasattr(optimizer, "register_step_post_hook"):
        return
    try:
        optimizer._schedulers_watch = True
    except AttributeError:  # an optimizer that takes no attributes is used without this check
        return

    def stepped(stepping: Any, args: Any, kwargs: Any) -> None:
        stepping._opt_called = True

    optimizer.register_step_post_hook(stepped)


class LRScheduler:
    """Base of schedules: a subclass gives `get_lr()`, the rates of all groups at `self.last_epoch`.

    With `last_epoch=-1` the rates of the optimizer are the initial ones (kept in each group as "initial_lr"); any other
    value resumes after that epoch, and then the groups must have "initial_lr".
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Any, last_epoch: int = -1) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                if "initial_lr" not in group:
                    group["initial_lr"] = _copied(group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(f"last_epoch={last_epoch} resumes a schedule, but param_groups[{i}] has no 'initial_lr': "
                               "load the optimizer's state first, or set it")
        self.base_lrs = [_copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        _mark_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict:
        """Everything but the optimizer, as a dict of plain values."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes over what `state_dict()` gave. The optimizer's own state holds the current rates: load that as well."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list:
        """The rates that this scheduler set last, one per group."""
        return self._last_lr

    def get_lr(self) -> list:
        raise NotImplementedError

    def _current(self) -> list:
        """The rates in the groups now. Schedules that multiply them can be chained."""
        return [_copied(group["lr"]) for group in self.optimizer.param_groups]

    def step(self, epoch: Optional[int] = None) -> None:
        """Goes on by one epoch, or (deprecated) to the given one, and sets the rates."""
        if self._step_count == 1 and getattr(self.optimizer, "_schedulers_watch", False) \
                and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn("lr_scheduler.step() was called before optimizer.step(): the first rate of the schedule is "
                          "skipped. Call optimizer.step() first.", UserWarning, stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn("step(epoch) is deprecated: call step() without an epoch", UserWarning, stacklevel=2)
        self._go_to(epoch)

    def _go_to(self, epoch: Optional[int]) -> None:
        closed_form = None
        if epoch is None:
            self.last_epoch += 1
        else:
            self.last_epoch = epoch
            closed_form = getattr(self, "_get_closed_form_lr", None)
        self._get_lr_called_within_step = True
        try:
            rates = self.get_lr() if closed_form is None else closed_form()
        finally:
            self._get_lr_called_within_step = False
        for group, rate in zip(self.optimizer.param_groups, rates):
            _assign(group, "lr", rate)
        self._last_lr = self._current()

    def _check_called_from_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn("use get_last_lr() to read the rates: get_lr() computes the next ones", UserWarning, stacklevel=3)


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
    """Rate = initial rate * lr_lambda(epoch). One function, or one per group."""

    def get_lr(self) -> list:
        self._check_called_from_step()
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas)]


class MultiplicativeLR(_FunctionLR):
    """Each epoch multiplies the rate by lr_lambda(epoch)."""

    def get_lr(self) -> list:
        self._check_called_from_step()
        rates = self._current()
        return rates if self._is_initial else [rate * f(self.last_epoch) for rate, f in zip(rates, self.lr_lambdas)]


class StepLR(LRScheduler):
    """Multiplies the rate by gamma every `step_size` epochs."""

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
    """Multiplies the rate by gamma at each of the milestones; one that is listed twice counts twice."""

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
    """The rate times `factor` for the first `total_iters` epochs."""

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
    """A factor that goes linearly from `start_factor` to `end_factor` in `total_iters` epochs."""

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
    """Multiplies the rate by gamma every epoch."""

    def __init__(self, optimizer: Any, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list:
        self._check_called_from_step()
        return self._current() if self._is_initial else [rate * self.gamma for rate in self._current()]

    def _get_closed_form_lr(self) -> list:
        return [base * self.gamma ** self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Initial rate * (1 - epoch / total_iters) ** power, and 0 afterwards."""

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
    """Half a cosine from the initial rate down to `eta_min` in `T_max` epochs, and up again after them."""

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


class SequentialLR(LRScheduler):
    """Runs one scheduler after the other; `milestones` are the epochs at which the next one takes over."""

    def __init__(self, optimizer: Any, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1) -> None:
        if len(schedulers) < 1:
            raise ValueError("SequentialLR needs at least one scheduler")
        for i, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(f"schedulers[{i}] is a ReduceLROnPlateau, which needs a metric at each step")
            if scheduler.optimizer is not optimizer:
                raise ValueError(f"schedulers[{i}] belongs to another optimizer")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(f"{len(schedulers)} schedulers need {len(schedulers) - 1} milestones, not {len(milestones)}")
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
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

    def state_dict(self) -> dict:
        return _outer_state(self)

    def load_state_dict(self, state_dict: dict) -> None:
        _load_outer_state(self, state_dict)


class ChainedScheduler(LRScheduler):
    """Steps several schedulers at once, each upon the rates that the one before it left."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optional[Any] = None) -> None:
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler needs at least one scheduler")
        optimizer = optimizer or schedulers[0].optimizer
        for i, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(f"schedulers[{i}] is a ReduceLROnPlateau, which needs a metric at each step")
            if scheduler.optimizer is not optimizer:
                raise ValueError(f"schedulers[{i}] belongs to another optimizer")
        self._schedulers = list(schedulers)
        self.optimizer = optimizer
        self._last_lr = self._current()

    def step(self) -> None:  # type: ignore[override]
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._current()

    def state_dict(self) -> dict:
        return _outer_state(self)

    def load_state_dict(self, state_dict: dict) -> None:
        _load_outer_state(self, state_dict)


def _outer_state(outer: Any) -> dict:
    state = {key: value for key, value in outer.__dict__.items() if key not in ("optimizer", "_schedulers")}
    state["_schedulers"] = [scheduler.state_dict() for scheduler in outer._schedulers]
    return state


def _load_outer_state(outer: Any, state_dict: dict) -> None:
    inner = state_dict["_schedulers"]
    if len(inner) != len(outer._schedulers):
        raise ValueError(f"the state has {len(inner)} schedulers, this {type(outer).__name__} has {len(outer._schedulers)}")
    outer.__dict__.update({key: value for key, value in state_dict.items() if key != "_schedulers"})
    for scheduler, state in zip(outer._schedulers, inner):
        scheduler.load_state_dict(state)


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate by `factor` when `step(metric)` has seen no better metric for more than `patience` epochs.

    "Better" is below the best so far by more than `threshold` (mode="min"; relative or, with threshold_mode="abs", absolute) or
    above it (mode="max"). After a reduction `cooldown` epochs are not counted; rates stay above `min_lr`, and changes smaller
    than `eps` are not made.
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
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            limit = best * (1.0 + sign * self.threshold)
        else:
            limit = best + sign * self.threshold
        return a > limit if sign > 0 else a < limit

    def step(self, metrics: Any, epoch: Optional[int] = None) -> None:  # type: ignore[override]
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


class _MomentumLR(LRScheduler):
    """What the cyclic schedules share: they move the momentum (or the first beta) as well."""

    def _setup_momentum(self) -> None:
        groups = self.optimizer.param_groups
        if not all("momentum" in group or "betas" in group for group in groups):
            raise ValueError("cycle_momentum=True needs an optimizer with `momentum` or `betas`")
        self.use_beta1 = all("betas" in group for group in groups)

    def _set_momentums(self, values: Iterable[float]) -> None:
        for group, value in zip(self.optimizer.param_groups, values):
            if self.use_beta1:
                group["betas"] = (value, *group["betas"][1:])
            else:
                group["momentum"] = value


class CyclicLR(_MomentumLR):
    """Rates that go up from `base_lr` to `max_lr` in `step_size_up` steps and down again in `step_size_down`.

    mode "triangular" keeps the height, "triangular2" halves it every cycle, "exp_range" scales it by gamma**steps; `scale_fn` of the
    cycle or of the steps (`scale_mode`) replaces them. Momentum goes the opposite way.
    """

    def __init__(self, optimizer: Any, base_lr: Union[float, list], max_lr: Union[float, list], step_size_up: int = 2000,
                 step_size_down: Optional[int] = None, mode: str = "triangular", gamma: float = 1.0,
                 scale_fn: Optional[Callable[[float], float]] = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
                 base_momentum: Union[float, list] = 0.8, max_momentum: Union[float, list] = 0.9, last_epoch: int = -1) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(f"mode must be 'triangular', 'triangular2' or 'exp_range', not {mode!r}")
        base_lrs = _per_group(optimizer, base_lr, "base_lr")
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, base_lrs):
                _assign(group, "lr", rate)
        self.max_lrs = _per_group(optimizer, max_lr, "max_lr")
        up = float(step_size_up)
        down = up if step_size_down is None else float(step_size_down)
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = "iterations" if scale_fn is None and mode == "exp_range" else \
            "cycle" if scale_fn is None else scale_mode
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._setup_momentum()
            self.base_momentums = _per_group(optimizer, base_momentum, "base_momentum")
            self.max_momentums = _per_group(optimizer, max_momentum, "max_momentum")
            if last_epoch == -1:
                self._set_momentums(self.max_momentums)
                for group, low, high in zip(optimizer.param_groups, self.base_momentums, self.max_momentums):
                    group["base_momentum"], group["max_momentum"] = low, high
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / (2.0 ** (x - 1)) if self.mode == "triangular2" else self.gamma ** x

    def get_lr(self) -> list:
        self._check_called_from_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            self._set_momentums(high - (high - low) * height for low, high in zip(self.base_momentums, self.max_momentums))
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self) -> dict:
        state = super().state_dict()
        custom = state.pop("_scale_fn_custom")
        keep = custom is not None and not hasattr(custom, "__code__") and hasattr(custom, "__dict__")
        state["_scale_fn_custom"] = dict(custom.__dict__) if keep else None
        return state

    def load_state_dict(self, state_dict: dict) -> None:
        state = dict(state_dict)
        custom = state.pop("_scale_fn_custom", None)
        super().load_state_dict(state)
        if custom is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(custom)


class OneCycleLR(_MomentumLR):
    """One rise from max_lr/div_factor to max_lr and one fall to that/final_div_factor, in `total_steps` (or epochs *
    steps_per_epoch) steps; the rise takes `pct_start` of them. `three_phase` puts a fall to the start before the last one."""

    def __init__(self, optimizer: Any, max_lr: Union[float, list], total_steps: Optional[int] = None, epochs: Optional[int] = None,
                 steps_per_epoch: Optional[int] = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
                 cycle_momentum: bool = True, base_momentum: Union[float, list] = 0.85, max_momentum: Union[float, list] = 0.95,
                 div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        for name, value in (("total_steps", total_steps), ("epochs", epochs), ("steps_per_epoch", steps_per_epoch)):
            if value is not None and (not isinstance(value, int) or value <= 0):
                raise ValueError(f"{name} must be a positive int, not {value}")
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR needs total_steps, or both epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"pct_start must be a float between 0 and 1, not {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be 'cos' or 'linear', not {anneal_strategy!r}")
        self.total_steps = total_steps
        self._anneal_func_type = anneal_strategy
        self._schedule_phases = self._phases(pct_start * total_steps - 1, total_steps, three_phase)
        if last_epoch == -1:
            for group, high in zip(optimizer.param_groups, _per_group(optimizer, max_lr, "max_lr")):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._setup_momentum()
            if last_epoch == -1:
                highs = _per_group(optimizer, max_momentum, "max_momentum")
                lows = _per_group(optimizer, base_momentum, "base_momentum")
                self._set_momentums(highs)
                for group, low, high in zip(optimizer.param_groups, lows, highs):
                    group["max_momentum"], group["base_momentum"] = high, low
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _phases(rise_end: float, total: int, three_phase: bool) -> list:
        def phase(end: float, lr0: str, lr1: str, m0: str, m1: str) -> dict:
            return {"end_step": end, "start_lr": lr0, "end_lr": lr1, "start_momentum": m0, "end_momentum": m1}

        rise = phase(float(rise_end), "initial_lr", "max_lr", "max_momentum", "base_momentum")
        if not three_phase:
            return [rise, phase(total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        return [rise, phase(float(2 * rise_end), "max_lr", "initial_lr", "base_momentum", "max_momentum"),
                phase(total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")]

    def _between(self, start: float, end: float, part: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * part + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)

    def get_lr(self) -> list:
        self._check_called_from_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"step {step} of a OneCycleLR with total_steps={self.total_steps}")
        begin = 0.0
        for phase in self._schedule_phases:
            if step <= phase["end_step"]:
                break
            begin = phase["end_step"]
        else:
            begin = self._schedule_phases[-2]["end_step"]
        part = (step - begin) / (phase["end_step"] - begin)
        groups = self.optimizer.param_groups
        if self.cycle_momentum:
            self._set_momentums([self._between(g[phase["start_momentum"]], g[phase["end_momentum"]], part) for g in groups])
        return [self._between(g[phase["start_lr"]], g[phase["end_lr"]], part) for g in groups]
