"""Skipped calls of compiled functions do what running them does: hostile programs, bit for bit over many calls.

Only Python 3.12 can watch what a function reads: with others these tests are left out, but for the one of what is said then.
"""
import collections
import copy
import gc
import random
import sys
import threading
import time
import weakref

import fake_gpus
import pytest
from compile_programs import DEVICE, PROGRAMS, bits, rand

import arete
import arete.nn.functional as F
from arete import nn

CAN_SKIP = arete._C._can_skip
needs_watchers = pytest.mark.skipif(not CAN_SKIP, reason="functions are skipped with Python 3.12 only")


def skipping(f):
    return arete.compile(f, options={"exact": True, "skip": True})


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    from arete import _skip

    monkeypatch.setattr(_skip, "_CALLS_BEFORE", 1)


SKIPPED, FOLLOWED, EITHER = "skipped", "followed", "either"
HOSTILE = {}


def hostile(how, *reasons):
    """`f(wrap)` gives all that came of its calls; `how` they ran, mostly; `reasons` are found in explain()."""

    def add(f):
        HOSTILE[f.__name__] = f, how, reasons
        return f

    return add


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(DEVICE)


def state_of(net, opt=None):
    # Of copies: the memory itself shall not be seen by NumPy.
    state = [p.detach().clone() for p in net.parameters()] + [p.grad if p.grad is None else p.grad.clone() for p in net.parameters()]
    if opt is not None:
        state += [v.clone() for s in opt.state.values() for _, v in sorted(s.items())]
    return state + [p._version for p in net.parameters()]


def trainer(wrap, between=lambda k, net, opt, out: None, kind="Adam", n=14, **options):
    net = mlp()
    opt = getattr(arete.optim, kind)(net.parameters(), lr=0.01, **options)

    def step(x, y):
        opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        return loss

    step = wrap(step)
    out = []
    for k in range(n):
        between(k, net, opt, out)
        loss = step(rand(4, 6), rand(4, 3))
        out += [loss.detach(), loss.requires_grad, loss.is_leaf, loss._version, state_of(net, opt)]
    return out


def inference(wrap, between=lambda k, net: None, n=12, net=None):
    net = net or mlp()
    f = wrap(arete.no_grad()(lambda x: net(x)))
    out = []
    for k in range(n):
        between(k, net)
        y = f(rand(4, 6))
        out += [y, y.requires_grad, y.is_leaf, y._version, y._base is None]
    return out


@hostile(SKIPPED)
def module_without_gradients(wrap):
    return inference(wrap)


@hostile(SKIPPED)
def module_in_inference_mode(wrap):
    net = mlp()
    f = wrap(net)
    out = []
    with arete.inference_mode():
        for _ in range(10):
            y = f(rand(4, 6))
            out += [y, y.is_inference()]
    return out


@hostile(SKIPPED)
def no_grad_around(wrap):
    net = mlp()
    f = wrap(lambda x: net(x) * 2)
    with arete.no_grad():
        out = [f(rand(4, 6)) for _ in range(10)]
    for _ in range(2):  # with a history now
        y = f(rand(4, 6))
        y.sum().backward()
        out += [y.detach(), state_of(net)]
    with arete.no_grad():
        return out + [f(rand(4, 6)) for _ in range(3)]


@hostile(SKIPPED)
def training(wrap):
    return trainer(wrap)


@pytest.mark.skipif(not CAN_SKIP, reason="functions are skipped with Python 3.12 only")
@pytest.mark.parametrize("kind", ["SGD", "AdamW", "Lion", "RMSprop", "Adagrad", "NAdam", "Adamax"])
def test_optimizers(kind):
    compare(lambda wrap: trainer(wrap, kind=kind), SKIPPED, ())


@hostile(SKIPPED)
def training_with_groups(wrap):
    net = mlp()
    opt = arete.optim.SGD([{"params": net[0].parameters(), "lr": 0.1}, {"params": net[2].parameters()}], lr=0.01, momentum=0.9)
    schedule = arete.optim.lr_scheduler.StepLR(opt, 3, 0.5)

    def step(x):
        loss = net(x).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.detach()

    step = wrap(step)
    out = []
    for _ in range(14):
        out += [step(rand(4, 6)), state_of(net, opt)]
        schedule.step()
    return out


@hostile(EITHER)
def attribute_changed(wrap):
    class Model(nn.Module):
        scale = 1.0

        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return (self.fc(x) * self.scale).sin()

    net = Model().to(DEVICE)
    f = wrap(arete.no_grad()(lambda x: net(x)))
    out = []
    for k in range(24):
        if k == 8:
            net.scale = 2.0
        if k == 16:
            Model.scale = 5.0
            del net.scale
        out.append(f(rand(2, 3)))
    return out


