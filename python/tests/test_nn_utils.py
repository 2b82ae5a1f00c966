"""nn.utils beside PyTorch's."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from nn_helpers import assert_same, copy_state, ours, theirs, values
from peer import peer

import arete
from arete import nn
from arete.nn import utils

torch = peer()
tnn, tutils = torch.nn, torch.nn.utils
pytestmark = pytest.mark.filterwarnings("ignore")


def both(build, seed=0):
    """The same network in both packages, with the same weights."""
    torch.manual_seed(seed)
    other, mine = build(tnn), build(nn)
    copy_state(other, mine)
    return mine, other


def mlp(package):
    return package.Sequential(package.Linear(3, 4), package.Tanh(), package.Linear(4, 2))


@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf])
def test_clip_grad_norm(norm_type):
    nets = both(mlp)
    for max_norm in (0.1, 100.0):
        norms = []
        for net, to, u in zip(nets, (ours, theirs), (utils, tutils)):
            net.zero_grad()
            net(to(values((5, 3)))).pow(2).sum().backward()
            norms.append(u.clip_grad_norm_(net.parameters(), max_norm, norm_type))
        assert_same(*norms)
        assert_same(*[[p.grad for p in net.parameters()] for net in nets])
    assert_same(*[
        u.get_total_norm([p.grad for p in net.parameters()], norm_type)
        for u, net in zip((utils, tutils), nets)
    ])


def test_clip_grad_value_and_nonfinite():
    p = nn.Parameter(arete.ones(3))
    p.grad = arete.tensor([-2.0, 0.5, 3.0])
    utils.clip_grad_value_(p, 1.0)
    assert p.grad.tolist() == [-1.0, 0.5, 1.0]
    p.grad = arete.tensor([math.inf, 0.5, 3.0])
    with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
        utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert float(utils.clip_grad_norm_([nn.Parameter(arete.ones(3))], 1.0)) == 0.0


def test_vectors():
    mine, other = both(mlp)
    a, b = utils.parameters_to_vector(mine.parameters()), tutils.parameters_to_vector(other.parameters())
    assert_same(a, b)
    params = list(mine.parameters())
    utils.vector_to_parameters(a.detach() * 2, mine.parameters())
    assert all(p is q for p, q in zip(params, mine.parameters()))
    tutils.vector_to_parameters(b.detach() * 2, other.parameters())
    assert_same(list(mine.parameters()), list(other.parameters()))


def test_sequences():
    parts = [values((n, 2), n) for n in (3, 1, 4)]
    for batch_first in (True, False):
        for side in ("right", "left"):
            assert_same(
                utils.rnn.pad_sequence([ours(p) for p in parts], batch_first, -1.0, side),
                tutils.rnn.pad_sequence([theirs(p) for p in parts], batch_first, -1.0, side),
            )
    mine = utils.rnn.pack_sequence([ours(p) for p in parts], enforce_sorted=False)
    other = tutils.rnn.pack_sequence([theirs(p) for p in parts], enforce_sorted=False)
    assert_same(tuple(mine), tuple(other))
    assert_same(utils.rnn.unpack_sequence(mine), tutils.rnn.unpack_sequence(other))
    for options in ({}, {"batch_first": True, "padding_value": 2.0, "total_length": 6}):
        assert_same(
            utils.rnn.pad_packed_sequence(mine, **options),
            tutils.rnn.pad_packed_sequence(other, **options),
        )
    assert mine.to(arete.float64).data.dtype == arete.float64 and not mine.is_cuda
    for cast in ("double", "float", "half", "long", "int", "short", "char", "byte"):
        assert str(getattr(mine, cast)().data.dtype)[6:] == str(getattr(other, cast)().data.dtype)[6:]
    assert isinstance(mine.cpu(), utils.rnn.PackedSequence)
    padded = values((4, 3, 2))
    for lengths in ([4, 2, 1], [4, 4, 4]):
        assert_same(
            tuple(utils.rnn.pack_padded_sequence(ours(padded), lengths))[:2],
            tuple(tutils.rnn.pack_padded_sequence(theirs(padded), lengths))[:2],
        )
    for lengths, text in (([1, 4, 2], "must be sorted"), ([4, 2, 0], "greater than 0"), ([4], "batch_size")):
        for rnn, to in ((utils.rnn, ours), (tutils.rnn, theirs)):
            with pytest.raises(RuntimeError, match=text):
                rnn.pack_padded_sequence(to(padded), lengths)


def test_fusion():
    builds = [
        (lambda p: p.Conv2d(3, 4, 3, groups=1), lambda p: p.BatchNorm2d(4), (2, 3, 5, 5), "fuse_conv_bn_eval", {}),
        (lambda p: p.ConvTranspose1d(3, 4, 3, bias=False), lambda p: p.BatchNorm1d(4), (2, 3, 5),
         "fuse_conv_bn_eval", {"transpose": True}),
        (lambda p: p.Linear(3, 4), lambda p: p.BatchNorm1d(4), (5, 3), "fuse_linear_bn_eval", {}),
    ]
    for layer, norm, shape, name, options in builds:
        conv, bn = layer(nn), norm(nn)
        with arete.no_grad():
            for t in (bn.weight, bn.bias, bn.running_mean):
                t.uniform_(0.5, 1.5)
        conv.eval(), bn.eval()
        fused = getattr(utils, name)(conv, bn, **options)
        x = ours(values(shape))
        assert_same(fused(x), bn(conv(x)), 1e-4)
        with pytest.raises(AssertionError, match="Fusion only for eval"):
            getattr(utils, name)(conv.train(), bn, **options)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim):
    mine, other = nn.Conv2d(3, 4, 2), tnn.Conv2d(3, 4, 2)
    copy_state(other, mine)
    utils.weight_norm(mine, dim=dim), tutils.weight_norm(other, dim=dim)
    assert list(mine.state_dict()) == list(other.state_dict())
    assert [tuple(v.shape) for v in mine.state_dict().values()] == [
        tuple(v.shape) for v in other.state_dict().values()
    ]
    x = values((2, 3, 4, 4))
    a, b = mine(ours(x)), other(theirs(x))
    assert_same(a, b)
    (a * a).sum().backward(), (b * b).sum().backward()
    assert_same([p.grad for p in mine.parameters()], [p.grad for p in other.parameters()], 1e-4)
    utils.remove_weight_norm(mine)
    assert sorted(mine.state_dict()) == ["bias", "weight"] and not mine._hooked
    assert_same(mine(ours(x)), b)


def test_spectral_norm():
    mine, other = nn.Linear(5, 4), tnn.Linear(5, 4)
    utils.spectral_norm(mine), tutils.spectral_norm(other)
    assert list(mine.state_dict()) == list(other.state_dict())
    copy_state(other, mine)
    x = values((2, 5))
    for _ in range(30):
        a, b = mine(ours(x)), other(theirs(x))
    assert_same(a, b, 1e-4)
    (a * a).sum().backward(), (b * b).sum().backward()
    assert_same(mine.weight_orig.grad, other.weight_orig.grad, 1e-3)
    assert np.linalg.svd(mine.weight.detach().numpy())[1][0] == pytest.approx(1, abs=1e-3)
    mine.eval()
    utils.remove_spectral_norm(mine)
    assert sorted(mine.state_dict()) == ["bias", "weight"]


def test_parametrized_norms():
    for name in ("weight_norm", "spectral_norm"):
        mine, other = nn.Linear(5, 4), tnn.Linear(5, 4)
        copy_state(other, mine)
        getattr(utils.parametrizations, name)(mine)
        getattr(tutils.parametrizations, name)(other)
        assert repr(mine) == repr(other)
        assert list(mine.state_dict()) == list(other.state_dict())
        copy_state(other, mine)
        mine.eval(), other.eval()
        x = values((2, 5))
        a, b = mine(ours(x)), other(theirs(x))
        assert_same(a, b)
        (a * a).sum().backward(), (b * b).sum().backward()
        assert_same([p.grad for p in mine.parameters()], [p.grad for p in other.parameters()], 1e-4)
        assert utils.parametrize.is_parametrized(mine, "weight")
        utils.parametrize.remove_parametrizations(mine, "weight")
        assert type(mine) is nn.Linear and sorted(mine.state_dict()) == ["bias", "weight"]
        assert_same(mine(ours(x)), b)


def test_own_parametrization():
    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, a):
            return a.triu()

    layer = nn.Linear(3, 3)
    utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    w = layer.weight
    assert_same(w, w.t())
    target = arete.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    layer.weight = target
    assert_same(layer.weight, target)
    with utils.parametrize.cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight
    clone = copy.deepcopy(layer)
    assert_same(clone.weight, target)
    with pytest.raises(ValueError, match="does not have a parameter"):
        utils.parametrize.register_parametrization(layer, "nothing", Symmetric())


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
@pytest.mark.parametrize("map_", ["matrix_exp", "cayley", "householder", None])
@pytest.mark.parametrize("trivial", [True, False])
def test_orthogonal(shape, map_, trivial):
    def is_orthogonal(w, tolerance):
        small = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
        np.testing.assert_allclose(small, np.eye(len(small)), atol=tolerance)

    layer = nn.Linear(*shape)
    utils.parametrizations.orthogonal(layer, orthogonal_map=map_, use_trivialization=trivial)
    is_orthogonal(layer.weight.detach().numpy(), 1e-5)
    layer(arete.randn(2, shape[0])).sum().backward()
    original = layer.parametrizations.weight.original
    assert original.grad.abs().sum() > 0
    with arete.no_grad():
        original -= original.grad
    is_orthogonal(layer.weight.detach().numpy(), 1e-4)
    wanted = arete.empty_like(original)
    nn.init.orthogonal_(wanted)
    if trivial or map_ == "householder" or map_ is None and shape[0] != shape[1]:
        layer.weight = wanted
        assert_same(layer.weight, wanted)
    else:
        with pytest.raises(NotImplementedError, match="It is not possible to assign"):
            layer.weight = wanted


@pytest.mark.parametrize("map_", ["matrix_exp", "cayley", "householder", None])
@pytest.mark.parametrize("trivial", [True, False])
def test_orthogonal_beside_torch(map_, trivial):
    """Of the same state, with the same gradients."""
    for shape in ((3, 5), (5, 3), (4, 4)):
        mine, other = nn.Linear(*shape).double(), tnn.Linear(*shape).double()
        for layer, u in ((mine, utils), (other, tutils)):
            u.parametrizations.orthogonal(layer, orthogonal_map=map_, use_trivialization=trivial)
        copy_state(other, mine)
        with torch.no_grad():
            for p, q in zip(mine.parameters(), other.parameters()):
                p.data = ours(q.mul_(0.7).numpy())
        if map_ == "householder" or map_ is None and shape[0] != shape[1]:
            continue  # torch truncates the signs, which are 0.7 now
        x = values((2, shape[0])).astype(np.float64)
        for layer, convert in ((mine, ours), (other, theirs)):
            layer(convert(x)).square().sum().backward()
        assert_same(mine.weight, other.weight)
        assert_same(mine.parametrizations.weight.original.grad, other.parametrizations.weight.original.grad)


def test_householder_beside_torch():
    for shape in ((3, 5), (5, 3), (4, 4)):
        for trivial in (True, False):
            mine, other = nn.Linear(*shape).double(), tnn.Linear(*shape).double()
            for layer, u in ((mine, utils), (other, tutils)):
                u.parametrizations.orthogonal(layer, orthogonal_map="householder", use_trivialization=trivial)
            copy_state(other, mine)
            x = values((2, shape[0])).astype(np.float64)
            for layer, convert in ((mine, ours), (other, theirs)):
                layer(convert(x)).sin().sum().backward()
            assert_same(mine.weight, other.weight)
            assert_same(mine.parametrizations.weight.original.grad, other.parametrizations.weight.original.grad)


def test_orthogonal_complex():
    for shape in ((3, 5), (5, 3), (4, 4)):
        layer = nn.Linear(*shape, dtype=arete.complex128)
        utils.parametrizations.orthogonal(layer)
        w = layer.weight.detach()
        small = w @ w.mH if w.shape[0] <= w.shape[1] else w.mH @ w
        np.testing.assert_allclose(small.numpy(), np.eye(len(small)), atol=1e-10)
        with pytest.raises(ValueError, match="complex"):
            utils.parametrizations.orthogonal(nn.Linear(*shape, dtype=arete.complex64), orthogonal_map="householder")


def test_parametrizations_after_the_first():
    """They are of what the first gives; only assignments ask for their right_inverse."""
    def chain(package, u):
        class Twice(package.Module):
            def forward(self, x):
                return 2 * x

            def right_inverse(self, x):
                return x / 2

        class Next(package.Module):
            def forward(self, x):
                return x + 1

        class Refused(Next):
            def right_inverse(self, x):
                raise NotImplementedError

        layer = package.Linear(2, 2)
        with (torch if package is tnn else arete).no_grad():
            layer.weight.fill_(3)
        found = []
        for module in (Twice(), Next(), Twice(), Refused()):
            u.parametrize.register_parametrization(layer, "weight", module)
            found.append(layer.weight[0, 0].item())
        with pytest.raises(NotImplementedError):
            layer.weight = layer.weight.detach()
        other = package.Linear(2, 2, bias=False)
        u.parametrize.register_parametrization(other, "weight", Refused())
        found.append((other.weight - other.parametrizations.weight.original).sum().item())
        return found

    assert chain(nn, utils) == chain(tnn, tutils) == [3.0, 4.0, 8.0, 9.0, 4.0]


def test_functional_call():
    net = mlp(nn)
    x = ours(values((2, 3)))
    zeros = {k: arete.zeros_like(v) for k, v in net.named_parameters()}
    before = net(x)
    out = utils.stateless.functional_call(net, zeros, (x,))
    assert float(out.abs().sum()) == 0
    assert_same(net(x), before)
    with pytest.raises(RuntimeError):
        utils.stateless.functional_call(net, {"nothing": x}, (x,), strict=True)


def test_skip_init():
    layer = utils.skip_init(nn.Linear, 3, 4)
    assert tuple(layer.weight.shape) == (4, 3) and layer.weight.device.type == "cpu"


def test_every_name_is_there():
    left_out = {"bind", "convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"}
    names = {n for n in dir(tutils) if not n.startswith("_")} - {"memory_format"}
    assert names - set(dir(utils)) <= left_out
