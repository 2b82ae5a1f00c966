"""Fourier transforms beside NumPy's, over several dimensions, of real and complex numbers, in any order of memory."""

import itertools

import numpy as np
import pytest

import arete as torch

SHAPES = [(4, 6, 8), (5, 7, 9), (3, 1, 16), (2, 2, 2), (1, 1, 1), (18, 97), (53, 31), (2, 33, 34), (100, 40, 17)]


def numbers(shape, complex, seed=0):
    r = np.random.default_rng(seed)
    x = r.standard_normal(shape)
    return x + 1j * r.standard_normal(shape) if complex else x


def orders_of(x):
    """As it is, with dimensions turned around in memory, and every other number of more."""
    yield torch.tensor(x)
    yield torch.tensor(np.ascontiguousarray(x.T)).permute(*reversed(range(x.ndim)))
    wide = torch.tensor(np.repeat(x, 2, axis=-1))
    yield wide[..., ::2]


def expect_numpy(x, dims, norm, orders=orders_of):
    shape = x.shape
    for name, complex in [("fftn", 0), ("ifftn", 0), ("fftn", 1), ("ifftn", 1), ("rfftn", 0), ("irfftn", 1)]:
        if complex != np.iscomplexobj(x) or (name == "irfftn" and shape[dims[-1]] < 2):
            continue
        want = getattr(np.fft, name)(x.astype(np.complex128 if complex else np.float64), axes=dims, norm=norm)
        error = 1e-14 if x.dtype in (np.float64, np.complex128) else 3e-6
        for tensor in orders(x):
            got = getattr(torch.fft, name)(tensor, dim=dims, norm=norm).numpy()
            assert got.real.dtype == x.real.dtype
            assert np.abs(got - want).max() <= error * max(1, np.abs(want).max()), (name, x.dtype, dims)


DTYPES = [np.float64, np.float32, np.complex128, np.complex64]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_choice_of_dimensions_agrees_with_numpy(shape, norm, dtype):
    x = numbers(shape, np.issubdtype(dtype, np.complexfloating)).astype(dtype)
    for count in range(1, len(shape) + 1):
        for dims in itertools.permutations(range(len(shape)), count):
            expect_numpy(x, dims, norm)


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_arrays_and_expanded_ones_agree_with_numpy(dtype):
    x = numbers((70, 48, 130), np.issubdtype(dtype, np.complexfloating)).astype(dtype)
    same = np.repeat(x[:1], 70, axis=0)
    for dims in [(1,), (0, 1), (2, 1), (2, 0), (0, 1, 2)]:
        expect_numpy(x, dims, None)
        expect_numpy(same, dims, None, lambda x: [torch.tensor(x[0].copy()).expand(*x.shape)])


@pytest.mark.parametrize("shape", [(5, 7, 9), (12, 18), (64, 50, 20), (8,), (7,)])
@pytest.mark.parametrize("change", [0, 3, -2])  # of the number of points, by zeros or by cutting
def test_gradients_of_real_numbers_are_real_parts_of_the_adjoint(shape, change):
    for count in range(1, len(shape) + 1):
        for dims in itertools.combinations(range(len(shape)), count):
            points = [shape[d] + change for d in dims]
            x = torch.tensor(numbers(shape, False), requires_grad=True)
            y = torch.fft.fftn(x, s=points, dim=dims)
            g = numbers(tuple(y.shape), True, 1)
            y.backward(torch.tensor(g))
            adjoint = np.fft.ifftn(g, axes=dims, norm="forward").real
            want = np.zeros(shape)
            both = tuple(slice(0, min(a, b)) for a, b in zip(shape, adjoint.shape, strict=True))
            want[both] = adjoint[both]
            assert np.abs(x.grad.numpy() - want).max() <= 1e-13 * np.abs(want).max(), (dims, points)


@pytest.mark.parametrize("shape", [(64, 96, 100), (700, 65), (3, 400, 300), (11, 3, 4096), (6, 16384, 3), (20000,)])
def test_bits_do_not_depend_on_the_number_of_threads(shape):
    threads = torch.get_num_threads()
    results = []
    try:
        for n in (1, 2, 3, 4, 8):
            torch.set_num_threads(n)
            row = []
            for complex in (0, 1):
                x = torch.tensor(numbers(shape, complex)).to(torch.complex64 if complex else torch.float32)
                for count in range(1, len(shape) + 1):
                    for dims in itertools.combinations(range(len(shape)), count):
                        row += [torch.fft.fftn(x, dim=dims), torch.fft.irfftn(x, dim=dims)]
                        row += [] if complex else [torch.fft.rfftn(x, dim=dims)]
            results.append(row)
    finally:
        torch.set_num_threads(threads)
    for row in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], row, strict=True))


@pytest.mark.parametrize("complex", [0, 1])
def test_results_may_take_the_place_of_the_input_and_be_empty(complex):
    x = numbers((6, 34, 20), complex)
    out = torch.zeros(6, 34, 20, dtype=torch.complex128)
    torch.fft.fft2(torch.tensor(x), out=out)
    np.testing.assert_allclose(out.numpy(), np.fft.fft2(x), atol=1e-12)
    torch.fft.fft2(out, out=out)
    np.testing.assert_allclose(out.numpy(), np.fft.fft2(np.fft.fft2(x)), atol=1e-10)
    assert torch.fft.fft2(torch.tensor(x)[:0]).shape == (0, 34, 20)
    assert torch.fft.rfft2(torch.tensor(x.real.copy())[:, :, :0].expand(6, 34, 0), s=(34, 20)).shape == (6, 34, 11)
