"""Parameters of which each process has a part: DTensors for whoever looks at them, and in states of their modules."""
from __future__ import annotations

import copy
from typing import Any, Callable

from ... import _C, _operators
from ..._grad_mode import no_grad
from ._dtensor import (_FACTS, HANDLERS, DTensor, Spec, _Face, _grad, _pickled, _register_hook, _remade_spec, _set_grad, _Tensor,
                       own_values)

__all__ = ["DRAWN", "asks", "mark", "spread_states"]

_marked: dict[tuple, type] = {}


def mark(parameter: Any, spec: Spec, asks: bool = False) -> None:
    """Makes a parameter of which this process has a part a DTensor, too. With `asks` operators take it for one; else they see the part,
    or what a module gathered before it computes."""
    kind = type(parameter)
    kind = getattr(kind, "_unmarked", kind)
    if (kind, asks) not in _marked:
        asking = {"__torch_function__": classmethod(_ask), "register_hook": _register_hook}
        _marked[kind, asks] = type(kind.__name__, (_Face, kind), {
            **DRAWN, "copy_": _copy, "grad": property(_grad, _set_grad), "detach": _detach, "data": property(_detach, _set_data),
            "__deepcopy__": _copied, "__reduce_ex__": _reduced,
            "__module__": kind.__module__, "_unmarked": kind, **(asking if asks else {})})
    parameter.__class__ = _marked[kind, asks]
    parameter._spec = spec


def asks(parameter: Any) -> bool:
    """Whether operators take it for a DTensor."""
    return isinstance(parameter, DTensor) and type(parameter).__torch_function__ is not _C._disabled_torch_function_impl


# What is of a parameter as an object, not of its values.
_OF_OBJECTS = _FACTS | frozenset(("__get__", "__set__", "requires_grad_", "retain_grad", "register_post_accumulate_grad_hook", "get_device",
                                  "is_pinned", "is_shared", "is_inference", "ndimension"))


