"""The calls of a group as its methods, which communication hooks and older programs use. Each gives what to wait for."""
from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Optional, Union

from .distributed_c10d import ProcessGroup, ReduceOp, Work, _tensor, _tensors, _writing

__all__ = ["AllgatherOptions", "AllreduceOptions", "AllToAllOptions", "BarrierOptions", "BroadcastOptions",
           "GatherOptions", "ReduceOptions", "ReduceScatterOptions", "ScatterOptions"]

# Attributes that are not there would change nothing, so they cannot be set.


@dataclass(slots=True)
class AllgatherOptions:
    """Of `ProcessGroup.allgather`.

    >>> arete.distributed.AllgatherOptions()
    AllgatherOptions()
    """


@dataclass(slots=True)
class AllreduceOptions:
    """Of `ProcessGroup.allreduce`.

    >>> arete.distributed.AllreduceOptions().reduceOp == arete.distributed.ReduceOp.SUM
    True
    """

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815


@dataclass(slots=True)
class AllToAllOptions:
    """Of `ProcessGroup.alltoall`.

    >>> arete.distributed.AllToAllOptions()
    AllToAllOptions()
    """


@dataclass(slots=True)
class BarrierOptions:
    """Of `ProcessGroup.barrier`.

    >>> arete.distributed.BarrierOptions()
    BarrierOptions()
    """


@dataclass(slots=True)
class BroadcastOptions:
    """Of `ProcessGroup.broadcast`: the rank in the group, and which of one tensor.

    >>> arete.distributed.BroadcastOptions(rootRank=1)
    BroadcastOptions(rootRank=1, rootTensor=0)
    """

    rootRank: int = 0  # noqa: N815
    rootTensor: int = 0  # noqa: N815


@dataclass(slots=True)
class GatherOptions:
    """Of `ProcessGroup.gather`: the rank in the group.

    >>> arete.distributed.GatherOptions(rootRank=1)
    GatherOptions(rootRank=1)
    """

    rootRank: int = 0  # noqa: N815


@dataclass(slots=True)
class ReduceOptions:
    """Of `ProcessGroup.reduce`: the rank in the group, and which of one tensor.

    >>> arete.distributed.ReduceOptions(rootRank=1).rootRank
    1
    """

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815
    rootRank: int = 0  # noqa: N815
    rootTensor: int = 0  # noqa: N815


@dataclass(slots=True)
class ReduceScatterOptions:
    """Of `ProcessGroup.reduce_scatter`.

    >>> arete.distributed.ReduceScatterOptions().reduceOp == arete.distributed.ReduceOp.SUM
    True
    """

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815


@dataclass(slots=True)
class ScatterOptions:
    """Of `ProcessGroup.scatter`: the rank in the group.

    >>> arete.distributed.ScatterOptions(rootRank=1)
    ScatterOptions(rootRank=1)
    """

    rootRank: int = 0  # noqa: N815


def _one(tensors: Any, name: str) -> Any:
    """The tensor, or the only one of a list."""
    if isinstance(tensors, (list, tuple)):
        if len(tensors) != 1:
            raise ValueError(f"{name}: requires a single-element tensor list, got {len(tensors)}")
        tensors = tensors[0]
    return _tensor(tensors, name)


def _list(tensors: Any, name: str) -> list:
    """The tensors for or of all ranks: a list of them, or of one such list, or none."""
    if tensors and isinstance(tensors[0], (list, tuple)):
        if len(tensors) != 1:
            raise ValueError(f"{name}: requires a single-element list of lists, got {len(tensors)}")
        tensors = tensors[0]
    return _tensors(list(tensors or ()), name)


def _op(options: Any) -> ReduceOp:
    return options if isinstance(options, ReduceOp) else options.reduceOp


def _root(options: Any) -> int:
    if isinstance(options, int):
        return options
    if getattr(options, "rootTensor", 0) != 0:
        raise ValueError(f"rootTensor {options.rootTensor}: there is one tensor")
    return options.rootRank


def allreduce(self: ProcessGroup, tensors: Any, opts: Union[AllreduceOptions, ReduceOp] = ReduceOp.SUM) -> Work:
    """As all_reduce()."""
    tensor = _one(tensors, "allreduce")
    return _writing(self._all_reduce(tensor, _op(opts), True), tensor)


def broadcast(self: ProcessGroup, tensors: Any, opts: Union[BroadcastOptions, int] = 0) -> Work:
    """As broadcast(), from a rank of the group."""
    tensor = _one(tensors, "broadcast")
    return _writing(self._broadcast(tensor, _root(opts), True), tensor)


