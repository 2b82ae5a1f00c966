"""Layers that are run as one operator where nothing happens between them give what separate calls give."""
import copy

import pytest
from device_helpers import on_devices

import arete
from arete import _ops, nn


def _history(y):
    """Names of all operators that a result remembers."""
    names, left = set(), [y.grad_fn]
    while left:
        node = left.pop()
        names.add(node.name())
        left += [n for n, _ in node.next_functions if n is not None]
    return names


def _results(net, x, grad):
    x = x.detach().clone().requires_grad_()
    y = net(x)
    history = _history(y)
    y.backward(grad)
    found = [y.detach(), x.grad] + [p.grad for p in net.parameters()] + list(net.buffers())
    net.zero_grad()
    return found, history


def _agree(a, b):
    assert len(a) == len(b)
    for s, t in zip(a, b):
        assert arete.allclose(s.double(), t.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 4)])
def test_batch_norm_before_relu(training, shape):
    arete.manual_seed(0)
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)]
    fused = nn.Sequential(kind(3), nn.ReLU(), nn.Identity()).train(training)
    apart = copy.deepcopy(fused)
    seen = []
    apart[1].register_forward_hook(lambda module, args, output: seen.append(output))
    x, grad = arete.randn(shape), arete.randn(shape)
    (a, together), (b, separate) = _results(fused, x, grad), _results(apart, x, grad)
    assert ("ReluBackward0" in together) == (not training) and "ReluBackward0" in separate
    assert len(seen) == 1
    _agree(a, b)


def test_batch_norm_at_the_end_or_before_others():
    arete.manual_seed(1)
    x = arete.randn(5, 2)
    norm = nn.BatchNorm1d(2)
    assert arete.allclose(nn.Sequential(nn.Identity(), norm)(x), norm(x), atol=1e-6)
    again = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2), nn.ReLU(), nn.Sigmoid())(x)
    first = nn.functional.batch_norm(x, None, None, training=True)
    want = nn.functional.batch_norm(first, None, None, training=True).relu().sigmoid()
    assert arete.allclose(again, want, atol=1e-4)

    class Own(nn.BatchNorm1d):
        def forward(self, input):
            return super().forward(input) - 1

    assert (nn.Sequential(Own(2), nn.ReLU())(x) == nn.functional.relu(Own(2)(x))).all()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_feed_forward(activation, kind):
    arete.manual_seed(2)
    layer = nn.TransformerEncoderLayer if kind == "encoder" else nn.TransformerDecoderLayer
    fused = layer(8, 2, 16, dropout=0.0, activation=activation, batch_first=True)
    apart = copy.deepcopy(fused)
    apart.linear1.register_forward_hook(lambda module, args, output: None)
    x, grad, memory = arete.randn(2, 3, 8), arete.randn(2, 3, 8), arete.randn(2, 4, 8)
    call = (lambda net: lambda t: net(t)) if kind == "encoder" else (lambda net: lambda t: net(t, memory))

    assert "Feed_forwardBackward0" in _history(call(fused)(x))
    assert "Feed_forwardBackward0" not in _history(call(apart)(x))

    def results(net):
        inner = x.detach().clone().requires_grad_()
        y = call(net)(inner)
        y.backward(grad)
        return [y.detach(), inner.grad] + [p.grad for p in net.parameters()]

    _agree(results(fused), results(apart))


def test_scaled_mm():
    arete.manual_seed(3)
    f8 = arete.float8_e4m3fn
    x, w = arete.randn(16, 32).to(f8), arete.randn(24, 32).to(f8)
    a, b = arete.tensor(0.5), arete.tensor(2.0)
    want = (x.float() * 0.5) @ (w.float() * 2).t()
    assert arete._scaled_mm(x, w.t(), a, b).dtype == arete.bfloat16
    assert arete.allclose(arete._scaled_mm(x, w.t(), a, b, out_dtype=arete.float32), want, rtol=1e-3, atol=1e-3)
    rows, columns = arete.rand(16, 1) + 0.5, arete.rand(1, 24) + 0.5
    bias = arete.randn(24)
    got = arete._scaled_mm(x, w.t(), rows, columns, bias=bias, out_dtype=arete.float32)
    assert arete.allclose(got, x.float() @ w.float().t() * rows * columns + bias, rtol=1e-3, atol=1e-3)
    narrow = arete._scaled_mm(x, w.t(), a, b, out_dtype=f8, scale_result=arete.tensor(0.25))
    assert narrow.dtype == f8
    assert arete.allclose(narrow.float(), (want * 0.25).to(f8).float(), rtol=0.2, atol=0.02)
    with pytest.raises(ValueError, match="a scale does not fit its matrix"):
        arete._scaled_mm(x, w.t(), arete.ones(3), b)
    with pytest.raises(TypeError, match="expected two float8 matrices"):
        arete._scaled_mm(x.float(), w.t(), a, b)


@pytest.mark.parametrize("dtype", [arete.float32, arete.bfloat16])
def test_training_batch_norm_copies_nothing(dtype):
    """The norm's kernel moves running statistics, and gradients are written where parameters keep them."""
    norm = nn.BatchNorm2d(3)
    x = arete.randn(4, 3, 5, 5).to(dtype)
    norm(x).sum().backward()
    for p in norm.parameters():
        p.grad = None
    with arete.profiler.profile(activities=[arete.profiler.ProfilerActivity.CPU]) as p:
        y = norm(x)
        y.backward(arete.ones_like(x))
    calls = [e.name for e in p.events()]
    for name in ("fused_norm", "fused_norm_backward"):
        assert calls.count(name) == 1, calls
    assert not {"to_copy", "clone", "copy_", "mul", "reciprocal", "lerp_"} & set(calls), calls
    assert norm.weight.grad.shape == (3,) and norm.weight.grad.dtype == arete.float32