def _ask(cls: type, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Operators on a parameter are those on DTensors, and it may be written to."""
    name = getattr(func, "__name__", "")
    if name not in _OF_OBJECTS or not isinstance(args[0], cls):
        return DTensor.__torch_function__(func, types, args, kwargs)
    with _C.DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
    if isinstance(result, _Tensor) and result is not args[0]:
        raise NotImplementedError("no such attribute of a parameter that is spread over processes; take to_local() or full_tensor()")
    return result


def _drawn(name: str) -> Callable:
    """A method that draws: the numbers of all of the tensor, of which this process keeps its own, so that equal seeds give one process'
    values."""
    own = getattr(_Tensor, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        sizes, starts = self._spec.offsets()
        local = own_values(self)
        if tuple(local.shape) == tuple(self.shape) or local.is_meta or (self.requires_grad and _C.is_grad_enabled()):
            with _C.DisableTorchFunctionSubclass():
                return own(self, *args, **kwargs)
        whole = getattr(_operators.empty(tuple(self.shape), dtype=local.dtype, device=local.device), name)(*args, **kwargs)
        for d, (n, first) in enumerate(zip(sizes, starts)):
            whole = whole.narrow(d, first, n)
        local.copy_(whole)
        return self

    method.__name__ = name
    return method


DRAWN = {name: _drawn(name) for name in ("uniform_", "normal_", "log_normal_", "exponential_", "cauchy_", "geometric_", "bernoulli_",
                                          "random_")}


def _copy(self: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
    """A whole source gives this process' part, and one that lies otherwise is placed as this is."""
    if isinstance(source, DTensor):
        source = source.to_local() if source._spec == self._spec else source.full_tensor()
    if isinstance(source, _Tensor) and tuple(source.shape) == tuple(self.shape):
        if tuple(own_values(self).shape) != tuple(source.shape):
            for d, (n, first) in enumerate(zip(*self._spec.offsets())):
                source = source.narrow(d, first, n)
    with _C.DisableTorchFunctionSubclass():
        return _Tensor.copy_(self, source, *args, **kwargs)


def _detach(self: Any) -> Any:
    """The values without history: a DTensor, or all of them while a module runs that gathered them."""
    local = own_values(self)
    return DTensor(local, self._spec) if tuple(local.shape) == tuple(self._spec.offsets()[0]) else local


_own_data = _Tensor.data


def _set_data(self: Any, value: Any) -> None:
    """Of a parameter that operators take for a DTensor another one, whose placements it has then."""
    if asks(self):
        if not isinstance(value, DTensor):
            raise RuntimeError("set_data: a parameter that is a DTensor gets data of one, not of a plain tensor: distribute_tensor() it")
        self._spec = value._spec
    elif isinstance(value, DTensor) and value._spec != self._spec:
        raise ValueError(f"set_data: the parameter is placed as {self._spec.placements} of {tuple(self.shape)}, the value as "
                         f"{value.placements} of {tuple(value.shape)}; redistribute() it")
    _own_data.__set__(self, value.to_local() if isinstance(value, DTensor) else value)


def _check_own(self: Any, what: str) -> None:
    if getattr(self, "_fsdp_state", None) is not None:
        raise NotImplementedError(f"a parameter that fully_shard() spread is not {what}: its module gathers it. Take its state_dict()")


def _copied(self: Any, memo: dict) -> Any:
    _check_own(self, "copied")
    with no_grad():
        made = self._unmarked(own_values(self).clone(), self.requires_grad)
    mark(made, self._spec, asks(self))
    if self.grad is not None:
        made.grad = copy.deepcopy(self.grad, memo)
    memo[id(self)] = made
    return made


def _reduced(self: Any, protocol: Any) -> Any:
    _check_own(self, "pickled")
    return _remade_parameter, (self._unmarked, own_values(self), *_pickled(self), self.requires_grad, asks(self))


def _remade_parameter(kind: type, local: Any, mesh: tuple, places: tuple, shape: tuple, requires_grad: bool, asks: bool) -> Any:
    made = kind(local, requires_grad)
    mark(made, _remade_spec(mesh, places, shape), asks)
    return made


# ---- states of modules


def spread_states(module: Any) -> None:
    """Has state dictionaries of a module give DTensors for its own parameters that were marked, and take whole ones and others' parts."""
    if "_spreads_states" in module.__dict__:
        return
    module.__dict__["_spreads_states"] = True
    module.register_state_dict_pre_hook(_show_parts)
    module._register_state_dict_hook(_as_dtensors)
    module._register_load_state_dict_pre_hook(_take_parts, with_module=True)


def _show_parts(module: Any, *rest: Any) -> None:
    for p in module._parameters.values():
        state = getattr(p, "_fsdp_state", None)
        if state is not None:
            state.group.reshard()


def _as_dtensors(module: Any, destination: dict, prefix: str, metadata: Any) -> None:
    for name, p in module._parameters.items():
        value = destination.get(prefix + name)
        if isinstance(p, DTensor) and value is not None and not isinstance(value, DTensor):
            destination[prefix + name] = DTensor(value, p._spec)


def _take_parts(module: Any, state_dict: dict, prefix: str, metadata: dict, *rest: Any) -> None:
    _show_parts(module)
    for name, p in module._parameters.items():
        value = state_dict.get(prefix + name)
        if not isinstance(p, DTensor) or not isinstance(value, _Tensor) or value is p:
            continue
        own = tuple(own_values(p).shape)
        if tuple(value.shape) not in (tuple(p.shape), own):
            continue  # an error, which the module makes
        if isinstance(value, DTensor):
            alike = value.placements == p.placements and value.device_mesh == p.device_mesh and value._spec.offsets() == p._spec.offsets()
            value = value.to_local() if alike else value.full_tensor()
        if tuple(value.shape) != own:
            for d, (n, first) in enumerate(zip(*p._spec.offsets())):
                value = value.narrow(d, first, n)
        if metadata.get("assign_to_params_buffers"):
            q = type(p)(own_values(value), p.requires_grad)
            mark(q, p._spec, asks(p))
            state_dict[prefix + name] = q
            continue
        with no_grad():
            own_values(p).copy_(value)
        state_dict[prefix + name] = p  # which is as it should be


HANDLERS["mark"] = mark
