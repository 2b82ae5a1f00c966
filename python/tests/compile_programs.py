"""Programs of all kinds for test_compile.py, which runs each with its functions called and compiled."""
import copy
import gc
import os
import pickle
import threading

import numpy as np

import arete
import arete.nn.functional as F
from arete import nn

DEVICE = "cuda" if arete.cuda.is_available() and os.environ.get("ARETE_TEST_DEVICE") == "cuda" else "cpu"


def exact(f):
    return arete.compile(f, options={"exact": True})


def bits(value):
    """What a program gave, as something that compares."""
    if isinstance(value, arete.Tensor):
        t = value.detach().cpu().contiguous()
        return str(t.dtype), tuple(t.shape), t.numpy().tobytes() if t.dtype != arete.bfloat16 else t.view(arete.int16).numpy().tobytes()
    if isinstance(value, dict):
        return {k: bits(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value


PROGRAMS = {}


def program(f):
    """`f(wrap)` makes functions with wrap() (which compiles them, or not), calls them, and gives all that came of it."""
    PROGRAMS[f.__name__] = f
    return f


def rand(*shape, **kwargs):
    return arete.randn(*shape, device=DEVICE, **kwargs)


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(DEVICE)


def params_of(net):
    return [p for p in net.parameters()]


@program
def chain(wrap):
    f = wrap(lambda x, y: (F.gelu(1.5 * x + y) * arete.sigmoid(y) - arete.tanh(x)).exp())
    return [f(rand(5, 7), rand(5, 7)) for _ in range(4)]


@program
def branches_on_data(wrap):
    f = wrap(lambda x: x * 2 if x.sum() > 0 else x - 1)
    return [f(rand(3)) for _ in range(8)]


@program
def loop_until_small(wrap):
    def f(x):
        n = 0
        while x.abs().max().item() > 0.1:
            x = x * 0.5
            n += 1
        return x, n

    f = wrap(f)
    return [f(rand(4) * k) for k in range(1, 5)]


@program
def list_that_grows(wrap):
    kept = []

    def f(x):
        kept.append(x * len(kept))
        return sum(kept)

    f = wrap(f)
    return [f(rand(3)) for _ in range(5)] + kept


@program
def attribute_changed_between(wrap):
    class Model(nn.Module):
        scale = 1.0

        def forward(self, x):
            return (x * self.scale).sin()

    m = Model()
    f = wrap(m)
    out = []
    for k in range(4):
        m.scale = float(k)
        out.append(f(rand(3)))
    return out


@program
def closure_over_tensor(wrap):
    w = rand(3, 3)
    f = wrap(lambda x: x @ w + w.sum())
    out = []
    for k in range(4):
        out.append(f(rand(2, 3)))
        if k == 1:
            w.mul_(2)
        if k == 2:
            w = rand(3, 3)
    return out


@program
def input_changed_in_place(wrap):
    def f(x):
        x += 1
        x[0] = 5
        return x * 2

    f = wrap(f)
    x = rand(3, 2)
    return [f(x) for _ in range(3)] + [x, x._version]


@program
def view_of_input_returned(wrap):
    f = wrap(lambda x: x[1:].t())
    x = rand(4, 3)
    views = [f(x) for _ in range(3)]
    views[0].mul_(2)
    return [x, *views]


@program
def view_of_result_returned(wrap):
    f = wrap(lambda x: ((y := x * 2), y[1:], y.view(-1)))
    out = []
    for _ in range(3):
        y, tail, flat = f(rand(4, 3))
        tail.add_(1)
        out += [y, tail, flat]
    return out


@program
def aliased_inputs(wrap):
    def f(a, b):
        a.add_(1)
        return a * b

    f = wrap(f)
    x = rand(4)
    return [f(x, x), f(x, x[:]), f(x[:2], x[1:3]), f(x, rand(4)), f(x, x)]


@program
def same_tensor_twice(wrap):
    f = wrap(lambda a, b: (a + b).relu() - a)
    x, y = rand(3), rand(3)
    return [f(x, y), f(x, x), f(y, x), f(y, y)]


@program
def not_contiguous(wrap):
    f = wrap(lambda x: (x * 2).sum(0) + x[0].exp())
    return [f(rand(4, 6).t()), f(rand(6, 8)[:, ::2]), f(rand(4).expand(6, 4)), f(rand(6, 4).flip(0)), f(rand(4, 6).t())]


@program
def zero_sizes(wrap):
    f = wrap(lambda x: (x * 2 + 1).sum() + arete.cat([x, x]).numel())
    return [f(rand(*s)) for s in ((0,), (3,), (0, 4), (0,), (2, 0), (3,))]


@program
def changing_shapes_and_dtypes(wrap):
    f = wrap(lambda x: (x.float() * 2 + 1).mean() if x.is_floating_point() else x + 1)
    kinds = (arete.float32, arete.bfloat16, arete.int64, arete.bool)
    return [f(arete.ones(n, dtype=t, device=DEVICE) * n) for n in (1, 5, 3) for t in kinds]


@program
def random_numbers(wrap):
    def f(x):
        return F.dropout(x, 0.3) + arete.rand_like(x) + arete.randn(3, device=x.device) + arete.randint(0, 5, (3,), device=x.device)

    f = wrap(f)
    arete.manual_seed(3)
    return [f(rand(3)) for _ in range(5)]


@program
def random_state_read_between(wrap):
    def f(x):
        a = arete.rand(3)
        state = arete.get_rng_state()
        b = arete.rand(3)
        arete.set_rng_state(state)
        return a, b, arete.rand(3), x.cpu() + arete.initial_seed()

    f = wrap(f)
    arete.manual_seed(9)
    return [f(rand(3)) for _ in range(3)] + [arete.get_rng_state()]


@program
def generators(wrap):
    g = arete.Generator().manual_seed(4)
    f = wrap(lambda: (arete.rand(3, generator=g), arete.randperm(5, generator=g), arete.bernoulli(arete.full((4,), 0.5), generator=g)))
    return [f() for _ in range(4)]


@program
def nested_autocast(wrap):
    def f(x, w):
        with arete.autocast(DEVICE, arete.bfloat16):
            y = x @ w
            with arete.autocast(DEVICE, enabled=False):
                z = y.float() @ w
            return y, z, (y.relu() @ w).float().softmax(-1)

    f = wrap(f)
    return [f(rand(4, 4), rand(4, 4)) for _ in range(3)]


@program
def modes_switched(wrap):
    w = rand(3).requires_grad_()

    def f(x):
        with arete.no_grad():
            a = x * w
        with arete.inference_mode():
            b = (x + w).exp()
        c = x * w
        with arete.enable_grad():
            d = c.sin()
        return a, b.sum().item(), c, d, a.requires_grad, c.requires_grad, d.requires_grad

    f = wrap(f)
    with arete.no_grad():
        first = f(rand(3))
    return [first, f(rand(3)), f(rand(3))]


@program
def grad_mode_left_switched_off(wrap):
    f = wrap(lambda x: (arete.set_grad_enabled(False), x * 2)[1])
    w = rand(2).requires_grad_()
    out = [f(w).requires_grad, arete.is_grad_enabled()]
    arete.set_grad_enabled(True)
    return out + [f(w).requires_grad, arete.set_grad_enabled(True) and None]


@program
def double_backward(wrap):
    def f(x):
        y = (x**3).sum()
        (g,) = arete.autograd.grad(y, x, create_graph=True)
        (h,) = arete.autograd.grad((g * g).sum(), x)
        return y, g, h

    f = wrap(f)
    return [f(rand(3).requires_grad_()) for _ in range(3)]


@program
def retained_graph(wrap):
    def f(x):
        y = x.exp() * x
        y.sum().backward(retain_graph=True)
        y.mean().backward()
        return x.grad

    f = wrap(f)
    return [f(rand(3).requires_grad_()) for _ in range(3)]


@program
def gradient_hooks(wrap):
    seen = []

    def f(x):
        y = x * 2
        y.register_hook(lambda g: seen.append(g.clone()) or g * 3)
        x.register_hook(lambda g: g + 1)
        (y * y).sum().backward()
        return x.grad

    f = wrap(f)
    return [f(rand(3).requires_grad_()) for _ in range(3)] + seen


@program
def module_hooks(wrap):
    net, seen = mlp(), []
    net[0].register_forward_hook(lambda m, a, y: seen.append(y.detach().clone()) or y * 1.5)
    net[2].register_full_backward_hook(lambda m, i, o: seen.append(o[0].clone()))
    f = wrap(net)
    out = []
    for k in range(3):
        y = f(rand(2, 6))
        y.sum().backward()
        out.append(y)
        if k == 1:
            net.register_forward_pre_hook(lambda m, a: (a[0] * 2,))
    return out + seen + [p.grad for p in net.parameters()]


def train(wrap, make_optimizer, steps=12, change=None, scaler=False, autocast=False, dropout=False, schedule=None, clip=False):
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.3 if dropout else 0.0), nn.Linear(8, 3)).to(DEVICE)
    opt = make_optimizer(net.parameters())
    lr = schedule(opt) if schedule else None
    grad_scaler = arete.amp.GradScaler(DEVICE, init_scale=1024.0, enabled=scaler)
    state = {"net": net, "opt": opt}

    def step(x, y):
        opt = state["opt"]
        opt.zero_grad()
        with arete.autocast(DEVICE, arete.bfloat16, enabled=autocast):
            loss = F.cross_entropy(net(x), y)
        grad_scaler.scale(loss).backward()
        if clip:
            grad_scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        grad_scaler.step(opt)
        grad_scaler.update()
        if lr:
            lr.step()
        return loss.detach()

    step = wrap(step)
    losses = []
    for k in range(steps):
        if change:
            change(state, k)
        losses.append(step(rand(5, 6), arete.randint(0, 3, (5,), device=DEVICE)))
    return losses, net.state_dict(), [p.grad for p in net.parameters()], state["opt"].state_dict()["state"]


