"""Graphs of programs: recorded, changed, run, written. Run with both libraries."""
import copy
import enum
import functools
import importlib
import operator
import pickle

import pytest
from idiom_helpers import on_the_cpu

import arete


def the_modules(torch):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale = torch.nn.Linear(4, 4), torch.nn.Parameter(torch.full((4,), 2.0))
            self.register_buffer("shift", torch.ones(4))

        def forward(self, x):
            a, b = x.chunk(2, 0)
            z = torch.nn.functional.relu(self.layer(a) + b * self.scale - self.shift, inplace=False)
            return {"z": torch.cat([z, -z, 2**z], dim=1), "n": z.shape[0], "m": z.mean(dim=-1, keepdim=True)[..., 0],
                    "t": z.view(z.size(0), -1).T}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), Block()

        def forward(self, x):
            return self.block(self.first(x).softmax(-1))

    return Net()


def fx_of(torch):
    return importlib.import_module(f"{torch.__name__}.fx")


def equal(torch, a, b):
    return a.keys() == b.keys() and all(torch.equal(torch.as_tensor(a[k]), torch.as_tensor(b[k])) for k in a)


@on_the_cpu
def test_recorded_programs_compute_the_same(torch, device):
    fx, net, x = fx_of(torch), the_modules(torch), torch.randn(4, 4)
    program = fx.symbolic_trace(net)
    nodes = [(n.op, n.name) for n in program.graph.nodes]
    assert nodes[:5] == [("placeholder", "x"), ("call_module", "first_0"), ("call_module", "first_1"), ("call_method", "softmax"),
                         ("call_method", "chunk")]
    assert {n for op, n in nodes if op == "get_attr"} == {"block_scale", "block_shift"} and nodes[-1] == ("output", "output")
    assert {n for op, n in nodes if op == "call_function"} >= {"getitem", "getitem_1", "mul", "relu", "neg", "pow_1", "cat", "getattr_1"}
    for other in (program, copy.deepcopy(program), fx.Transformer(program).transform()):
        assert equal(torch, net(x), other(x)) and list(other.state_dict()) == list(program.state_dict())
    assert equal(torch, net(x), fx.Interpreter(program).run(x))
    program.graph.lint()
    assert dict(net.named_parameters()).keys() == dict(program.named_parameters()).keys()
    program(x)["z"].sum().backward()
    assert program.block.scale is net.block.scale and net.block.scale.grad is not None


def test_pickled():
    import arete

    net, x = the_modules(arete), arete.randn(4, 4)
    again = pickle.loads(pickle.dumps(arete.fx.symbolic_trace(net)))
    assert equal(arete, net(x), again(x)) and again.graph.owning_module is again


@on_the_cpu
def test_changes(torch, device):
    fx, x = fx_of(torch), torch.randn(3)
    program = fx.symbolic_trace(lambda x: torch.relu(x) + torch.exp(x))
    for node in program.graph.nodes:
        if node.target is torch.relu:
            with program.graph.inserting_after(node):
                new = program.graph.call_function(torch.sigmoid, node.args)
            node.replace_all_uses_with(new)
            program.graph.erase_node(node)
    assert not torch.equal(program(x), torch.sigmoid(x) + torch.exp(x))  # not yet
    program.recompile()
    assert torch.equal(program(x), torch.sigmoid(x) + torch.exp(x)) and "sigmoid" in program.code

    graph = fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b", default_value=2.0)
    unused = graph.call_function(torch.exp, (a,))
    total = graph.call_function(operator.mul, (a, b))
    graph.output((total, [b]))
    with pytest.raises(RuntimeError, match="still had 2 users"):
        graph.erase_node(a)
    assert a.users == {unused: None, total: None} and total.all_input_nodes == [a, b]
    graph.eliminate_dead_code()
    assert unused not in graph.nodes and [n.name for n in reversed(graph.nodes)] == ["output", "mul", "b", "a"]
    made = fx.GraphModule(torch.nn.Module(), graph)
    assert made(torch.tensor(3.0)) == (6.0, [2.0])
    total.prepend(graph.output_node())
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        graph.lint()


@on_the_cpu
def test_what_cannot_be_recorded(torch, device):
    fx = fx_of(torch)
    for wrong, error in ((lambda x: x if x.sum() > 0 else -x, "cannot be used as inputs to control flow"),
                         (lambda x: [y for y in x], "cannot be iterated"), (lambda x: len(x), "'len' is not supported")):
        with pytest.raises((ValueError, RuntimeError), match=error):
            fx.symbolic_trace(wrong)
    assert torch.nn.Linear(1, 1)(torch.ones(1)).shape == (1,)  # calls of modules are as before


