"""Groups of processes and what they call together."""
from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import os
import sys
import warnings
from datetime import timedelta
from enum import Enum
from typing import Any, Callable, Iterator, Optional, Sequence, Union

from .. import _C
from .._grad_mode import no_grad
from .._operators import _ops
from ..futures import Future, _WorkFuture

_d = _C._distributed
Store, HashStore, FileStore, TCPStore, PrefixStore = _d.Store, _d.HashStore, _d.FileStore, _d.TCPStore, _d.PrefixStore
ProcessGroup, ReduceOp, Work = _d.ProcessGroup, _d.ReduceOp, _d.Work
GradBucket = _d.GradBucket
DistError, DistBackendError, DistNetworkError = _C.DistError, _C.DistBackendError, _C.DistNetworkError
DistStoreError, QueueEmptyError = _C.DistStoreError, _C.QueueEmptyError
for _one in (GradBucket, Store, HashStore, FileStore, TCPStore, PrefixStore, ProcessGroup, ReduceOp, Work, DistError,
             DistBackendError, DistNetworkError, DistStoreError, QueueEmptyError):
    _one.__module__ = "arete.distributed"
for _number, _name in enumerate(("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG")):
    setattr(ReduceOp, _name, ReduceOp(_number))
ReduceOp.PREMUL_SUM = ReduceOp(8, float("inf"))  # a name to compare with, which no call takes
ReduceOp.RedOpType = ReduceOp  # which torch tells apart


def _get_future(self: Work) -> Future:
    """Of the tensors that the call writes."""
    def wait() -> list:
        self.wait()
        return list(getattr(self, "_results", ()))

    return _WorkFuture(wait, self.is_completed)


def _result(self: Work) -> list:
    """The tensors that the call writes, when it is done."""
    return _get_future(self).wait()


Work.get_future, Work.result = _get_future, _result


def _writing(work: Optional[Work], *tensors: Any) -> Optional[Work]:
    if work is not None:
        work._results = tensors
    return work


__all__ = [
    "Store", "HashStore", "FileStore", "TCPStore", "PrefixStore", "ProcessGroup", "ReduceOp", "Work", "GradBucket", "BuiltinCommHookType",
    "DistError", "DistBackendError", "DistNetworkError", "DistStoreError", "QueueEmptyError", "Backend", "GroupMember", "group",
    "P2POp",
    "default_pg_timeout", "init_process_group",
    "destroy_process_group", "is_initialized", "get_rank", "get_world_size", "get_backend", "get_node_local_rank", "new_group",
    "new_subgroups", "new_subgroups_by_enumeration", "split_group", "get_pg_count", "get_process_group_ranks", "get_global_rank",
    "get_group_rank",
    "get_backend_config", "get_default_backend_for_device", "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor",
    "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "gather", "scatter", "send", "recv", "isend", "irecv",
    "batch_isend_irecv", "barrier", "monitored_barrier", "rendezvous", "is_xccl_available",
    "all_reduce_coalesced", "all_gather_coalesced", "supports_complex", "DebugLevel", "get_debug_level",
    "set_debug_level", "set_debug_level_from_env",
]

default_pg_timeout = timedelta(minutes=30)


def _end() -> None:
    """Groups that nobody ended would end while the interpreter is taken apart."""
    if not _d.is_initialized():
        return
    error = getattr(sys, "last_value", None)
    why = "has ended its program" if error is None else f"has ended by {type(error).__name__}: {error}"[:500]
    _d.destroy_process_group(None, why, error is not None)


atexit.register(_end)


class Backend(str):
    """The name of what moves tensors, in small letters.

    >>> arete.distributed.Backend("GLOO") == arete.distributed.Backend.GLOO
    True
    """

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL}

    def __new__(cls, name: str):
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return super().__new__(cls, name.lower())


class BuiltinCommHookType(Enum):
    """Communication hooks of C++: DistributedDataParallel._register_builtin_comm_hook().

    >>> arete.distributed.BuiltinCommHookType.FP16_COMPRESS.name
    'FP16_COMPRESS'
    """

    ALLREDUCE = 0
    FP16_COMPRESS = 1


