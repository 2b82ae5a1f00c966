"""torch.jit and torch.export as strangers use them, a short program each: run with both libraries from the same numbers they give the
same results, and with arete programs give the bits of eager code, gradients included."""
import collections
import copy
import io
import typing

import numpy as np
import pytest
from idiom_helpers import on_the_cpu
from test_programs import in_both, numbers, started

import arete


def alike(torch, wanted, got):
    """Equal: to the bit in arete, whose programs make the calls of the function."""
    for a, b in zip(leaves(wanted), leaves(got), strict=True):
        if torch is arete:
            assert arete.equal(a, b) if isinstance(a, arete.Tensor) else a == b
        elif isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, check_dtype=False)
    return got


def leaves(tree):
    if isinstance(tree, dict):
        return [x for k in tree for x in leaves(tree[k])]
    return [x for part in tree for x in leaves(part)] if isinstance(tree, (tuple, list)) else [tree]


def gradients(loss, module):
    module.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in module.parameters()]


def through_a_file(torch, program, **more):
    file = io.BytesIO()
    torch.jit.save(program, file)
    file.seek(0)
    return torch.jit.load(file, **more)


@in_both
def test_arguments_by_name(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(6, 6)

        def forward(self, x, mask=None, scale: float = 1.0):
            y = self.inner(x) * scale
            return y if mask is None else y * mask

    net, x = started(torch, Net()), numbers(torch, 4, 6)
    mask = (x > 0).float()
    traced = torch.jit.trace(net, example_kwarg_inputs={"x": x, "mask": mask})
    alike(torch, net(x, mask), traced(x, mask))
    return alike(torch, net(x, mask), traced(mask=mask, x=x))


@in_both
def test_dicts_and_named_tuples(torch):
    Pair = collections.namedtuple("Pair", "mean spread")

    class Statistics(torch.nn.Module):
        def forward(self, batch: typing.Dict[str, torch.Tensor]):
            x = batch["x"]
            return {"mean": x.mean(0), "most": x.max(1)[0] + batch["y"]}

    batch = {"x": numbers(torch, 4, 6), "y": numbers(torch, 4)}
    traced = torch.jit.trace(Statistics(), (batch,), strict=torch is arete)
    scripted = torch.jit.script(lambda x: x * 2) if torch is arete else None
    pair = torch.jit.trace(lambda x: Pair(x.mean(), x.std()), batch["x"])(batch["x"])
    if torch is arete:
        assert type(torch.jit.trace(lambda x: Pair(x, x), batch["x"])(batch["x"])).__name__ == "Pair"
        nested = torch.jit.trace(lambda x: {"a": {"b": [x, {"c": x + 1}]}}, batch["x"])(batch["x"])
        assert arete.equal(nested["a"]["b"][1]["c"], scripted(batch["x"]) / 2 + 1)
    return alike(torch, Statistics()(batch), traced(batch)), list(traced(batch)), [float(t) for t in pair]


@in_both
def test_shared_parameters(torch):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = torch.nn.Embedding(9, 6), torch.nn.Linear(6, 9, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, tokens):
            return self.out(self.embed(tokens))

    net, tokens = started(torch, Tied()), torch.tensor([[1, 2, 3], [4, 5, 6]])
    traced, scripted = torch.jit.trace(net, tokens), torch.jit.script(net)
    wanted = gradients(net(tokens).square().sum(), net)
    for program in (traced, scripted):
        alike(torch, wanted, gradients(program(tokens).square().sum(), program))
    loaded = through_a_file(torch, traced)
    assert list(loaded.state_dict()) == list(net.state_dict()) == ["embed.weight", "out.weight"]
    return wanted, sum(gradients(loaded(tokens).square().sum(), loaded))


@in_both
def test_batch_norm_in_training(torch):
    make = lambda: started(torch, torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU()))  # noqa: E731
    eager, x = make(), numbers(torch, 4, 6)
    results = [eager(x + k) for k in range(3)]
    for record in (torch.jit.script, lambda net: torch.jit.trace(net, x)) if torch is arete else (torch.jit.script,):
        net = make()
        program = record(net)
        alike(torch, results, [program(x + k) for k in range(3)])
        alike(torch, dict(eager.state_dict()), dict(program.state_dict()))
        assert list(program.state_dict()) == list(eager.state_dict())
        program.eval() if record is torch.jit.script else None
    return results, dict(eager.state_dict())