@on_the_cpu
def test_parameters_stay_parameters(torch, device):
    fx = fx_of(torch)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b, self.l = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.zeros(2)), torch.nn.Linear(2, 2)

        def forward(self, x):
            return torch.nn.functional.linear(x + self.w * 2, self.l.weight.t(), self.l.bias + self.b) + one

    class Sized(Net):
        def forward(self, x):
            w = self.l.weight
            return x * (w.shape[0] + w.size()[1] + w.numel() + 1) + w if w.dim() == w.ndim == 2 else x

    one, net, x = torch.ones(2), Net(), torch.ones(1, 2)
    program = fx.symbolic_trace(net)
    assert dict(program.named_parameters()).keys() == dict(net.named_parameters()).keys()
    with torch.no_grad():
        net.w += 1
        net.b += 1
    assert torch.equal(program(x), net(x)) and torch.equal(copy.deepcopy(program)(x), net(x))
    program(x).sum().backward()
    assert net.w.grad is not None and net.l.weight.grad is not None
    assert torch.equal(fx.GraphModule(net, fx.Tracer().trace(net))(x), net(x))
    sized = fx.Tracer(param_shapes_constant=True).trace(Sized())
    assert [n.args for n in sized.nodes if n.target is operator.mul][0][1] == 9
    assert [name for name, _ in program.named_buffers()] == ["_tensor_constant0"]
    if torch.__name__ == "arete":  # PyTorch puts it there
        assert not hasattr(net, "_tensor_constant0")
        assert torch.equal(fx.Transformer(program).transform()(x), net(x))


@on_the_cpu
def test_concrete_arguments(torch, device):
    fx, x = fx_of(torch), torch.zeros(1)
    program = fx.symbolic_trace(lambda x, flag, other=None: torch.exp(x) if flag and other is None else x,
                                concrete_args={"x": fx.PH, "flag": True, "other": None})
    with pytest.raises(AssertionError, match="other has been specialized to have value None"):
        program(x, True, 1)
    program.graph.eliminate_dead_code()
    program.recompile()
    assert [n.name for n in program.graph.nodes if n.op == "placeholder"] == ["x_1", "flag_1", "other_1"]
    assert program(x, True) == program(x, True, None) == 1
    with pytest.raises(AssertionError, match="flag has been specialized to have value True but got another value"):
        program(x, False)


@on_the_cpu
def test_functions_of_math(torch, device):
    import math

    fx, scope = fx_of(torch), {}
    exec("import math\nfrom math import sqrt\ndef program(q):\n    return q * sqrt(q.size(-1)) + math.floor(q.size(0) / 2)", scope)
    program = fx.symbolic_trace(scope["program"])
    assert {n.target for n in program.graph.nodes if n.op == "call_function"} >= {math.sqrt, math.floor}
    for q in (torch.ones(2, 4), torch.ones(6, 9)):
        assert torch.equal(program(q), scope["program"](q))
    assert scope["sqrt"] is math.sqrt and math.sqrt(4) == 2


class Kind(enum.IntEnum):
    FIRST = 1


class Named(importlib.import_module("arete").fx.GraphModule):
    pass


def test_written_constants_and_classes():
    import arete

    values = (Kind.FIRST, complex("inf"), -1.5, float("nan"), "text", {"a": [Kind.FIRST]})

    def function(x, *given):
        return given

    graph = arete.fx.Graph()
    graph.output(graph.call_function(function, (graph.placeholder("x"), *values)))
    program = Named(arete.nn.Module(), graph)
    assert repr(program(1)) == repr(values)
    called = arete.fx.Graph()
    called.output(called.call_function(functools.partial(max, 2), (called.placeholder("x"),)))
    program = Named(arete.nn.Module(), called, "Other")
    assert program(1) == 2
    for again in (copy.deepcopy(program), copy.copy(program), pickle.loads(pickle.dumps(program))):
        assert isinstance(again, Named) and type(again).__name__ == "Other" and again(3) == 3


