"""Recorded programs: jit.trace, jit.script, their files, and what runs them."""
import collections
import copy
import io
import json
import os
import pathlib
import pickle
import signal
import subprocess
import warnings
import zipfile

import numpy as np
import pytest

import arete
import arete.nn.functional as F
from arete import nn
from arete._higher_order_ops import while_loop
from arete.fx.experimental.proxy_tensor import make_fx

PROGRAM = pathlib.Path(arete._C.__file__).resolve().parents[2] / "bin" / "arete"


def reloaded(traced):
    file = io.BytesIO()
    arete.jit.save(traced, file)
    file.seek(0)
    return arete.jit.load(file)


def same(a, b):
    if isinstance(a, arete.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and arete.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)):
        return type(a).__name__ == type(b).__name__ and len(a) == len(b) and all(map(same, a, b))
    return a == b


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3),
                                  nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.body(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.position = nn.Embedding(64, 8)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), 2,
                                            enable_nested_tensor=False)
        self.register_buffer("scale", arete.tensor(0.5), persistent=False)

    def forward(self, tokens):
        batch, time = tokens.shape
        x = self.embed(tokens) + self.position(arange_like(tokens, time))
        mask = nn.Transformer.generate_square_subsequent_mask(time)
        y = self.layers(x, mask=mask)
        return (y * self.scale).view(batch * time, 8).sum(-1).reshape(batch, time)


def arange_like(tokens, n):
    return arete.arange(n, device=tokens.device)


