"""fully_shard: each process keeps a part of a module's parameters, which are whole while it runs."""
from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterator, Optional, Union

from ... import _C
from ..device_mesh import DeviceMesh, init_device_mesh
from .. import distributed_c10d as c10d
from ..tensor._dtensor import DTensor, Spec, own_values
from ..tensor._parameters import asks, mark, spread_states
from ..tensor.placement_types import Replicate, Shard

__all__ = ["CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard",
           "register_fsdp_forward_method"]


@dataclasses.dataclass(frozen=True)
class MixedPrecisionPolicy:
    """`param_dtype`: what parameters are while they are used; `reduce_dtype`: in which gradients are summed (none: as they come);
    `output_dtype`: what a module's results are; `cast_forward_inputs`: whether its inputs become `param_dtype`. Shards, their gradients
    and the optimizer's state stay as they are.

    >>> arete.distributed.fsdp.MixedPrecisionPolicy(param_dtype=arete.bfloat16).param_dtype
    arete.bfloat16
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclasses.dataclass
class OffloadPolicy:
    """Nothing is kept in host memory.

    >>> arete.distributed.fsdp.OffloadPolicy()
    OffloadPolicy()
    """


@dataclasses.dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Shards, their gradients and so the optimizer's state are in host memory, which `pin_memory` keeps in its place.

    >>> arete.distributed.fsdp.CPUOffloadPolicy()
    CPUOffloadPolicy(pin_memory=True)
    """

    pin_memory: bool = True


class UnshardHandle:
    """What `unshard(async_op=True)` gives."""

    def __init__(self, module: "FSDPModule") -> None:
        self._module = module

    def wait(self) -> None:
        """From here on the parameters are whole."""
        self._module.unshard()


