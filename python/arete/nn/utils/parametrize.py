"""Parameters that are computed from others by modules (parametrizations)."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

from ..._C import Tensor
from ..._grad_mode import no_grad
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter

__all__ = [
    "cached",
    "ParametrizationList",
    "register_parametrization",
    "is_parametrized",
    "remove_parametrizations",
    "type_before_parametrizations",
    "transfer_parametrizations_and_params",
]

_caching = 0
_cache: Dict[Tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Inside, each parametrized tensor is computed once only.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    >>> with nn.utils.parametrize.cached():
    ...     layer.weight is layer.weight
    True
    """
    global _caching
    _caching += 1
    try:
        yield
    finally:
        _caching -= 1
        if not _caching:
            _cache.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and what it is computed from.

    That is `original`, or `original0`, `original1`, ... where right_inverse gives several tensors.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    >>> layer.parametrizations.weight.original0.shape
    arete.Size([4, 1])
    """

    original: Tensor

    def __init__(
        self, modules: Sequence[Module], original: Tensor, unsafe: bool = False
    ) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        value: Any = original
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        value = module.right_inverse(value)
                    except NotImplementedError:
                        pass  # starts with what is there, as one without
        if not isinstance(value, Tensor) and not isinstance(value, Sequence):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(value).__name__}"
            )
        self.is_tensor = isinstance(value, Tensor)
        self.ntensors = 1 if self.is_tensor else len(value)
        if self.is_tensor:
            if isinstance(original, Parameter):
                if value.dtype != original.dtype:
                    raise ValueError(
                        "When `right_inverse` outputs one tensor, it may not change the dtype."
                    )
                with no_grad():
                    if value is not original:
                        original.data = value.detach()
                self.original = original
            else:
                self.register_buffer("original", value.detach())
        else:
            for i, part in enumerate(value):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors. Got "
                        f"element {i} of the sequence with type {type(part).__name__}."
                    )
                if isinstance(original, Parameter):
                    part = Parameter(part.detach(), original.requires_grad)
                    self.register_parameter(f"original{i}", part)
                else:
                    self.register_buffer(f"original{i}", part.detach())
        if not unsafe:
            self._check(original)

    def _check(self, original: Tensor) -> None:
        with no_grad():
            value = self()
        _check_like("A parametrization", value, original)

    def _originals(self) -> Any:
        if self.is_tensor:
            return (self.original,)
        return tuple(getattr(self, f"original{i}") for i in range(self.ntensors))

    def right_inverse(self, value: Tensor) -> None:
        """Sets the originals so that the parametrized tensor becomes `value`."""
        with no_grad():
            result: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                result = module.right_inverse(result)
            parts = (result,) if self.is_tensor else tuple(result)
            if len(parts) != self.ntensors:
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}."
                )
            for original, part in zip(self._originals(), parts):
                if original.shape == part.shape:
                    original.copy_(part)
                else:
                    original.data = part.detach()

    def forward(self) -> Tensor:
        modules = list(self)
        value = modules[0](*self._originals())
        for module in modules[1:]:
            value = module(value)
        return value


def _inject_class(module: Module) -> None:
    """Gives the module a class of its own, to which properties can be added."""
    cls = type(module)

    def copied(self: Module, memo: dict) -> Module:
        result = memo.get(id(self))
        if result is None:
            result = self.__new__(type(self))
            memo[id(self)] = result
            result.__dict__ = copy.deepcopy(self.__dict__, memo)
        return result

    def no_pickle(self: Module) -> None:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict()."
        )

    body: dict = {"__getstate__": no_pickle}
    if not hasattr(cls, "__deepcopy__"):
        body["__deepcopy__"] = copied
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), body)
    module.parametrizations = ModuleDict()


def _inject_property(module: Module, name: str) -> None:
    def get(self: Module) -> Tensor:
        parametrization = self._modules["parametrizations"][name]
        if not _caching:
            return parametrization()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = parametrization()
        return _cache[key]

    def put(self: Module, value: Tensor) -> None:
        self._modules["parametrizations"][name].right_inverse(value)

    setattr(type(module), name, property(get, put))


def is_parametrized(module: Module, tensor_name: Optional[str] = None) -> bool:
    """Whether the module (or the given tensor of it) is parametrized.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    >>> nn.utils.parametrize.is_parametrized(layer), nn.utils.parametrize.is_parametrized(layer, "bias")
    (True, False)
    """
    known = getattr(module, "parametrizations", None)
    if not isinstance(known, ModuleDict):
        return False
    return len(known) > 0 if tensor_name is None else tensor_name in known


def _check_like(what: str, result: Any, tensor: Tensor) -> None:
    if not isinstance(result, Tensor):
        raise ValueError(f"{what} must return a tensor. Got {type(result).__name__}.")
    for name in ("dtype", "shape"):
        if getattr(result, name) != getattr(tensor, name):
            raise ValueError(
                f"Registering a parametrization may not change the {name} of the tensor, unless the "
                f"`unsafe` flag is enabled. {what} gave {getattr(result, name)}, not {getattr(tensor, name)}."
            )


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Makes `module.<tensor_name>` the result of `parametrization`, of what it was before.

    The module's class changes to one with a property of that name; assigning to it calls the
    parametrizations' right_inverse. A tensor's first parametrization starts where its right_inverse
    says, if it has one; those that come later are of what the ones before give.

    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = nn.Linear(3, 3)
    >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> arete.equal(layer.weight, layer.weight.T)
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        known = module.parametrizations[tensor_name]
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            _check_like("A parametrization", after, before)
            if hasattr(parametrization, "right_inverse"):
                try:
                    _check_like("right_inverse", parametrization.right_inverse(after), before)
                except NotImplementedError:
                    pass
        known.append(parametrization)
        known.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not isinstance(getattr(module, "parametrizations", None), ModuleDict):
            _inject_class(module)
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Makes the tensor a parameter again: its value, or (leave_parametrized=False) the original.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    >>> sorted(nn.utils.parametrize.remove_parametrizations(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(
            f"Module {module} does not have a parametrization on {tensor_name}"
        )
    known = module.parametrizations[tensor_name]
    first = known._originals()[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name)
        if known.is_tensor and isinstance(first, Parameter):
            with no_grad():
                first.data = value.detach().clone()
            value = first
        elif isinstance(first, Parameter):
            value = Parameter(value.detach(), first.requires_grad)
    else:
        if not known.is_tensor:
            raise ValueError(
                "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
                "parametrized in terms of a sequence of tensors."
            )
        value = first
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(value, Parameter):
        module.register_parameter(tensor_name, value)
    else:
        module.register_buffer(tensor_name, value)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The module's class without parametrizations.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    >>> nn.utils.parametrize.type_before_parametrizations(layer).__name__
    'Linear'
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: Optional[str] = None
) -> Module:
    """Puts copies of the parametrizations (all, or of one tensor) onto another module.

    >>> layer, other = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.Linear(3, 4)
    >>> _ = nn.utils.parametrize.transfer_parametrizations_and_params(layer, other)
    >>> arete.equal(layer.weight, other.weight)
    True
    """
    if not is_parametrized(from_module):
        return to_module
    names = [tensor_name] if tensor_name is not None else list(from_module.parametrizations)
    for name in names:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for parametrization in source:
            register_parametrization(
                to_module, name, copy.deepcopy(parametrization), unsafe=source.unsafe
            )
        target = to_module.parametrizations[name]
        with no_grad():
            for own, other in zip(target._originals(), source._originals()):
                own.data = other.detach().clone()
    return to_module
