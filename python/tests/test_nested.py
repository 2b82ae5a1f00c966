"""Nested tensors of sequences of different lengths. Run with both libraries; what has no form says so."""
import copy
import pickle

import pytest
from idiom_helpers import anywhere

import arete


def two(torch, device, layout=True):
    parts = [torch.arange(6.0, device=device).view(2, 3), torch.arange(12.0, device=device).view(4, 3) / 2]
    return parts, torch.nested.nested_tensor(parts, layout=torch.jagged)


def per_sequence(torch, nested, expected):
    """nested is of these sequences."""
    found = nested.unbind()
    assert nested.is_nested and nested.layout is torch.jagged and isinstance(nested, torch.Tensor) and len(found) == len(expected)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b)


@anywhere
def test_what_they_are(torch, device):
    parts, x = two(torch, device)
    assert x.size(0) == x.shape[0] == 2 and x.size(2) == 3 and x.dim() == x.ndim == 3 and x.numel() == 18 and len(x.shape) == 3
    assert x.offsets().tolist() == [0, 2, 6] and x.values().shape == (6, 3) and x.dtype is torch.float32 and x.device.type == device
    assert x.shape == (x + 1).shape and x.size(1) == (x * 2).size(1) and x.size(1) != 4
    assert x._max_seqlen == 4 and x._min_seqlen == 2 and x.is_contiguous() and not x.requires_grad
    per_sequence(torch, x, parts)
    again = torch.nested.nested_tensor_from_jagged(x.values() * 2, x.offsets())
    assert again.shape == x.shape  # the same offsets are the same lengths
    per_sequence(torch, again + x, [p * 3 for p in parts])
    per_sequence(torch, torch.nested.nested_tensor_from_jagged(x.values(), lengths=torch.tensor([2, 4], device=device)), parts)
    with pytest.raises(RuntimeError, match="cannot call"):
        x + two(torch, device)[1]
    assert "offsets=tensor([0, 2, 6]" in repr(x) and repr(x).startswith("NestedTensor(size=(2, j")
    padded = x.to_padded_tensor(-1.0)
    assert padded.shape == (2, 4, 3) and padded[0, 2:].eq(-1).all() and torch.equal(padded[1], parts[1])
    assert torch.nested.to_padded_tensor(x, 0.0, output_size=(2, 5, 3)).shape == (2, 5, 3)
    assert torch.equal(x[1], parts[1])
    per_sequence(torch, torch.nested.as_nested_tensor(parts, layout=torch.jagged).double(), [p.double() for p in parts])
    dense = torch.arange(30.0, device=device).view(2, 5, 3)
    cut = torch.nested.narrow(dense, 1, torch.tensor([0, 1], device=device), torch.tensor([2, 3], device=device), layout=torch.jagged)
    per_sequence(torch, cut, [dense[0, :2], dense[1, 1:4]])


@anywhere
def test_elements_rows_and_dimensions(torch, device):
    F = torch.nn.functional
    parts, x = two(torch, device)
    bias, weight = torch.tensor([1.0, 2.0, 3.0], device=device), torch.arange(12.0, device=device).view(4, 3)
    for f in (lambda t: 2 * t - 1, lambda t: (t + bias).sin(), lambda t: F.gelu(t) / (1 + t**2), lambda t: t.clamp(max=2.0), lambda t: -t,
              lambda t: torch.where(t > 1, t, 0.0), lambda t: F.linear(t, weight), lambda t: t @ weight.t(), torch.relu,
              lambda t: F.layer_norm(t, (3,), bias), lambda t: t.softmax(-1), lambda t: t.unsqueeze(-1) * 2,
              lambda t: t.unflatten(-1, (3, 1)).flatten(-2), lambda t: torch.cat([t, t * 2], -1), lambda t: t.chunk(3, -1)[1] + 1,
              lambda t: t.double().float(), lambda t: t.sum(-1), lambda t: t.mean(-1, keepdim=True), torch.ones_like,
              lambda t: t.clone().mul_(3)):
        per_sequence(torch, f(x), [f(p) for p in parts])
    per_sequence(torch, x.view(2, -1, 3, 1), [p.view(-1, 3, 1) for p in parts])
    per_sequence(torch, x.transpose(1, 2).transpose(1, 2), parts)
    torch.testing.assert_close(x.sum(1), torch.stack([p.sum(0) for p in parts]))
    torch.testing.assert_close(x.sum(), sum(p.sum() for p in parts))
    per_sequence(torch, x * torch.tensor([2.0, 3.0], device=device).view(2, 1, 1), [2 * parts[0], 3 * parts[1]])
    table = torch.nn.Embedding(5, 3, device=device)
    words = [torch.tensor([1, 2], device=device), torch.tensor([3], device=device)]
    per_sequence(torch, table(torch.nested.nested_tensor(words, layout=torch.jagged)), [table(w) for w in words])
    for wrong in (lambda: x.sum(0), lambda: x.transpose(0, 1), lambda: x.chunk(2, 0) if torch is arete else x.sum(0)):
        with pytest.raises((RuntimeError, ValueError)):
            wrong()


