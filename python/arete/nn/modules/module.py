"""Module: the base class of all layers and networks."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional, TypeVar, Union

from ... import _C, _operators
from ..._C import Tensor
from ..._grad_mode import no_grad
from .._hooks import HookDict, RemovableHandle  # noqa: F401
from ..parameter import Buffer, Parameter, is_lazy
from ._arguments import parse_to, type_name
from ._calls import (  # noqa: F401
    Calls,
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_buffer_registration_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from ._state import EXTRA_STATE as _EXTRA_STATE_KEY_SUFFIX  # noqa: F401
from ._state import _IncompatibleKeys  # noqa: F401
from ._state import State

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


def _replaced(hooks: HookDict, module: "Module", name: str, value: Any) -> Any:
    for hook in tuple(hooks.values()):
        result = hook(module, name, value)
        if result is not None:
            value = result
    return value


def _addindent(text: str, spaces: int) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line for line in rest)])


def weight_and_bias(module: "Module") -> tuple:
    """`module.weight, module.bias`, quicker where they are registered parameters."""
    own = module._parameters
    try:
        return own["weight"], own["bias"]
    except KeyError:  # replaced by a plain attribute or a property
        return module.weight, module.bias


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


class Module(Calls, State):
    """Base class of layers and networks.

    Parameters, buffers and modules assigned as attributes are registered: they move with
    :meth:`to`, appear in :meth:`parameters` and in the :meth:`state_dict`.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.fc = nn.Linear(4, 2)
    ...     def forward(self, x):
    ...         return self.fc(x).relu()
    >>> net = Net()
    >>> net(arete.ones(3, 4)).shape, list(net.state_dict())
    (arete.Size([3, 2]), ['fc.weight', 'fc.bias'])
    """

    dump_patches: bool = False
    _version: int = 1
    training: bool
    call_super_init: bool = False

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
            if not param.is_leaf:
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
            with no_grad():
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
            if buf is None:
                continue
            moved = fn(buf)
            if is_lazy(buf):  # goes on to be what it is to become
                buf.data = moved
            else:
                self._buffers[name] = moved
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Moves parameters and buffers to a device and floating ones to a dtype, in place.

        `to(device, dtype, non_blocking)`, `to(dtype)`, `to(tensor)`, `to(memory_format=...)`; the
        parameters stay the same objects, so optimizers keep working.
        """
        device, dtype, non_blocking, memory_format = parse_to(args, kwargs)
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
        return self._apply(lambda t: _operators.empty_like(t, device=device), recurse=recurse)

    def cpu(self: T) -> T:
        """Moves to the CPU."""
        return self.to("cpu")

    def cuda(self: T, device: Union[int, str, None, Any] = None) -> T:
        """Moves to a GPU (the current one by default)."""
        if device is None:
            return self.to("cuda")
        return self.to(_C.device("cuda", device) if isinstance(device, int) else device)

    def type(self: T, dst_type: Any) -> T:
        """Casts parameters and buffers, integer ones too."""
        return self._apply(lambda t: t.type(dst_type))

    def _cast(self: T, dtype: Any) -> T:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self: T) -> T:
        """Casts floating parameters and buffers to float32."""
        return self._cast(_C.float32)

    def double(self: T) -> T:
        """Casts floating parameters and buffers to float64."""
        return self._cast(_C.float64)

    def half(self: T) -> T:
        """Casts floating parameters and buffers to float16."""
        return self._cast(_C.float16)

    def bfloat16(self: T) -> T:
        """Casts floating parameters and buffers to bfloat16."""
        return self._cast(_C.bfloat16)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Makes calls of this module compiled ones; arguments as of arete.compile."""
        from arete import compiler

        self.__dict__["_compiled_call_impl"] = compiler._program_of(self, *args, **kwargs)
        self._update_hooked()

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
        _C._zero_grad(list(self.parameters()), set_to_none)

    def share_memory(self: T) -> T:
        """Moves parameters and buffers to memory that processes share: Tensor.share_memory_()."""
        return self._apply(lambda t: t.share_memory_())

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
