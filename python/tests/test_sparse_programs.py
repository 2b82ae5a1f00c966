"""Programs with sparse tensors as people write them: what they come to, beside PyTorch's."""
import copy
import io
import pickle

import numpy as np
import pytest
from idiom_helpers import LIBRARIES, seeds_and_switches  # noqa: F401 -- the fixture

import arete

pytestmark = [pytest.mark.filterwarnings("ignore:Sparse"), pytest.mark.filterwarnings("ignore:.*sparse")]
PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def graph(torch, n=40, edges=160, seed=0):
    r = np.random.default_rng(seed)
    return torch.tensor(r.integers(0, n, (2, edges)))


@program
def graph_convolution(torch):
    n, edges = 40, graph(torch)
    loops = torch.arange(n).repeat(2, 1)
    index = torch.cat([edges, edges.flip(0), loops], dim=1)
    adjacency = torch.sparse_coo_tensor(index, torch.ones(index.shape[1]), (n, n)).coalesce()
    degree = torch.sparse.sum(adjacency, dim=1).to_dense()
    row, col = adjacency.indices()
    weight = adjacency.values() * degree[row].rsqrt() * degree[col].rsqrt()
    a = torch.sparse_coo_tensor(adjacency.indices(), weight, adjacency.size())
    x, w1, w2 = torch.tensor(numbers(n, 8)), torch.tensor(numbers(8, 6, seed=1) * 0.5), torch.tensor(numbers(6, 3, seed=2) * 0.5)
    w1.requires_grad_(), w2.requires_grad_()
    labels = torch.arange(n) % 3
    optimizer = torch.optim.Adam([w1, w2], lr=0.05)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        h = torch.relu(torch.sparse.mm(a, x @ w1))
        loss = torch.nn.functional.cross_entropy(torch.sparse.mm(a, h @ w2), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def attention_over_edges(torch):
    n, edges = 20, graph(torch, 20, 60)
    x = torch.tensor(numbers(n, 4), requires_grad=True)
    scores = (x[edges[0]] * x[edges[1]]).sum(1)
    e = torch.sparse_coo_tensor(edges, scores, (n, n))
    attention = torch.sparse.softmax(e, dim=1)
    out = torch.sparse.mm(attention, x)
    out.square().mean().backward()
    return out, x.grad, torch.sparse.log_softmax(e.detach(), dim=0).coalesce().values()


@program
def pagerank(torch):
    n, edges = 50, graph(torch, 50, 300)
    links = torch.sparse_coo_tensor(edges, torch.ones(300), (n, n)).coalesce()
    out_degree = torch.sparse.sum(links, 1).to_dense().clamp(min=1)
    m = torch.sparse_coo_tensor(links.indices().flip(0), links.values() / out_degree[links.indices()[0]], (n, n)).to_sparse_csr()
    rank = torch.full((n, 1), 1 / n)
    for _ in range(30):
        rank = 0.85 * (m @ rank) + 0.15 / n
    return rank, rank.sum()


@program
def embedding_bag_training(torch):
    bag = torch.nn.EmbeddingBag(30, 5, mode="sum", sparse=True)
    with torch.no_grad():
        bag.weight.copy_(torch.tensor(numbers(30, 5)))
    optimizer, target = torch.optim.SparseAdam(list(bag.parameters()), lr=0.05), torch.tensor(numbers(3, 5, seed=4))
    losses, rows = [], None
    for _ in range(10):
        optimizer.zero_grad()
        loss = (bag(torch.tensor([1, 4, 4, 9, 20, 1]), torch.tensor([0, 2, 5])) - target).square().sum()
        loss.backward()
        rows = bag.weight.grad.coalesce().indices()
        assert bag.weight.grad.is_sparse
        optimizer.step()
        losses.append(loss.item())
    return losses, rows, bag.weight.detach()


@program
def conjugate_gradient_of_a_laplacian(torch):
    n = 12
    i = torch.arange(n * n).reshape(n, n)
    pairs = torch.cat([torch.stack([i[:, 1:].flatten(), i[:, :-1].flatten()]), torch.stack([i[1:].flatten(), i[:-1].flatten()])], 1)
    index = torch.cat([pairs, pairs.flip(0), i.flatten().repeat(2, 1)], 1)
    v = torch.cat([-torch.ones(2 * pairs.shape[1], dtype=torch.float64), torch.full((n * n,), 4.0, dtype=torch.float64)])
    a = torch.sparse_coo_tensor(index, v, (n * n, n * n)).coalesce().to_sparse_csr()
    b = torch.tensor(numbers(n * n)).double()
    x, r = torch.zeros_like(b), b.clone()
    p, old = r.clone(), r @ r
    steps = 0
    while old.sqrt() > 1e-10 and steps < 500:
        ap = a @ p
        alpha = old / (p @ ap)
        x, r = x + alpha * p, r - alpha * ap
        new = r @ r
        p, old = r + new / old * p, new
        steps += 1
    assert (a @ x - b).norm() < 1e-9 and steps < 60
    return x, torch.linalg.solve(a.to_dense(), b)


@program
def duplicates_are_added(torch):
    s = torch.sparse_coo_tensor([[0, 0, 1, 0], [2, 2, 0, 2]], [1.0, 2, 3, 4], (2, 3))
    c = s.coalesce()
    t = torch.sparse_coo_tensor([[0, 0, 1]], [[1.0, 2], [3, 4], [5, 6]], (3, 2)).coalesce()
    return s.is_coalesced(), s._nnz(), c.is_coalesced(), c.indices(), c.values(), t.indices(), t.values(), s.to_dense(), \
        (s + s).coalesce()._nnz()


@program
def masks(torch):
    d = torch.tensor(numbers(5, 6))
    keep = (torch.tensor(numbers(5, 6, seed=2)) > 0).float().to_sparse()
    chosen = d.sparse_mask(keep)
    p = torch.tensor(numbers(5, 6, seed=3), requires_grad=True)
    (p.sparse_mask(keep.coalesce()).to_dense() * d).sum().backward()
    return chosen, chosen.values(), p.grad, d.sparse_mask(keep.to_sparse_csr()), (d * keep).to_dense(), (keep * d).to_dense()


@program
def files(torch):
    found = []
    d = torch.tensor(numbers(4, 6) * (numbers(4, 6, seed=1) > 0))
    for x in (d.to_sparse(), d.to_sparse_csr(), d.to_sparse_csc(), d.to_sparse_bsr((2, 3)), d.to_sparse_bsc((2, 2)), d.to_sparse(1)):
        file = io.BytesIO()
        torch.save({"m": x, "n": [x, x]}, file)
        file.seek(0)
        read = torch.load(file, weights_only=True)
        found += [read["m"].to_dense(), str(read["n"][1].layout).rpartition(".")[2]]
    return found


@program
def gradients_through_to_dense(torch):
    v = torch.tensor([1.0, 2, 3], requires_grad=True)
    s = torch.sparse_coo_tensor([[0, 1, 0], [1, 2, 1]], v, (2, 3))
    (s.to_dense() * torch.arange(6.0).reshape(2, 3)).sum().backward()
    x = torch.tensor(numbers(3, 4), requires_grad=True)
    (x.relu().to_sparse().to_dense() ** 2).sum().backward()
    y = torch.tensor(numbers(3, 4), requires_grad=True)
    (y.to_sparse_csr().to_dense() ** 2).sum().backward()
    return v.grad, x.grad, y.grad


@program
def rows_are_chosen(torch):
    s = torch.tensor(numbers(6, 4) * (numbers(6, 4, seed=1) > 0)).to_sparse()
    batch = torch.tensor([4, 0, 0, 5])
    h = torch.tensor(numbers(5, 2, 3)).to_sparse(1)
    return [s.index_select(0, batch), s.index_select(1, torch.tensor([3, 1])), torch.index_select(h, 0, torch.tensor([2, 2])),
            h.index_select(2, torch.tensor([1])), s[2], s[-1].to_dense(), s[1, 2], s.narrow_copy(0, 1, 3), h[3]]


@program
def sums_with_dense_tensors(torch):
    s, d = torch.tensor(numbers(3, 4) * (numbers(3, 4, seed=1) > 0)).to_sparse(), torch.tensor(numbers(3, 4, seed=2))
    e = d.clone()
    e += s
    e.add_(s, alpha=-2)
    return d + s, d - s, torch.add(d, s, alpha=3), e, d * s, s * 2.5, s / 4, s - s, s + s.t().t(), (s * s).to_dense(), -s, s.neg().abs()


@program
def sums_over_dimensions(torch):
    s = torch.tensor(numbers(3, 4, 5) * (numbers(3, 4, 5, seed=1) > 0)).to_sparse()
    h = torch.tensor(numbers(3, 4, 5)).to_sparse(2)
    x = torch.tensor(numbers(3, 4), requires_grad=True)
    (torch.sparse.sum(x.to_sparse(), 0).to_dense() * torch.arange(4.0)).sum().backward()
    return [torch.sparse.sum(s), torch.sparse.sum(s, 0), torch.sparse.sum(s, (0, 2)), torch.sparse.sum(s, -1), torch.sparse.sum(h, 2),
            torch.sparse.sum(h, (1, 2)), torch.sparse.sum(h, 0), s.sum(), torch.sparse.sum(s, dtype=torch.float64), x.grad,
            torch.sparse.sum(s, 1, dtype=torch.float64)]


@program
def hybrid_tensors(torch):
    h = torch.sparse_coo_tensor([[0, 2, 0], [1, 0, 1]], torch.tensor(numbers(3, 2, 2)), (3, 2, 2, 2))
    c = h.coalesce()
    return [h.sparse_dim(), h.dense_dim(), h.shape, c.values().shape, c.indices(), h.to_dense(), h * 2, h + h, h.transpose(0, 1),
            torch.cat([h, h], 0), torch.sparse.softmax(c, 0), c.sum(), h.double(), c.values().sum(1)]


@program
def sampled_products(torch):
    mask = torch.tensor((numbers(4, 5) > 0).astype(np.float32)).to_sparse_csr()
    a, b = torch.tensor(numbers(4, 3), requires_grad=True), torch.tensor(numbers(3, 5, seed=1), requires_grad=True)
    s = torch.sparse.sampled_addmm(mask, a, b, beta=0.5, alpha=2.0)
    (s.to_dense() * torch.arange(20.0).reshape(4, 5)).sum().backward()
    return s, s.crow_indices(), s.values(), a.grad, b.grad


@program
def rows_and_columns(torch):
    r = torch.tensor(numbers(4, 6) * (numbers(4, 6, seed=1) > 0)).to_sparse_csr()
    t = r.t()
    y = torch.tensor(numbers(4, 2), requires_grad=True)
    (t @ y).square().sum().backward()
    return [str(t.layout)[-3:], t.shape, t.to_dense(), t.ccol_indices(), t.row_indices(), t @ y, y.grad, t.to_sparse_csr(), r @ t,
            r.transpose(0, 1), r.to_sparse_csc().values(), t.t().crow_indices(), r.to_sparse_coo().indices()]


@program
def texts(torch):
    s = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
    long = torch.tensor(numbers(8, 9)).to_sparse()
    many = [s, s.double(), s.coalesce(), s.to_sparse_csr(), s.int(), torch.zeros_like(s), s.bool(), s.to_sparse_csc(), long,
            long.to_sparse_csr(), long.t().to_sparse_bsr((3, 4)), torch.tensor(numbers(3, 2, 2)).to_sparse(1),
            torch.tensor(numbers(40, 40)).to_sparse(),
            s.to(torch.complex64), s.to_sparse_csr().long(), s.half(), torch.sparse_coo_tensor(size=(2, 0)),
            torch.sparse_coo_tensor([[0]], [1.0], (2,), requires_grad=True)]
    return [repr(x).replace("arete.", "torch.") for x in many]


@program
def dtypes(torch):
    found = []
    d = numbers(4, 5) * (numbers(4, 5, seed=1) > 0)
    for dtype in (torch.float64, torch.complex64, torch.float32):
        s, y = torch.tensor(d).to(dtype).to_sparse(), torch.tensor(numbers(5, 2)).to(dtype)
        found += [s @ y, s.to_sparse_csr() @ y, (s * 2).to_dense(), s.t() @ (s @ y), torch.sparse.sum(s, 0), s.abs(), s.conj().to_dense()]
    for dtype in (torch.float16, torch.bfloat16, torch.int64):
        s = torch.tensor(d * 4).to(dtype).to_sparse()
        found += [s.coalesce().values(), (s * 2).to_dense(), s.to(torch.float32).to_dense(), str(s.dtype).partition(".")[2]]
    return found


@program
def loader_of_rows(torch):
    class Rows(torch.utils.data.Dataset):
        def __init__(self):
            self.all = torch.tensor(numbers(10, 6) * (numbers(10, 6, seed=1) > 0))

        def __len__(self):
            return 10

        def __getitem__(self, i):
            return self.all[i].to_sparse(), i

    def collate(batch):
        return torch.stack([x for x, _ in batch]), torch.tensor([i for _, i in batch])

    found = []
    for workers in (0, 2):
        for x, i in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=workers, collate_fn=collate):
            found += [x, i, x._nnz()]
    return found


