"""Recorded programs while what they depend on changes: parameters, modes, sizes of 1, values of arguments, names."""
import collections
import copy
import gc
import io
import json
import pickle
import typing
import warnings

import pytest

import arete
import arete.nn.functional as F
from arete import nn
from arete.nn.utils import parametrizations


def reloaded(traced):
    file = io.BytesIO()
    arete.jit.save(traced, file)
    file.seek(0)
    return arete.jit.load(file)


def gradients(f, x):
    """Of the inputs and of the parameters of `f`."""
    x = x.detach().clone().requires_grad_()
    out = f(x)
    loss = sum((k + 1) * t.square().sum() for k, t in enumerate(out if isinstance(out, tuple) else (out,)))
    parameters = [p for p in f.parameters() if p.requires_grad] if isinstance(f, nn.Module) else []
    return arete.autograd.grad(loss, [x, *parameters], materialize_grads=True)


def assert_same_gradients(f, g, x):
    for a, b in zip(gradients(f, x), gradients(g, x), strict=True):
        assert arete.equal(a, b)


# ---- parameters and buffers that are replaced

class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.register_buffer("offset", arete.zeros(3))

    def forward(self, x):
        return self.inner(x) + self.offset


def replace_parameter(net):
    net.inner.weight = nn.Parameter(arete.full((3, 3), 2.0))


def register_parameter(net):
    net.inner.register_parameter("bias", nn.Parameter(arete.full((3,), 2.0)))


def assign_state(net):
    net.load_state_dict({k: arete.full_like(v, 2.0) for k, v in net.state_dict().items()}, assign=True)


def replace_buffer(net):
    net.offset = arete.full((3,), 5.0)


def set_data(net):
    net.inner.weight.data = arete.full((3, 3), 4.0)


REPLACEMENTS = [replace_parameter, register_parameter, assign_state, replace_buffer, set_data]


@pytest.mark.parametrize("make", ["trace", "load", "export"])
@pytest.mark.parametrize("replace", REPLACEMENTS)
def test_a_program_runs_with_what_was_assigned(replace, make):
    net, x = Scale(), arete.randn(2, 3)
    program = arete.jit.trace(net, x) if make != "export" else arete.export.export(net, (x,)).module()
    if make == "load":
        program = reloaded(program)
    net = copy.deepcopy(net)
    replace(net), replace(program)
    assert arete.equal(program(x), net(x))
    assert_same_gradients(net, program, x)
    if make != "export":
        assert arete.equal(reloaded(program)(x), net(x)) and arete.equal(copy.deepcopy(program)(x), net(x))
        assert arete.equal(pickle.loads(pickle.dumps(program))(x), net(x))


def test_a_program_says_what_it_cannot_use():
    net, x = Scale(), arete.randn(2, 3)
    program = arete.jit.trace(net, x)
    old = program.inner.weight
    program.inner.weight = nn.Parameter(arete.ones(4, 3))
    with pytest.raises(RuntimeError, match=r"'inner.weight' was replaced by a tensor that does not fit.*float32\[4, 3\]"):
        program(x)
    program.inner.weight = nn.Parameter(arete.ones(3, 3, dtype=arete.float64))
    with pytest.raises(RuntimeError, match="does not fit"):
        program.save(io.BytesIO())
    del program.inner.weight
    with pytest.raises(RuntimeError, match="needs 'inner.weight', which was taken"):
        program(x)
    program.inner.weight = old
    assert arete.equal(program(x), net(x))
    inner, program.inner = program.inner, nn.Linear(3, 3)
    with pytest.raises(RuntimeError, match="Cannot re-assign modules"):
        program(x)
    program.inner = inner
    parametrizations.weight_norm(program.inner)
    with pytest.raises(RuntimeError, match="needs 'inner.weight'"):
        program(x)
    with pytest.raises(RuntimeError, match="a hook would never run"):
        inner.register_forward_hook(print)
    with pytest.raises(NotImplementedError, match="call the whole"):
        inner(x)
    tied = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    tied[1].weight = tied[0].weight
    program = arete.jit.trace(tied, x)
    program.get_submodule("1").weight = nn.Parameter(arete.ones(3, 3))
    with pytest.raises(RuntimeError, match="'0.weight' and '1.weight' were one tensor"):
        program(x)
    program.get_submodule("0").weight = program.get_submodule("1").weight
    assert arete.equal(program(x), F.linear(F.linear(x, arete.ones(3, 3)), arete.ones(3, 3)))


