"""Modules that keep no activations for the pass backward, or keep them in host memory, under the names that the bare network has."""
from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from functools import partial
from typing import Any, Callable, Iterator, Optional

from ... import autograd
from ...nn.modules import Module
from ...utils.checkpoint import checkpoint
from .wrap import wrapped_by

__all__ = ["ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper", "apply_activation_checkpointing",
           "checkpoint_wrapper", "offload_wrapper"]

_INNER = "_checkpoint_wrapped_module"


class CheckpointImpl(Enum):
    """Which form of `utils.checkpoint.checkpoint` runs."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module, ABC):
    """A module around another one, whose attributes and state's names are those of the inner one."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(_without_prefix)
        self._register_load_state_dict_pre_hook(_with_prefix)

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The inner module's."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: Any) -> Any:
        return self._checkpoint_wrapped_module[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple]:
        """The inner module's names."""
        for name, p in super().named_parameters(*args, **kwargs):
            yield name.replace(f"{_INNER}.", ""), p


class CheckpointWrapper(ActivationWrapper):
    """Computes the inner module again in the pass backward, by `checkpoint_fn` if it is given."""

    def __init__(self, mod: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT, checkpoint_fn: Optional[Callable] = None,
                 **checkpoint_fn_kwargs: Any) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = partial(checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT)
        self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inner = self._checkpoint_wrapped_module
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:
            names = list(kwargs)
            split = len(args)
            return self.checkpoint_fn(lambda *given: inner(*given[:split], **dict(zip(names, given[split:]))), *args, *kwargs.values())
        return self.checkpoint_fn(inner, *args, **kwargs)


class OffloadWrapper(ActivationWrapper):
    """Keeps what the inner module saves for the pass backward in host memory."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with autograd.graph.save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def _without_prefix(module: Any, state_dict: dict, prefix: str, *rest: Any) -> None:
    start = f"{prefix}{_INNER}."
    for key in [key for key in state_dict if key.startswith(start)]:
        state_dict[prefix + key[len(start):]] = state_dict.pop(key)


def _with_prefix(state_dict: dict, prefix: str, *rest: Any) -> None:
    for key in [key for key in state_dict if key.startswith(prefix) and not key.startswith(f"{prefix}{_INNER}.")]:
        state_dict[f"{prefix}{_INNER}.{key[len(prefix):]}"] = state_dict.pop(key)


def checkpoint_wrapper(module: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
                       checkpoint_fn: Optional[Callable] = None, **checkpoint_fn_kwargs: Any) -> Module:
    """A module that computes `module` again in the pass backward.

    >>> wrapper = arete.distributed.fsdp.activation_wrappers
    >>> net = wrapper.checkpoint_wrapper(nn.Linear(2, 1))
    >>> net(arete.ones(1, 2)).sum().backward()
    >>> list(net.state_dict()), net.in_features
    (['weight', 'bias'], 2)
    """
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module: Module) -> Module:
    """A module that keeps what `module` saves for the pass backward in host memory."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(model: Module, checkpoint_wrapper_fn: Callable = checkpoint_wrapper,
                                   check_fn: Callable = lambda _: True, auto_wrap_policy: Optional[Callable] = None) -> None:
    """Wraps the modules below `model` for which `check_fn(module)` says so, or that an `auto_wrap_policy` of FSDP finds, in place.

    >>> wrapper = arete.distributed.fsdp.activation_wrappers
    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> wrapper.apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, nn.Linear))
    >>> [type(m).__name__ for m in net]
    ['CheckpointWrapper', 'ReLU']
    """
    if auto_wrap_policy is not None:
        chosen = {id(m) for m, _ in wrapped_by(model, auto_wrap_policy, set(), {})}
    else:
        chosen = {id(m) for m in model.modules() if m is not model and check_fn(m)}
    made: dict = {}
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if child is not None and id(child) in chosen and not isinstance(module, ActivationWrapper):
                if id(child) not in made:
                    made[id(child)] = checkpoint_wrapper_fn(child)
                setattr(module, name, made[id(child)])
