"""Functions of plain tensors that are called with tensors that are spread over processes: each process calls them with its parts."""
from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Sequence

from .... import _C
from ....utils import _pytree
from ...device_mesh import DeviceMesh
from .._dtensor import DTensor

__all__ = ["local_map"]


def local_map(func: Optional[Callable] = None, out_placements: Any = None, in_placements: Optional[tuple] = None,
              in_grad_placements: Optional[tuple] = None, device_mesh: Optional[DeviceMesh] = None, *,
              redistribute_inputs: bool = False) -> Callable:
    """A function that calls `func` with this process' parts of DTensors, and makes DTensors of what it gives, placed as `out_placements`
    say: placements of the one result, or a tuple of them for several, with None for what is no tensor. `in_placements`, one for each
    argument: how the DTensors lie, ValueError if one does not, or with `redistribute_inputs` come to lie. `in_grad_placements`: how the
    gradients of the parts do. Without a DTensor among the arguments results stay plain. Without `func` it is a decorator.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> mesh, rows = dist.init_device_mesh("cpu", (1,)), [dist.tensor.Shard(0)]
    >>> double = dist.tensor.experimental.local_map(lambda x: x * 2, rows, (rows,))
    >>> double(dist.tensor.distribute_tensor(arete.ones(2), mesh, rows)).full_tensor()
    tensor([2., 2.])
    >>> dist.destroy_process_group()
    """
    if func is None:
        return functools.partial(local_map, out_placements=out_placements, in_placements=in_placements, device_mesh=device_mesh,
                                 in_grad_placements=in_grad_placements, redistribute_inputs=redistribute_inputs)

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        flat, form = _pytree.tree_flatten(args)
        for name, given in (("in_placements", in_placements), ("in_grad_placements", in_grad_placements)):
            if given is not None and len(given) != len(flat):
                raise AssertionError(f"{name} length {len(given)} does not match the number of input args {len(flat)}!")
        mesh, spread, local = device_mesh, False, []
        for k, x in enumerate(flat):
            wanted = None if in_placements is None else in_placements[k]
            if not isinstance(x, DTensor):
                if wanted is not None and not isinstance(x, _C.Tensor):
                    raise AssertionError(f"Non-Tensor input {x} expects None placements but received {wanted}!")
                local.append(x)
                continue
            mesh, spread = x.device_mesh if mesh is None else mesh, True
            if in_placements is not None:
                if wanted is None:
                    raise AssertionError(f"DTensor input {x} expects placements but received None!")
                if tuple(wanted) != x.placements:
                    if not redistribute_inputs:
                        raise ValueError(f"arg {x} in local_map has a mismatched placements: arg placements is {x.placements} but the "
                                         f"input placements is {wanted}! If redistribute_inputs is wanted, set "
                                         "redistribute_inputs=True to local_map.")
                    x = x.redistribute(placements=wanted)
            grad: Optional[Sequence] = None if in_grad_placements is None else in_grad_placements[k]
            local.append(x.to_local(grad_placements=grad))
        result = func(*_pytree.tree_unflatten(local, form), **kwargs)
        if not spread:
            return result
        flat, form = _pytree.tree_flatten(result)
        places = out_placements if isinstance(out_placements, tuple) else (out_placements,)
        if len(places) != len(flat):
            raise AssertionError("local_map requires one PlacementType be provided for each output value, received "
                                 f"{len(places)} out_placements but {len(flat)} is expected!")
        made = []
        for y, place in zip(flat, places):
            if isinstance(y, DTensor):
                raise AssertionError(f"torch.Tensor output expected but received {type(y)}: {y}")
            if not isinstance(y, _C.Tensor) and place is not None:
                raise AssertionError(f"Non-tensor output {y} expects None placements but received {place}!")
            made.append(DTensor.from_local(y, mesh, place) if isinstance(y, _C.Tensor) else y)
        return _pytree.tree_unflatten(made, form)

    return mapped