class Attention(nn.Module):
    """As many write it."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (p.view(B, T, 3, C // 3).transpose(1, 2) for p in self.qkv(x).split(C, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / (C // 3) ** 0.5)
        att = att.masked_fill(arete.tril(arete.ones(T, T)).view(1, 1, T, T) == 0, float("-inf"))
        return self.out((F.softmax(att, dim=-1) @ v).transpose(1, 2).contiguous().view(B, T, C))


def tokens(batch, time):
    return arete.randint(0, 20, (batch, time))


NETWORKS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)), lambda b: (arete.randn(b, 4),)),
    "convolutions": (Convolutions, lambda b: (arete.randn(b, 3, 12, 12),)),
    "encoder": (Encoder, lambda b: (tokens(b, b + 5),)),
    "attention": (Attention, lambda b: (arete.randn(b, b + 3, 12),)),
    "lstm": (lambda: nn.LSTM(3, 4, 2, bidirectional=True), lambda b: (arete.randn(b + 4, b, 3),)),
    "gru": (lambda: nn.GRU(3, 4, batch_first=True), lambda b: (arete.randn(b, b + 4, 3),)),
    "bilinear": (lambda: nn.Bilinear(3, 4, 5), lambda b: (arete.randn(b, 3), arete.randn(b, 4))),
    "groups": (lambda: nn.Sequential(nn.Conv1d(4, 4, 3, groups=2), nn.GroupNorm(2, 4), nn.PReLU()), lambda b: (arete.randn(b, 4, 9),)),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_with_any_batch(name, training):
    make, example = NETWORKS[name]
    net = make().train(training)
    before = copy.deepcopy(net.state_dict())
    traced = arete.jit.trace(net, example(2))
    assert same(dict(net.state_dict()), dict(before))  # recording wrote nothing
    loaded = reloaded(traced)
    assert list(loaded.state_dict()) == list(net.state_dict()) and loaded.training == training
    for size in (1, 2, 5):
        args = example(size)
        twin = copy.deepcopy(net)
        wanted = net(*args)
        assert same(loaded(*args), wanted), loaded.graph
        assert same(dict(loaded.state_dict()), dict(net.state_dict()))  # running statistics
        # Gradients of inputs and parameters are those of eager code.
        if size == 5:
            again = reloaded(arete.jit.trace(twin, args))
            losses = [sum(t.double().square().sum() for t in arete.utils._pytree.tree_leaves(f(*args))) for f in (twin, again)]
            wanted, got = (arete.autograd.grad(loss, list(m.parameters())) for loss, m in zip(losses, (twin, again)))
            assert all(map(arete.equal, wanted, got))


Pair = collections.namedtuple("Pair", "left right")


def trees(x, pair, scale: float = 2.0, *, flags=None):
    y = x.clone()
    y[0] += 1
    y[:, 1:].mul_(scale)
    y.t_()
    parts = y.detach().chunk(2)
    return {"y": y, "pair": Pair(pair["a"] + 1, [parts[0], x.shape[1]]), 3: None}


def test_trees_views_and_writes_in_place():
    x, pair = arete.randn(2, 4), {"a": arete.ones(3)}
    f = arete.jit.trace(trees, (x, pair))
    assert same(f(x, pair), trees(x, pair)) and same(reloaded(f)(x, pair), trees(x, pair))
    assert f.graph is not None and "mul_" in f.code and f.name == "trees"
    with pytest.raises(TypeError, match="argument 'pair' is another one"):
        f(x, {"b": arete.ones(3)})
    with pytest.raises(TypeError, match="missing argument 'pair'"):
        f(x)
    with pytest.raises(TypeError, match="recorded with 2 arguments"):
        f(x, pair, 2.0)
    f = arete.jit.trace(trees, (x, pair), example_kwarg_inputs={"scale": 3.0})
    assert same(f(x, pair, scale=3.0), trees(x, pair, 3.0)) and same(f(x, pair, 3.0), trees(x, pair, 3.0))
    with pytest.raises(TypeError, match="4.0 in place of 3.0"):
        f(x, pair, scale=4.0)


def written_afterwards(x):
    y = x.contiguous()
    x.mul_(2)
    y[0] += 1
    return y, x


COPIES = {"contiguous": lambda x: x.contiguous().view(-1), "reshape": lambda x: x.reshape(-1), "flatten": lambda x: x.flatten(),
          "to": lambda x: x.to(x.dtype, memory_format=arete.contiguous_format).view(-1),
          "channels_last": lambda x: x.contiguous(memory_format=arete.channels_last).permute(0, 2, 3, 1).view(-1),
          "transposed": lambda x: x.transpose(1, 2).contiguous().view(-1), "sizes": lambda x: x.contiguous().view_as(x).expand(x.shape),
          "written": written_afterwards}


@pytest.mark.parametrize("name", COPIES)
def test_copies_that_are_none_with_what_was_recorded(name):
    f = COPIES[name]
    plain = arete.randn(2, 3, 4, 5)
    given = [plain, plain.clone(memory_format=arete.channels_last), plain.transpose(1, 2).clone().transpose(1, 2)]

    class Net(nn.Module):
        def forward(self, x):
            return f(x)

    for k, example in enumerate(given):
        traced = arete.jit.trace(f, example)
        ep = arete.export.export(Net(), (example,))
        for run in (traced, reloaded(traced), ep.module(), ep.run_decompositions().module(), make_fx(f)(example)):
            for x in given:
                results = [(*arete.utils._pytree.tree_leaves(g(y)), y) for g in (f, run) for y in [x.clone()]]
                for wanted, got in zip(*results, strict=True):
                    assert same(wanted, got) and wanted.stride() == got.stride(), (k, traced.graph)


def test_sizes_of_one_and_others_are_one_program():
    f = lambda x: x.t().contiguous().view(-1)  # noqa: E731, contiguous() gives what it gets where a size is 1
    traced = arete.jit.trace(f, arete.ones(3, 1))
    for x in (arete.randn(3, 1), arete.randn(1, 4), arete.randn(5, 4), arete.randn(4, 5).t()):
        assert same(traced(x), f(x))


def test_dtypes_that_are_asked_for_hold_under_autocast():
    net = nn.Linear(4, 4)
    f = lambda x: net(x).to(arete.float32)  # noqa: E731
    x = arete.randn(2, 4)
    traced = arete.jit.trace(f, x)
    with arete.autocast("cpu", dtype=arete.bfloat16):
        assert same(traced(x), f(x)) and traced(x).dtype == arete.float32
    x.requires_grad_()
    wanted, got = (arete.autograd.grad(g(x).sum(), [x, net.weight]) for g in (f, traced))
    assert all(map(arete.equal, wanted, got))
    assert traced.code.count("to(") == 1 and "to(" not in arete.jit.trace(lambda x: x.to(x.device) + 1, x.detach()).code


def test_graphs_name_copies_as_torch_does():
    graph = make_fx(lambda x: x.double().clone().t().contiguous().to(arete.float64))(arete.ones(2, 3))
    aten = arete.ops.aten
    assert [n.target for n in graph.graph.nodes if n.op == "call_function"] == [
        aten._to_copy.default, aten.clone.default, aten.t.default, aten.contiguous.default, aten.to.dtype]
    assert "aten._to_copy.default(x_1, dtype=arete.float64)" in graph.code
    last = make_fx(lambda x: x.contiguous(memory_format=arete.channels_last))(arete.ones(1, 2, 3, 4))
    assert "memory_format=arete.channels_last)" in last.code and last(arete.ones(1, 2, 3, 4)).stride() == (24, 1, 8, 2)


def test_files_with_former_names_of_operators(tmp_path):
    f = arete.jit.trace(lambda x: (x.clamp(min=-0.5), x.clone().clamp_(max=0.5)), arete.ones(3))
    f.save(tmp_path / "new")
    with zipfile.ZipFile(tmp_path / "new") as file:
        entries = {name: file.read(name) for name in file.namelist()}
    program = json.loads(entries["program.json"])
    # As they were saved when each limit was an operator.
    program["schemas"].update({f"clamp_{limit}": f"clamp_{limit}(Tensor self, Scalar {limit}) -> Tensor" for limit in ("min", "max")})
    del program["schemas"]["clamp"]
    for call in program["calls"]:
        if call.get("op") == "clamp":
            limit = "max" if call.get("form") == "in_place" else "min"
            tensor, *limits = call["args"]
            call.update(op=f"clamp_{limit}", args=[tensor, limits[limit == "max"]])
    with zipfile.ZipFile(tmp_path / "old", "w") as file:
        for name, data in entries.items():
            file.writestr(name, json.dumps(program) if name == "program.json" else data)
    old, x = arete.jit.load(tmp_path / "old"), arete.tensor([-1.0, 0.25, 1.0])
    assert same(old(x), f(x)) and old(x)[0].tolist() == [-0.5, 0.25, 1.0]
    assert same(reloaded(old)(x), f(x)) and "clamp_min" not in old.code


def test_inputs_by_name():
    f = arete.jit.trace(lambda a, b: a - b, (arete.ones(2), arete.ones(2)))
    assert f(b=arete.ones(2), a=arete.zeros(2)).tolist() == [-1, -1]
    assert str(f.graph).startswith("program(%a: float32[s0], %b: float32[s0])")


def test_values_are_not_looked_at():
    def branch(x):
        if x.sum() > 0:  # here
            return x
        return -x

    with pytest.raises(ValueError, match=r"looked at on the host.*test_saved_programs.py:\d+ in branch"):
        arete.jit.trace(branch, arete.ones(2))
    for look in (lambda x: x * float(x.sum()), lambda x: x * x.numpy().sum(), lambda x: x * x.tolist()[0], lambda x: print(x) or x):
        with pytest.raises(ValueError, match="looked at"):
            arete.jit.trace(look, arete.ones(2))
    # Numbers of tensors that no input decides are numbers.
    assert arete.jit.trace(lambda x: x * float(arete.arange(4).sum()), arete.ones(2))(arete.ones(2)).tolist() == [6, 6]


def test_masks_are_looked_at_when_the_program_runs():
    def f(x):
        y = x.clone()
        y[x < 0] = 0
        return x[x > 0], x[:, x[0] > 0], y

    xs = [arete.tensor([[-1.5, 0.25, 2.0, -0.75], [0.5, -2.25, 1.0, 3.0], [1.25, -0.5, 0.125, -3.0]])]
    xs += [xs[0].flip(1), xs[0].abs(), -xs[0].abs()]
    class Net(nn.Module):
        def forward(self, x):
            return f(x)

    for program in (arete.jit.trace(f, xs[0]), arete.export.export(Net(), (xs[0],)).module()):
        for x in xs:
            for got, wanted in zip(program(x), f(x), strict=True):
                assert arete.equal(got, wanted)


def test_a_number_where_a_mask_holds_needs_no_look_at_the_mask():
    def f(x):
        y = x * 1
        y[x < 0] = 0
        y[y > 2] = 2.5
        return y

    x = 3 * arete.randn(4, 5)
    assert arete.equal(arete.compile(f, fullgraph=True)(x), f(x)) and arete.equal(f(x), x.clamp(min=0).masked_fill(x > 2, 2.5))
    assert arete.jit.trace(f, x).code.count("masked_fill_") == 2
    for bad in (1j, "a"):
        with pytest.raises((ValueError, TypeError)):
            x[x > 0] = bad
    whole = arete.arange(3)
    whole[whole > 0] = 2.9  # as a tensor of that dtype has it
    assert whole.tolist() == [0, 2, 2]


def test_sizes_that_cannot_differ_are_fixed():
    def loop(x):
        for row in x:
            x = x + row.sum()
        return x

    f = arete.jit.trace(loop, arete.ones(3, 2))
    assert same(f(arete.ones(3, 5)), loop(arete.ones(3, 5)))
    with pytest.raises(ValueError, match="Expected input 'x' at dimension 0 to be equal to 3, but got 4"):
        f(arete.ones(4, 2))
    with pytest.raises(TypeError, match="to be of dtype float32, but got int64"):
        f(arete.ones(3, 2, dtype=arete.int64))
    fixed = arete.jit.trace(lambda x: x + 1, arete.ones(3), check_trace=False)
    with pytest.raises(ValueError, match="equal to 3"):
        fixed(arete.ones(4))


def test_random_numbers_are_drawn_anew():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    arete.manual_seed(1)
    state = arete.get_rng_state()
    traced = reloaded(arete.jit.trace(net, arete.ones(2, 4)))
    assert arete.equal(arete.get_rng_state(), state)
    x = arete.ones(3, 4)
    arete.manual_seed(5)
    wanted = [net(x), net(x)]
    arete.manual_seed(5)
    assert same([traced(x), traced(x)], wanted)
    with pytest.raises(NotImplementedError, match="a generator cannot be part of a program"):
        g = arete.Generator()
        arete.jit.trace(lambda x: x + arete.rand(2, generator=g), arete.ones(2))


def test_modes_inside():
    net = nn.Linear(4, 4)

    def f(x):
        with arete.no_grad():
            a = net(x)
        with arete.autocast("cpu", dtype=arete.bfloat16):
            b = net(x)
            c = F.scaled_dot_product_attention(x, x, x)
        return a, b, c, net(x).detach()

    x = arete.randn(1, 2, 4)
    wanted, got = f(x), reloaded(arete.jit.trace(f, x))(x)
    assert same(got, wanted)
    assert [t.requires_grad for t in got[:2]] == [False, True] and not got[3].requires_grad
    # A region around recording is part of it.
    with arete.autocast("cpu", dtype=arete.bfloat16):
        traced = arete.jit.trace(net, x)
    assert traced(x).dtype == arete.bfloat16
    assert "to_copy" in traced.code


def test_custom_functions_have_no_gradient():
    class Twice(arete.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 3 * g

    f = arete.jit.trace(Twice.apply, arete.ones(2))
    assert f(arete.ones(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="the backward function of 'Twice' is no part of the program"):
        f(arete.ones(2, requires_grad=True))
    with arete.no_grad():
        assert f(arete.ones(2, requires_grad=True)).tolist() == [2, 2]


def test_what_cannot_be_recorded_says_so():
    net, x = nn.Linear(2, 2), arete.ones(1, 2)
    opt = arete.optim.SGD(net.parameters(), 0.1)

    def step(x):
        net(x).sum().backward()
        opt.step()
        return x

    weight = net.weight.detach().clone()
    with pytest.raises(NotImplementedError):
        arete.jit.trace(step, x)
    with pytest.raises(TypeError, match="no builtins.set"):
        arete.jit.trace(lambda x: {x}, x)
    with pytest.raises(TypeError, match="is traced, not int"):
        arete.jit.trace(3, x)
    assert arete.jit.trace(lambda x: {"a": [x]}, x, strict=False)(x)["a"][0] is x
    with pytest.raises(NotImplementedError):
        arete.jit.trace(net, x, optimize=True)
    with pytest.raises(RuntimeError, match="must be given"):
        arete.jit.trace(net)
    assert net.weight.shape == weight.shape


def test_a_function_that_is_not_the_same_each_time():
    calls = []

    def f(x):
        calls.append(1)
        return x + len(calls)

    with pytest.raises(RuntimeError, match="differs from the function's"):
        arete.jit.trace(f, arete.ones(2))
    g = arete.jit.trace(lambda x: x.exp(), arete.ones(2), check_inputs=[(arete.zeros(4),)])
    assert g(arete.zeros(1)).item() == 1


def test_the_module_of_a_program():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    traced = arete.jit.trace(net, arete.ones(4, 2))
    x = arete.randn(3, 2)
    assert [n for n, _ in traced.named_parameters()] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert traced.eval() is traced
    with pytest.raises(RuntimeError, match="recorded in evaluation mode and cannot be switched to training mode"):
        traced.train()
    with pytest.raises(RuntimeError, match="dtypes of a recorded program are fixed"):
        traced.half()
    with arete.no_grad():
        traced.get_parameter("0.weight").zero_()  # shared
    assert net[0].weight.abs().sum() == 0 and same(traced(x), net(x))
    twin = copy.deepcopy(traced)
    twin.load_state_dict({k: v + 1 for k, v in twin.state_dict().items()})
    assert not same(twin(x), traced(x)) and same(pickle.loads(pickle.dumps(twin))(x), twin(x))
    frozen = arete.jit.optimize_for_inference(arete.jit.freeze(traced))
    assert len(frozen.state_dict()) == 0 and same(frozen(x), traced(x).detach()) and not frozen(x).requires_grad
    assert same(traced.to("cpu")(x), net(x))
    opt = arete.optim.SGD(twin.parameters(), 1e-5)
    before = twin(x).square().sum()
    before.backward()
    opt.step()
    assert twin(x).square().sum() < before


def test_tied_weights_and_shared_modules():
    net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    net[1].weight = net[0].weight
    traced = reloaded(arete.jit.trace(net, arete.zeros(2, dtype=arete.int64)))
    assert list(traced.state_dict()) == ["0.weight", "1.weight"]
    assert traced.get_parameter("0.weight") is traced.get_parameter("1.weight") and len(list(traced.parameters())) == 1


def test_programs_inside_programs_and_compiled():
    inner = arete.jit.trace(lambda x: x.exp() + 1, arete.ones(2))
    outer = arete.jit.trace(lambda x: inner(x) * inner(x + 1), arete.ones(2))
    x = arete.randn(5)
    assert same(outer(x), (x.exp() + 1) * ((x + 1).exp() + 1))
    compiled = arete.compile(outer, options={"exact": True})
    assert same([compiled(x) for _ in range(3)], [outer(x)] * 3)


@pytest.mark.parametrize("where", ["path", "file"])
def test_files(tmp_path, where):
    traced = arete.jit.trace(nn.Linear(2, 2), arete.ones(1, 2))
    path = tmp_path / "net.arete"
    if where == "path":
        traced.save(path, {"note": "text", "data": b"\0\1"})
    else:
        with open(path, "wb") as f:
            arete.jit.save(traced, f, {"note": "text", "data": b"\0\1"})
    extra = {"note": "", "data": "", "none": ""}
    loaded = arete.jit.load(path, map_location="cpu", _extra_files=extra)
    assert extra == {"note": b"text", "data": b"\0\1", "none": b""}
    assert same(loaded(arete.ones(3, 2)), traced(arete.ones(3, 2)))
    data = path.read_bytes()
    for wrong in (b"", data[: len(data) // 2], data.replace(b'"format"', b'"farmot"')):
        path.write_bytes(wrong)
        with pytest.raises(OSError):
            arete.jit.load(path)
    with pytest.raises(TypeError):
        arete.jit.load(3)
    with pytest.raises(TypeError):
        arete.jit.save(nn.Linear(2, 2), path)


def test_hostile_arguments(tmp_path):
    f = arete.jit.trace(lambda x: x + 1, arete.ones(2))
    for form in ("{", "[]", '{"args": [{"tensor": 7}], "kwargs": [], "names": ["x"], "kind": "function", "out": {"tensor": 0}}',
                 '{"args": [{"tensor": 0}], "kwargs": [], "names": [], "kind": "function", "out": {"tensor": 0}}',
                 '{"args": [{"tensor": 0}], "kwargs": [], "names": ["x"], "kind": "function", "out": {"evil": 0}}'):
        f._recorded.program.set_metadata("python", form)
        f._recorded.program.save(str(tmp_path / "p"))
        with pytest.raises(OSError):
            arete.jit.load(tmp_path / "p")


def test_hostile_branches(tmp_path):
    def f(x):
        y = arete.cond(x.sum() > 0, lambda: x.sin(), lambda: x.cos() + 1)
        return while_loop(lambda y: y.sum() < 9, lambda y: (y * 2,), (y,))[0]

    arete.jit.trace(f, arete.ones(2)).save(tmp_path / "p")
    with zipfile.ZipFile(tmp_path / "p") as file:
        entries = {name: file.read(name) for name in file.namelist()}
    program = json.loads(entries["program.json"])
    calls = program["calls"]
    assert program["format"] == 2
    place = {c.get("form", c.get("op")): k for k, c in enumerate(calls)}
    inner = program["calls"][place["otherwise"]]["args"][0]["tensors"][0]

    def changed(change):
        new = copy.deepcopy(program)
        change(new["calls"])
        with zipfile.ZipFile(tmp_path / "q", "w") as file:
            for name, data in entries.items():
                file.writestr(name, json.dumps(new) if name == "program.json" else data)
        return arete.jit.load(tmp_path / "q")

    x = arete.ones(2)
    assert same(changed(lambda calls: None)(x), f(x))
    for wrong in (lambda c: c.pop(place["branch"]), lambda c: c.pop(place["otherwise"]), lambda c: c.pop(place["repeat"]),
                  lambda c: c.append({"form": "branch", "args": [{"tensor": 1}]}),
                  lambda c: c.append({"form": "detach", "args": [{"tensor": inner}], "results": c[place["join"]]["results"]}),
                  lambda c: c[place["join"]]["args"][0]["tensors"].append(0), lambda c: c[place["repeat"]]["args"][0]["tensors"].clear(),
                  lambda c: c[place["branch"]].update(args=[{"tensors": [0]}]), lambda c: c[place["join"]].pop("results"),
                  lambda c: c[place["test"]].update(form="jump")):
        with pytest.raises(OSError):
            changed(wrong)
    with pytest.raises(ValueError, match="a tensor of one bool"):
        changed(lambda c: c[place["branch"]].update(args=[{"tensor": 0}]))(x)


@pytest.mark.skipif(not PROGRAM.exists(), reason="the program arete is not built")
def test_the_command_line_runs_programs(tmp_path):
    net = Convolutions().eval()
    arete.jit.save(arete.jit.trace(net, arete.randn(1, 3, 12, 12)), tmp_path / "net.arete")
    x = arete.randn(4, 3, 12, 12)
    np.save(tmp_path / "x.npy", x.numpy())
    run = lambda *more: subprocess.run([PROGRAM, "run-program", "net.arete", *more], cwd=tmp_path, capture_output=True,  # noqa: E731
                                       text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    done = run("--input", "x.npy", "--output", "y.npy", "--repeat", "3")
    assert done.returncode == 0, done.stderr
    assert arete.equal(arete.from_numpy(np.load(tmp_path / "y.npy")), net(x).detach())
    assert "input  x            float32[s0, 3, s1, s2]" in done.stdout and "in the median of 2" in done.stdout
    assert "tensor(" in run("--input", "x.npy").stdout
    assert "has 1 inputs, but 0 files" in run().stderr
    assert run("--input", "none.npy").returncode == 1


# ---- jit.script

def test_script_records_what_it_is_called_with():
    seen = []

    @arete.jit.script
    def f(x, n: int = 2):
        seen.append(n)
        for _ in range(n):
            x = x * 2
        return x

    with pytest.raises(RuntimeError, match="it was not"):
        f.graph  # noqa: B018
    assert f(arete.ones(2)).tolist() == [4, 4]
    runs = len(seen)
    assert f(arete.ones(7)).tolist() == [4] * 7 and len(seen) == runs  # the program ran
    assert f(arete.ones(2), 3).tolist() == [8, 8] and f(arete.ones(2, dtype=arete.int64)).dtype == arete.int64
    assert f.__name__ == "f" and same(reloaded(f)(arete.ones(2, dtype=arete.int64)), f(arete.ones(2, dtype=arete.int64)))


def test_script_of_modules():
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    net.note = "mine"
    scripted = arete.jit.script(net)
    assert list(scripted.state_dict()) == list(net.state_dict()) and scripted.note == "mine"
    assert scripted.original_name == "Sequential" and isinstance(scripted, arete.jit.ScriptModule)
    x = arete.ones(2, 3)
    scripted.eval()
    assert not net.training and same(scripted(x), net(x)) and "training=False" in scripted.code
    scripted.train()
    assert (scripted(arete.ones(50, 3)) == 0).any()
    assert reloaded(scripted).training
    scripted.double()
    assert scripted(x.double()).dtype == arete.float64
    assert same(copy.deepcopy(scripted).eval()(x.double()), net.eval()(x.double()))
    frozen = arete.jit.freeze(scripted.eval())  # it was recorded in training mode alone
    with pytest.raises(RuntimeError, match="not since its mode"):
        frozen.code  # noqa: B018
    wanted = scripted(x.double())
    assert same(frozen(x.double()), wanted.detach()) and same(arete.jit.freeze(scripted)(x.double()), wanted.detach())


def test_modules_are_frozen_before_they_are_called(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.version = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), 3

        def forward(self, x):
            return self.body(x) * self.version

        def halves(self, x):
            return self.forward(x) / 2

    net, x = Net().eval(), arete.randn(4, 2)
    wanted = net(x).detach()
    frozen = arete.jit.freeze(arete.jit.script(net), preserved_attrs=["version", "halves"])
    assert not list(frozen.state_dict()) and not list(frozen.parameters()) and frozen.version == 3
    with arete.no_grad():
        net.body[0].weight.zero_()
    assert same(frozen(x), wanted) and same(frozen.halves(x), wanted / 2) and not frozen(x).requires_grad
    assert arete.jit.optimize_for_inference(frozen, ["halves"]) is frozen
    with pytest.raises(AttributeError, match="has not kept"):
        arete.jit.optimize_for_inference(frozen, ["body"])
    assert not hasattr(frozen, "body") and len(frozen(x[:1])) == 1
    frozen.save(tmp_path / "net")
    for again in (arete.jit.load(tmp_path / "net"), copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert same(again(x[:1]), frozen(x[:1]))
    assert frozen.double()(x.double()).dtype == arete.float64
    called = arete.jit.script(net)
    called(x)
    assert "batch_norm" in arete.jit.optimize_for_inference(called).code


def test_script_refuses_branches_on_values():
    @arete.jit.script
    def f(x):
        while x.sum() < 10:  # here
            x = x * 2
        return x

    with pytest.raises(ValueError, match=r"looked at.*test_saved_programs.py:\d+ in f"):
        f(arete.ones(2))


def test_names_of_jit(monkeypatch):
    assert not arete.jit.is_scripting() and not arete.jit.is_tracing()
    f = arete.jit.script(lambda x: arete.jit.wait(arete.jit.fork(lambda y: y * 2, x)) + x)
    assert f(arete.ones(2)).tolist() == [3, 3]
    with pytest.raises(ZeroDivisionError):
        arete.jit.fork(lambda: 1 / 0)
    monkeypatch.setenv("PYTORCH_JIT", "0")
    assert arete.jit.trace(len, 1) is len and arete.jit.script(len) is len


# ---- export

def test_export_with_named_sizes(tmp_path):
    net = Attention()
    batch, time = arete.export.Dim("batch", min=1, max=8), arete.export.Dim("time", max=32)
    ep = arete.export.export(net, (arete.randn(2, 5, 12),), dynamic_shapes={"x": {0: batch, 1: time}})
    arete.export.save(ep, tmp_path / "net")
    ep = arete.export.load(tmp_path / "net")
    for size in ((1, 1, 12), (3, 7, 12), (8, 32, 12)):
        x = arete.randn(*size)
        assert same(ep.module()(x), net(x))
    with pytest.raises(ValueError, match="dimension 0 to be <= 8, but got 9"):
        ep.module()(arete.randn(9, 2, 12))
    assert ep.range_constraints == {"batch": (1, 8), "time": (1, 32)}
    signature = ep.graph_signature
    assert signature.parameters == tuple(dict(net.named_parameters())) and signature.user_inputs == ("x",)
    assert list(ep.state_dict) == list(net.state_dict()) and "float32[batch, time, 12]" in str(ep)
    with pytest.raises(RuntimeError, match="Unable to call"):
        ep(arete.randn(1, 1, 12))


def test_export_says_what_does_not_fit():
    class Loop(nn.Module):
        def forward(self, x, y):
            for k in range(x.shape[0]):
                y = y + x[k]
            return y

    n = arete.export.Dim("n")
    args = (arete.ones(3, 2), arete.ones(2))
    with pytest.raises(ValueError, match="the calls of the function depend on the sizes"):
        arete.export.export(Loop(), args, dynamic_shapes=({0: n}, None))
    with pytest.raises(RuntimeError, match="dimension 0 of 'x' was said to be dynamic"):
        arete.export.export(Loop(), args, dynamic_shapes={"x": {0: arete.export.Dim.DYNAMIC}})
    ep = arete.export.export(Loop(), args, dynamic_shapes={"x": {0: arete.export.Dim.AUTO, 1: arete.export.Dim.AUTO},
                                                           "y": {0: arete.export.Dim.AUTO}})
    with pytest.raises(ValueError):
        ep.module()(arete.ones(4, 2), arete.ones(2))
    for wrong in ({"z": {0: n}}, ({0: n},), {"x": {0: 4}}):
        with pytest.raises(ValueError):
            arete.export.export(Loop(), args, dynamic_shapes=wrong)
    with pytest.raises(NotImplementedError):
        arete.export.export(Loop(), args, strict=True)
    with pytest.raises(NotImplementedError):
        n * n
    with pytest.raises(ValueError):
        arete.export.Dim("n", min=3, max=2)


def test_export_of_trees_and_buffers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", arete.zeros(()))
            self.register_buffer("scale", arete.ones(()), persistent=False)

        def forward(self, batch, flag=True):
            self.count += 1
            return {"sum": batch["x"] * self.scale + batch["parts"][0], "flag": flag}

    n = arete.export.Dim("n")
    net = Net()
    example = {"x": arete.ones(3), "parts": [arete.ones(3)]}
    ep = arete.export.export(net, (example,), {"flag": False}, dynamic_shapes={"batch": {"x": {0: n}, "parts": [{0: n}]}, "flag": None})
    assert net.count.item() == 0
    out = ep.module()({"x": arete.ones(5), "parts": [arete.ones(5)]}, flag=False)
    assert out["sum"].tolist() == [2] * 5 and out["flag"] is False and net.count.item() == 1
    signature = ep.graph_signature
    assert signature.user_inputs == ("batch_x", "batch_parts_0") and signature.buffers_to_mutate == {"count": "count"}
    assert signature.non_persistent_buffers == {"scale"} and list(ep.state_dict) == ["count"]
    with pytest.raises(ValueError, match="same size"):
        ep.module()({"x": arete.ones(5), "parts": [arete.ones(4)]}, flag=False)


class Choice(nn.Module):
    """A branch in a branch, and a loop, over parameters."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(arete.randn(3, 3) / 2)
        self.register_buffer("calls", arete.zeros(()))

    def forward(self, x):
        def large(x):
            self.calls += 1
            return {"y": arete.cond(x.max() > 2, lambda: x.tanh(), lambda: x @ self.w), "n": None}

        def small(x):
            return {"y": while_loop(lambda i, y: (i < 3) & (y.sum() < 9), lambda i, y: (i + 1, y @ self.w.exp()), (arete.tensor(0), x))[1],
                    "n": None}

        return arete.cond(x.sum() > 0, large, small, (x,))["y"] + x.detach()


