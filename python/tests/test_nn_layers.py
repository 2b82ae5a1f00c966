"""Every layer beside PyTorch's: text, state dict, outputs and gradients."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from nn_cases import LAYERS, LOSSES
from nn_helpers import assert_same, copy_state, ours, theirs, values
from peer import peer

import arete
import arete.testing
from arete import nn

torch = peer()
pytestmark = pytest.mark.filterwarnings("ignore")


def build(text):
    scope = {"OrderedDict": OrderedDict}
    mine = eval("nn." + text, {**scope, "nn": nn})
    other = eval("nn." + text, {**scope, "nn": torch.nn})
    return mine, other


def describe(state):
    return [(k, tuple(v.shape), str(v.dtype).split(".")[-1]) for k, v in state.items()]


def total(result):
    """A scalar that depends on all floating outputs."""
    if isinstance(result, (tuple, list)):
        parts = [total(r) for r in result if r is not None]
        parts = [p for p in parts if p is not None]
        return sum(parts[1:], parts[0]) if parts else None
    return (result * result).sum() if result.dtype.is_floating_point else None


@pytest.mark.parametrize("text,inputs", LAYERS, ids=[t for t, _ in LAYERS])
def test_layer(text, inputs):
    mine, other = build(text)
    assert repr(mine) == repr(other)
    lazy = text.startswith("Lazy")
    random = "Drop" in text or "dropout" in text or text.startswith(("RReLU", "Transformer"))
    arrays = [values(s, i + 1) for i, s in enumerate(inputs or ())]
    if lazy:
        with torch.no_grad():
            other(*map(theirs, arrays))
        mine(*map(ours, arrays))
        assert repr(mine) == repr(other)
        assert type(mine).__name__ == type(other).__name__
    assert describe(mine.state_dict()) == describe(other.state_dict())
    names = [n for n, _ in other.named_parameters()]
    assert [n for n, _ in mine.named_parameters()] == names
    copy_state(other, mine)
    if inputs is None:
        return
    for training in (False, True):
        if training and random:
            continue
        mine.train(training), other.train(training)
        a = [ours(x) for x in arrays]
        b = [theirs(x) for x in arrays]
        inplace = "True)" in text and "inplace" in text or text.endswith(("(True)", ", True)"))
        if not inplace:
            for t in (*a, *b):
                if t.dtype.is_floating_point:
                    t.requires_grad_()
        mine.zero_grad(), other.zero_grad()
        x, y = mine(*a), other(*b)
        assert_same(x, y)
        if inplace and isinstance(x, arete.Tensor):
            assert x is a[0]
        assert describe(mine.state_dict()) == describe(other.state_dict())
        for (k, p), q in zip(mine.state_dict().items(), other.state_dict().values()):
            np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-5, atol=1e-6, err_msg=k)
        left, right = total(x), total(y)
        if right is None or not right.requires_grad:
            continue
        left.backward(), right.backward()
        for t, s in zip((*a, *mine.parameters()), (*b, *other.parameters())):
            assert (t.grad is None) == (s.grad is None)
            if s.grad is not None:
                assert_same(t.grad, s.grad, 2e-4)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name,options,inputs", LOSSES, ids=[f"{n}{i}" for i, (n, _, _) in enumerate(LOSSES)])
def test_loss(name, options, inputs, reduction):
    if name == "KLDivLoss" and reduction == "sum":
        reduction = "batchmean"
    arrays = [values(s, i + 1) for i, s in enumerate(inputs)]
    keywords = [
        {k: to(values(v, 9)) if isinstance(v, str) else v for k, v in options.items()}
        for to in (ours, theirs)
    ]
    mine = getattr(nn, name)(reduction=reduction, **keywords[0])
    other = getattr(torch.nn, name)(reduction=reduction, **keywords[1])
    assert repr(mine) == repr(other)
    assert describe(mine.state_dict()) == describe(other.state_dict())
    a, b = [ours(x) for x in arrays], [theirs(x) for x in arrays]
    a[0].requires_grad_(), b[0].requires_grad_()
    x, y = mine(*a), other(*b)
    assert_same(x, y)
    x.sum().backward(), y.sum().backward()
    assert_same(a[0].grad, b[0].grad)


def test_ctc_loss():
    arrays = values((12, 3, 5), 1), np.array([[1, 2, 3], [4, 4, 1], [2, 1, 0]])
    for target_lengths in ([3, 2, 1], (3, 3, 2)):
        a = ours(arrays[0]).requires_grad_()
        b = theirs(arrays[0]).requires_grad_()
        x = nn.CTCLoss()(a.log_softmax(2), ours(arrays[1]), [12, 10, 8], target_lengths)
        y = torch.nn.CTCLoss()(b.log_softmax(2), theirs(arrays[1]), [12, 10, 8], target_lengths)
        assert_same(x, y)
        x.backward(), y.backward()
        assert_same(a.grad, b.grad)


def test_unpool_and_fractional():
    x = values((2, 3, 6, 6), 1)
    a, i = nn.MaxPool2d(2, return_indices=True)(ours(x))
    b, j = torch.nn.MaxPool2d(2, return_indices=True)(theirs(x))
    assert_same(nn.MaxUnpool2d(2)(a, i), torch.nn.MaxUnpool2d(2)(b, j))
    assert_same(
        nn.MaxUnpool2d(2)(a, i, output_size=(2, 3, 7, 7)),
        torch.nn.MaxUnpool2d(2)(b, j, output_size=(2, 3, 7, 7)),
    )
    samples = values("p:2,3,2", 2)
    mine = nn.FractionalMaxPool2d(2, output_ratio=0.5, _random_samples=ours(samples))
    other = torch.nn.FractionalMaxPool2d(2, output_ratio=0.5, _random_samples=theirs(samples))
    assert_same(mine(ours(x)), other(theirs(x)))
    mine = nn.FractionalMaxPool2d((2, 3), output_size=(2, 3), return_indices=True)
    out, places = mine(ours(x))
    assert tuple(out.shape) == tuple(places.shape) == (2, 3, 2, 3)


def test_conv_transpose_output_size():
    x = values((2, 3, 5, 5), 1)
    mine, other = build("ConvTranspose2d(3, 4, 3, stride=2, padding=1)")
    copy_state(other, mine)
    for size in ([9, 10], (2, 4, 10, 9)):
        assert_same(mine(ours(x), output_size=size), other(theirs(x), output_size=list(size)))
    with pytest.raises(ValueError, match="requested an output size of"):
        mine(ours(x), output_size=[20, 20])


def test_initial_values_have_torchs_distributions():
    """Means, deviations and bounds of what is drawn, beside torch's."""
    arete.manual_seed(1), torch.manual_seed(1)
    for text in (
        "Linear(300, 200)",
        "Conv2d(32, 40, 5)",
        "ConvTranspose2d(32, 40, 5)",
        "Bilinear(20, 30, 40)",
        "Embedding(300, 60)",
        "LSTM(60, 60)",
        "GRUCell(60, 60)",
        "MultiheadAttention(96, 4, add_bias_kv=True)",
        "TransformerEncoderLayer(64, 4, 128)",
        "BatchNorm2d(40)",
        "PReLU(40)",
    ):
        mine, other = build(text)
        for (name, p), q in zip(mine.named_parameters(), other.parameters()):
            p, q = p.detach().numpy().ravel(), q.detach().numpy().ravel()
            spread = q.std() + 1e-12
            where = f"{text}.{name}"
            slack = 5 / np.sqrt(q.size)
            assert abs(p.mean() - q.mean()) <= slack * spread * 1.5 + 1e-7, where
            assert abs(p.std() - q.std()) <= slack * spread * 1.5 + 1e-7, where
            if q.size > 500 and abs(q).max() < 1.9 * spread:  # uniform: the same bound
                assert abs(abs(p).max() / abs(q).max() - 1) < 0.05, where
    weight = nn.Embedding(5, 3, padding_idx=2).weight.detach().numpy()
    assert (weight[2] == 0).all() and (weight[1] != 0).all()


