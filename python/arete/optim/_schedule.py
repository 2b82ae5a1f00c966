"""The base of the learning-rate schedules."""
from __future__ import annotations

import functools
import warnings
import weakref
from typing import Any, Optional


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
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer: it has no param_groups")


def _mark_steps(optimizer: Any) -> None:
    """Makes the optimizer note that it was stepped, so that a wrong order of calls can be told."""
    function = getattr(getattr(optimizer, "step", None), "__func__", None)
    if function is None or getattr(optimizer, "_schedulers_watch", False):
        return
    itself = weakref.ref(optimizer)

    @functools.wraps(function)
    def stepped(*args: Any, **kwargs: Any) -> Any:
        stepping = itself()
        stepping._opt_called = True  # type: ignore[union-attr]
        return function(stepping, *args, **kwargs)

    try:
        optimizer._schedulers_watch, optimizer.step = True, stepped
    except AttributeError:  # an optimizer that takes no attributes is used without this check
        return


class LRScheduler:
    """Base of schedules: a subclass gives `get_lr()`, the rates of all groups at `self.last_epoch`.

    With `last_epoch=-1` the rates of the optimizer are the initial ones (kept in each group as "initial_lr"); any other
    value resumes after that epoch, and then the groups must have "initial_lr".

    >>> class Halving(arete.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [lr / 2**self.last_epoch for lr in self.base_lrs]
    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8)
    >>> scheduler = Halving(optimizer)
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.4]
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
        """The rates of all groups at `last_epoch`."""
        raise NotImplementedError

    def _current(self) -> list:
        """The rates in the groups now. Schedules that multiply them can be chained."""
        return [_copied(group["lr"]) for group in self.optimizer.param_groups]

    def step(self, epoch: Optional[int] = None) -> None:
        """Goes on by one epoch, or (deprecated) to the given one, and sets the rates."""
        if self._step_count == 1 and getattr(self.optimizer, "_schedulers_watch", False) \
                and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn("Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first rate of the schedule is "
                          "skipped. Call `optimizer.step()` first.", UserWarning, stacklevel=2)
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
