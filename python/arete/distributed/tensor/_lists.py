"""Operators on lists of tensors of which processes have parts: each of this process' parts, and for norms and extremes one message."""
from __future__ import annotations

import math
from typing import Any, Callable, Optional

from ... import _C, _operators
from .. import distributed_c10d as c10d
from ._dtensor import HANDLERS, DTensor, Spec, _Face, _Tensor, own_values
from ._rules import _summed

__all__ = ["extremes_of_lists", "norms_of_lists", "of_lists"]


def _spread(x: Any) -> Optional[DTensor]:
    """Such a tensor, or a parameter that is one unless a module runs that gathered it."""
    if isinstance(x, DTensor) and issubclass(type(x), DTensor):
        return x
    if not isinstance(x, _Face) or tuple(own_values(x).shape) != tuple(x._spec.offsets()[0]):
        return None
    return DTensor._of(x.to_local(), x._spec)


def _whole_number(x: Any) -> Any:
    """A tensor that stands for numbers is the same in all processes."""
    y = _spread(x) if isinstance(x, _Tensor) else None
    return x if y is None else y.full_tensor()


def of_lists(call: Callable, arguments: list, in_place: bool) -> Any:
    """`call` of lists that stand for each other element by element, and of what goes with them. The tensors at one place come to lie as the
    first of them that is spread (in place: the first) does, without terms of sums, and so does the result."""
    lists = [k for k, a in enumerate(arguments) if isinstance(a, (list, tuple)) and a and isinstance(a[0], _Tensor)]
    parts = [list(a) if k in lists else _whole_number(a) for k, a in enumerate(arguments)]
    specs: list[Optional[Spec]] = [None] * len(arguments[lists[0]])
    if any(len(parts[k]) != len(specs) for k in lists):
        return call(*arguments)  # the error that is made there
    for i in range(len(specs)):
        found = {k: x for k in lists if (x := _spread(parts[k][i])) is not None}
        if not found:
            continue
        if in_place and lists[0] not in found:
            raise ValueError(f"tensor {i} of the first list is a plain one, to which one is written that is spread over processes")
        first = next(iter(found.values()))
        if any(p.is_partial() for p in first.placements):
            if in_place:
                raise NotImplementedError(f"tensor {i} of the first list: terms of a sum are redistribute()d first")
            first = _summed(first)
        specs[i] = first._spec
        for k in lists:
            x = found.get(k)
            if x is None:
                if parts[k][i].numel() != 1:
                    raise ValueError(f"tensor {i} of one list is spread over processes, and plain in another: distribute_tensor() it")
            elif x.device_mesh != first.device_mesh or tuple(x.shape) != tuple(first.shape):
                raise ValueError(f"tensors {i} of the lists are on different meshes, or of different shapes")
            else:
                same = x._spec == first._spec
                parts[k][i] = (x if same else x.redistribute(placements=first.placements)).to_local()
    results = call(*parts)
    if in_place:
        return results
    return tuple(y if spec is None else DTensor._of(y, spec) for y, spec in zip(results, specs))


def norms_of_lists(tensors: list, order: float, dtype: Any, root: bool) -> tuple:
    """The norm of each tensor, or the sum of powers that it is the root of, of the elements of all processes."""
    if root and math.isinf(order):
        kind = c10d.ReduceOp.MAX if order > 0 else c10d.ReduceOp.MIN
        return _numbers(lambda parts: _C._foreach_norm(parts, order, dtype, True), tensors, kind, lambda _: 0.0 if order > 0 else math.inf)
    # Half types would lose what the other processes add.
    wide = dtype
    if not any(t.is_complex() for t in tensors):
        wide = _C.float64 if _C.float64 in (dtype, *(t.dtype for t in tensors)) else _C.float32
    sums = _numbers(lambda parts: _C._foreach_norm(parts, order, wide, root and order == 0), tensors, c10d.ReduceOp.SUM, None)
    powers = sums if not root or order == 0 else tuple(x ** (1 / order) for x in sums)
    return tuple(x.to(dtype or (t.dtype if not t.is_complex() else x.dtype)) for x, t in zip(powers, tensors))


def extremes_of_lists(tensors: list) -> tuple:
    """The largest element of each tensor, of all processes."""
    def least(dtype: Any) -> Any:
        if dtype.is_floating_point:
            return -math.inf
        return -(1 << (8 * dtype.itemsize - 1)) if dtype.is_signed and dtype != _C.bool else 0

    return _numbers(_C._foreach_max, tensors, c10d.ReduceOp.MAX, least)


def _numbers(call: Callable, tensors: list, kind: c10d.ReduceOp, identity: Optional[Callable]) -> tuple:
    """What `call` makes of each process' parts, combined. `identity`: what a part without elements gives, by its dtype, where `call` needs
    one."""
    found = [None if (x := _spread(t)) is None else _summed(x) for t in tensors]
    parts = [t if x is None else x.to_local() for x, t in zip(found, tensors)]
    if identity is not None:
        for i, (x, part) in enumerate(zip(found, parts)):
            if x is not None and part.numel() == 0 and x.numel() > 0:  # all rows are in other processes
                parts[i] = _operators.full((1,), identity(part.dtype), dtype=part.dtype, device=part.device)
    numbers = list(call(parts))
    alike: dict = {}  # those that lie over the same processes: one message
    for i, x in enumerate(found):
        if x is not None:
            dims = tuple(d for d, p in enumerate(x.placements) if p.is_shard())
            alike.setdefault((x.device_mesh, dims, numbers[i].dtype, numbers[i].device), []).append(i)
    for (mesh, dims, _, device), places in alike.items():
        together = _operators.stack([numbers[i] for i in places])
        if dims:
            if together.requires_grad and _C.is_grad_enabled():
                raise NotImplementedError("norms and extremes of lists of tensors that are spread over processes have no gradient here: "
                                          "take them one by one")
            together = together.detach().to(mesh.device_type)
            for d in dims:
                c10d.all_reduce(together, kind, mesh.get_group(d))
            together = together.to(device)
        for i, number in zip(places, together.unbind()):
            numbers[i] = found[i]._spec.same_in_all(number)  # type: ignore[union-attr]
    return tuple(numbers)


HANDLERS.update(of_lists=of_lists, norms_of_lists=norms_of_lists, extremes_of_lists=extremes_of_lists)
