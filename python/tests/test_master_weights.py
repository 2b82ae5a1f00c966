"""Optimizers that keep float32 copies of parameters in half types."""
import numpy as np
import pytest
from device_helpers import on_devices

import arete

WITH_MASTERS = [(arete.optim.SGD, dict(lr=0.01, momentum=0.9)), (arete.optim.Adam, dict(lr=0.001)),
                (arete.optim.AdamW, dict(lr=0.001, amsgrad=True))]


@on_devices
@pytest.mark.parametrize("dtype", [arete.float16, arete.bfloat16])
@pytest.mark.parametrize("make,options", WITH_MASTERS)
def test_master_weights_add_up_small_updates(make, options, dtype, device):
    start = arete.linspace(1, 2, 6, device=device).to(dtype)
    grads = [arete.randn(6, device=device).mul(0.1).to(dtype) for _ in range(20)]
    half, exact = start.clone().requires_grad_(), start.float().requires_grad_()
    ours, reference = make([half], **options, master_weights=True), make([exact], **options)
    for i, g in enumerate(grads):
        half.grad, exact.grad = g, g.float()
        ours.step()
        reference.step()
        np.testing.assert_array_equal(half.detach().float().cpu().numpy(), exact.detach().to(dtype).float().cpu().numpy())
        if i == 10:  # saved and loaded into new objects
            state = ours.state_dict()
            assert state["state"][0]["master_param"].dtype is arete.float32
            half = half.detach().clone().requires_grad_()
            ours = make([half], **options, master_weights=True)
            ours.load_state_dict(state)
    assert {v.dtype for k, v in ours.state_dict()["state"][0].items() if v is not None and k != "step"} == {arete.float32}


@on_devices
def test_master_weights_with_a_scaler(device):
    w = arete.ones(4, device=device, dtype=arete.float16).requires_grad_()
    optimizer, scaler = arete.optim.SGD([w], lr=1e-4, master_weights=True), arete.amp.GradScaler(device, init_scale=256.0)
    for i in range(8):
        optimizer.zero_grad()
        scaler.scale(w.float().sum() * (float("nan") if i == 0 else 1)).backward()
        assert w.grad.dtype is arete.float16
        if i == 3:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    np.testing.assert_allclose(optimizer.state_dict()["state"][0]["master_param"].tolist(), [1 - 7e-4] * 4, rtol=1e-6)
    assert w.tolist() == [float(np.float16(1 - 7e-4))] * 4


def test_float32_parameters_have_no_masters():
    w = arete.ones(2).requires_grad_()
    optimizer = arete.optim.SGD([w], lr=0.5, master_weights=True)
    w.grad = arete.ones(2)
    optimizer.step()
    assert w.tolist() == [0.5, 0.5]
    assert "master_param" not in optimizer.state_dict()["state"].get(0, {})
    assert "master_weights" not in arete.optim.Adam([w]).state_dict()["param_groups"][0]


def steps_of_one(device, dtype=arete.bfloat16, options=None):
    """A parameter at -1 after one step of SGD with lr 1 and gradient 1, and a function that does the next one."""
    w = arete.zeros(4, device=device, dtype=dtype).requires_grad_()
    optimizer = arete.optim.SGD([w], lr=1.0, master_weights=True, **(options or {}))

    def step():
        w.grad = arete.ones(4, device=device, dtype=dtype)
        optimizer.step()
        return w.tolist()

    assert step() == [-1] * 4
    return w, optimizer, step


WRITES = {
    "fill_": lambda w: w.fill_(100),
    "copy_": lambda w: w.copy_(arete.full((4,), 100.0)),
    "detach": lambda w: w.detach().add_(101),
    "data": lambda w: setattr(w, "data", arete.full((4,), 100.0, dtype=w.dtype, device=w.device)),
    "view of data": lambda w: w.data[:].mul_(-100),
    "load_state_dict": lambda w: load_into(w),
}


def load_into(w):
    module = arete.nn.Module()
    module.w = arete.nn.Parameter(w.data)
    module.load_state_dict({"w": arete.full((4,), 100.0)})


@on_devices
@pytest.mark.parametrize("fused", [None, True])
@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_to_a_parameter_counts(write, fused, device):
    w, _, step = steps_of_one(device, options={"fused": fused})
    with arete.no_grad():
        WRITES[write](w)
    assert step() == [99] * 4
    assert step() == [98] * 4