@in_both
def test_dropout_with_a_seed(torch):
    net, x = started(torch, torch.nn.Sequential(torch.nn.Linear(6, 50), torch.nn.Dropout(0.5))), numbers(torch, 4, 6)
    programs = [torch.jit.trace(net, x, check_trace=False), torch.jit.script(net)]
    torch.manual_seed(3)
    wanted = [net(x), net(x)]
    for program in programs:
        torch.manual_seed(3)
        program(x) if torch is arete else None  # recording draws nothing
        torch.manual_seed(3)
        alike(torch, wanted, [program(x), program(x)])
    return bool((wanted[0] == wanted[1]).all()), programs[1].eval()(x)


@in_both
def test_training_a_program(torch):
    def trained(record, optimizer):
        net = started(torch, torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
        program, x, losses = record(net), numbers(torch, 4, 6), []
        steps = optimizer(program.parameters())
        for _ in range(6):
            steps.zero_grad()
            loss = (program(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            steps.step()
            losses.append(loss.detach())
        return losses, list(net.parameters())

    results = []
    for optimizer in (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.AdamW(p, lr=0.05)):
        wanted = trained(lambda net: net, optimizer)
        for record in (torch.jit.script, lambda net: torch.jit.trace(net, numbers(torch, 2, 6))):
            alike(torch, wanted, trained(record, optimizer))
        results.append(wanted)
    return results


@in_both
def test_fine_tuning_what_was_loaded(torch):
    net = started(torch, torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
    loaded, x = through_a_file(torch, torch.jit.trace(net, numbers(torch, 2, 6)), map_location="cpu"), numbers(torch, 4, 6)
    for p in list(loaded.parameters())[:2]:
        p.requires_grad_(False)
    for p in list(net.parameters())[:2]:
        p.requires_grad_(False)
    for each in (net, loaded):
        steps = torch.optim.Adam([p for p in each.parameters() if p.requires_grad], lr=0.01)
        for _ in range(4):
            steps.zero_grad()
            each(x).square().mean().backward()
            steps.step()
    return alike(torch, list(net.parameters()), list(loaded.parameters()))


@in_both
def test_copies(torch):
    net = started(torch, torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))).eval()
    x = numbers(torch, 4, 6)
    programs = [torch.jit.trace(net, x), torch.jit.script(net)]
    results = [alike(torch, net(x), program(x)) for program in programs]
    for twin in map(copy.deepcopy, programs):
        with torch.no_grad():
            for p in twin.parameters():
                p.add_(1)
        assert list(twin.state_dict()) == list(net.state_dict())
        assert not torch.equal(twin(x), net(x))
        twin.load_state_dict(net.state_dict())
        alike(torch, net(x), twin(x))
    return results, [alike(torch, net(x), program.to("cpu")(x)) for program in programs]


@in_both
def test_freezing(torch):
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    net, x = started(torch, net).eval(), numbers(torch, 2, 1, 6, 6)
    frozen = torch.jit.freeze(torch.jit.trace(net, x))
    with torch.no_grad():
        result = frozen(x)
        net[0].weight.zero_()
    alike(torch, result, frozen(x))
    scripted = torch.jit.script(net)
    scripted(x)
    return result, len(list(frozen.parameters())), alike(torch, net(x), torch.jit.freeze(scripted)(x))


@in_both
def test_submodules_in_a_loop(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(6, 6) for _ in range(4)])
            self.norm = torch.nn.LayerNorm(6)

        def forward(self, x, times: int = 1):
            for _ in range(times):
                for layer in self.layers:
                    x = x + torch.relu(layer(self.norm(x)))
            return x

    net, x = started(torch, Net()), numbers(torch, 4, 6)
    scripted = torch.jit.script(net)
    assert len(scripted.layers) == 4
    results = []
    for times in (1, 3, 1, 2):
        wanted = gradients(net(x, times).sum(), net)
        results.append(alike(torch, wanted, gradients(scripted(x, times).sum(), net)))
        alike(torch, net(x, times=times), scripted(x, times=times))
    return results


@in_both
def test_decorated_functions_and_methods(torch):
    @torch.jit.script
    def swish(x):
        return x * torch.sigmoid(x)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(6, 3)

        def forward(self, x):
            return swish(self.inner(x))

        @torch.jit.export
        def encode(self, x):
            return self.inner(x).relu()

    net, x = started(torch, Net()), numbers(torch, 4, 6).requires_grad_()
    eager = lambda x: (lambda y: y * torch.sigmoid(y))(net.inner(x))  # noqa: E731
    for program in (net, torch.jit.script(net), torch.jit.trace(net, x)):
        alike(torch, torch.autograd.grad(eager(x).sum(), x), torch.autograd.grad(program(x).sum(), x))
    if torch is arete:
        alike(torch, net.encode(x), torch.jit.trace(net.encode, x)(x))
        alike(torch, net.encode(x), torch.jit.script(net.encode)(x))
    return net(x), alike(torch, net.encode(x), torch.jit.script(net).encode(x))


@in_both
def test_training_and_evaluation_by_turns(torch):
    net = started(torch, torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU(), torch.nn.Flatten()))
    scripted, x, results = torch.jit.script(net), numbers(torch, 4, 2, 6), []
    for mode in (True, False, True, False):
        scripted.train(mode)
        results.append(scripted(x))
        with torch.no_grad():
            results.append(scripted(x[:1]) if not mode else scripted(x[:2]))
    return results, dict(scripted.state_dict())


