"""Activation checkpointing: same gradients, fewer activations, errors."""
from __future__ import annotations

import collections
import contextlib
import warnings

import numpy as np
import pytest

import arete
from arete.distributed.algorithms._checkpoint import checkpoint_wrapper as wrapper
from arete.distributed.elastic.utils import data as elastic
from arete.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential, set_checkpoint_debug_enabled

nn = arete.nn
Pair = collections.namedtuple("Pair", "a b")


def gradients(module, x, run):
    x = x.detach().clone().requires_grad_(True)
    module.zero_grad()
    out = run(x)
    out.sum().backward()
    return [out.detach(), x.grad] + [p.grad.clone() for p in module.parameters()]


def same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert x.tolist() == y.tolist()


@pytest.mark.parametrize("reentrant", [None, True, False])
def test_same_gradients(reentrant):
    arete.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    x = arete.randn(5, 3)
    same(gradients(net, x, net), gradients(net, x, lambda t: checkpoint(net, t, use_reentrant=reentrant)))


def test_sequential():
    arete.manual_seed(0)
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(7)])
    x = arete.randn(2, 4)
    for segments in (1, 2, 3, 7):
        same(gradients(net, x, net), gradients(net, x, lambda t: checkpoint_sequential(net, segments, t, use_reentrant=False)))
    with pytest.raises(ValueError):
        checkpoint_sequential(net, 8, x)
    with pytest.raises(ValueError):
        checkpoint_sequential(net, 2, x, other=1)


def test_dropout_is_the_same_both_times():
    net = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5))
    x = arete.randn(4, 16)
    arete.manual_seed(3)
    plain = gradients(net, x, net)
    arete.manual_seed(3)
    same(plain, gradients(net, x, lambda t: checkpoint(net, t, use_reentrant=False)))
    before = arete.get_rng_state().tolist()
    t = x.clone().requires_grad_(True)
    out = checkpoint(net, t, use_reentrant=False)
    after = arete.get_rng_state().tolist()
    out.sum().backward()
    assert before != after and arete.get_rng_state().tolist() == after


def test_parameters_without_inputs_that_need_gradients():
    net = nn.Linear(2, 2)
    checkpoint(net, arete.ones(3, 2), use_reentrant=False).sum().backward()
    assert net.weight.grad.tolist() == [[3, 3], [3, 3]]


def test_structures():
    x, y = arete.ones(2, requires_grad=True), arete.full((2,), 2.0, requires_grad=True)

    def function(a, pair, *, scale, note):
        return {"sum": a + pair.a * scale["k"], "list": [pair.b * a, note], "int": arete.arange(3), "same": a, "none": None}

    out = checkpoint(function, x, Pair(y, y), scale={"k": y}, note="n", use_reentrant=False)
    assert out["list"][1] == "n" and out["none"] is None and not out["int"].requires_grad and out["int"].tolist() == [0, 1, 2]
    (out["sum"].sum() + out["list"][0].sum() + out["same"].sum()).backward()
    assert x.grad.tolist() == [4, 4] and y.grad.tolist() == [5, 5]


def test_runs_twice_and_keeps_nothing():
    calls = []

    def function(a):
        calls.append(arete.is_grad_enabled())
        return a.exp()

    x = arete.ones(2, requires_grad=True)
    out = checkpoint(function, x, use_reentrant=False)
    assert calls == [False]
    out.sum().backward()
    assert calls == [False, True]
    with arete.no_grad():
        assert not checkpoint(function, x).requires_grad


def test_nested():
    arete.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    x = arete.randn(2, 3)

    def inner(t):
        return checkpoint(net[0], t, use_reentrant=False)

    same(gradients(net, x, net), gradients(net, x, lambda t: checkpoint(lambda u: net[2](net[1](inner(u))), t, use_reentrant=False)))


def test_errors():
    sizes = [2, 3]
    x = arete.ones(4, requires_grad=True)
    out = checkpoint(lambda t: t[:sizes.pop()] * 2, x, use_reentrant=False)
    with pytest.raises(RuntimeError, match="other tensors"):
        out.sum().backward()
    assert issubclass(CheckpointError, RuntimeError)
    with pytest.raises(ValueError, match="keyword"):
        checkpoint(lambda t, k: t, x, k=1, use_reentrant=True)
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(lambda t: t, x, determinism_check="x")

    def fails(t):
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        checkpoint(fails, x)


def both(function, make):
    """The gradients of `make(lib, run)` in arete and in torch, with and without checkpoints."""
    torch = pytest.importorskip("torch")
    torch_checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint
    results = []
    for lib, checkpointed in ((arete, True), (arete, False), (torch, True)):
        call = checkpoint if lib is arete else torch_checkpoint

        def run(f, *args):
            return call(f, *args, use_reentrant=False) if checkpointed else f(*args)

        results.append([g if g is None else g.tolist() for g in function(lib, run, *make(lib))])
    for other in results[1:]:
        assert len(other) == len(results[0])
        for a, b in zip(results[0], other):
            assert (a is None) == (b is None) and (a is None or np.allclose(a, b, rtol=1e-10, atol=1e-12))


