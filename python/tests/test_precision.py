"""Switches of precision, and layers that change their dtype and memory format."""
import numpy as np
import pytest
from device_helpers import on_devices

import arete


def test_switches():
    assert arete.get_float32_matmul_precision() == "highest"
    matmul, cudnn = arete.backends.cuda.matmul, arete.backends.cudnn
    try:
        arete.set_float32_matmul_precision("high")
        assert matmul.allow_tf32
        matmul.allow_tf32 = False
        assert arete.get_float32_matmul_precision() == "highest"
        with pytest.raises(ValueError, match="lowest"):
            arete.set_float32_matmul_precision("lowest")
    finally:
        arete.set_float32_matmul_precision("highest")
    assert not cudnn.allow_tf32
    cudnn.allow_tf32 = True
    assert cudnn.allow_tf32
    assert not matmul.allow_tf32
    cudnn.allow_tf32 = False
    with cudnn.flags(deterministic=True, allow_tf32=True):
        assert arete.are_deterministic_algorithms_enabled()
        assert cudnn.allow_tf32
    assert not cudnn.allow_tf32
    for precision, inside in (("tf32", True), ("ieee", False)):
        for allowed in (None, True, False):
            cudnn.allow_tf32 = not inside
            with cudnn.flags(allow_tf32=allowed, fp32_precision=precision):
                assert cudnn.allow_tf32 is inside and cudnn.conv.fp32_precision == cudnn.fp32_precision == precision
            assert cudnn.allow_tf32 is not inside
    with cudnn.flags(allow_tf32=True, fp32_precision="none"):
        assert cudnn.allow_tf32
    with cudnn.flags(False, False, 5, True, False, "tf32"):  # in PyTorch's order
        assert cudnn.benchmark_limit == 5 and cudnn.deterministic and cudnn.allow_tf32 and not cudnn.enabled
    with pytest.raises(ValueError, match="'half'"):
        with cudnn.flags(enabled=False, fp32_precision="half"):
            raise AssertionError("not reached")
    assert cudnn.enabled
    # What was never set follows products again, afterwards too.
    cudnn.conv.fp32_precision = "none"
    with cudnn.flags(fp32_precision="tf32"):
        assert cudnn.allow_tf32 and not matmul.allow_tf32
    assert not cudnn.allow_tf32
    matmul.allow_tf32 = True
    assert cudnn.allow_tf32
    matmul.allow_tf32 = False
    before = cudnn.deterministic
    assert not arete.are_deterministic_algorithms_enabled()
    arete.use_deterministic_algorithms(True)
    assert arete.are_deterministic_algorithms_enabled()
    arete.use_deterministic_algorithms(False)
    cudnn.deterministic = True
    assert cudnn.deterministic
    cudnn.deterministic = before
    # The switches are those that the C++ library reads.
    assert cudnn.enabled and cudnn.benchmark and cudnn.benchmark_limit == 10
    with cudnn.flags(enabled=False, benchmark=False, benchmark_limit=3):
        assert not arete._C._cudnn_enabled(None) and not arete._C._cudnn_benchmark(None)
        assert arete._C._cudnn_benchmark_limit(None) == 3
        assert not cudnn.enabled and not cudnn.benchmark and cudnn.benchmark_limit == 3
    assert cudnn.enabled and cudnn.benchmark and cudnn.benchmark_limit == 10
    with pytest.raises(ValueError):
        cudnn.benchmark_limit = -1


@on_devices
def test_layers_change_their_dtype_and_order(device):
    net = arete.nn.Sequential(arete.nn.Conv2d(3, 4, 3), arete.nn.BatchNorm2d(4)).to(device)
    for name, dtype in (("half", arete.float16), ("bfloat16", arete.bfloat16), ("double", arete.float64), ("float", arete.float32)):
        assert getattr(net, name)() is net
        assert {p.dtype for p in net.parameters()} == {dtype}
        assert net[1].num_batches_tracked.dtype is arete.int64
    exact = net(arete.ones(1, 3, 6, 6, device=device))
    net.to(memory_format=arete.channels_last)
    assert net[0].weight.is_contiguous(memory_format=arete.channels_last)
    x = arete.ones(1, 3, 6, 6, device=device).to(memory_format=arete.channels_last)
    assert x.is_contiguous(memory_format=arete.channels_last)
    y = net(x)
    assert y.is_contiguous(memory_format=arete.channels_last)
    np.testing.assert_allclose(y.detach().cpu().numpy(), exact.detach().cpu().numpy(), atol=1e-5)
