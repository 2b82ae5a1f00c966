"""Functions that are no single record: forms of their arguments, and what is built from several operators."""
import numpy as np
import pytest
from idiom_helpers import LIBRARIES

import arete


def test_extrema_of_a_tensor_and_of_a_dimension():
    x = arete.tensor([3, 1, 4])
    assert arete.max(x, arete.tensor(2)).tolist() == [3, 2, 4]
    assert arete.min(x, arete.tensor(0)).tolist() == [0, 0, 0]
    values, indices = arete.max(x, 0)
    assert values.item() == 4 and indices.item() == 2


def test_gradient_with_steps_and_coordinates():
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    t = arete.tensor(x)
    for spacing, given in [(2.0, 2.0), ([0.5, 2.0], None), ([arete.tensor([0.0, 1.0, 3.0, 4.0]), 2.0], None)]:
        ours = arete.gradient(t, spacing=spacing)
        numbers = [given] if given else [s.numpy() if isinstance(s, arete.Tensor) else s for s in spacing]
        for a, b in zip(ours, np.gradient(x, *numbers)):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-6)
    for spacing in (2.0, [0.5, 2.0], 1 + 2j, [0.5, 1 + 2j]):
        values = x if spacing in (2.0, [0.5, 2.0]) else x.astype(np.complex64)
        for a, b in zip(arete.gradient(t, spacing=spacing, dim=(-1, 0)),  # in the order in which they are named
                        np.gradient(values, *(spacing if isinstance(spacing, list) else [spacing]), axis=(-1, 0))):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-6)
    of_two = arete.gradient(t, spacing=[2, 2j])
    assert [g.dtype for g in of_two] == [arete.float32, arete.complex64]  # each dimension has the dtype of its steps
    rows, columns = arete.gradient(t, spacing=2)
    assert arete.equal(of_two[0], rows) and arete.equal(of_two[1], columns / 1j)
    for a, b in zip(arete.gradient(t, spacing=arete.tensor(2.0)), (rows, columns)):  # one number for both
        assert arete.equal(a, b)
    (along,) = arete.gradient(t, dim=1)
    np.testing.assert_allclose(along.numpy(), np.gradient(x, axis=1), rtol=1e-5, atol=1e-6)


def test_histogramdd():
    x = np.random.default_rng(1).normal(size=(50, 2)).astype(np.float32)
    w = np.random.default_rng(2).uniform(size=50).astype(np.float32)
    for bins in (4, [3, 5]):
        for options in ({}, {"density": True}, {"range": [-1.0, 1.0, -2.0, 0.5]}, {"weight": w}):
            ours = dict(options)
            theirs = dict(options)
            if "weight" in options:
                ours["weight"], theirs["weights"] = arete.tensor(w), theirs.pop("weight")
            if "range" in options:
                theirs["range"] = [(-1.0, 1.0), (-2.0, 0.5)]
            found = arete.histogramdd(arete.tensor(x), bins, **ours)
            hist, edges = np.histogramdd(x, bins, **theirs)
            np.testing.assert_allclose(found.hist.numpy(), hist, rtol=1e-5)
            for a, b in zip(found.bin_edges, edges):
                np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-6)
    edges = [arete.tensor([-1.0, 0.0, 2.0]), arete.tensor([-2.0, 2.0])]
    found, _ = arete.histogramdd(arete.tensor(x), edges)
    np.testing.assert_allclose(found.numpy(), np.histogramdd(x, [e.numpy() for e in edges])[0])


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


def test_tolerances_of_pinv_and_matrix_rank():
    a = arete.diag(arete.tensor([4.0, 1.0, 0.01]))
    assert arete.linalg.matrix_rank(a).item() == 3
    assert arete.linalg.matrix_rank(a, 0.1).item() == 2
    assert arete.linalg.matrix_rank(a, rtol=0.5).item() == 1
    assert arete.linalg.matrix_rank(arete.stack([a, a]), atol=arete.tensor([0.1, 2.0])).tolist() == [2, 1]
    assert arete.linalg.matrix_rank(a, atol=arete.tensor(0.0), rtol=0.5).item() == 1
    np.testing.assert_allclose(arete.linalg.pinv(a, 0.1).numpy(), np.diag([0.25, 1, 0]), atol=1e-6)
    np.testing.assert_allclose(arete.linalg.pinv(a, rtol=arete.tensor(0.5)).numpy(), np.diag([0.25, 0, 0]), atol=1e-6)


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


