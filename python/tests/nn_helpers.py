"""Values for both packages, made with NumPy."""

from __future__ import annotations

import numpy as np
from peer import peer

import arete

torch = peer()


def values(spec, seed: int = 0) -> np.ndarray:
    """An array from a shape or a text as nn_cases.py describes them."""
    rng = np.random.default_rng(seed)
    if isinstance(spec, tuple):
        return rng.standard_normal(spec).astype(np.float32)
    kind, _, sizes = spec.partition(":")
    shape = tuple(int(n) for n in sizes.split(","))
    if kind.startswith("i"):
        return rng.integers(0, int(kind[1:]), shape)
    if kind == "s":
        return (rng.integers(0, 2, shape) * 2 - 1).astype(np.float32)
    low = 0.05 if kind == "p" else 0.2
    high = 0.95 if kind == "p" else 2.0
    return rng.uniform(low, high, shape).astype(np.float32)


def ours(array: np.ndarray) -> arete.Tensor:
    return arete.from_numpy(np.array(array))


def theirs(array: np.ndarray):
    return torch.from_numpy(np.array(array))


def flat(result) -> list:
    """The tensors in a result, as arrays."""
    if result is None:
        return []
    if isinstance(result, (tuple, list)):
        return [a for part in result for a in flat(part)]
    return [result.detach().cpu().numpy()]


def assert_same(a, b, tolerance: float = 1e-5) -> None:
    a, b = flat(a), flat(b)
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def copy_state(source, target) -> None:
    """Loads the state of a torch module into ours."""
    state = {k: ours(v.detach().numpy()) for k, v in source.state_dict().items()}
    result = target.load_state_dict(state)
    assert str(result) == "<All keys matched successfully>"
