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
    assert not cudnn.allow_tf32  # conftest.py
    cudnn.allow_tf32 = True
    assert cudnn.allow_tf32 and not matmul.allow_tf32
    cudnn.allow_tf32 = False
    with cudnn.flags(enabled=True, deterministic=True):
        assert cudnn.deterministic and arete._C._cudnn_deterministic(None)
        assert cudnn.allow_tf32
    assert not cudnn.allow_tf32
    matmul.fp32_precision = "none"
    with cudnn.flags(False, True, 5, True, False, "tf32"):  # in PyTorch's order
        assert cudnn.benchmark_limit == 5 and cudnn.deterministic and cudnn.benchmark and not cudnn.enabled
        assert not cudnn.allow_tf32 and cudnn.fp32_precision == matmul.fp32_precision == "tf32"
    assert cudnn.fp32_precision == matmul.fp32_precision == "none" and not cudnn.allow_tf32
    with pytest.raises(RuntimeError, match="Unknown precision: 'half'"):
        with cudnn.flags(enabled=False, fp32_precision="half"):
            raise AssertionError("not reached")
    assert cudnn.enabled
    # What has none of its own follows what is wider.
    cudnn.conv.fp32_precision = matmul.fp32_precision = "none"
    for wider in (cudnn, arete.backends):
        wider.fp32_precision = "tf32"
        assert cudnn.allow_tf32 and matmul.allow_tf32 and arete.get_float32_matmul_precision() == "high"
        cudnn.conv.fp32_precision = "ieee"
        assert not cudnn.allow_tf32 and matmul.allow_tf32
        cudnn.conv.fp32_precision = wider.fp32_precision = "none"
        assert not cudnn.allow_tf32 and not matmul.allow_tf32
    cudnn.conv.fp32_precision = matmul.fp32_precision = "ieee"
    # Of recurrent layers by itself.
    assert cudnn.rnn.fp32_precision == "ieee"  # conftest.py
    cudnn.rnn.fp32_precision = "tf32"
    assert cudnn.rnn.fp32_precision == "tf32" and not cudnn.allow_tf32
    cudnn.allow_tf32 = False
    assert cudnn.rnn.fp32_precision == "ieee"
    before = cudnn.deterministic
    assert not arete.are_deterministic_algorithms_enabled()
    arete.use_deterministic_algorithms(True)
    assert arete.are_deterministic_algorithms_enabled()
    arete.use_deterministic_algorithms(False)
    cudnn.deterministic = True
    assert cudnn.deterministic
    cudnn.deterministic = before
    # The switches are those that the C++ library reads.
    assert cudnn.enabled and not cudnn.benchmark and cudnn.benchmark_limit == 10
    with cudnn.flags(enabled=False, benchmark=True, benchmark_limit=3):
        assert not arete._C._cudnn_enabled(None) and arete._C._cudnn_benchmark(None)
        assert arete._C._cudnn_benchmark_limit(None) == 3
        assert not cudnn.enabled and cudnn.benchmark and cudnn.benchmark_limit == 3
    assert cudnn.enabled and not cudnn.benchmark and cudnn.benchmark_limit == 10
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


def test_deterministic_switches_are_apart():
    cudnn = arete.backends.cudnn
    try:
        for everything in (True, False):
            arete.use_deterministic_algorithms(everything)
            for value in (True, False):
                cudnn.deterministic = value
                assert arete.are_deterministic_algorithms_enabled() is everything and cudnn.deterministic is value
        arete.use_deterministic_algorithms(True)
        assert not cudnn.deterministic
    finally:
        arete.use_deterministic_algorithms(False)
        cudnn.deterministic = False


def test_deterministic_modes_are_torchs():
    torch = pytest.importorskip("torch")
    said = []
    for T in (arete, torch):
        seen = []

        def look(T=T, seen=seen):
            seen.append((T.are_deterministic_algorithms_enabled(), T.is_deterministic_algorithms_warn_only_enabled(),
                         T.get_deterministic_debug_mode()))

        try:
            for mode, warn in ((True, False), (True, True), (False, True), (False, False)):
                T.use_deterministic_algorithms(mode, warn_only=warn)
                look()
            for mode in ("warn", "error", "default", 1, 2, 0):
                T.set_deterministic_debug_mode(mode)
                look()
            for mode in ("nothing", 3, None):
                with pytest.raises((RuntimeError, TypeError)) as e:
                    T.set_deterministic_debug_mode(mode)
                seen.append(str(e.value))
        finally:
            T.use_deterministic_algorithms(False)
        said.append(seen)
    assert said[0] == said[1]