class DebugLevel(Enum):
    """How much is checked, for programs that ask. What processes call is always compared, and parameters without gradients are always
    named.

    >>> arete.distributed.DebugLevel.DETAIL
    <DebugLevel.DETAIL: 2>
    """

    OFF = 0
    INFO = 1
    DETAIL = 2

    def __int__(self) -> int:
        return self.value


_debug_level: Optional[DebugLevel] = None  # nobody has asked yet


def get_debug_level() -> DebugLevel:
    """What set_debug_level() has said, or before that $TORCH_DISTRIBUTED_DEBUG.

    >>> arete.distributed.get_debug_level()
    <DebugLevel.OFF: 0>
    """
    if _debug_level is None:
        set_debug_level_from_env()
    return _debug_level  # type: ignore[return-value]


def set_debug_level(level: DebugLevel) -> None:
    """Says what get_debug_level() gives.

    >>> arete.distributed.set_debug_level(arete.distributed.DebugLevel.OFF)
    """
    global _debug_level
    if not isinstance(level, DebugLevel):
        raise TypeError(f"set_debug_level: expected a DebugLevel, got {level!r}")
    _debug_level = level


def set_debug_level_from_env() -> None:
    """set_debug_level() by $TORCH_DISTRIBUTED_DEBUG: OFF, INFO or DETAIL.

    >>> arete.distributed.set_debug_level_from_env()
    """
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG") or "OFF"
    if name.upper() not in DebugLevel.__members__:
        raise ValueError(f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL, got {name!r}")
    set_debug_level(DebugLevel[name.upper()])


class _Members(type):
    @property
    def WORLD(cls) -> Optional[ProcessGroup]:
        return _d.world() if _d.is_initialized() else None


class GroupMember(metaclass=_Members):
    """What new_group() gives those that are not in the group."""

    NON_GROUP_MEMBER = -100


class group(metaclass=_Members):
    """`group.WORLD` is the default group; None before it is made.

    >>> arete.distributed.group.WORLD is None
    True
    """


def _make_nccl_premul_sum(factor: Union[float, Any]) -> ReduceOp:
    return ReduceOp(8, float(factor))


def _name_nccl() -> None:
    """Says where NVIDIA's package for Python has NCCL, which is loaded if a tensor of a GPU travels."""
    try:
        package = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return
    for folder in (package.submodule_search_locations or []) if package else []:
        path = os.path.join(folder, "lib", "libnccl.so.2")
        if os.path.exists(path):
            os.environ.setdefault("ARETE_NCCL_LIBRARY", path)


def _gpu(device_id: Any) -> Any:
    """The GPU that a number or a device names."""
    if device_id is None:
        return None
    device = _C.device("cuda", device_id) if isinstance(device_id, int) else _C.device(device_id)
    if device.type == "cpu":
        return None
    if device.index is None:
        raise ValueError(f"init_process_group device_id parameter must be an accelerator with an index, got {device}")
    return device


def _is_member(group: Any, name: str) -> bool:
    if group is not GroupMember.NON_GROUP_MEMBER:
        return True
    warnings.warn(f"Running {name} on global rank {get_rank()} which does not belong to the given group.", stacklevel=3)
    return False


def _of(group: Optional[ProcessGroup]) -> ProcessGroup:
    return _d.world() if group is None else group


def _rank_not_in_group(group: Any) -> bool:
    """Whether this process is none of the group's."""
    return group is GroupMember.NON_GROUP_MEMBER


def _get_default_group() -> ProcessGroup:
    return _d.world()


def _root(group: ProcessGroup, root: Optional[int], group_root: Optional[int], name: str, default: Optional[int] = None) -> int:
    """A rank within the group, of the two ways to say it."""
    if root is not None and group_root is not None:
        raise ValueError(f"Can't specify both group_{name} and {name}")
    if group_root is not None:
        return group_root
    if root is None:
        if default is None:
            raise ValueError(f"Must specify {name} or group_{name}")
        root = default
    return _d.get_group_rank(group, root)


def _tensor(value: Any, name: str) -> Any:
    if not isinstance(value, _C.Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor, but got {type(value)} instead.")
    return value


def _tensors(value: Any, name: str) -> list:
    if not isinstance(value, (list, tuple)) or not all(isinstance(t, _C.Tensor) for t in value):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor], but got {type(value)} "
                        "instead.")
    return list(value)


