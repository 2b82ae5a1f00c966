"""Which part of a tensor a process has."""
from __future__ import annotations

from typing import Sequence

from ..device_mesh import DeviceMesh
from ._redistribute import part_of
from .placement_types import Placement

__all__ = ["compute_local_shape_and_global_offset"]


def compute_local_shape_and_global_offset(global_shape: Sequence[int], mesh: DeviceMesh,
                                          placements: Sequence[Placement]) -> tuple[tuple, tuple]:
    """The sizes of this process' part of a tensor that lies so, and where it begins; ((0,), ()) for a process that is not in the mesh.

    >>> dist = arete.distributed
    >>> dist.init_process_group("fake", rank=1, world_size=2)
    >>> mesh = dist.init_device_mesh("cpu", (2,))
    >>> dist.tensor._utils.compute_local_shape_and_global_offset((5, 2), mesh, [dist.tensor.Shard(0)])
    ((2, 2), (3, 0))
    >>> dist.destroy_process_group()
    """
    if mesh.get_coordinate() is None:
        return (0,), ()
    return part_of(global_shape, mesh, placements)
