"""Copies of a network on several devices, whose gradients flow into the network's."""
from __future__ import annotations

from typing import Any, Sequence

from ..modules import Module
from .scatter_gather import device_of

__all__ = ["replicate"]


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list:
    """The network on each of some devices. Copies have no parameters of their own: weights are computed from those of the network,
    unless they are detached. On a device where the network is it shares memory with the copy.

    >>> net = nn.Linear(2, 1)
    >>> (copy,) = nn.parallel.replicate(net, ["cpu"])
    >>> copy.weight is net.weight, list(copy.parameters())
    (True, [])
    """
    modules = list(network.modules())
    position = {module: i for i, module in enumerate(modules)}
    copies = []
    for device in map(device_of, devices):
        moved: dict[int, Any] = {}

        def on_device(tensor: Any) -> Any:
            if id(tensor) not in moved:
                moved[id(tensor)] = (tensor.detach() if detach else tensor).to(device, non_blocking=True)
            return moved[id(tensor)]

        replicas = [_shell(module) for module in modules]
        for module, replica in zip(modules, replicas):
            for name, child in module._modules.items():
                replica._modules[name] = None if child is None else replicas[position[child]]
            for name, parameter in module._parameters.items():
                if parameter is None:
                    replica._parameters[name] = None
                else:
                    replica.__dict__[name] = on_device(parameter)
            for name, buffer in module._buffers.items():
                replica._buffers[name] = None if buffer is None else on_device(buffer)
        copies.append(replicas[0])
    return copies


def _shell(module: Module) -> Module:
    replica = module.__new__(type(module))
    replica.__dict__ = {**module.__dict__, "_parameters": {}, "_buffers": {}, "_modules": {}, "_is_replica": True}
    return replica
