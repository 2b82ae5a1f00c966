"""Optimizers beside torch's: hooks, groups, mistakes, rates in tensors, steps with history, L-BFGS."""
import copy
import inspect
import pickle
import warnings

import numpy as np
import pytest
from optim_helpers import BASIC, LIBRARIES, NAMES, Trainee, array, double_numbers, expect_close, optimizer_module, torch  # noqa: F401

import arete


# ---- hooks


def hooked(library):
    log = []
    t = Trainee(library, "SGD")
    o = t.optimizer
    module = optimizer_module(library)
    handles = [
        module.register_optimizer_step_pre_hook(lambda *a: log.append("all before")),
        module.register_optimizer_step_post_hook(lambda *a: log.append("all after")),
        o.register_step_pre_hook(lambda opt, args, kwargs: log.append(("before", opt is o, len(args), kwargs))),
        o.register_step_post_hook(lambda opt, args, kwargs: log.append("after")),
        o.register_state_dict_pre_hook(lambda opt: log.append("save 2")),
        o.register_state_dict_pre_hook(lambda opt: log.append("save 1"), prepend=True),
        o.register_state_dict_post_hook(lambda opt, state: {**state, "extra": 1}),
        o.register_state_dict_post_hook(lambda opt, state: log.append(sorted(state))),
        o.register_state_dict_post_hook(lambda opt, state: log.append(("first", sorted(state))), prepend=True),
        o.register_load_state_dict_pre_hook(
            lambda opt, state: log.append(("load", sorted(state))) or {k: v for k, v in state.items() if k != "extra"}),
        o.register_load_state_dict_pre_hook(lambda opt, state: log.append("load first"), prepend=True),
        o.register_load_state_dict_post_hook(lambda opt: log.append("loaded")),
        o.register_load_state_dict_post_hook(lambda opt: log.append("loaded first"), prepend=True),
    ]
    t.step()
    saved = o.state_dict()
    o.load_state_dict(saved)
    assert "extra" in saved
    for h in handles:
        h.remove()
    t.step()
    o.load_state_dict(o.state_dict())
    return log


def test_hooks():
    assert hooked(arete) == hooked(torch)


def test_hooks_change_arguments_and_say_what_is_wrong():
    for library in LIBRARIES:
        t = Trainee(library, "SGD")
        calls = []
        handle = t.optimizer.register_step_pre_hook(lambda o, args, kwargs: (args, {"closure": lambda: calls.append(1)}))
        t.step()
        assert calls == [1]
        handle.remove()
        t.optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
        with pytest.raises(RuntimeError, match="must return None or a tuple of"):
            t.step()


def test_hooks_of_subclasses_run_once():
    for library in LIBRARIES:
        class Own(library.optim.SGD):
            def __init__(self, params):
                super().__init__(params, lr=0.1)

        class Written(library.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {"lr": 0.1})

            def step(self, closure=None):
                calls.append("step")

        for kind in (Own, Written):
            calls: list = []
            w = library.ones(2).requires_grad_()
            w.grad = library.ones(2)
            o = kind([w])
            o.register_step_post_hook(lambda *a: calls.append("hook"))  # noqa: B023
            o.step()
            assert calls.count("hook") == 1 and kind.step.hooked
            twin = pickle.loads(pickle.dumps(o)) if kind.__qualname__ == kind.__name__ else copy.deepcopy(o)
            twin.step()
            assert calls.count("hook") == 1  # a copy has none


# ---- groups


def names_of(library):
    net = library.nn.Sequential(library.nn.Linear(2, 3), library.nn.Linear(3, 1))
    o = library.optim.Adam(net.named_parameters(), lr=0.1)
    said = [o.param_groups[0]["param_names"], o.state_dict()["param_groups"][0]["param_names"]]
    w = library.ones(2).requires_grad_()
    for bad in ({"params": [w]}, {"params": [("w", w), library.ones(2).requires_grad_()]}):
        with pytest.raises(ValueError) as e:
            o.add_param_group(bad)
        said.append(str(e.value))
    o.add_param_group({"params": [("w", w)]})
    said.append(o.param_groups[1]["param_names"])
    plain = library.optim.Adam([w], lr=0.1)
    with pytest.raises(ValueError) as e:
        plain.add_param_group({"params": [("v", library.ones(2).requires_grad_())]})
    said.append(str(e.value))
    other = library.optim.Adam([("a." + n, p) for n, p in net.named_parameters()])
    saved = o.state_dict()
    saved["param_groups"] = saved["param_groups"][:1]
    other.load_state_dict(saved)
    said.append(other.param_groups[0]["param_names"])
    del saved["param_groups"][0]["param_names"]
    other.load_state_dict(saved)
    said.append(other.param_groups[0]["param_names"])
    said.append("param_names" in plain.param_groups[0])
    return said