# A branch in a branch, the other one, no round of the loop, some, and all.
CHOICES = [arete.ones(2, 3), arete.full((4, 3), 3.0), -arete.ones(5, 3), arete.eye(3) - 0.4, arete.zeros(1, 3)]


def test_branches_and_loops(tmp_path):
    net = Choice()
    ep = arete.export.export(net, (CHOICES[0],), dynamic_shapes={"x": {0: arete.export.Dim("n")}})
    assert net.calls.item() == 0
    arete.export.save(ep, tmp_path / "net")
    again = arete.export.export(ep.module(), (CHOICES[0],), dynamic_shapes={"x": {0: arete.export.Dim("n")}})
    for program in (ep, arete.export.load(tmp_path / "net"), again):
        module = program.module()
        for x in CHOICES:
            results = []
            for f in (net, module):
                leaf, w = x.clone().requires_grad_(), dict(f.named_parameters())["w"]
                y = f(leaf)
                results.append([y, *arete.autograd.grad(y.square().sum(), [leaf, w], allow_unused=True, materialize_grads=True)])
            arete.testing.assert_close(*results)
    traced = arete.jit.trace(net, CHOICES[0])
    for f in (traced, arete.jit.script(net), arete.compile(traced)):
        for x in CHOICES[:4]:
            arete.testing.assert_close(f(x), net(x))
    assert same(make_fx(lambda x: net(x), tracing_mode="symbolic")(CHOICES[0])(CHOICES[3]), net(CHOICES[3]))
    text = str(ep.graph)
    assert "  branch(%" in text and "    branch(%" in text and "loop([" in text
    values = net.calls.item()
    ep.module()(CHOICES[0])
    assert net.calls.item() == values + 1  # by the branch that ran alone


