"""Optimizer steps inside CUDA graphs: 50 steps that are called against 3 that are called and 47 that are replayed, bit for bit;
what cannot be recorded; steps with counts on the device, which need no GPU."""
import copy

import numpy as np
import pytest

import arete as torch

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

STEPS, EAGER = 50, 3
OPTIMIZERS = [
    ("SGD", dict(lr=0.05)), ("SGD", dict(lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.1)),
    ("Adam", dict(lr=0.05, weight_decay=0.1)),
    ("Adam", dict(lr=0.05, fused=True)), ("AdamW", dict(lr=0.05, amsgrad=True)), ("NAdam", dict(lr=0.05)),
    ("RAdam", dict(lr=0.05, betas=(0.9, 0.95))),
    ("Adamax", dict(lr=0.05)), ("RMSprop", dict(lr=0.01, momentum=0.9, centered=True)), ("Adagrad", dict(lr=0.1, lr_decay=0.05)),
    ("Adadelta", dict()), ("Lion", dict(lr=0.01, weight_decay=0.1)), ("Rprop", dict(lr=0.05)), ("ASGD", dict(lr=0.05, lambd=0.2, t0=9)),
    ("Adafactor", dict(lr=0.05, weight_decay=0.1)), ("Muon", dict(lr=0.05)),
]
WITHOUT_COUNTS = ("SGD", "Lion", "Muon")
WAYS = ["plain", "schedule", "tensor", "tensor on the device", "scaler", "clipping", "scaler and clipping", "double", "masters",
        "several steps"]


def made(name, params, options, way, device):
    options = dict(options)
    if name not in WITHOUT_COUNTS and not options.get("fused"):
        options["capturable"] = True
    if way.startswith("tensor"):
        options["lr"] = torch.tensor(options.get("lr", 1.0), dtype=torch.float64, device=device if way.endswith("device") else "cpu")
    if way == "masters":
        options["master_weights"] = True
    other = {} if way.startswith("tensor") else {"lr": options.get("lr", 1.0) / 2}
    return getattr(torch.optim, name)([{"params": params[:2]}, {"params": params[2:], **other}], **options)


def train(name, options, way, replays, device="cuda"):
    """The parameters and the state after 50 steps."""
    dtype = {"double": torch.float64, "masters": torch.bfloat16}.get(way, torch.float32)
    shapes = [(3, 4), (2, 5), (2, 2)] if name == "Muon" else [(3, 4), (7,), (2, 2)]
    params = [torch.linspace(-1, 1.2 + i, int(np.prod(s)), dtype=torch.float64).reshape(s).to(device, dtype).requires_grad_() for i,
              s in enumerate(shapes)]
    x, factor = torch.zeros((), device=device), torch.ones((), device=device)
    optimizer = made(name, params, options, way, device)
    scaler = torch.amp.GradScaler(device, init_scale=64.0, growth_interval=4, enabled="scaler" in way)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97) if way in ("schedule", "scaler", "double",
                                                                                   "masters") or "tensor" in way else None

    def step():
        for _ in range(2 if way == "several steps" else 1):
            loss = sum((p.float() * 0.7 + x * (i + 1)).sin().sum() for i, p in enumerate(params)) * factor
            optimizer.zero_grad(set_to_none=False)
            scaler.scale(loss).backward()
            if "clipping" in way:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(params, 0.5)
            scaler.step(optimizer)
            scaler.update()

    graph = None
    for i in range(1, STEPS + 1):
        if replays and i == EAGER + 1:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
        x.fill_(0.3 * i)
        factor.fill_(float("inf") if "scaler" in way and i % 7 == 2 else 1.0)
        step() if graph is None else graph.replay()
        if scheduler is not None:
            scheduler.step()
    result = {f"parameter {i}": p.detach() for i, p in enumerate(params)}
    for i, p in enumerate(params):
        result.update({f"{key} {i}": v for key, v in optimizer.state[p].items()})
    result["scale"] = torch.tensor([scaler.get_scale(), scaler._get_growth_tracker(), scaler.num_skipped() if scaler.is_enabled() else 0])
    return {key: v.detach().cpu().double().numpy() for key, v in result.items()}


def possible(name, way):
    return way != "masters" or name in ("SGD", "Adam", "AdamW")


@on_a_gpu
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name,options", OPTIMIZERS)
def test_replays_are_steps(name, options, way):
    if not possible(name, way):
        pytest.skip("it has no master_weights")
    called, replayed = (train(name, options, way, replays) for replays in (False, True))
    assert called.keys() == replayed.keys()
    for key, value in called.items():
        np.testing.assert_array_equal(value, replayed[key], err_msg=key)
    if "scaler" in way:
        assert called["scale"][2] == 7


@on_a_gpu
def test_two_optimizers_and_steps_between():
    def run(replays):
        params = [torch.linspace(-1, 1, 6, device="cuda").requires_grad_() for _ in range(3)]
        first, second = torch.optim.AdamW(params[:2], lr=0.05, capturable=True), torch.optim.SGD(params[2:], lr=0.1, momentum=0.9)
        x = torch.zeros((), device="cuda")

        def step():
            for p in params:
                p.grad = (p.detach() * 0.7 + x).sin()
            first.step()
            second.step()

        graph = None
        for i in range(30):
            if replays and i == 3:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    step()
            x.fill_(0.3 * i)
            step() if graph is None or i % 5 == 0 else graph.replay()
            if i == 8:
                first.param_groups[0]["lr"] = 0.01
            if i == 12:
                second.param_groups[0]["momentum"] = 0.5
            if i == 16:
                first.param_groups[0]["betas"] = (0.8, 0.9)
        return [p.tolist() for p in params]

    assert run(True) == run(False)