def test_average_pooling_of_integers():
    x = arete.tensor([[[5, -8, 7, 2, 1]]])
    pool = arete.nn.functional.avg_pool1d
    assert pool(x, 2).tolist() == [[[-1, 4]]]
    assert pool(x, 3, 2, 1).tolist() == [[[-1, 0, 1]]]
    assert pool(x, 3, 2, 1, count_include_pad=False).tolist() == [[[-1, 0, 1]]]
    assert pool(x, 3, 1, 1, count_include_pad=False).tolist() == [[[-1, 1, 0, 3, 1]]]
    assert arete.nn.functional.avg_pool2d(x, (1, 2), divisor_override=3).tolist() == [[[-1, 3]]]


def test_histogram():
    x = np.random.default_rng(3).normal(size=40).astype(np.float32)
    for bins, options in [(5, {}), (4, {"range": (-1.0, 0.5)}), ([-1.0, 0.0, 2.0], {})]:
        found = arete.histogram(arete.tensor(x), arete.tensor(bins) if isinstance(bins, list) else bins, **options)
        hist, edges = np.histogram(x, bins, **options)
        np.testing.assert_allclose(found.hist.numpy(), hist)
        np.testing.assert_allclose(found.bin_edges.numpy(), edges, rtol=1e-5, atol=1e-6)
    assert arete.zeros(0).histogram(2).bin_edges.tolist() == [0, 0.5, 1]


PUT_INDICES = {
    "rows": lambda lib: (lib.tensor([1, 0, 1]),),
    "columns": lambda lib: (None, lib.tensor([[3, -1], [3, 2]])),
    "elements": lambda lib: (lib.tensor([1, 1]), lib.tensor([0, 0]), lib.tensor([2, 2])),
    "neighbours": lambda lib: (None, lib.tensor([0, 0]), lib.tensor([2, -1])),
    "apart": lambda lib: (lib.tensor([1, 1]), None, lib.tensor([0, 0])),
    "broadcast": lambda lib: (lib.tensor([[1], [0]]), None, lib.tensor([0, 2, 0])),
    "mask": lambda lib: (lib.tensor([[True, False, True, False], [False, True, False, False]]),),
    "mask apart": lambda lib: (lib.tensor([True, False]), None, lib.tensor([2])),
    "nothing": lambda lib: (lib.tensor([0])[:0], None, lib.tensor([0])[:0]),
}
PUT_LAYOUTS = {
    "row-major": lambda x: x * 1,
    "permuted": lambda x: x.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    "window": lambda x: x.repeat(2, 2, 2)[1:3, 2:6, ::2],
}


