"""An optimizer whose states are spread over processes (ZeRO, stage 1): each updates its part of the parameters, and all get the results."""
from __future__ import annotations

from typing import Any, Iterable, Optional

from ... import _C
from ...optim.optimizer import Optimizer
from .. import distributed_c10d as dist
from ..algorithms.join import Join, Joinable, JoinHook
from ..object_collectives import gather_object

__all__ = ["ZeroRedundancyOptimizer"]


class _Step(JoinHook):
    def __init__(self, optimizer: "ZeroRedundancyOptimizer") -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        self._optimizer._step(None, {})


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Each process has an `optimizer_class` of a part of the parameters, about equally many numbers each; after its step the parameters
    are broadcast, in one message from each process. Gradients are whole, those of DistributedDataParallel.

    `parameters_as_bucket_view` changes nothing: parameters that travel together are packed in any case. `consolidate_state_dict()` brings
    the states to one process, which can then call `state_dict()`. `overlap_with_ddp` is refused.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> net = nn.Linear(2, 1)
    >>> optimizer = dist.optim.ZeroRedundancyOptimizer(net.parameters(), optimizer_class=arete.optim.Adam, lr=0.01)
    >>> net(arete.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.consolidate_state_dict()
    >>> sorted(optimizer.state_dict()["state"])
    [0, 1]
    >>> dist.destroy_process_group()
    """

    def __init__(self, params: Iterable, optimizer_class: type, process_group: Any = None, parameters_as_bucket_view: bool = False,
                 overlap_with_ddp: bool = False, **defaults: Any) -> None:
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp is not supported: step() runs after the pass backward")
        self.process_group = dist._of(process_group)
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self.optim: Any = None  # while the base class adds its groups
        self._every: Optional[list] = None  # states of all processes, where they were brought together
        Joinable.__init__(self)
        Optimizer.__init__(self, params, defaults)
        self._owners: dict = {}  # of parameters, by identity
        self._loads = [0] * self.world_size
        self.optim = optimizer_class([self._part(group) for group in self.param_groups], **defaults)
        self._take_settings(self.optim.param_groups, self.param_groups)
        self.state = self.optim.state

    def _part(self, group: dict) -> dict:
        """The group with the parameters that this process updates."""
        for p in sorted(group["params"], key=lambda p: -p.numel()):
            owner = min(range(self.world_size), key=lambda r: self._loads[r])
            self._owners[id(p)] = owner
            self._loads[owner] += p.numel()
        return {**group, "params": [p for p in group["params"] if self._owners[id(p)] == self.rank]}

    @staticmethod
    def _take_settings(given: list, taking: list) -> None:
        for a, b in zip(given, taking):
            b.update((k, v) for k, v in a.items() if k != "params")

    def add_param_group(self, param_group: dict) -> None:
        """Of all processes, each of which takes its part."""
        super().add_param_group(param_group)
        if self.optim is not None:
            self._every = None
            self.optim.add_param_group(self._part(self.param_groups[-1]))
            self._take_settings(self.optim.param_groups[-1:], self.param_groups[-1:])

    # ---- steps

    def step(self, closure: Any = None, **kwargs: Any) -> Any:
        """This process' part, after which all have all parameters."""
        if self._join_config.enable:
            Join.notify_join_context(self)
        return self._step(closure, kwargs)

    def _step(self, closure: Any, kwargs: dict) -> Any:
        self._every = None
        self._take_settings(self.param_groups, self.optim.param_groups)  # a schedule's
        loss = self.optim.step(**kwargs) if closure is None else self.optim.step(closure=closure, **kwargs)
        self._take_settings(self.optim.param_groups, self.param_groups)
        for r in range(self.world_size):
            own = [p for group in self.param_groups for p in group["params"] if self._owners[id(p)] == r]
            if own and self.world_size > 1:
                _C._distributed.broadcast_coalesced(self.process_group, own, r)
        return loss

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Steps with the others, since it has a part of the parameters."""
        return _Step(self)

    @property
    def join_device(self) -> Any:
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    # ---- states

    def _indices(self, rank: int) -> list:
        """Which parameters a process updates, by their number among all, in the order of its optimizer."""
        numbered = enumerate(p for group in self.param_groups for p in group["params"])
        return [i for i, p in numbered if self._owners[id(p)] == rank]

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Brings all states to the process `to` of the group, in host memory. All processes call it; states travel as pickles."""
        own = _on_host(self.optim.state_dict()["state"])
        every: Optional[list] = [None] * self.world_size if self.rank == to else None
        gather_object(own, every, dist.get_global_rank(self.process_group, to), group=self.process_group)
        self._every = every

    def state_dict(self) -> dict:
        """As `optimizer_class` over all parameters would have it. RuntimeError where states were not brought together since the last
        step."""
        if self._every is None:
            raise RuntimeError("Optimizer state has not been consolidated on this rank. "
                               f"Please call `consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to save the "
                               "global state.")
        result = super().state_dict()
        result["state"] = {}
        for rank, states in enumerate(self._every):
            indices = self._indices(rank)
            result["state"].update((indices[i], state) for i, state in states.items())
        result["state"] = dict(sorted(result["state"].items()))
        return result

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes this process' part of such a state, which all have."""
        own = {number: i for i, number in enumerate(self._indices(self.rank))}
        local = self.optim.state_dict()
        groups = [{**given, "params": group["params"]} for given, group in zip(state_dict["param_groups"], local["param_groups"])]
        self.optim.load_state_dict({"state": {own[i]: s for i, s in state_dict["state"].items() if i in own}, "param_groups": groups})
        self._take_settings(self.optim.param_groups, self.param_groups)
        self.state = self.optim.state
        self._every = None


def _on_host(value: Any) -> Any:
    if isinstance(value, _C.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {k: _on_host(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_on_host(v) for v in value)
    return value