class _State:
    """What fully_shard() knows of the modules that it was given together."""

    def __init__(self, modules: list, mesh: DeviceMesh, reshard: Union[bool, int, None], mp: MixedPrecisionPolicy,
                 offload: OffloadPolicy) -> None:
        self.modules, self.mesh, self.mp, self.offload = modules, mesh, mp, offload
        self.kept_by = None if reshard is None or isinstance(reshard, bool) else _kept_by(self.shard_group, reshard)
        self.reshard = reshard if reshard is None else bool(reshard)
        self.network: Any = None  # of the root; made by the first forward pass
        self.is_root = False
        self.group: Any = None  # None: all parameters belong to others
        self.bound: list = []  # the parameters that the group has
        self.dims: list = []  # of each parameter: along which dimension it is spread
        self.inner: list = []  # of each parameter: how it was placed before
        self.places: list = []  # of each parameter: where modules have it, as (module, name)
        self.is_mixed = False  # some parameters were moved or cast, and others not yet
        self.waiting: set = set()  # modules of a call that have not come to their end

    @property
    def shard_group(self) -> Any:
        return self.mesh.get_group(self.mesh.ndim - 1)

    @property
    def replicas(self) -> Any:
        return self.mesh.get_group(0) if self.mesh.ndim == 2 else None

    def make(self, ignored: set, placement_of: Optional[Callable]) -> None:
        found: dict = {}  # by identity, since a parameter may be in several places
        names = []
        for module in self.modules:
            for prefix, inner in _own_modules(module, self):
                for name, p in inner._parameters.items():
                    if p is None or id(p) in ignored or _is_sharded(p):
                        continue
                    if asks(p) and any(place.is_shard() for place in p.placements):
                        raise NotImplementedError(f"fully_shard: parameter {prefix + name} was made of a DTensor that is in parts, of "
                                                  "which the module would compute; parallelize_module() spreads sharded modules, too")
                    if id(p) not in found:
                        found[id(p)] = (p, [])
                        names.append(prefix + name)
                    found[id(p)][1].append((inner, name))
        if not found:
            return
        self.places = [places for _, places in found.values()]
        parameters = [p for p, _ in found.values()]
        self.dims = [_dim_of(p, None if placement_of is None else placement_of(p)) for p in parameters]
        self.inner = [p._spec if isinstance(p, DTensor) else None for p in parameters]
        device = _device(self.mesh.device_type)
        for p in parameters:
            if not p.is_meta and p.device.type != device.type:
                p.data = p.data.to(device)
        offload = isinstance(self.offload, CPUOffloadPolicy)
        self.group = _C._distributed.ShardedParameters(
            parameters, names, self.shard_group, self.replicas, self.mp.param_dtype, self.mp.reduce_dtype, self.reshard is not False,
            device if offload else None, offload and self.offload.pin_memory, self.dims, self.kept_by)
        self.mark(parameters)

    def mark(self, parameters: list) -> None:
        self.bound = parameters
        for i, (p, dim) in enumerate(zip(parameters, self.dims)):
            placements = (Replicate(),) * (self.mesh.ndim - 1) + (Shard(dim),)
            group, first = self.group, self.group.first_row(i)
            sizes = _C.Size(group.full_sizes(i))
            inner = self.inner[i]
            if inner is None:
                mark(p, Spec(self.mesh, placements, sizes, gather=lambda values=None, i=i: group.gathered(i, values)))
            else:  # rows of what tensor parallelism has left
                starts = list(inner.offsets()[1])
                starts[dim] += first
                part = (tuple(own_values(p).shape), tuple(starts))
                mark(p, Spec(_both(self.mesh, inner.mesh), placements + inner.placements, inner.shape, part,
                             lambda values=None, i=i, inner=inner: inner.whole(group.gathered(i, values))))
            p._fsdp_state = self

    def parameters(self) -> list:
        return [places[0][0]._parameters[places[0][1]] for places in self.places]

    def rebind(self) -> None:
        """After modules were given other parameters."""
        if self.group is None:
            return
        parameters = self.parameters()
        # Of modules that make one group, each brings its own parameters: the last one's call finds all of them.
        trained = {p.dtype for p in parameters if p.requires_grad}
        self.is_mixed = len({p.device for p in parameters}) > 1 or len(trained) > 1
        if self.is_mixed:
            return
        for places, p in zip(self.places, parameters):
            for module, name in places:  # shared ones stay shared
                module._parameters[name] = p
        self.group.rebind(parameters)
        self.mark(parameters)

    # ---- calls

    def begin(self) -> None:
        """Before the first forward pass of the whole network."""
        self.is_root = True
        self.network = _C._distributed.ShardedNetwork()
        for module in self.modules:
            for inner in module.modules():
                state = inner.__dict__.get("_fsdp_state")
                if state is None:
                    continue
                state.network = self.network
                state.is_root = state is self
                if state.group is not None:
                    state.group.join(self.network)
        if self.group is not None and self.reshard is None:
            self.group.reshard_after_forward = False  # the backward pass begins here

    def before(self, module: Any, args: tuple, kwargs: dict) -> Optional[tuple]:
        if id(module) in self.waiting:
            self.waiting.discard(id(module))
            return None
        if self.is_mixed:
            raise RuntimeError("fully_shard: parameters of modules that were sharded together were moved to different devices or dtypes")
        if self.network is None:
            self.begin()
        if self.is_root and not _C._passes_under_way():
            self.network.begin_forward()
        changed = None
        if self.mp.param_dtype is not None and self.mp.cast_forward_inputs:
            changed = args, kwargs = _cast((args, kwargs), self.mp.param_dtype)
        if self.group is not None:
            self.group.before_forward(list(_tensors((args, kwargs))))
        self.waiting = {id(m) for m in self.modules} - {id(module)}
        return changed

    def after(self, module: Any, args: tuple, output: Any) -> Any:
        if self.waiting:
            return None
        if self.mp.output_dtype is not None:
            output = _cast(output, self.mp.output_dtype)
        if self.group is not None:
            self.group.after_forward(list(_tensors(output)))
        return output


_parts_of_groups: dict = {}  # by the group's name and how many they are


def _kept_by(group: Any, size: int) -> Any:
    """So many processes of a group that follow each other, this one among them, as a group. All call it."""
    part = _parts_of_groups.get((group.group_name, size))
    if part not in c10d._pg_map:  # there was none, or it has gone with the default group
        first = group.rank() // size * size
        part = c10d.split_group(group, [list(range(first, first + size))], group._timeout)
        _parts_of_groups[group.group_name, size] = part
    return part