def test_branches_and_loops_say_what_they_cannot_do():
    kept = []

    def leaks(x):
        kept.append(x.sin())
        return kept[-1]

    def branch(f, g=lambda x: x.cos()):
        return lambda x: arete.cond(x.sum() > 0, f, g, (x,))

    def loop(f):
        return lambda x: while_loop(lambda x: x.sum() > 0, f, (x,))

    x = arete.ones(3)
    for f, error, text in (
            (branch(lambda x: x[:1]), ValueError, "one dtype and shape"),
            (branch(lambda x: x.double()), ValueError, "one dtype and shape"),
            (branch(lambda x: (x, x)), RuntimeError, "one structure"),
            (branch(lambda x: 1), RuntimeError, "one structure"),
            (branch(lambda x: x * x.sum().item()), ValueError, "looked at on the host"),
            (lambda x: branch(leaks)(x) + kept[-1], NotImplementedError, "outside of it"),
            (branch(leaks, lambda x: x * kept[-1]), NotImplementedError, "outside of it"),
            (loop(lambda x: x[:1]), ValueError, "one dtype and shape"),
            (loop(lambda x: (x, x)), RuntimeError, "one structure"),
            (lambda x: while_loop(lambda x: leaks(x).sum() > 9, lambda x: (x + kept[-1],), (x,)), NotImplementedError, "outside of it"),
            (lambda x: while_loop(lambda x: True, lambda x: x, (x,)), RuntimeError, "a tensor of one bool"),
            (lambda x: arete.func.grad(lambda x: branch(lambda x: x.sin())(x).sum())(x), NotImplementedError, "a gradient through cond")):
        with pytest.raises(error, match=text):
            arete.jit.trace(f, x)


