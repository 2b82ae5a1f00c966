"""Modules as functions of their parameters, as functorch has them: torch.func.functional_call and stack_module_state do the same."""
from __future__ import annotations

import copy
from typing import Any, Sequence

from .._operators import stack
from ..nn import Module, Parameter
from ..nn.utils.stateless import functional_call

__all__ = ["FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "make_functional",
           "make_functional_with_buffers"]


class FunctionalModuleWithBuffers(Module):
    """A module without parameters and buffers of its own, which a call is given first.

    >>> from arete._functorch.make_functional import make_functional_with_buffers
    >>> f, parameters, buffers = make_functional_with_buffers(nn.BatchNorm1d(2))
    >>> f(parameters, buffers, arete.tensor([[1.0, 3.0], [1.0, 5.0]])).tolist()[0][0], len(buffers)
    (0.0, 3)
    """

    def __init__(self, stateless_model: Module, param_names: Sequence[str], buffer_names: Sequence[str] = ()) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = tuple(param_names), tuple(buffer_names)

    @classmethod
    def _create_from(cls, model: Module, disable_autograd_tracking: bool = False) -> tuple:
        parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
        own = tuple(p.detach() if disable_autograd_tracking else p for p in parameters.values())
        bare = {id(p): Parameter(p.detach().to("meta"), p.requires_grad) for p in parameters.values()}
        bare |= {id(b): b.detach().to("meta") for b in buffers.values()}
        return cls(copy.deepcopy(model, bare), tuple(parameters), tuple(buffers)), own, tuple(buffers.values())

    def forward(self, params: Sequence, buffers: Sequence, *args: Any, **kwargs: Any) -> Any:
        """What the module gives with these."""
        tensors = dict(zip((*self.param_names, *self.buffer_names), (*params, *buffers), strict=True))
        return functional_call(self.stateless_model, tensors, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module without parameters of its own, which a call is given first.

    >>> from arete._functorch.make_functional import make_functional
    >>> f, parameters = make_functional(nn.Linear(2, 1, bias=False))
    >>> f([arete.ones(1, 2)], arete.ones(2))
    tensor([2.], grad_fn=<SqueezeBackward>)
    """

    @classmethod
    def _create_from(cls, model: Module, disable_autograd_tracking: bool = False) -> tuple:
        return super()._create_from(model, disable_autograd_tracking)[:2]

    def forward(self, params: Sequence, *args: Any, **kwargs: Any) -> Any:
        """What the module gives with these."""
        return super().forward(params, (), *args, **kwargs)


def make_functional(model: Module, disable_autograd_tracking: bool = False) -> tuple:
    """The module as a function of its parameters, and these; detached with `disable_autograd_tracking`. RuntimeError for one with
    buffers: make_functional_with_buffers() takes it.

    >>> from arete._functorch.make_functional import make_functional
    >>> f, parameters = make_functional(nn.Linear(2, 1))
    >>> arete.func.grad(lambda p: f(p, arete.ones(2)).sum())(parameters)[1]
    tensor([1.])
    """
    if any(True for _ in model.buffers()):
        raise RuntimeError("make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead.")
    return FunctionalModule._create_from(model, disable_autograd_tracking)


def make_functional_with_buffers(model: Module, disable_autograd_tracking: bool = False) -> tuple:
    """The module as a function of its parameters and buffers, these, and those.

    >>> from arete._functorch.make_functional import make_functional_with_buffers
    >>> len(make_functional_with_buffers(nn.BatchNorm1d(2)))
    3
    """
    return FunctionalModuleWithBuffers._create_from(model, disable_autograd_tracking)


def check_alike(models: Sequence[Module], asked: str) -> None:
    """RuntimeError unless the modules, one at least, are of one class and all train or none; `asked`: the function's name."""
    if not models:
        raise RuntimeError(f"{asked}: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError(f"{asked}: Expected all models to have the same training/eval mode.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError(f"{asked}: Expected all models to be of the same class.")


def combine_state_for_ensemble(models: Sequence[Module]) -> tuple:
    """A function for vmap that is all of the modules, which are alike, and their parameters and buffers, stacked.

    >>> from arete._functorch.make_functional import combine_state_for_ensemble
    >>> f, parameters, buffers = combine_state_for_ensemble([nn.Linear(2, 1) for _ in range(3)])
    >>> arete.vmap(f, in_dims=(0, 0, None))(parameters, buffers, arete.ones(4, 2)).shape
    arete.Size([3, 4, 1])
    """
    models = list(models)
    check_alike(models, "combine_state_for_ensemble")
    functions, parameters, buffers = zip(*map(make_functional_with_buffers, models))
    return functions[0], *(tuple(stack(same).detach().requires_grad_(same[0].requires_grad) if same[0].is_leaf else stack(same)
                                 for same in zip(*every)) for every in (parameters, buffers))
