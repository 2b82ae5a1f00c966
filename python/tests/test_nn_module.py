"""Module, containers and hooks. Most tests run on torch too, so that they say what torch does."""

from __future__ import annotations

import copy
import gc
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from nn_helpers import assert_same, copy_state, ours, theirs, values
from peer import peer

import arete
from arete import nn as arete_nn

torch = peer()


@pytest.fixture(params=["arete", "torch"])
def lib(request):
    return {"arete": arete, "torch": torch}[request.param]


def net_of(lib):
    nn = lib.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)
            self.scale = nn.Parameter(lib.ones(1))
            self.register_buffer("count", lib.zeros(1))
            self.register_buffer("hidden", lib.zeros(1), persistent=False)
            self.register_parameter("nothing", None)
            self.inner = nn.Sequential(nn.ReLU(), nn.BatchNorm1d(2))

        def forward(self, x, factor=1.0):
            return self.inner(self.fc(x)) * self.scale * factor

    return Net()


def message(error, f):
    with pytest.raises(error) as info:
        f()
    return str(info.value)


# -- registration -------------------------------------------------------------------------------


def test_attributes_are_registered(lib):
    net = net_of(lib)
    assert list(net._parameters) == ["scale", "nothing"]
    assert list(net._buffers) == ["count", "hidden"]
    assert list(net._modules) == ["fc", "inner"]
    assert net.nothing is None
    assert isinstance(net.scale, lib.nn.Parameter) and net.scale.requires_grad
    assert {"fc", "scale", "count", "training"} <= set(dir(net))
    del net.scale, net.count, net.fc
    assert not hasattr(net, "scale") and not hasattr(net, "count") and not hasattr(net, "fc")
    net.fc = 3  # free again
    assert net.fc == 3
    net.fc = lib.nn.Linear(1, 1)  # a plain attribute becomes a module
    assert "fc" in net._modules and "fc" not in net.__dict__
    net.inner = None
    assert net._modules["inner"] is None
    net.count2 = lib.nn.Buffer(lib.ones(2), persistent=False)
    assert "count2" in net._buffers and "count2" not in net.state_dict()
    net.count2 = lib.zeros(3)
    assert tuple(net._buffers["count2"].shape) == (3,)


def test_registration_errors():
    """The texts are torch's."""

    def cases(lib):
        nn = lib.nn
        net = net_of(lib)

        class Early(nn.Module):
            def __init__(self, kind):
                values_ = {
                    "parameter": lambda: nn.Parameter(lib.ones(1)),
                    "module": lambda: nn.ReLU(),
                }
                self.x = values_[kind]()

        leaf = lib.ones(2, requires_grad=True)
        return [
            (AttributeError, lambda: Early("parameter")),
            (AttributeError, lambda: Early("module")),
            (KeyError, lambda: net.register_parameter("a.b", None)),
            (KeyError, lambda: net.register_parameter("", None)),
            (KeyError, lambda: net.register_parameter("fc", None)),
            (TypeError, lambda: net.register_parameter(3, None)),
            (KeyError, lambda: net.register_buffer("a.b", None)),
            (KeyError, lambda: net.register_buffer("forward", None)),
            (TypeError, lambda: net.register_buffer("b", 3)),
            (KeyError, lambda: net.add_module("a.b", nn.ReLU())),
            (KeyError, lambda: net.add_module("", nn.ReLU())),
            (KeyError, lambda: net.add_module("scale", nn.ReLU())),
            (TypeError, lambda: net.add_module("m", 3)),
            (TypeError, lambda: setattr(net, "scale", 3.0)),
            (TypeError, lambda: setattr(net, "fc", 3.0)),
            (TypeError, lambda: setattr(net, "count", 3.0)),
            (TypeError, lambda: net.register_parameter("q", 3.0)),
            (AttributeError, lambda: net.missing),
            (AttributeError, lambda: net.get_submodule("fc.x")),
            (AttributeError, lambda: net.get_submodule("fc.weight")),
            (AttributeError, lambda: net.get_parameter("fc.in_features")),
            (AttributeError, lambda: net.get_buffer("fc.weight")),
            (NotImplementedError, lambda: nn.Module()(1)),
            (TypeError, lambda: net.load_state_dict(3)),
            (TypeError, lambda: net.to(lib.int32)),
            (ValueError, lambda: net.train(3)),
            (TypeError, lambda: nn.Module(3)),
            (TypeError, lambda: nn.Module(a=3)),
        ]

    for (error, f), (_, g) in zip(cases(arete), cases(torch)):
        assert message(error, f).replace("arete.", "torch.") == message(error, g)
    net = net_of(arete)
    leaf = arete.ones(2, requires_grad=True)
    assert "object to parameter 'q'" in message(
        TypeError, lambda: net.register_parameter("q", leaf)
    )