@program
def batches_of_matrices(torch):
    d = torch.tensor(numbers(3, 4, 5) * (numbers(3, 4, 5, seed=1) > 0))
    y = torch.tensor(numbers(3, 5, 2))
    x = d.clone().requires_grad_()
    torch.bmm(x.to_sparse(), y).square().sum().backward()
    return torch.bmm(d.to_sparse(), y), x.grad * (d != 0), torch.stack([d[0].to_sparse(), d[1].to_sparse()]), d.to_sparse().transpose(0, 2)


@program
def buffers_and_devices(torch):
    class Net(torch.nn.Module):
        def __init__(self, a):
            super().__init__()
            self.register_buffer("a", a)
            self.linear = torch.nn.Linear(3, 2, bias=False)
            with torch.no_grad():
                self.linear.weight.copy_(torch.tensor(numbers(2, 3)))

        def forward(self, x):
            return torch.sparse.mm(self.a, self.linear(x))

    net = Net(torch.tensor(numbers(4, 4) * (numbers(4, 4, seed=1) > 0)).to_sparse())
    x = torch.tensor(numbers(4, 3, seed=2))
    out = net(x)
    out.sum().backward()
    other = Net(torch.zeros(4, 4).to_sparse())
    state = net.state_dict()
    other.linear.load_state_dict({"weight": state["linear.weight"]})
    return out, net.linear.weight.grad.clone(), net.double()(x.double()), state["a"], net.to("cpu").a.dtype == torch.float64, other(x)


