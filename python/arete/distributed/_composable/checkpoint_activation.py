"""checkpoint(): a module that computes its activations again in the pass backward, and stays itself."""
from __future__ import annotations

import functools
from typing import Any

from ...utils.checkpoint import checkpoint as _checkpoint

__all__ = ["checkpoint"]


def checkpoint(module: Any, **kwargs: Any) -> Any:
    """Has the calls of a module go through utils.checkpoint.checkpoint(), with these arguments of it. The module stays the same object,
    with the names that it has.

    >>> net = arete.distributed._composable.checkpoint(nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    >>> net(arete.ones(1, 2)).sum().backward()
    >>> list(net.state_dict())
    ['0.weight', '0.bias']
    """
    if kwargs.pop("use_reentrant", False):
        raise NotImplementedError("use_reentrant=True is not supported in composable checkpoint. Please use "
                                  "torch.utils.checkpoint.checkpoint instead.")
    kind = type(module)
    if getattr(kind, "_checkpoints", False):
        raise AssertionError("checkpoint: the module was given to checkpoint() before")

    def forward(self: Any, *args: Any, **kwargs_of_call: Any) -> Any:
        return _checkpoint(functools.partial(kind.forward, self), *args, use_reentrant=False, **kwargs, **kwargs_of_call)

    module.__class__ = type(kind.__name__, (kind,), {"__module__": kind.__module__, "forward": forward, "_checkpoints": True})
    return module
