"""What moves state in and out of modules: state dicts, and the arguments of `Module.to`."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any, Mapping, Optional

import arete
from arete import Tensor

from ..parameter import Parameter, is_lazy

EXTRA_STATE = "_extra_state"


# What messages call tensors by their dtype.
_OLD_NAMES = {
    arete.float32: "Float",
    arete.float64: "Double",
    arete.float16: "Half",
    arete.bfloat16: "BFloat16",
    arete.int64: "Long",
    arete.int32: "Int",
    arete.int16: "Short",
    arete.int8: "Char",
    arete.uint8: "Byte",
    arete.bool: "Bool",
    arete.complex64: "ComplexFloat",
    arete.complex128: "ComplexDouble",
}


class IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` could not match."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


def type_name(value: Any) -> str:
    """The name of a value's type as PyTorch's messages give it."""
    if isinstance(value, Tensor):
        where = "" if value.device.type == "cpu" else f"{value.device.type}."
        return f"torch.{where}{_OLD_NAMES.get(value.dtype, value.dtype)}Tensor"
    cls = type(value)
    return cls.__name__ if cls.__module__ in ("builtins", None) else f"{cls.__module__}.{cls.__name__}"


def parse_to(args: tuple, kwargs: dict) -> tuple:
    """(device, dtype, non_blocking, memory_format) of a call `to(...)`."""
    names = ("device", "dtype", "non_blocking", "copy", "memory_format", "tensor", "other")
    for name in kwargs:
        if name not in names:
            raise TypeError(f"to() received an invalid keyword argument '{name}'")
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    rest = list(args)
    tensor = kwargs.get("tensor", kwargs.get("other"))
    if rest and isinstance(rest[0], Tensor):
        tensor = rest.pop(0)
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    else:
        if rest and not isinstance(rest[0], (bool, arete.dtype)):
            device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], arete.dtype)):
            dtype = rest.pop(0)
    non_blocking = kwargs.get("non_blocking", False)
    if rest:
        non_blocking = rest.pop(0)
    if len(rest) > 1 or not isinstance(non_blocking, bool):
        raise TypeError("to() expects a device, a dtype or a tensor, and non_blocking")
    if device is not None and not isinstance(device, arete.device):
        device = arete.device(device)
    return device, dtype, non_blocking, kwargs.get("memory_format")


def save_own_state(module: Any, destination: dict, prefix: str, keep_vars: bool) -> None:
    for name, param in module._parameters.items():
        if param is not None:
            destination[prefix + name] = param if keep_vars else param.detach()
    for name, buf in module._buffers.items():
        if buf is not None and name not in module._non_persistent_buffers_set:
            destination[prefix + name] = buf if keep_vars else buf.detach()


def load_own_state(
    module: Any,
    state_dict: Mapping,
    prefix: str,
    assign: bool,
    strict: bool,
    missing: list,
    unexpected: list,
    errors: list,
    has_extra: bool,
) -> None:
    """Copies the entries below `prefix` into the module's own parameters and buffers."""
    local = {k: v for k, v in module._parameters.items() if v is not None}
    for name, buf in module._buffers.items():
        if buf is not None and name not in module._non_persistent_buffers_set:
            local[name] = buf
    for name, target in local.items():
        key = prefix + name
        if key in state_dict:
            error = _load_one(module, name, key, target, state_dict[key], assign)
            if error:
                errors.append(error)
        elif strict:
            missing.append(key)
    extra_key = prefix + EXTRA_STATE
    if has_extra:
        if extra_key in state_dict:
            module.set_extra_state(state_dict[extra_key])
        elif strict:
            missing.append(extra_key)
    elif strict and extra_key in state_dict:
        unexpected.append(extra_key)
    if strict:
        start = len(prefix)
        for key in state_dict:
            if key.startswith(prefix) and key != extra_key:
                head, dot, _ = key[start:].partition(".")
                if head not in (module._modules if dot else local):
                    unexpected.append(key)


def _load_one(
    module: Any, name: str, key: str, target: Tensor, source: Any, assign: bool
) -> Optional[str]:
    if not isinstance(source, Tensor):
        return (
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
            f"object from checkpoint but received {type(source)}"
        )
    lazy = is_lazy(target)
    if not lazy and target.dim() == 0 and source.dim() == 1 and source.numel() == 1:
        source = source[0]
    if not lazy and tuple(source.shape) != tuple(target.shape):
        return (
            f"size mismatch for {key}: copying a param with shape {source.shape} from checkpoint, "
            f"the shape in current model is {target.shape}."
        )
    try:
        with arete.no_grad():
            if assign:
                if isinstance(target, Parameter):
                    if not isinstance(source, Parameter):
                        source = Parameter(source, requires_grad=target.requires_grad)
                    else:
                        source.requires_grad_(target.requires_grad)
                setattr(module, name, source)
            else:
                if lazy and not is_lazy(source):
                    target.materialize(source.shape)
                target.copy_(source)
    except Exception as error:  # reported with all others
        return (
            f'While copying the parameter named "{key}", whose dimensions in the model are '
            f"{target.size()} and whose dimensions in the checkpoint are {source.size()}, an "
            f"exception occurred : {error.args}."
        )
    return None


def load_error(name: str, errors: list) -> str:
    return "Error(s) in loading state_dict for {}:\n\t{}".format(name, "\n\t".join(errors))


def quoted(keys: list) -> str:
    return ", ".join(f'"{k}"' for k in keys)


def new_destination() -> Any:
    destination: Any = OrderedDict()
    destination._metadata = OrderedDict()
    return destination