def test_parameter_objects(lib):
    p = lib.nn.Parameter(lib.tensor([1.0, 2.0]))
    assert repr(p) == "Parameter containing:\ntensor([1., 2.], requires_grad=True)"
    assert isinstance(p, lib.Tensor)
    assert type(p * 2) is lib.Tensor and type(p.detach()) is lib.Tensor
    assert not lib.nn.Parameter(lib.ones(1), requires_grad=False).requires_grad
    data = lib.zeros(2)
    q = lib.nn.Parameter(data)
    with lib.no_grad():
        q.add_(1)
    assert data.tolist() == [1.0, 1.0]  # the same memory
    r = copy.deepcopy(p)
    assert type(r) is lib.nn.Parameter and r is not p and r.tolist() == p.tolist()
    s = pickle.loads(pickle.dumps(p))
    assert type(s) is lib.nn.Parameter and s.requires_grad and s.tolist() == p.tolist()
    assert lib.nn.Parameter().numel() == 0
    p.tag = "x"
    assert p.tag == "x"


# -- the tree -----------------------------------------------------------------------------------


def test_walks(lib):
    net = net_of(lib)
    net.again = net.fc  # shared
    assert [n for n, _ in net.named_parameters()] == [
        "scale", "fc.weight", "fc.bias", "inner.1.weight", "inner.1.bias",
    ]
    assert [n for n, _ in net.named_parameters(remove_duplicate=False)][-1] == "again.bias"
    assert [n for n, _ in net.named_parameters(prefix="p", recurse=False)] == ["p.scale"]
    assert [n for n, _ in net.named_buffers()][:3] == ["count", "hidden", "inner.1.running_mean"]
    assert [n for n, _ in net.named_modules()] == ["", "fc", "inner", "inner.0", "inner.1"]
    assert [n for n, _ in net.named_modules(remove_duplicate=False)][-1] == "again"
    assert [n for n, _ in net.named_children()] == ["fc", "inner"]
    assert len(list(net.modules())) == 5 and len(list(net.children())) == 2
    assert len(list(net.parameters())) == 5 and len(list(net.buffers())) == 5
    assert net.get_submodule("inner.1") is net.inner[1] and net.get_submodule("") is net
    assert net.get_parameter("fc.weight") is net.fc.weight
    assert net.get_buffer("inner.1.running_var") is net.inner[1].running_var
    seen = []
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Linear", "ReLU", "BatchNorm1d", "Sequential", "Net"]
    net.set_submodule("inner.0", lib.nn.Tanh())
    assert type(net.inner[0]).__name__ == "Tanh"


def test_modes_and_gradients(lib):
    net = net_of(lib)
    assert net.training
    assert net.eval() is net and not net.inner[1].training
    net.train()
    net(lib.ones(4, 3)).sum().backward()
    grad = net.scale.grad
    assert grad is not None
    net.zero_grad(set_to_none=False)
    assert net.scale.grad is grad and grad.tolist() == [0.0]
    net.zero_grad()
    assert net.scale.grad is None
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    assert net.share_memory() is net


def test_to_keeps_parameters(lib):
    net = net_of(lib)
    params = list(net.parameters())
    net(lib.ones(4, 3)).sum().backward()
    assert net.to(lib.float64) is net
    assert all(a is b for a, b in zip(params, net.parameters()))
    assert params[0].dtype == lib.float64 and params[0].grad.dtype == lib.float64
    assert net.inner[1].running_mean.dtype == lib.float64
    assert net.inner[1].num_batches_tracked.dtype == lib.int64
    net.half()
    assert net.fc.weight.dtype == lib.float16
    net.bfloat16().float()
    assert net.fc.weight.dtype == lib.float32 and net.fc.weight.is_leaf
    net.to("cpu", lib.float64, non_blocking=True)
    assert net.count.dtype == lib.float64
    net.to(lib.zeros(1))
    assert net.fc.weight.dtype == lib.float32
    net.to(device=lib.device("cpu"), dtype=lib.float64).double().cpu()
    assert net.fc.bias.dtype == lib.float64
    conv = lib.nn.Conv2d(3, 4, 3).to(memory_format=lib.channels_last)
    assert conv.weight.is_contiguous(memory_format=lib.channels_last)
    with pytest.raises(TypeError):
        net.to(3.5, banana=1)