def init_process_group(backend: Optional[str] = None, init_method: Optional[str] = None, timeout: Optional[timedelta] = None,
                       world_size: int = -1, rank: int = -1, store: Optional[Store] = None, group_name: str = "",
                       pg_options: Any = None, device_id: Any = None) -> None:
    """Makes the default group, together with all other processes of it.

    `init_method`: "env://" (what torchrun, `arete run`, Slurm and MPI set; the default), "tcp://host:port" or "file:///path"; or a
    `store` with `rank` and `world_size`. `backend`: "gloo", "nccl" (tensors of GPUs only) or "cpu:gloo,cuda:nccl" (the default, if
    there is NCCL), "store" (messages go through the store) or "fake". `device_id`: a GPU to connect at once instead of at the first
    call. `group_name` changes nothing. ValueError if there is a default group already.

    >>> arete.distributed.init_process_group("fake", rank=1, world_size=4)
    >>> arete.distributed.get_rank()
    1
    >>> arete.distributed.destroy_process_group()
    """
    if pg_options is not None:
        raise NotImplementedError("init_process_group: pg_options are not supported")
    _name_nccl()
    _d.init_process_group(backend or "", init_method or "", timeout, world_size, rank, store, _gpu(device_id))
    _pg_map[_d.world()] = get_backend(), None


# Groups of this process that Python has made, which programs count and look into, with their backends.
_pg_map: dict = {}
_descriptions: dict[str, str] = {}  # of groups, by their names
ProcessGroup.group_desc = property(lambda self: _descriptions.get(self.group_name, "default_pg"))


_at_end_of_groups: list = []  # functions that let go of what has groups


def destroy_process_group(group: Optional[ProcessGroup] = None) -> None:
    """Ends a group, or all of them, after what is under way, which may take until its timeout."""
    if group is not GroupMember.NON_GROUP_MEMBER:
        all_of_them = group is None or group == _d.world()
        _d.destroy_process_group(group)
        if all_of_them:
            _pg_map.clear()
            for end in _at_end_of_groups:
                end()
        else:
            _pg_map.pop(group, None)


def is_initialized() -> bool:
    """Whether there is a default group.

    >>> arete.distributed.is_initialized()
    False
    """
    return _d.is_initialized()


def get_rank(group: Optional[ProcessGroup] = None) -> int:
    """Of this process in the group; -1 if it is not in it."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else _of(group).rank()


def get_world_size(group: Optional[ProcessGroup] = None) -> int:
    """How many processes are in the group; -1 if this one is not."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else _of(group).size()


def get_backend(group: Optional[ProcessGroup] = None) -> str:
    """The name of what moves the tensors of a group; "undefined" if none was named."""
    if group is GroupMember.NON_GROUP_MEMBER:
        raise ValueError("Invalid process group specified")
    return Backend(_of(group)._backend)


def get_backend_config(group: Optional[ProcessGroup] = None) -> str:
    """Which backend moves the tensors of which devices.

    >>> arete.distributed.init_process_group("cpu:gloo", store=arete.distributed.HashStore(), rank=0, world_size=1)
    >>> arete.distributed.get_backend_config()
    'cpu:gloo'
    >>> arete.distributed.destroy_process_group()
    """
    name = get_backend(group)
    if name == Backend.UNDEFINED:
        return ",".join(f"{device}:{backend}" for device, backend in Backend.default_device_backend_map.items())
    if ":" in name:
        return str(name)
    return f"cuda:{name}" if name == Backend.NCCL else f"cpu:{name},cuda:{name}"


def get_default_backend_for_device(device: Any) -> str:
    """The name of what moves tensors of a device, if nothing else is said.

    >>> arete.distributed.get_default_backend_for_device("cuda:1")
    'nccl'
    """
    kind = _C.device(device).type
    if kind not in Backend.default_device_backend_map:
        raise ValueError(f"Default backend not registered for device : {device}")
    return Backend.default_device_backend_map[kind]