def recorded(name="Adam", steps=1, **options):
    w = torch.ones(4, device="cuda").requires_grad_()
    w.grad = torch.ones(4, device="cuda")
    optimizer = getattr(torch.optim, name)([w], lr=0.1, **options)
    for _ in range(steps):
        optimizer.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    return w, optimizer, graph


@on_a_gpu
@pytest.mark.parametrize("name,options,text", [
    ("Adam", dict(), r"Attempting CUDA graph capture of step\(\) for an instance of Adam but param_groups' capturable is False"),
    ("Adagrad", dict(), "for an instance of Adagrad but param_groups' capturable is False"),
    ("Adam", dict(capturable=True, steps=0), "run one step before the capture"),
    ("SGD", dict(momentum=0.9, steps=0), "run one step before the capture"),
])
def test_what_cannot_be_recorded(name, options, text):
    with pytest.raises(RuntimeError, match=text):
        recorded(name, **options)
    assert (torch.ones(2, device="cuda") + 1).tolist() == [2, 2]


@on_a_gpu
def test_changes_that_replays_cannot_follow():
    w, optimizer, graph = recorded(capturable=True)
    graph.replay()
    optimizer.param_groups[0]["maximize"] = True
    with pytest.raises(RuntimeError, match="the setting 'maximize' of the optimizer Adam changed"):
        graph.replay()
    optimizer.param_groups[0]["maximize"] = False
    graph.replay()
    assert optimizer.state[w]["step"].item() == 3
    kept = dict(optimizer.state[w])
    optimizer.state[w]["exp_avg"] = torch.zeros_like(w)
    with pytest.raises(RuntimeError, match="the state 'exp_avg' of a parameter"):
        graph.replay()
    optimizer.state[w] = kept
    graph.replay()
    memory = w.data
    w.data = memory.clone()
    with pytest.raises(RuntimeError, match="the memory of a parameter of the optimizer Adam changed"):
        graph.replay()
    w.data = memory
    graph.replay()
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    with pytest.raises(RuntimeError, match="changed since its step"):
        graph.replay()


@on_a_gpu
def test_a_graph_keeps_its_optimizer():
    w, optimizer, graph = recorded(capturable=True)
    before = w.tolist()
    del optimizer
    graph.replay()
    assert w.tolist() != before


@on_a_gpu
def test_functions_before_replays():
    x, order = torch.zeros(2, device="cuda"), []
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph.before_replay(lambda: order.append("in"))
        y = x + 1
    graph.before_replay(lambda: x.fill_(len(order)))
    graph.replay()
    graph.replay()
    assert order == ["in", "in"] and y.tolist() == [3, 3]
    graph.before_replay(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        graph.replay()
    with pytest.raises(RuntimeError, match="holds nothing"):
        torch.cuda.CUDAGraph().before_replay(print)


# ---- with counts on the device, on any device


def after_steps(name, options, capturable, scaler_on, device="cpu"):
    params = [torch.linspace(-1, 1.5, 6).to(device).requires_grad_(), torch.linspace(-1, 2, 3).to(device).requires_grad_()]
    optimizer = getattr(torch.optim, name)(params, **options, **({"capturable": True} if capturable else {}))
    scaler = torch.amp.GradScaler(device, init_scale=64.0, enabled=scaler_on)
    scaler.scale(torch.ones((), device=device))
    for i in range(20):
        for k, p in enumerate(params):
            scale = (float("inf") if i % 6 == 4 else 64.0) if scaler_on else 1.0
            p.grad = None if k == 1 and i % 3 == 0 else (p.detach() * 0.7 + 0.3 * i).sin() * scale
        if scaler_on or i % 6 != 4:
            scaler.step(optimizer)
        scaler.update(64.0)
    return params, optimizer


@pytest.mark.parametrize("scaler", [False, True])
@pytest.mark.parametrize("name,options", [o for o in OPTIMIZERS if o[0] not in WITHOUT_COUNTS and "fused" not in o[1]])
def test_counts_on_the_device(name, options, scaler):
    expected, _ = after_steps(name, options, False, False)
    params, optimizer = after_steps(name, options, True, scaler)
    for p, q in zip(params, expected):
        np.testing.assert_allclose(p.tolist(), q.tolist(), rtol=1e-6)
    assert [optimizer.state[p]["step"].item() for p in params] == [17, 10]


@on_a_gpu
@pytest.mark.parametrize("options", [dict(), dict(capturable=True), dict(fused=True)])
def test_where_the_counts_are(options):
    w = torch.ones(2, device="cuda").requires_grad_()
    w.grad = torch.ones(2, device="cuda")
    optimizer = torch.optim.Adam([w], **options)
    optimizer.step()
    assert optimizer.state[w]["step"].device.type == ("cuda" if options else "cpu")
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
    scaler.scale(w.sum())
    for _ in range(2):
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.state[w]["step"].device.type == "cuda"
    assert optimizer.state[w]["step"].item() == 3


def test_a_scaler_on_the_cpu_leaves_no_state():
    w = torch.ones(2).requires_grad_()
    optimizer, scaler = torch.optim.NAdam([w]), torch.amp.GradScaler("cpu", init_scale=4.0)
    for gradient, steps in ((float("inf"), 0), (4.0, 1), (float("nan"), 1), (4.0, 2)):
        scaler.scale(w.sum())
        w.grad = torch.full((2,), gradient)
        scaler.step(optimizer)
        scaler.update(4.0)
        assert (optimizer.state[w]["step"].item() if optimizer.state[w] else 0) == steps
