"""Objects instead of tensors. As torch's these functions pickle: whoever can send to the group can run code in its processes, so
they are for processes that trust each other."""
from __future__ import annotations

import pickle
from typing import Any, Optional

from .. import _C
from . import distributed_c10d as c10d

__all__ = ["all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list", "recv_object_list"]


def _to_bytes(value: Any, group: Any) -> Any:
    return _C.frombuffer(bytearray(pickle.dumps(value)), dtype=_C.uint8).to(group._home)


def _from_bytes(data: Any) -> Any:
    return pickle.loads(_C._distributed.bytes_of(data.cpu()))


def _room(size: int, group: Any) -> Any:
    return _C._empty_strided([int(size)], [1], _C.uint8, group._home)


def _numbers(values: list, group: Any) -> Any:
    return _C.tensor(values, dtype=_C.int64, device=group._home)


def _sizes(data: Any, group: Any) -> list:
    every = _numbers([0] * group.size(), group)
    group._all_gather_into_tensor(every, _numbers([data.numel()], group), False)
    return every.tolist()


def all_gather_object(object_list: list, obj: Any, group: Optional[c10d.ProcessGroup] = None) -> None:
    """Fills a list with the objects of all processes."""
    if not c10d._is_member(group, "all_gather_object"):
        return
    group = c10d._of(group)
    if len(object_list) != group.size():
        raise ValueError(f"all_gather_object: the list has {len(object_list)} places for {group.size()} processes")
    data = _to_bytes(obj, group)
    rooms = [_room(n, group) for n in _sizes(data, group)]
    group._all_gather(rooms, data, False)
    object_list[:] = [_from_bytes(room) for room in rooms]


def gather_object(obj: Any, object_gather_list: Optional[list] = None, dst: Optional[int] = None,
                  group: Optional[c10d.ProcessGroup] = None, group_dst: Optional[int] = None) -> None:
    """Fills a list of one process, rank 0 if nothing else is said, with the objects of all."""
    if not c10d._is_member(group, "gather_object"):
        return
    group = c10d._of(group)
    root = c10d._root(group, dst, group_dst, "dst", 0)
    here = group.rank() == root
    if here and object_gather_list is None:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if not here and object_gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    if here and len(object_gather_list) != group.size():
        raise ValueError(f"gather_object: the list has {len(object_gather_list)} places for {group.size()} processes")
    data = _to_bytes(obj, group)
    sizes = _sizes(data, group)
    rooms = [_room(n, group) for n in sizes] if here else []
    group._gather(data, rooms, root, False)
    if here:
        object_gather_list[:] = [_from_bytes(room) for room in rooms]


def broadcast_object_list(object_list: list, src: Optional[int] = None, group: Optional[c10d.ProcessGroup] = None, device: Any = None,
                          group_src: Optional[int] = None) -> None:
    """Fills the lists of all processes with the objects of one, rank 0 if nothing else is said. What arrives is the same by
    way of whatever `device`: the group's own."""
    if not c10d._is_member(group, "broadcast_object_list"):
        return
    group = c10d._of(group)
    root = c10d._root(group, src, group_src, "src", 0)
    here = group.rank() == root
    data = [_to_bytes(o, group) for o in object_list] if here else []
    sizes = _numbers([d.numel() for d in data] if here else [0] * len(object_list), group)
    group._broadcast(sizes, root, False)
    for i, n in enumerate(sizes.tolist()):
        room = data[i] if here else _room(n, group)
        group._broadcast(room, root, False)
        if not here:
            object_list[i] = _from_bytes(room)


def scatter_object_list(scatter_object_output_list: list, scatter_object_input_list: Optional[list] = None, src: Optional[int] = None,
                        group: Optional[c10d.ProcessGroup] = None, group_src: Optional[int] = None) -> None:
    """Puts one object of a list of one process, rank 0 if nothing else is said, at the first place of each process' list."""
    if not c10d._is_member(group, "scatter_object_list"):
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    group = c10d._of(group)
    root = c10d._root(group, src, group_src, "src", 0)
    here = group.rank() == root
    if here and (scatter_object_input_list is None or len(scatter_object_input_list) != group.size()):
        raise ValueError(f"scatter_object_list: the source needs a list of {group.size()} objects")
    data = [_to_bytes(o, group) for o in scatter_object_input_list] if here else []
    size = _numbers([0], group)
    group._scatter(size, [_numbers([d.numel()], group) for d in data], root, False)
    room = _room(size.tolist()[0], group)
    group._scatter(room, data, root, False)
    scatter_object_output_list[0] = _from_bytes(room)


def send_object_list(object_list: list, dst: Optional[int] = None, group: Optional[c10d.ProcessGroup] = None, device: Any = None,
                     group_dst: Optional[int] = None, use_batch: bool = False) -> None:
    """Sends objects to one process, one after the other; `device` and `use_batch` change nothing of what arrives."""
    if not c10d._is_member(group, "send_object_list"):
        return
    group = c10d._of(group)
    data = [_to_bytes(o, group) for o in object_list]
    for message in (_numbers([d.numel() for d in data], group), *data):
        c10d.send(message, dst, group, group_dst=group_dst)


def recv_object_list(object_list: list, src: Optional[int] = None, group: Optional[c10d.ProcessGroup] = None, device: Any = None,
                     group_src: Optional[int] = None, use_batch: bool = False) -> int:
    """Fills a list with objects that a process sends, or whoever sends first; gives its rank."""
    if not c10d._is_member(group, "recv_object_list"):
        return -1
    group = c10d._of(group)
    sizes = _numbers([0] * len(object_list), group)
    source = c10d.recv(sizes, src, group, group_src=group_src)
    for i, n in enumerate(sizes.tolist()):
        room = _room(n, group)
        c10d.recv(room, source, group)
        object_list[i] = _from_bytes(room)
    return source