def test_gradients_follow_moved_parameters(lib):
    """A gradient has the dtype and shape that its parameter has now."""
    net = lib.nn.Linear(3, 2)
    net(lib.ones(1, 3)).sum().backward()
    net.zero_grad()
    net.double()
    net(lib.ones(1, 3, dtype=lib.float64)).sum().backward()
    assert net.weight.grad.dtype == lib.float64
    p = lib.nn.Parameter(lib.ones(2))
    assert p.is_leaf and p.grad_fn is None
    p.data = lib.ones(3, 2)
    (p * 2).sum().backward()
    assert tuple(p.grad.shape) == (3, 2)


# -- state --------------------------------------------------------------------------------------


def test_state_dict(lib):
    net = net_of(lib)
    state = net.state_dict()
    assert type(state) is OrderedDict
    assert list(state) == [
        "scale", "count", "fc.weight", "fc.bias", "inner.1.weight", "inner.1.bias",
        "inner.1.running_mean", "inner.1.running_var", "inner.1.num_batches_tracked",
    ]
    assert state._metadata["inner.1"] == {"version": 2} and state._metadata[""] == {"version": 1}
    assert not state["scale"].requires_grad and type(state["scale"]) is lib.Tensor
    assert net.state_dict(keep_vars=True)["scale"] is net.scale
    with lib.no_grad():
        net.scale.fill_(5)
    assert state["scale"].tolist() == [5.0]  # shares memory
    mine = OrderedDict()
    net.fc.state_dict(destination=mine, prefix="x.")
    assert list(mine) == ["x.weight", "x.bias"]


def test_load_state_dict_errors():
    """One error names everything, in torch's words."""
    texts = []
    for lib in (arete, torch):
        net = net_of(lib)
        state = net.state_dict()
        del state["fc.bias"], state["count"]
        state["scale"] = lib.zeros(3)
        state["extra.weight"] = state["fc.extra"] = lib.zeros(1)
        state["fc.weight"] = [1, 2]
        texts.append(message(RuntimeError, lambda: net.load_state_dict(state)))
        before = net.fc.weight.detach().clone()
        state["scale"] = lib.zeros(1)
        state["fc.weight"] = before + 1
        result = net.load_state_dict(state, strict=False)
        assert result.missing_keys == ["count", "fc.bias"]
        assert result.unexpected_keys == ["extra.weight", "fc.extra"] or set(
            result.unexpected_keys
        ) == {"extra.weight", "fc.extra"}
        assert (net.fc.weight == before + 1).all()
    clean = [t.replace("arete.Size", "torch.Size") for t in texts]
    assert clean[0] == clean[1]


def test_load_state_dict_forms(lib):
    net, other = net_of(lib), net_of(lib)
    weight = net.fc.weight
    assert str(net.load_state_dict(other.state_dict())) == "<All keys matched successfully>"
    assert net.fc.weight is weight and (weight == other.fc.weight).all()
    state = {k: v.double() if v.is_floating_point() else v for k, v in other.state_dict().items()}
    net.load_state_dict(state)
    assert net.fc.weight.dtype == lib.float32  # converted
    net.load_state_dict(state, assign=True)
    assert net.fc.weight.dtype == lib.float64 and net.fc.weight is not weight
    assert isinstance(net.fc.weight, lib.nn.Parameter) and net.fc.weight.requires_grad
    scalar = lib.nn.Module()
    scalar.p = lib.nn.Parameter(lib.tensor(1.0))
    scalar.load_state_dict({"p": lib.tensor([4.0])})
    assert float(scalar.p) == 4.0
    old = lib.nn.BatchNorm1d(2)
    state = dict(old.state_dict())
    del state["num_batches_tracked"]  # a file of old
    old.load_state_dict(state)