for name, make in {
    "sgd": lambda p: arete.optim.SGD(p, 0.1), "momentum": lambda p: arete.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: arete.optim.Adam(p, 0.01), "adamw": lambda p: arete.optim.AdamW(p, 0.01, amsgrad=True),
    "rmsprop": lambda p: arete.optim.RMSprop(p, 0.01, momentum=0.5, centered=True), "adagrad": lambda p: arete.optim.Adagrad(p, 0.1),
    "adadelta": lambda p: arete.optim.Adadelta(p), "adamax": lambda p: arete.optim.Adamax(p), "nadam": lambda p: arete.optim.NAdam(p),
    "radam": lambda p: arete.optim.RAdam(p), "rprop": lambda p: arete.optim.Rprop(p), "asgd": lambda p: arete.optim.ASGD(p),
}.items():
    PROGRAMS[f"step_{name}"] = lambda wrap, make=make: train(wrap, make)

PROGRAMS["step_with_dropout"] = lambda wrap: train(wrap, lambda p: arete.optim.AdamW(p, 0.01), dropout=True)
PROGRAMS["step_with_autocast"] = lambda wrap: train(wrap, lambda p: arete.optim.AdamW(p, 0.01), autocast=True)
PROGRAMS["step_with_clipping"] = lambda wrap: train(wrap, lambda p: arete.optim.SGD(p, 0.1), clip=True)
PROGRAMS["step_with_scaler"] = lambda wrap: train(wrap, lambda p: arete.optim.AdamW(p, 0.01), scaler=True, clip=True)
PROGRAMS["step_with_schedule"] = lambda wrap: train(
    wrap, lambda p: arete.optim.SGD(p, 0.1), schedule=lambda o: arete.optim.lr_scheduler.CosineAnnealingLR(o, 5))
