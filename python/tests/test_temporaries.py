"""The most memory that calls hold at once, in arrays of their largest input."""

import fake_gpus
import pytest

import arete as torch
from arete.cuda.memory import GPUMemoryTracker

MATRICES = (64, 64, 64)


def peak(call):
    call()
    with GPUMemoryTracker("cpu") as tracker:
        result = call()
    del result
    return tracker.peak


def backward(function, *inputs):
    """A call that computes a result and its gradients; the result is held meanwhile."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    weight = torch.rand_like(function(*inputs).detach())

    def both():
        result = function(*inputs)
        return torch.autograd.grad([result], inputs, [weight])

    return both


def definite():
    x = torch.rand(MATRICES)
    return x @ x.mT + 64 * torch.eye(64)


@pytest.mark.parametrize(
    "most, call",
    [
        # most of them: of the result, the gradient and one more
        (3.2, lambda: backward(torch.linalg.cholesky, definite())),
        (1.2, lambda: backward(lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), definite(), torch.rand(64, 64, 1))),
        (3.2, lambda: backward(lambda x: torch.prod(x, 2), torch.rand(MATRICES))),
        (4.2, lambda: backward(torch.cholesky_inverse, definite())),
        (5.2, lambda: backward(lambda a: torch.linalg.lu_factor(a)[0], definite())),
    ],
    ids=["cholesky", "solve_triangular", "prod", "cholesky_inverse", "lu_factor"],
)
def test_gradients_hand_their_temporaries_on(most, call):
    array = 4 * torch.Size(MATRICES).numel()
    assert peak(call()) <= most * array


def test_results_have_no_temporaries_beside_them():
    images, kernel, bias = torch.rand(4, 16, 64, 64), torch.rand(16, 32, 3, 3), torch.rand(32)
    result = 4 * 4 * 32 * 66 * 66
    assert peak(lambda: torch.nn.functional.conv_transpose2d(images, kernel, bias)) <= 1.01 * result
    halves, channels = torch.rand(4, 16, 64, 64).bfloat16(), torch.rand(16)  # statistics and weights stay float32
    normed = lambda: torch.nn.functional.batch_norm(halves, channels, channels, channels, channels)
    assert peak(normed) <= 1.01 * halves.nbytes
    for window in (torch.hann_window, torch.kaiser_window, torch.fft.fftfreq):
        assert peak(lambda: window(1 << 20)) <= 1.01 * (4 << 20)
    matrices = torch.rand(16, 48, 40)  # factors, their product, and what LAPACK overwrites
    assert peak(lambda: torch.linalg.pinv(matrices)) <= 4.1 * 4 * matrices.numel()


def test_what_calls_on_gpus_hold_beside_their_results():
    found = fake_gpus.run('''
        def beside(call):
            call()  # numbers that stay are made
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            result = call()
            return torch.cuda.max_memory_allocated() - before - result.nbytes

        x = torch.rand(64, 4096, device="cuda")
        print(beside(lambda: torch.multinomial(x, 20)) / x.nbytes)  # what weights are compared by
        print(beside(lambda: torch.hann_window(1 << 20, device="cuda")) / x.nbytes)
        print(beside(lambda: torch.fft.fftfreq(1 << 20, device="cuda")) / x.nbytes)
        print(beside(lambda: x.cumsum_(0)) / x.nbytes + 1)  # the result is x

        table = torch.rand(1000, 256, device="cuda", requires_grad=True)
        entries, begins = torch.randint(0, 1000, (2000,), device="cuda"), torch.arange(0, 2000, 2, device="cuda")
        slope = torch.ones(1000, 256, device="cuda")

        def means():
            bags = torch.nn.functional.embedding_bag(entries, table, begins, mode="mean")
            return torch.autograd.grad(bags, table, slope)[0]

        print(beside(means) / table.nbytes)  # the means, and a few numbers for each entry

        def sampled(images):  # many have a number each: a twelfth
            x, points = torch.rand(images, 2, 3, 4, device="cuda"), torch.rand(images, 2, 3, 2, device="cuda")
            return beside(lambda: torch.nn.functional.grid_sample(x, points, align_corners=False)) / x.nbytes * 2

        print(sampled(4096))
        print(sampled(70000))
        tall = torch.rand(100, 40, 30, device="cuda")
        print(beside(lambda: torch.linalg.lstsq(tall, tall, driver="gels").solution) / tall.nbytes)  # factors, and where B was
    ''')
    assert [round(float(share), 1) for share in found.split()] == [1, 0, 0, 0, 1, 0, 0.1, 2.1]


def test_histograms_have_places_of_pieces():
    x = torch.rand(1 << 20)
    assert peak(lambda: torch.histc(x, 10, 0.0, 1.0)) < 1 << 20
    assert peak(lambda: torch.histogram(x, 10)) < 1 << 21
    assert peak(lambda: torch.histogramdd(x.view(-1, 2), [3, 4])) < 1 << 21
    counts, edges = torch.histogram(x, 10)
    assert counts.sum() == x.numel() and torch.equal(counts, torch.histc(x, 10, edges[0].item(), edges[-1].item()))


def test_bilinear_without_gradients_makes_its_product_in_pieces():
    a, b, w = torch.rand(4096, 16), torch.rand(4096, 16), torch.rand(32, 16, 16)
    with torch.no_grad():
        assert peak(lambda: torch.nn.functional.bilinear(a, b, w)) < 3 << 20  # of 8 MiB in one
        pieces = torch.nn.functional.bilinear(a, b, w)
    whole = torch.nn.functional.bilinear(a.requires_grad_(), b, w)
    torch.testing.assert_close(pieces, whole.detach())