def test_state_hooks_and_extra_state(lib):
    log = []

    class Extra(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = lib.nn.Linear(1, 1)
            self.note = "a"

        def get_extra_state(self):
            return {"note": self.note}

        def set_extra_state(self, state):
            self.note = state["note"]

    net = Extra()
    net.register_state_dict_pre_hook(lambda m, prefix, keep: log.append(("pre", prefix)))
    net.register_state_dict_post_hook(lambda m, state, prefix, meta: state.update(more=1))
    net._register_load_state_dict_pre_hook(lambda state, *rest: state.pop("more", None))
    net.register_load_state_dict_pre_hook(lambda m, state, *rest: log.append(("load", m is net)))
    handle = net.register_load_state_dict_post_hook(lambda m, keys: log.append(keys.missing_keys))
    state = net.state_dict()
    assert list(state) == ["_extra_state", "fc.weight", "fc.bias", "more"]
    state["_extra_state"] = {"note": "b"}
    net.load_state_dict(state)
    assert net.note == "b" and log == [("pre", ""), ("load", True), []]
    handle.remove()
    del state["_extra_state"]
    assert "_extra_state" in message(RuntimeError, lambda: net.load_state_dict(state))


def test_overridden_loading(lib):
    class Old(lib.nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, *args):
            if prefix + "kernel" in state_dict:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel")
            super()._load_from_state_dict(state_dict, prefix, *args)

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "tag"] = 1

    layer = Old(2, 2)
    assert list(layer.state_dict()) == ["weight", "bias", "tag"]
    layer.load_state_dict({"kernel": lib.ones(2, 2), "bias": lib.zeros(2)})
    assert layer.weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]


# -- hooks --------------------------------------------------------------------------------------


def test_forward_hooks(lib):
    net, log = lib.nn.Linear(2, 2), []
    x = lib.ones(1, 2)
    plain = net(x)
    handles = [
        net.register_forward_pre_hook(lambda m, args: log.append("pre")),
        net.register_forward_pre_hook(lambda m, args: (args[0] * 2,), prepend=True),
        net.register_forward_pre_hook(lambda m, a, k: (a, k), with_kwargs=True),
        net.register_forward_hook(lambda m, args, out: log.append(float(args[0].sum()))),
        net.register_forward_hook(lambda m, args, kwargs, out: out + 1, with_kwargs=True),
    ]
    assert_same(net(x), net.forward(2 * x) + 1)
    assert log == ["pre", 4.0]
    for h in handles:
        h.remove()
        h.remove()
    assert_same(net(x), plain)
    assert not net._forward_hooks and not net._forward_hooks_with_kwargs
    with net.register_forward_hook(lambda m, a, o: o * 0):
        assert float(net(x).abs().sum()) == 0
    assert_same(net(x), plain)
    net.register_forward_pre_hook(lambda m, a, k: 3, with_kwargs=True)
    assert "forward pre-hook must return None or a tuple" in message(RuntimeError, lambda: net(x))


def test_always_called_hooks(lib):
    log = []

    class Bad(lib.nn.Module):
        def forward(self, x):
            raise ValueError("bad")

    net = Bad()
    net.register_forward_hook(lambda m, a, o: log.append("normal"))
    net.register_forward_hook(lambda m, a, o: log.append(("always", o)), always_call=True)
    with pytest.raises(ValueError, match="bad"):
        net(1)
    assert log == [("always", None)]


def test_global_hooks(lib):
    from importlib import import_module

    module = import_module(lib.nn.__name__ + ".modules.module")
    net, log = lib.nn.Sequential(lib.nn.ReLU(), lib.nn.Tanh()), []
    a = module.register_module_forward_hook(lambda m, args, out: log.append(type(m).__name__))
    b = module.register_module_forward_pre_hook(lambda m, args: log.append("pre"))
    net(lib.ones(1))
    a.remove(), b.remove()
    net(lib.ones(1))
    assert log == ["pre", "pre", "ReLU", "pre", "Tanh", "Sequential"]
    c = module.register_module_parameter_registration_hook(lambda m, name, p: log.append(name))
    lib.nn.Linear(1, 1)
    c.remove()
    assert log[-2:] == ["weight", "bias"]


def test_backward_hooks(lib):
    net, log = lib.nn.Linear(2, 3, bias=False), []
    net.register_full_backward_pre_hook(lambda m, go: log.append(("pre", len(go))))
    net.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    handle = net.register_full_backward_hook(
        lambda m, gi, go: log.append((gi[0].detach().sum().item(), go[0].sum().item()))
    )
    net.register_full_backward_hook(lambda m, gi, go: (gi[0] * 0 + 1,))
    x = lib.ones(1, 2, requires_grad=True)
    net(x * 1).sum().backward()
    total = 2 * net.weight.detach().sum().item()
    assert log[0] == ("pre", 1) and log[1] == pytest.approx((total, 6.0), rel=1e-5)
    assert x.grad.tolist() == [[1.0, 1.0]]
    assert net.weight.grad.tolist() == [[2.0, 2.0]] * 3
    handle.remove()
    log.clear()
    net(x).sum().backward()
    assert log == [("pre", 1)]


