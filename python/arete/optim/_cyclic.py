"""Learning-rate schedules that move the momentum as well."""
from __future__ import annotations

import math
from typing import Any, Callable, Iterable, Optional, Union

from ._schedule import LRScheduler, _assign, _check_optimizer, _per_group


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

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8, momentum=0.9)
    >>> scheduler = arete.optim.lr_scheduler.CyclicLR(optimizer, 0.2, 0.8, step_size_up=2)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.2, 0.5, 0.8, 0.5, 0.2]
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
        """The factor of the height at a cycle or step."""
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
    steps_per_epoch) steps; the rise takes `pct_start` of them. `three_phase` puts a fall to the start before the last one.

    >>> optimizer = arete.optim.SGD([arete.ones(1, requires_grad=True)], lr=0.8, momentum=0.9)
    >>> scheduler = arete.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=5)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [0.04, 0.9505, 0.6113, 0.1883, 0.0]
    """

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