@pytest.mark.parametrize("layout", PUT_LAYOUTS)
@pytest.mark.parametrize("name", PUT_INDICES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(name, layout, accumulate):
    torch = pytest.importorskip("torch")
    results = []
    for lib in (arete, torch):
        x = lib.arange(24.0).reshape(2, 4, 3).requires_grad_()
        y, indices = PUT_LAYOUTS[layout](x), PUT_INDICES[name](lib)
        sizes = y[tuple(slice(None) if i is None else i for i in indices)].shape
        v = lib.arange(float(sizes.numel())) + 100 if accumulate else lib.zeros(sizes.numel())  # what repeats must not differ
        v = v.reshape(sizes).requires_grad_()
        put, put_ = (lib.index_put, lib.Tensor.index_put_) if lib is arete else (lib.ops.aten.index_put, lib.ops.aten.index_put_)
        z = put(y, indices, v, accumulate)
        assert put_(y, indices, v, accumulate) is y
        (y * y + z).sum().backward()
        results.append([t.detach().contiguous().numpy() for t in (y, z, x.grad)] + ([v.grad.numpy()] if accumulate else []))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_touches_what_is_named(accumulate):
    from arete.profiler import profile

    table, i = arete.zeros(1000, 64, 100), arete.arange(50)
    for x, indices, n in ((table, (i,), 50 * 6400), (table, (None, i), 50 * 100000), (table, (i, i), 5000), (table, (i, i, i), 50),
                          (table, (i, None, i), 50 * 64), (table.permute(2, 0, 1), (i, i), 50 * 64),
                          (table.view(-1), (i,), 50)):
        values = arete.ones(())
        with profile(profile_memory=True) as p:
            arete.index_put_(x, indices, values, accumulate=accumulate)
        made = sum(max(e.cpu_memory_usage, 0) for e in p.events())
        moved = sum(e.bytes for e in p.events())
        # The values at full size; and, for each, its position, which is computed from those of its dimensions.
        assert made <= n * 4 + 3 * n * 8 and moved <= 3 * n * 4 + 9 * n * 8


def test_index_put_of_other_values():
    x = arete.zeros(3)
    assert arete.index_put(x, (arete.tensor([2, 2]),), 1.5, accumulate=True).tolist() == [0, 0, 3]
    assert x.index_put_((arete.tensor([0, 1]),), [2, 3]).tolist() == [2, 3, 0]
    assert arete.index_put_(x, (arete.tensor([0]),), arete.tensor(4.0)) is x and x.tolist() == [4, 3, 0]
    for accumulate in (False, True):
        with pytest.raises(RuntimeError, match="source and destination dtypes match, got .*float32 for the destination and .*int64"):
            x.index_put_((arete.tensor([0]),), arete.tensor([1]), accumulate=accumulate)
    with pytest.raises(TypeError):
        x.index_put_((arete.tensor([0]),), object())


def test_fill_diagonal():
    wide = arete.zeros(3, 2).t().fill_diagonal_(5)
    assert wide.tolist() == [[5, 0, 0], [0, 5, 0]]
    assert arete.zeros(7, 2).fill_diagonal_(1, wrap=True).nonzero().tolist() == [[0, 0], [1, 1], [3, 0], [4, 1], [6, 0]]
    assert arete.zeros(3, 3, 3).fill_diagonal_(1).nonzero().tolist() == [[i, i, i] for i in range(3)]
    x = arete.ones(2, 2, requires_grad=True)
    (x * 2).fill_diagonal_(7).sum().backward()
    assert x.grad.tolist() == [[0, 2], [2, 0]]
    for shape, text in (((2,), "dimensions must larger than 1"), ((2, 2, 3), "must be of equal length")):
        with pytest.raises(RuntimeError, match=text):
            arete.zeros(shape).fill_diagonal_(1)


def test_numbers_in_addcdiv():
    assert arete.ones(2).addcdiv(1, 2).tolist() == [1.5, 1.5]
    i = arete.tensor([1, 2])
    with pytest.raises(RuntimeError, match="no longer supported"):
        arete.ones(2).addcdiv(i, i)


def test_results_besides_the_first():
    """As torch's functions below nn.functional give them."""
    values, places = arete.adaptive_max_pool1d(arete.tensor([[1.0, 3.0, 2.0, 0.0]]), 2)
    assert values.tolist() == [[3, 2]] and places.tolist() == [[1, 2]]
    weight, index, ends = arete.ones(4, 3), arete.tensor([0, 1, 2, 1]), arete.tensor([0, 2, 4])

    def shapes(weight, mode, padding=None):
        return [tuple(t.shape) for t in arete.embedding_bag(weight, index, ends, False, mode, False, None, True, padding)]

    assert shapes(weight, 0) == [(2, 3), (0,), (3,), (3,)]
    assert shapes(weight.clone().requires_grad_(), 0) == [(2, 3), (0,), (2,), (2,)]
    assert shapes(weight, 0, 1) == shapes(weight.double(), 0) == [(2, 3), (4,), (3,), (3,)]
    assert shapes(weight, 1) == [(2, 3), (4,), (2,), (2,)]
    assert shapes(weight, 2) == [(2, 3), (4,), (2,), (2, 3)]
    nothing = arete.tensor([], dtype=arete.int64)
    assert [tuple(t.shape) for t in arete.embedding_bag(weight, index, nothing, mode=2)][::3] == [(0, 3), (0, 3)]
    *_, counts, places = arete.embedding_bag(weight, index, ends)
    places.add_(1)
    assert counts.tolist() == [0, 0, 0] and counts._version == 0
    for mode in (3, -1, "sum"):
        with pytest.raises(ValueError, match="mode is 0"):
            arete.embedding_bag(weight, index, ends, mode=mode)


def test_quantiles_of_more_elements_than_floats_count():
    x = arete.zeros((1 << 24) + 2)
    x[-1] = 5
    assert arete.quantile(x, 1.0).item() == 5 and arete.quantile(x, arete.tensor([0.0, 0.5])).tolist() == [0, 0]
    assert arete.nanquantile(x, 1.0).item() == 5


def test_masked_scatter_of_meta():
    x, mask = arete.empty(2, 3, device="meta"), arete.empty(3, dtype=arete.bool, device="meta")
    for dtype in (arete.float32, arete.complex64):
        y = x.to(dtype).masked_scatter(mask, arete.empty(7, dtype=dtype, device="meta"))
        assert y.shape == (2, 3) and y.dtype is dtype and y.is_meta


@pytest.mark.parametrize("name", ["cumsum_", "cumprod_"])
def test_running_results_in_place_keep_their_dtype(name):
    for own, asked in (("float32", "float64"), ("float32", "int64"), ("int32", "int64"), ("int32", "float32")):
        x = arete.full((3,), 2, dtype=getattr(arete, own))
        with pytest.raises(RuntimeError, match=f"dtype.*{own}.*{asked}"):
            getattr(x, name)(0, dtype=getattr(arete, asked))
        assert x.tolist() == [2, 2, 2]
        assert getattr(x, name)(0, dtype=x.dtype).tolist() == ([2, 4, 6] if name == "cumsum_" else [2, 4, 8])
        assert getattr(x, name)(0).dtype is x.dtype


def test_errors_name_what_was_called():
    with pytest.raises(RuntimeError) as error:
        arete.tensor([1, 2, 3]).logit_(0.2)
    assert "logit" in str(error.value) and "limited" not in str(error.value)
    z = arete.tensor([1 + 1j, 1 + 1j, 2 + 0j])
    assert arete.unique_consecutive(z).tolist() == [1 + 1j, 2 + 0j]


def test_arguments_that_crashed_or_meant_nothing():
    square, line = arete.ones(3, 3), arete.ones(3)
    for call in (lambda: arete.orgqr(square, line.to("meta")), lambda: arete.ormqr(square, line.to("meta"), square)):
        with pytest.raises(RuntimeError, match="same device"):
            call()
    for name in ("_foreach", "_foreach_in_place"):  # of a reduction
        with pytest.raises(TypeError, match="no operator on lists"):
            getattr(arete._C, name)("sum", [square])
    with pytest.raises((TypeError, RuntimeError), match="isin"):
        arete.isin(square.to(arete.complex64), arete.ones(1))


def test_small_exponents_are_products_and_roots():
    x = arete.linspace(0.1, 3, 1001)
    for exponent, same in ((2, x * x), (3, x * x * x), (-1, x.reciprocal()), (0.5, x.sqrt()), (-0.5, x.rsqrt()), (1, x)):
        for power in (x**exponent, x.pow(float(exponent)), arete.pow(x, exponent), x.clone().pow_(exponent)):
            assert arete.equal(power, same), exponent
    whole = arete.tensor([-3, 0, 7])
    assert (whole**2).tolist() == [9, 0, 49] and (whole**3).dtype == arete.int64 and (whole**0.5)[2].item() == pytest.approx(7**0.5)
    leaf = arete.tensor([2.0, 3.0], requires_grad=True)
    (slope,) = arete.autograd.grad((leaf**3).sum(), leaf, create_graph=True)
    assert slope.tolist() == [12.0, 27.0]
    assert arete.autograd.grad(slope.sum(), leaf)[0].tolist() == [12.0, 18.0]


def test_second_gradients_of_norms_at_zero():
    for p in (1.5, 2.5, 3, 3.5):
        x = arete.tensor([0.0, 1.0, 2.0], requires_grad=True)
        (slope,) = arete.autograd.grad(x.norm(p), x, create_graph=True)
        slope[1:].sum().backward()
        assert x.grad[1:].isfinite().all() and (p == 1.5 or x.grad[0].item() == 0), p


def test_gradients_of_powers_and_of_nothing():
    x = arete.tensor([1 + 2j, -0.5j], requires_grad=True)
    arete.vander(x, 4).abs().sum().backward()
    assert x.grad.isfinite().all()
    half = arete.full((1,), 1.0, dtype=arete.bfloat16, requires_grad=True)
    arete.linalg.vander(half, N=300)[0, 299].backward()
    assert half.grad.item() == 300  # 299, rounded once
    empty = arete.zeros(0, 4, 7, requires_grad=True)
    arete.nn.functional.fold(empty, (1, 10), (1, 4)).sum().backward()
    assert empty.grad.shape == (0, 4, 7)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_next_halves(half):
    """Neighbours of every half are a step of its bits away."""
    dtype = getattr(arete, half)
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.int16)
    every = arete.from_numpy(bits).view(dtype)
    infinity = np.array(np.inf).astype(np.float16).view(np.int16) if half == "float16" else np.int16(0x7f80)
    size = bits.astype(np.int32) & 0x7fff
    for target, sign in ((np.inf, 1), (-np.inf, -1)):
        found = arete.nextafter(every, arete.full_like(every, target)).view(arete.int16).numpy().astype(np.int32)
        line = np.where(bits < 0, -size, size) + sign  # -0 and 0 are one place
        line = np.clip(line, -infinity, infinity)
        wanted = np.where(line < 0, -line - 0x8000, line)
        zero = (size == 1) & (line == 0)
        same, nan = np.abs(found) & 0x7fff, size > infinity
        assert ((found == wanted) | nan | zero).all() and (found[zero] & 0x7fff == 0).all() and (same[nan] & 0x7fff != 0).all()
    assert arete.isnan(arete.nextafter(every, arete.full_like(every, float("nan")))).all()
    assert arete.equal(arete.nextafter(every[:100], every[:100]), every[:100])
    with pytest.raises(NotImplementedError, match="not implemented for 'float8"):
        arete.nextafter(every.to(arete.float8_e5m2), every.to(arete.float8_e5m2))