MASK = np.triu(np.full((5, 5), -np.inf, np.float32), 1)
PADDING = np.array([[0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 1, 1, 1]], bool)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("masks", ["none", "float", "bool", "padding", "both", "heads", "causal"])
def test_attention_masks(masks, average, need_weights):
    mine, other = build("MultiheadAttention(8, 2)")
    copy_state(other, mine)
    x = values((5, 3, 8), 1)
    options = [{"need_weights": need_weights, "average_attn_weights": average} for _ in range(2)]
    for o, to in zip(options, (ours, theirs)):
        if masks in ("float", "causal"):
            o["attn_mask"] = to(MASK)
        if masks == "causal":
            o["is_causal"] = True
        if masks in ("bool", "both"):
            o["attn_mask"] = to(MASK != 0)
        if masks == "heads":
            o["attn_mask"] = to(np.broadcast_to(MASK, (6, 5, 5)))
        if masks in ("padding", "both"):
            o["key_padding_mask"] = to(PADDING)
    a, b = ours(x), theirs(x)
    assert_same(mine(a, a, a, **options[0]), other(b, b, b, **options[1]))


def test_transformer_masks():
    mine, other = build("Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)")
    copy_state(other, mine)
    src, tgt = values((3, 5, 8), 1), values((3, 4, 8), 2)
    results = []
    for net, to, package in ((mine, ours, nn), (other, theirs, torch.nn)):
        mask = package.Transformer.generate_square_subsequent_mask(4)
        results.append(
            net(
                to(src),
                to(tgt),
                tgt_mask=mask,
                tgt_is_causal=True,
                src_key_padding_mask=to(PADDING),
                memory_key_padding_mask=to(PADDING),
            )
        )
    assert_same(*results)


