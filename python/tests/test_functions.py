"""Functions that are no single record: forms of their arguments, and what is built from several operators."""
import numpy as np
import pytest

import arete


def test_gradient_with_steps_and_coordinates():
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    t = arete.tensor(x)
    for spacing, given in [(2.0, 2.0), ([0.5, 2.0], None), ([arete.tensor([0.0, 1.0, 3.0, 4.0]), 2.0], None)]:
        ours = arete.gradient(t, spacing=spacing)
        numbers = [given] if given else [s.numpy() if isinstance(s, arete.Tensor) else s for s in spacing]
        for a, b in zip(ours, np.gradient(x, *numbers)):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-6)
    (along,) = arete.gradient(t, dim=1)
    np.testing.assert_allclose(along.numpy(), np.gradient(x, axis=1), rtol=1e-5, atol=1e-6)


def test_low_rank():
    arete.manual_seed(0)
    for m, n in [(9, 6), (6, 9)]:
        a = arete.randn(m, 3, dtype=arete.float64) @ arete.randn(3, n, dtype=arete.float64)
        U, S, V = arete.svd_lowrank(a, q=4)
        assert U.shape == (m, 4) and S.shape == (4,) and V.shape == (n, 4)
        np.testing.assert_allclose((U * S @ V.mT).numpy(), a.numpy(), atol=1e-9)
        U, S, V = arete.pca_lowrank(a, q=3)
        np.testing.assert_allclose((U * S @ V.mT).numpy(), (a - a.mean(0)).numpy(), atol=1e-9)
    with pytest.raises(ValueError):
        arete.pca_lowrank(a, q=7)


def test_lu():
    a = arete.tensor([[1.0, 2.0], [3.0, 4.0]])
    LU, pivots, info = arete.lu(a, get_infos=True)
    P, L, U = arete.lu_unpack(LU, pivots)
    np.testing.assert_allclose((P @ L @ U).numpy(), a.numpy(), rtol=1e-6)
    assert info.item() == 0 and len(a.lu()) == 2


def test_grid_sampler_and_native_layer_norm():
    x, grid = arete.randn(1, 2, 4, 4), arete.rand(1, 3, 3, 2) * 2 - 1
    expected = arete.nn.functional.grid_sample(x, grid, "nearest", "border", True)
    assert arete.equal(arete.grid_sampler_2d(x, grid, 1, 1, True), expected)
    y, mean, scale = arete.native_layer_norm(x, [4], None, None, 1e-5)
    np.testing.assert_allclose(((x - mean) * scale).numpy(), y.numpy(), atol=1e-5)
    assert mean.shape == (1, 2, 4, 1)


def test_hardtanh_of_integers():
    y = arete.nn.functional.hardtanh(arete.tensor([-3, 0, 3]))
    assert y.tolist() == [-1, 0, 1] and y.dtype is arete.int64


def test_histogram():
    x = np.random.default_rng(3).normal(size=40).astype(np.float32)
    for bins, options in [(5, {}), (4, {"range": (-1.0, 0.5)}), ([-1.0, 0.0, 2.0], {})]:
        found = arete.histogram(arete.tensor(x), arete.tensor(bins) if isinstance(bins, list) else bins, **options)
        hist, edges = np.histogram(x, bins, **options)
        np.testing.assert_allclose(found.hist.numpy(), hist)
        np.testing.assert_allclose(found.bin_edges.numpy(), edges, rtol=1e-5, atol=1e-6)
    assert arete.tensor(x).histogram(3).hist.sum().item() == 40