def test_two_modules_of_one_program_have_their_own_tensors():
    x = arete.ones(1, 3)
    ep = arete.export.export(nn.Linear(3, 3, bias=False), (x,))
    one, two = ep.module(), ep.module()
    one.weight, two.weight = nn.Parameter(arete.ones(3, 3)), nn.Parameter(arete.zeros(3, 3))
    for _ in range(2):
        assert one(x).tolist() == [[3, 3, 3]] and two(x).tolist() == [[0, 0, 0]]
    both = nn.ModuleList([one, nn.Linear(3, 3, bias=False)])
    both[1].weight = one.weight
    twins = copy.deepcopy(both)
    assert twins[0].weight is twins[1].weight and twins[0].weight is not one.weight
    with arete.no_grad():
        twins[1].weight.zero_()
    assert twins[0](x).tolist() == [[0, 0, 0]] and one(x).tolist() == [[3, 3, 3]]


@pytest.mark.parametrize("through", ["original", "scripted"])
@pytest.mark.parametrize("replace", [
    *REPLACEMENTS,
    lambda net: setattr(net, "inner", nn.Linear(3, 3)),
    lambda net: parametrizations.weight_norm(net.inner),
    lambda net: net.inner.weight.requires_grad_(False),
    lambda net: net.inner.register_forward_hook(lambda m, args, out: 3 * out),
    lambda net: net.inner.register_forward_pre_hook(lambda m, args: (3 * args[0],)),
    lambda net: nn.utils.prune.l1_unstructured(net.inner, "weight", 3),
])
def test_a_scripted_module_follows_its_module(replace, through):
    net, x = Scale(), arete.randn(2, 3)
    scripted = arete.jit.script(net)
    assert arete.equal(scripted(x), net(x))
    replace(net if through == "original" else scripted)
    assert arete.equal(scripted(x), net(x)), scripted.code
    assert_same_gradients(net, scripted, x)


def test_a_scripted_function_follows_what_it_sees():
    net, other, x = nn.Linear(3, 3), nn.Linear(3, 3), arete.randn(2, 3)
    w = arete.ones(3)
    f = arete.jit.script(lambda x: net(x) * w)
    assert arete.equal(f(x), net(x) * w)
    w = arete.full((3,), 2.0)
    assert arete.equal(f(x), net(x) * 2)
    net = other
    assert arete.equal(f(x), other(x) * 2)
    net.weight = nn.Parameter(arete.ones(3, 3))
    assert arete.equal(f(x), other(x) * 2)
    g = arete.jit.script(net.forward)
    assert arete.equal(g(x), net(x))
    net.weight = nn.Parameter(arete.zeros(3, 3))
    assert arete.equal(g(x), net(x)) and arete.equal(g(x)[0], net.bias)


def test_attributes_of_scripted_modules():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor, self.shift = 2.0, arete.ones(2)

        def forward(self, x):
            return x * self.factor + self.shift

    net = Net()
    scripted = arete.jit.script(net)
    assert scripted(arete.ones(2)).tolist() == [3, 3]
    scripted.factor = 4.0
    assert scripted(arete.ones(2)).tolist() == [5, 5] and net.factor == 4
    scripted.shift = arete.zeros(2)
    assert scripted(arete.ones(2)).tolist() == [4, 4]
    net.shift = arete.full((2,), 2.0)
    assert scripted(arete.ones(2)).tolist() == [6, 6]
    net.eval()
    assert not scripted.training
    layers = arete.jit.script(nn.Sequential(nn.ReLU(), nn.Tanh()))
    assert len(layers) == 2 and isinstance(layers[1], nn.Tanh) and len(list(layers)) == 2 and layers and scripted


def test_what_is_kept_of_old_parameters():
    net, x = nn.Linear(2, 2), arete.ones(1, 2)
    scripted = arete.jit.script(net)
    for k in range(5):
        net.weight = nn.Parameter(arete.full((2, 2), float(k)))
        assert arete.equal(scripted(x), net(x)) and scripted._scripted.count == 1
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        for k in range(20):
            net.weight = nn.Parameter(arete.full((2, 2), float(k)))
            assert arete.equal(scripted(x), net(x))
    assert len(met) == 1 and "other parameters each time" in str(met[0].message)
    scripted(x)
    assert scripted._scripted.count == 1  # they stay: recorded
    functional = arete.func.functional_call(scripted, {"weight": arete.ones(2, 2), "bias": arete.zeros(2)}, (x,))
    assert functional.tolist() == [[2, 2]] and arete.equal(scripted(x), net(x))
    gc.collect()


