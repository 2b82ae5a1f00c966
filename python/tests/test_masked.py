"""Masked reductions against the same reductions of the elements that are left, row by row, in NumPy."""
import numpy as np
import pytest

import arete
from arete import masked

X = np.array([[3.0, -1.0, 2.0, 0.5], [4.0, 1.5, -2.0, 7.0], [0.25, -3.0, 5.0, 1.0]], dtype=np.float32)
MASK = np.array([[True, False, True, True], [False, True, True, False], [True, True, True, True]])


def rows(function):
    return np.array([function(x[m]) for x, m in zip(X, MASK)])


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


REDUCTIONS = {
    "sum": np.sum, "prod": np.prod, "amax": np.max, "amin": np.min, "mean": np.mean,
    "var": lambda x: np.var(x, ddof=1), "std": lambda x: np.std(x, ddof=1),
    "logsumexp": lambda x: np.log(np.exp(x).sum()), "median": lambda x: np.sort(x)[(len(x) - 1) // 2],
}


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_reductions(name):
    ours = getattr(masked, name)(arete.tensor(X), 1, mask=arete.tensor(MASK))
    np.testing.assert_allclose(ours.numpy(), rows(REDUCTIONS[name]), rtol=1e-5)
    kept = getattr(masked, name)(arete.tensor(X), 1, keepdim=True, mask=arete.tensor(MASK))
    assert kept.shape == (3, 1)


@pytest.mark.parametrize("name", sorted(set(REDUCTIONS) - {"median"}))
def test_without_a_mask_and_over_everything(name):
    ours = getattr(masked, name)(arete.tensor(X))
    np.testing.assert_allclose(ours.item(), REDUCTIONS[name](X.reshape(-1)), rtol=1e-4)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, float("inf"), -float("inf")])
def test_norm(order):
    ours = masked.norm(arete.tensor(X), order, 1, mask=arete.tensor(MASK))
    np.testing.assert_allclose(ours.numpy(), rows(lambda x: np.linalg.norm(x, order)), rtol=1e-5)


def test_positions():
    mask = arete.tensor(MASK)
    expected = [int(np.argmax(np.where(m, x, -np.inf))) for x, m in zip(X, MASK)]
    assert masked.argmax(arete.tensor(X), 1, mask=mask).tolist() == expected
    expected = [int(np.argmin(np.where(m, x, np.inf))) for x, m in zip(X, MASK)]
    assert masked.argmin(arete.tensor(X), 1, mask=mask).tolist() == expected


def test_scans():
    mask = arete.tensor(MASK)
    np.testing.assert_allclose(masked.cumsum(arete.tensor(X), 1, mask=mask).numpy(), np.where(MASK, X, 0).cumsum(1))
    np.testing.assert_allclose(masked.cumprod(arete.tensor(X), 1, mask=mask).numpy(), np.where(MASK, X, 1).cumprod(1))


def test_normalizations():
    x, mask = arete.tensor(X), arete.tensor(MASK)
    found = masked.softmax(x, 1, mask=mask).numpy()
    for y, row, m in zip(found, X, MASK):
        np.testing.assert_allclose(y[m], softmax(row[m]), rtol=1e-5)
        assert (y[~m] == 0).all()
    np.testing.assert_allclose(masked.softmin(x, 1, mask=mask).numpy(), masked.softmax(-x, 1, mask=mask).numpy())
    np.testing.assert_allclose(masked.log_softmax(x, 1, mask=mask).exp().numpy(), found, rtol=1e-5)
    unit = masked.normalize(x, 2.0, 1, mask=mask)
    np.testing.assert_allclose(masked.norm(unit, 2.0, 1).numpy(), np.ones(3), rtol=1e-6)


def test_logaddexp():
    a, b = arete.tensor([1.0, 2.0, 3.0]), arete.tensor([0.5, 0.5, 0.5])
    y = masked.logaddexp(a, b, input_mask=arete.tensor([True, False, True]), other_mask=arete.tensor([True, True, False]))
    np.testing.assert_allclose(y.numpy(), [np.logaddexp(1.0, 0.5), 0.5, 3.0], rtol=1e-6)


def test_masked_elements_have_no_gradient_even_where_infinite():
    x = arete.tensor([1.0, float("inf"), 3.0], requires_grad=True)
    mask = arete.tensor([True, False, True])
    masked.sum(x, mask=mask).backward()
    assert x.grad.tolist() == [1, 0, 1]


def test_a_slice_that_is_masked_out():
    x, none = arete.tensor(X), arete.zeros(3, 4, dtype=arete.bool)
    assert masked.sum(x, 1, mask=none).tolist() == [0] * 3
    assert masked.prod(x, 1, mask=none).tolist() == [1] * 3
    assert masked.amax(x, 1, mask=none).tolist() == [-float("inf")] * 3
    assert bool(masked.mean(x, 1, mask=none).isnan().all())
    whole = arete.tensor([[5, 1], [2, 3]], dtype=arete.int32)
    assert masked.amin(whole, 0, mask=arete.tensor([[True, False], [True, False]])).tolist() == [2, 2**31 - 1]


def test_integers():
    x = arete.tensor([[5, 1], [2, 3]], dtype=arete.int32)
    mask = arete.tensor([[True, False], [True, True]])
    assert masked.sum(x, 0, mask=mask).dtype is arete.int64
    assert masked.sum(x, 0, mask=mask).tolist() == [7, 3]
    assert masked.median(x, 0, mask=mask).tolist() == [2, 3]
    with pytest.raises(ValueError):
        masked.median(x, 0, mask=arete.tensor([True, False]))
    with pytest.raises(ValueError):
        masked.mean(x)


def test_errors():
    x = arete.tensor(X)
    with pytest.raises(IndexError):
        masked.sum(x, 2)
    with pytest.raises(RuntimeError):
        masked.sum(x, (0, 0))
    with pytest.raises(IndexError):
        masked.sum(x, 0, mask=arete.ones(1, 3, 4))