def test_backends_are_modules():
    import types

    import arete.backends.cuda as cuda
    import arete.backends.cudnn as cudnn
    import arete.cuda.nvtx as nvtx
    from arete.backends.cuda import matmul, sdp_kernel  # noqa: F401
    from arete.backends.cudnn import flags

    assert all(isinstance(m, types.ModuleType) for m in (cuda, cudnn, nvtx, arete.backends.mps))
    assert arete.backends.cuda is cuda and arete.backends.cudnn is cudnn and arete.cuda.nvtx is nvtx
    arete.backends.cudnn.benchmark = False
    assert not cudnn.benchmark and not arete._C._cudnn_benchmark(None)
    with flags(benchmark=True):
        assert arete._C._cudnn_benchmark(None)
    cudnn.benchmark = True
    assert arete._C._cudnn_benchmark(None)
    for owner, name in ((matmul, "allow_tf23"), (cudnn, "benchmrak"), (arete.backends, "fp23_precision"), (cudnn.conv, "tf32"),
                        (cuda, "matmull")):
        with pytest.raises(AttributeError):
            setattr(owner, name, True)
        assert not hasattr(owner, name)
    for name, start in (("allow_fp16_reduced_precision_reduction", True), ("allow_bf16_reduced_precision_reduction", True),
                        ("allow_fp16_accumulation", False)):
        assert getattr(matmul, name) is start
        setattr(matmul, name, not start)
        assert getattr(matmul, name) is not start
        setattr(matmul, name, start)
    with nvtx.range("step {}", 3):
        with nvtx.range("inner"):
            pass
    assert arete.cuda.is_tf32_supported() is (arete.cuda.is_available() and arete.cuda.get_device_capability()[0] >= 8)


SWITCHES = ("flash", "mem_efficient", "cudnn", "math")


def allowed():
    return [getattr(arete.backends.cuda, name + "_sdp_enabled")() for name in SWITCHES]


def operators_of(call):
    """The names of the operators that a call runs."""
    with arete.profiler.profile() as p:
        call()
    return {e.key for e in p.key_averages()}


@on_devices
def test_attention_backends(device):
    from arete.nn.attention import SDPBackend, sdpa_kernel

    q = arete.randn(1, 2, 8, 16, device=device, dtype=arete.float16)

    def run(**more):
        return arete.nn.functional.scaled_dot_product_attention(q, q, q, **more)

    exact = run()
    assert allowed() == [True] * 4
    fused = {"fused_attention"} if device != "cpu" else set()
    assert operators_of(run) & {"fused_attention"} == fused
    with sdpa_kernel(SDPBackend.MATH):
        assert allowed() == [False, False, False, True]
        assert not operators_of(run) & {"fused_attention"}
        np.testing.assert_allclose(run().float().cpu().numpy(), exact.float().cpu().numpy(), atol=1e-2)
    for name in SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION:
        with sdpa_kernel([name]):
            assert operators_of(run) & {"fused_attention"} == fused
            if name == SDPBackend.EFFICIENT_ATTENTION:
                run(dropout_p=0.5)
            elif device != "cpu":
                with pytest.raises(RuntimeError, match="No available kernel. Aborting execution."):
                    run(dropout_p=0.5)
    assert allowed() == [True] * 4
    with pytest.raises(AssertionError):
        with sdpa_kernel("math"):
            pass
    try:
        for name in SWITCHES:
            getattr(arete.backends.cuda, f"enable_{name}_sdp")(False)
        assert allowed() == [False] * 4
        with pytest.raises(RuntimeError, match="No viable backend for scaled_dot_product_attention was found"):
            run()
    finally:
        for name in SWITCHES:
            getattr(arete.backends.cuda, f"enable_{name}_sdp")(True)
    with pytest.warns(FutureWarning):
        with arete.backends.cuda.sdp_kernel(enable_math=False):
            assert allowed() == [True, True, True, False]
    assert allowed() == [True] * 4


@pytest.mark.skipif(not arete.cuda.is_available(), reason="tf32 is for GPUs")
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers_round_as_they_are_told(kind, packed):
    matmul, rnn = arete.backends.cuda.matmul, arete.backends.cudnn.rnn
    net, x = getattr(arete.nn, kind)(64, 96), arete.randn(9, 16, 64)
    exact = net.double()(x.double())[0]
    net = net.float().cuda()

    def error(for_layers, for_products):
        rnn.fp32_precision, matmul.fp32_precision = for_layers, for_products
        given = x.cuda()
        with arete.no_grad():
            if packed:
                got = net(arete.nn.utils.rnn.pack_padded_sequence(given, [9] * 16))[0].data.view(9, 16, -1)
            else:
                got = net(given)[0]
        return float((got.cpu().double() - exact).abs().max())

    before = rnn.fp32_precision, matmul.fp32_precision
    try:
        assert error("ieee", "tf32") < 2e-6 < 2e-5 < error("tf32", "ieee") < 5e-3
    finally:
        rnn.fp32_precision, matmul.fp32_precision = before
