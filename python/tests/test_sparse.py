"""Sparse tensors beside PyTorch's."""
import copy
import functools
import io
import pickle

import numpy as np
import pytest
from idiom_helpers import LIBRARIES

import arete

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
both = pytest.mark.parametrize("torch", LIBRARIES, ids=lambda library: library.__name__)
DEVICES = ["cpu"] + ["cuda"] * arete.cuda.is_available()


def values(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def operands(torch, device="cpu"):
    """One with a place that is there twice, the same without, by rows, one with a dense dimension, and plain ones."""
    s = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1, 0], [2, 0, 2, 2]]), torch.tensor([3.0, 4, 5, -1]), (2, 3)).to(device)
    h = torch.sparse_coo_tensor(torch.tensor([[0, 2, 0]]), torch.tensor(values(3, 2)), (3, 2)).to(device)
    d, e = torch.tensor(values(3, 2), device=device), torch.tensor(values(2, 3), device=device)
    return s, s.coalesce(), s.coalesce().to_sparse_csr(), h, d, e


CALLS = {
    "parts": lambda t, s, c, r, h, d, e: [c.indices(), c.values(), s._indices(), s._values(), r.crow_indices(), r.col_indices(),
                                          r.values()],
    "facts": lambda t, s, c, r, h, d, e: [
        s.shape, s.dim(), s.size(0), len(s), s.numel(), s._nnz(), c._nnz(), s.is_coalesced(), c.is_coalesced(), h.sparse_dim(),
        h.dense_dim(), s.is_sparse, r.is_sparse, r.is_sparse_csr, s.is_sparse_csr, e.is_sparse, s.layout == t.sparse_coo,
        r.layout == t.sparse_csr, isinstance(s, t.Tensor), s.is_leaf, s.requires_grad, s.is_contiguous(),
        *[getattr(x, name) for x in (s, r) for name in (
            "is_nested", "is_quantized", "is_mkldnn", "is_mps", "is_xpu", "is_xla", "is_mtia", "is_ipu", "is_maia", "is_vulkan",
            "retains_grad", "output_nr")],
        *[getattr(x, name)() for x in (s, r) for name in ("is_signed", "is_conj", "is_neg", "is_inference")], t.is_signed(s)],
    "layouts": lambda t, s, c, r, h, d, e: [
        s, r, h, h.coalesce(), r.to_sparse_coo(), s.to_sparse_csr(), e.to_sparse(), e.to_sparse(1), d.relu().to_sparse(),
        e.to_sparse(layout=t.sparse_csr), t.zeros_like(s), t.zeros(2, 2).to_sparse(), e.to_dense()],
    "products": lambda t, s, c, r, h, d, e: [
        s @ d, c @ d, r @ d, t.mm(s, d), t.matmul(c, d), t.spmm(r, d), t.sparse.mm(s, d), t.mv(s, d[:, 0]), r @ d[:, 1], e.T @ s, e.T @ c,
        t.sparse.mm(s.long(), d.long()), t.nn.functional.linear(s, e), t.addmm(e[:, :2], s, d, beta=0.5, alpha=2),
        t.sparse.addmm(e[:, :2], c, d)],
    "products of two": lambda t, s, c, r, h, d, e: [s @ d.to_sparse(), t.sparse.mm(c, d.to_sparse()), r @ d.to_sparse_csr(), s @ s.t()],
    "elements": lambda t, s, c, r, h, d, e: [
        s * 2, 2 * s, s / 2, -s, s + s, s - c, s * s, c * e.relu().to_sparse(), s * e, e * s, s * e[:, :1], e + s, e - s,
        t.add(e, s, alpha=2),
        s.abs(), c.abs().sqrt(), t.relu(s), s**2, r * 2, r + r, -r, r.abs(), h * 2, h + h, s.clone().mul_(2), e.clone().add_(s), s.double(),
        s.long(), s.to(t.float64), s.bool(), s.sin()],
    "sums": lambda t, s, c, r, h, d, e: [
        s.sum(), r.sum(), s.sum(0), s.sum(-1), t.sparse.sum(s), t.sparse.sum(s, 0), t.sparse.sum(s, [0, 1]),
        t.sparse.sum(h, 1), t.sparse.sum(h, 0), s.norm(), s.any()],
    "shapes": lambda t, s, c, r, h, d, e: [
        s.t(), s.T, s.H, s.mH, ((s * 1j).H.to_dense() * 1j).real, r.H, s.positive(), +r, s.resolve_conj(), r.resolve_neg(),
        s.transpose(0, 1), t.cat([s, c]), t.cat([s, s], 1), t.stack([s, s]), s.unsqueeze(0), h.unsqueeze(2), s[0], s[-1],
        s[1, 2], h[0], h[1],
        s.index_select(0, t.tensor([1, 0, 1], device=s.device)), s.index_select(1, t.tensor([2], device=s.device)), e.sparse_mask(c)],
    "softmax": lambda t, s, c, r, h, d, e: [
        t.sparse.softmax(s, 1), t.sparse.softmax(s, 0), t.sparse.log_softmax(s, 1), t.sparse.softmax(h, 1), t.sparse.softmax(h, 0)],
}