both = pytest.mark.parametrize("torch", LIBRARIES, ids=lambda library: library.__name__)


@both
@pytest.mark.parametrize("half, third", [("float16", 0.300048828125), ("bfloat16", 0.30078125)])
def test_numbers_are_halves_beside_halves(torch, half, third):
    """Where torch computes with the half that a number is: found by giving that instead."""
    x = torch.tensor([0.3, 0.5, -0.3, 0.25, 7, 90], dtype=getattr(torch, half))
    shrunk = torch.nn.functional.hardshrink(x, 0.3)
    assert shrunk[[0, 2, 3]].tolist() == [0, 0, 0] and torch.equal(shrunk[4:], x[4:])
    for call in (lambda n: torch.fmod(x, n), lambda n: torch.remainder(x, n), lambda n: x.clone().remainder_(n), lambda n: n % x,
                 lambda n: torch.rsub(x, n), lambda n: n - x, lambda n: torch.sub(x, n), lambda n: x - n, lambda n: x.clone().sub_(n),
                 lambda n: x + n, lambda n: n + x, lambda n: torch.add(x, n), lambda n: x.clone().add_(n),
                 lambda n: x + torch.tensor(n), lambda n: torch.tensor(n) - x,
                 lambda n: x**n, lambda n: n**x, lambda n: (x == n).to(x.dtype)):
        assert torch.equal(call(0.3), call(third)) or torch.equal(call(0.3).nan_to_num(), call(third).nan_to_num())
    assert torch.fmod(x, 0.3)[:3].tolist() == [0, 0.5 - third if half == "float16" else 0.19921875, 0] and (0.3 - x)[0] == 0
    assert torch.equal(x + 0.3, (x.double() + third).to(x.dtype)) and not torch.equal(x + 0.3, (x.double() + 0.3).to(x.dtype))
    scalar = torch.tensor(0.3)
    assert (x == scalar).tolist() == [True] + [False] * 5 and torch.equal(torch.fmod(x, scalar), torch.fmod(x, 0.3))


