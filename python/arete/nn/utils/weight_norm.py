"""Weight normalization by a hook: weight = weight_g * weight_v / |weight_v|."""

from __future__ import annotations

import warnings
from typing import Any, Optional, TypeVar

from ..._C import Tensor
from ..parameter import Parameter

__all__ = ["WeightNorm", "weight_norm", "remove_weight_norm", "norm_except_dim"]

M = TypeVar("M")


def norm_except_dim(v: Tensor, pow: int = 2, dim: Optional[int] = 0) -> Tensor:
    """The norm over all dimensions but `dim` (kept; -1: over all)."""
    if dim is None or dim == -1:
        return v.norm(pow)
    dim = dim % v.dim()
    rest = [d for d in range(v.dim()) if d != dim]
    return v.norm(pow, rest, keepdim=True) if rest else v.abs()


class WeightNorm:
    """The hook, which makes the weight anew before each forward."""

    def __init__(self, name: str, dim: Optional[int]) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Tensor:
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / norm_except_dim(v, 2, self.dim))

    @staticmethod
    def apply(module: Any, name: str, dim: Optional[int]) -> "WeightNorm":
        if find_hook(module, WeightNorm, name) is not None:
            raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        delattr(module, name)
        g = norm_except_dim(weight, 2, hook.dim).detach()
        module.register_parameter(name + "_g", Parameter(g))
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Any) -> None:
        weight = self.compute_weight(module)
        delattr(module, self.name)
        delattr(module, self.name + "_g")
        delattr(module, self.name + "_v")
        setattr(module, self.name, Parameter(weight.detach()))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def find_hook(module: Any, kind: type, name: str) -> Any:
    """The key of the forward pre-hook of a kind for a parameter, or None."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and hook.name == name:
            return key
    return None


def drop_hook(module: Any, kind: type, name: str, title: str) -> Any:
    key = find_hook(module, kind, name)
    if key is None:
        raise ValueError(f"{title} of '{name}' not found in {module}")
    hook = module._forward_pre_hooks.pop(key)
    module._update_hooked()
    return hook


def weight_norm(module: M, name: str = "weight", dim: Optional[int] = 0) -> M:
    """Replaces a parameter by its norm (`<name>_g`) and direction (`<name>_v`).

    >>> layer = nn.utils.weight_norm(nn.Linear(3, 4))
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'weight_g', 'weight_v']
    """
    warnings.warn(
        "`torch.nn.utils.weight_norm` is deprecated in favor of "
        "`torch.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Undoes :func:`weight_norm`.

    >>> layer = nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(3, 4)))
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'weight']
    >>> nn.utils.remove_weight_norm(layer)
    Traceback (most recent call last):
    ValueError: weight_norm of 'weight' not found in Linear(in_features=3, out_features=4, bias=True)
    """
    drop_hook(module, WeightNorm, name, "weight_norm").remove(module)
    return module
