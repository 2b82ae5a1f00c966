"""Means of parameters among few processes often, and among more of them now and then."""
from __future__ import annotations

import warnings
from typing import Any, Iterable, Mapping, Optional, Union

from ... import distributed_c10d as dist
from . import utils
from .averagers import ModelAverager

__all__ = ["HierarchicalModelAverager"]


class HierarchicalModelAverager(ModelAverager):
    """Averages in each p-th call from `warmup_steps` on, for each p of `period_group_size_dict`, the parameters that have gradients, over
    as many processes that follow each other as the dictionary says; where several p divide the number of the call, as the last of
    these says. Periods and sizes grow, each size divides the number of processes, and the last one is that.

    >>> dist = arete.distributed
    >>> from arete.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
    >>> dist.init_process_group("fake", rank=3, world_size=8)
    >>> averager = HierarchicalModelAverager({2: 2, 4: 4, 16: 8})
    >>> [dist.get_process_group_ranks(g) for g in averager.period_process_group_dict.values()]
    [[2, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7]]
    >>> dist.destroy_process_group()
    """

    def __init__(self, period_group_size_dict: Optional[Mapping[int, int]] = None, warmup_steps: int = 0,
                 process_group: Any = None) -> None:
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        periods, sizes = list(period_group_size_dict), list(period_group_size_dict.values())
        if periods[0] <= 0:
            raise ValueError("The minimum period in arg ``period_group_size_dict`` must be a positive value.")
        if periods != sorted(periods) or sizes != sorted(sizes):
            raise ValueError("The periods and the sizes in arg ``period_group_size_dict`` must grow.")
        if sizes[-1] != self.process_group.size():
            raise ValueError(f"The last value in arg ``period_process_group_dict`` {sizes[-1]} must be equal to the size of arg "
                             f"``process_group`` {self.process_group.size()}.")
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if periods[-1] == 1:
            warnings.warn("When the maximum period in arg ``period_group_size_dict`` is 1, no need to use model averaging because the "
                          "communication cost of all-reducing parameters will be no less than the cost of all-reducing gradients by "
                          "DistributedDataParallel in the backward pass. Therefore, only DistributedDataParallel should be used for this "
                          "case.", stacklevel=2)
        self.warmup_steps = warmup_steps
        self.period_process_group_dict = {
            period: self.process_group if size == sizes[-1] else dist.new_subgroups(size, self.process_group)[0]
            for period, size in period_group_size_dict.items()}

    def _find_process_group(self) -> Any:
        """The group of this call, or None."""
        groups = [group for period, group in self.period_process_group_dict.items() if self.step % period == 0]
        return groups[-1] if groups else None

    def average_parameters(self, params: Union[Iterable[Any], Iterable[dict]]) -> None:
        """Of parameters, or of an optimizer's `param_groups`."""
        group = self._find_process_group() if self.step >= self.warmup_steps else None
        if group is not None:
            utils.average_parameters_or_parameter_groups(params, group)
        self.step += 1