LISTS = ["[slice(None), [0, 2]]", "[t([0, 1]), t([1, 2])]", "[None]", "[None, 0]", "[..., 0]", "[t(0), 1]", "[t([0, 1]), 1]",
         "[[0, 1], slice(None), [1, 2]]", "[t([True, False])]", "[(0, 1), t([1, 2])]"]
ELEMENTS = ["[0, 1]", "[True, False]", "[]", "[1]", "[i % 2 for i in range(40)]", "[t(i % 2) for i in range(40)]"]


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("text", LISTS + ELEMENTS)
def test_lists_of_indices(text):
    """A list with a tensor, a slice, None or ... in it is a tuple of indices; one of numbers is an index."""
    found = []
    for torch in LIBRARIES:
        x = torch.arange(24).reshape(2, 3, 4)
        index = eval(text, {"t": torch.tensor})
        y = x.clone()
        y[index] = -1
        assert torch.equal(x[index], x[tuple(index) if text in LISTS else torch.tensor(index, dtype=None if index else torch.int64)])
        found.append((tuple(x[index].shape), x[index].tolist(), y.tolist()))
    assert found[0] == found[-1]


@both
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_lists_of_indices_that_change(torch):
    class Last:
        def __index__(self):
            index[2] = 0
            del index[3:]
            return 1

    x = torch.arange(24).reshape(2, 3, 4)
    index = [1, Last(), 2, None]
    assert x[index].tolist() == [18] and index[2:] == [0]


