"""Typical arguments by kind of signature, for callables that no record and no database of PyTorch has a sample of.

A kind is what a call takes (a tensor, two matrices, pictures and a window, ...), not whose call it is: all kinds are
tried until PyTorch takes one. Layers get theirs by the names of their constructors' parameters."""

from __future__ import annotations

import inspect
import re

import torch

# What the parameters of constructors that have no default are set to, by name.
OPTIONS = {
    "kernel_size": 2,
    "groups": 2,
    "num_features": 6,
    "in_features": 8,
    "out_features": 8,
    "normalized_shape": 8,
    "output_size": 8,
    "num_embeddings": 64,
    "embedding_dim": 8,
    "n_classes": 8,
    "cutoffs": [2, 4],
    "num_channels": 6,
    "num_groups": 2,
    "in_channels": 6,
    "out_channels": 8,
    "upscale_factor": 2,
    "downscale_factor": 2,
    "hidden_size": 12,
    "input_size": 12,
}
# Further options without which a layer does nothing.
MORE = {"scale_factor": 2}
COUNTS = {"n", "window_length", "size", "*size", "M"}  # a first parameter that says how many elements there are to be


def _tensors():
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    def index(high, *shape):
        return torch.randint(high, shape, generator=generator)

    return normal, index


def of_function(function):
    """(args, kwargs) of each kind; of a function of a number of elements, as its documentation says, only that."""
    normal, index = _tensors()
    first = re.match(r"\s*\w+\(([\w*]+)", getattr(function, "__doc__", None) or "")
    if first and first[1] in COUNTS:
        yield (64,), {}
        return
    x, matrix, pictures, table = normal(4, 6, 8), normal(8, 8), normal(2, 6, 8, 8), normal(64, 8)
    yield (x,), {}
    yield (x, normal(4, 6, 8)), {}
    yield (x, 0.5, True), {}  # dropout
    yield (x, x.shape), {}
    yield (x, 2), {}
    yield (matrix, 1.5), {}
    yield (matrix, normal(8, 8), normal(8, 8)), {}
    yield ("ij,jk->ik", matrix, normal(8, 8)), {}
    yield (pictures, 2), {}
    yield (pictures, 2.0, 2), {}  # pools of a norm
    yield (normal(2, 24, 49), (8, 8), 2), {}  # columns, the size of a picture, a window
    yield (pictures, normal(2, 8, 8, 2).tanh(), 0, 0, False), {}  # pictures read at points
    yield (
        pictures,
        normal(6),
        normal(6),
        normal(6),
        normal(6).abs() + 1,
        True,
        0.1,
        1e-5,
        True,
    ), {}  # torch.batch_norm and instance_norm
    yield (table, index(64, 32), torch.arange(0, 32, 4)), {}  # bags of rows
    yield (normal(8, 4, 6), normal(3, 6, 5), normal(5)), {}  # time, batch, channels


def of_layer(cls):
    """(options, inputs, named inputs) of each kind."""
    normal, index = _tensors()
    options = {}
    parameters = inspect.signature(cls).parameters
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values()):  # what the base class takes
        parameters = inspect.signature(cls.__mro__[1]).parameters
    for name, parameter in parameters.items():
        if name == "mode":  # set by the classes derived from RNNBase
            continue
        if parameter.default is inspect.Parameter.empty and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            if name not in OPTIONS:
                return
            options[name] = OPTIONS[name]
        elif name in MORE:
            options[name] = MORE[name]
    inner = [p for p in ("input_size", "hidden_size") if p in options]
    axes = re.search(r"([123])d$", cls.__name__)
    if len(inner) == 2:  # time, batch, features
        yield options, (normal(5, 7, 12),), {}
        yield {**options, "bidirectional": True, "num_layers": 2}, (normal(5, 7, 12),), {}
        yield {**options, "batch_first": True}, (normal(7, 5, 12),), {}
    if axes:
        yield options, (normal(4, 6, *[8] * int(axes[1])),), {}
    yield options, (normal(4, 6, 8),), {}
    yield options, (normal(4, 6, 8, 8),), {}
    yield options, (normal(4, 24, 49),), {}
    yield options, (index(64, 8, 16),), {}
    yield options, (normal(4, 8), normal(4, 8)), {}
    yield options, (normal(4, 8), index(8, 4)), {}
    yield options, (normal(4, 8), normal(4, 8), normal(4, 8)), {}
