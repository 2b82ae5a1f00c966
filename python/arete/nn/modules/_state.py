"""State dicts of modules: how they are made and loaded."""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict, namedtuple
from typing import Any, Callable, Mapping, Optional

from ..._C import Tensor
from ..._grad_mode import no_grad
from .._hooks import HookDict, RemovableHandle
from ..parameter import Parameter, is_lazy

EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` could not match."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


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
        with no_grad():
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
                if target.is_meta and not source.is_meta:
                    warnings.warn(f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter does nothing; "
                                  "load_state_dict(..., assign=True) puts the checkpoint's in its place", stacklevel=2)
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


class _WithModule:
    """A load hook that is given its module (the copy's own, after a copy), which owns it."""

    def __init__(self, hook: Callable, module: Any) -> None:
        self.__setstate__((hook, module))

    def __call__(self, *args: Any) -> Any:
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args)

    def __getstate__(self) -> tuple:
        return self.hook, self.module()

    def __setstate__(self, state: tuple) -> None:
        self.hook, module = state
        if module is None:
            raise RuntimeError("You are trying to revive the hook of a dead Module!")
        self.module = weakref.ref(module)


class State:
    """The part of Module that makes and loads state dicts."""

    def get_extra_state(self) -> Any:
        """What to store in the state dict beside tensors; to override with set_extra_state."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called."
        )

    def set_extra_state(self, state: Any) -> None:
        """Takes back what :meth:`get_extra_state` gave."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called."
        )

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        """Stores this module's own tensors; classes override it to change what is stored."""
        save_own_state(self, destination, prefix, keep_vars)
        if type(self).get_extra_state is not State.get_extra_state:
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> "OrderedDict[str, Any]":
        """Names and tensors of the whole tree; they share memory with the module's.

        `keep_vars` gives the parameters themselves instead of detached tensors.
        """
        if args:
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and prefix == "" else prefix
            keep_vars = args[2] if len(args) > 2 and not keep_vars else keep_vars
        if destination is None:
            destination = new_destination()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in tuple(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook in tuple(self._state_dict_hooks.values()):
            result = hook(self, destination, prefix, metadata)
            if getattr(hook, "_is_post_hook", False):
                if result is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif result is not None:
                destination = result
        return destination

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list,
        unexpected_keys: list,
        error_msgs: list,
    ) -> None:
        """Loads this module's own tensors; classes override it to read older layouts."""
        for hook in tuple(self._load_state_dict_pre_hooks.values()):
            hook(
                state_dict,
                prefix,
                local_metadata,
                strict,
                missing_keys,
                unexpected_keys,
                error_msgs,
            )
        has_extra = type(self).set_extra_state is not State.set_extra_state
        assign = local_metadata.get("assign_to_params_buffers", False)
        load_own_state(
            self,
            state_dict,
            prefix,
            assign,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
            has_extra,
        )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copies values from a state dict (or with `assign` takes its tensors as they are).

        With `strict` missing and unexpected keys are a RuntimeError, else they are returned.
        Differing shapes are always an error.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list = []
        unexpected: list = []
        errors: list = []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata

        def load(module: Any, local: Any, prefix: str) -> None:
            local_metadata = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
            if assign:
                local_metadata["assign_to_params_buffers"] = assign
            module._load_from_state_dict(
                local, prefix, local_metadata, True, missing, unexpected, errors
            )
            for name, child in module._modules.items():
                if child is not None:
                    path = f"{prefix}{name}."
                    below = {k: v for k, v in local.items() if k.startswith(path)}
                    load(child, below, path)
            incompatible = _IncompatibleKeys(missing, unexpected)
            for hook in tuple(module._load_state_dict_post_hooks.values()):
                if hook(module, incompatible) is not None:
                    raise RuntimeError(
                        "Hooks registered with ``register_load_state_dict_post_hook`` are not "
                        "expected to return new values, if incompatible_keys need to be modified, "
                        "it should be done inplace."
                    )

        load(self, state_dict, "")
        if strict:
            if unexpected:
                errors.insert(0, f"Unexpected key(s) in state_dict: {quoted(unexpected)}. ")
            if missing:
                errors.insert(0, f"Missing key(s) in state_dict: {quoted(missing)}. ")
        if errors:
            raise RuntimeError(load_error(self._get_name(), errors))
        return _IncompatibleKeys(missing, unexpected)

    def _add_state_hook(self, hooks: HookDict, hook: Callable) -> RemovableHandle:
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        return handle

    def register_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Runs `hook(module, prefix, keep_vars)` before the state dict is made."""
        return self._add_state_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Runs `hook(module, state_dict, prefix, local_metadata)`, which may change state_dict."""

        def post(*args: Any) -> Any:
            return hook(*args)

        post._is_post_hook = True  # type: ignore[attr-defined]
        return self._add_state_hook(self._state_dict_hooks, post)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        return self._add_state_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Runs `hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)` before the module's own tensors are loaded."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., None], with_module: bool = False
    ) -> RemovableHandle:
        wrapped = _WithModule(hook, self) if with_module else hook
        return self._add_state_hook(self._load_state_dict_pre_hooks, wrapped)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Runs `hook(module, incompatible_keys)` after loading; it may change the lists."""
        return self._add_state_hook(self._load_state_dict_post_hooks, hook)