def leaves(lib):
    values = np.random.default_rng(0).normal(size=(4, 3, 3))
    return [lib.tensor(v.tolist(), dtype=lib.float64, requires_grad=True) for v in values]


def test_grad_of_inputs_and_of_what_the_function_holds():
    def function(lib, run, x, w, b, unused):
        out = run(lambda t: (t @ w).tanh() * b, x)
        gradients = lib.autograd.grad(out.sum(), [x, w, b, unused], allow_unused=True)
        assert all(t.grad is None for t in (x, w, b))
        return gradients

    both(function, leaves)
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        x, w, _, unused = leaves(arete)
        arete.autograd.grad(checkpoint(lambda t: t @ w, x).sum(), [x, unused])


def test_grad_of_parameters_of_a_module():
    def make(lib):
        values = leaves(lib)
        net = lib.nn.Sequential(lib.nn.Linear(3, 3), lib.nn.Tanh(), lib.nn.Linear(3, 3)).to(lib.float64)
        with lib.no_grad():
            for p, v in zip(net.parameters(), (values[1], values[2][0], values[3], values[2][1])):
                p.copy_(v)
        return net, values[0]

    def function(lib, run, net, x):
        # The input alone needs no gradient here.
        return lib.autograd.grad(run(net, x.detach()).pow(2).sum(), list(net.parameters()))

    both(function, make)


def test_a_tensor_held_and_given_and_used_before():
    def function(lib, run, x, w, b, c):
        h = x @ w  # given to the function, which also holds it, w, and the non-leaf s
        s = (w * b).sin()
        out = run(lambda t: (t * h + s) @ w, h)
        return lib.autograd.grad((out * c).sum(), [x, w, b, h, s])

    both(function, leaves)


def test_gradients_of_gradients():
    def function(lib, run, x, w, b, c):
        h = x * w
        out = run(lambda t: (t * w).sin() * b.exp(), h)
        first = lib.autograd.grad(out.sum(), [x, w, b], create_graph=True)
        return [*first, *lib.autograd.grad(sum((g * c).sum() for g in first), [x, w, b])]

    both(function, leaves)


def test_hooks_run_once_and_nested_checkpoints():
    def function(lib, run, x, w, b, c):
        w.register_hook(lambda g: 3 * g)
        h = x.exp()
        h.register_hook(lambda g: 2 * g)
        out = run(lambda t: run(lambda u: (u * w).tanh() * h, t) * b, h)
        out.sum().backward()
        return [x.grad, w.grad, b.grad]

    both(function, leaves)