@on_the_cpu
def test_own_tracers_and_wrapped_functions(torch, device):
    fx = fx_of(torch)
    scope = {"__name__": "somewhere", "fx": fx}
    exec("""
def clever(x):
    return x + (1 if x.sum() > 0 else 2)

fx.wrap("clever")

def program(x):
    return clever(x) * 2
""", scope)
    program = fx.symbolic_trace(scope["program"])
    assert [n.target for n in program.graph.nodes if n.op == "call_function"] == [scope["clever"], operator.mul]
    assert program(torch.ones(1)) == 4 and program(-torch.ones(1)) == 2 and scope["program"](torch.ones(1)) == 4

    class Whole(fx.Tracer):
        def is_leaf_module(self, m, name):
            return name == "block"

    net = the_modules(torch)
    graph = Whole().trace(net)
    assert [n.target for n in graph.nodes if n.op == "call_module"] == ["block"]
    assert equal(torch, fx.GraphModule(net, graph)(torch.ones(2, 4)), net(torch.ones(2, 4)))
    with pytest.raises(NotImplementedError, match="top level"):
        fx.wrap("clever")


def chain(torch):
    class Chain(torch.nn.Module):
        def forward(self, x):
            return torch.relu(torch.relu(torch.relu(x)))
    return Chain()


