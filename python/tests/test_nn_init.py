"""Initial values: bounds and deviations, and what is exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
from peer import peer

import arete
from arete.nn import init

torch = peer()
tinit = torch.nn.init
pytestmark = pytest.mark.filterwarnings("ignore")


def test_gains():
    names = ["linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "sigmoid", "tanh", "relu",
             "leaky_relu", "selu"]
    for name in names:
        assert init.calculate_gain(name) == pytest.approx(tinit.calculate_gain(name))
    assert init.calculate_gain("leaky_relu", 0.2) == pytest.approx(
        tinit.calculate_gain("leaky_relu", 0.2)
    )
    with pytest.raises(ValueError, match="Unsupported nonlinearity"):
        init.calculate_gain("swish")
    with pytest.raises(ValueError, match="not a valid number"):
        init.calculate_gain("leaky_relu", True)


@pytest.mark.parametrize("shape", [(200, 100), (40, 30, 3, 3)])
def test_variance_scaling(shape):
    fan_in = shape[1] * math.prod(shape[2:])
    fan_out = shape[0] * math.prod(shape[2:])
    w = arete.empty(*shape)
    cases = [
        (lambda: init.xavier_uniform_(w, 2.0), 2 * math.sqrt(2 / (fan_in + fan_out)), True),
        (lambda: init.xavier_normal_(w), math.sqrt(2 / (fan_in + fan_out)), False),
        (lambda: init.kaiming_uniform_(w, a=1.0), math.sqrt(1 / fan_in), True),
        (lambda: init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu"),
         math.sqrt(2 / fan_out), False),
    ]
    for fill, std, uniform in cases:
        assert fill() is w
        v = w.numpy()
        assert abs(v.std() / std - 1) < 0.03 and abs(v.mean()) < 0.03 * std
        if uniform:
            assert abs(v).max() <= math.sqrt(3) * std * 1.0001
        else:
            assert abs(v).max() > 2.5 * std


def test_simple_fills():
    w = arete.empty(300, 100, requires_grad=True)
    v = init.uniform_(w, -2, 3).detach().numpy()
    assert -2 <= v.min() < -1.9 and 2.9 < v.max() <= 3
    v = init.normal_(w, 1, 2).detach().numpy()
    assert abs(v.mean() - 1) < 0.05 and abs(v.std() - 2) < 0.05
    v = init.trunc_normal_(w, 0.5, 1.0, -1.0, 1.0).detach().numpy()
    assert v.min() >= -1 and v.max() <= 1
    other = tinit.trunc_normal_(torch.empty(300, 100), 0.5, 1.0, -1.0, 1.0).numpy()
    assert abs(v.mean() - other.mean()) < 0.02 and abs(v.std() - other.std()) < 0.02
    assert (init.constant_(w, 3.5).detach().numpy() == 3.5).all()
    assert (init.ones_(w).detach().numpy() == 1).all()
    assert (init.zeros_(w).detach().numpy() == 0).all()
    assert w.requires_grad and w.is_leaf
    a = init.normal_(arete.empty(4), generator=arete.Generator().manual_seed(5))
    b = init.normal_(arete.empty(4), generator=arete.Generator().manual_seed(5))
    assert a.tolist() == b.tolist()


@pytest.mark.parametrize("shape,groups", [((4, 3, 3), 1), ((6, 2, 3, 3), 3), ((2, 4, 2, 3, 3), 1)])
def test_dirac(shape, groups):
    mine = init.dirac_(arete.empty(*shape), groups).numpy()
    np.testing.assert_array_equal(mine, tinit.dirac_(torch.empty(*shape), groups).numpy())


def test_eye():
    np.testing.assert_array_equal(init.eye_(arete.empty(3, 4)).numpy(), np.eye(3, 4))


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (4, 2, 2)])
def test_orthogonal(shape):
    w = init.orthogonal_(arete.empty(*shape), gain=2.0).numpy().reshape(shape[0], -1)
    small = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_sparse():
    w = init.sparse_(arete.empty(50, 20), 0.3, std=0.5).numpy()
    assert ((w == 0).sum(0) == 15).all() and abs(w[w != 0].std() - 0.5) < 0.05


def test_errors_and_older_names():
    for f in (init.eye_, init.sparse_):
        with pytest.raises(ValueError, match="Only tensors with 2 dimensions"):
            f(arete.empty(3), *([0.1] if f is init.sparse_ else []))
    with pytest.raises(ValueError, match="Only tensors with 3, 4, or 5"):
        init.dirac_(arete.empty(3, 3))
    with pytest.raises(ValueError, match="Fan in and fan out"):
        init.xavier_uniform_(arete.empty(3))
    with pytest.raises(ValueError, match="not supported, please use one of"):
        init.kaiming_uniform_(arete.empty(3, 3), mode="fan")
    w = arete.empty(3, 3)
    assert init.constant(w, 2.0) is w and w.tolist()[0] == [2.0] * 3
    theirs = {n for n in tinit.__dict__ if not n.startswith("_") and callable(getattr(tinit, n))}
    assert theirs - set(dir(init)) <= {"Callable", "Literal", "ParamSpec", "TypeVar"}