def test_custom_functions_and_kernels_inside():
    class Double(arete.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t.detach() * 2

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    x, w, b, _ = leaves(arete)
    kernel = arete.numpy.ElementwiseKernel("T x, T y", "T z", "z = x * y", "product")
    for f in (lambda t: t * Double.apply(w), lambda t: kernel(t, w), lambda t: t * w.clone()):
        expected = arete.autograd.grad(f(x).sum(), [x, w])
        found = arete.autograd.grad(checkpoint(f, x).sum(), [x, w])
        same(list(found), list(expected))


def test_reentrant_asks_for_an_input():
    w = arete.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True. Gradients will be None"):
        assert not checkpoint(lambda t: t * w, arete.ones(2), use_reentrant=True).requires_grad
    assert checkpoint(lambda t: t * w, arete.ones(2), use_reentrant=False).requires_grad
    assert not checkpoint(lambda t: t * 2, arete.ones(2), use_reentrant=False).requires_grad


def test_outputs_that_get_no_gradient():
    # The derivative of sqrt at 0 is infinite: a zero in the place of no gradient would give NaN.
    x = arete.zeros(2, requires_grad=True)
    _, b = checkpoint(lambda t: (t.sqrt(), t * 3), x)
    assert arete.autograd.grad(b.sum(), x)[0].tolist() == [3, 3]


def test_what_is_refused_and_warned_of_is_torchs():
    torch = pytest.importorskip("torch")
    torch_checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint

    def other():
        return contextlib.nullcontext(), contextlib.nullcontext()

    calls = [dict(use_reentrant=True, debug=True), dict(use_reentrant=True, context_fn=other), dict(use_reentrant=True, early_stop=False),
             dict(use_reentrant=False, debug=True, context_fn=other), dict(use_reentrant=True, foo=1, bar=2),
             dict(use_reentrant=False, determinism_check="x"), dict(use_reentrant=False, debug=True), dict(use_reentrant=True)]
    said = []
    for lib, call in ((arete, checkpoint), (torch, torch_checkpoint)):
        seen = []
        for needs in (True, False):
            for enabled in (True, False):
                for options in calls:
                    with warnings.catch_warnings(record=True) as caught, lib.set_grad_enabled(enabled):
                        warnings.simplefilter("always")
                        try:
                            call(lambda t: t * 2, lib.ones(2, requires_grad=needs), **options)
                            seen.append([str(w.message) for w in caught])
                        except ValueError as e:
                            seen.append(str(e))
        said.append(seen)
    assert said[0] == said[1]


def test_debug_lists_the_operators_of_both_runs():
    def differs():
        runs = [2, 3]
        return lambda t: t.exp()[: runs.pop()] * 2

    def said(**options):
        with pytest.raises(CheckpointError) as e:
            checkpoint(differs(), arete.ones(4, requires_grad=True), use_reentrant=False, **options).sum().backward()
        return str(e.value)

    forward, backward = said(debug=True).split("Operators in forward:")[1].split("Operators in backward:")
    for part, size in ((forward, 3), (backward, 2)):
        assert "exp -> float32[4]" in part and f"mul -> float32[{size}]" in part
    with set_checkpoint_debug_enabled(True):
        assert "Operators in forward:" in said()
        with set_checkpoint_debug_enabled(None):
            assert "Operators in forward:" not in said()
    with set_checkpoint_debug_enabled(False):
        assert "Operators in forward:" not in said(debug=True)
    # Others that watch calls go on.
    with arete.profiler.profile() as p:
        checkpoint(lambda t: t.exp(), arete.ones(2, requires_grad=True), use_reentrant=False, debug=True)
        arete.ones(2).sin()
    assert {"exp", "sin"} <= {e.key for e in p.key_averages()}


@pytest.mark.parametrize("stop", [True, False])
def test_the_second_run_reaches_the_end(stop):
    ends = []

    def function(t):
        y = t.exp() * 2
        ends.append(1)
        return y

    y = checkpoint(function, arete.ones(2, requires_grad=True), use_reentrant=False, early_stop=stop)
    y.sum().backward()
    assert len(ends) == 2
    with arete.utils.checkpoint.set_checkpoint_early_stop(stop):
        checkpoint(function, arete.ones(2, requires_grad=True), use_reentrant=False).sum().backward()
    assert len(ends) == 4


@pytest.mark.parametrize("library", ["arete", "torch"])
def test_contexts_of_both_runs(library):
    torch = arete if library == "arete" else pytest.importorskip("torch")
    call = checkpoint if library == "arete" else pytest.importorskip("torch.utils.checkpoint").checkpoint
    w, x = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)

    def run(*contexts):
        return call(lambda t: t * w, x, use_reentrant=False, context_fn=lambda: contexts)

    log = []

    @contextlib.contextmanager
    def noted(name):
        log.append("in " + name)
        try:
            yield
        finally:  # PyTorch's second run ends with an exception
            log.append("out of " + name)

    y = run(noted("first"), noted("second"))
    assert log == ["in first", "out of first"]
    y.sum().backward()
    assert log[2:] == ["in second", "out of second"] and w.grad.tolist() == [1, 1, 1]
    y = run(torch.no_grad(), torch.no_grad())  # nothing to compute again
    assert not y.requires_grad and y.tolist() == [1, 1, 1]
    assert not run(torch.no_grad(), contextlib.nullcontext()).requires_grad
    with pytest.raises(RuntimeError, match="A different number of tensors was saved during the original forward"):
        run(contextlib.nullcontext(), torch.no_grad()).sum().backward()
    del log[:]
    with torch.no_grad():
        assert not run(noted("first"), noted("second")).requires_grad
    assert log == [] and torch.is_grad_enabled()
    with pytest.raises(TypeError):
        call(lambda t: t * w, x, use_reentrant=False, context_fn=lambda: 3)


@pytest.mark.parametrize("impl", ["NO_REENTRANT", "REENTRANT"])
def test_wrapped_modules_have_the_names_of_bare_ones(impl):
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)))
    names, x, runs = list(net.state_dict()), arete.randn(3, 4), []

    def step():
        arete.manual_seed(3)
        return gradients(net, x, net)

    before = step()
    net[1][0].register_forward_hook(lambda *_: runs.append(1))
    wrapper.apply_activation_checkpointing(
        net, check_fn=lambda m: type(m).__name__ in ("Linear", "Dropout"),
        checkpoint_wrapper_fn=lambda m: wrapper.checkpoint_wrapper(m, wrapper.CheckpointImpl[impl]))
    same(before, step())
    assert len(runs) == 2 and list(net.state_dict()) == names and net[0].in_features == 4
    doubled = {name: value * 2 for name, value in net.state_dict().items()}
    net.load_state_dict(doubled)
    assert net[0].weight.tolist() == doubled["0.weight"].tolist()
    with pytest.raises(RuntimeError, match="Missing key"):
        net.load_state_dict({})
    host = wrapper.offload_wrapper(nn.Linear(4, 2))
    assert [name for name, _ in host.named_parameters()] == list(host.state_dict()) == ["weight", "bias"]
    assert host(x).tolist() == nn.functional.linear(x, host.weight, host.bias).tolist()


def test_a_sampler_goes_on_where_another_number_of_processes_ended():
    kind = elastic.ElasticDistributedSampler
    every = [i for r in range(3) for i in kind(range(10), 3, r, start_index=4)]
    assert sorted(every) == [4, 5, 6, 7, 8, 9] and len(kind(range(10), 4, 0, start_index=4)) == 2
    with pytest.raises(ValueError, match="Start index 10"):
        kind(range(10), 3, 0, start_index=10)