def test_loops_answer_signals():
    p = arete.jit.trace(lambda x: while_loop(lambda x: x.sum() > 0, lambda x: (x * 1,), (x,))[0], -arete.ones(2))

    def stop(*_):
        raise InterruptedError("stop")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(InterruptedError):
            p(arete.ones(2))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_graphs_have_floats_of_sizes():
    f = make_fx(lambda x: x.long() * float(x.shape[0]), tracing_mode="symbolic")(arete.ones(3))
    assert f(arete.ones(4)).dtype == arete.float32 and f(arete.ones(4)).tolist() == [4, 4, 4, 4]


def test_the_graph_of_an_exported_program():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, x):
            return self.linear(x).view(x.shape[0] * 2)[: 2 * x.shape[0] - 1].relu()

    net = Net()
    ep = arete.export.export(net, (arete.ones(3, 4),), dynamic_shapes={"x": {0: arete.export.Dim("n")}})
    nodes = list(ep.graph.nodes)
    assert [n.name for n in nodes if n.op == "placeholder"] == [s.arg.name for s in ep.graph_signature.input_specs]
    assert nodes[0].meta["val"].shape == (2, 4) and "val" not in nodes[2].meta
    assert {arete.ops.aten.linear.default, arete.ops.aten.relu.default, arete.ops.aten.sym_size.int} <= {n.target for n in nodes}
    x = arete.randn(5, 4)
    assert same(ep.graph_module(net.linear.weight, net.linear.bias, x)[0], net(x))
    plain = arete.export.export(nn.ReLU(), (arete.ones(2),))
    assert [tuple(n.meta["val"].shape) for n in plain.graph.nodes if n.op != "output"] == [(2,), (2,)]