def test_replaced_buffers_are_written():
    class Count(nn.Module):
        def __init__(self, shape=()):
            super().__init__()
            self.register_buffer("count", arete.zeros(shape))

        def forward(self, x):
            self.count = self.count + x.sum()
            return x * self.count

    for record in (arete.jit.trace, lambda m, x: arete.jit.script(m), lambda m, x: arete.export.export(m, (x,)).module()):
        net = Count()
        before, twin = net.count, copy.deepcopy(net)
        program = record(net, arete.ones(2))
        assert net.count is before and before.item() == 0
        for x in (arete.ones(2), arete.tensor([1.0, 2.0])):
            assert arete.equal(program(x), twin(x)) and net.count is before and arete.equal(before, twin.count)
    ep = arete.export.export(Count(), (arete.ones(2),))
    assert ep.graph_signature.buffers_to_mutate == {"count": "count"}

    class Grows(Count):
        def forward(self, x):
            self.count = arete.cat([self.count, x])
            return self.count * 1

    net = Grows(1)
    before = net.count
    for record in (arete.jit.trace, lambda m, x: arete.jit.script(m)(x), lambda m, x: arete.export.export(m, (x,))):
        with pytest.raises(NotImplementedError, match="puts another tensor in the place of 'count'"):
            record(net, arete.ones(2))
        assert net.count is before and before.tolist() == [0]


def test_buffers_that_are_made_when_they_are_wanted():
    class Table(nn.Module):
        def forward(self, x):
            if not hasattr(self, "table") or len(self.table) < len(x):
                self.register_buffer("table", arete.arange(float(len(x))), persistent=False)
            return x * self.table[: len(x)]

    for record in (arete.jit.trace, lambda m, x: arete.jit.script(m), lambda m, x: arete.export.export(m, (x,)).module()):
        net = Table()
        program = record(net, arete.ones(4))
        for _ in range(2):
            assert program(arete.ones(4)).tolist() == [0, 1, 2, 3] == net(arete.ones(4)).tolist()
    assert arete.jit.trace(Table(), arete.ones(4))(arete.ones(2)).tolist() == [0, 1]


def test_backward_hooks_are_refused():
    net = nn.Sequential(nn.Linear(2, 2))
    handle = net[0].register_full_backward_hook(lambda *_: None)
    for record in (arete.jit.trace, lambda m, x: arete.jit.script(m)(x), lambda m, x: arete.export.export(m, (x,))):
        with pytest.raises(ValueError, match="Modules that have backward hooks assigned can't be compiled"):
            record(net, arete.ones(1, 2))
    handle.remove()
    arete.jit.trace(net, arete.ones(1, 2))
    lazy = nn.LazyLinear(3)
    with pytest.raises(ValueError, match="call the module once before"):
        arete.jit.trace(lazy, arete.ones(1, 2))
    lazy(arete.ones(1, 2))
    assert arete.jit.trace(lazy, arete.ones(1, 2))(arete.ones(4, 2)).shape == (4, 3)


# ---- modes of gradients

def test_gradients_through_programs_that_were_recorded_without():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            if not arete.is_grad_enabled():
                return x  # of another mode
            return self.a(x) * self.b(x).detach() + x.detach(), x.square()

    net, x = Net(), arete.randn(2, 3)
    scripted = arete.jit.script(net)
    with arete.no_grad():
        assert arete.equal(scripted(x), x)
        assert not scripted(x).requires_grad
    for a, b in zip(scripted(x), net(x)):
        assert arete.equal(a, b) and a.requires_grad == b.requires_grad
    assert_same_gradients(net, scripted, x)
    traced = arete.jit.trace(net, x)  # compared in this mode
    assert arete.equal(traced(x)[0], net(x)[0])


@pytest.mark.parametrize("record", [arete.jit.trace, lambda net, x: arete.export.export(net, (x,)).module()])
def test_programs_recorded_without_gradients_have_some(record):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            with arete.no_grad():
                y = self.a(x)
            h = self.b(x)
            return y * h + h.detach() + x.detach(), self.a(h)

    net, x = Net(), arete.randn(2, 3)
    with arete.no_grad():
        program = record(net, x)
    assert_same_gradients(net, program, x)
    net.b.requires_grad_(False)
    program = record(net, x)
    net.b.requires_grad_(True)
    assert_same_gradients(net, program, x)


