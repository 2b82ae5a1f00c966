"""What all optimizers share: parameter groups, state, hooks."""
from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy

from .._C import Tensor, _profile
from .._grad_mode import enable_grad
from .._tensor import RemovableHandle


class _Required:
    def __repr__(self):
        return "<required parameter>"


required = _Required()


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

    def __init__(self, params, defaults: dict):
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups: list[dict] = []
        self._pre_hooks: OrderedDict[int, Callable] = OrderedDict()
        self._post_hooks: OrderedDict[int, Callable] = OrderedDict()
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                            f"{type(params).__name__}")
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if isinstance(groups[0], tuple) and len(groups[0]) == 2 and isinstance(groups[0][0], str):
            groups = [p for _, p in groups]  # named parameters
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)
        if type(self).step is not Optimizer.step:
            self._wrap_step()

    def _wrap_step(self):
        # Hooks, and schedulers that count calls, see step() through the instance.
        step = self.step

        def stepped(*args, **kwargs):
            if not self._pre_hooks and not self._post_hooks:
                return step(*args, **kwargs)
            for hook in list(self._pre_hooks.values()):
                changed = hook(self, args, kwargs)
                if changed is not None:
                    args, kwargs = changed
            result = step(*args, **kwargs)
            for hook in list(self._post_hooks.values()):
                hook(self, args, kwargs)
            return result

        self.step = stepped

    def __repr__(self):
        lines = [type(self).__name__ + " ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join(lines) + "\n)"

    def add_param_group(self, param_group: dict) -> None:
        """Adds parameters with settings of their own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = param_group
        params = group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of "
                            "tensors in sets will change between runs. Please use a list instead.")
        params = [p[1] if isinstance(p, tuple) else p for p in params]
        group["params"] = params
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, default)
        known = {id(p) for g in self.param_groups for p in g["params"]}
        if known & {id(p) for p in params}:
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients, or sets them to zero."""
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
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad.detach_()
                    p.grad.zero_()

    def step(self, closure=None):
        """One update."""
        raise NotImplementedError

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """hook(optimizer, args, kwargs) runs before each step."""
        return self._add_hook(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """hook(optimizer, args, kwargs) runs after each step."""
        return self._add_hook(self._post_hooks, hook)

    @staticmethod
    def _add_hook(hooks, hook):
        key = max(hooks, default=-1) + 1
        hooks[key] = hook
        return RemovableHandle(lambda: hooks.pop(key, None))

    def _numbers(self) -> dict[int, int]:
        """The number of each parameter, by identity."""
        numbers: dict[int, int] = {}
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
        return numbers

    def state_dict(self) -> dict:
        """{"state": {number: {...}}, "param_groups": [{..., "params": [numbers]}]}."""
        numbers = self._numbers()
        groups = [{**{k: v for k, v in g.items() if k != "params"}, "params": [numbers[id(p)] for p in g["params"]]}
                  for g in self.param_groups]
        state = {(numbers[id(k)] if isinstance(k, Tensor) else k): v for k, v in self._states().items()}
        return {"state": state, "param_groups": groups}

    def _states(self) -> dict:
        return self.state

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes over state and settings; tensors are converted to dtype and device of their parameter."""
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        for mine, theirs in zip(self.param_groups, saved):
            if len(mine["params"]) != len(theirs["params"]):
                raise ValueError("loaded state dict contains a parameter group that doesn't match the size of "
                                 "optimizer's group")
        by_number = {number: p for mine, theirs in zip(self.param_groups, saved)
                     for number, p in zip(theirs["params"], mine["params"])}
        for mine, theirs in zip(self.param_groups, saved):
            for key, value in theirs.items():
                if key != "params":
                    mine[key] = deepcopy(value)
        state = {by_number.get(number, number): value for number, value in state_dict["state"].items()}
        self._load_states(state)

    def _load_states(self, state: dict) -> None:
        def fitting(p, key, value):
            if isinstance(value, Tensor):
                if key == "step":
                    return value.clone()
                return value.to(p.device, p.dtype if p.is_floating_point() else value.dtype, copy=True)
            if isinstance(value, dict):
                return {k: fitting(p, k, v) for k, v in value.items()}
            return deepcopy(value)

        self.state = defaultdict(dict)
        for p, values in state.items():
            self.state[p] = fitting(p, None, values) if isinstance(p, Tensor) else deepcopy(values)

    @staticmethod
    def _call(closure):
        if closure is None:
            return None
        with enable_grad():
            return closure()


ParamsT = Iterable
