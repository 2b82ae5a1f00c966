"""Tensors spread over processes: they are stored, become whole and are placed otherwise, and operators compute with their parts (`_rules`);
modules do as `parallel.parallelize_module` says. docs/sharding.md has examples."""
from __future__ import annotations

import inspect
from typing import Any, Callable, Optional, Sequence

from ... import _C, _operators
from ...nn.parameter import Parameter
from ..device_mesh import DeviceMesh as DeviceMesh, init_device_mesh as init_device_mesh
from . import _lists as _lists
from . import _rules as _rules
from ._dtensor import DTensor as DTensor
from ._dtensor import Spec as _Spec
from ._dtensor import distribute_tensor as distribute_tensor
from ._dtensor import _mesh, _normal
from ._parameters import spread_states
from ._redistribute import part_of
from .placement_types import Partial as Partial, Placement as Placement, Replicate as Replicate, Shard as Shard


def distribute_module(module: Any, device_mesh: Optional[DeviceMesh] = None, partition_fn: Optional[Callable] = None,
                      input_fn: Optional[Callable] = None, output_fn: Optional[Callable] = None) -> Any:
    """Makes DTensors of a module's parameters and buffers: those that `partition_fn(name, module, mesh)`, which is called with each module
    inside, has not made so are whole in each process, with the values of rank 0. `input_fn(module, inputs, mesh)` and `output_fn(module,
    outputs, mesh)` place what the module is called with, and gives. Then make the optimizer.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> mesh = dist.init_device_mesh("cpu", (1,))
    >>> def rows(name, module, mesh):
    ...     module.weight = nn.Parameter(dist.tensor.distribute_tensor(module.weight, mesh, [dist.tensor.Shard(0)]))
    >>> net = dist.tensor.distribute_module(nn.Linear(2, 4), mesh, rows)
    >>> net.weight.placements, net.bias.placements
    ((Shard(dim=0),), (Replicate(),))
    >>> dist.destroy_process_group()
    """
    if device_mesh is None:  # one for all: of the device that the module is on
        device_mesh = _mesh(None, next((t.device for t in (*module.parameters(), *module.buffers())), _C.device("cpu")))
    for name, inner in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, inner, device_mesh)
        for own in (inner._parameters, inner._buffers):
            for key, value in own.items():
                if value is not None and not isinstance(value, DTensor):
                    made = distribute_tensor(value, device_mesh, None)
                    own[key] = Parameter(made, value.requires_grad) if own is inner._parameters else made
        spread_states(inner)
    if input_fn is not None:
        place = input_fn if _takes_module(input_fn) else lambda m, inputs, mesh: input_fn(inputs, mesh)
        module.register_forward_pre_hook(lambda m, inputs: place(m, inputs, device_mesh))
    if output_fn is not None:
        show = output_fn if _takes_module(output_fn) else lambda m, outputs, mesh: output_fn(outputs, mesh)
        module.register_forward_hook(lambda m, inputs, outputs: show(m, outputs, device_mesh))
    return module


def _takes_module(function: Callable) -> bool:
    """Older programs' functions get the inputs, or outputs, and the mesh alone."""
    return len(inspect.signature(function).parameters) != 2


def _sizes(size: tuple) -> list:
    return list(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else list(size)


def _check_layout(layout: Any) -> None:
    if layout not in (None, _operators.strided):
        raise NotImplementedError(f"layout={layout!r} is not supported yet: DTensors are strided")


def _same(value: Any) -> Any:
    """A function that makes DTensors of one value."""

    def make(*size: Any, requires_grad: bool = False, dtype: Any = None, layout: Any = None, device_mesh: Optional[DeviceMesh] = None,
             placements: Optional[Sequence[Placement]] = None) -> DTensor:
        _check_layout(layout)
        sizes = _sizes(size)
        mesh = _mesh(device_mesh, _C.device("cpu"))
        places = _normal(mesh, placements, len(sizes))
        own, _ = part_of(sizes, mesh, places)
        local = _operators.full(own, value, dtype=dtype or _C.get_default_dtype(), device=mesh.device_type)
        return DTensor(local, _Spec(mesh, places, _C.Size(sizes)), requires_grad)

    make.__doc__ = f"A DTensor of {value}."
    return make


zeros, ones = _same(0), _same(1)
zeros.__name__, ones.__name__ = "zeros", "ones"


def empty(*size: Any, **options: Any) -> DTensor:
    """A DTensor of whatever values; they are zeros."""
    return zeros(*size, **options)


def full(size: Sequence[int], fill_value: Any, **options: Any) -> DTensor:
    """A DTensor of one value."""
    return _same(fill_value)(list(size), **options)


def _drawn(name: str) -> Any:
    def make(*size: Any, requires_grad: bool = False, dtype: Any = None, layout: Any = None, device_mesh: Optional[DeviceMesh] = None,
             placements: Optional[Sequence[Placement]] = None) -> DTensor:
        _check_layout(layout)
        mesh = _mesh(device_mesh, _C.device("cpu"))
        whole = getattr(_operators, name)(_sizes(size), dtype=dtype, device=mesh.device_type)
        made = distribute_tensor(whole, mesh, placements)
        return DTensor(made.to_local(), made._spec, requires_grad)

    make.__name__ = name
    make.__doc__ = f"A DTensor of the numbers that {name}() gives rank 0."
    return make


rand, randn = _drawn("rand"), _drawn("randn")
