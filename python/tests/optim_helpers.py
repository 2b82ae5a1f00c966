"""Parameters and optimizers that are the same in arete and in torch."""
import copy
import importlib

import numpy as np
import pytest
from peer import peer

import arete

torch = peer()
LIBRARIES = [arete, torch]


def optimizer_module(library):
    return importlib.import_module(f"{library.__name__}.optim.optimizer")


CASES = [
    ("SGD", dict(lr=0.1)), ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1)),
    ("SGD", dict(lr=0.1, momentum=0.9, nesterov=True, maximize=True)), ("Adam", dict()),
    ("Adam", dict(lr=0.01, betas=(0.8, 0.95), amsgrad=True, weight_decay=0.1)),
    ("Adam", dict(decoupled_weight_decay=True, weight_decay=0.1)),
    ("AdamW", dict()), ("AdamW", dict(amsgrad=True, maximize=True)), ("RMSprop", dict()),
    ("RMSprop", dict(centered=True, momentum=0.9, weight_decay=0.1)), ("Adagrad", dict(lr_decay=0.1, initial_accumulator_value=0.5)),
    ("Adadelta", dict(weight_decay=0.1, rho=0.5)), ("NAdam", dict()), ("NAdam", dict(weight_decay=0.1, decoupled_weight_decay=True)),
    ("RAdam", dict(betas=(0.9, 0.95))), ("RAdam", dict(weight_decay=0.1, decoupled_weight_decay=True)), ("Adamax", dict(weight_decay=0.1)),
    ("Rprop", dict(etas=(0.4, 1.5), step_sizes=(1e-3, 0.1))), ("ASGD", dict(lr=0.1, lambd=0.1, t0=5)), ("Adafactor", dict()),
    ("Adafactor", dict(lr=0.1, weight_decay=0.1, d=1.5, eps=(1e-6, 1e-2), maximize=True)), ("Muon", dict()),
    ("Muon", dict(nesterov=False, adjust_lr_fn="match_rms_adamw", lr=0.1, ns_steps=3)),
]
NAMES = sorted({name for name, _ in CASES})
BASIC = {"SGD": dict(lr=0.1, momentum=0.9)}
TOLERANCE = {"float32": 3e-6, "float64": 1e-12, "complex64": 3e-6, "bfloat16": 0.02}


def array(t):
    if not hasattr(t, "dtype"):
        return np.array(t)
    t = t.detach().cpu()
    return np.array((t.float() if "bfloat16" in str(t.dtype) else t).tolist())


class Trainee:
    """Parameters, an optimizer of them, and gradients that are the same in both libraries."""

    def __init__(self, library, name, options=None, dtype="float64", **groups):
        self.library, self.random = library, np.random.RandomState(0)
        shapes = [(5, 3), (2, 4), (3, 3)] if name == "Muon" else [(3, 4), (5,), ()]
        self.dtype = getattr(library, dtype)
        self.params = [library.tensor(self.draw(s), dtype=self.dtype).requires_grad_() for s in shapes]
        self.make = getattr(library.optim, name)
        self.options = BASIC.get(name, {}) if options is None else options
        self.optimizer = self.make([{"params": self.params[:2]}, {"params": self.params[2:], "lr": 0.05}], **self.options)

    def draw(self, shape):
        values = self.random.randn(*shape)
        return values + 1j * self.random.randn(*shape) if self.dtype.is_complex else values

    def __deepcopy__(self, memo):
        new = object.__new__(type(self))
        new.__dict__ = {**self.__dict__, "random": copy.deepcopy(self.random), "optimizer": copy.deepcopy(self.optimizer, memo)}
        new.params = [p for g in new.optimizer.param_groups for p in g["params"]]
        return new

    def set_gradients(self):
        for p in self.params:
            p.grad = self.library.tensor(self.draw(tuple(p.shape)), dtype=self.dtype) * 0.5 + p.detach() * 0.3

    def step(self, times=1):
        for _ in range(times):
            self.set_gradients()
            self.optimizer.step()
        return self

    def values(self):
        return [array(p) for p in self.params]


def expect_close(ours, theirs, tolerance):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * (abs(b).max() if b.size else 1))


def expect_same_state(a, b, tolerance):
    """Keys in the same order, dtypes, shapes, values."""
    for p, q in zip(a.params, b.params):
        mine, theirs = a.optimizer.state[p], b.optimizer.state[q]
        assert list(mine) == list(theirs)
        for key, value in theirs.items():
            assert str(mine[key].dtype).split(".")[1] == str(value.dtype).split(".")[1], key
            assert tuple(mine[key].shape) == tuple(value.shape) and not mine[key].requires_grad
        expect_close([array(v) for v in mine.values()], [array(v) for v in theirs.values()], tolerance)


@pytest.fixture
def double_numbers():
    """Counts and numbers of states have the default dtype."""
    changed = []
    try:
        for library in LIBRARIES:  # without PyTorch a skip
            library.set_default_dtype(library.float64)
            changed.append(library)
        yield
    finally:
        for library in changed:
            library.set_default_dtype(library.float32)