@hostile(EITHER)
def method_replaced(wrap):
    class Model(nn.Module):
        def forward(self, x):
            return x + 1

    net = Model()
    f = wrap(arete.no_grad()(lambda x: net(x)))
    out = []
    for k in range(20):
        if k == 8:
            Model.forward = lambda self, x: x - 1
        if k == 14:
            net.forward = lambda x: x * 3
        out.append(f(rand(2)))
    return out


@hostile(EITHER)
def code_and_defaults_replaced(wrap):
    def g(x, by=2):
        return x * by

    def other(x, by=2):
        return x / by

    f = wrap(lambda x: g(x))
    out = []
    for k in range(20):
        if k == 8:
            g.__defaults__ = (7,)
        if k == 14:
            g.__code__ = other.__code__
        out.append(f(rand(2)))
    return out


@hostile(EITHER)
def class_of_an_object_replaced(wrap):
    class A:
        def apply(self, x):
            return x + 1

    class B:
        def apply(self, x):
            return x * 2

    o = A()
    f = wrap(lambda x: o.apply(x))
    out = []
    for k in range(16):
        if k == 8:
            o.__class__ = B
        if k == 12:
            o.__dict__ = {"apply": lambda x: x - 5}
        out.append(f(rand(2)))
    return out


@hostile(EITHER)
def train_and_eval(wrap):
    net = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 2)).to(DEVICE)
    net.eval()
    f = wrap(arete.no_grad()(lambda x: net(x)))
    out = []
    for k in range(24):
        if k in (8, 16):
            net.train(k == 8)
        out.append(f(rand(3, 6)))
    return out


FACTOR = 1.5


@hostile(EITHER)
def global_changed(wrap):
    global FACTOR
    FACTOR = 1.5
    f = wrap(lambda x: x * FACTOR)
    out = []
    for k in range(18):
        if k == 8:
            FACTOR = 3.0
        if k == 14:
            globals()["FACTOR"] = 4.0
        out.append(f(rand(2)))
    return out


@hostile(EITHER)
def builtin_shadowed(wrap):
    scope = {}
    exec("def f(x, n):\n    return x * len(n)", scope)
    f = wrap(scope["f"])
    out = []
    for k in range(14):
        if k == 8:
            scope["len"] = lambda n: 100
        out.append(f(rand(2), (1, 2)))
    return out


@hostile(EITHER)
def cell_rebound(wrap):
    w = rand(3)

    def change(to):
        nonlocal w
        w = to

    f = wrap(lambda x: x * w)
    out = []
    for k in range(16):
        if k == 8:
            change(rand(3))
        if k == 12:
            change(2.0)
        out.append(f(rand(3)))
    return out


@hostile(EITHER)
def cell_rebound_and_back(wrap):
    scale = first = rand(3)
    second = rand(3)

    def f(x):
        return x * scale

    f = wrap(f)
    out = []
    for k in range(24):
        scale = second if 2 <= k % 8 < 6 else first  # while it is being observed, too
        out.append(f(rand(3)))
    return out


@hostile(FOLLOWED)
def functions_called_by_functions(wrap):
    seen = []

    def f(x):
        list(map(seen.append, (1,)))
        return x + len(seen)

    def g(x):
        any(map(arete.manual_seed, (5,)))
        return x + 1

    out = []
    for function in (f, g):
        function = wrap(function)
        for _ in range(10):
            out += [function(arete.ones(2)), arete.rand(2)]
    return out, seen


@hostile(EITHER)
def list_appended(wrap):
    layers = [nn.Linear(3, 3).to(DEVICE)]

    def f(x):
        for layer in layers:
            x = layer(x)
        return x

    f = wrap(arete.no_grad()(f))
    out = []
    for k in range(16):
        if k == 8:
            layers.append(nn.Linear(3, 3).to(DEVICE))
        if k == 12:
            layers[0] = nn.Tanh()
        out.append(f(rand(2, 3)))
    return out


@hostile(EITHER)
def dict_changed(wrap):
    settings = {"scale": 2.0, "more": {"shift": 1}}
    f = wrap(lambda x: x * settings["scale"] + settings["more"]["shift"])
    out = []
    for k in range(20):
        if k == 8:
            settings["more"]["shift"] = 5
        if k == 14:
            settings.update(scale=-1.0)
        out.append(f(rand(2)))
    return out


