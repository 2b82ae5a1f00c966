"""The same programs on the GPU give what they give on the CPU: layers, losses, autograd, optimizers, kernels."""
from __future__ import annotations

import copy
from collections import OrderedDict

import numpy as np
import pytest
from nn_cases import LAYERS, LOSSES
from nn_helpers import ours, values

import arete
import arete.numpy as anp
from arete import nn
from arete.utils.checkpoint import checkpoint

pytestmark = pytest.mark.skipif(not arete.cuda.is_available(), reason="needs a GPU")
DEVICES = ("cpu", "cuda")


def _flat(result):
    """All tensors in a result, on the CPU."""
    if isinstance(result, arete.Tensor):
        return [result.detach().cpu()]
    if isinstance(result, (list, tuple)):
        return [t for part in result for t in _flat(part)]
    return []


def _loss(result):
    parts = [t for t in _differentiable(result)]
    return sum(((t.abs() if t.is_complex() else t) ** 2).sum() for t in parts)


def _differentiable(result):
    if isinstance(result, arete.Tensor):
        return [result] if result.requires_grad else []
    return [t for part in result for t in _differentiable(part)] if isinstance(result, (list, tuple)) else []


def _agree(run, tolerance=2e-4):
    """run(device) gives tensors of that device; both devices must give the same."""
    a, b = (_flat(run(device)) for device in DEVICES)
    assert len(a) == len(b) and len(a) > 0
    for x, y in zip(a, b):
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_allclose(y.numpy(), x.numpy(), rtol=tolerance, atol=tolerance)


def _moved(arrays, device, grad=True):
    tensors = [ours(a).to(device) for a in arrays]
    for t in tensors:
        if grad and t.is_floating_point():
            t.requires_grad_()
    return tensors


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("text,inputs", LAYERS, ids=[t for t, _ in LAYERS])
def test_layer(text, inputs, training):
    if inputs is None:
        pytest.skip("built only")
    arrays = [values(s, i + 1) for i, s in enumerate(inputs)]
    net = eval("nn." + text, {"OrderedDict": OrderedDict, "nn": nn})
    if text.startswith("Lazy"):
        net(*map(ours, arrays))
    net.train(training)

    def run(device):
        arete.manual_seed(7)  # the same random numbers on both
        mine = copy.deepcopy(net).to(device)
        x = [t * 1 for t in _moved(arrays, device)]  # in-place layers may write into them
        for t in x:
            if t.requires_grad:
                t.retain_grad()
        y = mine(*x)
        assert all(t.device.type == device for t in _differentiable(y))
        loss = _loss(y)
        if isinstance(loss, arete.Tensor):
            loss.backward()
        gradients = [t.grad for t in (*x, *mine.parameters()) if t.grad is not None]
        return [y, *gradients, *mine.state_dict().values()]

    _agree(run, 1e-3)


@pytest.mark.parametrize("name,options,inputs", LOSSES, ids=[f"{n}{i}" for i, (n, _, _) in enumerate(LOSSES)])
def test_loss(name, options, inputs):
    arrays = [values(s, i + 1) for i, s in enumerate(inputs)]

    def run(device):
        keywords = {k: ours(values(v, 9)).to(device) if isinstance(v, str) else v for k, v in options.items()}
        x, *rest = (ours(a).to(device) for a in arrays)
        x.requires_grad_()
        y = getattr(nn, name)(**keywords)(x, *rest)
        y.backward()
        return [y, x.grad]

    _agree(run)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"batch_first": True, "bias": False}],
                         ids=["plain", "both ways", "batch first"])
def test_recurrent(kind, options):
    net = getattr(nn, kind)(4, 5, **options)
    array = values((6, 3, 4), 1)

    def run(device):
        mine = copy.deepcopy(net).to(device)
        (x,) = _moved([array], device)
        y, state = mine(x)
        inputs = [x, *mine.parameters()]
        first = arete.autograd.grad(_loss([y, state]), inputs, create_graph=True)
        second = arete.autograd.grad(sum((g * g).sum() for g in first), inputs)
        packed = nn.utils.rnn.pack_padded_sequence(x, [3, 2, 1, 1, 1, 1][: x.shape[0 if mine.batch_first else 1]],
                                                   batch_first=mine.batch_first)
        short, _ = nn.utils.rnn.pad_packed_sequence(mine(packed)[0])
        return [y, state, first, second, short]

    _agree(run, 2e-3)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant):
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 2))
    array = values((5, 4), 3)

    def run(device):
        arete.manual_seed(1)
        mine = copy.deepcopy(net).to(device)
        (x,) = _moved([array], device)
        y = checkpoint(mine, x, use_reentrant=reentrant)
        y.sum().backward()
        return [y, x.grad, *[p.grad for p in mine.parameters()]]

    _agree(run)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_transformer(activation):
    net = nn.Transformer(16, 2, 2, 2, 32, dropout=0.0, activation=activation, batch_first=True)
    arrays = [values((2, 5, 16), 1), values((2, 3, 16), 2)]

    def run(device):
        mine = copy.deepcopy(net).to(device)
        x = _moved(arrays, device)
        y = mine(*x, tgt_mask=nn.Transformer.generate_square_subsequent_mask(3, device=device))
        y.square().sum().backward()
        return [y, *[t.grad for t in x], *[p.grad for p in mine.parameters()]]

    _agree(run, 2e-3)


