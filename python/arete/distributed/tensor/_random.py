"""Random numbers of tensors that are spread over processes: each process draws those of all of a tensor and keeps its part, from generators
that are in the same state, so that results are those of one process, however a tensor lies."""
from __future__ import annotations

from typing import Any

from ... import _C, cuda, random
from .. import distributed_c10d as c10d
from ..device_mesh import DeviceMesh

__all__ = ["agree", "is_rng_supported_mesh", "manual_seed"]


def is_rng_supported_mesh(device_mesh: DeviceMesh) -> bool:
    """Whether tensors on the mesh can be drawn: always.

    >>> dist = arete.distributed
    >>> dist.init_process_group("fake", rank=0, world_size=2)
    >>> dist.tensor._random.is_rng_supported_mesh(dist.init_device_mesh("cpu", (2,)))
    True
    >>> dist.destroy_process_group()
    """
    return True


def _agreed(mesh: DeviceMesh) -> set:
    """The parts of a mesh whose processes have had the same state; parts are made anew whenever they are named."""
    return (mesh._root or mesh).__dict__.setdefault("_agreed", set())


def manual_seed(seed: int, device_mesh: DeviceMesh) -> None:
    """Gives this process' generator a seed, which all processes of the mesh give theirs. They draw from it then as they are; without a
    call they are given the state of the first one's when they draw for the first time.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> dist.tensor._random.manual_seed(3, dist.init_device_mesh("cpu", (1,)))
    >>> arete.initial_seed()
    3
    >>> dist.destroy_process_group()
    """
    if device_mesh.get_coordinate() is None:
        return
    (cuda if device_mesh.device_type == "cuda" else random).manual_seed(seed)
    _agreed(device_mesh).add(device_mesh.mesh_dim_names)


def agree(mesh: DeviceMesh, device: Any) -> None:
    """Gives all processes of a mesh the state of its first one's generator, once."""
    if mesh.mesh_dim_names in _agreed(mesh):
        return
    _agreed(mesh).add(mesh.mesh_dim_names)
    is_gpu = device.type == "cuda"
    state = (cuda.get_rng_state(device) if is_gpu else random.get_rng_state()).clone()
    home = _C.device(device) if is_gpu else _C.device("cpu")
    shared = state.to(home)
    for d in range(mesh.ndim):
        c10d.broadcast(shared, group=mesh.get_group(d), group_src=0)
    state = shared.cpu()
    if is_gpu:
        cuda.set_rng_state(state, device)
    else:
        random.set_rng_state(state)