PROGRAMS["step_with_one_cycle"] = lambda wrap: train(
    wrap, lambda p: arete.optim.AdamW(p, 0.1), schedule=lambda o: arete.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=14))


@program
def layers_frozen_in_training(wrap):
    def change(state, k):
        if k in (2, 4):
            for p in state["net"][0].parameters():
                p.requires_grad_(k == 4)

    return train(wrap, lambda p: arete.optim.AdamW(p, 0.01), change=change)


@program
def optimizer_replaced(wrap):
    def change(state, k):
        if k == 3:
            state["opt"] = arete.optim.SGD(state["net"].parameters(), 0.1, momentum=0.9)

    return train(wrap, lambda p: arete.optim.AdamW(p, 0.01), change=change)


@program
def param_groups_changed(wrap):
    def change(state, k):
        group = state["opt"].param_groups[0]
        group["lr"] = 0.1 / (k + 1)
        if k == 3:
            group["weight_decay"] = 0.1

    return train(wrap, lambda p: arete.optim.AdamW(p, 0.01), change=change)


@program
def train_and_eval_switched(wrap):
    def change(state, k):
        state["net"].train(k % 2 == 0)

    return train(wrap, lambda p: arete.optim.SGD(p, 0.1), change=change, dropout=True)


@program
def accumulation_over_micro_batches(wrap):
    net = mlp()
    opt = arete.optim.AdamW(net.parameters(), 0.01)

    def step(batches):
        opt.zero_grad()
        for x in batches:
            (net(x).square().mean() / len(batches)).backward()
        opt.step()

    step = wrap(step)
    for n in (2, 3, 3, 2):
        step([rand(4, 6) for _ in range(n)])
    return net.state_dict()


