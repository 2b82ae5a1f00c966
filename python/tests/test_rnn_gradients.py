"""Recurrent layers: first and second derivatives beside PyTorch's."""
from __future__ import annotations

import numpy as np
import pytest
from peer import peer

import arete

torch = peer()

CASES = [
    ("RNN", {}), ("RNN", {"nonlinearity": "relu", "bidirectional": True}), ("GRU", {}), ("GRU", {"bias": False}),
    ("LSTM", {}), ("LSTM", {"bias": False}), ("LSTM", {"bidirectional": True, "num_layers": 2}), ("LSTM", {"proj_size": 3}),
]


@pytest.mark.parametrize("kind, options", CASES, ids=[f"{k}-{'-'.join(o)}" for k, o in CASES])
def test_derivatives(kind, options):
    torch.manual_seed(0)
    reference = getattr(torch.nn, kind)(4, 5, **options).double()
    net = getattr(arete.nn, kind)(4, 5, **options).to(arete.float64)
    net.load_state_dict({k: arete.from_numpy(v.detach().numpy()) for k, v in reference.state_dict().items()})
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    random = np.random.default_rng(0)
    values = [random.normal(size=(7, 3, 4)), random.normal(size=(count, 3, options.get("proj_size", 5)))]
    if kind == "LSTM":
        values.append(random.normal(size=(count, 3, 5)))
    results = []
    for lib, layer in ((torch, reference), (arete, net)):
        x, *state = [lib.tensor(v.tolist(), dtype=lib.float64, requires_grad=True) for v in values]
        out, last = layer(x, tuple(state) if kind == "LSTM" else state[0])
        last = last if isinstance(last, tuple) else (last,)
        inputs = [x, *state, *layer.parameters()]
        loss = out.sin().sum() + sum((s * s).sum() for s in last)
        first = lib.autograd.grad(loss, inputs, create_graph=True)
        second = lib.autograd.grad(sum((g * g).sum() for g in first), inputs)
        # The weights alone, of the outputs alone.
        weights = lib.autograd.grad(layer(x.detach())[0].sum(), list(layer.parameters()))
        results.append([t.detach().numpy() for t in (out, *last, *first, *second, *weights)])
    for a, b in zip(*results):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind, options", CASES, ids=[f"{k}-{'-'.join(o)}" for k, o in CASES])
def test_without_history(kind, options):
    net, x = getattr(arete.nn, kind)(4, 5, **options), arete.randn(7, 3, 4)
    with_history = net(x)
    with arete.no_grad():
        without = net(x)
        packed = net(arete.nn.utils.rnn.pack_padded_sequence(x, [7, 7, 7]))
    packed = (packed[0].data.view(7, 3, -1), packed[1])
    ways = [[y, *(s if isinstance(s, tuple) else (s,))] for y, s in (with_history, without, packed)]
    for a, b, c in zip(*ways):
        assert not b.requires_grad and not c.requires_grad
        np.testing.assert_allclose(b.numpy(), a.detach().numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(c.numpy(), a.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_gradient_of_the_cell_state_alone():
    net = arete.nn.LSTM(2, 3).to(arete.float64)
    x = arete.randn(4, 2, 2, dtype=arete.float64, requires_grad=True)
    assert arete.autograd.gradcheck(lambda t: net(t)[1][1], [x])
