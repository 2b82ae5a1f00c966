"""Optimizers that keep float32 copies of parameters in half types."""
import numpy as np
import pytest
from device_helpers import on_devices

import arete

WITH_MASTERS = [(arete.optim.SGD, dict(lr=0.01, momentum=0.9)), (arete.optim.Adam, dict(lr=0.001)), (arete.optim.AdamW, dict(lr=0.001, amsgrad=True))]


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