def test_inputs_that_want_gradients_have_their_own_programs():
    f = lambda x: x * 2 if x.requires_grad else x * 3  # noqa: E731
    scripted = arete.jit.script(f)
    x = arete.ones(2)
    assert scripted(x).tolist() == [3, 3] and scripted(x.clone().requires_grad_()).tolist() == [2, 2]
    g = arete.jit.script(lambda x: x.detach() * x)
    g(x)
    y = arete.ones(2, requires_grad=True)
    g(y).sum().backward()
    assert y.grad.tolist() == [1, 1]
    traced = arete.jit.trace(f, y)  # compared with inputs like the example's
    assert traced(y).tolist() == [2, 2]
    with arete.inference_mode():
        assert g(x).is_inference()


def test_recording_in_inference_mode():
    net, x = nn.Linear(3, 3), arete.randn(2, 3)
    scripted = arete.jit.script(net)
    with arete.inference_mode():
        for given in (x, x.clone()):
            traced = arete.jit.trace(net, given)
            assert arete.equal(traced(given), net(given)) and arete.equal(scripted(given), net(given))
        exported = arete.export.export(net, (x.clone(),)).module()
    for f in (traced, scripted, exported):
        assert_same_gradients(net, f, x)


def test_inputs_that_are_written_and_have_a_history():
    f = lambda h: h.mul_(3).relu_() * h  # noqa: E731
    x = arete.randn(4, requires_grad=True)
    wanted, = arete.autograd.grad(f(x * 1).sum(), x)
    for g in (arete.jit.script(f), arete.jit.trace(f, x * 1)):
        assert arete.equal(arete.autograd.grad(g(x * 1).sum(), x)[0], wanted)


# ---- sizes of 0 and 1

def by_branch(x):
    return x * 10 if x.shape[0] == 1 else x + 1 if x.shape[0] else x.new_zeros(7)


def by_broadcasting(x, y):
    return (x + y).sum(0) * x.shape[0]


def by_squeezing(x):
    return x.squeeze() * 2


def by_mean(x):
    return x.std(0, correction=0) if len(x) > 1 else arete.zeros(x.shape[1:])


@pytest.mark.parametrize("order", [(3, 1, 0, 4, 1, 2), (1, 3, 0, 1), (0, 2, 1, 5)])
def test_scripted_functions_at_sizes_of_1_and_0(order):
    scripted = {f: arete.jit.script(f) for f in (by_branch, by_squeezing, by_mean)}
    add = arete.jit.script(by_broadcasting)
    for n in order:
        x = arete.randn(n, 4)
        for f, g in scripted.items():
            assert g(x).shape == f(x).shape and arete.equal(g(x), f(x)), (f, n)
        for m in {n, 1}:
            y = arete.randn(m, 4)
            assert arete.equal(add(x, y), by_broadcasting(x, y)) and arete.equal(add(y, x), by_broadcasting(y, x))
    for g in scripted.values():
        assert g._scripted.count <= 3  # sizes of at least 2 share one


def test_traces_of_examples_of_size_1():
    x = arete.randn(1, 4)
    assert arete.equal(arete.jit.trace(by_squeezing, x)(x), by_squeezing(x))
    for f in (by_branch, by_mean):
        traced = arete.jit.trace(f, x)
        assert arete.equal(traced(x), f(x)), traced.code
        with pytest.raises(ValueError, match="equal to 1"):
            traced(arete.randn(3, 4))
    net = nn.Linear(4, 2)
    assert arete.jit.trace(net, x)(arete.ones(5, 4)).shape == (5, 2)  # where nothing is different at 1
    calls = []
    with pytest.raises(RuntimeError, match="differs from the function's"):
        arete.jit.trace(lambda x: x + (calls.append(1) or len(calls)), x)


# ---- arguments by type and value