def test_tables_reach_into_branches():
    class Net(nn.Module):
        def forward(self, x):
            return arete.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    ep = arete.export.export(Net(), (arete.ones(2),))
    other = ep.run_decompositions({arete.ops.aten.sin.default: lambda x: x * 7, arete.ops.aten.cos.default: lambda x: x * 3})
    for x in (arete.ones(2), -arete.ones(2)):
        assert other.module()(x).tolist() == (x * (7 if x[0] > 0 else 3)).tolist()


def test_branches_and_loops_give_one_layout():
    def flat(f):
        return lambda x: f(x).contiguous().view(-1)

    for f in (flat(lambda x: arete.cond(x.sum() > 0, lambda: x * 1, lambda: (x * 2).t())),
              flat(lambda x: arete.cond(x.sum() > 0, lambda: (x * 2).t(), lambda: x * 1)),
              flat(lambda x: arete.cond(x.sum() > 0, lambda: x[:, :2], lambda: x[:, 1:])),
              flat(lambda x: arete.cond(x.sum() > 0, lambda: x[0].expand(3, 3), lambda: x.t())),
              flat(lambda x: while_loop(lambda y: y.sum().abs() < 90, lambda y: ((y * 2).t(),), (x,))[0]),
              flat(lambda x: while_loop(lambda y: y.sum().abs() < 90, lambda y: (y * 2,), (x[:2, :2].t(),))[0]),
              lambda x: arete.cond(x.sum() > 0, lambda: x.reshape(1, 3, 3, 1).permute(0, 2, 1, 3), lambda: x[None, ..., None].sin())
                             .permute(0, 2, 1, 3).reshape(-1)):
        p = arete.jit.trace(f, arete.ones(3, 3))
        for x in (arete.arange(9.0).view(3, 3), -arete.arange(9.0).view(3, 3)):
            x.requires_grad_()
            assert same(p(x), f(x)) and same(*(arete.autograd.grad(g(x).square().sum(), x)[0] for g in (p, f)))