def test_param_names():
    assert names_of(arete) == names_of(torch)


def mistakes(library, name):
    w, v = library.ones(2, 2).requires_grad_(), library.ones(2, 2).requires_grad_()
    make = getattr(library.optim, name)
    said = []

    def attempt(f):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                f()
                said.append(None)
            except Exception as e:
                said.append(str(e))

    for bad in ([], w, [1], {w}, [w * 2], [{"params": {w}}], [{"params": [w]}, {"params": [w]}]):
        attempt(lambda: make(bad))
    o = make([w])
    attempt(lambda: o.add_param_group([v]))
    attempt(lambda: o.add_param_group({"params": [w]}))
    attempt(lambda: o.load_state_dict({"state": {}, "param_groups": []}))
    attempt(lambda: o.load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]}))
    bad_eps = [dict(eps=(-1.0, 1e-3)), dict(eps=(None, -1e-3))] if name == "Adafactor" else [dict(eps=-1e-8)] * (name != "Muon")
    for options in (*bad_eps, dict(lr=-1), dict(lr=-0.5), dict(weight_decay=-1), dict(betas=(1.0, 0.9)), dict(betas=(0.9, -0.5)),
                    dict(momentum=-0.5), dict(alpha=-1.0), dict(rho=1.5), dict(lr_decay=-1), dict(initial_accumulator_value=-1),
                    dict(momentum_decay=-1), dict(etas=(2, 3)), dict(nesterov=True, momentum=0), dict(d=0.5), dict(beta2_decay=0.5),
                    dict(lr=library.ones(2)), dict(foo=1),
                    dict(fused=True, foreach=True), dict(fused=True, differentiable=True), dict(adjust_lr_fn="other")):
        if set(options) <= set(inspect.signature(make.__init__).parameters) | {"foo"}:
            attempt(lambda: make([w], **options))
    return said


@pytest.mark.parametrize("name", NAMES)
def test_mistakes(name):
    for ours, theirs in zip(mistakes(arete, name), mistakes(torch, name), strict=True):
        if theirs is None:
            assert ours is None
        else:
            theirs = theirs.replace("torch.DoubleTensor", "Tensor").replace("torch.FloatTensor", "Tensor")
            begin = theirs.split(", but got")[0].split("; in future")[0]
            if "betas" in begin or "is not supported" in begin or "Expected" in begin:
                assert ours is not None
            else:
                assert (ours or "nothing").startswith(begin[:60]), (ours, theirs)


def test_duplicates():
    """Updates of parameters that a list has twice, as of tied layers: two, as torch's, which warns."""
    ends = []
    for library in LIBRARIES:
        w, v = (library.tensor([1.0, -2.0], dtype=library.float64, requires_grad=True) for _ in range(2))
        with pytest.warns(UserWarning, match="a parameter group with duplicate parameters; in future"):
            optimizers = [library.optim.SGD([w, v, w], lr=0.1, weight_decay=0.1), library.optim.Adam([v, v, w, v], lr=0.01)]
        optimizers[1].add_param_group({"params": [library.ones(1, dtype=library.float64, requires_grad=True)]})
        for _ in range(3):
            for o in optimizers:
                o.zero_grad()
                (w.square().sum() * v.sum()).backward()
                o.step()
        assert [len(g["params"]) for o in optimizers for g in o.param_groups] == [3, 4, 1]
        ends.append([*w.tolist(), *v.tolist(), *(float(s["step"]) for s in optimizers[1].state.values())])
    assert ends[0] == pytest.approx(ends[-1], rel=1e-12) and ends[0][-2:] == [9.0, 3.0]
    # A scaler's factor is taken off the gradient once.
    w = arete.ones(1).requires_grad_()
    with pytest.warns(UserWarning, match="duplicate parameters"):
        o = arete.optim.SGD([w, w, w], lr=0.125)
    scaler = arete.amp.GradScaler("cpu", init_scale=8)
    scaler.scale(w.square().sum()).backward()
    scaler.step(o)
    assert w.tolist() == [0.25] and w.grad.tolist() == [2.0] and o._scaling is None
    w = arete.ones(2).requires_grad_()
    o = arete.optim.SGD([w])
    with pytest.raises(ValueError, match="Invalid learning rate"):
        o.add_param_group({"params": [arete.ones(1).requires_grad_()], "lr": -1})
    assert len(o.param_groups) == 1