def plain(r):
    if isinstance(r, (list, tuple)) and not hasattr(r, "numel"):
        return [plain(x) for x in r]
    if not hasattr(r, "dtype"):
        return r
    layout, dtype = str(r.layout).partition(".")[2], str(r.dtype).partition(".")[2]
    r = r.detach() if r.requires_grad else r
    whole = r.to_dense() if layout != "strided" else r
    return [layout, dtype, tuple(r.shape), (whole.double() if "complex" not in dtype else whole).numpy()]


def same(a, b, where):
    if isinstance(a, list):
        assert isinstance(b, list) and len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{where}[{i}]")
    elif isinstance(a, (np.ndarray, float)):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5, err_msg=where)
    else:
        assert a == b, where


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_torchs(name):
    found = [plain(PROGRAMS[name](torch)) for torch in LIBRARIES]
    same(found[0], found[-1], name)


WRONG = {
    "outside": lambda t: t.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,), check_invariants=True),
    "negative": lambda t: t.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (3,), check_invariants=True),
    "nnz": lambda t: t.sparse_coo_tensor([[0, 1]], [1.0], (3,)),
    "size": lambda t: t.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0], (3,)),
    "rows": lambda t: t.sparse_csr_tensor([0, 1, 1], [0, 1], [1.0, 2.0], (2, 2), check_invariants=True),
    "columns": lambda t: t.sparse_csr_tensor([0, 1, 2], [0, 7], [1.0, 2.0], (2, 2), check_invariants=True),
    "columns out of order": lambda t: t.sparse_csr_tensor([0, 2], [1, 0], [1.0, 2.0], (1, 2), check_invariants=True),
    "columns twice": lambda t: t.sparse_csr_tensor([0, 2], [1, 1], [1.0, 2.0], (1, 2), check_invariants=True),
    "rows out of order": lambda t: t.sparse_csc_tensor([0, 2], [1, 0], [1.0, 2.0], (2, 1), check_invariants=True),
    "blocks out of order": lambda t: t.sparse_bsr_tensor([0, 2], [1, 0], t.ones(2, 1, 1), (1, 2), check_invariants=True),
    "not coalesced": lambda t: t.sparse_coo_tensor([[1, 0]], [1.0, 2.0], (3,), check_invariants=True, is_coalesced=True),
    "coalesced twice": lambda t: t.sparse_coo_tensor([[1, 1]], [1.0, 2.0], (3,), check_invariants=True, is_coalesced=True),
    "add to another dtype": lambda t: t.ones(2, 2, dtype=t.int64).add_(t.eye(2).to_sparse()),
    "subtract from another dtype": lambda t: t.ones(2, 2, dtype=t.int64).sub_(t.eye(2).to_sparse()),
    "add to more dimensions": lambda t: t.ones(3, 2, 2).add_(t.eye(2).to_sparse()),
    "sum of more dimensions": lambda t: t.ones(3, 2, 2) + t.eye(2).to_sparse(),
    "shapes": lambda t: t.sparse.mm(t.eye(3).to_sparse(), t.ones(2, 2)),
    "dtypes": lambda t: t.sparse.mm(t.eye(3).to_sparse(), t.ones(3, 2).double()),
    "sum": lambda t: t.sparse.sum(t.eye(3).to_sparse(), 5),
    "softmax": lambda t: t.sparse.softmax(t.eye(3).to_sparse(), 5),
    "mask": lambda t: t.ones(2, 2).sparse_mask(t.eye(3).to_sparse()),
    "plain": lambda t: t.ones(2, 2).indices(),
    "numpy": lambda t: t.eye(2).to_sparse().numpy(),
    "cat": lambda t: t.cat([t.eye(2).to_sparse(), t.eye(3).to_sparse()]),
    "add": lambda t: t.eye(2).to_sparse() + t.eye(3).to_sparse(),
    "dense dimensions": lambda t: t.ones(2, 2).to_sparse() + t.ones(2, 2).to_sparse(1),
    "transpose": lambda t: t.eye(2).to_sparse(1).transpose(0, 1),
    "select": lambda t: t.eye(2).to_sparse()[3],
    "index": lambda t: t.eye(2).to_sparse().index_select(0, t.tensor([4])),
    "leaf": lambda t: t.eye(2).to_sparse().requires_grad_().add_(t.eye(2).to_sparse()),
    "block": lambda t: t.eye(5).to_sparse_bsr((2, 2)),
    "bmm": lambda t: t.bmm(t.eye(2).to_sparse(), t.ones(2, 2)),
}


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_copies_share_no_indices(layout):
    for torch in LIBRARIES:
        eye = torch.eye(4)
        x = eye.to_sparse() if layout == "coo" else getattr(eye, f"to_sparse_{layout}")(*[(2, 2)] * layout.startswith("b"))
        name = {"coo": "indices", "csr": "col_indices", "bsr": "col_indices"}.get(layout, "row_indices")
        for other in [x.clone(), *([copy.deepcopy(x)] if torch is arete else [])]:  # PyTorch cannot for all layouts
            getattr(other, name)().zero_()
            assert x.to_dense().equal(torch.eye(4)) and other.layout == x.layout