def test_complex():
    array = np.random.default_rng(0).normal(size=(4, 4, 2)).view(np.complex128)[..., 0]

    def run(device):
        z = arete.tensor(array, device=device, requires_grad=True)
        w = arete.tensor(array[::-1].copy(), device=device, requires_grad=True)
        y = [z * w, z / w, z @ w, (z.exp() + w.sin()).tanh(), z.abs(), z.angle(), z.mean(0), z.cumsum(1), z.prod(),
             arete.fft.fft(z), arete.einsum("ij,kj->ik", z, w.conj()), arete.where(z.abs() > 1, z, w), z.real * w.imag]
        _loss(y).backward()
        return [*y, z.grad, w.grad]

    _agree(run, 1e-8)


def test_scaled_mm():
    x, w = (ours(values(s, i)) for i, s in enumerate([(32, 64), (48, 64)]))

    def run(device):
        a, b = (t.to(device).to(arete.float8_e4m3fn) for t in (x, w))
        scale = arete.tensor(0.5, device=device)
        return [arete._scaled_mm(a, b.t(), scale, scale, out_dtype=arete.bfloat16).float()]

    _agree(run, 2e-2)


@pytest.mark.parametrize("make", [
    lambda p: arete.optim.SGD(p, 0.1, momentum=0.9, nesterov=True), lambda p: arete.optim.Adam(p, 0.01, amsgrad=True),
    lambda p: arete.optim.AdamW(p, 0.01), lambda p: arete.optim.RMSprop(p, 0.01, centered=True),
    lambda p: arete.optim.Adagrad(p, 0.01), lambda p: arete.optim.Adadelta(p), lambda p: arete.optim.Lion(p, 1e-3),
], ids=["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Lion"])
def test_optimizer(make):
    net = nn.Sequential(nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 4))
    images, labels = values((6, 2, 5, 5), 1), values("i4:6", 2)

    def run(device):
        mine = copy.deepcopy(net).to(device)
        x, y = (ours(a).to(device) for a in (images, labels))
        optimizer = make(mine.parameters())

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(mine(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(mine.parameters(), 1.0)
            return loss

        losses = [optimizer.step(closure) for _ in range(4)]
        return [*losses, *mine.state_dict().values()]

    _agree(run, 5e-3)


def test_indexing_and_scalars():
    array = values((4, 5), 1)

    def run(device):
        x = ours(array).to(device)
        x[x > 0.5] = 0
        x[1, ::2] += 1
        x[arete.tensor([0, 2], device=device), 1] = arete.tensor([7.0, 8.0], device=device)
        assert float(x.sum()) == x.sum().item() and bool((x == x).all()) and len(x) == 4
        top = x.topk(2, dim=1)
        return [x, x[None, ..., -1], top.values, top.indices, x.sort(0).values, x.unique(), x.nonzero(), x[x > 1]]

    _agree(run, 1e-6)


def test_random_numbers_are_the_same():
    def run(device):
        arete.manual_seed(3)
        g = arete.Generator(device).manual_seed(5)
        return [arete.rand(100, device=device), arete.randn(7, 5, device=device), arete.randint(0, 9, (50,), device=device),
                arete.bernoulli(arete.full((40,), 0.5, device=device)), arete.rand(10, device=device, generator=g)]

    _agree(run, 1e-6)


def test_kernels_of_users():
    square = anp.ElementwiseKernel("T x, T y", "T z", "z = x * x + (y > 0 ? y : 0)", "square_plus")
    norm = anp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2")
    arrays = [values((5, 7), 1), values((7,), 2)]

    def run(device):
        x, y = (ours(a).to(device) for a in arrays)
        return [square(x, y), norm(x, axis=1), norm(x)]

    _agree(run, 1e-5)


def test_moves_and_exchange():
    x = arete.arange(12.0).reshape(3, 4)
    y = x.to("cuda", non_blocking=True).t()
    assert y.is_cuda and str(y.device) == "cuda:0" and "device='cuda:0'" in repr(y)
    assert y.cpu().tolist() == x.t().tolist() and (y + 1).to(x).tolist() == (x.t() + 1).tolist()
    again = arete.from_dlpack(y)
    assert again.data_ptr() == y.data_ptr() and again.shape == y.shape
    assert y.__cuda_array_interface__["shape"] == (4, 3)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        y.numpy()
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        y + x.t()


def test_streams_and_graphs():
    a = arete.randn(64, 64, device="cuda")
    side, start, end = arete.cuda.Stream(), arete.cuda.Event(enable_timing=True), arete.cuda.Event(enable_timing=True)
    start.record()
    side.wait_stream(arete.cuda.current_stream())
    with arete.cuda.stream(side):
        b = a @ a
    arete.cuda.current_stream().wait_stream(side)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    arete.testing.assert_close(b.cpu(), a.cpu() @ a.cpu(), rtol=1e-4, atol=1e-3)
    graph = arete.cuda.CUDAGraph()
    source, out = arete.zeros(8, device="cuda"), None
    with arete.cuda.graph(graph):
        out = source * 2 + 1
    source.fill_(3)
    graph.replay()
    assert out.tolist() == [7.0] * 8


def test_graphs_on_a_given_stream():
    source = arete.zeros(8, device="cuda")
    s, side, graph = arete.cuda.Stream(), arete.cuda.Stream(), arete.cuda.CUDAGraph()
    with arete.cuda.graph(graph, stream=s, capture_error_mode="thread_local"):
        assert arete.cuda.current_stream() == s and arete.cuda.is_current_stream_capturing()
        out = source * 2
        side.wait_stream(s)
        with arete.cuda.stream(side):
            out.add_(1)
        s.wait_stream(side)
    assert arete.cuda.current_stream() == arete.cuda.default_stream() and not arete.cuda.is_current_stream_capturing()
    source.fill_(3)
    graph.replay()
    assert out.tolist() == [7.0] * 8
    with pytest.raises(RuntimeError, match="CUDA graphs must be captured on a non-default stream"):
        with arete.cuda.graph(arete.cuda.CUDAGraph(), stream=arete.cuda.default_stream()):
            raise AssertionError("not reached")
    # By hand: the current stream, where it can be captured.
    by_hand = arete.cuda.CUDAGraph()
    s.wait_stream(arete.cuda.current_stream())
    with arete.cuda.stream(s):
        by_hand.capture_begin(pool=graph.pool(), capture_error_mode="relaxed")
        assert arete.cuda.current_stream() == s
        out.mul_(2)
        by_hand.capture_end()
    by_hand.replay()
    assert out.tolist() == [14.0] * 8


def test_graphed_callables():
    arete.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).cuda()
    plain = copy.deepcopy(net)
    graphed = arete.cuda.make_graphed_callables(net, (arete.randn(5, 4, device="cuda", requires_grad=True),))
    assert graphed is net
    for seed in range(3):
        arete.manual_seed(seed)
        x, y = arete.randn(5, 4, device="cuda", requires_grad=True), arete.randn(5, 3, device="cuda")
        results = []
        for model in (graphed, plain):
            model.zero_grad()
            x.grad = None
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            results.append([loss.item(), x.grad.clone(), *[p.grad.clone() for p in model.parameters()]])
            with arete.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
        for a, b in zip(*results):
            arete.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="was recorded for a tensor"):
        graphed(arete.randn(6, 4, device="cuda"))
    net.eval()
    assert net(arete.randn(6, 4, device="cuda")).shape == (6, 3)  # in the other mode it is itself
    double = arete.cuda.make_graphed_callables(lambda t: (t * 2, t + 1), (arete.ones(3, device="cuda"),))
    assert [t.tolist() for t in double(arete.zeros(3, device="cuda"))] == [[0.0] * 3, [1.0] * 3]


def test_an_index_out_of_range_is_an_error_and_work_goes_on():
    x = arete.arange(4.0, device="cuda")
    with pytest.raises((IndexError, RuntimeError)):
        x[arete.tensor([9], device="cuda")]
        arete.cuda.synchronize()
    assert x.sum().item() == 6