@program
def backward_outside(wrap):
    net = mlp()
    f = wrap(net)
    opt = arete.optim.SGD(net.parameters(), 0.1)
    losses = []
    for _ in range(5):
        loss = f(rand(4, 6)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return losses, net.state_dict()


@program
def scaler_overflow(wrap):
    w = nn.Parameter(arete.ones(3, device=DEVICE))
    opt = arete.optim.SGD([w], 0.1)
    scaler = arete.amp.GradScaler(DEVICE, init_scale=4.0, growth_interval=2)

    def step(x):
        opt.zero_grad()
        scaler.scale((w * x).sum()).backward()
        scaler.step(opt)
        scaler.update()
        return scaler.get_scale()

    step = wrap(step)
    inf = float("inf")
    return [step(arete.full((3,), v, device=DEVICE)) for v in (1.0, inf, 1.0, 2.0, inf, 3.0)] + [w]


@program
def results_held_over_many_calls(wrap):
    f = wrap(lambda x: [x.exp(), x.exp().t() * 2])
    return [f(rand(3, 3)) for _ in range(10)]


@program
def exception_in_the_middle(wrap):
    def f(x, fail):
        x.add_(1)
        y = x * 2
        if fail:
            raise KeyError("stop")
        return y

    f = wrap(f)
    x, out = rand(3), []
    for fail in (False, True, False, True):
        try:
            out.append(f(x, fail))
        except KeyError:
            out.append("stopped")
    return [*out, x]


@program
def exception_caught_inside(wrap):
    def f(x):
        y = x * 2
        try:
            y @ arete.ones(17, 2, device=x.device)
        except RuntimeError as e:
            return y + 1, type(e).__name__
        return y

    f = wrap(f)
    return [f(rand(3)) for _ in range(3)]


@program
def index_out_of_range(wrap):
    def f(table, index):
        return table[index] * 2

    f = wrap(f)
    out = []
    for i in (1, 9, 0):
        try:
            y = f(arete.arange(3.0), arete.tensor([i]))
            out.append(y)
        except IndexError:
            out.append("out of range")
    return out


@program
def recursion(wrap):
    def f(x, n):
        return x if n == 0 else compiled(x * 2 + 1, n - 1)

    compiled = wrap(f)
    return [compiled(rand(3), n) for n in (0, 3, 3, 5)]


@program
def compiled_calls_compiled(wrap):
    g = wrap(lambda x: x.sin())
    f = wrap(lambda x: g(x) + g(x * 2))
    return [f(rand(3)), g(rand(3)), f(rand(3))]


@program
def several_threads(wrap):
    f = wrap(lambda x: (x * 2 + 1).exp().sum())
    inputs, out = [rand(4) for _ in range(4)], [None] * 4

    def work(k):
        for _ in range(10):
            out[k] = f(inputs[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


@program
def thread_inside(wrap):
    def f(x):
        y, seen = x.exp(), []
        t = threading.Thread(target=lambda: seen.append((y * 2).sum().item()))
        t.start()
        t.join()
        return y + seen[0]

    f = wrap(f)
    return [f(rand(3)) for _ in range(3)]


@program
def deepcopy_of_compiled(wrap):
    f = wrap(mlp())
    x = rand(2, 6)
    g = copy.deepcopy(f)
    with arete.no_grad():
        for p in g.parameters():
            p.mul_(2)
    return f(x), g(x), f(x)


@program
def pickled(wrap):
    f = wrap(mlp())
    x = rand(2, 6)
    g = pickle.loads(pickle.dumps(f))
    return f(x), g(x)


@program
def copies_of_tensors_inside(wrap):
    def f(x):
        y = x * 2
        z = copy.deepcopy(y.detach())
        y = y + pickle.loads(pickle.dumps(z))
        return y, z

    f = wrap(f)
    return [f(rand(3)) for _ in range(3)]


@program
def data_loader_inside(wrap):
    data = arete.utils.data.TensorDataset(arete.arange(12.0).view(6, 2), arete.arange(6))

    def f():
        total = arete.zeros(2)
        for x, y in arete.utils.data.DataLoader(data, batch_size=2, shuffle=False):
            total = total + (x * y[:, None]).sum(0)
        return total

    f = wrap(f)
    return [f() for _ in range(3)]


@program
def printing_inside(wrap):
    def f(x):
        y = x * 2
        text = f"{y} {y.sum():.3f} {y!r} {y.tolist()}"
        return y.exp(), text

    f = wrap(f)
    return [f(rand(3)) for _ in range(3)]


@program
def numpy_inside(wrap):
    def f(x):
        y = (x * 2).cpu()
        a = y.numpy()
        a[0] = 7
        y.add_(1)
        seen = a.copy()
        z = arete.from_numpy(np.arange(3, dtype=np.float32)) * y
        a[1] = -1
        return y, z, seen, np.asarray(z), y * 3

    f = wrap(f)
    return [f(rand(3)) for _ in range(3)]


@program
def numpy_input(wrap):
    a = np.ones(4, np.float32)
    x = arete.from_numpy(a)

    def f(x):
        y = x * 2
        a[:] = 5
        return y + x

    f = wrap(f)
    out = [f(x)]
    a[:] = 2
    return out + [f(x), x]


@program
def addresses_given_to_others(wrap):
    import ctypes

    def f(x):
        y = (x * 2).cpu()
        memory = (ctypes.c_float * 3).from_address(y.data_ptr())
        y.add_(1)
        seen = list(memory)
        memory[0] = 9
        return y * 2, seen

    f = wrap(f)
    return [f(rand(3)) for _ in range(3)]


@program
def custom_function(wrap):
    class Cube(arete.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    def f(x):
        y = Cube.apply(x * 2)
        y.sum().backward()
        return y, x.grad

    f = wrap(f)
    return [f(rand(3).requires_grad_()) for _ in range(3)]


@program
def user_kernel(wrap):
    def kernel(x, y):
        return arete.kernels.apply_program(lambda x, y: x * y + 1, x, y)

    def f(x, y):
        return kernel(x + 1, y).sqrt() + kernel(x, x)

    f = wrap(f)
    return [f(rand(3).abs(), rand(3).abs()) for _ in range(3)]


@program
def sizes_from_values(wrap):
    def f(x):
        picked = x[x > 0]
        return picked * 2, (x > 0).nonzero(), x.unique(), arete.masked_select(x, x < 0)

    f = wrap(f)
    return [f(rand(7)) for _ in range(4)]


@program
def out_arguments(wrap):
    out = arete.empty(3, device=DEVICE)
    f = wrap(lambda x: arete.add(x, 1, out=out) * 2)
    return [f(rand(3)) for _ in range(3)] + [out]


@program
def parameter_replaced(wrap):
    net = nn.Linear(3, 2).to(DEVICE)
    f = wrap(net)
    out = []
    for k in range(4):
        if k == 2:
            net.weight = nn.Parameter(rand(2, 3))
        if k == 3:
            net.weight.data = rand(2, 3)
        out.append(f(rand(2, 3)))
    return out


@program
def state_dict_loaded(wrap):
    net, other = mlp(), mlp()
    f = wrap(net)
    x = rand(2, 6)
    out = [f(x)]
    net.load_state_dict(other.state_dict())
    return out + [f(x), other(x)]


@program
def dtype_of_module_changed(wrap):
    net = mlp()
    f = wrap(net)
    x = rand(2, 6)
    out = [f(x)]
    net.double()
    out.append(f(x.double()))
    net.to(arete.bfloat16)
    return out + [f(x.bfloat16())]


@program
def buffers_updated(wrap):
    bn = nn.BatchNorm2d(3).to(DEVICE)
    f = wrap(bn)
    out = [f(rand(2, 3, 4, 4)) for _ in range(3)]
    bn.eval()
    return out + [f(rand(2, 3, 4, 4)), bn.state_dict()]


@program
def recurrent(wrap):
    net = nn.LSTM(4, 5, batch_first=True).to(DEVICE)

    def f(x, state):
        y, state = net(x, state)
        return y, tuple(s.detach() for s in state)

    f = wrap(f)
    state, out = None, []
    for n in (3, 3, 2, 3):
        y, state = f(rand(2, n, 4), state)
        out.append(y)
    return out, state


@program
def attention(wrap):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(DEVICE)

    def f(x):
        y = layer(x)
        y.square().mean().backward()
        return y

    f = wrap(f)
    return [f(rand(2, 5, 8)) for _ in range(3)] + [p.grad for p in layer.parameters()]


@program
def convolutional(wrap):
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5))
    net.to(DEVICE)
    opt = arete.optim.SGD(net.parameters(), 0.05, momentum=0.9)

    def f(x, y):
        opt.zero_grad(set_to_none=False)
        loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
        loss.backward()
        opt.step()
        return loss.item()

    f = wrap(f)
    return [f(rand(4, 3, 8, 8), arete.randint(0, 5, (4,), device=DEVICE)) for _ in range(5)], net.state_dict()


@program
def embedding(wrap):
    net = nn.Embedding(10, 4, padding_idx=0).to(DEVICE)

    def f(i):
        y = net(i).sum(1)
        y.square().sum().backward()
        return y

    f = wrap(f)
    return [f(arete.randint(0, 10, (3, 4), device=DEVICE)) for _ in range(4)] + [net.weight.grad]


@program
def foreach_lists(wrap):
    def f(xs):
        arete._foreach_mul_(xs, 2.0)
        ys = arete._foreach_add(xs, 1.0)
        return [y.sqrt() for y in ys]

    f = wrap(f)
    xs = [rand(n).abs() for n in (2, 3, 4)]
    return [f(xs) for _ in range(3)] + xs


@program
def indexing(wrap):
    def f(x, i):
        y = x.clone()
        y[i] = 0
        y[:, 1] += 2
        y[y > 1] = 1
        return y, x[i, 0], y[..., None].squeeze(-1).T

    f = wrap(f)
    return [f(rand(4, 3), arete.tensor(i, device=DEVICE)) for i in ([0, 2], [1, 1], [3, 0])]


@program
def split_and_concatenated(wrap):
    def f(x):
        a, b, c = x.chunk(3, -1)
        return arete.cat([b * 2, a, c + 1], -1), arete.stack([a, b, c]).sum(0), x.view(2, 3, 3).permute(2, 0, 1).reshape(-1)

    f = wrap(f)
    return [f(rand(2, 9)) for _ in range(3)]


@program
def complex_numbers(wrap):
    f = wrap(lambda x: arete.fft.ifft(arete.fft.fft(x) * (1 + 2j)).abs() + arete.view_as_real(arete.complex(x, x)).sum(-1))
    return [f(rand(8)) for _ in range(3)]


@program
def linear_algebra(wrap):
    f = wrap(lambda a: (arete.linalg.inv(a @ a.mT + arete.eye(3, device=a.device)), arete.linalg.det(a), arete.linalg.qr(a).R))
    return [f(rand(2, 3, 3)) for _ in range(3)]


@program
def whole_numbers(wrap):
    f = wrap(lambda x: ((x // 3) ^ (x << 1)).cumsum(0) % 7 + x.argmax() + (x > 2).sum())
    return [f(arete.arange(k, k + 9, device=DEVICE)) for k in range(4)]


@program
def sorting(wrap):
    f = wrap(lambda x: (*x.sort(), *x.topk(2), x.median(), x.argsort(descending=True)))
    return [f(rand(6)) for _ in range(3)]


@program
def checkpointed(wrap):
    net = mlp()

    def f(x):
        y = arete.utils.checkpoint.checkpoint(net, x, use_reentrant=False)
        y.square().sum().backward()
        return y, x.grad

    f = wrap(f)
    return [f(rand(2, 6).requires_grad_()) for _ in range(3)] + [p.grad for p in net.parameters()]


@program
def generator_function(wrap):
    def f(x):
        for k in range(3):
            x = x * 2
            yield x

    f = wrap(f)
    return [list(f(rand(2))) for _ in range(2)]


@program
def keywords_and_containers(wrap):
    def f(batch, *, scale=1.0, **rest):
        return {"x": batch["x"] * scale, "all": (rest.get("bias", 0) + batch["x"], [batch["n"]])}

    f = wrap(f)
    return [f({"x": rand(2), "n": k}, scale=k, **({"bias": rand(2)} if k % 2 else {})) for k in range(4)]


@program
def garbage_collected_in_the_middle(wrap):
    def f(x):
        y = x * 2
        cycle = [y * 3]
        cycle.append(cycle)
        del cycle
        gc.collect()
        return y + 1

    f = wrap(f)
    return [f(rand(3)) for _ in range(3)]


@program
def method_of_object(wrap):
    class Trainer:
        def __init__(self):
            self.w, self.seen = rand(3), 0

        def step(self, x):
            self.seen += 1
            self.w = self.w * 0.9 + x
            return self.w.sum() * self.seen

    a = Trainer()
    f = wrap(a.step)
    return [f(rand(3)) for _ in range(4)] + [a.w, a.seen]


@program
def detached_and_moved(wrap):
    def f(x):
        y = (x * 2).detach().to(arete.float64).to(DEVICE, non_blocking=True)
        return y.cpu() + 1, y.type(arete.int32), arete.tensor([1.0, 2.0, 3.0], device=x.device) + y, arete.as_tensor(y.tolist())

    f = wrap(f)
    return [f(rand(3)) for _ in range(3)]


@program
def overlapping_memory(wrap):
    def f(x):
        y = x.as_strided((3, 3), (1, 1)) * 2
        z = x.unfold(0, 2, 1).sum(-1)
        return y, z

    f = wrap(f)
    return [f(rand(5)) for _ in range(3)]


@program
def storage_swapped(wrap):
    def f(x, y):
        x.data = y * 2
        z = x + 1
        x.set_(y)
        return z, x * 3

    f = wrap(f)
    return [f(rand(3), rand(3)) for _ in range(3)]


@program
def gradient_penalty(wrap):
    net = mlp()
    opt = arete.optim.Adam(net.parameters(), 0.01)

    def f(x):
        x = x.requires_grad_()
        (g,) = arete.autograd.grad(net(x).sum(), x, create_graph=True)
        loss = ((g.norm(dim=1) - 1) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    f = wrap(f)
    return [f(rand(4, 6)).detach() for _ in range(5)], net.state_dict()


@program
def moving_average_of_weights(wrap):
    net = mlp()
    average = copy.deepcopy(net)

    def f(x):
        with arete.no_grad():
            for p, q in zip(net.parameters(), average.parameters()):
                p.sub_(0.1 * p.sign())
                q.lerp_(p, 0.1)
        return average(x)

    f = wrap(f)
    return [f(rand(2, 6)) for _ in range(4)] + params_of(average)


@program
def stream_inside(wrap):
    def f(x):
        y = x * 2
        if DEVICE == "cuda":
            s = arete.cuda.Stream()
            s.wait_stream(arete.cuda.current_stream())
            with arete.cuda.stream(s):
                z = y + 1
            arete.cuda.current_stream().wait_stream(s)
            return z * 3
        return (y + 1) * 3

    f = wrap(f)
    return [f(rand(3)) for _ in range(3)]


# Steps as users write them, often enough that calls are made at once, too, where plans do not pay.

def steps_of(wrap, params, loss, *args, steps=40):
    optimizer = arete.optim.AdamW(params, lr=1e-3)

    def step(*given):
        optimizer.zero_grad()
        value = loss(*given)
        value.backward()
        optimizer.step()
        return value.detach()

    step = wrap(step)
    return [step(*args) for _ in range(steps)] + list(params)


@program
def experts_that_rows_are_sent_to(wrap):
    gate, experts = nn.Linear(6, 4).to(DEVICE), nn.ModuleList([mlp() for _ in range(4)])

    def loss(x, y):
        shares, places = gate(x).softmax(-1).topk(2)
        out = x.new_zeros(x.shape[0], 3)
        for k, expert in enumerate(experts):
            rows, slot = arete.where(places == k)
            out = out.index_add(0, rows, expert(x[rows]) * shares[rows, slot, None])
        return F.mse_loss(out, y)

    return steps_of(wrap, [*gate.parameters(), *experts.parameters()], loss, rand(16, 6), rand(16, 3))


@program
def losses_of_rows_that_a_mask_chooses(wrap):
    net, y = mlp(), arete.randint(0, 3, (16,), device=DEVICE)
    y[::3] = -100

    def loss(x, y):
        return F.cross_entropy(net(x)[y != -100], y[y != -100])

    return steps_of(wrap, params_of(net), loss, rand(16, 6), y)


@program
def rounded_weights_with_gradients_of_the_exact_ones(wrap):
    net = mlp()

    def rounded(w):
        scale = w.detach().abs().amax() / 7
        return w + ((w / scale).round().clamp(-8, 7) * scale - w).detach()

    def loss(x, y):
        for layer in net:
            x = F.linear(x, rounded(layer.weight), layer.bias) if isinstance(layer, nn.Linear) else layer(x)
        return F.mse_loss(x, y)

    return steps_of(wrap, params_of(net), loss, rand(16, 6), rand(16, 3))


@program
def an_ensemble_as_one(wrap):
    from arete.func import functional_call, stack_module_state, vmap

    nets = [mlp() for _ in range(3)]
    params, buffers = stack_module_state(nets)
    params = {k: p.detach().requires_grad_() for k, p in params.items()}

    def loss(x, y):
        out = vmap(lambda p, b: functional_call(nets[0], (p, b), (x,)))(params, buffers)
        return F.mse_loss(out, y.expand(3, -1, -1))

    return steps_of(wrap, list(params.values()), loss, rand(16, 6), rand(16, 3))


@program
def generation_with_a_cache_that_grows(wrap):
    embed, qkv, head = nn.Embedding(20, 8).to(DEVICE), nn.Linear(8, 24).to(DEVICE), nn.Linear(8, 20).to(DEVICE)

    @arete.no_grad()
    def token(i, keys, values):
        x = embed(i)
        q, k, v = qkv(x).view(2, 1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        keys, values = arete.cat((keys, k), 2), arete.cat((values, v), 2)
        out = F.scaled_dot_product_attention(q, keys, values).transpose(1, 2).reshape(2, 1, 8)
        return head(x + out)[:, -1].argmax(-1, keepdim=True), keys, values

    token = wrap(token)
    i, keys, values = arete.tensor([[1], [2]], device=DEVICE), *rand(2, 2, 2, 0, 4)
    found = []
    for _ in range(40):
        i, keys, values = token(i, keys, values)
        found.append(i)
    return [*found, keys, values]


@program
def a_schedule_in_a_tensor_and_guards_against_nan(wrap):
    net = mlp()
    optimizer = arete.optim.AdamW(net.parameters(), lr=arete.tensor(1e-2))
    schedule = arete.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)

    def step(x):
        clean = arete.where(x.isnan(), 0.0, x)
        optimizer.zero_grad()
        arete.where(x[:, :3].isnan(), 0.0, (net(clean) - clean[:, :3]).square()).mean().backward()
        bad = ~arete.stack([p.grad.norm() for p in net.parameters()]).isfinite().all()
        for p in net.parameters():
            p.grad = arete.where(bad, 0.0, p.grad)
        optimizer.step()
        schedule.step()
        return optimizer.param_groups[0]["lr"].clone()

    step = wrap(step)
    x = rand(16, 6)
    x[3, 1] = float("nan")
    return [step(x) for _ in range(40)] + params_of(net)