@pytest.mark.parametrize("text", [
    "RNN(4, 3, bidirectional=True)",
    "GRU(4, 3, num_layers=2, bidirectional=True)",
    "LSTM(4, 3, num_layers=2, bidirectional=True, proj_size=2)",
])
@pytest.mark.parametrize("lengths", [[5, 3, 1], [2, 5, 5], [1, 1, 1]])
def test_packed_sequences(text, lengths):
    mine, other = build(text)
    copy_state(other, mine)
    x = values((5, 3, 4), 1)
    layers = mine.num_layers * 2
    states = [values((layers, 3, n), 7) for n in (mine.proj_size or 3, 3)[: 2 if mine.mode == "LSTM" else 1]]
    results, gradients = [], []
    for net, to, rnn in ((mine, ours, nn.utils.rnn), (other, theirs, torch.nn.utils.rnn)):
        leaf = to(x).requires_grad_()
        packed = rnn.pack_padded_sequence(leaf, lengths, enforce_sorted=False)
        hx = [to(s) for s in states]
        out, last = net(packed, tuple(hx) if len(hx) == 2 else hx[0])
        padded, counts = rnn.pad_packed_sequence(out, padding_value=-1.0)
        assert counts.tolist() == lengths
        (padded * padded).sum().backward()
        results.append((tuple(packed), padded, last))
        gradients.append(leaf.grad)
    assert_same(*results)
    assert_same(*gradients)


def test_recurrent_errors():
    for text, shape, state, error in [
        ("LSTM(4, 3)", (5, 2, 6), None, "input.size(-1) must be equal to input_size"),
        ("GRU(4, 3)", (5, 2, 4), (1, 3, 3), "Expected hidden size (1, 2, 3), got [1, 3, 3]"),
        ("RNN(4, 3)", (5, 2, 4), (1, 3), "For batched 3-D input, hx should also be 3-D but got 2-D"),
    ]:
        mine, other = build(text)
        for net, to in ((mine, ours), (other, theirs)):
            args = [to(values(shape))] + ([] if state is None else [to(values(state))])
            with pytest.raises(RuntimeError) as info:
                net(*args)
            assert error in str(info.value)


@pytest.mark.parametrize("text", ["RNN(4, 3, biass=True)", "GRU(4, 3, nonlinearity='relu')", "LSTM(4, 3, size=1)"])
def test_recurrent_layers_refuse_options_that_they_lack(text):
    for library in (nn, torch.nn):
        with pytest.raises(TypeError, match="got an unexpected keyword argument"):
            eval("nn." + text, {"nn": library})


def test_adaptive_softmax_probabilities():
    mine, other = build("AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], div_value=2.0, head_bias=True)")
    copy_state(other, mine)
    x = values((6, 8), 1)
    assert_same(mine.log_prob(ours(x)), other.log_prob(theirs(x)))
    assert mine.predict(ours(x)).tolist() == other.predict(theirs(x)).tolist()


def test_embedding_bag_with_offsets():
    mine, other = build("EmbeddingBag(7, 3, mode='sum')")
    copy_state(other, mine)
    rows, starts, shares = values("i7:6", 1), np.array([0, 2, 2, 5]), values("p:6", 2)
    assert_same(
        mine(ours(rows), ours(starts), ours(shares)),
        other(theirs(rows), theirs(starts), theirs(shares)),
    )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("ends", [[0, 2, 5], [0, 2, 2, 4], [0, 0], [0, 3, 7], [0]])
