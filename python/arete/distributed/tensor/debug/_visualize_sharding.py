"""Which process has which part of a tensor, as a table."""
from __future__ import annotations

import math
from typing import Any

from ..placement_types import Shard

__all__ = ["visualize_sharding"]


def _part(shape: tuple, mesh_shape: tuple, at: tuple, placements: tuple) -> list:
    """The first and last row, and column, of a process' part of a tensor of one or two dimensions."""
    ranges = [[0, n] for n in shape]
    for n, r, p in zip(mesh_shape, at, placements):
        if isinstance(p, Shard):
            start, end = ranges[p.dim]
            size, first = Shard.local_shard_size_and_offset(end - start, n, r)
            ranges[p.dim] = [start + first, start + first + size]
    return [(start, end - 1) for start, end in (ranges if len(shape) == 2 else [*ranges, [0, 1]])]


def visualize_sharding(dtensor: Any, header: str = "", use_rich: bool = False) -> None:
    """Prints, in the first process of the mesh, which processes have which rows and columns of a DTensor of one or two dimensions; nothing
    of empty ones. `use_rich` colours nothing: the table is a plain text in any case. RuntimeError for more dimensions.

    >>> dist = arete.distributed
    >>> dist.init_process_group("fake", rank=0, world_size=2)
    >>> mesh = dist.init_device_mesh("cpu", (2,))
    >>> dist.tensor.debug.visualize_sharding(dist.tensor.zeros(4, 6, device_mesh=mesh, placements=[dist.tensor.Shard(0)]))
             Col 0-5
    -------  -------
    Row 0-1  cpu:0
    Row 2-3  cpu:1
    >>> dist.destroy_process_group()
    """
    shape, mesh = tuple(dtensor.shape), dtensor.device_mesh
    if len(shape) > 2:
        raise RuntimeError("visualize sharding supports only 1D or 2D DTensor")
    if dtensor.numel() == 0 or not shape or mesh.get_coordinate() is None or any(mesh.get_coordinate()):
        return
    cells: dict = {}
    for place, rank in enumerate(mesh.mesh.reshape(-1).tolist()):
        at = tuple(place // math.prod(mesh.shape[d + 1:]) % mesh.shape[d] for d in range(mesh.ndim))
        rows, columns = _part(shape, mesh.shape, at, dtensor.placements)
        if rows[0] <= rows[1] and columns[0] <= columns[1]:
            cells.setdefault((rows, columns), []).append(str(rank))
    rows, columns = sorted({r for r, _ in cells}), sorted({c for _, c in cells})
    table = [["", *(f"Col {a}-{b}" for a, b in columns)]]
    for r in rows:
        own = [f"{mesh.device_type}:{','.join(cells[r, c])}" if (r, c) in cells else "" for c in columns]
        table.append([f"Row {r[0]}-{r[1]}", *own])
    widths = [max(map(len, column)) for column in zip(*table)]
    table.insert(1, ["-" * w for w in widths])
    if header:
        print(header)
    print("\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in table))
