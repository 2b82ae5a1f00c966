"""Hooks of modules: handles that remove them, and what full backward hooks need."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections import OrderedDict
from typing import Any, Callable, Iterable, Optional

from .. import _C, _operators
from .._C import Tensor

_ids = itertools.count()


class RemovableHandle:
    """Removes a hook: by :meth:`remove`, or at the end of a `with` block."""

    def __init__(self, hooks: dict, *, extra: Iterable[dict] = (), after: Optional[Callable] = None):
        self.id = next(_ids)
        self.hooks_dict_ref = weakref.ref(hooks)
        self.extra_dict_ref = [weakref.ref(d) for d in extra]
        self._after = weakref.WeakMethod(after) if after is not None else None

    def remove(self) -> None:
        """Takes the hook away; a second call does nothing."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)
        after = self._after() if self._after is not None else None
        if after is not None:
            after()

    def __enter__(self) -> "RemovableHandle":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()

    def __getstate__(self) -> tuple:
        return self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref)

    def __setstate__(self, state: tuple) -> None:
        hooks, self.id, extra = state
        self.hooks_dict_ref = weakref.ref(hooks if hooks is not None else HookDict())
        self.extra_dict_ref = [weakref.ref(d) for d in extra if d is not None]
        self._after = None


HookDict = OrderedDict  # hooks by id, in their order


def add_hook(hooks: HookDict, hook: Callable, handle: RemovableHandle, prepend: bool) -> None:
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)


class _Tap:
    """An identity over several tensors whose backward pass tells `seen` the gradients."""

    _function: Any = None

    @classmethod
    def apply(cls, seen: Callable, tensors: list) -> list:
        if cls._function is None:
            cls._function = _make_tap()
        results = cls._function.apply(seen, *tensors)
        return [results] if isinstance(results, Tensor) else list(results)


def _make_tap() -> Any:
    from ..autograd import Function  # only for these hooks: networks start without it

    class Tap(Function):
        @staticmethod
        def forward(ctx: Any, seen: Callable, *tensors: Tensor) -> Any:
            ctx.set_materialize_grads(False)
            ctx.seen = seen
            out = tuple(t.detach() for t in tensors)
            return out[0] if len(out) == 1 else out

        @staticmethod
        def backward(ctx: Any, *grads: Optional[Tensor]) -> tuple:
            return (None, *ctx.seen(grads))

        @staticmethod
        def jvp(ctx: Any, seen: Any, *tangents: Optional[Tensor]) -> Any:
            out = tuple(t if t is None else t.view_as(t) for t in tangents)
            return out[0] if len(out) == 1 else out

    return Tap


def _as_tuple(value: Any) -> tuple:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _replaced(gradients: tuple, result: Any, mistake: str) -> tuple:
    """What a hook gives in place of gradients: nothing, or as many."""
    if result is None:
        return gradients
    result = _as_tuple(result)
    if len(result) != len(gradients):
        raise RuntimeError(f"{mistake}, got {len(result)}, but expected {len(gradients)}")
    return result


class BackwardHook:
    """Runs a module's full backward hooks for one call of the module."""

    def __init__(self, module: Any, hooks: list, pre_hooks: list) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.grad_outputs: Optional[tuple] = None
        self.num_inputs = self.num_outputs = 0
        self.constants: dict = {}  # by position: shape, dtype and device
        self.input_positions: Any = None
        self.output_positions: Any = None

    def _tap(self, seen: Callable, values: tuple) -> tuple:
        """`values` with what needs gradients passed through an identity; and their positions, or None."""
        places = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
        if not places or not _C.is_grad_enabled():
            return values, None
        # Of tensors that are spread over processes the parts have the history.
        spread = [values[i] if getattr(type(values[i]), "_history_is_of_parts", False) else None for i in places]
        if any(x is not None for x in spread):
            plain = seen

            def seen(grads: tuple) -> tuple:
                new = plain(tuple(g if x is None else x._of_gradient(g) for x, g in zip(spread, grads)))
                return tuple(g if x is None else x._part_of_gradient(g) for x, g in zip(spread, new))

        tapped = _Tap.apply(seen, [values[i] if x is None else x.to_local() for i, x in zip(places, spread)])
        result = list(values)
        for i, x, t in zip(places, spread, tapped):
            result[i] = t if x is None else x._with_part(t)
        if isinstance(values, tuple) and hasattr(values, "_fields"):
            return type(values)(*result), places
        return tuple(result), places

    def _place(self, grads: Iterable, places: list, count: int) -> tuple:
        full = [None] * count
        for i, g in zip(places, grads):
            full[i] = g
        return tuple(full)

    def setup_input(self, args: tuple) -> tuple:
        self.num_inputs = len(args)
        self.constants = {
            i: (v.shape, v.dtype, v.device)
            for i, v in enumerate(args)
            if isinstance(v, Tensor) and not v.requires_grad
        }
        args, self.input_positions = self._tap(self._at_input, args)
        return args

    def setup_output(self, result: Any) -> Any:
        single = isinstance(result, Tensor)
        if not single and not isinstance(result, tuple):
            warnings.warn("For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
                          f"but received {type(result)}", stacklevel=4)
            return result
        values = (result,) if single else result
        self.num_outputs = len(values)
        values, self.output_positions = self._tap(self._at_output, values)
        return values[0] if single else values

    def _at_output(self, grads: tuple) -> tuple:
        places = self.output_positions
        full = self._place(grads, places, self.num_outputs)
        for hook in self.pre_hooks:
            full = _replaced(full, hook(self.module, full), "Backward pre hook returned an invalid number of grad_output")
        self.grad_outputs = full
        if self.input_positions is None:  # no input takes part: nothing will follow
            if self.hooks:
                warnings.warn(
                    "Full backward hook is firing when gradients are computed with respect to "
                    "module outputs since no inputs require gradients.",
                    stacklevel=2,
                )
            for hook in self.hooks:
                result = hook(self.module, (None,) * self.num_inputs, full)
                if result is not None and any(g is not None for g in _as_tuple(result)):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should always "
                        "return None or None for all gradients."
                    )
            self.grad_outputs = None
        return tuple(full[i] for i in places)

    def _at_input(self, grads: tuple) -> tuple:
        places = self.input_positions or []
        if self.grad_outputs is None:
            return grads
        own = [*zip(places, grads)]
        # As in torch, the gradient of an input that needs none is zeros.
        for i, (shape, dtype, device) in self.constants.items() if self.hooks else ():
            own.append((i, _operators.zeros(shape, dtype=dtype, device=device)))
        full = self._place((g for _, g in own), [i for i, _ in own], self.num_inputs)
        for hook in self.hooks:
            result = hook(self.module, full, self.grad_outputs)
            full = _replaced(full, result, "Backward hook returned an invalid number of grad_input")
        self.grad_outputs = None
        return tuple(full[i] for i in places)