def get_node_local_rank(fallback_rank: Optional[int] = None) -> int:
    """Of this process among those of its machine, as the launcher says.

    >>> arete.distributed.get_node_local_rank(fallback_rank=0)
    0
    """
    rank = _d.environment_local_rank()
    if rank is None and fallback_rank is None:
        raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to "
                           "work, assuming you are not running in a multi-device context and want the code to run locally instead.")
    return int(fallback_rank) if rank is None else rank


def new_group(ranks: Optional[Sequence[int]] = None, timeout: Optional[timedelta] = None, backend: Optional[str] = None,
              pg_options: Any = None, use_local_synchronization: bool = False, group_desc: Optional[str] = None,
              device_id: Any = None) -> Any:
    """A group of some ranks of the default one, or all. All processes of the default group call this, in the same order, or with
    `use_local_synchronization` those of the group alone; those that are not in it get GroupMember.NON_GROUP_MEMBER. The group has them in
    rising order. `group_desc`: what it says of itself."""
    if pg_options is not None:
        raise NotImplementedError("new_group: pg_options is not supported")
    made = _d.new_group([] if ranks is None else sorted(ranks), timeout, backend or "", _gpu(device_id), use_local_synchronization)
    if made is not None:
        _pg_map[made] = get_backend(made), None
        _descriptions[made.group_name] = group_desc or "undefined"
    return GroupMember.NON_GROUP_MEMBER if made is None else made


def new_subgroups_by_enumeration(ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: Optional[timedelta] = None,
                                 backend: Optional[str] = None, pg_options: Any = None, group_desc: Optional[str] = None) -> tuple:
    """Groups of these ranks, none of which is in two: the one of this process (None if it is in none) and all of them.

    >>> arete.distributed.init_process_group("fake", rank=2, world_size=4)
    >>> mine, every = arete.distributed.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    >>> arete.distributed.get_process_group_ranks(mine), len(every)
    ([0, 2], 2)
    >>> arete.distributed.destroy_process_group()
    """
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    every = [r for ranks in ranks_per_subgroup_list for r in ranks]
    if len(set(every)) != len(every):
        raise ValueError("a rank is in two of the subgroups")
    groups = [new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in ranks_per_subgroup_list]
    mine = [g for g in groups if g is not GroupMember.NON_GROUP_MEMBER]
    return (mine[0] if mine else None), groups