def plain(r, torch):
    if not isinstance(r, torch.Tensor):
        return r
    return [str(r.layout).partition(".")[2], str(r.dtype).partition(".")[2], tuple(r.shape), r.to_dense().double().tolist()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CALLS)
def test_as_torchs(case, device):
    results = []
    for torch in LIBRARIES:
        results.append([plain(r, torch) for r in CALLS[case](torch, *operands(torch, device if torch is arete else "cpu"))])
    for first, second in zip(results[0], results[-1]):
        if isinstance(first, list):
            assert first[:3] == second[:3]
            np.testing.assert_allclose(first[3], second[3], rtol=1e-5, atol=1e-6)
        else:
            assert first == second


GRADIENTS = {
    "coo": lambda t, x, y: x.to_sparse() @ y,
    "csr": lambda t, x, y: x.to_sparse_csr() @ y,
    "both": lambda t, x, y: (x.to_sparse() @ y.to_sparse()).to_dense(),
    "plain first": lambda t, x, y: y @ x.to_sparse(),
    "softmax": lambda t, x, y: t.sparse.softmax(x.to_sparse(), 1).to_dense() * y.T,
    "values": lambda t, x, y: x.to_sparse().coalesce().values() * y.T.flatten(),
    "elements": lambda t, x, y: (2 * x.to_sparse() + x.to_sparse() * y.T).to_dense(),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients(case, device):
    found = []
    for torch in LIBRARIES:
        place = device if torch is arete else "cpu"
        x, y = (torch.tensor(values(*s, seed=i), device=place, requires_grad=True) for i, s in enumerate([(2, 3), (3, 2)]))
        GRADIENTS[case](torch, x, y).square().sum().backward()
        found.append([x.grad.to_dense().tolist(), y.grad.to_dense().tolist()])
    np.testing.assert_allclose(found[0][0], found[-1][0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[0][1], found[-1][1], rtol=1e-4, atol=1e-5)


@both
def test_leaves(torch):
    v = torch.tensor([3.0, 4, 5], requires_grad=True)
    torch.sparse.mm(torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], v, (2, 3)), torch.eye(3)).sum().backward()
    assert v.grad.tolist() == [1, 1, 1]
    x = torch.sparse_coo_tensor([[0, 1, 0], [2, 0, 2]], [3.0, 4, 5], (2, 3), requires_grad=True)
    (torch.sparse.mm(x, torch.eye(3)) * torch.arange(6.0).reshape(2, 3)).sum().backward()
    assert x.is_leaf and x.grad.is_sparse and x.grad.to_dense().tolist() == [[0, 0, 2], [3, 0, 0]]
    assert x.detach().requires_grad is False


