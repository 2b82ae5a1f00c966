"""grid_sample and its gradients at, between and beyond the borders, beside PyTorch's."""
import itertools

import numpy as np
import pytest
from peer import peer

import arete

torch = peer()
DEVICES = ["cpu"] + ["cuda"] * arete.cuda.is_available()
PADDING = ["zeros", "border", "reflection"]


def positions(sizes, align_corners):
    """Along each dimension: the borders of the image and of its outer pixels, pixels, what lies between and far beyond.
    Numbers at which grids are exact: sizes are powers of two, or one more where corners are aligned."""
    found = []
    for n in sizes:
        edge = 1.0 if align_corners else 1 - 1 / n  # the middle of the first and of the last pixel
        found.append([-2.5, -1.0, -edge, -0.25, 0.0, 0.3125, edge, 1.0, 1.75])
    return np.array(list(itertools.product(*reversed(found))))  # x first


def sampled(library, image, grid, device, dtype, **options):
    x, g = (library.tensor(a.tolist(), dtype=getattr(library, dtype), device=device, requires_grad=True)
            for a in (image, grid))
    y = library.nn.functional.grid_sample(x, g, **options)
    weights = library.tensor(np.random.default_rng(1).normal(size=tuple(y.shape)).tolist(), dtype=y.dtype,
                             device=device)
    (y * weights).sum().backward()
    return [t.detach().cpu().double().numpy() for t in (y, x.grad, g.grad)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding_mode", PADDING)
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_images(mode, padding_mode, align_corners, device, dtype):
    sizes = (5, 9) if align_corners else (4, 8)
    grid = positions(sizes, align_corners)
    image = np.random.default_rng(0).normal(size=(1, 2, *sizes))
    options = dict(mode=mode, padding_mode=padding_mode, align_corners=align_corners)
    mine = sampled(arete, image, grid.reshape(1, 9, 9, 2), device, dtype, **options)
    theirs = sampled(torch, image, grid.reshape(1, 9, 9, 2), "cpu", dtype, **options)
    for name, a, b in zip(("result", "gradient of the image", "gradient of the grid"), mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 if dtype == "float64" else 1e-4, err_msg=name)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding_mode", PADDING)
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_volumes(mode, padding_mode, align_corners, device):
    sizes = (3, 5, 3) if align_corners else (2, 4, 2)
    grid = positions(sizes, align_corners).reshape(1, 9, 9, 9, 3)
    image = np.random.default_rng(0).normal(size=(1, 2, *sizes))
    options = dict(mode=mode, padding_mode=padding_mode, align_corners=align_corners)
    for a, b in zip(sampled(arete, image, grid, device, "float64", **options),
                    sampled(torch, image, grid, "cpu", "float64", **options),
                    strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("padding_mode", PADDING)
def test_images_of_one_pixel(padding_mode, device):
    image = np.array([[[[3.0]]]])
    grid = np.array([[[[-1.0, 0.0], [0.0, 0.0], [0.5, -2.0], [1.0, 1.0]]]])
    for mode, align_corners in itertools.product(["bilinear", "nearest"], [True, False]):
        options = dict(mode=mode, padding_mode=padding_mode, align_corners=align_corners)
        for a, b in zip(sampled(arete, image, grid, device, "float64", **options),
                        sampled(torch, image, grid, "cpu", "float64", **options),
                        strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [(2, 1, 5), (2, 3, 5), (1, 5), (3, 1), (3, 1, 1), (1, 1, 5)])
@pytest.mark.parametrize("way", ["narrowed", "transposed"])
def test_grids_as_parts_of_others_are_what_their_copies_are(sizes, way, device):
    """Strides of dimensions of one element say nothing about where the points lie."""
    d = len(sizes)
    generator = arete.Generator().manual_seed(4)
    if way == "narrowed":
        grid = (arete.rand((2, *sizes[:-1], sizes[-1] + 4, d), generator=generator, dtype=arete.float64) * 2 - 1).to(device)
        grid = grid.narrow(-2, 0, sizes[-1])
    else:
        grid = (arete.rand((2, *reversed(sizes), d), generator=generator, dtype=arete.float64) * 2 - 1).to(device)
        grid = grid.permute(0, *range(d, 0, -1), d + 1)
    image = arete.rand((2, 3, *range(4, 4 + d)), generator=generator, dtype=arete.float64).to(device)
    results = []
    for g in (grid, grid.contiguous()):
        x, g = image.clone().requires_grad_(), g.detach().requires_grad_()
        y = arete.nn.functional.grid_sample(x, g, align_corners=False)
        y.square().sum().backward()
        results.append((y.detach().cpu().numpy(), x.grad.cpu().numpy(), g.grad.cpu().numpy()))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