@hostile(SKIPPED)
def lr_scheduled(wrap):
    schedules = []

    def between(k, net, opt, out):
        if k == 0:
            schedules.append(arete.optim.lr_scheduler.ExponentialLR(opt, 0.9))
        elif k > 1:
            schedules[0].step()
            out.append(opt.param_groups[0]["lr"])

    return trainer(wrap, between, n=40)


@hostile(EITHER)
def groups_edited(wrap):
    def between(k, net, opt, out):
        if k == 7:
            opt.param_groups[0]["weight_decay"] = 0.1
        if k == 13:
            opt.param_groups[0]["params"].pop()
        if k == 19:
            opt.add_param_group({"params": [net[2].bias], "lr": 0.5})
        if k == 25:
            opt.param_groups[0]["betas"] = (0.5, 0.5)

    return trainer(wrap, between, n=32)


@hostile(EITHER)
def parameters_replaced_and_frozen(wrap):
    def between(k, net, opt, out):
        if k == 7:
            net[0].weight.requires_grad_(False)
        if k == 13:
            net[2].weight.data = rand(3, 8)
        if k == 19:
            net[2].bias = nn.Parameter(rand(3))
        if k == 25:
            net[0].weight.requires_grad_(True)

    return trainer(wrap, between, n=32)


@hostile(SKIPPED)
def gradients_changed_by_the_user(wrap):
    def between(k, net, opt, out):
        if k in (7, 8):
            for p in net.parameters():
                p.grad = None
        if k == 9:
            net[0].weight.grad.fill_(5)
        if k == 10:
            net[0].weight.grad = rand(8, 6)

    return trainer(wrap, between)


@hostile(EITHER)
def gradients_accumulated(wrap):
    net = mlp()
    opt = arete.optim.SGD(net.parameters(), lr=0.1)

    def micro(x):
        loss = net(x).square().mean() / 2
        loss.backward()
        return loss.detach()

    micro = wrap(micro)
    out = []
    for k in range(24):
        out += [micro(rand(4, 6)), state_of(net)]
        if k % 2:
            opt.step()
            opt.zero_grad()
    return out


@hostile(EITHER)
def values_written_between(wrap):
    def between(k, net, opt, out):
        if k == 7:
            with arete.no_grad():
                net[0].weight.mul_(0.5)
        if k == 9:
            nn.init.zeros_(net[2].bias)
        if k == 11:
            net.load_state_dict({n: v * 2 for n, v in net.state_dict().items()})
        if k == 13:
            opt.load_state_dict(copy.deepcopy(opt.state_dict()))

    return trainer(wrap, between, n=24)


@hostile(EITHER)
def hooks_added_later(wrap):
    def between(k, net, opt, out):
        if k == 7:
            net[0].register_forward_hook(lambda m, args, y: out.append("forward") or y * 2)
        if k == 13:
            net[2].weight.register_hook(lambda g: g * 3)
        if k == 19:
            opt.register_step_post_hook(lambda *args: out.append("step"))

    return trainer(wrap, between, n=26)


@hostile(EITHER)
def hooks_on_all_modules(wrap):
    handles, out = [], []

    def between(k, net):
        if k == 7:
            handles.append(nn.modules.module.register_module_forward_hook(lambda m, a, y: out.append(type(m).__name__)))
        if k == 9:
            handles[0].remove()

    return inference(wrap, between, n=16), out


@hostile(EITHER)
def hooks_on_accumulation(wrap):
    def between(k, net, opt, out):
        if k == 8:
            net[0].bias.register_post_accumulate_grad_hook(lambda p: out.append("grad"))

    return trainer(wrap, between)


@hostile(EITHER)
def inputs_of_other_kinds(wrap):
    f = wrap(lambda x: (x * 2).sum(0))
    out = []
    for _ in range(2):
        for make in (lambda: rand(3, 4), lambda: rand(4, 3).t(), lambda: rand(3, 5), lambda: rand(3, 4).double(),
                     lambda: rand(3, 4, requires_grad=True), lambda: rand(6, 4)[::2], lambda: nn.Parameter(rand(3, 4)),
                     lambda: rand(8, 4)[2:5]):
            for _ in range(7):
                y = f(make())
                out += [y.detach(), y.requires_grad]
    return out


@hostile(SKIPPED)
def slices_of_one_tensor(wrap):
    data = rand(40, 6)
    f = wrap(lambda x: x * 2 + x[0])
    return [f(data[k : k + 4]) for k in range(16)]


@hostile(SKIPPED)
def aliased_inputs(wrap):
    f = wrap(lambda a, b: (a + b).relu() - a)
    x, y = rand(3), rand(3)
    w = rand(6)
    return [f(x, y) for _ in range(8)] + [f(x, x), f(w[:3], w[3:]), f(w[:3], w[:3]), f(y, x), f(x, x)]


