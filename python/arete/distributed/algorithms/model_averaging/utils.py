"""The mean of parameters over processes."""
from __future__ import annotations

from typing import Any, Iterable, Union

from .... import _C
from ... import distributed_c10d as dist

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params: Iterable[Any], process_group: Any) -> None:
    """Gives parameters their mean over the processes of a group, in one message for each dtype and device."""
    group = dist._of(process_group)
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return
    kinds: dict = {}
    for p in params:
        kinds.setdefault((p.dtype, str(p.device)), []).append(p.detach())
    for own in kinds.values():
        flat = _C.Operator("cat", False)([p.reshape(-1) for p in own])
        flat.div_(group.size())
        dist.all_reduce(flat, group=group)
        at = 0
        for p in own:
            p.copy_(flat[at:at + p.numel()].view(p.shape))
            at += p.numel()


def get_params_to_average(params: Union[Iterable[Any], Iterable[dict]]) -> list:
    """Those that have gradients, of parameters or of parameter groups."""
    found = []
    for p in params:
        if isinstance(p, _C.Tensor):
            found.append(p)
        elif isinstance(p, dict):
            found += p["params"]
        else:
            raise NotImplementedError(f"Parameter input of type {type(p)} is not supported")
    return [p for p in found if p.grad is not None]


def average_parameters_or_parameter_groups(params: Union[Iterable[Any], Iterable[dict]], process_group: Any) -> None:
    """average_parameters() of those that have gradients."""
    average_parameters(get_params_to_average(params), process_group)