def test_backward_hooks_without_input_gradients(lib):
    net, log = lib.nn.Linear(2, 3), []
    net.register_full_backward_hook(lambda m, gi, go: log.append((gi, go[0].tolist())))
    with pytest.warns(UserWarning, match="since no inputs require gradients"):
        net(lib.ones(1, 2)).sum().backward()
    assert log == [((None,), [[1.0, 1.0, 1.0]])]


def test_backward_hooks_see_zeros_for_inputs_without_gradients(lib):
    net, log = lib.nn.Bilinear(2, 3, 1), []
    net.register_full_backward_hook(lambda m, gi, go: log.append(gi))
    net(lib.ones(4, 2, requires_grad=True), lib.ones(4, 3)).sum().backward()
    assert log[0][1].shape == (4, 3) and not log[0][1].any()


def test_backward_hooks_of_several_tensors(lib):
    log = []

    class Two(lib.nn.Module):
        def forward(self, a, b, n):
            return a * b * n, a + b

    net = Two()
    net.register_full_backward_hook(lambda m, gi, go: log.append((gi, go)))
    a, b = lib.tensor([2.0], requires_grad=True), lib.tensor([3.0], requires_grad=True)
    x, y = net(a, b, 2)
    (x + 10 * y).sum().backward()
    (gi, go), = log
    assert [g if g is None else g.tolist() for g in gi] == [[16.0], [14.0], None]
    assert [g.tolist() for g in go] == [[1.0], [10.0]]


@pytest.mark.parametrize("made", [lambda y: [y], lambda y: {"y": y}])
def test_backward_hooks_of_other_results_warn(lib, made):
    class Net(lib.nn.Linear):
        def forward(self, x):
            return made(super().forward(x))

    net, log = Net(2, 3), []
    net.register_full_backward_hook(lambda m, gi, go: log.append(go))
    with pytest.warns(UserWarning, match="output should be a Tensor or a tuple of Tensors but received <class '(list|dict)'>"):
        y, = net(lib.ones(1, 2, requires_grad=True)).values() if made(0) == {"y": 0} else net(lib.ones(1, 2, requires_grad=True))
    y.sum().backward()
    assert log == [] and net.weight.grad is not None


def test_hooks_survive_copies():
    net = arete_nn.Linear(2, 2)
    net.register_forward_hook(lambda m, a, o: o * 0)
    other = copy.deepcopy(net)
    assert other._hooked and float(other(arete.ones(1, 2)).abs().sum()) == 0
    assert other.weight is not net.weight and other._forward_hooks is not net._forward_hooks


def test_modules_are_freed_and_pickled(lib):
    import weakref

    net = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.BatchNorm1d(2))
    net[0].register_forward_pre_hook(_named_hook)
    ref = weakref.ref(net[0])
    again = pickle.loads(pickle.dumps(net))
    x = lib.ones(3, 2)
    assert_same(again.eval()(x), net.eval()(x))
    assert len(again[0]._forward_pre_hooks) == 1
    del net
    gc.collect()
    assert ref() is None


def _named_hook(module, args):
    return None


def test_call_without_hooks_goes_straight_to_forward():
    net = arete_nn.Identity()
    assert "_hooked" not in net.__dict__
    handle = net.register_forward_hook(lambda m, a, o: None)
    assert net._hooked
    handle.remove()
    assert "_hooked" not in net.__dict__


# -- text ---------------------------------------------------------------------------------------


def test_repr():
    texts = []
    for lib in (arete, torch):
        nn = lib.nn
        net = net_of(lib)
        net.many = nn.ModuleList([nn.Linear(2, 2) for _ in range(4)] + [nn.Sequential(nn.ReLU())])
        net.names = nn.ModuleDict({"a": nn.Tanh()})
        net.none = None
        net.params = nn.ParameterList([lib.zeros(2, 3), nn.Parameter(lib.zeros(4))])
        net.dict = nn.ParameterDict({"b": nn.Parameter(lib.zeros(2)), "a": lib.zeros(1)})
        texts.append(repr(net))
    assert texts[0].replace("arete.", "torch.") == texts[1]