@on_devices
@pytest.mark.parametrize("half, atol", [(arete.bfloat16, 8e-3), (arete.float16, 1e-3)])
def test_running_statistics_of_halves_far_from_zero(device, half, atol):
    x, *numbers = (arete.tensor(v, device=device).to(half) for v in ([9.9375, 10, 10.0625, 10.125], [10.03], [0.0101], [1.3], [0.2]))
    mean, var, weight, bias = (t.double() for t in numbers)
    want = (x.double() - mean) / (var + 1e-5).sqrt() * weight + bias
    y = nn.functional.batch_norm(x.view(4, 1), *numbers)
    assert y.dtype is half and arete.allclose(y.flatten().double(), want, rtol=0, atol=atol), y
    relu = _ops.batch_norm_relu(x.view(4, 1), *numbers)
    assert arete.allclose(relu.flatten().double(), want.relu(), rtol=0, atol=atol), relu


@on_devices
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [arete.int32, arete.bool, arete.complex64])
def test_batch_norm_is_of_floating_numbers(device, dtype, training):
    x, one = arete.ones(2, 3, device=device).to(dtype), arete.ones(3, device=device)
    with pytest.raises(arete.DTypeError, match="normalization is not implemented"):
        nn.functional.batch_norm(x, one, one, training=training)


@on_devices
@pytest.mark.parametrize("dtype, running", [(arete.float32, arete.float32), (arete.float64, arete.float64), (arete.float16, arete.float32),
                                            (arete.float16, arete.float16), (arete.bfloat16, arete.float32),
                                            (arete.float32, arete.float64)])
@pytest.mark.parametrize("kind", ["plain", "channels_last", "relu", "residual", "strided statistics"])
def test_batch_norm_moves_running_statistics(device, dtype, running, kind):
    for shape in ((64, 3), (4, 5, 7, 7), (2, 3, 80, 80), (1, 600, 8, 8)):
        check_running_statistics(device, dtype, running, kind, shape)


def check_running_statistics(device, dtype, running, kind, shape):
    arete.manual_seed(0)
    channels = shape[1]
    x = (arete.randn(*shape, dtype=arete.float64) * 2 + arete.arange(channels).view(1, -1, *[1] * (len(shape) - 2))).to(device, dtype)
    if kind == "channels_last" and x.dim() == 4:
        x = x.to(memory_format=arete.channels_last)
    mean, var = arete.randn(channels, device=device).to(running), (arete.rand(channels, device=device) + 0.5).to(running)
    if kind == "strided statistics":
        mean, var = (arete.stack([t, t], 1)[:, 0] for t in (mean, var))
    dims = [d for d in range(x.dim()) if d != 1]
    want_mean, want_var = (0.7 * old.double() + 0.3 * new
                           for old, new in ((mean, x.double().mean(dims)), (var, x.double().var(dims, correction=1))))
    weight, bias = arete.rand(channels, device=device), arete.randn(channels, device=device)
    before, version = arete.nn.functional.batch_norm(x, None, None, weight.to(dtype), bias.to(dtype), True), mean._version
    if kind in ("relu", "residual"):
        residual = arete.randn(*shape).to(device, dtype) if kind == "residual" else None
        y = _ops.batch_norm_relu(x, mean, var, weight.to(dtype), bias.to(dtype), True, 0.3, 1e-5, residual)
        before = (before + residual if kind == "residual" else before).relu()
    else:
        y = arete.nn.functional.batch_norm(x, mean, var, weight.to(dtype), bias.to(dtype), True, 0.3, 1e-5)
    rough = running == arete.float16
    assert arete.allclose(mean.double(), want_mean, rtol=2e-3 if rough else 1e-5, atol=2e-3 if rough else 1e-5)
    assert arete.allclose(var.double(), want_var, rtol=2e-3 if rough else 1e-5, atol=2e-3 if rough else 1e-5)
    assert mean._version > version
    assert arete.allclose(y.double(), before.double(), rtol=2e-2, atol=2e-2 if dtype != arete.float64 else 1e-9)


@on_devices
def test_running_statistics_take_what_there_is(device):
    x = arete.tensor([[1.0, float("nan")], [3.0, 0.0]], device=device)
    mean, var = arete.zeros(2, device=device), arete.ones(2, device=device)
    nn.functional.batch_norm(x, mean, var, training=True, momentum=0.5)
    assert mean[0] == 1 and var[0] == 1.5 and mean[1].isnan() and var[1].isnan()
    alone = arete.ones(2, device=device)
    nn.functional.batch_norm(x, None, alone, training=True, momentum=0.5)
    assert abs(alone[0].item() - 1.5) < 1e-5 and alone[1].isnan()
    nn.functional.batch_norm(x[:0], mean, var, training=True)
    assert mean[0] == 1 and var[0] == 1.5
    wanted = arete.ones(2, device=device, requires_grad=True)
    y = (wanted * mean).sum()  # which keeps mean
    nn.functional.batch_norm(x, mean, var, training=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