@anywhere
def test_gradients(torch, device):
    parts = [p.requires_grad_() for p in two(torch, device)[0]]
    layer = torch.nn.Linear(3, 3, device=device)
    x = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
    layer(x).sigmoid().values().sum().backward()
    found = [parts[0].grad, parts[1].grad, layer.weight.grad]
    layer.weight.grad = None
    again = [p.detach().requires_grad_() for p in parts]
    sum(layer(p).sigmoid().sum() for p in again).backward()
    for a, b in zip(found, [again[0].grad, again[1].grad, layer.weight.grad]):
        torch.testing.assert_close(a, b)
    leaf = torch.nested.nested_tensor([p.detach() for p in parts], layout=torch.jagged, requires_grad=True)
    (leaf * leaf).values().sum().backward()
    per_sequence(torch, leaf.grad, [2 * p.detach() for p in parts])


def devices():
    return ["cpu"] + ["cuda"] * arete.cuda.is_available()


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("causal", [False, True])
def test_attention(device, causal):
    """As each sequence by itself, with gradients, for queries of other lengths, and a sequence without elements."""
    F = arete.nn.functional
    arete.manual_seed(0)
    lengths = [3, 5, 0, 1]
    packed = [arete.randn(n, 3 * 8, device=device).requires_grad_() for n in lengths]
    x = arete.nested.as_nested_tensor(packed, layout=arete.jagged)
    q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in x.chunk(3, -1))
    assert q._ragged_idx == 2 and q.shape == (4, 2, x.shape[1], 4)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(-2)
    assert y.shape == (4, x.shape[1], 8)
    y.values().square().sum().backward()
    expected = [p.detach().requires_grad_() for p in packed]
    for part, other, found in zip(packed, expected, y.unbind()):
        if not len(part):
            continue
        a, b, c = (t.unflatten(-1, (2, 4)).transpose(0, 1) for t in other.chunk(3, -1))
        alone = F.scaled_dot_product_attention(a[None], b[None], c[None], is_causal=causal)[0].transpose(0, 1).flatten(-2)
        arete.testing.assert_close(found, alone, rtol=1e-4, atol=1e-5)
        alone.square().sum().backward()
        arete.testing.assert_close(part.grad, other.grad, rtol=1e-4, atol=1e-4)
    if not causal:
        keys = arete.nested.nested_tensor([arete.randn(n, 2, 4, device=device) for n in (2, 4, 1, 6)], layout=arete.jagged).transpose(1, 2)
        crossed = F.scaled_dot_product_attention(q, keys, keys)
        alone = F.scaled_dot_product_attention(q[1][None], keys[1][None], keys[1][None])[0]
        arete.testing.assert_close(crossed[1], alone, rtol=1e-4, atol=1e-5)


def test_copies_and_what_is_refused():
    parts, x = two(arete, "cpu")
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        per_sequence(arete, again, parts)
    joined = arete.cat([x, two(arete, "cpu")[1]])
    per_sequence(arete, joined, parts * 2)
    per_sequence(arete, x.softmax(1), [p.softmax(0) for p in parts])
    arete.testing.assert_close(x.mean(1), arete.stack([p.mean(0) for p in parts]))
    arete.testing.assert_close(x.amax((1, 2)), arete.stack([p.amax() for p in parts]))
    whole = arete.nested.nested_tensor([arete.tensor([-3, -2]), arete.tensor([5])], layout=arete.jagged)
    assert whole.amax(1).tolist() == [-2, 5] and whole.amin(1).tolist() == [-3, 5] and (whole < 0).amin(1).tolist() == [True, False]
    there = x.to("meta")
    assert there.offsets().is_meta and (there + x.to("meta")).shape[1] == there.shape[1] and there.shape[1].max() == x.shape[1].max()
    nn = arete.nn
    network = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.1), nn.Linear(8, 1))
    assert network(x).shape == (2, x.shape[1], 1)
    for refused, kind, text in ((lambda: x.cumsum(1), NotImplementedError, "no form for nested tensors"),
                                (lambda: arete.nested.nested_tensor(parts), NotImplementedError, "layout=torch.jagged"),
                                (lambda: arete.nested.nested_tensor([parts[0], parts[1][:, :2]], layout=arete.jagged), RuntimeError,
                                 "single ragged dimension"),
                                (lambda: x + arete.ones(2, 4, 3), RuntimeError, "size 1 where the lengths are"),
                                (lambda: x[:, 0], RuntimeError, "indexing"),
                                (lambda: arete.nn.functional.layer_norm(x.transpose(1, 2), (4,)), RuntimeError, "lengths"),
                                (lambda: arete.nested.nested_tensor([], layout=arete.jagged), RuntimeError, "empty list")):
        with pytest.raises(kind, match=text):
            refused()
    assert not arete.ones(1).is_nested