def test_numbers_are_told_apart_by_their_type():
    def f(x, n):
        return x * (100 if n is True else 10 if type(n) is float else 1) if n else x * 0

    scripted, x = arete.jit.script(f), arete.ones(2)
    for n in (1, True, 1.0, 0, False, 0.0):
        assert arete.equal(scripted(x, n), f(x, n)), n
    for recorded, given in ((1, True), (1, 1.0), (True, 1), (0.0, -0.0), (2, "2")):
        traced = arete.jit.trace(lambda x, n: x * 2, (x, recorded))
        assert traced(x, recorded).tolist() == [2, 2]
        with pytest.raises(TypeError, match=f"argument 'n' is another one than when the program was recorded: {given!r} in place of"):
            traced(x, given)
    traced = arete.jit.trace(lambda x, n: x * 2, (x, float("nan")))
    assert traced(x, float("nan")).tolist() == [2, 2]
    shape = arete.jit.trace(lambda x, s: (x.sum(), s, 1j), (x, x.shape))
    assert shape(x, x.shape)[1:] == ((2,), 1j) and type(shape(x, x.shape)[1]) is arete.Size
    loaded = reloaded(shape)(x, x.shape)
    assert loaded[1:] == ((2,), 1j) and type(loaded[1]) is arete.Size


def test_many_tensors():
    many = [arete.ones(()) for _ in range(1100)]
    traced = arete.jit.trace(lambda xs: xs[0] + xs[-1], (many,), check_trace=False)
    assert traced(many).item() == 2
    with pytest.raises(TypeError, match="argument 'xs' is another one"):
        traced(many[:-1])
    with pytest.raises(TypeError, match="argument 'xs' is another one"):
        traced(many + many)


Point = collections.namedtuple("Point", "x y")


class Named(typing.NamedTuple):
    x: arete.Tensor
    label: str = "none"

    def double(self):
        return self._replace(x=self.x * 2)


def test_named_tuples_keep_their_classes():
    f = lambda p: (p.double(), Point(p.x, None))  # noqa: E731
    given = Named(arete.ones(2), "a")
    for g in (arete.jit.trace(f, (given,)), arete.jit.script(f)):
        for _ in range(2):
            a, b = g(given)
            assert type(a) is Named and type(b) is Point and a.x.tolist() == [2, 2] and a.label == "a"
    loaded = reloaded(arete.jit.trace(f, (given,)))
    a, b = loaded(given)
    assert a._fields == ("x", "label") and type(loaded(given)[0]) is type(a) and a.x.tolist() == [2, 2]
    x = arete.randn(3, 4)
    maximum = arete.jit.trace(lambda x: arete.max(x, 1), x)
    assert type(maximum(x)) is type(arete.max(x, 1)) and arete.equal(maximum(x).indices, x.argmax(1))
    assert arete.equal(reloaded(maximum)(x).values, x.amax(1))


def test_inputs_that_are_written():
    def f(x, ys):
        x.add_(1)
        ys.append(x)
        return ys[0] * 2

    for g in (arete.jit.trace(f, (arete.zeros(2), [arete.ones(2)])), arete.jit.script(f)):
        x, ys = arete.zeros(2), [arete.ones(2)]
        assert g(x, ys).tolist() == [2, 2] and x.tolist() == [1, 1]


# ---- how many programs

def test_scripted_functions_keep_so_many_programs():
    seen = []
    scripted = arete.jit.script(lambda x, n: seen.append(n) or x * n)
    x = arete.ones(2)
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        for n in range(70):
            assert scripted(x, n).tolist() == [n, n]
    assert len(met) == 1 and "has 64 programs" in str(met[0].message) and met[0].filename == __file__
    runs = len(seen)
    assert scripted(x, 10).tolist() == [10, 10] and len(seen) == runs  # programs go on to be used
    assert scripted(x, 69).tolist() == [69, 69] and len(seen) == runs + 1
    for n in range(2, 40):
        scripted(arete.ones(n), 3)
    assert scripted._scripted.count == 64


# ---- names

class Clash(nn.Module):
    def __init__(self):
        super().__init__()
        self.constant_1, self.other = nn.Parameter(arete.ones(1)), [arete.full((), 3.0)]

    def forward(self, x, y):
        return x.sum(1) * self.constant_1, y.view(-1) * self.other[0]