@pytest.mark.parametrize("padding", [None, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_embedding_bag_with_a_last_offset(mode, ends, padding, weighted):
    """The entries behind it are in no bag: the same as without them, and they have no gradient."""
    if weighted and mode != "sum":
        pytest.skip("weights are of sums")
    index, shares = arete.tensor([0, 1, 2, 3, 4, 5, 1]), arete.arange(1.0, 8)
    grads, results = [], []
    for n, begins in ((7, ends), (ends[-1], ends[:-1])):
        weight = arete.arange(18.0).reshape(6, 3).sin().requires_grad_()
        share = shares.clone().requires_grad_()
        out = nn.functional.embedding_bag(index[:n], weight, arete.tensor(begins, dtype=arete.int64), mode=mode, padding_idx=padding,
                                          include_last_offset=begins is ends, per_sample_weights=share[:n] if weighted else None)
        results.append(out)
        loss = (out * arete.arange(1.0, out.numel() + 1).reshape(out.shape)).sum()
        grads.append(arete.autograd.grad(loss, [weight, share], allow_unused=True, materialize_grads=True) if len(ends) > 1 else [])
    assert results[0].shape == (len(ends) - 1, 3)
    for a, b in zip([results[0], *grads[0]], [results[1], *grads[1]]):
        arete.testing.assert_close(a, b)
    if mode != "max" and not weighted:
        by_frequency = [nn.functional.embedding_bag(index[:n], weight.detach(), arete.tensor(begins, dtype=arete.int64), mode=mode,
                                                    scale_grad_by_freq=True, include_last_offset=begins is ends)
                        for n, begins in ((7, ends), (ends[-1], ends[:-1]))]
        arete.testing.assert_close(*by_frequency)


def test_what_else_embedding_bags_with_a_last_offset_give():
    weight, index, ends = values((6, 3), 1), values("i7:6", 2), np.array([0, 2, 2, 5])
    assert_same(*(library.embedding_bag(convert(weight), convert(index), convert(ends), False, 0, False, None, True)[0]
                  for library, convert in ((arete, ours), (torch, theirs))))  # torch's means and maxima are of entries behind it, too
    for mode in (1, 2):
        out, _, size, places = arete.embedding_bag(ours(weight), ours(index), ours(ends), False, mode, False, None, True)
        less = arete.embedding_bag(ours(weight), ours(index[:5]), ours(ends[:-1]), False, mode)
        assert_same(out, less[0])
        assert size.tolist() == less[2].tolist() == [2, 0, 3] and places.tolist() == less[3].tolist()
        found = arete._embedding_bag(ours(weight), ours(index), ours(ends), mode=mode, include_last_offset=True)
        assert found[1].tolist() == [0, 0, 2, 2, 2] and found[2].tolist() == [2, 0, 3]


def test_dropout_in_training():
    x = arete.ones(200, 50)
    y = nn.Dropout(0.25)(x).numpy()
    assert set(np.unique(y).round(4)) == {0.0, np.float32(1.3333)}
    assert abs((y == 0).mean() - 0.25) < 0.02
    channels = nn.Dropout2d(0.5)(arete.ones(20, 30, 2, 2)).numpy()
    assert (channels == channels[:, :, :1, :1]).all()
    z = nn.FeatureAlphaDropout(0.3)(arete.randn(400, 50, 2)).numpy()
    assert abs(z.mean()) < 0.1 and abs(z.std() - 1) < 0.1
    with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
        nn.Dropout(1.5)


def test_every_public_class_is_there():
    """All classes of torch.nn but those that are left out on purpose."""
    left_out = {"DataParallel"}
    theirs_ = {n for n in dir(torch.nn) if isinstance(getattr(torch.nn, n), type)}
    assert theirs_ - set(dir(nn)) == left_out


def test_every_function_is_there():
    from arete.nn import functional as F

    left_out = {"assert_int_or_pair", "boolean_dispatch", "handle_torch_function",
                "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
                "scaled_grouped_mm", "scaled_mm"}
    names = {
        n for n in dir(torch.nn.functional)
        if not n.startswith("_") and callable(getattr(torch.nn.functional, n))
        and not isinstance(getattr(torch.nn.functional, n), type) and n != "Optional"
    }
    assert names - set(dir(F)) == left_out