@both
def test_attributes_of_other_than_matrices(torch):
    v, m = torch.tensor([0, 1.0, 2]).to_sparse(), torch.arange(24.0).view(2, 3, 4).to_sparse()
    for x, names in ((v, ("H", "mT", "mH")), (m, ("H",))):
        for name in names:
            with pytest.raises(RuntimeError, match=f"tensor.{name} is only supported on matrices"):
                getattr(x, name)
    assert m.mT.to_dense().equal(m.to_dense().mT) and m.mH.shape == (2, 4, 3)
    assert torch.positive(input=v).to_dense().tolist() == [0, 1, 2]
    with pytest.raises((RuntimeError, TypeError)):
        +v.bool()


def test_options_that_would_change_results_are_refused():
    x = arete.eye(2).to_sparse()
    with pytest.raises(NotImplementedError, match="as with masked_grad=True"):
        x.to_dense(masked_grad=False)
    assert x.to_dense(masked_grad=True).tolist() == [[1, 0], [0, 1]] and x.to_sparse(2) is not None
    with pytest.raises(RuntimeError, match="conversion from Sparse to Sparse"):
        x.to_sparse(1)


@both
def test_copies_and_text(torch):
    x = torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone(), pickle.loads(pickle.dumps(x.to_sparse_csr()))):
        assert y is not x and y.to_dense().tolist() == x.to_dense().tolist()
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    assert torch.load(file, weights_only=False)["x"].to_dense().tolist() == x.to_dense().tolist()
    assert repr(x).replace("arete.", "torch.") == ("tensor(indices=tensor([[0, 1],\n                       [2, 0]]),\n"
                                                   "       values=tensor([3., 4.]),\n       size=(2, 3), nnz=2, layout=torch.sparse_coo)")
    m = torch.nn.Module()
    m.register_buffer("graph", x)
    assert m.double().graph.dtype == torch.float64 and m.graph.is_sparse and list(m.state_dict()) == ["graph"]


@both
def test_refused(torch):
    s = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2))
    for error, text, call in (
        (RuntimeError, "Cannot get indices on an uncoalesced tensor", lambda: s.indices()),
        (RuntimeError, "not supported", lambda: s + torch.ones(2, 2)),
        (RuntimeError, "Sparse division", lambda: s / torch.ones(2, 2)),
        (RuntimeError, "same nnz", lambda: torch.sparse_coo_tensor([[1], [0]], [1.0, 2.0])),
        (RuntimeError, "coalesce expected sparse coordinate tensor layout but got Strided", lambda: torch.ones(2).coalesce()),
        (RuntimeError, "crow_indices expected sparse row compressed tensor layout", lambda: s.crow_indices()),
        (NotImplementedError, "exp", lambda: torch.exp(s)),
        (TypeError, "can't convert Sparse layout tensor to numpy", lambda: s.numpy()),
        (RuntimeError, "[Dd]im|shapes", lambda: s @ torch.ones(3, 2)),
        (RuntimeError, "expected scalar type", lambda: s @ torch.ones(2, 2, dtype=torch.float64)),
        (IndexError, "out of (range|bounds)", lambda: s[2]),
    ):
        with pytest.raises(error, match=text):
            call()


COMPRESSED = {
    "csr": lambda t, x: x.to_sparse_csr(), "csc": lambda t, x: x.to_sparse_csc(), "bsr": lambda t, x: x.to_sparse_bsr((2, 2)),
    "bsc": lambda t, x: x.to_sparse_bsc(2), "oblong bsr": lambda t, x: x.to_sparse_bsr((2, 3)),
    "oblong bsc": lambda t, x: x.to_sparse_bsc((2, 3)),
}


def parts(x):
    """What a compressed matrix holds, and its text."""
    first, second = ("ccol_indices", "row_indices") if str(x.layout)[-1] == "c" else ("crow_indices", "col_indices")
    return [getattr(x, first)().tolist(), getattr(x, second)().tolist(), x.values().tolist(), repr(x).replace("arete.", "torch."),
            tuple(x.shape), x._nnz(), x.sparse_dim(), x.dense_dim(), x.is_sparse, x.is_sparse_csr]