@both
@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_have_no_neighbours(torch, dtype):
    whole = torch.ones(2, dtype=getattr(torch, dtype))
    with pytest.raises(NotImplementedError, match="not implemented for"):
        torch.nextafter(whole, whole)
    assert torch.nextafter(torch.ones(2), whole * 0).dtype == torch.float32
    assert torch.nextafter(whole, torch.zeros(2)).tolist() == [1 - 2.0**-24] * 2


@both
def test_ranges_into_tensors_of_another_shape(torch, recwarn):
    """Of as many elements they keep their shape, which is written; others are resized."""
    ends = {"arange": (6,), "linspace": (0, 5, 6), "logspace": (0, 5, 6, 2.0), "range": (0, 5)}
    for name, given in ends.items():
        call = getattr(torch, name)
        wanted = call(*given).to(torch.float32)
        for make in (lambda: torch.zeros(2, 3), lambda: torch.zeros(3, 2).t(), lambda: torch.zeros(2, 6)[:, ::2],
                     lambda: torch.zeros(2, 3, dtype=torch.float64), lambda: torch.zeros(1, 6, 1)):
            out = make()
            sizes, strides = out.shape, out.stride()
            assert call(*given, out=out) is out and out.shape == sizes and out.stride() == strides
            assert torch.equal(out.reshape(-1).float(), wanted)
        for size in (0, 4):
            out = torch.zeros(size)
            assert call(*given, out=out) is out and torch.equal(out, wanted)
    out = torch.zeros(2, 3)
    torch.linspace(torch.tensor(0.0), torch.tensor(5.0), 6, out=out)
    assert out.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert torch.zeros((6,), out=out).shape == (6,)  # other results are resized


