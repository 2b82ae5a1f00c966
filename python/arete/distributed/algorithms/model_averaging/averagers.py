"""When parameters are averaged."""
from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any, Iterable, Union

from ... import distributed_c10d as dist
from . import utils

__all__ = ["ModelAverager", "PeriodicModelAverager"]


class ModelAverager(ABC):
    """Counts its calls in `step`, and averages parameters in some of them, over the processes of a group (none: the default one)."""

    def __init__(self, process_group: Any = None) -> None:
        self.process_group = dist._of(process_group)
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Any) -> None:
        """After each step of the optimizer."""


class PeriodicModelAverager(ModelAverager):
    """Averages in each `period`-th call from `warmup_steps` on, the parameters that have gradients.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> averager = dist.algorithms.model_averaging.averagers.PeriodicModelAverager(period=4, warmup_steps=100)
    >>> averager.average_parameters(nn.Linear(1, 1).parameters())
    >>> averager.step
    1
    >>> dist.destroy_process_group()
    """

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise ValueError("Arg ``period`` must be a positive value.")
        if period == 1:
            warnings.warn("When period is 1, no need to use model averaging because the communication cost of all-reducing parameters will "
                          "be no less than the cost of all-reducing gradients by DistributedDataParallel in the backward pass. Therefore, "
                          "only DistributedDataParallel should be used for this case.", stacklevel=2)
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Union[Iterable[Any], Iterable[dict]]) -> None:
        """Of parameters, or of an optimizer's `param_groups`."""
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