# ---- rates that are tensors


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("Muon", "Adafactor")])
def test_a_rate_in_a_tensor(name, double_numbers):
    results = []
    for library in LIBRARIES:
        rate = library.tensor(0.05, dtype=library.float64)
        t = Trainee(library, name, {**BASIC.get(name, {}), "lr": rate})
        scheduler = library.optim.lr_scheduler.StepLR(t.optimizer, 2, 0.5)
        for _ in range(6):
            t.step()
            scheduler.step()
        assert t.optimizer.param_groups[0]["lr"] is rate
        results.append([*t.values(), array(rate)])
    expect_close(*results, 1e-12)


def test_other_settings_in_tensors(double_numbers):
    results = []
    for library in LIBRARIES:
        betas = tuple(library.tensor(b) for b in (0.8, 0.9))
        t = Trainee(library, "Adam", dict(betas=betas))
        t.step(3)
        betas[0].fill_(0.5)
        t.step(3)
        results.append(t.values())
    expect_close(*results, 1e-12)


# ---- steps with history


def through_steps(library, name, options, steps=3):
    """The gradients of a loss after some steps with respect to the start and, where it is one, the rate."""
    dtype = library.float64
    start = library.tensor([0.4, -0.9, 1.3], dtype=dtype).requires_grad_()
    scale = library.tensor([1.0, 2.0, -3.0], dtype=dtype)
    w = start.clone()
    o = getattr(library.optim, name)([w], differentiable=True, **options)
    for i in range(steps):
        w.grad = (w * 0.7 + 0.2 * i).sin()
        o.step()
    loss = (w * scale).sum()
    wanted = [start] + [v for v in (options["lr"],) if hasattr(v, "requires_grad") and v.requires_grad]
    return [array(loss), *map(array, library.autograd.grad(loss, wanted))]


@pytest.mark.parametrize("rate", ["number", "tensor"])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("Muon", "Adafactor")])
def test_differentiable(name, rate, double_numbers):
    results = []
    for library in LIBRARIES:
        lr = 0.05 if rate == "number" else library.tensor(0.05, dtype=library.float64)
        # torch's first buffer of SGD has no history, and its Adamax and Rprop go through one step only.
        options = dict(lr=lr, **({"momentum": 0.9} if name == "RMSprop" else {}))
        results.append(through_steps(library, name, options, 1 if name in ("Adamax", "Rprop") else 3))
    expect_close(*results, 1e-9)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_the_gradient_of_the_rate(name, double_numbers):
    results = []
    for library in LIBRARIES:
        rate = library.tensor(0.05, dtype=library.float64).requires_grad_()
        results.append(through_steps(library, name, dict(lr=rate)))
    expect_close(*results, 1e-9)


def test_leaves_are_not_changed_with_history():
    for library in LIBRARIES:
        w = library.ones(2).requires_grad_()
        w.grad = library.ones(2)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            library.optim.SGD([w], differentiable=True).step()


# ---- zero_grad, and optimizers that are written in Python


def test_zero_grad_in_place():
    for library in LIBRARIES:
        flat = library.ones(5)
        w, v, u = library.zeros(2).requires_grad_(), library.zeros(3).requires_grad_(), library.zeros(2).requires_grad_()
        w.grad, v.grad = flat[:2], flat[2:]
        x = library.ones(2).requires_grad_()
        u.grad = x * 3
        before = v.grad
        o = library.optim.SGD([w, v, u], lr=1.0)
        o.zero_grad(set_to_none=False)
        assert flat.tolist() == [0] * 5 and v.grad is before and u.grad.tolist() == [0, 0] and not u.grad.requires_grad
        o.zero_grad()
        assert w.grad is None


