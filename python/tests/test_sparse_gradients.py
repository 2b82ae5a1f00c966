"""Gradients of tables that are sparse tensors (`nn.Embedding(sparse=True)`), beside PyTorch's."""
import copy
import subprocess
import sys

import numpy as np
import pytest
from device_helpers import PEAK
from idiom_helpers import LIBRARIES

import arete

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
both = pytest.mark.parametrize("torch", LIBRARIES, ids=lambda library: library.__name__)
DEVICES = ["cpu"] + ["cuda"] * arete.cuda.is_available()
ROWS, WIDTH = 11, 4


def table(torch, kind="Embedding", device="cpu", **options):
    layer = getattr(torch.nn, kind)(ROWS, WIDTH, sparse=True, **options)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)))
    return layer.to(device)


def batch(torch, step, device="cpu", shape=(3, 5)):
    rng = np.random.default_rng(step)
    return torch.tensor(rng.integers(0, ROWS, shape), device=device), torch.tensor(
        rng.standard_normal((*shape, WIDTH)).astype(np.float32), device=device)


def arrays(g):
    assert g.is_sparse and g.layout == (arete if isinstance(g, arete.Tensor) else sys.modules.get("torch", arete)).sparse_coo
    return [g._indices().cpu().numpy(), g._values().detach().cpu().numpy()]


# ---- what the gradient is