@pytest.mark.parametrize("layout", COMPRESSED)
def test_compressed_layouts_as_torchs(layout):
    found = []
    for torch in LIBRARIES:
        there = (torch.arange(24).reshape(4, 6) % 3 > 0) & (torch.arange(6) // 2 != 1)
        d = torch.tensor(values(4, 6)).where(there, torch.tensor(0.0))
        d[0] = 0
        x = COMPRESSED[layout](torch, d)
        made = getattr(torch, f"{str(x.layout).rpartition('.')[2]}_tensor")
        inner = [f() for f in ((x.ccol_indices, x.row_indices) if str(x.layout)[-1] == "c" else (x.crow_indices, x.col_indices))]
        file = io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        same = [x, made(*inner, x.values()), made(*inner, x.values(), (4, 6)), x.clone(), pickle.loads(pickle.dumps(x)),
                torch.load(file), torch.sparse_compressed_tensor(*inner, x.values(), (4, 6), layout=x.layout)]
        if torch is arete:  # of which torch has no forms
            assert all(parts(y)[:3] == parts(x)[:3] for y in (copy.deepcopy(x), x.to_sparse(layout=x.layout)))
        others = [x.t(), x.t().t(), x.transpose(0, 1), x * 2, -x, x + x, x.abs(), torch.relu(x), x.double(), x.to(torch.complex64),
                  torch.zeros_like(x), d.sparse_mask(x)]
        plain_ones = [x.to_dense(), x.t().to_dense(), x.sum(), x.to_sparse().coalesce().indices(), x.to_sparse().coalesce().values()]
        if layout in ("csr", "csc"):  # of some others torch has no products
            plain_ones += [x @ torch.tensor(values(6, 3)), x @ torch.tensor(values(6)), x.t() @ torch.tensor(values(4, 3))]
            others += [x.to_sparse_csr(), x.to_sparse_csc(), x.to_sparse_bsr((2, 2)), x.to_sparse_bsc((2, 3)), x @ x.t()]
            plain_ones += [torch.tensor(values(3, 4)) @ x, torch.ones(4, 6) + x]
        assert all(parts(y)[:3] == parts(x)[:3] for y in same)
        found.append([[parts(y) for y in same + others], [y.tolist() for y in plain_ones]])
    for ours, theirs in zip(found[0][0], found[-1][0]):
        assert ours[:2] == theirs[:2] and ours[4:] == theirs[4:]
        np.testing.assert_allclose(np.array(ours[2]), np.array(theirs[2]), rtol=1e-5, atol=1e-6)
        assert ours[3] == theirs[3] or ours[2] != theirs[2]  # the text
    for ours, theirs in zip(found[0][1], found[-1][1]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "bfloat16"])
