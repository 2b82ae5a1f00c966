"""Norms of tensors of which processes have parts."""
from __future__ import annotations

import math
from typing import Any, Callable, Sequence

from . import distributed_c10d as c10d

__all__ = ["total_norm"]


def total_norm(tensors: Sequence[Any], order: float, norm: Callable[[list, float], Any]) -> Any:
    """The norm of all elements, each counted once. `norm`: of the parts that this process has. All processes call it with the same
    tensors."""
    if order <= 0:
        raise NotImplementedError(f"norms of order {order} of tensors that are spread over processes")
    alike: dict = {}  # those that are spread over the same processes
    for t in tensors:
        spec = t._spec
        if any(p.is_partial() for p in spec.placements):
            raise NotImplementedError("norms of tensors whose terms were not summed up: redistribute() them")
        alike.setdefault((spec.mesh, tuple(d for d, p in enumerate(spec.placements) if p.is_shard())), []).append(t.to_local())
    total: Any = None
    infinite = math.isinf(order)
    for (mesh, dims), parts in alike.items():
        own = norm(parts, order)
        device = own.device
        if mesh.device_type != device.type:  # parts in host memory
            own = own.to(mesh.device_type)
        if not infinite:  # what norms come from can be summed up
            own = own ** order
        for d in dims:
            c10d.all_reduce(own, c10d.ReduceOp.MAX if infinite else c10d.ReduceOp.SUM, mesh.get_group(d))
        own = own.to(device)
        total = own if total is None else total.maximum(own) if infinite else total + own
    return total if infinite else total ** (1 / order)