GRADIENTS = {
    "embedding": ("Embedding", {}),
    "padding": ("Embedding", {"padding_idx": 2}),
    "padding from the end": ("Embedding", {"padding_idx": -1}),
    "limited norms": ("Embedding", {"max_norm": 0.5}),
    "sums": ("EmbeddingBag", {"mode": "sum"}),
    "means": ("EmbeddingBag", {"mode": "mean"}),
    "means with padding": ("EmbeddingBag", {"mode": "mean", "padding_idx": 3}),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", GRADIENTS)
def test_as_torchs(case, device):
    kind, options = GRADIENTS[case]
    results = []
    for torch in LIBRARIES:
        place = device if torch is arete else "cpu"
        layer, (index, weights) = table(torch, kind, place, **options), batch(torch, 0, place)
        out = layer(index)
        (out * (weights if kind == "Embedding" else weights.sum(1))).sum().backward()
        g = layer.weight.grad
        results.append([*arrays(g), g.is_coalesced(), tuple(g.shape), g.coalesce().indices().cpu().numpy(), g.to_dense().cpu().numpy()])
    for mine, theirs in zip(results[0], results[-1]):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("device", DEVICES)
def test_bags_with_offsets_and_weights(device):
    results = []
    for torch in LIBRARIES:
        place = device if torch is arete else "cpu"
        layer = table(torch, "EmbeddingBag", place, mode="sum")
        index, offsets = torch.tensor([1, 4, 1, 0, 9, 9, 4], device=place), torch.tensor([0, 3, 3, 5], device=place)
        factors = torch.tensor([0.5, 1, 2, -1, 3, 0.25, 1], device=place, requires_grad=True)
        (layer(index, offsets, per_sample_weights=factors).square()).sum().backward()
        results.append([*arrays(layer.weight.grad), factors.grad.cpu().numpy()])
    for mine, theirs in zip(results[0], results[-1]):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


# ---- optimizers

OPTIMIZERS = {
    "SGD": ("SGD", {"lr": 0.1}), "SGD, lr tensor": ("SGD", {"lr": "tensor"}),
    "SGD, momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "SGD, dampening": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.25}),
    "SGD, nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "SGD, maximize": ("SGD", {"lr": 0.1, "maximize": True}),
    "Adagrad": ("Adagrad", {"lr": 0.1}), "Adagrad, decay": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    "SparseAdam": ("SparseAdam", {"lr": 0.1}), "SparseAdam, options": ("SparseAdam", {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3,
                                                                                      "maximize": True}),
    "LBFGS": ("LBFGS", {"lr": 0.1, "max_iter": 2}),
}


def train(torch, name, options, device, steps=20, accumulate=1, linear=False):
    layer = table(torch, device=device)
    options = {k: torch.tensor(0.1) if v == "tensor" else v for k, v in options.items()}
    optimizer = getattr(torch.optim, name)(layer.parameters(), **options)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()

        def closure():
            for part in range(accumulate):
                index, target = batch(torch, step * accumulate + part, device)
                if linear:
                    index = torch.tensor(np.random.default_rng(step).permutation(ROWS)[:8])
                    target = target.flatten(0, 1)[:8]
                out = layer(index)
                loss = (out * target).sum() if linear else (out - target).square().mean()
                loss.backward()
            return loss

        if name == "LBFGS":
            losses.append(optimizer.step(closure).item())
        else:
            losses.append(closure().item())
            optimizer.step()
            assert layer.weight.grad.is_sparse
    return losses, layer.weight.detach().cpu().numpy(), optimizer


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("case", OPTIMIZERS)
def test_optimizers(case, accumulate, device):
    (name, options), results = OPTIMIZERS[case], []
    for torch in LIBRARIES:
        results.append(train(torch, name, options, device if torch is arete else "cpu", accumulate=accumulate)[:2])
    np.testing.assert_allclose(results[0][0], results[-1][0], rtol=2e-5)
    np.testing.assert_allclose(results[0][1], results[-1][1], rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("case", ["Adagrad", "Adagrad, decay", "SparseAdam", "SparseAdam, options"])
def test_same_bits(case):
    """Of averages, with a loss that is linear, so that the gradients are the same numbers, and no row twice. (Parameters differ in last
    bits: PyTorch rounds roots otherwise, and rate * step + parameter once.)"""
    name, options = OPTIMIZERS[case]
    states = []
    for torch in LIBRARIES:
        _, weight, optimizer = train(torch, name, options, "cpu", linear=True)
        (state,) = optimizer.state.values()
        states.append({k: np.asarray(v) for k, v in sorted(state.items())})
        np.testing.assert_allclose(weight, train(LIBRARIES[-1], name, options, "cpu", linear=True)[1], rtol=2e-5, atol=1e-6)
    assert list(states[0]) == list(states[-1])
    for mine, theirs in zip(states[0].values(), states[-1].values()):
        np.testing.assert_array_equal(mine, theirs)


@both
@pytest.mark.parametrize("name", ["Adadelta", "Adafactor", "Adam", "AdamW", "Adamax", "ASGD", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop"])
def test_refused(torch, name):
    layer = table(torch)
    optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.1)
    before = layer.weight.detach().clone()
    layer(batch(torch, 0)[0]).sum().backward()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        optimizer.step()
    assert torch.equal(layer.weight, before)


@both
def test_refused_options(torch):
    layer, index = table(torch), batch(torch, 0)[0]
    layer(index).sum().backward()
    with pytest.raises(RuntimeError):
        torch.optim.SGD(layer.parameters(), lr=0.1, weight_decay=0.1).step()
    with pytest.raises(RuntimeError, match="weight_decay option is not compatible with sparse gradients"):
        torch.optim.Adagrad(layer.parameters(), lr=0.1, weight_decay=0.1).step()
    layer.weight.grad = layer.weight.grad.to_dense()
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam instead"):
        torch.optim.SparseAdam(layer.parameters()).step()
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported with sparse gradients"):
        table(torch, scale_grad_by_freq=True)(index).sum().backward()
    with pytest.raises(ValueError, match="max mode does not support sparse weights"):
        table(torch, "EmbeddingBag", mode="max")(index)
    for setting in ({"lr": 0.0}, {"eps": 0.0}, {"betas": (1.0, 0.9)}):
        with pytest.raises(ValueError, match="Invalid"):
            torch.optim.SparseAdam(layer.parameters(), **setting)


@both
def test_states_go_on(torch):
    """A state that is saved and loaded goes on with the same numbers."""
    for name, options in (("SparseAdam", {}), ("Adagrad", {}), ("SGD", {"momentum": 0.9})):
        _, _, optimizer = train(torch, name, {"lr": 0.1, **options}, "cpu", steps=3)
        weight = optimizer.param_groups[0]["params"][0]
        other = torch.nn.Parameter(weight.detach().clone())
        resumed = getattr(torch.optim, name)([other], lr=0.1, **options)
        resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for w, o in ((weight, optimizer), (other, resumed)):
            w.grad = None
            torch.nn.functional.embedding(batch(torch, 9)[0], w, sparse=True).square().sum().backward()
            o.step()
        assert torch.equal(weight, other)


# ---- accumulation, hooks, what else is done with gradients


@both
def test_accumulation(torch):
    layer, index = table(torch), torch.tensor([1, 4, 1])
    weight = layer.weight

    def dense():
        (weight * 2).sum().backward()

    def sparse():
        layer(index).sum().backward()

    counts = torch.zeros(ROWS, WIDTH).index_add(0, index, torch.ones(3, WIDTH))
    for calls, layout, expected in (
        ([sparse, sparse], torch.sparse_coo, 2 * counts), ([sparse, dense], torch.strided, counts + 2),
        ([dense, sparse], torch.strided, counts + 2), ([sparse, dense, sparse], torch.strided, 2 * counts + 2),
    ):
        weight.grad = None
        for call in calls:
            call()
        assert weight.grad.layout == layout
        assert torch.equal(weight.grad.to_dense(), expected)
    weight.grad = None
    (layer(index).sum() + layer(index[:1]).sum() + (layer(index) * 3).sum()).backward()
    assert weight.grad.is_sparse and torch.equal(weight.grad.to_dense()[4], torch.full((WIDTH,), 4.0))
    weight.grad = None
    (layer(index).sum() + (weight * 2).sum()).backward()
    assert weight.grad.layout == torch.strided and torch.equal(weight.grad, counts + 2)
    if torch is not arete:
        return
    # What the gradient is made of is its own: writes to index or values afterwards do not matter, as they do in PyTorch.
    weight.grad = None
    given = torch.ones(3, WIDTH)
    layer(index).backward(given)
    given.zero_()
    index.zero_()
    assert torch.equal(weight.grad.to_dense(), counts)


@both
def test_many_passes(torch):
    layer, index = table(torch), torch.arange(100) % ROWS
    for _ in range(40):
        layer(index).sum().backward()
    assert layer.weight.grad.is_sparse and layer.weight.grad._nnz() <= ROWS * WIDTH
    assert torch.equal(layer.weight.grad.to_dense(), 40 * torch.ones(ROWS, WIDTH) * torch.bincount(index)[:, None])


@both
@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"momentum": 0.5, "dampening": 0.25}])
def test_sparse_after_dense(torch, options):
    """The buffer of momentum is dense once a gradient was: rows without gradient go on, too."""
    weights = [torch.nn.Parameter(torch.arange(12.0).view(4, 3)) for _ in range(2)]
    optimizers = [torch.optim.SGD([w], lr=0.1, **options) for w in weights]
    index = torch.tensor([1, 3, 1])
    for step in range(4):
        for w, o, sparse in zip(weights, optimizers, (step % 2 == 1, False)):
            o.zero_grad()
            torch.nn.functional.embedding(index, w, sparse=sparse).square().sum().backward()
            assert w.grad.is_sparse == sparse
            o.step()
        assert torch.allclose(*weights, rtol=1e-6)
    assert optimizers[0].state[weights[0]]["momentum_buffer"].layout == torch.strided


