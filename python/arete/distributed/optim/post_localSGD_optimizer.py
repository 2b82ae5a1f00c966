"""An optimizer after whose steps parameters are averaged over processes."""
from __future__ import annotations

import warnings
from typing import Any

from ...optim.optimizer import Optimizer
from ..algorithms.model_averaging.averagers import ModelAverager

__all__ = ["PostLocalSGDOptimizer"]


class PostLocalSGDOptimizer(Optimizer):
    """Steps `optim`, then calls `averager.average_parameters()`; states have the averager's count under "step".

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> net = nn.Linear(1, 1)
    >>> averager = dist.algorithms.model_averaging.averagers.PeriodicModelAverager(period=4)
    >>> optimizer = dist.optim.PostLocalSGDOptimizer(arete.optim.SGD(net.parameters(), lr=0.1), averager)
    >>> net(arete.ones(2, 1)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.state_dict()["step"]
    1
    >>> dist.destroy_process_group()
    """

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        self.optim, self.averager = optim, averager
        super().__init__(optim.param_groups, optim.defaults)
        self.param_groups = optim.param_groups

    @property
    def state(self) -> Any:
        return self.optim.state

    @state.setter
    def state(self, state: Any) -> None:
        pass  # it has none of its own

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict:
        """The inner optimizer's, with the averager's count."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict) -> None:
        """Loads both; without a count it begins anew, with a warning."""
        self.optim.load_state_dict({k: v for k, v in state_dict.items() if k != "step"})
        self.param_groups = self.optim.param_groups
        if "step" in state_dict:
            self.averager.step = state_dict["step"]
        else:
            warnings.warn("Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.", stacklevel=2)
            self.averager.step = 0

    def step(self, closure: Any = None) -> Any:
        """The inner optimizer's step, and what the averager does after it."""
        loss = self.optim.step() if closure is None else self.optim.step(closure)
        self.averager.average_parameters(params=self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The inner optimizer's."""
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict) -> None:
        """The inner optimizer's."""
        if not any(group is param_group for group in self.optim.param_groups):
            self.optim.add_param_group(param_group)