class Calls(nn.Module):
    """A function as a module with a parameter and a buffer."""

    def __init__(self, f):
        super().__init__()
        self.f, self.w = f, nn.Parameter(arete.full((2,), 3.0))
        self.register_buffer("rounds", arete.zeros(()))

    def forward(self, x):
        return self.f(self, x)


RELU = {arete.ops.aten.relu.default: lambda x: x.clamp(min=0)}


def test_graphs_keep_regions_without_gradients():
    def f(m, x):
        with arete.no_grad():
            y = m.w * 2
            m.rounds.add_(1)
        return (y * x.relu()).sum() + m.w.sum() + (m.w * 3).detach().requires_grad_().sum()

    net = Calls(f)
    ep = arete.export.export(net, (arete.ones(2),))
    again = ep.run_decompositions(RELU)
    x = arete.ones(2)
    for call in (net, ep.module(), again.module(), lambda x: ep.graph_module(net.w, net.rounds, x)[0]):
        with arete.no_grad():
            assert not call(x).requires_grad
        assert arete.autograd.grad(call(x), net.w)[0].tolist() == [1, 1]
    assert net.rounds.item() == 8 and list(again.graph_signature.buffers_to_mutate.values()) == ["rounds"]


def test_graphs_have_no_custom_functions():
    class Twice(arete.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 100

    ep = arete.export.export(Calls(lambda m, x: Twice.apply(m.w) * x.relu()), (arete.ones(2),))
    with pytest.raises(NotImplementedError, match="autograd.Function"):
        ep.run_decompositions(RELU)
    with arete.no_grad():
        assert ep.run_decompositions().module()(arete.ones(2)).tolist() == [6, 6]


def test_graphs_of_branches_and_loops_again():
    def f(m, x):
        def body(y):
            m.rounds.add_(1)
            return (y + x.shape[0] - y.relu() / 2,)

        return while_loop(lambda y: y.sum() < x.shape[0] * 3, body, (arete.cond(x.sum() > 0, lambda: x.relu(), lambda: x.cos()),))[0]

    net = Calls(f)
    ep = arete.export.export(net, (arete.ones(3),), dynamic_shapes={"x": {0: arete.export.Dim("n")}})
    plain = ep.run_decompositions(RELU)
    assert "relu" not in str(plain.graph) and str(plain.graph).count("clamp") == 2
    twice = ep.run_decompositions({arete.ops.aten.relu.default: lambda x: x * 2})
    for program, slope in ((ep, 1), (plain, 1), (twice, 2)):
        assert list(program.graph_signature.buffers_to_mutate.values()) == ["rounds"]
        for x in (arete.ones(5), -arete.ones(4)):
            y = slope * x if x[0] > 0 else x.cos()
            rounds = 0
            while y.sum() < len(x) * 3:
                y, rounds = y + len(x) - slope * y / 2, rounds + 1
            net.rounds.zero_()
            arete.testing.assert_close(program.module()(x), y)
            assert net.rounds.item() == rounds


def test_decompositions(tmp_path):
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.SiLU(), nn.Flatten(), nn.Linear(18, 6), nn.LayerNorm(6)).eval()
    ep = arete.export.export(net, (arete.randn(2, 1, 5, 5),), dynamic_shapes=({0: arete.export.Dim("n", max=9)},))
    x = arete.randn(4, 1, 5, 5)
    apart = ep.run_decompositions()
    arete.export.save(apart, tmp_path / "net")
    for program in (apart, arete.export.load(tmp_path / "net").run_decompositions()):
        arete.testing.assert_close(program.module()(x), net(x))
        assert program.range_constraints == ep.range_constraints and list(program.state_dict) == list(ep.state_dict)
    assert all(a is b for a, b in zip(apart.parameters(), ep.parameters()))
    assert str(ep.run_decompositions({}).graph) == str(ep.graph)
    table = {arete.ops.aten.linear.default: lambda x, w, b: x @ w.t() + b}
    other = ep.run_decompositions(table)
    targets = {n.target for n in other.graph.nodes}
    assert arete.ops.aten.linear.default not in targets and arete.ops.aten.matmul.default in targets
    arete.testing.assert_close(other.module()(x), net(x))
    with pytest.raises(TypeError, match="a table is from operators"):
        ep.run_decompositions({arete.ops.aten.linear.default: 3})
    with pytest.raises(NotImplementedError):
        ep.run_decompositions(decompose_custom_triton_ops=True)
    module = arete.export.unflatten(ep)
    assert same(module(x), net(x)) and module.state_dict().keys() == net.state_dict().keys()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_batch_norms_in_training_are_taken_apart(dtype):
    net = nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.BatchNorm2d(3, affine=False, track_running_stats=False))
    net = net.to(getattr(arete, dtype))
    x = arete.randn(4, 1, 5, 5).to(getattr(arete, dtype))
    ep = arete.export.export(net, (x,), dynamic_shapes=({0: arete.export.Dim("n", min=2)},))
    apart = ep.run_decompositions()
    called = [n.target for n in apart.graph.nodes if n.op == "call_function"]
    assert arete.ops.aten.batch_norm.default not in called and arete.ops.aten.lerp_.Scalar in called
    assert apart.graph_signature.buffers_to_mutate.keys() == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    before = {k: v.clone() for k, v in net.state_dict().items()}
    found = []
    for program in (ep, apart):
        with arete.no_grad():
            for k, v in net.state_dict().items():
                v.copy_(before[k])
        module = program.module()
        y = module(x[:3])
        gradients = arete.autograd.grad(y.float().square().sum(), list(net.parameters()))
        found.append((y, *gradients, *(v.clone() for v in net.buffers())))
    for a, b in zip(*found, strict=True):
        tolerance = 2e-2 if dtype == "bfloat16" else 1e-4
        arete.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    evaluated = arete.export.export(net.eval(), (x,)).run_decompositions()
    assert arete.ops.aten.batch_norm.default in [n.target for n in evaluated.graph.nodes]
    arete.testing.assert_close(evaluated.module()(x), net(x))