def test_sparse_after_dense_with_nesterov():  # which PyTorch refuses
    weights = [arete.nn.Parameter(arete.arange(12.0).view(4, 3)) for _ in range(2)]
    optimizers = [arete.optim.SGD([w], lr=0.1, momentum=0.9, nesterov=True) for w in weights]
    for step in range(4):
        for w, o, sparse in zip(weights, optimizers, (step % 2 == 1, False)):
            o.zero_grad()
            arete.nn.functional.embedding(arete.tensor([1, 3, 1]), w, sparse=sparse).square().sum().backward()
            o.step()
        assert arete.allclose(*weights, rtol=1e-6)


@both
def test_zero_grad(torch):
    layer = table(torch)
    for zero in (layer.zero_grad, torch.optim.SGD(layer.parameters(), lr=0.1).zero_grad):
        layer(torch.tensor([1, 2])).sum().backward()
        grad = layer.weight.grad
        zero(set_to_none=False)
        assert grad._nnz() == 0
        assert layer.weight.grad.is_sparse and layer.weight.grad._nnz() == 0 and layer.weight.grad.shape == (ROWS, WIDTH)
        layer(torch.tensor([3])).sum().backward()
        assert torch.equal(layer.weight.grad.to_dense().sum(1).nonzero()[:, 0], torch.tensor([3]))
        zero()
        assert layer.weight.grad is None


