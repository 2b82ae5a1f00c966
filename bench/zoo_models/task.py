"""What a model of the zoo is: a network, its data, what is trained and what is predicted."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MODELS: dict[str, Callable] = {}


@dataclass
class Task:
    """net: a module. data: NumPy arrays by name, which the loss and the prediction get as attributes of tensors.
    losses: for each submodule that is trained ("" is the whole) a function of (net, data), in the order of their steps.
    predict: a function of (net, data) that gives a tensor or a tuple. optimizer: a function of parameters."""

    net: Any
    data: dict[str, np.ndarray]
    losses: dict[str, Callable]
    predict: Callable
    optimizer: Callable


def model(make: Callable) -> Callable:
    """Registers make(torch, full, rng) under its name. It gives a Task in the library `torch`: of the paper's size if
    `full`, else of one that takes milliseconds on a CPU. All randomness of the data is from `rng`, NumPy's."""
    MODELS[make.__name__] = make
    return make


def adamw(torch, rate: float = 3e-4, **options) -> Callable:
    return lambda parameters: torch.optim.AdamW(parameters, lr=rate, **options)


def sgd(torch, rate: float = 0.01) -> Callable:
    return lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=1e-4)


def normal(rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def uniform(rng, *shape: int) -> np.ndarray:
    return rng.random(shape, dtype=np.float32)


def classifier(torch, net, inputs: np.ndarray, classes: int, rng, optimizer: Callable, smoothing=0.0) -> Task:
    """The task of a network that gives logits of its one input."""
    data = {"x": inputs, "label": rng.integers(0, classes, len(inputs))}
    loss_of = torch.nn.functional.cross_entropy
    loss = lambda net, d: loss_of(net(d.x), d.label, label_smoothing=smoothing)
    return Task(net, data, {"": loss}, lambda net, d: net(d.x), optimizer)


def drop_path(torch, rate: float):
    """A module that leaves out the residual branches of some samples (stochastic depth, Huang et al. 2016)."""

    class DropPath(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.p = rate

        def forward(self, x):
            if not self.training or self.p == 0:
                return x
            keep = torch.rand(x.shape[0], *[1] * (x.dim() - 1), device=x.device) >= self.p
            return x * keep / (1 - self.p)

    return DropPath()
