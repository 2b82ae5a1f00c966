"""What all optimizers share: parameter groups, state, hooks, saving and loading."""
from __future__ import annotations

import functools
import warnings
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any

from .. import _C
from .._C import Tensor, _profile
from .._grad_mode import enable_grad, set_grad_enabled
from .._operators import _RemovableHandle as RemovableHandle

ParamsT = Iterable

_global_optimizer_pre_hooks: OrderedDict[int, Callable] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, Callable] = OrderedDict()


class _Required:
    def __repr__(self):
        return "<required parameter>"


required = _Required()


def _add_hook(hooks: OrderedDict, hook: Callable, prepend: bool = False) -> RemovableHandle:
    key = max(hooks, default=-1) + 1
    hooks[key] = hook
    if prepend:
        hooks.move_to_end(key, last=False)
    its_dict = weakref.ref(hooks)

    def remove():
        hooks = its_dict()
        if hooks is not None:
            hooks.pop(key, None)

    return RemovableHandle(remove)


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """hook(optimizer, args, kwargs) runs before each step of any optimizer; it may return other (args, kwargs)."""
    return _add_hook(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """hook(optimizer, args, kwargs) runs after each step of any optimizer."""
    return _add_hook(_global_optimizer_post_hooks, hook)


def _use_grad_for_differentiable(function: Callable) -> Callable:
    """For step() of optimizers written in Python: with history if `defaults["differentiable"]` says so, else without."""

    @functools.wraps(function)
    def step(self, *args, **kwargs):
        with set_grad_enabled(bool(self.defaults.get("differentiable"))):
            return function(self, *args, **kwargs)

    return step


def _get_value(x: Any) -> Any:
    return x.item() if isinstance(x, Tensor) else x


class Optimizer:
    """Base class: `param_groups` is a list of dicts with "params" and settings, `state` maps parameters to dicts. A
    subclass defines step(closure=None).

    >>> class SignDescent(arete.optim.Optimizer):
    ...     def __init__(self, params, lr):
    ...         super().__init__(params, {"lr": lr})
    ...     def step(self, closure=None):
    ...         with arete.no_grad():
    ...             for group in self.param_groups:
    ...                 for p in group["params"]:
    ...                     p -= group["lr"] * p.grad.sign()
    >>> w = arete.tensor([1.0, -1.0], requires_grad=True)
    >>> w.square().sum().backward()
    >>> SignDescent([w], lr=0.5).step()
    >>> w.detach()
    tensor([ 0.5000, -0.5000])
    """

    OptimizerPreHook = Callable
    OptimizerPostHook = Callable

    _tells_of_steps = False  # the profiler hears of them from within step()

    def __init__(self, params: ParamsT, defaults: dict):
        self.defaults = defaults
        self._make_hooks()
        self._patch_step_function()
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                            f"{_typename(params)}")
        self.state: dict = defaultdict(dict)
        self.param_groups: list[dict] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    _HOOKS = ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post")

    def _make_hooks(self) -> None:
        for name in self._HOOKS:
            self.__dict__.setdefault(f"_optimizer_{name}_hooks", OrderedDict())

    def __getstate__(self) -> dict:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._make_hooks()
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params")
        return text + ")"

    # ---- the step

    def step(self, closure=None):
        """One update."""
        raise NotImplementedError

    @staticmethod
    def profile_hook_step(func: Callable) -> Callable:
        """Wraps a step() so that hooks run around it and profilers see it."""

        @functools.wraps(func)
        def step(*args, **kwargs):
            self = args[0]
            if self._tells_of_steps or not _profile.is_recording():
                return _step_with_hooks(func, args, kwargs)
            range_ = _profile.RecordFunction(f"Optimizer.step#{type(self).__name__}.step")
            try:
                return _step_with_hooks(func, args, kwargs)
            finally:
                range_.end()

        return step

    def _patch_step_function(self) -> None:
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"
        cls = type(self)
        if not getattr(cls.step, "hooked", False):
            cls.step = self.profile_hook_step(cls.step)  # type: ignore[method-assign]
            cls.step.hooked = True  # type: ignore[attr-defined]

    def _optimizer_step_code(self) -> None:
        """Called after each step; does nothing here."""

    def _accelerator_graph_capture_health_check(self) -> None:
        """RuntimeError where a step that cannot be recorded is about to become part of a CUDA graph."""
        if _C._cuda.is_current_stream_capturing() and not all(g.get("capturable") for g in self.param_groups):
            raise RuntimeError(f"Attempting CUDA graph capture of step() for an instance of {type(self).__name__} but param_groups' "
                               "capturable is False.")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients, or sets them to zero in place."""
        if _profile.is_recording():
            range_ = _profile.RecordFunction(f"Optimizer.zero_grad#{type(self).__name__}.zero_grad")
            try:
                self._zero_grad(set_to_none)
            finally:
                range_.end()
        else:
            self._zero_grad(set_to_none)

    def _zero_grad(self, set_to_none: bool) -> None:
        for group in self.param_groups:
            _C._zero_grad(group["params"], bool(set_to_none))

    @staticmethod
    def _call(closure: Any) -> Any:
        if closure is None:
            return None
        with enable_grad():
            return closure()

    # ---- hooks

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """hook(optimizer, args, kwargs) runs before each step; it may return other (args, kwargs). The first of args is the optimizer."""
        return _add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """hook(optimizer, args, kwargs) runs after each step."""
        return _add_hook(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """hook(optimizer) runs before state_dict(), with `prepend` before other hooks."""
        return _add_hook(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """hook(optimizer, state_dict) runs after state_dict(); what it returns is used instead."""
        return _add_hook(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """hook(optimizer, state_dict) runs before load_state_dict(); what it returns is loaded instead."""
        return _add_hook(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """hook(optimizer) runs after load_state_dict()."""
        return _add_hook(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # ---- groups

    def add_param_group(self, param_group: dict) -> None:
        """Adds parameters with settings of their own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                            "will change between runs. Please use a list instead.")
        else:
            params = list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        if names and len(names) != len(params):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        param_group["params"] = params = [p[1] if isinstance(p, tuple) else p for p in params]
        if names:
            param_group["param_names"] = names
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {_typename(p)}")
            if not (self.defaults.get("differentiable") or p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            warnings.warn("optimizer contains a parameter group with duplicate parameters; in future, this will cause an error",
                          stacklevel=3)
        known: set = set()
        for group in self.param_groups:
            known.update(group["params"])
            if ("param_names" in param_group) != ("param_names" in group):
                text = "with names" if "param_names" in param_group else "without names"
                raise ValueError("all optimizer param groups should be with/without names. "
                                 f"cannot add param group {text} to the optimizer")
        if not known.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    # ---- saving and loading

    def state_dict(self) -> dict:
        """{"state": {number: {...}}, "param_groups": [{..., "params": [numbers]}]}; tensors share memory with the state. Of parameters that
        are spread over processes they are DTensors."""
        for pre_hook in list(self._optimizer_state_dict_pre_hooks.values()):
            pre_hook(self)
        numbers: dict[int, int] = {}
        for i, p in enumerate(chain.from_iterable(g["params"] for g in self.param_groups)):
            numbers.setdefault(id(p), i)
        groups = [{**{k: v for k, v in g.items() if k != "params"}, "params": [numbers[id(p)] for p in g["params"]]}
                  for g in self.param_groups]
        state = {(numbers[id(k)] if isinstance(k, Tensor) else k): self._state_told(k, v) for k, v in self.state.items()}
        result = {"state": state, "param_groups": groups}
        for post_hook in list(self._optimizer_state_dict_post_hooks.values()):
            changed = post_hook(self, result)
            if changed is not None:
                result = changed
        return result

    @staticmethod
    def _process_value_according_to_param_policy(param: Tensor, value: Tensor, param_id: Any, param_groups: list,
                                                 key: Any = None) -> Tensor:
        """A tensor of a loaded state with device and dtype that it needs beside its parameter."""
        group = next((g for g in param_groups if param_id in g["params"]), {})
        if key == "step":
            if group.get("capturable") or group.get("fused"):
                return value.to(param.device, _C.float32)
            return value
        if not param.is_floating_point():
            return value.to(param.device)
        half_with_masters = group.get("master_weights") and param.element_size() < 4
        return value.to(param.device, _C.float32 if half_with_masters else param.dtype)

    def _state_told(self, param: Any, values: Any) -> Any:
        """A parameter's state for others."""
        return values

    def _state_taken(self, param: Tensor, value: Tensor) -> Tensor:
        """The inverse, of one tensor."""
        return value

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes over state and settings; tensors are converted to dtype and device of their parameter. Of parameters that are spread over
        processes they may be whole, DTensors or this process' parts."""
        state_dict = state_dict.copy()
        for pre_hook in list(self._optimizer_load_state_dict_pre_hooks.values()):
            changed = pre_hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(mine["params"]) != len(theirs["params"]) for mine, theirs in zip(groups, saved)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        params = dict(zip(chain.from_iterable(g["params"] for g in saved), chain.from_iterable(g["params"] for g in groups)))

        def fitting(param, value, number, key=None):
            if isinstance(value, Tensor):
                value = self._state_taken(param, value)
                return self._process_value_according_to_param_policy(param, value, number, state_dict["param_groups"], key)
            if isinstance(value, dict):
                return {k: fitting(param, v, number, k) for k, v in value.items()}
            if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
                return type(value)(fitting(param, v, number) for v in value)  # type: ignore[call-arg]
            return value

        state: dict = defaultdict(dict)
        for number, values in state_dict["state"].items():
            if number in params:
                state[params[number]] = fitting(params[number], values, number)
            else:
                state[number] = values
        for mine, theirs in zip(groups, saved):
            theirs["params"] = mine["params"]
            if "param_names" in mine:
                theirs.setdefault("param_names", mine["param_names"])
        self.__setstate__({"state": state, "param_groups": saved})
        for post_hook in list(self._optimizer_load_state_dict_post_hooks.values()):
            post_hook(self)


def _typename(o: Any) -> str:
    return "arete.Tensor" if type(o) is Tensor else type(o).__name__


def _step_with_hooks(func: Callable, args: tuple, kwargs: dict) -> Any:
    """`args` begin with the optimizer, as hooks see them."""
    self = args[0]
    pre, post = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks
    if not (pre or post or _global_optimizer_pre_hooks or _global_optimizer_post_hooks):
        return func(*args, **kwargs)
    for hook in [*_global_optimizer_pre_hooks.values(), *pre.values()]:
        changed = hook(self, args, kwargs)
        if changed is None:
            continue
        if not (isinstance(changed, tuple) and len(changed) == 2):
            raise RuntimeError(f"{func} must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
        args, kwargs = changed
    result = func(*args, **kwargs)
    for hook in [*post.values(), *_global_optimizer_post_hooks.values()]:
        hook(self, args, kwargs)
    return result
