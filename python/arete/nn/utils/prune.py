"""Pruning: parameters with some numbers held at zero by a mask.

A pruned parameter `weight` is kept as the parameter `weight_orig`, the mask is the buffer `weight_mask`, and a hook
makes `module.weight`, their product, before each forward."""

from __future__ import annotations

import abc
import numbers
from collections.abc import Iterable, Iterator
from typing import Any, Optional

from ... import _operators as ops
from ..._C import Tensor
from .convert_parameters import parameters_to_vector

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
    "RandomStructured", "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned",
    "l1_unstructured", "ln_structured", "random_structured", "random_unstructured", "remove",
]


class BasePruningMethod(abc.ABC):
    """What methods share; each gives PRUNING_TYPE ("unstructured", "structured" or "global") and compute_mask().

    >>> class EverySecond(nn.utils.prune.BasePruningMethod):
    ...     PRUNING_TYPE = "unstructured"
    ...     def compute_mask(self, t, default_mask):
    ...         mask = default_mask.clone()
    ...         mask.view(-1)[::2] = 0
    ...         return mask
    >>> layer = nn.Linear(4, 1)
    >>> _ = EverySecond.apply(layer, "weight")
    >>> layer.weight_mask
    tensor([[0., 1., 0., 1.]])
    """

    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abc.abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for a tensor: zeros where `default_mask` has some, and where this method adds some."""

    def apply_mask(self, module: Any) -> Tensor:
        """The parameter of a module with the mask applied."""
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module: Any, name: str, *args: Any, importance_scores: Optional[Tensor] = None,
              **kwargs: Any) -> "BasePruningMethod":
        """Prunes a parameter of a module: further, where it is pruned."""
        method = _joined(module, name, cls(*args, **kwargs))
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}")
        again = isinstance(method, PruningContainer)
        if again:
            before = getattr(module, name + "_mask").detach().clone()
        else:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            before = ops.ones_like(original.detach())
        try:
            module.register_buffer(name + "_mask", method.compute_mask(scores, default_mask=before))
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if not again:
                module.register_parameter(name, original)
                del module._parameters[name + "_orig"]
            raise
        return method

    def prune(self, t: Tensor, default_mask: Optional[Tensor] = None,
              importance_scores: Optional[Tensor] = None) -> Tensor:
        """A pruned copy of any tensor."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        return t * self.compute_mask(scores, default_mask=ops.ones_like(t) if default_mask is None else default_mask)

    def remove(self, module: Any) -> None:
        """Leaves the parameter with its zeros, and nothing that holds them there."""
        name = self._tensor_name
        values = self.apply_mask(module)
        delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        original.data = values.data
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


def _hooks(module: Any, name: Optional[str] = None) -> list:
    """The keys of the hooks that prune a parameter, or any."""
    return [key for key, hook in module._forward_pre_hooks.items()
            if isinstance(hook, BasePruningMethod) and name in (None, hook._tensor_name)]


def _joined(module: Any, name: str, method: BasePruningMethod) -> BasePruningMethod:
    """The method, or a container of what prunes the parameter already and of it."""
    method._tensor_name = name
    old = [module._forward_pre_hooks.pop(key) for key in _hooks(module, name)]
    if not old:
        return method
    container = old[0] if isinstance(old[0], PruningContainer) else PruningContainer(old[0])
    container.add_pruning_method(method)
    return container