@both
def test_hooks(torch):
    layer, index, seen = table(torch), torch.tensor([1, 4, 1]), []
    handle = layer.weight.register_hook(lambda g: seen.append((g.layout, tuple(g.shape))) or g * 2)
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.is_sparse))
    layer(index).sum().backward()
    assert seen == [(torch.sparse_coo, (ROWS, WIDTH)), True]
    assert torch.equal(layer.weight.grad._values(), torch.full((3, WIDTH), 2.0))
    handle.remove()
    layer.weight.register_hook(lambda g: g.to_dense())
    with pytest.raises(RuntimeError, match="changed the type of value"):
        layer(index).sum().backward()


@both
def test_gradients_of_gradients(torch):
    layer, index = table(torch), torch.tensor([1, 4, 1])
    (g,) = torch.autograd.grad(layer(index).pow(3).sum(), layer.weight, create_graph=True)
    assert g.is_sparse and g.requires_grad
    g.to_dense().sum().backward()
    got = layer.weight.grad.to_dense()
    expected = torch.zeros(ROWS, WIDTH).index_add(0, index, 6 * layer.weight.detach()[index])
    assert torch.allclose(got, expected)


@both
def test_given_gradients(torch):
    weight = torch.nn.Parameter(torch.ones(4, 2))
    weight.grad = torch.eye(4, 2).to_sparse()  # of two sparse dimensions
    assert weight.grad.is_sparse and weight.grad.sparse_dim() == 2
    torch.optim.SGD([weight], lr=0.5).step()
    assert weight.tolist() == [[0.5, 1.0], [1.0, 0.5], [1.0, 1.0], [1.0, 1.0]]
    copied = copy.deepcopy(weight.grad)
    assert copied.is_sparse and torch.equal(copied.to_dense(), torch.eye(4, 2))
    with pytest.raises(RuntimeError):
        weight.grad = torch.eye(3, 2).to_sparse()