def _dim_of(parameter: Any, placement: Any) -> int:
    """The dimension that a placement for a parameter says; none: the first."""
    if placement is None:
        return 0
    if not isinstance(placement, Shard):
        raise ValueError(f"fully_shard: shard_placement_fn gives Shard() or None, got {placement!r}")
    dims = parameter.dim()
    if not -dims <= placement.dim < dims:
        raise ValueError(f"fully_shard: {placement} of a parameter with {dims} dimensions")
    return placement.dim % dims


def _is_sharded(parameter: Any) -> bool:
    return getattr(parameter, "_fsdp_state", None) is not None


def _both(mesh: DeviceMesh, inner: DeviceMesh) -> DeviceMesh:
    """The mesh of which both are parts."""
    root = mesh._root
    if root is None or inner._root is not root:
        raise ValueError("fully_shard: with tensor parallelism both meshes must be parts of one, as mesh[\"dp\"] and mesh[\"tp\"]")
    return root[(*mesh.mesh_dim_names, *inner.mesh_dim_names)]


def _device(kind: str) -> Any:
    return _C.device(kind, _C._cuda.current_device()) if kind == "cuda" else _C.device(kind)


def _own_modules(module: Any, state: _State, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Those below a module that were not given to fully_shard() themselves."""
    yield prefix, module
    for name, child in module._modules.items():
        if child is not None and child.__dict__.get("_fsdp_state", state) is state:
            yield from _own_modules(child, state, f"{prefix}{name}.")


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, _C.Tensor):
        yield value.__dict__.get("_local_tensor", value) if isinstance(value, DTensor) else value  # which has the history
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from _tensors(v)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for f in dataclasses.fields(value):
            yield from _tensors(getattr(value, f.name))


def _cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, _C.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_cast(v, dtype) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(v, dtype) for v in value)
    if isinstance(value, dict):
        return type(value)((k, _cast(v, dtype)) for k, v in value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{f.name: _cast(getattr(value, f.name), dtype) for f in dataclasses.fields(value) if f.init})
    return value


class FSDPModule:
    """What fully_shard() adds to a module's class."""

    _fsdp_state: _State

    def _states(self, recurse: bool) -> list:
        states = []
        for m in self.modules() if recurse else [self]:  # type: ignore[attr-defined]
            state = m.__dict__.get("_fsdp_state")
            if state is not None and state not in states:
                states.append(state)
        return states

    def _set(self, name: str, value: Any, recurse: bool) -> None:
        for state in self._states(recurse):
            if state.group is not None:
                setattr(state.group, name, value)

    def unshard(self, async_op: bool = False) -> Optional[UnshardHandle]:
        """Makes this module's parameters whole until `reshard()`; those of modules below that were sharded by themselves are not. With
        `async_op` it only begins to, and `wait()` of the result does the rest."""
        group = self._fsdp_state.group
        if group is not None:
            group.unshard(not async_op)
        return UnshardHandle(self) if async_op else None

    def reshard(self) -> None:
        """Gives the memory of whole parameters back."""
        if self._fsdp_state.group is not None:
            self._fsdp_state.group.reshard()

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """False: gradients are only summed up, whole; the next pass with True reduces the sums."""
        self._set("reduces", requires_gradient_sync, recurse)
        self._set("all_reduces", requires_gradient_sync, recurse)

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """False: with replicas, gradients are reduced among those who have the same parameters' shards, and not beyond."""
        self._set("all_reduces", requires_all_reduce, recurse)

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Gradients are complete at the end of every pass, so this changes nothing."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether the memory of whole parameters is given back between forward and backward pass."""
        for state in self._states(recurse):
            state.reshard = bool(reshard_after_forward)
        self._set("reshard_after_forward", reshard_after_forward, recurse)

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """False: whole parameters stay until something changes them, which saves gathering them for the next micro-batch."""
        self._set("reshard_after_backward", reshard_after_backward, recurse)

    def set_modules_to_forward_prefetch(self, modules: list) -> None:
        """Which modules' parameters are gathered when this one begins, in the place of the next one's."""
        self._fsdp_state.group.set_forward_prefetch(_groups(modules))

    def set_modules_to_backward_prefetch(self, modules: list) -> None:
        """Which modules' parameters are gathered when the pass backward comes to this one, in the place of the one's before it."""
        self._fsdp_state.group.set_backward_prefetch(_groups(modules))

    def set_gradient_divide_factor(self, factor: float) -> None:
        """By what gradients are divided, in the place of the number of processes."""
        self._set("divisor", float(factor), False)

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """False is refused."""
        if not unshard_in_backward:
            raise NotImplementedError("set_unshard_in_backward: parameters are gathered whenever the pass backward comes to a module")

    def set_post_optim_event(self, event: Any) -> None:
        """What follows in the current stream comes after the event, as gathering does."""
        event.wait()

    def set_all_reduce_hook(self, hook: Any, *, stream: Any = None) -> None:
        """`hook(gradients)` is called at the end of each pass whose gradients this module's group reduces, with the mean over all
        processes: of the rows of this process of all parameters, one after the other, in one dimension; each begins at a multiple of 256
        bytes (64 elements of float32), with zeros before it. What it writes there, by
        collectives of other groups for instance, the parameters get. It is in the current stream; another one is refused. None
        removes the hook."""
        if stream is not None:
            raise NotImplementedError("set_all_reduce_hook: the hook is called in the current stream, stream must be None")
        if hook is not None and not callable(hook):
            raise TypeError(f"set_all_reduce_hook: hook must be callable or None, got {type(hook).__name__}")
        group = self._fsdp_state.group
        if group is not None:
            group.set_all_reduce_hook(None if hook is None else lambda gradients: hook(gradients))

    def set_custom_all_gather(self, comm: Any) -> None:
        """Refused."""
        raise NotImplementedError("set_custom_all_gather is not supported")

    def set_custom_reduce_scatter(self, comm: Any) -> None:
        """Refused."""
        raise NotImplementedError("set_custom_reduce_scatter is not supported")

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Gradients are divided before they are summed in any case, so this changes nothing."""

    def set_allocate_memory_from_process_group_for_comm(self, enable: bool) -> None:
        """True is refused."""
        if enable:
            raise NotImplementedError("set_allocate_memory_from_process_group_for_comm is not supported")

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        for state in self._states(False):
            if state.group is not None:
                state.group.reshard()
        result = super()._apply(*args, **kwargs)  # type: ignore[misc]
        self._fsdp_state.rebind()
        return result

    def __deepcopy__(self, memo: dict) -> Any:
        raise AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise NotImplementedError("a module that is spread over processes is not pickled: save its state with distributed.checkpoint")


def _groups(modules: list) -> list:
    if not all(isinstance(m, FSDPModule) for m in modules):
        raise ValueError("a module to be gathered ahead was not given to fully_shard")
    return [m._fsdp_state.group for m in modules if m._fsdp_state.group is not None]


_classes: dict[type, type] = {}


def _class_of(kind: type) -> type:
    if kind not in _classes:
        _classes[kind] = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {"__module__": kind.__module__})
    return _classes[kind]


def _before(module: Any, args: tuple, kwargs: dict) -> Any:
    return module._fsdp_state.before(module, args, kwargs)


def _after_loading(module: Any, _: Any) -> None:
    """load_state_dict(assign=True) gives modules other parameters."""
    state = module._fsdp_state
    if any(p is not q for p, q in zip(state.parameters(), state.bound)):
        state.rebind()


def _after(module: Any, args: tuple, output: Any) -> Any:
    return module._fsdp_state.after(module, args, output)


def fully_shard(module: Any, *, mesh: Optional[DeviceMesh] = None, reshard_after_forward: Union[bool, int, None] = None,
                shard_placement_fn: Optional[Callable] = None, mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),
                offload_policy: OffloadPolicy = OffloadPolicy(), ignored_params: Optional[set] = None) -> Any:
    """Each process of a mesh keeps some rows of each parameter of a module (or of modules that are used together), and all rows only while
    the module runs, forward and backward. Call it for the modules below first, then for the whole: each call makes a group whose
    parameters are gathered together, one group ahead of its use. Gradients are averaged over all processes, and are those of the rows.

    `mesh`: of one dimension, or of two: the rows are then spread along the second, and the same along the first. It is of all processes
    if it is not given. `reshard_after_forward`: whether all rows are given back between forward and backward pass; if not given, they are
    but for the outermost module; a number: so many processes that follow each other, as those of one machine, keep all rows together
    meanwhile, more of them each. `shard_placement_fn(parameter)` gives Shard(d), the dimension of which each process keeps a part, or None
    for the first; with another than the first a parameter's strides are those of a tensor that was transposed.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    >>> for layer in net: _ = dist.fsdp.fully_shard(layer)
    >>> net = dist.fsdp.fully_shard(net)
    >>> net(arete.ones(1, 2)).sum().backward()
    >>> net[0].weight.grad.shape, type(net).__name__, net[0].weight.placements
    (Size([3, 2]), 'FSDPSequential', (Shard(dim=0),))
    >>> dist.destroy_process_group()
    """
    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    if not modules or any(not hasattr(m, "_parameters") for m in modules):
        raise ValueError(f"fully_shard expects a module or a list of modules, got {module!r}")
    for m in modules:
        if "_fsdp_state" in m.__dict__:
            raise AssertionError("Each distinct composable distributed API can only be applied to a module once: fully_shard has already "
                                 f"been applied to {type(m).__name__}")
        if type(m).__name__ in ("ModuleList", "ModuleDict") and type(m).forward is type(m).__mro__[-2].forward:
            raise ValueError(f"fully_shard does not support containers that do not implement forward: {m}")
    if mesh is None:
        if not c10d.is_initialized():
            c10d.init_process_group()
        kind = "cpu" if c10d._of(None)._home.type == "cpu" and not _C._cuda.is_available() else "cuda"
        mesh = init_device_mesh(kind, (c10d.get_world_size(),))
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    if type(mp_policy) is not MixedPrecisionPolicy:
        raise TypeError("fully_shard: mp_policy must be a MixedPrecisionPolicy")
    if not isinstance(offload_policy, OffloadPolicy):
        raise TypeError("fully_shard: offload_policy must be an OffloadPolicy")
    shards = mesh.size(mesh.ndim - 1)
    if not isinstance(reshard_after_forward, (bool, type(None))):
        if reshard_after_forward < 1 or shards % reshard_after_forward != 0:
            raise ValueError(f"If passing reshard_after_forward as an int, it should be a factor of {shards}, not {reshard_after_forward}")
        if reshard_after_forward in (1, shards):
            reshard_after_forward = reshard_after_forward == shards and shards > 1
    ignored = {id(p) for p in ignored_params or ()}
    state = _State(modules, mesh, reshard_after_forward, mp_policy, offload_policy)
    state.make(ignored, shard_placement_fn)
    device = _device(mesh.device_type)
    for m in modules:
        for _, inner in _own_modules(m, state):
            for name, b in inner._buffers.items():
                if b is not None and not b.is_meta and b.device.type != device.type:
                    inner._buffers[name] = b.to(device)
        m._fsdp_state = state
        m.__class__ = _class_of(type(m))
        m.register_load_state_dict_post_hook(_after_loading)
        m.register_forward_pre_hook(_before, prepend=True, with_kwargs=True)
        m.register_forward_hook(_after, always_call=True)
    for places in state.places:
        for inner, _ in places:
            spread_states(inner)
    return module


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Has a method other than forward() find the module's parameters whole, as forward() does. Does nothing for a module that was not given
    to fully_shard()."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    method = getattr(type(module), method_name)

    def run(*args: Any, **kwargs: Any) -> Any:
        state, output = module._fsdp_state, None
        changed = state.before(module, args, kwargs)
        if changed is not None:
            args, kwargs = changed
        try:
            output = method(module, *args, **kwargs)
        finally:
            output = state.after(module, args, output)
        return output

    module.__dict__[method_name] = run