def test_schedules_of_an_optimizer_without_init():
    for library in LIBRARIES:
        class Bare(library.optim.Optimizer):
            def __init__(self, params):
                self.param_groups = [{"params": list(params), "lr": 0.8}]
                self.defaults, self.state = {}, {}

            def step(self, closure=None):
                return "stepped"

        o = Bare([library.ones(1).requires_grad_()])
        scheduler = library.optim.lr_scheduler.StepLR(o, 1, 0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert o.step() == "stepped"
            scheduler.step()
        assert o.param_groups[0]["lr"] == 0.4
        late = Bare([library.ones(1).requires_grad_()])
        scheduler = library.optim.lr_scheduler.StepLR(late, 1, 0.5)
        with pytest.warns(UserWarning, match=r"lr_scheduler.step\(\)"):
            scheduler.step()


def test_an_optimizer_written_for_torch():
    """With the helpers that such optimizers import."""
    results = []
    for library in LIBRARIES:
        module = optimizer_module(library)
        Optimizer, required = module.Optimizer, module.required
        decorated, get_value = module._use_grad_for_differentiable, module._get_value

        class Momentum(Optimizer):
            def __init__(self, params, lr=required, mu=0.9):
                super().__init__(params, dict(lr=lr, mu=mu, differentiable=False))

            @decorated
            def step(self, closure=None):
                assert not library.is_grad_enabled()  # noqa: B023
                for group in self.param_groups:
                    for p in group["params"]:
                        state = self.state[p]
                        if not state:
                            state["step"], state["m"] = library.tensor(0.0), library.zeros_like(p)  # noqa: B023
                        state["step"] += 1
                        state["m"].mul_(group["mu"]).add_(p.grad)
                        p.sub_(state["m"], alpha=group["lr"] / get_value(state["step"]))  # noqa: B023

        w = library.tensor([1.0, -2.0]).requires_grad_()
        with pytest.raises(ValueError, match="didn't specify a value of required optimization parameter lr"):
            Momentum([w])
        o = Momentum([w], lr=0.1)
        for _ in range(3):
            o.zero_grad()
            (w * w).sum().backward()
            o.step()
        o.load_state_dict(copy.deepcopy(o.state_dict()))
        o.step()
        results.append([array(w), array(o.state[w]["m"])])
    expect_close(*results, 1e-6)


@pytest.mark.parametrize("options", [dict(lr=0.002, max_iter=8), dict(line_search_fn="strong_wolfe", max_iter=8),
                                     dict(line_search_fn="strong_wolfe", max_iter=4)])
@pytest.mark.parametrize("edit", [None, "clear", "load"])
def test_lbfgs(options, edit):
    results = []
    for library in LIBRARIES:
        t = Trainee(library, "SGD")
        t.params = [library.tensor([-1.2, 1.0], dtype=library.float64).requires_grad_(),
                    library.tensor([0.5j, 1.0], dtype=library.complex128).requires_grad_()]
        t.optimizer = library.optim.LBFGS(t.params, **options)

        def closure():
            t.optimizer.zero_grad()  # noqa: B023
            x, z = t.params  # noqa: B023
            loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2 + (z - (1 + 2j)).abs().square().sum()
            loss.backward()
            return loss

        losses = [t.optimizer.step(closure).item() for _ in range(2)]
        if edit == "clear":
            t.optimizer.state.clear()
        if edit == "load":
            t.optimizer.load_state_dict(t.optimizer.state_dict())
        losses += [t.optimizer.step(closure).item() for _ in range(2)]
        state = t.optimizer.state[t.params[0]]
        results.append([*t.values(), np.array(losses), np.array([state["n_iter"], state["func_evals"]]), array(state["d"])])
        keys = set(state) - {"al"}
        assert keys == {"func_evals", "n_iter", "d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss"}
    expect_close(*results, 1e-6)


def test_copies_of_lbfgs_go_on():
    results = []
    for way in (None, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))):
        t = Trainee(arete, "SGD")
        t.params = [arete.tensor([-1.2, 1.0], dtype=arete.float64).requires_grad_()]
        t.optimizer = arete.optim.LBFGS(t.params, max_iter=4, line_search_fn="strong_wolfe")

        def closure():
            t.optimizer.zero_grad()  # noqa: B023
            x = t.params[0]  # noqa: B023
            loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
            loss.backward()
            return loss

        t.optimizer.step(closure)
        if way is not None:
            t.optimizer = way(t.optimizer)
            t.params = t.optimizer.param_groups[0]["params"]
        t.optimizer.step(closure)
        results.append(t.params[0].tolist())
    assert results[0] == results[1] == results[2]