# -- containers ---------------------------------------------------------------------------------


def test_sequential(lib):
    nn = lib.nn
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(net) == 3 and net[-1] is net[2]
    assert type(net[1:]) is nn.Sequential and list(net[1:]._modules) == ["1", "2"]
    net[1] = nn.Tanh()
    assert type(net[1]) is nn.Tanh
    assert net.append(nn.Sigmoid()) is net and len(net) == 4
    net.insert(1, nn.Dropout())
    assert [type(m).__name__ for m in net] == ["Linear", "Dropout", "Tanh", "Linear", "Sigmoid"]
    del net[1]
    assert list(net._modules) == ["0", "1", "2", "3"]
    del net[2:]
    assert len(net) == 2
    net.extend([nn.ReLU(), nn.ReLU()])
    assert type(net.pop(3)) is nn.ReLU and len(net) == 3
    assert len(net + net) == 6 and len(net * 2) == 6 and len(2 * net) == 6
    net *= 2
    assert len(net) == 6
    named = nn.Sequential(OrderedDict([("a", nn.ReLU()), ("b", nn.Tanh())]))
    assert named.b is named[1] and list(named[:1]._modules) == ["a"]
    with pytest.raises(IndexError):
        net[10]


def test_module_list(lib):
    nn = lib.nn
    layers = nn.ModuleList(nn.Linear(1, i + 1) for i in range(3))
    assert len(layers) == 3 and layers[-1].out_features == 3
    assert type(layers[:2]) is nn.ModuleList and len(layers[:2]) == 2
    layers.append(nn.ReLU()).extend([nn.Tanh()])
    layers += [nn.Sigmoid()]
    layers.insert(0, nn.Identity())
    assert [type(m).__name__ for m in layers][0] == "Identity" and len(layers) == 7
    del layers[0]
    layers[0] = nn.GELU()
    assert type(layers.pop(0)) is nn.GELU and list(layers._modules) == list("01234")
    assert len(layers + nn.ModuleList([nn.ReLU()])) == 6
    with pytest.raises(NotImplementedError):
        layers(1)
    with pytest.raises(TypeError):
        layers.extend(3)


def test_module_dict(lib):
    nn = lib.nn
    d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
    d["c"] = nn.GELU()
    assert list(d) == ["a", "b", "c"] and "b" in d and len(d) == 3
    assert type(d.pop("b")) is nn.Tanh
    d.update([("z", nn.ReLU()), ("y", nn.ReLU())])
    d.update(nn.ModuleDict({"x": nn.ReLU()}))
    assert list(d.keys()) == ["a", "c", "z", "y", "x"]
    assert len(list(d.items())) == len(list(d.values())) == 5
    del d["a"]
    d.clear()
    assert len(d) == 0
    with pytest.raises(ValueError):
        d.update([(1, 2, 3)])
    with pytest.raises(TypeError):
        d.update(3)


def test_parameter_containers(lib):
    nn = lib.nn
    many = nn.ParameterList([lib.zeros(2), nn.Parameter(lib.ones(3))])
    many.append(lib.ones(1)).extend([lib.ones(4)])
    assert len(many) == 4 and all(isinstance(p, nn.Parameter) for p in many)
    assert [n for n, _ in many.named_parameters()] == ["0", "1", "2", "3"]
    assert len(many[1:3]) == 2 and many[-1].numel() == 4
    assert all(p.requires_grad for p in many)
    many[0] = lib.ones(7)
    assert many[0].numel() == 7
    d = nn.ParameterDict({"w": nn.Parameter(lib.zeros(2)), "b": nn.Parameter(lib.zeros(1))})
    d["n"] = lib.ones(2)
    assert list(d) == ["b", "w", "n"] or list(d) == ["w", "b", "n"]
    assert "w" in d and len(d) == 3 and isinstance(d["n"], nn.Parameter)
    assert sorted(n for n, _ in d.named_parameters()) == ["b", "n", "w"]
    assert d.get("q") is None and d.pop("n").numel() == 2
    d.setdefault("s", lib.ones(1))
    assert d.popitem()[0] == "s"
    assert len(d | nn.ParameterDict({"k": nn.Parameter(lib.zeros(1))})) == 3
    assert len(d.copy()) == 2 and len(list(d.items())) == len(list(d.values())) == 2
    d.clear()
    assert len(d) == 0
    with pytest.raises(RuntimeError):
        many(1)