@hostile(SKIPPED)
def aliased_inputs_at_first(wrap):
    f = wrap(lambda a, b: a * 2 + b)
    x, y = rand(3), rand(3)
    w = rand(6)
    out = [f(x, x) for _ in range(8)] + [f(x, y), f(y, x)]
    out += [f(w[:3], w[3:]) for _ in range(4)] + [f(w[3:], w[:3]), f(w[:3], w[:3])]
    return out + [f(rand(3), rand(3)) for _ in range(12)]


@hostile(SKIPPED)
def captured_tensor_as_input_at_first(wrap):
    w, unused = rand(3), rand(3)
    f = wrap(lambda x, n=1: x * 2 + (w if n else unused))
    return [f(w) for _ in range(8)] + [f(rand(3)) for _ in range(8)] + [f(w), f(unused)]


@hostile(FOLLOWED, "which object")
def identity_asked_for(wrap):
    f = wrap(lambda x, n: x * 2 if n is big else x)
    big = int("1000")
    return [f(rand(3), big) for _ in range(10)] + [f(rand(3), int("1000"))]


@hostile(EITHER)
def numbers_at_the_same_address(wrap):
    items, n = [float("0.5")], float("0.5")

    def change(to):
        nonlocal n
        n = to

    f, g = wrap(lambda x: x * items[0]), wrap(lambda x: x * n)
    out = []
    for k in range(16):
        if k % 8 == 7:
            items[0] = None
            items[0] = float(f"{k}.5")
            change(None)
            change(float(f"{k}.5"))
        out += [f(rand(3)), g(rand(3))]
    return out


@hostile(FOLLOWED, "a list, a dict or a set")
def containers_as_arguments(wrap):
    def f(x, to):
        to[0].append(1)
        return x + 1

    f = wrap(f)
    out = []
    for _ in range(10):
        to = ([],)
        out += [f(rand(3), to), to]
    return out


@hostile(FOLLOWED)
def shape_of_an_argument_changed(wrap):
    def f(x):
        y = x * 2
        x.unsqueeze_(0)
        return y

    f = wrap(f)
    out = []
    for _ in range(10):
        x = rand(3)
        out += [f(x), tuple(x.shape)]
    return out


@hostile(SKIPPED)
def a_class_that_claims_to_be_tensors(wrap):
    class Liar:
        __class__ = property(lambda self: arete.Tensor)

    liar = Liar()
    f = wrap(lambda x: x * 2 if liar else x)
    return [f(rand(3)) for _ in range(10)]


@hostile(FOLLOWED)
def weak_references(wrap):
    class Scale:
        pass

    scale = Scale()
    there = weakref.ref(scale)
    f = wrap(lambda x: x * 2 if there() else x)
    out = []
    for k in range(16):
        if k == 8:
            del scale
        out.append(f(rand(3)))
    return out


@hostile(EITHER)
def dicts_of_attributes_replaced(wrap):
    class Scale:
        pass

    def g(x):
        return x * g.by

    scale = Scale()
    scale.by = g.by = 2.0
    before = scale.__dict__, g.__dict__  # they go on
    f = wrap(lambda x: g(x) + scale.by)
    out = []
    for k in range(24):
        if k == 8:
            scale.__dict__ = {"by": 5.0}
        if k == 16:
            g.__dict__ = {"by": 7.0}
        out.append(f(rand(3)))
    return out, len(before)


@hostile(FOLLOWED)
def items_that_change_places(wrap):
    scales = collections.OrderedDict(a=1.0, b=2.0)

    def f(x):
        for scale in scales.values():
            x = x * 3 + scale
        return x

    f = wrap(f)
    out = []
    for k in range(16):
        if k == 8:
            scales.move_to_end("a")
        out.append(f(rand(3)))
    return out


@hostile(EITHER)
def keyword_default_written(wrap):
    def g(x, *, by=2):
        return x * by

    f = wrap(lambda x: g(x))
    out = []
    for k in range(16):
        if k == 8:
            g.__kwdefaults__["by"] = 7
        out.append(f(rand(2)))
    return out


@hostile(FOLLOWED)
def objects_that_raise(wrap):
    class Raises:
        def __hash__(self):
            raise KeyError("hash")

        def __eq__(self, other):
            raise KeyError("eq")

        def __getattr__(self, name):
            raise KeyError(name)

        def __call__(self):
            return 2

    raises = Raises()
    f = wrap(lambda x: x * raises() + len(str(print)))
    return [f(rand(3)) for _ in range(10)]


