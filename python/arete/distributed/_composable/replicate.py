"""replicate(): what DistributedDataParallel does, for a module that stays itself."""
from __future__ import annotations

from typing import Any, Callable, Iterable, Optional

from ...nn.parallel import DistributedDataParallel

__all__ = ["DDP", "replicate"]


class DDP:
    """What replicate() adds to a module's class."""

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """False: passes, forward and backward, only accumulate gradients; the next one with True exchanges the sums."""
        self._replicate.require_backward_grad_sync = requires_gradient_sync  # type: ignore[attr-defined]

    def register_comm_hook(self, state: Any, hook: Callable) -> None:
        """Exchanges gradients by `hook(state, bucket)`."""
        self._replicate.register_comm_hook(state, hook)  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict) -> Any:
        raise AssertionError("DDP does not support deepcopy. Please use state dict for serialization.")


def replicate(module: Any, ignored_modules: Optional[Iterable] = None, **kwargs: Any) -> Any:
    """Has the gradients of a module be the mean over processes, which begin with the values of the first one. The module stays the same
    object, with the names that it has. `kwargs` are those of DistributedDataParallel, `device_mesh` (of one dimension) says the group.

    >>> dist = arete.distributed
    >>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    >>> net = dist._composable.replicate.replicate(nn.Linear(2, 1))
    >>> net(arete.ones(1, 2)).sum().backward()
    >>> net.weight.grad, list(net.state_dict())
    (tensor([[1., 1.]]), ['weight', 'bias'])
    >>> dist.destroy_process_group()
    """
    if "_replicate" in module.__dict__ or "_fsdp_state" in module.__dict__:
        raise AssertionError("replicate: the module was given to replicate() or fully_shard() before")
    mesh = kwargs.pop("device_mesh", None)
    if mesh is not None:
        if mesh.ndim != 1:
            raise ValueError(f"replicate expects a mesh of one dimension but got {mesh}")
        kwargs["process_group"] = mesh.get_group()
    if kwargs.pop("device_id", None) is not None:
        raise NotImplementedError("replicate: device_id is not supported: move the module, and what it is called with, before")
    ignored = {id(p) for m in ignored_modules or () for p in m.parameters()}
    if ignored:
        names = [name for name, p in module.named_parameters() if id(p) in ignored]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    module.__dict__["_replicate"] = DistributedDataParallel(module, **kwargs)  # beside the modules below, not one of them
    kind = type(module)
    module.__class__ = type(f"DDP{kind.__name__}", (DDP, kind), {"__module__": kind.__module__})
    module.register_forward_pre_hook(lambda m, args: m._replicate.prepare_forward(), prepend=True)
    return module
