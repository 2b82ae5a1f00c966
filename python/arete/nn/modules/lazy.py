"""LazyModuleMixin: modules whose parameters take their shapes from the first input."""

from __future__ import annotations

from typing import Any, Optional, Type

from ..parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Adds lazy initialization to a module class.

    Classes define `initialize_parameters(*args)`, which gives the parameters their shapes, and
    `cls_to_become`, the class after that. State dicts may be saved and loaded before it.
    """

    cls_to_become: Optional[Type[Any]] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        own = (*self._parameters.values(), *self._buffers.values())
        return any(is_lazy(t) for t in own)

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        for name, param in self._parameters.items():
            if param is not None:
                lazy = is_lazy(param) or keep_vars
                destination[prefix + name] = param if lazy else param.detach()
        for name, buf in self._buffers.items():
            if buf is not None and name not in self._non_persistent_buffers_set:
                lazy = is_lazy(buf) or keep_vars
                destination[prefix + name] = buf if lazy else buf.detach()

    def _lazy_load_hook(self, state_dict: dict, prefix: str, *rest: Any) -> None:
        """Gives lazy tensors the shapes of what is loaded."""
        for name, value in (*self._parameters.items(), *self._buffers.items()):
            loaded = state_dict.get(prefix + name)
            if loaded is not None and is_lazy(value) and not is_lazy(loaded):
                value.materialize(loaded.shape)

    def _infer_parameters(self, module: Any, args: tuple, kwargs: Optional[dict] = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(
                f"module {self._get_name()} has not been fully initialized"
            )
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module.__dict__["_initialize_hook"], module.__dict__["_load_hook"]
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become