def new_subgroups(group_size: Optional[int] = None, group: Optional[ProcessGroup] = None, timeout: Optional[timedelta] = None,
                  backend: Optional[str] = None, pg_options: Any = None, group_desc: Optional[str] = None) -> tuple:
    """Groups of so many ranks that follow each other, of all or of a group; as many as this machine has GPUs if nothing is said.

    >>> arete.distributed.init_process_group("fake", rank=2, world_size=4)
    >>> mine, every = arete.distributed.new_subgroups(2)
    >>> arete.distributed.get_process_group_ranks(mine), len(every)
    ([2, 3], 2)
    >>> arete.distributed.destroy_process_group()
    """
    if group_size is None:
        group_size = _C._cuda.device_count()
    ranks = _of(group)._ranks
    if not 0 < group_size <= len(ranks):
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({len(ranks)})")
    if len(ranks) % group_size:
        raise ValueError("The world size must be divisible by 'group_size'")
    lists = [ranks[i:i + group_size] for i in range(0, len(ranks), group_size)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def split_group(parent_pg: Optional[ProcessGroup] = None, split_ranks: Optional[Sequence[Sequence[int]]] = None,
                timeout: Optional[timedelta] = None, pg_options: Any = None, group_desc: Optional[str] = None) -> Optional[ProcessGroup]:
    """Of a group, or all: the one that this process is in after it was divided into groups of these ranks of it, in rising order; None
    for those that are in none. The members of each part call this.

    >>> arete.distributed.init_process_group("fake", rank=2, world_size=4)
    >>> arete.distributed.get_process_group_ranks(arete.distributed.split_group(split_ranks=[[0, 1], [2, 3]]))
    [2, 3]
    >>> arete.distributed.destroy_process_group()
    """
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    every = [r for ranks in split_ranks for r in ranks]
    if len(set(every)) != len(every):
        raise ValueError("a rank is in two of the split groups")
    parent = _of(parent_pg)
    if not 0 <= min(every) <= max(every) < parent.size():
        raise ValueError(f"the ranks of a split are those of the group, 0 to {parent.size() - 1}, got {split_ranks}")
    for ranks in split_ranks:
        if parent.rank() in ranks:
            return new_group([parent._ranks[r] for r in ranks], timeout, get_backend(parent), pg_options, True, group_desc)
    return None


def get_pg_count() -> int:
    """How many groups there are.

    >>> arete.distributed.get_pg_count()
    0
    """
    return _d.group_count()


def get_process_group_ranks(group: Optional[ProcessGroup]) -> list[int]:
    """The ranks of its members in the default group."""
    return list(_of(group)._ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank in the default group of one in `group`."""
    if not 0 <= group_rank < group.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group.name()}")
    return group._ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in `group` of one in the default group."""
    return _d.get_group_rank(group, global_rank)


def all_reduce(tensor: Any, op: ReduceOp = ReduceOp.SUM, group: Optional[ProcessGroup] = None,
               async_op: bool = False) -> Optional[Work]:
    """Combines the tensors of all processes, in place. With `async_op` there is something to wait for, in all of these functions."""
    if not _is_member(group, "all_reduce"):
        return None
    if _tensor(tensor, "tensor").is_complex() and op != ReduceOp.PRODUCT and not supports_complex(op):
        raise ValueError(f"all_reduce does not support {op} on complex tensors")
    return _writing(_of(group)._all_reduce(_tensor(tensor, "tensor"), op, async_op), tensor)


def reduce(tensor: Any, dst: Optional[int] = None, op: ReduceOp = ReduceOp.SUM, group: Optional[ProcessGroup] = None,
           async_op: bool = False, group_dst: Optional[int] = None) -> Optional[Work]:
    """Combines the tensors of all processes in that of one; those of others keep their values."""
    if not _is_member(group, "reduce"):
        return None
    group = _of(group)
    return _writing(group._reduce(_tensor(tensor, "tensor"), _root(group, dst, group_dst, "dst"), op, async_op), tensor)


def broadcast(tensor: Any, src: Optional[int] = None, group: Optional[ProcessGroup] = None, async_op: bool = False,
              group_src: Optional[int] = None) -> Optional[Work]:
    """Gives all processes the values of one."""
    if not _is_member(group, "broadcast"):
        return None
    group = _of(group)
    return _writing(group._broadcast(_tensor(tensor, "tensor"), _root(group, src, group_src, "src"), async_op), tensor)


def all_gather(tensor_list: list, tensor: Any, group: Optional[ProcessGroup] = None, async_op: bool = False) -> Optional[Work]:
    """Fills a list with the tensors of all processes, which may differ in size."""
    if not _is_member(group, "all_gather"):
        return None
    return _writing(_of(group)._all_gather(_tensors(tensor_list, "tensor_list"), _tensor(tensor, "tensor"), async_op), tensor_list)


def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Optional[ProcessGroup] = None,
                           async_op: bool = False) -> Optional[Work]:
    """Fills one tensor with those of all processes, one after the other or stacked."""
    if not _is_member(group, "all_gather_into_tensor"):
        return None
    work = _of(group)._all_gather_into_tensor(_tensor(output_tensor, "output_tensor"), _tensor(input_tensor, "input_tensor"), async_op)
    return _writing(work, output_tensor)


def reduce_scatter(output: Any, input_list: list, op: ReduceOp = ReduceOp.SUM, group: Optional[ProcessGroup] = None,
                   async_op: bool = False) -> Optional[Work]:
    """Combines the lists of all processes and gives each its own element."""
    if not _is_member(group, "reduce_scatter"):
        return None
    return _writing(_of(group)._reduce_scatter(_tensor(output, "output"), _tensors(input_list, "input_list"), op, async_op), output)


def reduce_scatter_tensor(output: Any, input: Any, op: ReduceOp = ReduceOp.SUM, group: Optional[ProcessGroup] = None,
                          async_op: bool = False) -> Optional[Work]:
    """Combines the tensors of all processes and gives each its own part."""
    if not _is_member(group, "reduce_scatter_tensor"):
        return None
    return _writing(_of(group)._reduce_scatter_tensor(_tensor(output, "output"), _tensor(input, "input"), op, async_op), output)


def all_to_all(output_tensor_list: list, input_tensor_list: list, group: Optional[ProcessGroup] = None,
               async_op: bool = False) -> Optional[Work]:
    """Sends each process a tensor, and receives one from each."""
    if not _is_member(group, "all_to_all"):
        return None
    work = _of(group)._all_to_all(_tensors(output_tensor_list, "output_tensor_list"), _tensors(input_tensor_list, "input_tensor_list"),
                                  async_op)
    return _writing(work, *output_tensor_list)


def all_to_all_single(output: Any, input: Any, output_split_sizes: Optional[Sequence[int]] = None,
                      input_split_sizes: Optional[Sequence[int]] = None, group: Optional[ProcessGroup] = None,
                      async_op: bool = False) -> Optional[Work]:
    """Sends each process some rows of a tensor, and receives rows from each; equally many if nothing else is said."""
    if not _is_member(group, "all_to_all_single"):
        return None
    work = _of(group)._all_to_all_single(_tensor(output, "output"), _tensor(input, "input"), list(output_split_sizes or []),
                                         list(input_split_sizes or []), async_op)
    return _writing(work, output)


def gather(tensor: Any, gather_list: Optional[list] = None, dst: Optional[int] = None, group: Optional[ProcessGroup] = None,
           async_op: bool = False, group_dst: Optional[int] = None) -> Optional[Work]:
    """Fills a list of one process, rank 0 if nothing else is said, with the tensors of all."""
    if not _is_member(group, "gather"):
        return None
    group = _of(group)
    root = _root(group, dst, group_dst, "dst", 0)
    if group.rank() == root and gather_list is None:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    work = group._gather(_tensor(tensor, "tensor"), _tensors(gather_list or [], "gather_list"), root, async_op)
    return _writing(work, *gather_list or [])


def scatter(tensor: Any, scatter_list: Optional[list] = None, src: Optional[int] = None, group: Optional[ProcessGroup] = None,
            async_op: bool = False, group_src: Optional[int] = None) -> Optional[Work]:
    """Gives each process one tensor of a list of one process, rank 0 if nothing else is said."""
    if not _is_member(group, "scatter"):
        return None
    group = _of(group)
    root = _root(group, src, group_src, "src", 0)
    if group.rank() == root and scatter_list is None:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    work = group._scatter(_tensor(tensor, "tensor"), _tensors(scatter_list or [], "scatter_list"), root, async_op)
    return _writing(work, tensor)


def send(tensor: Any, dst: Optional[int] = None, group: Optional[ProcessGroup] = None, tag: int = 0,
         group_dst: Optional[int] = None) -> None:
    """Sends a tensor to one process."""
    if _is_member(group, "send"):
        isend(tensor, dst, group, tag, group_dst, _async=False)


def isend(tensor: Any, dst: Optional[int] = None, group: Optional[ProcessGroup] = None, tag: int = 0,
          group_dst: Optional[int] = None, *, _async: bool = True) -> Optional[Work]:
    """The same without waiting; the tensor must stay as it is until it is sent."""
    if not _is_member(group, "isend"):
        return None
    group = _of(group)
    return _writing(group._send(_tensor(tensor, "tensor"), _root(group, dst, group_dst, "dst"), tag, _async), tensor)


def _source(group: ProcessGroup, src: Optional[int], group_src: Optional[int]) -> int:
    return -1 if src is None and group_src is None else _root(group, src, group_src, "src")


def recv(tensor: Any, src: Optional[int] = None, group: Optional[ProcessGroup] = None, tag: int = 0,
         group_src: Optional[int] = None) -> int:
    """Fills a tensor with what a process sends, or whoever sends first; gives its rank, -1 for those outside of the group."""
    if not _is_member(group, "recv"):
        return -1
    group = _of(group)
    return group._ranks[group._recv(_tensor(tensor, "tensor"), _source(group, src, group_src), tag)]


def irecv(tensor: Any, src: Optional[int] = None, group: Optional[ProcessGroup] = None, tag: int = 0,
          group_src: Optional[int] = None) -> Optional[Work]:
    """The same without waiting; nothing may read or write the tensor until it has come."""
    if not _is_member(group, "irecv"):
        return None
    group = _of(group)
    return _writing(group._irecv(_tensor(tensor, "tensor"), _source(group, src, group_src), tag), tensor)


class P2POp:
    """One message of batch_isend_irecv(): `op` is isend or irecv."""

    def __init__(self, op: Callable, tensor: Any, peer: Optional[int] = None, group: Optional[ProcessGroup] = None, tag: int = 0,
                 group_peer: Optional[int] = None):
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        if peer is None and group_peer is None:
            raise ValueError("Must specify peer or group_peer")
        if peer is None and _is_member(group, op.__name__):
            peer = _of(group)._ranks[group_peer]
        self.op, self.tensor, self.peer, self.group, self.tag = op, _tensor(tensor, "tensor"), peer, group, tag
        self.group_peer = group_peer

    def __repr__(self) -> str:
        peer = self.peer if self.group_peer is None else f"{self.group_peer} of the group"
        return f"P2POp({self.op.__name__}, peer {peer}, {self.tensor.dtype}{list(self.tensor.shape)})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Starts several messages, in whatever order; gives what to wait for. Those between GPUs are one piece of work."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to be of type ``torch.distributed.P2POp``.")
    works: list[Work] = []
    members = [p for p in p2p_op_list if _is_member(p.group, p.op.__name__)]
    for group in dict.fromkeys(_of(p.group) for p in members):
        works += group._start_messages([
            (p.tensor, _root(group, p.peer if p.group_peer is None else None, p.group_peer, "peer"), p.tag, p.op is isend)
            for p in members if _of(p.group) is group])
    return works


def _in_rows(tensors: list) -> list[tuple[Any, list[int]]]:
    """The elements of all tensors of one dtype and device, one after the other, and which tensors these are."""
    kinds: dict = {}
    for i, t in enumerate(tensors):
        kinds.setdefault((t.dtype, t.device), []).append(i)
    return [(_ops.cat([tensors[i].detach().reshape(-1) for i in places]), places) for places in kinds.values()]


def _write_row(row: Any, tensors: list) -> None:
    with no_grad():
        for t, elements in zip(tensors, row.split([t.numel() for t in tensors])):
            t.copy_(elements.view(t.shape))


def all_reduce_coalesced(tensors: list, op: ReduceOp = ReduceOp.SUM, group: Optional[ProcessGroup] = None,
                         async_op: bool = False) -> Optional[Future]:
    """all_reduce() of each tensor, in one message for all that have the same dtype and device; with `async_op` a future of all, whose
    wait() writes the tensors.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.all_reduce_coalesced([arete.ones(1), arete.ones(2)], async_op=True).wait()
    [tensor([1.]), tensor([1., 1.])]
    >>> dist.destroy_process_group()
    """
    tensors = _tensors([tensors] if isinstance(tensors, _C.Tensor) else tensors, "tensor")
    if not _is_member(group, "all_reduce_coalesced"):
        return None
    rows = _in_rows(tensors)
    started = [all_reduce(row, op, group, async_op) for row, _ in rows]

    def write() -> None:
        for row, places in rows:
            _write_row(row, [tensors[i] for i in places])

    if not async_op:
        return write()
    return _all_of(started, tensors, write)


def all_gather_coalesced(output_tensor_lists: list, input_tensor_list: list, group: Optional[ProcessGroup] = None,
                         async_op: bool = False) -> Optional[Future]:
    """all_gather() of each tensor of a list, in one message for all that have the same dtype and device: the list of a process' tensors
    is at its rank. With `async_op` a future of all, whose wait() writes the tensors.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> every = [[arete.zeros(1), arete.zeros(2)]]
    >>> dist.all_gather_coalesced(every, [arete.ones(1), arete.ones(2)])
    >>> every
    [[tensor([1.]), tensor([1., 1.])]]
    >>> dist.destroy_process_group()
    """
    inputs = _tensors(input_tensor_list, "tensor_list")
    if not _is_member(group, "all_gather_coalesced"):
        return None
    for outputs in output_tensor_lists:
        if len(_tensors(outputs, "output_tensor_lists")) != len(inputs):
            raise ValueError(f"each list of output_tensor_lists needs {len(inputs)} tensors, one for each input, got {len(outputs)}")
        for i, (o, t) in enumerate(zip(outputs, inputs)):
            if (o.shape, o.dtype, o.device) != (t.shape, t.dtype, t.device):
                raise ValueError(f"output_tensor_lists: tensor {i} of each list must be like input {i}, which has {list(t.shape)} of "
                                 f"{t.dtype} on {t.device}, got {list(o.shape)} of {o.dtype} on {o.device}")
    rows = [(row, places, [_ops.empty_like(row) for _ in output_tensor_lists]) for row, places in _in_rows(inputs)]
    started = [all_gather(gathered, row, group, async_op) for row, _, gathered in rows]

    def write() -> None:
        for _, places, gathered in rows:
            for outputs, row in zip(output_tensor_lists, gathered):
                _write_row(row, [outputs[i] for i in places])

    if not async_op:
        return write()
    return _all_of(started, output_tensor_lists, write)


def _all_of(works: list, results: Any, then: Callable = lambda: None) -> Optional[Future]:
    started = [w for w in works if w is not None]

    def wait() -> Any:
        for work in started:
            work.wait()
        then()
        return results

    return _WorkFuture(wait, lambda: all(w.is_completed() for w in started)) if started else None


def supports_complex(reduceOp: ReduceOp) -> bool:  # noqa: N803
    """Whether complex numbers can be combined so, as torch says; PRODUCT of complex numbers works here all the same.

    >>> dist = arete.distributed
    >>> dist.supports_complex(dist.ReduceOp.SUM), dist.supports_complex(dist.ReduceOp.MAX)
    (True, False)
    """
    return reduceOp not in (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


class _CoalescingManager:
    """What a block of calls gives to wait for."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Optional[Work]) -> None:
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        """Waits for the calls that were appended."""
        for work in self.works:
            work.wait()


@contextlib.contextmanager
def _coalescing_manager(group: Optional[ProcessGroup] = None, device: Any = None,
                        async_ops: Optional[bool] = False) -> Iterator[_CoalescingManager]:
    """A block of calls that may become one message. Each is one here, in their order and by its own group, so that `group` and `device`
    have nothing to say; with `async_ops` the block's wait() is theirs."""
    manager = _CoalescingManager()
    yield manager
    if not async_ops:
        manager.wait()


def _get_default_store() -> Store:
    """The store of the default group."""
    return _get_default_group()._store


def barrier(group: Optional[ProcessGroup] = None, async_op: bool = False, device_ids: Any = None) -> Optional[Work]:
    """Waits until all processes are here. The first of `device_ids` is the GPU of a group that has none yet; another one
    than the group's is an error."""
    if not _is_member(group, "barrier"):
        return None
    group = _of(group)
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError("Invalid function argument: device_ids type should be List[int]")
    if device_ids and group._home.type == "cuda":
        group._connect(_C.device("cuda", device_ids[0]))
    return group._barrier(async_op)


def monitored_barrier(group: Optional[ProcessGroup] = None, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False) -> None:
    """The same, in which rank 0 names the first process that does not come in time, or all of them."""
    if _is_member(group, "monitored_barrier"):
        _of(group)._monitored_barrier(timeout, wait_all_ranks)


def is_xccl_available() -> bool:
    """Whether processes can talk through Intel's XCCL.

    >>> arete.distributed.is_xccl_available()
    False
    """
    return False


def rendezvous(url: str, rank: int = -1, world_size: int = -1, *, timeout: timedelta = default_pg_timeout):
    """Where processes meet: yields a store, this process' rank, and how many there are.

    >>> store, rank, size = next(arete.distributed.rendezvous("tcp://localhost:0?rank=0&world_size=1"))
    >>> rank, size
    (0, 1)
    """
    yield _d.rendezvous(url, rank, world_size, timeout)


def __getattr__(name: str) -> Any:
    """What the package has beside groups is found here, too, as torch's programs look for it."""
    package = importlib.import_module(__package__)
    if name.startswith("_") or name not in vars(package):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(package, name)