@pytest.mark.parametrize("layout", COMPRESSED)
def test_products_of_compressed_layouts(layout, dtype):
    dtype = getattr(arete, dtype)
    exact = arete.complex128 if dtype.is_complex else arete.float64
    d = (arete.tensor(values(4, 6)) * (arete.arange(6) // 2 != 1)).to(dtype)
    y, z = arete.tensor(values(6, 3)).to(dtype), arete.tensor(values(3, 4)).to(dtype)

    def is_product(found, a, b, roundings):
        assert found.dtype == dtype
        bound = roundings * arete.finfo(dtype).eps * (a.abs().double() @ b.abs().double())
        assert ((found.to(exact) - a.to(exact) @ b.to(exact)).abs() <= bound).all()

    for plain in (d, d * 0):
        x = COMPRESSED[layout](arete, plain)
        # Rounded: at each block, or at most once for each of 6 additions; and a product of two sparse ones once more each.
        is_product(x @ y, plain, y, 6)
        is_product(z @ x, z, plain, 6)
        is_product((x @ y[:, 0])[:, None], plain, y[:, :1], 6)
        is_product((x @ x.t()).to_dense(), plain, plain.T, 12)
        assert (x * d).to_dense().equal(plain * d)
    leaf, other = d.clone().requires_grad_(), y.clone().requires_grad_()
    given = arete.tensor(values(4, 3, seed=5)).to(dtype)
    (COMPRESSED[layout](arete, leaf) @ other).backward(given)
    is_product(other.grad, d.T.conj().resolve_conj(), given, 8)
    there = d != 0
    is_product(leaf.grad * there + (given @ y.T.conj().resolve_conj()) * ~there, given, y.T.conj().resolve_conj(), 8)


def batch_of_matrices(torch, *batch):
    """Plain ones of which each layout lists as many elements or blocks: the same rows of blocks in other orders, the same columns."""
    d = torch.tensor(values(*batch, 4, 6)) * (torch.arange(6) // 2 != 1)
    d[..., :2, :] *= torch.tensor([[0.0, 1], [1, 0]])[torch.arange(d[..., 0, 0].numel()) % 2].reshape(*batch, 2, 1)
    d[..., 2:, :3] = 0
    return d


@pytest.mark.parametrize("batch", [(3,), (2, 2)], ids=str)
@pytest.mark.parametrize("layout", COMPRESSED)
def test_batches_as_torchs(layout, batch):
    found = []
    for torch in LIBRARIES:
        d = batch_of_matrices(torch, *batch)
        x = COMPRESSED[layout](torch, d)
        made = getattr(torch, f"{str(x.layout).rpartition('.')[2]}_tensor")
        inner = [f() for f in ((x.ccol_indices, x.row_indices) if str(x.layout)[-1] == "c" else (x.crow_indices, x.col_indices))]
        file = io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        same = [x, made(*inner, x.values()), made(*inner, x.values(), d.shape, check_invariants=True), x.clone(),
                pickle.loads(pickle.dumps(x)), torch.load(file)]
        assert all(parts(y)[:3] == parts(x)[:3] for y in same)
        others = [x[0], x[-1], *x, *x.unbind(0), x.select(0, 1), x.transpose(-2, -1), x.mT, x * 2, -x, x.abs(), x.double(),
                  torch.zeros_like(x), d.sparse_mask(x), x.detach()]
        if len(batch) == 2:
            others += [x[0][1], x[0, 1], x.select(1, 1), x.transpose(0, 1)]
        found.append([[parts(y) for y in same + others],
                      [x.to_dense().tolist(), float(x.sum()), x.to_sparse().coalesce().indices().tolist()]])
        with pytest.raises(RuntimeError, match="selecting sparse dimensions is not supported for batched"):
            x.select(-1, 0)
        with pytest.raises(RuntimeError, match="dimensions of the same type"):
            x.transpose(0, -1)
        d[(0,) * len(batch)] = 0
        with pytest.raises(RuntimeError, match="Expect the same number of specified elements per batch"):
            COMPRESSED[layout](torch, d)
        with pytest.raises(RuntimeError, match="[Ee]xpected product of batch dimensions to be non-zero"):
            COMPRESSED[layout](torch, d[:0])
    for ours, theirs in zip(found[0][0], found[-1][0]):
        assert ours == theirs
    assert found[0][1][::2] == found[-1][1][::2] and found[0][1][1] == pytest.approx(found[-1][1][1], 1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch", [(3,), (2, 2)], ids=str)
@pytest.mark.parametrize("layout", COMPRESSED)
def test_products_of_batches(layout, batch, device):
    """Beside those of plain ones, since PyTorch has such products on GPUs alone, of a few layouts, without gradients."""
    d = batch_of_matrices(arete, *batch).double().to(device)
    y, z = (arete.tensor(values(*batch, *sizes), device=device).double() for sizes in ((6, 3), (3, 4)))
    x = COMPRESSED[layout](arete, d)
    close = functools.partial(arete.testing.assert_close, rtol=1e-12, atol=1e-12)
    close(x @ y, d @ y)
    close(z @ x, z @ d)
    close(x @ y[(0,) * len(batch)], d @ y[(0,) * len(batch)])
    close(x @ y[(0,) * len(batch)][:, 0], d @ y[(0,) * len(batch)][:, 0])
    close((x + x).to_dense(), d + d)
    close((x * d).to_dense(), d * d)
    for other in COMPRESSED:
        name = other.rpartition(" ")[2]
        block = None if name in ("csr", "csc") else (2, 3) if other != name else (2, 2)
        close(x.to_sparse(layout=getattr(arete, f"sparse_{name}"), blocksize=block).to_dense(), d)
    if len(batch) == 1:
        close(arete.bmm(x, y), arete.bmm(d, y))
        close(arete.bmm(z, x), arete.bmm(z, d))
        close(arete.baddbmm(d[..., :3], x, y, beta=2, alpha=3), 2 * d[..., :3] + 3 * arete.bmm(d, y))
        with pytest.raises(RuntimeError, match=r"Expected size for first two dimensions of batch2 tensor to be: \[3, 6\]"):
            arete.bmm(x, y[:, :5])
    near = arete.sparse.sampled_addmm(x, d @ y, y.mT, beta=2, alpha=3)
    close(near.to_dense(), 2 * d + 3 * (d @ y @ y.mT).sparse_mask(x).to_dense())
    given = arete.tensor(values(*batch, 4, 3, seed=5), device=device).double()
    leaf, plain, other = x.detach().requires_grad_(), d.clone().requires_grad_(), y.clone().requires_grad_()
    (leaf @ other).backward(given)
    (COMPRESSED[layout](arete, plain) @ y).backward(given)
    expected = (given @ y.mT).sparse_mask(x)
    assert leaf.grad.layout is x.layout
    close(leaf.grad.values(), expected.values())
    close(plain.grad, expected.to_dense())
    close(other.grad, d.mT @ given)


@both
def test_blocks_are_checked(torch):
    d = torch.ones(4, 6)
    for text, call in (
        (r"tensor sparse size \(4,6\) must be divisible by given blocksize \(3,3\)", lambda: d.to_sparse_bsr((3, 3))),
        ("without blocksize argument given is not supported", lambda: d.to_sparse(layout=torch.sparse_bsr)),
        ("ccol_indices expected sparse column compressed tensor layout but got SparseBsr", lambda: d.to_sparse_bsr((2, 2)).ccol_indices()),
        ("crow_indices expected sparse row compressed tensor layout but got SparseCsc", lambda: d.to_sparse_csc().crow_indices()),
        ("row_indices expected sparse column compressed tensor layout but got Strided", lambda: d.row_indices()),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()


@both
def test_the_gradient_of_blocks(torch):
    x = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 2]], requires_grad=True)
    (x.to_sparse_bsr((2, 1)).to_dense() * torch.arange(8.0).reshape(2, 4)).sum().backward()
    assert x.grad.tolist() == [[0, 0, 0, 3], [4, 0, 0, 7]]


LAYOUTS = {"coo": 2, "csr": 3, "csc": 3}  # and the dimensions of the largest example


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_without_elements(layout):
    texts = []
    for torch in LIBRARIES:
        kind, size = getattr(torch, f"sparse_{layout}"), (2, 3, 4)[-LAYOUTS[layout]:]
        made = [torch.zeros(*size, layout=kind), torch.zeros(size, layout=kind, dtype=torch.int32),
                torch.zeros(size, layout=kind, requires_grad=True), torch.zeros_like(torch.ones(size[-2:]), layout=kind),
                torch.ones(3, dtype=torch.float64).new_zeros(size, layout=kind)]
        texts.append([repr(x).replace("arete.", "torch.") for x in made])
        assert all(x.layout is kind and not x._nnz() and x.to_dense().equal(torch.zeros(x.shape, dtype=x.dtype)) for x in made)
        assert torch.empty(size, layout=kind).layout is kind and torch.zeros(10**7, 10**7, layout=torch.sparse_coo)._nnz() == 0
    assert texts[0] == texts[-1]


@both
def test_a_size_alone_makes_a_tensor_without_elements(torch):
    x = torch.sparse_coo_tensor((2, 3), dtype=torch.float64, requires_grad=True)
    assert x.is_coalesced() and x.requires_grad and x.shape == (2, 3) and x.dtype is torch.float64 and x._nnz() == 0
    assert torch.sparse_coo_tensor(size=[2, 3]).dtype is torch.float32


@both
def test_zeros_like_sparse_tensors_of_another_layout(torch):
    x = torch.eye(3, dtype=torch.float64).to_sparse()
    dense, same = torch.zeros_like(x, layout=torch.strided), torch.zeros_like(x, layout=torch.sparse_coo)
    assert dense.layout is torch.strided and dense.dtype is torch.float64 and dense.tolist() == [[0.0] * 3] * 3
    assert same.layout is torch.sparse_coo and same._nnz() == 0 and same.shape == x.shape


def test_layouts_that_have_no_zeros_are_refused():
    for call in (lambda: arete.ones(2, 2, layout=arete.sparse_csr), lambda: arete.rand(2, 2, layout=arete.sparse_coo),
                 lambda: arete.zeros(2, 2, layout=arete.sparse_bsr), lambda: arete.zeros(2, layout=arete.sparse_csr),
                 lambda: arete.empty_like(arete.ones(2), layout=arete.sparse_coo),
                 lambda: arete.zeros(2, layout=arete.sparse_coo, pin_memory=True)):
        with pytest.raises(RuntimeError, match="not implemented for sparse layout|no tensor of .* dimensions without elements"):
            call()
    assert arete.zeros(2, layout=arete.strided).tolist() == [0, 0]


@both
def test_invariants_may_be_asked_for(torch):
    check = torch.sparse.check_sparse_tensor_invariants
    assert not check.is_enabled()
    with check():
        assert check.is_enabled()
        with check(enable=False):
            assert not check.is_enabled()
        with pytest.raises(RuntimeError):
            torch.sparse_coo_tensor([[5], [0]], [1.0], (2, 3))
    check.enable()
    assert check.is_enabled()
    check.disable()
    assert not check.is_enabled() and check()(check.is_enabled)()


def test_checked():
    with pytest.raises(RuntimeError, match="some lie outside"):
        arete.sparse_coo_tensor([[5], [0]], [1.0], (2, 3))
    with pytest.raises(RuntimeError, match="must ascend"):
        arete.sparse_csr_tensor([0, 2, 1], [0, 1], [1.0, 2.0], (2, 3))
    with pytest.raises(RuntimeError, match="columns lie below 2"):
        arete.sparse_csr_tensor([0, 1, 2], [0, 2], [1.0, 2.0], (2, 2))
    blocks = arete.ones(2, 2, 2)
    for text, call in (
        ("columns lie below 2", lambda: arete.sparse_bsr_tensor([0, 1, 2], [0, 2], blocks, (4, 4))),
        ("must ascend from 0 to 2", lambda: arete.sparse_bsr_tensor([0, 1, 3], [0, 1], blocks, (4, 4))),
        ("not that of a matrix of blocks of 2 x 2", lambda: arete.sparse_bsr_tensor([0, 1, 2], [0, 1], blocks, (5, 4))),
        ("blocks .n, rows, columns. are wanted", lambda: arete.sparse_bsr_tensor([0, 1, 2], [0, 1], arete.ones(2), (4, 4))),
        ("all dimensions are sparse, but sparse_dim is 1", lambda: arete.eye(2).to_sparse(1, layout=arete.sparse_csr)),
        ("rows lie below 1", lambda: arete.sparse_csc_tensor([0, 1, 2], [0, 1], arete.ones(2), (1, 2))),
        ("does not go with 3 places of columns", lambda: arete.sparse_csc_tensor([0, 1, 2], [0, 1], arete.ones(2), (2, 3))),
        ("the layout is sparse_csr", lambda: arete.sparse_compressed_tensor([0, 1], [0], [1.0], layout=arete.strided)),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()
    # No coordinate is read where a device would have to be waited for.
    assert arete.sparse_coo_tensor(size=(2, 3)).to_dense().tolist() == [[0] * 3] * 2


@both
def test_a_graph_network_learns(torch):
    graph = torch.tensor(values(6, 6) > 0).float().to_sparse()
    x, w = torch.tensor(values(6, 4, seed=1)), torch.tensor(values(4, 3, seed=2), requires_grad=True)
    target = torch.arange(6) % 3
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(torch.spmm(graph, x @ w), target)
        w.data -= 0.1 * torch.autograd.grad(loss, w)[0]
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_sparse_adam_as_torchs():
    found = []
    for torch in LIBRARIES:
        table = torch.nn.Embedding(5, 2, sparse=True, padding_idx=0)
        with torch.no_grad():
            table.weight.copy_(torch.tensor(values(5, 2)))
        optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
        for used in ([1, 1, 3], [0, 2], [3, 4], [1]):
            optimizer.zero_grad()
            table(torch.tensor(used)).square().sum().backward()
            optimizer.step()
        found.append(table.weight.tolist())
        assert optimizer.state[table.weight]["step"] == 4
        with pytest.raises(ValueError, match="Invalid learning rate"):
            torch.optim.SparseAdam(table.parameters(), lr=0)
    np.testing.assert_allclose(found[0], found[-1], rtol=1e-5, atol=1e-6)


@both
def test_plain_tensors_have_no_sparse_dimensions(torch):
    assert torch.eye(2).sparse_dim() == 0 and torch.eye(2).dense_dim() == 2
    assert torch.eye(2).to_sparse_csr(dense_dim=0).crow_indices().tolist() == [0, 1, 2]


def test_products_added_to_nothing_of_a_matrix():
    nothing, s = arete.full((2, 2), float("nan")), arete.eye(2).to_sparse()
    for add in (arete.ops.aten._sparse_addmm, arete.sparse.addmm):
        assert add(nothing, s, arete.ones(2, 2), beta=0, alpha=2).tolist() == [[2, 2], [2, 2]]
        assert add(arete.ones(2, 2), s, arete.ones(2, 2), beta=3, alpha=2).tolist() == [[5, 5], [5, 5]]


@both
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_products_into_tensors(torch, layout):
    s = torch.tensor([[0.0, 2], [3, 0]]).to_sparse(layout=getattr(torch, layout))
    d, v, out = torch.tensor([[1.0, 2], [3, 4]]), torch.tensor([1.0, 2]), torch.empty(2, 2)
    for product in (lambda: torch.mm(s, d, out=out), lambda: torch.addmm(torch.ones(2, 2), s, d, beta=0, out=out)):
        assert product() is out and out.tolist() == [[6, 8], [3, 6]]
        out.zero_()
    assert torch.addmm(d, s, d, beta=2, alpha=3, out=out).tolist() == [[20, 28], [15, 26]] and out[0, 0] == 20
    if torch is arete or layout == "sparse_csr":  # the others the other has not
        assert torch.addmv(v, s, v, beta=2, alpha=3).tolist() == [14, 13]
    with pytest.raises(RuntimeError):
        torch.mm(s, d, out=torch.empty(2, 2, dtype=torch.int64))


@both
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_neighbours_of_sparse_tensors(torch, layout):
    s = torch.tensor([[0.0, 2], [3, 4]]).to_sparse(layout=getattr(torch, layout))
    for make, elements in ((torch.zeros_like, 0), (torch.empty_like, 0 if layout == "sparse_coo" else 3)):
        for options in ({}, {"dtype": torch.float64, "requires_grad": True}, {"dtype": torch.int64, "device": "cpu"}):
            near = make(s, **options)
            assert near.layout == s.layout and near.shape == (2, 2) and near._nnz() == elements
            assert near.dtype == options.get("dtype", torch.float32) and near.requires_grad == options.get("requires_grad", False)
        near = make(s, layout=None, memory_format=None)
        assert near.layout == s.layout and near._nnz() == elements
        if layout == "sparse_coo" or torch is arete:
            with pytest.raises(RuntimeError, match="memory format option is only supported by strided tensors"):
                make(s, memory_format=torch.contiguous_format if layout == "sparse_coo" else torch.channels_last)
    if layout == "sparse_coo":
        assert torch.ones_like(s, layout=torch.strided, memory_format=torch.preserve_format).tolist() == [[1, 1], [1, 1]]
        with pytest.raises(NotImplementedError):
            torch.ones_like(s)
    else:
        assert torch.ones_like(s, dtype=torch.int64).to_dense().tolist() == [[0, 1], [1, 1]]