@on_devices
def test_a_write_to_one_element_leaves_the_masters_of_the_others(device):
    w = arete.ones(3, device=device, dtype=arete.bfloat16).requires_grad_()
    optimizer = arete.optim.SGD([w], lr=1e-3, master_weights=True)
    for i in range(100):
        if i == 50:
            with arete.no_grad():
                w[1] = 2
        w.grad = arete.ones(3, device=device, dtype=arete.bfloat16)
        optimizer.step()
    masters = optimizer.state_dict()["state"][0]["master_param"].tolist()
    np.testing.assert_allclose(masters, [0.9, 2 - 0.05, 0.9], rtol=1e-5)


@on_devices
def test_neighbours_in_one_storage_keep_their_masters(device):
    flat = arete.ones(4, device=device, dtype=arete.bfloat16)
    a, b = flat[:2].requires_grad_(), flat[2:].requires_grad_()
    first, second = (arete.optim.SGD([p], lr=1e-3, master_weights=True) for p in (a, b))
    for _ in range(100):
        for p, optimizer in ((a, first), (b, second)):
            p.grad = arete.ones(2, device=device, dtype=arete.bfloat16)
            optimizer.step()
    np.testing.assert_allclose(first.state_dict()["state"][0]["master_param"].tolist(), [0.9, 0.9], rtol=1e-5)
    np.testing.assert_allclose(flat.tolist(), [0.8984] * 4, rtol=1e-3)


@on_devices
@pytest.mark.parametrize("make,options", WITH_MASTERS)
def test_writes_under_a_scaler(make, options, device):
    """After a write an optimizer goes on as one of float32 parameters that are there does."""
    half = arete.linspace(1, 2, 6, device=device).half().requires_grad_()
    exact = half.detach().float().requires_grad_()
    ours, reference = make([half], **options, master_weights=True), make([exact], **options)
    scaler = arete.amp.GradScaler(device, init_scale=16.0)
    scaler.scale(half.float().sum())
    for i in range(9):
        g = arete.linspace(-1, 1, 6, device=device).half()
        half.grad, exact.grad = g * 16, g.float()
        if i == 4:  # written where an update is left out, and again
            half.grad[0] = float("nan")
        if i in (3, 4):
            with arete.no_grad():
                half.fill_(i)
                exact.fill_(i)
        scaler.step(ours)
        if i != 4:
            reference.step()
        scaler.update(16.0)
        assert half.tolist() == exact.half().tolist()


@on_devices
@pytest.mark.parametrize("model_first", [False, True])
def test_loading_a_state(model_first, device):
    w, optimizer, step = steps_of_one(device)
    optimizer.param_groups[0]["lr"] = 2.0**-10
    step()
    saved, weight = optimizer.state_dict(), w.detach().clone()
    assert saved["state"][0]["master_param"].tolist() == [-1 - 2.0**-10] * 4 and weight.tolist() == [-1] * 4
    v = arete.zeros(4, device=device, dtype=arete.bfloat16).requires_grad_()
    other = arete.optim.SGD([v], lr=1.0, master_weights=True)
    load = [lambda: v.detach().copy_(weight), lambda: other.load_state_dict({**saved, "state": dict(saved["state"])})]
    for f in load if model_first else reversed(load):
        f()
    v.grad = arete.zeros(4, device=device, dtype=arete.bfloat16)
    other.step()
    # The parameter is the rounding of what was loaded, which has more digits.
    assert other.state_dict()["state"][0]["master_param"].tolist() == [-1 - 2.0**-10] * 4
    other.load_state_dict(saved)
    v.detach().fill_(5)  # it is not: the parameter counts
    other.step()
    assert other.state_dict()["state"][0]["master_param"].tolist() == [5] * 4


def test_writes_between_replays_of_a_graph():
    if not arete.cuda.is_available():
        pytest.skip("needs a GPU")
    w, optimizer, step = steps_of_one("cuda")
    w.grad = arete.ones(4, device="cuda", dtype=arete.bfloat16)
    graph = arete.cuda.CUDAGraph()
    with arete.cuda.graph(graph):
        optimizer.step()
    before = w[0].item()
    graph.replay()
    assert w[0].item() == before - 1
    w.detach().fill_(100)
    graph.replay()
    graph.replay()
    assert w.tolist() == [98] * 4