@both
def test_forms_of_arguments(torch):
    x = torch.zeros(2, 1, 1, 3)
    assert x.squeeze(1, 2).shape == x.clone().squeeze_(1, 2).shape == x.squeeze((1, 2)).shape == (2, 3)
    assert x.squeeze(1).shape == x.squeeze(dim=1).shape == (2, 1, 3) and x.squeeze(0, 1).shape == (2, 1, 3)
    y = torch.tensor([3, 1, 2])
    assert torch.sort(y, stable=None).values.tolist() == [1, 2, 3]
    assert y.sort(stable=None, dim=0, descending=True).indices.tolist() == [0, 2, 1]


@both
def test_products_and_means_in_complex_numbers(torch):
    for x in (torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), torch.tensor([[1, 2, 3], [4, 5, 6]])):
        for call, wanted in ((lambda t: t.prod(dtype=torch.complex64), 720), (lambda t: t.mean(dtype=torch.complex64), 3.5)):
            found = call(x)
            assert found.dtype is torch.complex64 and found.item() == wanted
        assert x.prod(1, dtype=torch.complex128).tolist() == [6, 120] and x.prod(0, True, dtype=torch.complex128).shape == (1, 3)
    x = arete.tensor([1.0, 2.0, 3.0], requires_grad=True)  # torch's backward of it fails
    x.prod(dtype=arete.complex64).abs().backward()
    assert x.grad.tolist() == [6, 3, 2]


@both
def test_reductions_of_nothing(torch):
    x = torch.zeros(2, 0)
    for name in ("amax", "amin", "max", "min", "argmax", "argmin", "median", "nanmedian", "mode"):
        with pytest.raises(IndexError, match="Expected reduction dim 1 to have non-zero size"):
            getattr(torch, name)(x, 1)
    with pytest.raises(IndexError, match="Expected reduction dim 1 to have non-zero size"):
        torch.kthvalue(x, 1, 1)
    with pytest.raises(IndexError, match="Expected reduction dim to be specified"):
        torch.argmax(x)
    for name in ("amax", "max"):
        with pytest.raises(RuntimeError, match="Expected reduction dim to be specified"):
            getattr(torch, name)(x)
    assert torch.amax(x, 0).shape == (0,)


@both
def test_order_of_dimensions(torch):
    x = torch.zeros(2, 3, 4, 5)
    last = x.to(memory_format=torch.channels_last)
    assert x.dim_order() == (0, 1, 2, 3) and x.permute(2, 0, 3, 1).dim_order() == (1, 3, 0, 2) and torch.tensor(1).dim_order() == ()
    assert last.dim_order() == last.dim_order(ambiguity_check=True) == (0, 2, 3, 1)
    assert torch.zeros(1, 1, 1, 3).dim_order() == (0, 1, 2, 3) and torch.zeros(2, 3).expand(4, 2, 3).dim_order() == (0, 1, 2)
    for strange in (torch.zeros(2, 1, 1, 5), torch.zeros(3, 1).expand(3, 2)):
        with pytest.raises(RuntimeError, match="not have unique dim order"):
            strange.dim_order(ambiguity_check=True)
    with pytest.raises(TypeError, match="must be a bool or a list of memory formats"):
        x.dim_order(ambiguity_check=3)


@both
@pytest.mark.filterwarnings("ignore:_check_is_size")
def test_sizes_are_checked(torch):
    assert torch._check_is_size(0) is None and torch._check_is_size(3, max=3) is None
    for given, most in ((-1, None), (4, 3)):
        with pytest.raises(RuntimeError, match="no size"):
            torch._check_is_size(given, lambda: "no size", max=most)


def test_nonzero_as_tuple_takes_no_out():
    out = arete.zeros(1, dtype=arete.int64)
    with pytest.raises(RuntimeError, match="nonzero does not support the out kwarg when as_tuple is True"):
        arete.nonzero(arete.ones(2), out=out, as_tuple=True)
    assert arete.nonzero(arete.ones(2), out=None, as_tuple=True)[0].tolist() == [0, 1] and out.tolist() == [0]