@hostile(FOLLOWED, "calls str.format")
def attributes_in_a_format(wrap):
    class Holder:
        pass

    holder = Holder()
    holder.name = "a"
    f = wrap(lambda x: x * len("{0.name}".format(holder)))
    g = wrap(lambda x: x * len(list(map("{0.name}".format, (holder,)))[0]))
    out = []
    for k in range(16):
        if k == 8:
            holder.name = "abc"
        out += [f(rand(3)), g(rand(3))]
    return out


@hostile(FOLLOWED, "as_strided")
def from_where_the_memory_begins(wrap):
    data = rand(40)
    f = wrap(lambda x: x.as_strided((2,), (1,), 1) * 2)
    return [f(data[k : k + 4]) for k in range(16)]


@hostile(FOLLOWED, "builtins of its own")
def builtins_of_its_own(wrap):
    scope = {"__builtins__": {"len": len}}
    exec("def f(x, n):\n    return x * len(n)", scope)
    f = wrap(scope["f"])
    out = []
    for k in range(14):
        if k == 8:
            scope["__builtins__"]["len"] = lambda n: 100
        out.append(f(rand(2), (1, 2)))
    return out


@hostile(EITHER)
def captured_tensor_as_input(wrap):
    w = rand(3)
    f = wrap(lambda x: x * w + x)
    return [f(rand(3)) for _ in range(8)] + [f(w), f(rand(3)), f(w)]


@hostile(FOLLOWED, "was there before")
def inputs_written(wrap):
    def f(x):
        x += 1
        return x * 2

    f = wrap(f)
    x = rand(3)
    return [f(x) for _ in range(12)] + [x, x._version]


@hostile(SKIPPED)
def other_arguments(wrap):
    def f(x, n=1, flag=False, how="a", scale=1.0, pair=(1, 2)):
        return x * n * scale + pair[0] if flag and how == "a" else x - n

    f = wrap(f)
    out = []
    for _ in range(8):
        for a in ({}, {"n": 2}, {"flag": True}, {"flag": True, "how": "b"}, {"scale": 0.5, "flag": True}, {"flag": 1}, {"n": True},
                  {"n": 1.0}, {"flag": True, "pair": (5, 1)}):
            out.append(f(rand(3), **a))
    return out


@hostile(SKIPPED)
def structures(wrap):
    def f(x, rest):
        y = x * 2
        return {"y": y, "n": x.shape[0], "all": [y, (y + 1, None)], "x": x}

    f = wrap(f)
    out = []
    for k in range(12):
        r = f(rand(3), rest=(1, ("a",)))
        r["all"].append(k)
        out += [r, r["y"] is r["all"][0]]
    return out


@hostile(SKIPPED)
def results_held(wrap):
    net = mlp()
    f = wrap(arete.no_grad()(lambda x: net(x)))
    out = [f(rand(4, 6)) for _ in range(20)]
    out[7].zero_()
    out[9].add_(out[8])
    return out


@hostile(FOLLOWED, "calls print")
def print_inside(wrap):
    def f(x):
        print("called", end="")
        return x + 1

    f = wrap(f)
    return [f(rand(2)) for _ in range(8)]


@hostile(FOLLOWED, "calls Random.random")
def python_random_inside(wrap):
    random.seed(3)
    f = wrap(lambda x: x * random.random())
    return [f(rand(2)) for _ in range(10)]


def test_time_inside():
    f = skipping(lambda x: x + time.perf_counter_ns() % 10007)
    seen = {f(arete.zeros(1)).item() for _ in range(10)}
    assert len(seen) > 1 and f.stats()["skipped"] == 0


@hostile(FOLLOWED, "random")
def dropout_inside(wrap):
    f = wrap(lambda x: F.dropout(x, 0.5) + arete.rand_like(x))
    return [f(rand(8)) for _ in range(10)] + [arete.get_rng_state()]


@hostile(FOLLOWED, "__setattr__")
def counter_of_an_object(wrap):
    class Model(nn.Module):
        n = 0

        def forward(self, x):
            self.n += 1
            return x * self.n

    net = Model()
    f = wrap(arete.no_grad()(lambda x: net(x)))
    return [f(rand(2)) for _ in range(10)] + [net.n]


COUNT = 0


@hostile(FOLLOWED, "STORE_GLOBAL")
def counter_of_a_module(wrap):
    global COUNT
    COUNT = 0

    def f(x):
        global COUNT
        COUNT += 1
        return x * COUNT

    f = wrap(f)
    return [f(rand(2)) for _ in range(10)] + [COUNT]