class PruningContainer(BasePruningMethod):
    """Methods that pruned one parameter one after the other; the last one computes what they add.

    >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(4, 2), "weight", amount=2)
    >>> layer = nn.utils.prune.random_unstructured(layer, "weight", amount=3)
    >>> hook, = layer._forward_pre_hooks.values()
    >>> len(hook), layer.weight_mask.sum().item()
    (2, 3.0)
    """

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """One more method, of the same parameter."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError("Can only add pruning methods acting on the parameter named "
                             f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The last method's mask of what is not pruned yet."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            place: Any = mask == 1
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError('Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` '
                                     "defined.")
            if method.dim < -t.dim():
                raise IndexError(f"Index is out of bounds for tensor with dimensions {t.dim()}")
            dim = method.dim % t.dim()
            kept = mask.sum(dim=[d for d in range(t.dim()) if d != dim]) != 0
            place = (slice(None),) * dim + (kept,)
        elif method.PRUNING_TYPE == "global":
            place = (slice(None),) * t.dim()
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask[place] = method.compute_mask(t[place], default_mask=mask[place]).to(dtype=mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing, but makes the mask.

    >>> nn.utils.prune.Identity().prune(arete.ones(2))
    tensor([1., 1.])
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _Amount(BasePruningMethod):
    """A method that prunes a share of a tensor, or a number of its parts."""

    def __init__(self, amount: Any) -> None:
        if not isinstance(amount, numbers.Real):
            raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        if amount < 0 or not isinstance(amount, numbers.Integral) and amount > 1:
            raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")
        self.amount = amount

    def _count(self, size: int) -> int:
        if isinstance(self.amount, numbers.Integral) and self.amount > size:
            raise ValueError(f"amount={self.amount} should be smaller than the number of parameters to prune={size}")
        return int(self.amount) if isinstance(self.amount, numbers.Integral) else round(self.amount * size)


class _Unstructured(_Amount):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = self._count(t.numel())
        mask = default_mask.clone(memory_format=ops.contiguous_format)
        if count:
            mask.view(-1)[self._order(t).reshape(-1).topk(count, largest=False).indices] = 0
        return mask

    def _order(self, t: Tensor) -> Tensor:
        """Numbers of which the smallest go first."""
        raise NotImplementedError


class RandomUnstructured(_Unstructured):
    """Prunes a number of elements, or a share of them, at random.

    >>> nn.utils.prune.RandomUnstructured(0.5).prune(arete.ones(6)).sum()
    tensor(3.)
    """

    def _order(self, t: Tensor) -> Tensor:
        return ops.rand_like(t.detach())


class L1Unstructured(_Unstructured):
    """Prunes the elements of the smallest absolute values.

    >>> nn.utils.prune.L1Unstructured(2).prune(arete.tensor([3.0, -1.0, 2.0, -4.0]))
    tensor([ 3., -0.,  0., -4.])
    """

    def _order(self, t: Tensor) -> Tensor:
        return t.detach().abs()


class _Structured(_Amount):
    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.dim() <= 1:
            raise ValueError("Structured pruning can only be applied to multidimensional tensors. Found tensor of "
                             f"shape {t.shape} with {t.dim()} dims")
        if self.dim >= t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        size = t.shape[self.dim]
        count = self._count(size)
        if not count:
            return default_mask
        kept = self._order(t).topk(size - count).indices
        mask = ops.zeros_like(t.detach())
        mask[(slice(None),) * (self.dim % t.dim()) + (kept,)] = 1
        return mask * default_mask.to(dtype=mask.dtype)

    def _order(self, t: Tensor) -> Tensor:
        """A number for each channel, of which the largest stay."""
        raise NotImplementedError


class RandomStructured(_Structured):
    """Prunes a number of channels along `dim`, or a share of them, at random.

    >>> nn.utils.prune.RandomStructured(1, dim=0).prune(arete.ones(3, 2)).sum()
    tensor(4.)
    """

    def _order(self, t: Tensor) -> Tensor:
        return ops.rand(t.shape[self.dim], device=t.device)


class LnStructured(_Structured):
    """Prunes the channels along `dim` of the smallest `n`-norms.

    >>> nn.utils.prune.LnStructured(1, n=2, dim=0).prune(arete.tensor([[1.0, 2.0], [1.0, 1.0], [3.0, 0.0]]))
    tensor([[1., 2.],
            [0., 0.],
            [3., 0.]])
    """

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _order(self, t: Tensor) -> Tensor:
        dim = self.dim % t.dim()
        return ops.norm(t.detach(), p=self.n, dim=[d for d in range(t.dim()) if d != dim])


class CustomFromMask(BasePruningMethod):
    """Prunes where a mask has zeros.

    >>> nn.utils.prune.CustomFromMask(arete.tensor([1, 0, 1])).prune(arete.tensor([5.0, 6.0, 7.0]))
    tensor([5., 0., 7.])
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"the mask has the shape {self.mask.shape}, but the tensor {default_mask.shape}")
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: Any, name: str) -> Any:
    """Prunes nothing of a parameter, but makes its mask.

    >>> nn.utils.prune.identity(nn.Linear(2, 1), "weight").weight_mask
    tensor([[1., 1.]])
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prunes `amount` elements of a parameter (a whole number, or a share in [0, 1]) at random.

    >>> nn.utils.prune.random_unstructured(nn.Linear(4, 2), "weight", amount=0.25).weight_mask.sum()
    tensor(6.)
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Optional[Tensor] = None) -> Any:
    """Prunes the elements of the smallest absolute values, of the parameter or of scores that stand for it.

    >>> scores = arete.tensor([[3.0, 1.0, 2.0]])
    >>> nn.utils.prune.l1_unstructured(nn.Linear(3, 1), "weight", 1, importance_scores=scores).weight_mask
    tensor([[1., 0., 1.]])
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prunes channels of a parameter along `dim` at random.

    >>> nn.utils.prune.random_structured(nn.Linear(4, 2), "weight", amount=1, dim=0).weight_mask.sum()
    tensor(4.)
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Any, name: str, amount: Any, n: Any, dim: int,
                  importance_scores: Optional[Tensor] = None) -> Any:
    """Prunes the channels along `dim` of the smallest `n`-norms, of the parameter or of scores that stand for it.

    >>> scores = arete.tensor([[1.0, 1.0], [5.0, 5.0]])
    >>> nn.utils.prune.ln_structured(nn.Linear(2, 2), "weight", 1, 2, 0, importance_scores=scores).weight_mask
    tensor([[0., 0.],
            [1., 1.]])
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prunes a parameter where a mask has zeros.

    >>> nn.utils.prune.custom_from_mask(nn.Linear(2, 1), "weight", arete.tensor([[0, 1]])).weight_mask
    tensor([[0., 1.]])
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any) -> None:
    """Prunes parameters of several modules, given as pairs of a module and a name, as if they were one.

    >>> net = nn.Sequential(nn.Linear(4, 2, bias=False), nn.Linear(2, 1, bias=False))
    >>> pairs = [(layer, "weight") for layer in net]
    >>> nn.utils.prune.global_unstructured(pairs, nn.utils.prune.L1Unstructured, amount=0.5)
    >>> (net[0].weight_mask.sum() + net[1].weight_mask.sum()).item()
    5.0
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs = [(module, name) for module, name in parameters]
    values = [getattr(module, name) for module, name in pairs]
    masks = [getattr(m, name + "_mask", ops.ones_like(v.detach())) for (m, name), v in zip(pairs, values)]
    container, method = PruningContainer(), pruning_method(**kwargs)
    container._tensor_name = method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
                        f"{pruning_method} of type {method.PRUNING_TYPE}")
    container.add_pruning_method(method)
    mask = container.compute_mask(parameters_to_vector([scores.get(p, v) for p, v in zip(pairs, values)]).detach(),
                                  parameters_to_vector(masks))
    for (module, name), value, part in zip(pairs, values, mask.split([v.numel() for v in values])):
        custom_from_mask(module, name, part.view(value.shape))


def remove(module: Any, name: str) -> Any:
    """Leaves a pruned parameter with its zeros, and nothing that holds them there.

    >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(2, 1), "weight", amount=1)
    >>> layer = nn.utils.prune.remove(layer, "weight")
    >>> sorted(layer.state_dict()), (layer.weight == 0).sum().item()
    (['bias', 'weight'], 1)
    """
    for key in _hooks(module, name):
        module._forward_pre_hooks.pop(key).remove(module)
        return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Any) -> bool:
    """Whether the module or one inside it has a pruned parameter.

    >>> layer = nn.Linear(2, 1)
    >>> nn.utils.prune.is_pruned(layer), nn.utils.prune.is_pruned(nn.utils.prune.identity(layer, "bias"))
    (False, True)
    """
    return any(_hooks(m) for m in module.modules())
