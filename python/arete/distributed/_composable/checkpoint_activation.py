"""checkpoint(): a module that computes its activations again in the pass backward, and stays itself."""
from __future__ import annotations

import copyreg
from typing import Any

from ...utils.checkpoint import checkpoint as _checkpoint

__all__ = ["checkpoint"]


def checkpoint(module: Any, **kwargs: Any) -> Any:
    """Has the calls of a module go through utils.checkpoint.checkpoint(), with these arguments of it. The module stays the same object,
    with the names that it has; copies and pickled ones do the same.

    >>> net = arete.distributed._composable.checkpoint(nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    >>> net(arete.ones(1, 2)).sum().backward()
    >>> list(net.state_dict())
    ['0.weight', '0.bias']
    """
    if kwargs.pop("use_reentrant", False):
        raise NotImplementedError("use_reentrant=True is not supported in composable checkpoint. Please use "
                                  "torch.utils.checkpoint.checkpoint instead.")
    if getattr(type(module), "_checkpoints", False):
        raise AssertionError("checkpoint: the module was given to checkpoint() before")
    module.__class__ = _class_over(type(module), kwargs)
    return module


def _class_over(kind: type, options: dict) -> type:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The module's own keywords may be called as those of checkpoint() are.
        return _checkpoint(lambda args, kwargs: kind.forward(self, *args, **kwargs), args, kwargs, use_reentrant=False, **options)

    def reduced(self: Any, protocol: Any) -> tuple:
        make, args, *state = super(made, self).__reduce_ex__(max(int(protocol), 2))
        if make is not copyreg.__newobj__:
            raise TypeError(f"a {kind.__name__} that was given to checkpoint() is not pickled: the class has a way of its own for that")
        return _new, (kind, options, *args[1:]), *state

    made = type(kind.__name__, (kind,), {"__module__": kind.__module__, "forward": forward, "_checkpoints": True,
                                         "__reduce_ex__": reduced})
    return made


def _new(kind: type, options: dict, *args: Any) -> Any:
    made = _class_over(kind, options)
    return made.__new__(made, *args)