@hostile(FOLLOWED)
def counters_elsewhere(wrap):
    n, kept, iterator = 0, [], iter(range(100))

    def f(x):
        nonlocal n
        n += 1
        return x * n

    def g(x):
        kept.append(x)
        return x + 1

    def h(x):
        for k in iterator:
            return x * k

    def i(x):
        nonlocal kept
        kept += [1]
        return x + len(kept)

    out = []
    for function in (f, g, h, i):
        function = wrap(function)
        out += [function(rand(2)) for _ in range(10)]
    return out, n, len(kept), next(iterator)


@hostile(FOLLOWED)
def values_looked_at(wrap):
    x = arete.ones(3, device=DEVICE)
    flag = arete.ones((), device=DEVICE)

    def f(x):
        return x + 1 if x[0] > 0 else x - 1

    def g(x, flag):
        return x * int(flag)

    def h(x):
        return x + 1 if flag else x - 1

    out = []
    for function, more in ((f, ()), (g, (flag,)), (h, ())):
        function = wrap(function)
        for k in range(12):
            x.fill_(1 if k % 3 else -1)
            flag.fill_(k % 2)
            out.append(function(x, *more))
    return out


@hostile(EITHER)
def errors(wrap):
    w = rand(3, 3)

    def f(x):
        return x @ w

    f = wrap(f)
    out = []
    for k in range(14):
        x = rand(2, 3) if k % 5 != 4 else rand(2, 4)
        try:
            out.append(f(x))
        except (RuntimeError, ValueError) as e:
            out.append(type(e).__name__)
    return out


@hostile(EITHER)
def a_class_looked_up_late(wrap):
    class Config:
        def __getattr__(self, name):
            return {"scale": 2, "shift": table["shift"]}[name]

    table = {"shift": 1}
    config = Config()
    f = wrap(lambda x: x * config.scale + config.shift)
    out = []
    for k in range(16):
        if k == 8:
            table["shift"] = 9
        if k == 12:
            config.scale = 7
        out.append(f(rand(2)))
    return out


@hostile(EITHER)
def properties_and_slots(wrap):
    class Slots:
        __slots__ = ("scale",)

    class Holder:
        def __init__(self):
            self._n = 2

        @property
        def n(self):
            return self._n

    slots, holder = Slots(), Holder()
    slots.scale = 2.0
    f, g = wrap(lambda x: x * slots.scale), wrap(lambda x: x * holder.n)
    out = []
    for k in range(16):
        if k == 8:
            slots.scale = 5.0
            holder._n = 4
        out += [f(rand(2)), g(rand(2))]
    return out


@hostile(EITHER)
def global_state_changed(wrap):
    f = wrap(lambda x: arete.ones(3) * x.sum() + 1)
    out = []
    for k in range(20):
        if k == 8:
            arete.set_default_dtype(arete.float64)
        if k == 12:
            arete.set_default_dtype(arete.float32)
        out.append(f(arete.ones(3, dtype=arete.float32)))
    for _ in range(8):
        with arete.autocast("cpu", dtype=arete.bfloat16):
            out.append(f(arete.ones(3, dtype=arete.float32)))
    return out


def with_autocast(wrap, dtypes=(), **options):
    """`dtypes`: what regions without a dtype take from the eleventh and from the thirteenth call on."""
    net = mlp()
    opt = arete.optim.AdamW(net.parameters(), lr=0.01)

    def step(x, y):
        opt.zero_grad()
        with arete.autocast(DEVICE, **options):
            loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
        return loss.detach()

    step = wrap(step)
    out = []
    before = arete.get_autocast_dtype(DEVICE)
    try:
        for k in range(16):
            if dtypes and k in (11, 13):
                arete.set_autocast_dtype(DEVICE, dtypes[k == 13])
            out += [step(rand(4, 6), rand(4, 3)), state_of(net, opt)]
            out += [arete.is_autocast_enabled(DEVICE), str(arete.get_autocast_dtype(DEVICE))]
    finally:
        arete.set_autocast_dtype(DEVICE, before)
    return out


@hostile(SKIPPED)
def autocast_inside(wrap):
    return with_autocast(wrap, dtype=arete.bfloat16)


@hostile(SKIPPED)
def autocast_that_is_off(wrap):
    return with_autocast(wrap, dtype=arete.bfloat16, enabled=False)


@hostile(EITHER)
def autocast_in_what_is_set(wrap):
    return with_autocast(wrap, (arete.float16, arete.bfloat16))


