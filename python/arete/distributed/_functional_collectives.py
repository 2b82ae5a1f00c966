"""Collectives that give new tensors, under the names that PyTorch's compiler and DTensor use. They have gradients; nothing is to be waited
for."""
from __future__ import annotations

from typing import Any, Optional, Sequence

from .. import _C, _operators
from .._operators import _ops
from . import distributed_c10d as c10d
from .nn import functional as F

_KINDS = {"sum": c10d.ReduceOp.SUM, "avg": c10d.ReduceOp.AVG, "product": c10d.ReduceOp.PRODUCT, "min": c10d.ReduceOp.MIN,
          "max": c10d.ReduceOp.MAX, "band": c10d.ReduceOp.BAND, "bor": c10d.ReduceOp.BOR, "bxor": c10d.ReduceOp.BXOR}


def _kind(name: str) -> c10d.ReduceOp:
    if name.lower() not in _KINDS:
        raise ValueError(f"Invalid reduce operation '{name}': expected one of {', '.join(_KINDS)}")
    return _KINDS[name.lower()]


def _group(group: Any, tag: str = "") -> c10d.ProcessGroup:
    """Of a group or its name, a mesh of one dimension, a mesh and the number of a dimension, or the ranks of a group that was made."""
    if tag:
        raise NotImplementedError(f"groups have no tags: give the group instead of its ranks and the tag {tag!r}")
    if group is None or isinstance(group, c10d.ProcessGroup):
        return c10d._of(group)
    if isinstance(group, tuple) and len(group) == 2 and hasattr(group[0], "get_group"):
        return group[0].get_group(group[1])
    if hasattr(group, "get_group"):
        return group.get_group()
    for made in c10d._pg_map if isinstance(group, (str, list)) else ():
        if made.group_name == group or isinstance(group, list) and sorted(made._ranks) == sorted(group):
            return made
    if isinstance(group, (str, list)):
        raise ValueError(f"there is no group {group}: make it with new_group()")
    raise ValueError("Invalid type for group, must be one of ProcessGroup, DeviceMesh or (DeviceMesh, int)")


watching: list = []  # CommDebugModes, which count these calls


def note(name: str) -> None:
    """Tells those who count that a functional collective of torch's name is called."""
    for one in watching:
        one._note(name)


def wait_tensor(tensor: Any) -> Any:
    """The tensor: who uses it waits by itself."""
    return tensor


def broadcast(self: Any, src: int, group: Any, tag: str = "") -> Any:
    note("broadcast")
    return F.broadcast(self, src, _group(group, tag))


def all_reduce(self: Any, reduceOp: str, group: Any, tag: str = "") -> Any:
    note("all_reduce")
    return F.all_reduce(self, _kind(reduceOp), _group(group, tag))


def all_gather_tensor(self: Any, gather_dim: int, group: Any, tag: str = "") -> Any:
    """The tensors of all processes, one after the other along a dimension."""
    note("all_gather_into_tensor")
    rows = self.movedim(gather_dim, 0).contiguous()
    return _ops.collective_all_gather(rows, _group(group, tag)._number).movedim(0, gather_dim)


def reduce_scatter_tensor(self: Any, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Any:
    """Of the sums or averages of all processes' tensors the part for this one, cut along a dimension."""
    note("reduce_scatter_tensor")
    group, op = _group(group, tag), _kind(reduceOp)
    rows = self.movedim(scatter_dim, 0).contiguous()
    if F._without_gradient(op, self):
        rows = rows.detach()
        result = _operators.empty_like(rows[: rows.shape[0] // group.size()])
        group._reduce_scatter_tensor(result, rows, op, False)
    else:
        result = _ops.collective_reduce_scatter(rows, *F._reduction(op), group._number)
    return result.movedim(0, scatter_dim)


def all_to_all_single(self: Any, output_split_sizes: Optional[Sequence[int]], input_split_sizes: Optional[Sequence[int]], group: Any,
                      tag: str = "") -> Any:
    note("all_to_all_single")
    return _ops.collective_all_to_all(self, list(output_split_sizes or []), list(input_split_sizes or []), _group(group, tag)._number)


def permute_tensor(self: Any, src_dst: Sequence[int], group: Any, tag: str = "") -> Any:
    """The tensor of the process that sends to this one: `src_dst` has for each rank the one that it sends to."""
    group = _group(group, tag)
    if sorted(src_dst) != list(range(group.size())):
        raise ValueError(f"src_dst has each rank of the group once, got {list(src_dst)}")
    sends, gets = [0] * group.size(), [0] * group.size()
    sends[src_dst[group.rank()]] = gets[list(src_dst).index(group.rank())] = self.numel()
    return all_to_all_single(self.reshape(-1), gets, sends, group).reshape(self.shape)


def all_reduce_coalesced(self: Sequence[Any], reduceOp: str, group: Any, tag: str = "") -> list:
    return [all_reduce(x, reduceOp, group, tag) for x in self]


def all_gather_into_tensor_coalesced(self: Sequence[Any], group: Any, tag: str = "") -> list:
    return [all_gather_tensor(x, 0, group, tag) for x in self]


def reduce_scatter_tensor_coalesced(inputs: Sequence[Any], reduceOp: str, scatter_dim: Sequence[int], group: Any, tag: str = "") -> list:
    return [reduce_scatter_tensor(x, reduceOp, d, group, tag) for x, d in zip(inputs, scatter_dim)]


class AsyncCollectiveTensor(_C.Tensor):
    """What PyTorch's functions of these names give. Here they give plain tensors, for which whoever reads them waits, so nothing is one."""


all_gather_tensor_autograd, reduce_scatter_tensor_autograd = all_gather_tensor, reduce_scatter_tensor
all_to_all_single_autograd = all_to_all_single


# ---- by torch's names of operators (arete.ops), which those who count calls name, too


def _not_called(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name} is called by its function in arete.distributed, or in its _functional_collectives")

    return call


OPERATORS: dict = {f"_c10d_functional::{name}": function for name, function in {
    "all_reduce": all_reduce, "broadcast": broadcast, "wait_tensor": wait_tensor, "all_reduce_coalesced": all_reduce_coalesced,
    "all_to_all_single": all_to_all_single,
    "all_gather_into_tensor": lambda self, group_size, group_name: all_gather_tensor(self, 0, group_name),
    "reduce_scatter_tensor": lambda self, reduce_op, group_size, group_name: reduce_scatter_tensor(self, reduce_op, 0, group_name),
    "all_gather_into_tensor_coalesced": lambda inputs, group_size, group_name: all_gather_into_tensor_coalesced(inputs, group_name),
    "reduce_scatter_tensor_coalesced": lambda inputs, reduce_op, group_size, group_name: reduce_scatter_tensor_coalesced(
        inputs, reduce_op, [0] * len(inputs), group_name)}.items()}
OPERATORS.update({name: _not_called(name) for name in (
    *(f"c10d_functional::{name}" for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single",
                                              "broadcast", "all_reduce_coalesced", "all_gather_into_tensor_coalesced",
                                              "reduce_scatter_tensor_coalesced", "wait_tensor")),
    *(f"c10d::{name}" for name in ("allreduce_", "allreduce_coalesced_", "allgather_", "_allgather_base_", "allgather_coalesced_",
                                   "allgather_into_tensor_coalesced_", "reduce_scatter_", "_reduce_scatter_base_",
                                   "reduce_scatter_tensor_coalesced_", "alltoall_", "alltoall_base_", "broadcast_", "gather_", "scatter_",
                                   "reduce_")))})