@in_both
def test_a_cell_step_by_step(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = torch.nn.LSTMCell(6, 5), torch.nn.Linear(5, 2)

        def forward(self, x, h: torch.Tensor, c: torch.Tensor):
            outs = []
            for t in range(x.size(0)):
                h, c = self.cell(x[t], (h, c))
                outs.append(self.out(h))
            return torch.stack(outs), (h, c)

    net, h = started(torch, Net()), numbers(torch, 2, 5)
    scripted, results = torch.jit.script(net), []
    for steps in (1, 3, 2, 1):  # each its own program
        x = numbers(torch, steps, 2, 6)
        results.append(alike(torch, net(x, h, h), scripted(x, h, h)))
    return results


@in_both
def test_exported_with_any_batch(torch):
    net, x = started(torch, torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))).eval(), numbers(torch, 4, 6)
    program = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch", max=128)},))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    assert list(loaded.state_dict) == list(net.state_dict()) and len(list(loaded.parameters())) == 4
    results = [alike(torch, net(x[:n]), loaded.module()(x[:n])) for n in (2, 3, 4)]
    with pytest.raises((ValueError, AssertionError, RuntimeError)):
        loaded.module()(numbers(torch, 129, 6))
    return results, alike(torch, gradients(net(x).sum(), net), gradients(program.module()(x).sum(), net))


@in_both
def test_a_schedule_of_weights_that_are_replaced(torch):
    """A target network, whose weights follow, and a head that is swapped."""
    net = started(torch, torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2)))
    target = torch.jit.trace(copy.deepcopy(net), numbers(torch, 2, 6))
    x, results = numbers(torch, 4, 6), []
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        steps.zero_grad()
        (net(x) - target(x).detach() - 1).square().mean().backward()
        steps.step()
        target.load_state_dict({k: 0.5 * v + 0.5 * net.state_dict()[k] for k, v in target.state_dict().items()})
        results.append(target(x))
    head = target.get_submodule("2") if torch is arete else getattr(target, "2")
    head.weight = torch.nn.Parameter(torch.from_numpy(np.ones((2, 6), np.float32)))
    head.bias = torch.nn.Parameter(torch.zeros(2))
    return results, target(x)


