"""Module: the base class of all layers and networks."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any, Callable, Iterator, Mapping, Optional, TypeVar, Union

import arete
from arete import Tensor

from .._hooks import BackwardHook, HookDict, RemovableHandle, add_hook
from ..parameter import Buffer, Parameter, is_lazy
from . import _tree
from ._tree import IncompatibleKeys as _IncompatibleKeys
from ._tree import type_name

__all__ = [
    "Module",
    "register_module_forward_pre_hook",
    "register_module_forward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_backward_hook",
    "register_module_parameter_registration_hook",
    "register_module_buffer_registration_hook",
    "register_module_module_registration_hook",
]

T = TypeVar("T", bound="Module")

_EXTRA_STATE_KEY_SUFFIX = _tree.EXTRA_STATE

_global_forward_pre_hooks = HookDict()
_global_forward_hooks = HookDict()
_global_forward_hooks_with_kwargs = HookDict()
_global_forward_hooks_always_called = HookDict()
_global_backward_pre_hooks = HookDict()
_global_backward_hooks = HookDict()
_global_parameter_registration_hooks = HookDict()
_global_buffer_registration_hooks = HookDict()
_global_module_registration_hooks = HookDict()


class _GlobalHandle(RemovableHandle):
    """A handle of a hook on all modules; the last one switches them off again."""

    def remove(self) -> None:
        super().remove()
        Module._hooked = _has_any_global_hook()


def _has_any_global_hook() -> bool:
    return bool(
        _global_forward_pre_hooks
        or _global_forward_hooks
        or _global_backward_pre_hooks
        or _global_backward_hooks
    )


def _add_global(hooks: HookDict, hook: Callable, extra: tuple = ()) -> RemovableHandle:
    handle = _GlobalHandle(hooks, extra=extra)
    hooks[handle.id] = hook
    for flags in extra:
        flags[handle.id] = True
    Module._hooked = _has_any_global_hook()
    return handle


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Runs `hook(module, args)` before each forward of every module."""
    return _add_global(_global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Runs `hook(module, args, output)` after each forward of every module."""
    extra = []
    if with_kwargs:
        extra.append(_global_forward_hooks_with_kwargs)
    if always_call:
        extra.append(_global_forward_hooks_always_called)
    return _add_global(_global_forward_hooks, hook, tuple(extra))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Runs `hook(module, grad_output)` when the backward pass reaches any module's output."""
    return _add_global(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Runs `hook(module, grad_input, grad_output)` when any module's input gradients are known."""
    return _add_global(_global_backward_hooks, hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Runs `hook(module, name, param)` when a parameter is registered; a result replaces it."""
    return _add_global(_global_parameter_registration_hooks, hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Runs `hook(module, name, buffer)` when a buffer is registered; a result replaces it."""
    return _add_global(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Runs `hook(module, name, submodule)` when a module is registered; a result replaces it."""
    return _add_global(_global_module_registration_hooks, hook)


def _replaced(hooks: HookDict, module: "Module", name: str, value: Any) -> Any:
    for hook in tuple(hooks.values()):
        result = hook(module, name, value)
        if result is not None:
            value = result
    return value


def _addindent(text: str, spaces: int) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line for line in rest)])


_HOOK_DICTS = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_CALL_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class Module:
    """Base class of layers and networks.

    Parameters, buffers and modules assigned as attributes are registered: they move with
    :meth:`to`, appear in :meth:`parameters` and in the :meth:`state_dict`.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.fc = nn.Linear(4, 2)
    ...     def forward(self, x):
    ...         return self.fc(x).relu()
    """

    dump_patches: bool = False
    _version: int = 1
    training: bool
    call_super_init: bool = False
    # True in instances with hooks, and in the class while there are hooks on all modules, so that
    # a call needs one look only.
    _hooked: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            what = f"keyword argument '{next(iter(kwargs))}'" if kwargs else "arguments"
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected {what}"
                if kwargs
                else f"{type(self).__name__}.__init__() takes 1 positional argument but "
                f"{len(args) + 1} were given"
            )
        own = self.__dict__
        own["training"] = True
        own["_parameters"] = {}
        own["_buffers"] = {}
        own["_non_persistent_buffers_set"] = set()
        own["_is_full_backward_hook"] = None
        for name in _HOOK_DICTS:
            own[name] = HookDict()
        own["_modules"] = {}
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    # -- calls ------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooked:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooked:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    _wrapped_call_impl = _call_impl

    def _call_with_hooks(self, args: tuple, kwargs: dict) -> Any:
        called = set()
        result = None
        try:
            args, kwargs = self._run_pre_hooks(args, kwargs)
            backward = [*_global_backward_hooks.values(), *self._backward_hooks.values()]
            backward_pre = [
                *_global_backward_pre_hooks.values(),
                *self._backward_pre_hooks.values(),
            ]
            tap = BackwardHook(self, backward, backward_pre) if backward or backward_pre else None
            if tap is not None:
                args = tap.setup_input(args)
            result = self.forward(*args, **kwargs)
            for key, hook, with_kwargs, _ in self._forward_hook_list():
                called.add(key)
                if with_kwargs:
                    changed = hook(self, args, kwargs, result)
                else:
                    changed = hook(self, args, result)
                if changed is not None:
                    result = changed
            return result if tap is None else tap.setup_output(result)
        except Exception:
            self._run_always_called(called, args, kwargs, result)
            raise

    def _run_pre_hooks(self, args: tuple, kwargs: dict) -> tuple:
        for hook in tuple(_global_forward_pre_hooks.values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        for key, hook in tuple(self._forward_pre_hooks.items()):
            if key in self._forward_pre_hooks_with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is None:
                    continue
                if not isinstance(changed, tuple) or len(changed) != 2:
                    raise RuntimeError(
                        "forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {changed}."
                    )
                args, kwargs = changed
            else:
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
        return args, kwargs

    def _forward_hook_list(self) -> list:
        """(key, hook, with_kwargs, always_call) of the forward hooks in their order."""
        hooks = [
            (
                key,
                hook,
                key in _global_forward_hooks_with_kwargs,
                key in _global_forward_hooks_always_called,
            )
            for key, hook in _global_forward_hooks.items()
        ]
        for key, hook in self._forward_hooks.items():
            with_kwargs = key in self._forward_hooks_with_kwargs
            hooks.append((key, hook, with_kwargs, key in self._forward_hooks_always_called))
        return hooks

    def _run_always_called(self, called: set, args: tuple, kwargs: dict, result: Any) -> None:
        for key, hook, with_kwargs, always in self._forward_hook_list():
            if not always or key in called:
                continue
            try:
                changed = (
                    hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                )
                if changed is not None:
                    result = changed
            except Exception as error:  # the first error is the one to report
                warnings.warn(
                    "module forward hook with ``always_call=True`` raised an exception that was "
                    f"silenced as another error was raised in forward: {error}",
                    stacklevel=2,
                )

    def _update_hooked(self) -> None:
        if any(self.__dict__[name] for name in _CALL_HOOKS):
            self.__dict__["_hooked"] = True
        else:
            self.__dict__.pop("_hooked", None)

    def _add_call_hook(
        self, hooks: HookDict, hook: Callable, flags: tuple = (), prepend: bool = False
    ) -> RemovableHandle:
        handle = RemovableHandle(hooks, extra=flags, after=self._update_hooked)
        add_hook(hooks, hook, handle, prepend)
        for flag in flags:
            flag[handle.id] = True
        self.__dict__["_hooked"] = True
        return handle

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Runs `hook(module, args)` before forward; a result that is not None replaces args.

        With `with_kwargs` it is `hook(module, args, kwargs)`, to give None or (args, kwargs).
        """
        flags = (self._forward_pre_hooks_with_kwargs,) if with_kwargs else ()
        return self._add_call_hook(self._forward_pre_hooks, hook, flags, prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Runs `hook(module, args, output)` after forward; a result replaces the output.

        With `with_kwargs` it is `hook(module, args, kwargs, output)`; with `always_call` it runs
        after an exception too.
        """
        flags = []
        if with_kwargs:
            flags.append(self._forward_hooks_with_kwargs)
        if always_call:
            flags.append(self._forward_hooks_always_called)
        return self._add_call_hook(self._forward_hooks, hook, tuple(flags), prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Runs `hook(module, grad_output)` in the backward pass; a result replaces grad_output."""
        return self._add_call_hook(self._backward_pre_hooks, hook, (), prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Runs `hook(module, grad_input, grad_output)` in the backward pass.

        The gradients are tuples with one entry for each positional input and each output; a result
        replaces grad_input.
        """
        self.__dict__["_is_full_backward_hook"] = True
        return self._add_call_hook(self._backward_hooks, hook, (), prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The older name of :meth:`register_full_backward_hook`."""
        return self.register_full_backward_hook(hook)

    # -- registration -----------------------------------------------------------------------

    def _check_new_name(self, kind: str, name: Any, registry: dict) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type_name(name)}")
        if "." in name:
            got = f", got: {name}" if kind == "module" else ""
            raise KeyError(f'{kind} name can\'t contain "."{got}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if name not in registry and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Optional[Parameter]) -> None:
        """Adds a parameter (or None, which reserves the name)."""
        registry = self.__dict__.get("_parameters")
        if registry is None:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_new_name("parameter", name, registry)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{type_name(param)}' object to parameter '{name}' "
                    "(torch.nn.Parameter or None required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must "
                    f"be created explicitly. To express '{name}' as a function of another Tensor, "
                    "compute the value in the forward() method."
                )
            if _global_parameter_registration_hooks:
                param = _replaced(_global_parameter_registration_hooks, self, name, param)
        registry[name] = param

    def register_buffer(
        self, name: str, tensor: Optional[Tensor], persistent: bool = True
    ) -> None:
        """Adds a tensor that is part of the state but is not trained."""
        registry = self.__dict__.get("_buffers")
        if registry is None:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_new_name("buffer", name, registry)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type_name(tensor)}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        if _global_buffer_registration_hooks:
            tensor = _replaced(_global_buffer_registration_hooks, self, name, tensor)
        registry[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Optional["Module"]) -> None:
        """Adds a child module (or None) under a name."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type_name(module)} is not a Module subclass")
        self._check_new_name("module", name, self._modules)
        if _global_module_registration_hooks:
            module = _replaced(_global_module_registration_hooks, self, name, module)
        self._modules[name] = module

    def register_module(self, name: str, module: Optional["Module"]) -> None:
        """The same as :meth:`add_module`."""
        self.add_module(name, module)

    def _forget(self, name: str, keep: str) -> None:
        """Drops `name` from everything but the registry `keep`."""
        own = self.__dict__
        own.pop(name, None)
        for registry in ("_parameters", "_buffers", "_modules"):
            if registry != keep:
                own[registry].pop(name, None)
        if keep != "_buffers":
            self._non_persistent_buffers_set.discard(name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        params = own.get("_parameters")
        if isinstance(value, Parameter):
            if params is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            modules = own.get("_modules")
            if params is not None and name in params:
                raise TypeError(
                    f"cannot assign '{type_name(value)}' as parameter '{name}' "
                    "(torch.nn.Parameter or None expected)"
                )
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_modules")
            if _global_module_registration_hooks:
                value = _replaced(_global_module_registration_hooks, self, name, value)
            modules[name] = value
        elif params is None:
            if isinstance(value, Buffer):
                raise AttributeError("cannot assign buffers before Module.__init__() call")
            object.__setattr__(self, name, value)
        elif name in params:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type_name(value)}' as parameter '{name}' "
                    "(torch.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
        elif name in own["_modules"]:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type_name(value)}' as child module '{name}' "
                    "(torch.nn.Module or None expected)"
                )
            own["_modules"][name] = None
        elif isinstance(value, Buffer) or name in own["_buffers"]:
            self._set_buffer(name, value)
        else:
            object.__setattr__(self, name, value)

    def _set_buffer(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"cannot assign '{type_name(value)}' as buffer '{name}' "
                "(torch.nn.Buffer, torch.Tensor or None expected)"
            )
        if isinstance(value, Buffer):
            self._forget(name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        else:
            if _global_buffer_registration_hooks:
                value = _replaced(_global_buffer_registration_hooks, self, name, value)
            self._buffers[name] = value

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        if "_parameters" in own:
            registry = own["_parameters"]
            if name in registry:
                return registry[name]
            registry = own["_buffers"]
            if name in registry:
                return registry[name]
            registry = own["_modules"]
            if name in registry:
                return registry[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            object.__delattr__(self, name)

    def __dir__(self) -> list:
        names = {*dir(type(self)), *self.__dict__}
        names.update(self._parameters, self._modules, self._buffers)
        return sorted(n for n in names if not n[:1].isdigit())

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        for name in _HOOK_DICTS:
            self.__dict__.setdefault(name, HookDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    # -- the tree ---------------------------------------------------------------------------

    def get_submodule(self, target: str) -> "Module":
        """The module at a path such as "encoder.layers.0"; "" is the module itself."""
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: "Module", strict: bool = False) -> None:
        """Puts `module` at a path; with `strict` there must be one already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path such as "fc.weight"."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        param = getattr(module, name)
        if not isinstance(param, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return param

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path such as "bn.running_mean"."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return getattr(module, name)

    def _named_members(
        self,
        get_members_fn: Callable[["Module"], Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple]:
        seen = set()
        if recurse:
            modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        else:
            modules = iter([(prefix, self)])
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or (remove_duplicate and id(value) in seen):
                    continue
                seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Names and parameters; shared ones once unless `remove_duplicate` is off."""
        return self._named_members(
            lambda m: m._parameters.items(), prefix, recurse, remove_duplicate
        )

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Names and buffers."""
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        for _, buf in self.named_buffers(recurse=recurse):
            yield buf

    def named_children(self) -> Iterator[tuple[str, "Module"]]:
        """Names and modules one level below, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator["Module"]:
        """The modules one level below."""
        for _, module in self.named_children():
            yield module

    def named_modules(
        self, memo: Optional[set] = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, "Module"]]:
        """Paths and modules of the whole tree, this one (with the path `prefix`) first."""
        if memo is None:
            memo = set()
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def modules(self) -> Iterator["Module"]:
        """All modules of the tree, each once."""
        for _, module in self.named_modules():
            yield module

    def apply(self: T, fn: Callable[["Module"], None]) -> T:
        """Calls `fn` for every module, children first; gives the module itself."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # -- moving and modes -------------------------------------------------------------------

    def _apply(self: T, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> T:
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, param in self._parameters.items():
            if param is None:
                continue
            with arete.no_grad():
                grad = param.grad
                moved = fn(param)
                if moved is not param:
                    try:
                        param.data = moved
                    except RuntimeError:  # memory that the object cannot take over (meta)
                        param = Parameter(moved, param.requires_grad)
                        self._parameters[name] = param
                if grad is not None:
                    param.grad = fn(grad).requires_grad_(grad.requires_grad)
        for name, buf in self._buffers.items():
            if buf is not None:
                self._buffers[name] = fn(buf)
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Moves parameters and buffers to a device and floating ones to a dtype, in place.

        `to(device, dtype, non_blocking)`, `to(dtype)`, `to(tensor)`, `to(memory_format=...)`; the
        parameters stay the same objects, so optimizers keep working.
        """
        device, dtype, non_blocking, memory_format = _tree.parse_to(args, kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={dtype}"
            )

        def move(t: Tensor) -> Tensor:
            target = dtype if t.is_floating_point() or t.is_complex() else None
            options: dict = {"non_blocking": non_blocking}
            if device is not None:
                options["device"] = device
            if target is not None:
                options["dtype"] = target
            if memory_format is not None and not is_lazy(t) and t.dim() in (4, 5):
                options["memory_format"] = memory_format
            return t.to(**options)

        return self._apply(move)

    def to_empty(
        self: T, *, device: Union[str, int, None, Any], recurse: bool = True
    ) -> T:
        """Moves to a device without copying values."""
        return self._apply(lambda t: arete.empty_like(t, device=device), recurse=recurse)

    def cpu(self: T) -> T:
        """Moves to the CPU."""
        return self.to("cpu")

    def cuda(self: T, device: Union[int, str, None, Any] = None) -> T:
        """Moves to a GPU (the current one by default)."""
        if device is None:
            return self.to("cuda")
        return self.to(arete.device("cuda", device) if isinstance(device, int) else device)

    def type(self: T, dst_type: Any) -> T:
        """Casts parameters and buffers, integer ones too."""
        return self._apply(lambda t: t.type(dst_type))

    def _cast(self: T, dtype: Any) -> T:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self: T) -> T:
        """Casts floating parameters and buffers to float32."""
        return self._cast(arete.float32)

    def double(self: T) -> T:
        """Casts floating parameters and buffers to float64."""
        return self._cast(arete.float64)

    def half(self: T) -> T:
        """Casts floating parameters and buffers to float16."""
        return self._cast(arete.float16)

    def bfloat16(self: T) -> T:
        """Casts floating parameters and buffers to bfloat16."""
        return self._cast(arete.bfloat16)

    def train(self: T, mode: bool = True) -> T:
        """Sets training mode for this module and those below."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: T) -> T:
        """Sets evaluation mode, as `train(False)`."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Sets whether the parameters require gradients."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the parameters' gradients, or fills them with zeros."""
        for param in self.parameters():
            grad = param.grad
            if grad is None:
                continue
            if set_to_none:
                param.grad = None
            else:
                if grad.requires_grad:
                    param.grad = grad = grad.detach()
                grad.zero_()

    def share_memory(self: T) -> T:
        """Does nothing: threads share memory as it is."""
        return self

    # -- state ------------------------------------------------------------------------------

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
        _tree.save_own_state(self, destination, prefix, keep_vars)
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

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
            destination = _tree.new_destination()
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
        has_extra = type(self).set_extra_state is not Module.set_extra_state
        assign = local_metadata.get("assign_to_params_buffers", False)
        _tree.load_own_state(
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

        def load(module: Module, local: Any, prefix: str) -> None:
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
                errors.insert(0, f"Unexpected key(s) in state_dict: {_tree.quoted(unexpected)}. ")
            if missing:
                errors.insert(0, f"Missing key(s) in state_dict: {_tree.quoted(missing)}. ")
        if errors:
            raise RuntimeError(_tree.load_error(self._get_name(), errors))
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

    # -- text -------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What the text of the module says beside its children; to override."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        own = extra.split("\n") if extra else []
        below = [
            f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()
        ]
        if not own and not below:
            return self._get_name() + "()"
        if len(own) == 1 and not below:
            return f"{self._get_name()}({own[0]})"
        return self._get_name() + "(\n  " + "\n  ".join(own + below) + "\n)"


class _WithModule:
    """A load hook that is given its module (the copy's own, after a copy)."""

    def __init__(self, hook: Callable, module: Module) -> None:
        self.hook = hook
        self.module = module

    def __call__(self, *args: Any) -> Any:
        return self.hook(self.module, *args)