def test_names_that_clash():
    x, y = arete.ones(3, 5), arete.ones(4, 2)
    traced = reloaded(arete.jit.trace(Clash(), (x, y)))
    assert [t.tolist() for t in traced(x, y)] == [[5] * 3, [3] * 8] and list(traced.state_dict()) == ["constant_1"]
    auto = arete.export.Dim.AUTO
    net = nn.Identity()
    net.forward = lambda x, y: (x * 2, y * 3)
    for name in ("s0", "s1", "s2"):
        ep = arete.export.export(net, (x, y), dynamic_shapes=({0: arete.export.Dim(name), 1: auto}, {0: auto}))
        file = io.BytesIO()
        arete.export.save(ep, file)
        file.seek(0)
        out = arete.export.load(file).module()(arete.ones(6, 7), arete.ones(8, 2))
        assert [tuple(t.shape) for t in out] == [(6, 7), (8, 2)] and name in ep.range_constraints
    for name in ("x", "input", "output_0", "return"):
        class Net(nn.Module):
            def forward(self, x):
                return getattr(self, name) * x

        net = Net()
        net.register_parameter(name, nn.Parameter(arete.full((2,), 2.0)))
        assert reloaded(arete.jit.trace(net, arete.ones(2)))(arete.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize("out", [
    {"dtype": "Tensor"}, {"dtype": "_SavedProgram"}, {"dtype": 3}, {"is": [1]}, {"is": {}}, {"is": 1.5}, {"float": 1}, {"float": "x"},
    {"device": "nowhere"}, {"device": 1}, {"tensor": -1}, {"tensor": True}, {"tensor": "0"}, {"tensor": 1}, {"tuple": 3}, {"tuple": "ab"},
    {"tuple": [{"tensor": 0}, {"tensor": 0}]}, {"dict": [[[], {"tensor": 0}]]}, {"dict": [["a"]]}, {}, [], 3, {"tuple": []},
    {"namedtuple": "a b", "fields": ["x"], "items": [{"tensor": 0}]}, {"namedtuple": "P", "fields": ["x", "y"], "items": [{"tensor": 0}]},
    {"namedtuple": "P", "fields": ["import os"], "items": [{"tensor": 0}]}, {"namedtuple": "P", "fields": 3, "items": [{"tensor": 0}]},
])
def test_hostile_results(tmp_path, out):
    traced = arete.jit.trace(lambda x: x + 1, arete.ones(2))
    form = json.loads(traced._recorded.program.metadata()["python"])
    for hostile in ({**form, "out": out}, {**form, "args": [out]}, {**form, "names": "x"}, {**form, "name": 3}, {**form, "kind": None}):
        traced._recorded.program.set_metadata("python", json.dumps(hostile))
        traced._recorded.program.save(str(tmp_path / "p"))
        with pytest.raises(OSError, match="nothing sensible"):
            arete.jit.load(tmp_path / "p")


def test_files_beside_a_program_vanish(tmp_path):
    traced = arete.jit.trace(lambda x: x + 1, arete.ones(2))
    for extra, wanted in (({"note": "text", "empty": ""}, b"text"), (None, b""), ({}, b""), ({"other": b"1"}, b"")):
        file = io.BytesIO()
        arete.jit.save(traced, file, extra)
        file.seek(0)
        found = {"note": None}
        loaded = arete.jit.load(file, _extra_files=found)
        assert found["note"] == wanted
        assert ("note" in str(loaded._recorded.program.metadata())) == (wanted == b"text")
    for hostile in ("[]", "{", '{"note": 3}', '{"note": "!"}'):
        traced._recorded.program.set_metadata("files", hostile)
        traced._recorded.program.save(str(tmp_path / "p"))
        with pytest.raises(OSError, match="nothing sensible"):
            arete.jit.load(tmp_path / "p", _extra_files={"note": ""})


def test_functions_of_programs_are_copied_and_pickled():
    net = nn.Module()
    net.act = arete.jit.trace(F.silu, arete.ones(2))
    net.gate = arete.jit.script(F.silu)
    x = arete.randn(3)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert arete.equal(twin.act(x), F.silu(x)) and arete.equal(twin.gate(x), F.silu(x))
    assert pickle.loads(pickle.dumps(scripted_in_this_module)) is scripted_in_this_module


@arete.jit.script
def scripted_in_this_module(x):
    return x + 1


class WithMethod(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    @arete.jit.script
    def twice(self, x, n: int = 2):
        return self.inner(x) * n

    def forward(self, x):
        return self.twice(x, n=3)


def test_scripted_methods():
    x = arete.ones(1, 2)
    nets = [WithMethod(), WithMethod()]
    for _ in range(2):
        for net in nets:
            assert arete.equal(net(x), net.inner(x) * 3)
    assert "linear" in nets[0].twice.code
    for twin in (copy.deepcopy(nets[0]), pickle.loads(pickle.dumps(nets[0]))):
        with arete.no_grad():
            twin.inner.weight.zero_()
        assert arete.equal(twin(x), twin.inner(x) * 3)
    assert arete.equal(arete.jit.trace(nets[0], x)(x), nets[0](x))