@hostile(EITHER)
def compiled_inside(wrap):
    inner = wrap(lambda x: x * 2 + 1)
    outer = wrap(lambda x: inner(x).exp())
    return [outer(rand(3)) for _ in range(10)] + [inner(rand(3)) for _ in range(10)] + [outer(rand(3)) for _ in range(4)]


@hostile(SKIPPED)
def deep_copied(wrap):
    net = mlp()
    f = wrap(net)
    out = []
    with arete.no_grad():
        out += [f(rand(2, 6)) for _ in range(8)]
        g = copy.deepcopy(f)
        for p in g.parameters():
            p.mul_(2)
        for _ in range(8):
            out += [f(rand(2, 6)), g(rand(2, 6))]
    return out


@hostile(SKIPPED)
def a_spent_history(wrap):
    net = mlp()

    def step(x):
        net.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        return loss

    step = wrap(step)
    out = []
    for k in range(16):
        loss = step(rand(2, 6))
        out += [loss.detach(), type(loss.grad_fn).__name__, state_of(net)]
        if k > 8:
            try:
                loss.backward()
            except RuntimeError as e:
                out.append(str(e)[:60])
        if k == 12:
            loss.register_hook(lambda g: out.append("hook"))
    return out


@hostile(FOLLOWED, "history")
def a_kept_history(wrap):
    net = mlp()

    def step(x):
        net.zero_grad()
        loss = net(x).square().sum()
        loss.backward(retain_graph=True)
        return loss

    step = wrap(step)
    out = []
    for _ in range(10):
        loss = step(rand(2, 6))
        loss.backward()
        out += [loss.detach(), state_of(net)]
    return out


@hostile(FOLLOWED)
def gradients_read(wrap):
    net = mlp()

    def step(x):
        net.zero_grad()
        net(x).square().sum().backward()
        return [p.grad for p in net.parameters()]

    step = wrap(step)
    return [step(rand(2, 6)) for _ in range(10)]


@hostile(SKIPPED)
def versions_of_gradients(wrap):
    net = mlp()
    opt = arete.optim.AdamW(net.parameters(), lr=0.01)
    params = list(net.parameters())

    def step(x):
        opt.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        opt.step()
        return loss.detach()

    step = wrap(step)
    out = []
    for _ in range(12):
        out += [step(rand(2, 6)), [p.grad._version for p in params], state_of(net, opt)]
    return out


@hostile(EITHER)
def gradients_clipped(wrap):
    net, more = mlp(), nn.Parameter(rand(3))
    opt = arete.optim.SGD(net.parameters(), lr=0.01)
    params = [*net.parameters(), more]

    def step(x):
        opt.zero_grad()
        net(x).square().sum().backward()
        nn.utils.clip_grad_norm_(params, 0.5)
        opt.step()

    step = wrap(step)
    out = []
    for k in range(16):
        more.grad = arete.ones(3, device=DEVICE) * 9 if k == 10 else None
        step(rand(2, 6))
        out += [state_of(net, opt), more.grad]
    return out


@hostile(EITHER)
def step_left_out_now_and_then(wrap):
    net = mlp()
    opt = arete.optim.SGD(net.parameters(), lr=0.01)

    def step(x, update):
        opt.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        if update:
            opt.step()
        return loss.detach()

    step = wrap(step)
    out = []
    for k in range(20):
        out += [step(rand(2, 6), bool(k % 2)), state_of(net)]
    return out


@hostile(EITHER)
def batch_norm(wrap):
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)).to(DEVICE)
    f = wrap(arete.no_grad()(lambda x: net(x)))
    out = []
    for k in range(24):
        if k == 10:
            net.eval()
        out += [f(rand(5, 6)), net[1].running_mean.clone(), net[1].num_batches_tracked.clone()]
    return out