@both
def test_scaler(torch):
    layer, index = table(torch), torch.tensor([1, 4, 1])
    before = layer.weight.detach().clone()
    optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=0.5), torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(layer(index).sum()).backward()
    scaler.unscale_(optimizer)
    assert torch.equal(layer.weight.grad._values(), torch.ones(3, WIDTH))
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(layer.weight[1], before[1] - 1)
    optimizer.zero_grad()
    scaler.scale(layer(index).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(layer.weight[1], before[1] - 1 - 1)
    optimizer.zero_grad()
    scaler.scale((layer(index) * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(layer.weight[1], before[1] - 2) and scaler.get_scale() == 4.0


def test_clipping():
    """PyTorch's has no norm of them; that of the same dense gradient is what there is to compare with."""
    layer, index = table(arete), arete.tensor([1, 4, 1])
    layer(index).sum().backward()
    dense = layer.weight.grad.to_dense()
    norm = arete.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    assert arete.allclose(norm, dense.norm()) and layer.weight.grad.is_sparse
    assert arete.allclose(layer.weight.grad.to_dense(), dense / (dense.norm() + 1e-6))
    arete.nn.utils.clip_grad_value_(layer.parameters(), 0.25)
    assert layer.weight.grad.to_dense().max() == 0.25


def test_operators_without_a_form_refuse():
    g = arete.eye(3).to_sparse()
    with pytest.raises(NotImplementedError, match="no form for sparse tensors"):
        g.cumsum(0)
    w = arete.ones(3, 2, requires_grad=True)  # a gradient that goes on through an operator that cannot take it
    with pytest.raises(RuntimeError, match="sparse|meta"):
        arete.nn.functional.embedding(arete.tensor([0, 1]), w.sin(), sparse=True).sum().backward()
    with pytest.raises(NotImplementedError, match="no form for sparse tensors"):
        arete.nn.functional.embedding(arete.tensor([0, 1]), w.T.contiguous().T, sparse=True).sum().backward()


def test_compiled():
    plain, other = table(arete), table(arete)
    other.load_state_dict(plain.state_dict())

    def step(layer, optimizer, index, target):
        optimizer.zero_grad()
        loss = (layer(index) - target).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled = arete.compile(step)
    optimizers = [arete.optim.SparseAdam(layer.parameters(), lr=0.1) for layer in (plain, other)]
    for i in range(8):
        a = step(plain, optimizers[0], *batch(arete, i))
        b = compiled(other, optimizers[1], *batch(arete, i))
        assert a.item() == b.item() and arete.equal(plain.weight, other.weight)
        assert other.weight.grad.is_sparse and arete.equal(plain.weight.grad.to_dense(), other.weight.grad.to_dense())


MEMORY = PEAK + """
import sys
import arete as torch
rows, name = 1_000_000, sys.argv[1]
layer = torch.nn.Embedding(rows, 64, sparse=name != "dense", _weight=torch.zeros(rows, 64))
layer.weight.grad = None
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.0 if name == "dense" else float(sys.argv[2]))
before = peak()
for step in range(4):
    layer(torch.arange(32) * 1000 + step).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print((peak() - before) // 1024)
"""


def test_memory():
    """Of a table of 244 MiB a step touches 32 rows: neither gradient nor update is of its size."""

    def peak(*arguments):
        return int(subprocess.run([sys.executable, "-c", MEMORY, *arguments], check=True, capture_output=True, text=True).stdout)

    assert peak("sparse", "0.0") < 60
    assert peak("sparse", "0.9") < 60
    assert peak("dense", "0.0") > 200


RANK = """
import sys
import arete as torch
import arete.distributed as dist
rank = int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
layer = torch.nn.Embedding(6, 2, sparse=True)
model = torch.nn.parallel.DistributedDataParallel(layer)
index = torch.tensor([rank, 3])
model(index).sum().backward()
def has(values):
    grad = layer.weight.grad
    assert grad.is_sparse and grad.coalesce().indices().tolist() == [[0, 1, 3]]  # the rows that some process has used
    assert grad.to_dense()[:, 0].tolist() == values, grad
has([0.5, 0.5, 0, 1, 0, 0])
with model.no_sync():
    model(index).sum().backward()
model(index).sum().backward()
has([1.5, 1.5, 0, 3, 0, 0])
hooked = torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(6, 2, sparse=True))
hooked._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
hooked(index).sum().backward()
assert hooked.module.weight.grad[:, 0].tolist() == [0.5, 0.5, 0, 1, 0, 0]
dist.destroy_process_group()
"""


@pytest.mark.skipif(not arete.distributed.is_gloo_available(), reason="no Gloo")
def test_data_parallel_gradients_stay_sparse_without_hooks(tmp_path):
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path / "store"), str(rank)]) for rank in (0, 1)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