def test_graphs_have_torchs_order_of_arguments():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm = nn.Embedding(5, 4, padding_idx=1), nn.BatchNorm1d(4)

        def forward(self, x):
            y = F.elu(self.norm(self.embed(x)), 0.5)
            return y[:, 1:3], y[arete.tensor([1, 0])], self.embed(x[::2])

    net, x = Net().eval(), arete.tensor([4, 2, 1])
    ep, aten = arete.export.export(net, (x,)), arete.ops.aten
    calls = {n.target: n for n in ep.graph.nodes if n.op == "call_function"}
    assert {aten.embedding.default, aten.batch_norm.default, aten.elu.default, aten.slice.Tensor} <= calls.keys()
    assert [str(a) for a in calls[aten.batch_norm.default].args[1:5]] == [f"{k}_norm_{n}" for k, n in (
        ("p", "weight"), ("p", "bias"), ("b", "running_mean"), ("b", "running_var"))]
    state = [t for _, t, _, _ in ep._recorded.program.state()]
    for got, wanted in zip(ep.graph_module(*state, x), net(x), strict=True):
        arete.testing.assert_close(got, wanted)
    seen = []

    def norm(input, weight, bias, running_mean, running_var, *more):  # noqa: A002
        seen.append((weight is net.norm.weight, running_var is net.norm.running_var))
        return aten.batch_norm.default(input, weight, bias, running_mean, running_var, *more)

    other = ep.run_decompositions({aten.batch_norm.default: norm, aten.embedding.default: lambda weight, x, *_: weight[x]})
    assert seen == [(True, True)] and aten.embedding.default not in [n.target for n in other.graph.nodes]
    for got, wanted in zip(other.module()(x), net(x), strict=True):
        arete.testing.assert_close(got, wanted)


def test_sizes_that_follow_from_others():
    class Net(nn.Module):
        def forward(self, x, y):
            n, half = y.shape[0], x.shape[0] // 2
            return (y[:, None] * y).view(n * n), x.view(half, 2)[: half - 1], x[half:]

    half, n = arete.export.Dim("half", max=9), arete.export.Dim("n")
    ep = arete.export.export(Net(), (arete.randn(6), arete.randn(3)), dynamic_shapes=({0: 2 * half}, {0: n}))
    file = io.BytesIO()
    arete.export.save(ep, file)
    file.seek(0)
    loaded = arete.export.load(file)
    assert same(loaded.example_inputs[0], ep.example_inputs[0]) and loaded.example_inputs[1] == {}
    x, y = arete.randn(14), arete.randn(5)
    again = ep.run_decompositions()
    for program in (ep, loaded, again, loaded.run_decompositions()):
        assert same(program.module()(x, y), Net()(x, y))
        assert same(program.graph_module(x, y), Net()(x, y))
        assert {k: (v.lower, v.upper) for k, v in program.range_constraints.items()} == {"half": (1, 9), "n": (1, None)}
    with pytest.raises(ValueError, match=r"input 'x' at dimension 0 to be 2\*half, but got 7"):
        ep.module()(x[:7], y)
    with pytest.raises(ValueError, match="to be <= 18, but got 20"):
        ep.module()(arete.randn(20), y)
    assert repr(half * 3 - 1) == "3*half - 1" and (2 * half).max == 18
    for wrong in (lambda: half * n, lambda: half * -1, lambda: half + 0.5):
        with pytest.raises(NotImplementedError, match="products with positive integers"):
            wrong()
    with pytest.raises(ValueError, match="none of those that the dynamic size 'half' gives"):
        arete.export.export(Net(), (arete.randn(7), arete.randn(3)), dynamic_shapes=({0: 2 * half}, {0: n}))


def test_dynamic_shapes_of_any_number_of_arguments():
    class Net(nn.Module):
        def forward(self, first, *rest):
            return first + sum(rest)

    n = arete.export.Dim("n")
    args, more = (arete.ones(3),) * 3, (arete.ones(5),) * 3
    for said in (({0: n}, ({0: n}, {0: n})), ({0: n}, {0: n}, {0: n}), {"first": {0: n}, "rest": ((n,), (n,))}):
        assert arete.export.export(Net(), args, dynamic_shapes=said).module()(*more).tolist() == [3] * 5

    class Any(nn.Module):
        def forward(self, *x):
            return x[0] * 2

    for said in ((({0: n},),), ((n,),), {"x": ({0: n},)}):
        assert arete.export.export(Any(), args[:1], dynamic_shapes=said).module()(more[0]).tolist() == [2] * 5


def test_hostile_examples(tmp_path):
    ep = arete.export.export(nn.ReLU(), (arete.ones(2),))
    for text in ("?", "QUJD", ""):
        ep._recorded.program.set_metadata("examples", text)
        ep._recorded.save(tmp_path / "p")
        if text:
            with pytest.raises(OSError, match="nothing sensible about the example inputs"):
                arete.export.load(tmp_path / "p")
        else:
            assert arete.export.load(tmp_path / "p").example_inputs is None


def test_packed_sequences_of_fixed_lengths():
    lstm = nn.LSTM(2, 3)

    def f(x):
        return nn.utils.rnn.pad_packed_sequence(lstm(nn.utils.rnn.pack_padded_sequence(x, [3, 1]))[0])[0]

    x = arete.randn(3, 2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(reloaded(arete.jit.trace(f, x))(x), f(x))