def patterns(torch):
    """Modules, patterns, replacements and inputs, how many matches there are, and what is computed then."""
    class Sums(torch.nn.Module):
        def forward(self, x, w1, w2):
            a = torch.cat([torch.neg(w1), w2]).sum()
            b = torch.cat([torch.neg(w1), w2]).sum()
            return x + torch.max(a) + torch.max(b)

    class Shared(torch.nn.Module):
        def forward(self, x):
            y = torch.neg(x)
            return torch.exp(y) + y

    class Layers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.l = torch.nn.Linear(4, 4)
            torch.nn.init.ones_(self.l.weight), torch.nn.init.zeros_(self.l.bias)

        def forward(self, x):
            y = self.l(x).relu() * 2
            y += x
            return y

    class Other(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.k = torch.nn.Softmax(-1)

        def forward(self, x):
            return self.k(x)

    class Two(torch.nn.Module):
        def forward(self, x, y):
            a, b = x + y, x * y
            return a - b

    class Between(torch.nn.Module):
        def forward(self, x, y):
            a = torch.relu(x)
            b = torch.exp(a)  # which comes before the other result
            return b - (x + y)

    class Within(torch.nn.Module):
        def forward(self, x, y):
            return torch.neg(torch.relu(x)) + y

    class Numbers(torch.nn.Module):
        def forward(self, x):
            return torch.add(x, 2) + torch.add(x, 3)

    x = torch.arange(4.0)
    s = torch.sigmoid
    yield (Sums(), lambda a, b: torch.cat([torch.neg(a), b]).sum(), lambda a, b: torch.stack([a, b]), (x, x, x + 1), 2,
           lambda x, a, b: x + 2 * torch.stack([a, b]).max())
    yield chain(torch), lambda x: torch.relu(torch.relu(x)), lambda x: torch.sigmoid(x), (x,), 1, lambda x: torch.relu(s(x))
    yield chain(torch), lambda x: torch.relu(x), lambda x: torch.sigmoid(x), (x,), 3, lambda x: s(s(s(x)))
    yield Shared(), lambda x: torch.exp(torch.neg(x)), lambda x: torch.sigmoid(x), (x,), 0, lambda x: torch.exp(-x) - x
    yield Layers(), lambda a: a * 2, Other(), (x,), 1, lambda x: torch.full((4,), 0.25) + x
    yield Layers(), lambda a, b: a + b, lambda a, b: a - b, (x,), 1, lambda x: 12 - x
    yield Two(), lambda x, y: (x + y, x * y), lambda x, y: (x * 3, y * 3), (x, x + 1), 1, lambda x, y: 3 * x - 3 * y
    yield (Between(), lambda x, y: (torch.relu(x), x + y), lambda x, y: (s(x), x * y), (x, x + 1), 1,
           lambda x, y: torch.exp(s(x)) - x * y)
    yield (Within(), lambda x, y, z: (torch.relu(x), y + z), lambda x, y, z: (s(x), y * z), (x, x + 1), 0,
           lambda x, y: y - torch.relu(x))
    yield Numbers(), lambda x: torch.add(x, 2), lambda x: torch.sub(x, 2), (x,), 1, lambda x: 2 * x + 1
    yield Numbers(), lambda x, k: torch.add(x, k), lambda x, k: torch.sub(x, k), (x,), 2, lambda x: 2 * x - 5


@on_the_cpu
def test_replaced_patterns(torch, device):
    for module, pattern, replacement, inputs, count, expected in patterns(torch):
        program = torch.fx.symbolic_trace(module)
        found = fx_of(torch).replace_pattern(program, pattern, replacement)
        assert len(found) == count
        program.graph.lint()
        assert program(*inputs).tolist() == pytest.approx(expected(*inputs).tolist())


def test_patterns_that_are_no_patterns():
    program = arete.fx.symbolic_trace(chain(arete))
    for pattern, replacement in ((lambda x: x, lambda x: arete.relu(x)), (lambda x: arete.relu(x), lambda x, y: arete.relu(x)),
                                 (lambda x: arete.relu(x), lambda x: (arete.relu(x), x))):
        with pytest.raises(ValueError, match="^replace_pattern: "):
            arete.fx.replace_pattern(program, pattern, replacement)


def test_make_fx():
    from arete.fx.experimental.proxy_tensor import make_fx

    def f(x, y, n):
        z = x.clone()
        z[:, 0] = 0
        z.mul_(2).add_(x)
        values, places = z.max(1)
        first, _ = y.split(2, 1)
        return {"a": (z @ y).relu().sum(1, dtype=arete.float64) * n, "b": [values, places, first.detach()]}, arete.arange(3) + 1

    x, y = arete.randn(2, 4), arete.randn(4, 4)
    traced = make_fx(f)(x, y, 3)
    assert isinstance(traced, arete.fx.GraphModule)
    assert [n.target for n in traced.graph.nodes if n.op == "placeholder"] == ["x_1", "y_1", "n_1"]
    targets = [n.target for n in traced.graph.nodes if n.op == "call_function"]
    assert arete.ops.aten.relu.default in targets and arete.ops.aten.max.dim in targets and arete.ops.aten.mul_.Tensor in targets
    for a in (x, arete.randn(2, 4)):
        arete.testing.assert_close(traced(a, y, 3), f(a, y, 3))
    net = arete.nn.Sequential(arete.nn.Linear(4, 3), arete.nn.BatchNorm1d(3), arete.nn.GELU(), arete.nn.Dropout()).eval()
    module = make_fx(net)(x)
    assert len(list(module.parameters())) == 4
    assert arete.equal(module(x), net(x))
    module(x).sum().backward()
    assert all(p.grad is not None for p in net.parameters())  # they are the module's

    sizes = make_fx(lambda x: x.view(x.shape[0] * x.shape[1]) + 2 * x.shape[0], tracing_mode="symbolic")(x)
    assert arete.ops.aten.sym_size.int in {n.target for n in sizes.graph.nodes}
    assert sizes(arete.zeros(3, 5)).tolist() == [6] * 15

    w = arete.randn(4, 3).requires_grad_()
    traced = make_fx(lambda x, w: arete.autograd.grad((x @ w).sum(), w)[0])(x, w)
    assert arete.equal(traced(x + 1, w), (x + 1).t() @ arete.ones(2, 3))
    for args, options, error, text in (
            ((lambda x: x * x.sum().item(),), {}, ValueError, "looked at on the host"),
            ((lambda x: x,), {"tracing_mode": "odd"}, ValueError, "'odd'"),
            ((lambda x: x, {arete.ops.aten.relu.default: abs}), {}, NotImplementedError, "no table")):
        with pytest.raises(error, match=text):
            make_fx(*args, **options)(x)
    with pytest.raises(TypeError, match="in a tree"):
        make_fx(lambda x: x[0])([x])


def test_shapes_of_values():
    from arete.fx.passes.shape_prop import ShapeProp, TensorMetadata

    program = arete.fx.symbolic_trace(lambda x: (x.to(arete.bfloat16).split(2), x.shape[0])[0][1] + 1)
    y = ShapeProp(program).propagate(arete.ones(4, 3))
    assert y.shape == (2, 3)
    shown = {node.name: node.meta.get("tensor_meta") for node in program.graph.nodes}
    assert shown["x"] == TensorMetadata(arete.Size([4, 3]), arete.float32, False, (3, 1), arete.contiguous_format, False, {})
    assert [t.shape for t in shown["split"]] == [(2, 3), (2, 3)] and shown["add"].dtype is arete.bfloat16
    assert {n.name: n.meta["type"] for n in program.graph.nodes}["split"] is tuple
    pictures = arete.fx.symbolic_trace(arete.nn.Identity())
    ShapeProp(pictures).propagate(arete.ones(1, 2, 3, 3, device="meta").contiguous(memory_format=arete.channels_last))
    assert {n.meta["tensor_meta"].memory_format for n in pictures.graph.nodes} == {arete.channels_last}


@on_the_cpu
def test_graphs_of_exported_programs_name_overloads(torch, device):
    """As PyTorch's do, which passes over graphs compare with."""
    class Net(torch.nn.Module):
        def forward(self, x):
            y = (x * 2 + 1 - x) / 3
            z = torch.where(y > 0, y, 0.0) ** 2 + 2 ** x.clamp(max=1) + y.sum(-1, keepdim=True) + y.mean() + y.mean(0, keepdim=True)
            p, q = z.split(1, -1)
            r, _ = z.split([1, 1], -1)
            z = z.masked_fill(z > 3, 0.0).softmax(-1).transpose(0, 1).flatten() + x.sum() + x.amax()
            z = z + torch.div(p, 2, rounding_mode="floor").sum()
            return z.add_(1).mul_(z), (q >= p).any(), r.unbind(0)[0], x.sort(-1)[0], x[:, 0], x[:, 1:], torch.pow(x, x), x % 2, p == q

    graph = importlib.import_module(f"{torch.__name__}.export").export(Net(), (torch.randn(2, 2),)).graph
    names = [str(n.target) for n in graph.nodes if n.op == "call_function" and "getitem" not in str(n.target)]
    assert names == [f"aten.{n}" for n in (
        "mul.Tensor add.Tensor sub.Tensor div.Tensor gt.Scalar where.ScalarOther pow.Tensor_Scalar clamp.default pow.Scalar add.Tensor "
        "sum.dim_IntList add.Tensor mean.default add.Tensor mean.dim add.Tensor split.Tensor split_with_sizes.default gt.Scalar "
        "masked_fill.Scalar softmax.int transpose.int flatten.using_ints sum.default add.Tensor amax.default add.Tensor div.Tensor_mode "
        "sum.default add.Tensor add_.Tensor mul_.Tensor ge.Tensor any.default unbind.int sort.default select.int slice.Tensor "
        "pow.Tensor_Tensor remainder.Scalar eq.Tensor").split()]


@on_the_cpu
def test_arguments_that_are_any_number(torch, device):
    fx = fx_of(torch)

    class Net(torch.nn.Module):
        def forward(self, x, *args, **kwargs):
            return x + args[0] * args[1] + kwargs["z"]

    one, two, three = torch.ones(1), torch.ones(1) * 2, torch.ones(1) * 3
    program = fx.symbolic_trace(Net())
    assert program(one, two, three, z=one).item() == 8.0 and copy.deepcopy(program)(two, two, three, z=one).item() == 9.0
    several = fx.symbolic_trace(lambda *xs: xs[0] - xs[1])
    assert several(three, one).item() == 2.0 and fx.Interpreter(several).run(three, two).item() == 1.0
    assert [n.target for n in program.graph.nodes if n.op == "placeholder"] == ["x", "*args", "**kwargs"]
    by_position = fx.symbolic_trace(lambda x, *, k: x - k)
    assert by_position(three, k=one).item() == by_position(three, one).item() == 2.0
    with pytest.raises(fx.proxy.TraceError, match="cannot be iterated"):
        fx.symbolic_trace(lambda *xs: [x + 1 for x in xs])


def test_arguments_by_name_behind_defaults():
    """Where the other library makes code that is none."""
    one, two = arete.ones(1), arete.ones(1) * 2
    for f in (lambda x=1, *, k, **kw: x - k, lambda x=1, *rest, k, **kw: x - k, lambda x=1, *, k: x - k):
        assert arete.fx.symbolic_trace(f)(k=two).item() == -1.0 and arete.fx.symbolic_trace(f)(two, k=one).item() == 1.0


@on_the_cpu
def test_graphs_know_annotations_and_lines(torch, device):
    class Lines(fx_of(torch).Tracer):
        record_stack_traces = True

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, k: int = 2):
            return x + k

    nodes = list(Lines().trace(Net()).nodes)
    assert [n.type for n in nodes[:2]] == [torch.Tensor, int]
    assert "test_fx.py" in nodes[2].stack_trace and "return x + k" in nodes[2].stack_trace
    nodes[0].stack_trace = "mine"
    assert nodes[0].meta["stack_trace"] == "mine"


@on_the_cpu
def test_a_sequence_with_a_norm_is_recorded(torch, device):
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.BatchNorm2d(2), torch.nn.ReLU()).eval()
    program = fx_of(torch).symbolic_trace(net)
    assert [n.target for n in program.graph.nodes if n.op == "call_module"] == ["0", "1", "2"]
    assert torch.allclose(program(torch.ones(1, 1, 2, 2)), net(torch.ones(1, 1, 2, 2)))


def test_switches_of_tracers_are_refused():
    class Asserting(arete.fx.Tracer):
        trace_asserts = True

    with pytest.raises(NotImplementedError, match="trace_asserts"):
        Asserting().trace(lambda x: x)