def test_weights_from_torch():
    """A network trained a step in both gives the same weights."""
    nets = [net_of(arete), net_of(torch)]
    copy_state(nets[1], nets[0])
    x = values((6, 3), 3)
    for lib, net, to in ((arete, nets[0], ours), (torch, nets[1], theirs)):
        for _ in range(3):
            net.zero_grad()
            net(to(x)).pow(2).sum().backward()
            with lib.no_grad():
                for p in net.parameters():
                    p -= 0.01 * p.grad
    for (name, a), b in zip(nets[0].state_dict().items(), nets[1].state_dict().values()):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


def test_lazy_layers_are_pickled_without_shapes(lib):
    for make in (lambda: lib.nn.LazyLinear(3), lib.nn.LazyBatchNorm1d, lambda: lib.nn.LazyConv1d(2, 1)):
        net = make()
        again = pickle.loads(pickle.dumps(net))
        assert type(again) is type(net) and lib.nn.parameter.is_lazy(again.weight) and again.weight.requires_grad
        assert again(lib.ones(2, 4, 5)).shape[0] == 2 and not lib.nn.parameter.is_lazy(again.weight)
        assert lib.nn.parameter.is_lazy(net.weight)
    buffer = pickle.loads(pickle.dumps(lib.nn.UninitializedBuffer(dtype=lib.float16)))
    buffer.materialize(10)
    assert buffer.shape == (10,) and (lib is not arete or buffer.dtype == lib.float16)  # the other forgets it
    parameter = lib.nn.UninitializedParameter(requires_grad=False)
    parameter.materialize([2, 3])
    assert parameter.shape == (2, 3) and not parameter.requires_grad


def _load_hook(module, *rest):
    module.loads = getattr(module, "loads", 0) + 1


def test_load_hooks_do_not_keep_their_module(lib):
    import weakref

    gc.disable()
    try:
        net = lib.nn.Linear(2, 2)
        net.register_load_state_dict_pre_hook(_load_hook)
        copies = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
        for module in copies:
            module.load_state_dict(net.state_dict())
            assert module.loads == 1 and not hasattr(net, "loads")
        hook = next(iter(net._load_state_dict_pre_hooks.values()))
        ref = weakref.ref(net)
        del net
        assert ref() is None
        with pytest.raises(RuntimeError, match="hook of a dead Module"):
            hook({}, "")
        with pytest.raises(RuntimeError, match="hook of a dead Module"):
            pickle.loads(pickle.dumps(hook))
    finally:
        gc.enable()


def test_handles_know_where_their_hook_is(lib):
    net = lib.nn.Linear(2, 2)
    handle = net.register_forward_hook(_named_hook)
    assert handle.hooks_dict_ref() is net._forward_hooks and list(net._forward_hooks) == [handle.id]


def test_nothing_to_do(lib):
    """Batches without elements, tables without rows."""
    layer = lib.nn.TransformerDecoderLayer(4, 2, 8)
    assert layer(lib.rand(10, 0, 4), lib.rand(3, 0, 4)).shape == (10, 0, 4)
    attention = lib.nn.MultiheadAttention(4, 2, batch_first=True)
    mask = lib.zeros(0, 5, dtype=lib.bool) if lib is arete else None  # the other has no form of masks for them
    assert attention(*[lib.rand(0, 5, 4)] * 3, key_padding_mask=mask, need_weights=False)[0].shape == (0, 5, 4)
    table = lib.nn.Embedding(0, 0, sparse=True)
    table(lib.tensor([], dtype=lib.int64)).sum().backward()
    assert table.weight.grad.shape == (0, 0)
    table = lib.nn.Embedding(3, 2, sparse=True)
    table(lib.tensor(1)).sum().backward()
    assert table.weight.grad.to_dense().tolist() == [[0, 0], [1, 1], [0, 0]]


def test_groups_of_one_value_are_refused(lib):
    for shape, groups in (((1, 10, 1), 10), ((1, 4), 4)):
        with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
            lib.nn.GroupNorm(groups, shape[1])(lib.rand(shape))
        with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
            lib.nn.functional.group_norm(lib.rand(shape), groups)
        assert lib.group_norm(lib.rand(shape), groups).abs().sum() < 1e-3
    assert lib.nn.GroupNorm(4, 4)(lib.rand(2, 4, 1)).abs().sum() < 1e-3
