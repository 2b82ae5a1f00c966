"""How modules are called, and the hooks around that."""

from __future__ import annotations

import warnings
from typing import Any, Callable

from ... import _C
from .._hooks import BackwardHook, HookDict, RemovableHandle, add_hook

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
        Calls._hooked = _has_any_global_hook()


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
    Calls._hooked = _has_any_global_hook()
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


_CALL_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class Calls:
    """The part of Module that runs forward and hooks."""

    # True in instances with hooks or compiled calls, and in this class while there are hooks on all
    # modules, so that a call needs one look only.
    _hooked: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if self._hooked:
                return self._call_with_hooks(args, kwargs)
            return self.forward(*args, **kwargs)
        except Exception as error:
            _C._note_place(error)
            raise

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooked:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    _wrapped_call_impl = _call_impl

    # What compile() made of this module's calls.
    _compiled_call_impl: Any = None

    def _call_with_hooks(self, args: tuple, kwargs: dict) -> Any:
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl.run(self._run_with_hooks, (args, kwargs), {})
        return self._run_with_hooks(args, kwargs)

    def _run_with_hooks(self, args: tuple, kwargs: dict) -> Any:
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
        if self._compiled_call_impl is not None or any(self.__dict__[name] for name in _CALL_HOOKS):
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