@on_the_cpu
def test_methods_are_traced_together(torch, device):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 1, 3)

        def forward(self, x):
            return self.conv(x)

        def weighted(self, w):
            return w * self.conv.weight

    net, w, x = Net(), torch.rand(1, 1, 3, 3), torch.rand(1, 1, 4, 4)
    traced = torch.jit.trace_module(net, {"forward": x, "weighted": w}, check_inputs=[{"forward": x + 1, "weighted": w + 1}])
    assert isinstance(traced, torch.jit.ScriptModule) and traced.original_name == "Net"
    traced.weighted(w).sum().backward()
    assert torch.equal(traced(x), net(x)) and torch.equal(net.conv.weight.grad, w)
    with torch.no_grad():
        net.conv.weight.mul_(2)
    assert torch.equal(traced.weighted(w), net.weighted(w)) and torch.equal(traced(x), net(x))
    only = torch.jit.trace_module(net, {"forward": x})
    assert torch.equal(only(x), net(x)) and isinstance(only, torch.jit.TopLevelTracedModule)
    with pytest.raises(AttributeError, match="expected torch.nn.Module"):
        torch.jit.trace_module(torch.sin, {"forward": x})


@on_the_cpu
def test_what_programs_ask_of_programs(torch, device):
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    traced, scripted = torch.jit.trace(net, torch.ones(2, 4)), torch.jit.script(net)
    kinds = [node.kind() for node in traced.inlined_graph.nodes()]
    assert "aten::linear" in kinds and "aten::relu" in kinds and traced.original_name == scripted.original_name == "Sequential"
    assert isinstance(scripted, torch.jit.RecursiveScriptModule)
    assert torch.jit.export_opnames(traced) == ["aten::linear", "aten::relu"]

    @torch.jit.script
    def scaled(x, n: int):
        return x * n

    assert scaled(torch.ones(2), 3).tolist() == [3.0, 3.0] and scaled.name == "scaled"
    assert scaled.qualified_name == f"__torch__.{__name__}.scaled"
    with torch.jit.optimized_execution(True), torch.jit.fuser("fuser1"):
        assert torch.equal(traced(torch.ones(1, 4)), net(torch.ones(1, 4)))
    torch.jit.set_fusion_strategy(torch.jit.set_fusion_strategy([("STATIC", 2)]))
    frozen = torch.jit.freeze(traced)
    torch.jit.run_frozen_optimizations(frozen)
    assert torch.equal(frozen(torch.ones(1, 4)), net(torch.ones(1, 4)))
    with pytest.raises(RuntimeError):
        torch.jit.freeze(net)


def test_what_was_not_called_says_how_it_is_recorded(tmp_path):
    class Table(arete.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = arete.nn.Parameter(arete.ones(2))

        def forward(self, scale: float = 2.0):
            return self.w * scale

    arete.jit.script(Table()).save(tmp_path / "table")  # nothing has to be known
    assert arete.jit.load(tmp_path / "table")().tolist() == [2.0, 2.0] and arete.jit.load(tmp_path / "table").original_name == "Table"
    scripted = arete.jit.script(arete.nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match=r"'Linear' is recorded when it is first called.*example_inputs=\[\(x,\)\]"):
        arete.jit.save(scripted, tmp_path / "linear")
    arete.jit.script(arete.nn.Linear(2, 2), example_inputs=[(arete.ones(3, 2),)]).save(tmp_path / "linear")
    assert arete.jit.load(tmp_path / "linear")(arete.ones(7, 2)).shape == (7, 2)
    several = arete.jit.trace_module(Methods(), {"forward": arete.ones(2), "other": arete.ones(2)})
    for act in (lambda: several.save(tmp_path / "several"), lambda: copy.deepcopy(several), lambda: several.to("cpu")):
        with pytest.raises(NotImplementedError, match="other beside forward"):
            act()
    for act, why in ((arete.jit.ScriptModule, "nn.Module"), (lambda: arete.jit.CompilationUnit(""), "no compiler of Python"),
                     (lambda: arete.jit.trace_module(Methods(), {"other": arete.ones(2)}), "'forward' among them")):
        with pytest.raises(NotImplementedError, match=why):
            act()


class Methods(arete.nn.Module):
    def forward(self, x):
        return x + 1

    def other(self, x):
        return x + 2
