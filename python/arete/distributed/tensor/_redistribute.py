"""How tensors that are spread over processes come to lie otherwise: which parts travel, forward and, for gradients, back."""
from __future__ import annotations

from typing import Any, Sequence

from ... import _C, _operators
from ...autograd import Function
from .. import distributed_c10d as c10d
from .._functional_collectives import OPERATORS, _group, note
from ..device_mesh import DeviceMesh
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = ["cut", "exchanged", "gathered", "part_of", "placed", "reduce_scattered", "reduced", "redistributed"]

_OPS = {"sum": c10d.ReduceOp.SUM, "avg": c10d.ReduceOp.AVG, "max": c10d.ReduceOp.MAX, "min": c10d.ReduceOp.MIN,
        "product": c10d.ReduceOp.PRODUCT}


def part_of(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[tuple, tuple]:
    """The sizes of this process' part of a tensor, and the place of its first element; of a process that is not in the mesh it is empty."""
    sizes, starts = list(shape), [0] * len(shape)
    at = mesh.get_coordinate()
    if at is None:
        return (0,), (0,)
    for d, p in enumerate(placements):
        if isinstance(p, Shard):
            sizes[p.dim], start = Shard.local_shard_size_and_offset(sizes[p.dim], mesh.size(d), at[d])
            starts[p.dim] += start
    return tuple(sizes), tuple(starts)


def _sizes(total: int, n: int) -> list[int]:
    return [Shard.local_shard_size_and_offset(total, n, r)[0] for r in range(n)]


def _empty(sizes: Sequence[int], like: Any) -> Any:
    return _operators.empty(tuple(sizes), dtype=like.dtype, device=like.device)


def cut(whole: Any, group: Any, dim: int) -> Any:
    """This process' part along a dimension of what it has whole."""
    n, start = Shard.local_shard_size_and_offset(whole.shape[dim], group.size(), group.rank())
    return whole.narrow(dim, start, n).contiguous()


def gathered(local: Any, group: Any, dim: int, total: int, async_op: bool = False) -> Any:
    """The parts of all processes along a dimension, of `total` elements together."""
    n = group.size()
    note("all_gather_into_tensor")
    if total % n == 0:
        rows = local.movedim(dim, 0).contiguous()
        whole = _empty((total, *rows.shape[1:]), local)
        c10d.all_gather_into_tensor(whole, rows, group, async_op)
        return whole.movedim(0, dim).contiguous()
    parts = [_empty((*local.shape[:dim], size, *local.shape[dim + 1:]), local) for size in _sizes(total, n)]
    c10d.all_gather(parts, local.contiguous(), group)
    return _operators.cat(parts, dim)


def reduced(local: Any, group: Any, op: str = "sum", async_op: bool = False) -> Any:
    """The sum, or another reduction, of what all processes have."""
    note("all_reduce")
    whole = local.contiguous().clone()
    c10d.all_reduce(whole, _OPS[op], group, async_op)
    return whole


def reduce_scattered(local: Any, group: Any, dim: int, op: str = "sum", async_op: bool = False) -> Any:
    """This process' part of it along a dimension."""
    n = group.size()
    if local.shape[dim] % n:  # the parts are not equally large
        return cut(reduced(local, group, op), group, dim)
    note("reduce_scatter_tensor")
    rows = local.movedim(dim, 0).contiguous()
    part = _empty((rows.shape[0] // n, *rows.shape[1:]), local)
    c10d.reduce_scatter_tensor(part, rows, _OPS[op], group, async_op)
    return part.movedim(0, dim).contiguous()


def exchanged(local: Any, group: Any, here: int, there: int, total: int) -> Any:
    """Of what is in parts along the dimension `here`, of `total` elements together, this process' part along `there`."""
    note("shard_dim_alltoall")
    n, rank = group.size(), group.rank()
    pieces = [piece.contiguous() for piece in local.split(_sizes(local.shape[there], n), there)]
    parts = []
    for size in _sizes(total, n):
        sizes = list(pieces[rank].shape)
        sizes[here] = size
        parts.append(_empty(sizes, local))
    c10d.all_to_all(parts, pieces, group)
    return _operators.cat(parts, here)


def _shard_dim_alltoall(x: Any, gather_dim: int, shard_dim: int, group_name: Any) -> Any:
    group = _group(group_name)
    return exchanged(x, group, gather_dim, shard_dim, x.shape[gather_dim] * group.size())


OPERATORS["_dtensor::shard_dim_alltoall"] = _shard_dim_alltoall


def redistributed(local: Any, spec: Any, places: tuple, async_op: bool = False) -> Any:
    """This process' part of a tensor that lies as `places` say, from its part of one that lies as `spec` says. One message for each
    dimension of the mesh that changes; where several divide the same dimension of the tensor those after a changed one are taken back
    first, for they divide what it leaves, and made anew. RuntimeError where terms of sums were to come about."""
    mesh, now = spec.mesh, spec.placements
    changed = [d for d in range(mesh.ndim) if now[d] != places[d]]
    if not changed or mesh.get_coordinate() is None:
        return local
    if any(isinstance(places[d], Partial) for d in changed):
        raise RuntimeError("Can not redistribute to Partial: nothing becomes terms of a sum")
    dims = {p.dim for d in changed for p in (now[d], places[d]) if isinstance(p, Shard)}
    first, *later = [d for d in range(changed[0], mesh.ndim) if d in changed or isinstance(now[d], Shard) and now[d].dim in dims]
    async_op = async_op and not later

    def size_before(d: int) -> int:
        return part_of(spec.shape, mesh, now[:d])[0][now[d].dim]

    for d in reversed(later):
        if isinstance(now[d], Shard):
            local = gathered(local, mesh.get_group(d), now[d].dim, size_before(d))
        elif isinstance(now[d], Partial):
            local = reduced(local, mesh.get_group(d), now[d].reduce_op)
    here, there, group = now[first], places[first], mesh.get_group(first)
    if isinstance(here, Shard) and isinstance(there, Shard):
        if here != there:
            local = exchanged(local, group, here.dim, there.dim, size_before(first))
    elif isinstance(here, Shard):
        local = gathered(local, group, here.dim, size_before(first), async_op)
    elif isinstance(here, Partial):
        local = (reduce_scattered(local, group, there.dim, here.reduce_op, async_op) if isinstance(there, Shard) else
                 reduced(local, group, here.reduce_op, async_op))
    else:
        local = cut(local, group, there.dim)
    for d in later:
        if isinstance(places[d], Shard):
            local = cut(local, mesh.get_group(d), places[d].dim)
    return local


class _Redistribute(Function):
    """The same with a way back for the gradient: of what is whole it is the same in all processes, as is that of each term of a sum."""

    @staticmethod
    def forward(ctx: Any, local: Any, spec: Any, places: tuple, async_op: bool, forward_dtype: Any, backward_dtype: Any) -> Any:
        ctx.spec, ctx.places, ctx.async_op = spec, places, async_op
        ctx.dtype, ctx.travels_as = local.dtype, backward_dtype or local.dtype
        if forward_dtype is not None:
            local = local.to(forward_dtype)
        moved = redistributed(local, spec, places, async_op)
        return moved.view_as(moved)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        spec = ctx.spec
        back = tuple(Replicate() if isinstance(p, Partial) else p for p in spec.placements)
        here = type(spec)(spec.mesh, ctx.places, spec.shape)
        g = placed(g.to(ctx.travels_as).contiguous(), here, back, ctx.async_op)
        return g.to(ctx.dtype), None, None, None, None, None


class GradientFrom(_Redistribute):
    """A part whose gradients lie otherwise than it does itself."""

    @staticmethod
    def forward(ctx: Any, local: Any, spec: Any, places: tuple) -> Any:
        ctx.spec, ctx.places, ctx.async_op = spec, places, False
        ctx.dtype = ctx.travels_as = local.dtype
        return local.view_as(local)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple:
        return _Redistribute.backward(ctx, g)[:3]


def placed(local: Any, spec: Any, places: tuple, async_op: bool = False, forward_dtype: Any = None, backward_dtype: Any = None) -> Any:
    """redistributed(), with history where there is one. `forward_dtype`: what it becomes before it travels; `backward_dtype`: what its
    gradient does."""
    changes = spec.placements != places or forward_dtype is not None or backward_dtype is not None
    if changes and local.requires_grad and _C.is_grad_enabled():
        return _Redistribute.apply(local, spec, places, async_op, forward_dtype, backward_dtype)
    return redistributed(local if forward_dtype is None else local.to(forward_dtype), spec, places, async_op)