def reduce(self: ProcessGroup, tensors: Any, opts: Union[ReduceOptions, int] = 0, op: ReduceOp = ReduceOp.SUM) -> Work:
    """As reduce(), to a rank of the group."""
    tensor = _one(tensors, "reduce")
    return _writing(self._reduce(tensor, _root(opts), op if isinstance(opts, int) else _op(opts), True), tensor)


def allgather(self: ProcessGroup, output_tensors: list, input_tensors: Any, opts: Optional[AllgatherOptions] = None) -> Work:
    """As all_gather()."""
    outputs = _list(output_tensors, "allgather")
    return _writing(self._all_gather(outputs, _one(input_tensors, "allgather"), True), *outputs)


def _allgather_base(self: ProcessGroup, output: Any, input: Any, opts: Optional[AllgatherOptions] = None) -> Work:
    """As all_gather_into_tensor()."""
    return _writing(self._all_gather_into_tensor(_tensor(output, "output"), _tensor(input, "input"), True), output)


def gather(self: ProcessGroup, output_tensors: list, input_tensors: Any, opts: Union[GatherOptions, int] = 0) -> Work:
    """As gather(), to a rank of the group; others have no outputs."""
    outputs = _list(output_tensors, "gather")
    return _writing(self._gather(_one(input_tensors, "gather"), outputs, _root(opts), True), *outputs)


def scatter(self: ProcessGroup, output_tensors: Any, input_tensors: list, opts: Union[ScatterOptions, int] = 0) -> Work:
    """As scatter(), from a rank of the group; others have no inputs."""
    output = _one(output_tensors, "scatter")
    return _writing(self._scatter(output, _list(input_tensors, "scatter"), _root(opts), True), output)


def reduce_scatter(self: ProcessGroup, output_tensors: Any, input_tensors: list,
                   opts: Union[ReduceScatterOptions, ReduceOp] = ReduceOp.SUM) -> Work:
    """As reduce_scatter()."""
    output = _one(output_tensors, "reduce_scatter")
    return _writing(self._reduce_scatter(output, _list(input_tensors, "reduce_scatter"), _op(opts), True), output)


def _reduce_scatter_base(self: ProcessGroup, outputTensor: Any, inputTensor: Any,  # noqa: N803
                         opts: Union[ReduceScatterOptions, ReduceOp] = ReduceOp.SUM) -> Work:
    """As reduce_scatter_tensor()."""
    return _writing(self._reduce_scatter_tensor(_tensor(outputTensor, "outputTensor"), _tensor(inputTensor, "inputTensor"), _op(opts),
                                                True), outputTensor)


def alltoall(self: ProcessGroup, output_tensors: list, input_tensors: list, opts: Optional[AllToAllOptions] = None) -> Work:
    """As all_to_all()."""
    outputs = _list(output_tensors, "alltoall")
    return _writing(self._all_to_all(outputs, _list(input_tensors, "alltoall"), True), *outputs)


def alltoall_base(self: ProcessGroup, output: Any, input: Any, output_split_sizes: list[int], input_split_sizes: list[int],
                  opts: Optional[AllToAllOptions] = None) -> Work:
    """As all_to_all_single()."""
    return _writing(self._all_to_all_single(_tensor(output, "output"), _tensor(input, "input"), output_split_sizes, input_split_sizes,
                                            True), output)


def send(self: ProcessGroup, tensors: Any, dstRank: int, tag: int = 0) -> Work:  # noqa: N803
    """As isend(), to a rank of the group."""
    return self._send(_one(tensors, "send"), dstRank, tag, True)


def recv(self: ProcessGroup, tensors: Any, srcRank: int, tag: int = 0) -> Work:  # noqa: N803
    """As irecv(), from a rank of the group."""
    tensor = _one(tensors, "recv")
    return _writing(self._irecv(tensor, srcRank, tag), tensor)


def recv_anysource(self: ProcessGroup, tensors: Any, tag: int = 0) -> Work:
    """As irecv() from whoever sends."""
    return recv(self, tensors, -1, tag)


def barrier(self: ProcessGroup, opts: Optional[BarrierOptions] = None) -> Work:
    """As barrier()."""
    return self._barrier(True)


def monitored_barrier(self: ProcessGroup, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False) -> None:
    """As monitored_barrier()."""
    self._monitored_barrier(timeout, wait_all_ranks)


for _method in (allreduce, broadcast, reduce, allgather, _allgather_base, gather, scatter, reduce_scatter, _reduce_scatter_base, alltoall,
                alltoall_base, send, recv, recv_anysource, barrier, monitored_barrier):
    _method.__qualname__ = f"ProcessGroup.{_method.__name__}"
    setattr(ProcessGroup, _method.__name__, _method)