@hostile(EITHER)
def scaler_around(wrap):
    net = mlp()
    opt = arete.optim.SGD(net.parameters(), lr=0.01)
    scaler = arete.amp.GradScaler(DEVICE, init_scale=4.0)

    def step(x):
        opt.zero_grad()
        loss = net(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        return loss.detach()

    step = wrap(step)
    out = []
    for _ in range(10):
        out += [step(rand(2, 6)), state_of(net), scaler.get_scale()]
    return out


@hostile(EITHER)
def memory_that_numpy_has(wrap):
    w = arete.ones(3)
    f = wrap(lambda x: x * w)
    out = [f(rand(3).cpu()) for _ in range(8)]
    shown = w.numpy()
    for k in range(8):
        shown[:] = k
        out.append(f(rand(3).cpu()))
    x = arete.ones(3)
    there = x.numpy()
    for k in range(4):
        there[0] = k
        out.append(f(x))
    return out


@needs_watchers
def test_memory_of_a_gpu_that_other_processes_have():
    fake_gpus.run("""
        from arete import _skip
        from arete.multiprocessing.reductions import reduce_tensor

        _skip._CALLS_BEFORE = 1
        own, x = torch.ones(3, device="cuda"), torch.ones(3, device="cuda")
        function, args = reduce_tensor(x)
        y = function(*args)  # as another process has it
        for w, other, may_skip in ((own, None, True), (x, y, False), (y, x, False)):
            f = torch.compile(lambda a: a * w.sum(), options={"exact": True, "skip": True})
            for k in range(12):
                (w if other is None or k < 6 else other).fill_(k if k >= 6 else 1)
                assert f(torch.ones(3, device="cuda")).tolist() == [3.0 * (k if k >= 6 else 1)] * 3, (k, f.explain())
            assert (f.stats()["skipped"] > 0) == may_skip, f.explain()
    """)


def compare(program, how, reasons):
    made = []

    def wrap(f):
        made.append(skipping(f))
        return made[-1]

    arete.manual_seed(1)
    eager = bits(program(lambda f: f))
    arete.manual_seed(1)
    compiled = bits(program(wrap))
    assert compiled == eager
    skipped = sum(f.stats()["skipped"] for f in made)
    text = "\n".join(f.explain().split("\n\n")[0] for f in made)
    assert how == EITHER or (skipped > 0) == (how == SKIPPED), text
    for reason in reasons:
        assert reason in text


@needs_watchers
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_does_what_it_does_eagerly(name):
    compare(*HOSTILE[name])


@needs_watchers
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_it_does_eagerly(name):
    compare(PROGRAMS[name], EITHER, ())


@needs_watchers
def test_a_sampled_call_that_does_something_else_ends_skipping(monkeypatch):
    from arete import _skip

    # A function that is said to be pure, and is not.
    class Sly:
        def __init__(self):
            self.value = 2

        def __call__(self):
            return self.value

    hidden = Sly()
    monkeypatch.setattr(_skip._Search, "look_at_instance", lambda *args: None)
    f = skipping(lambda x: x * hidden())
    for _ in range(60):
        f(rand(2))
    assert f.stats()["skipped"] > 50
    hidden.value = 3
    for _ in range(10):
        f(rand(2))
    x = rand(2)
    assert bits(f(x)) == bits(x * 3)
    assert "did something else" in f.explain()


@needs_watchers
def test_arguments_that_are_nested_deeply():
    f = skipping(lambda x, n: x + 1)
    deep = ()
    for _ in range(100):
        deep = (deep,)
    for _ in range(10):
        f(rand(2), deep)
    assert f.stats()["skipped"] == 0 and "nested deeply" in f.explain()


@needs_watchers
def test_a_monitor_that_cannot_start(monkeypatch):
    def use_tool_id(*args):
        raise ValueError("tool 4 is already in use")

    monkeypatch.setattr(sys.monitoring, "use_tool_id", use_tool_id)
    f = skipping(lambda x: x + 1)
    for _ in range(10):
        f(rand(2))
    assert f.stats()["skipped"] == 0 and "sys.monitoring" in f.explain()


@needs_watchers
def test_several_threads():
    net = mlp()
    f = skipping(arete.no_grad()(lambda x: net(x)))
    x = [rand(4, 6) for _ in range(4)]
    expected = [bits(net(v).detach()) for v in x]
    wrong = []

    def work(v, e):
        with arete.no_grad():
            wrong.extend(1 for _ in range(60) if bits(f(v)) != e)

    threads = [threading.Thread(target=work, args=a) for a in zip(x, expected)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@needs_watchers
def test_modules_are_freed():
    net = mlp()
    f = skipping(arete.no_grad()(lambda x: net(x)))
    for _ in range(12):
        f(rand(4, 6))
    assert f.stats()["skipped"] > 0
    gone = weakref.ref(net[0])
    del f, net
    gc.collect()
    assert gone() is None


def test_the_front_door_says_what_it_does():
    x = arete.ones(2)
    f = arete.compile(lambda x: x + 1, mode="reduce-overhead")
    for _ in range(10):
        f(x)
    if CAN_SKIP:
        assert f.stats()["skipped"] > 0 and "\nskip\n" in f.explain()
    else:
        assert f.stats()["skipped"] == 0 and "follow: skipping needs Python 3.12" in f.explain()
    assert "follow" not in arete.compile(lambda x: x + 1).explain()
    with pytest.raises(RuntimeError, match="Unexpected optimization option"):
        arete.compile(lambda x: x, options={"skip": "perhaps"})