def test_indices_that_are_not_known_to_be_in_order():
    for torch in LIBRARIES:
        x = torch.sparse_csr_tensor([0, 2, 3], [1, 0, 1], [1.0, 2.0, 3.0], (2, 2))
        dense = torch.tensor([[2.0, 1.0], [0.0, 3.0]])
        for same in (x, x.clone(), pickle.loads(pickle.dumps(x)), x.t().t(), x * 1, x.double().float()):
            assert same.to_dense().equal(dense) and (same @ torch.eye(2)).equal(dense)
            assert same.to_sparse().is_coalesced()
            if torch is arete:  # PyTorch leaves them as they are, and says that they are coalesced
                assert same.to_sparse().indices().tolist() == [[0, 0, 1], [0, 1, 1]]
        assert (x.to_sparse() + dense.to_sparse()).to_dense().equal(2 * dense)


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_products_with_no_columns(layout):
    for torch in LIBRARIES:
        x = getattr(torch.eye(4), f"to_sparse_{layout}")(*[(2, 2)] * layout.startswith("b"))
        assert (x @ torch.ones(4, 0)).shape == (4, 0)


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_errors(name):
    kinds = []
    for torch in LIBRARIES:
        with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)) as e:
            WRONG[name](torch)
        kinds.append(e.type)
    # An error of ours may be a closer one, which is a RuntimeError as well.
    assert issubclass(kinds[0], kinds[-1]), kinds
