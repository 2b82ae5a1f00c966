"""autocast beside torch: dtypes by operator, regions, cached casts, gradients."""
import itertools
import re
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from device_helpers import on_devices
from peer import peer

import arete

torch = peer()
F = arete.nn.functional


def short(dtype):
    return str(dtype).split(".")[1]


def tensors_in(x):
    if isinstance(x, (arete.Tensor, torch.Tensor)):
        yield x
    elif isinstance(x, (list, tuple)):
        for e in x:
            yield from tensors_in(e)


# ---- classes of operators

# Where arete differs on purpose: results that stay in half types or float32 because that loses nothing.
DIFFERENT = {("matrix_exp", "bfloat16"),  # computed in float32, like all of linalg
             ("linalg.pinv", "float32"), ("linalg.pinv", "bfloat16"),
             ("nn.functional.pad", "bfloat16"),  # torch casts for two modes on CPUs, which had no kernels once
             ("tensor_split", "float32"), ("tensor_split", "bfloat16")}  # another overload there


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes_are_torchs_for_the_operator_database(dtype, monkeypatch):
    pytest.importorskip("expecttest")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import op_db

    kind, agreed, wrong = getattr(torch, dtype), 0, []
    for op in op_db.op_db:
        if kind not in op.supported_dtypes("cpu") or (op.name, dtype) in DIFFERENT:
            continue
        try:
            function = op_db.counterpart(op)
        except AttributeError:  # no such operator here: op_db.py reports it
            continue
        try:
            samples = list(itertools.islice(op.sample_inputs("cpu", kind), 1))
        except Exception:  # noqa: BLE001 -- torch's own samples need more than is installed
            continue
        for sample in samples:
            args = (sample.input, *sample.args)
            try:
                with warnings.catch_warnings(), torch.autocast("cpu"):
                    warnings.simplefilter("ignore")
                    theirs = op.op(*args, **sample.kwargs)
                ours_args, ours_kwargs = op_db.to_arete(args, "cpu"), op_db.to_arete(sample.kwargs, "cpu")
            except (op_db.Unsupported, RuntimeError, TypeError, NotImplementedError, AssertionError):
                continue
            try:
                with arete.autocast("cpu"):
                    ours = function(*ours_args, **ours_kwargs)
            except AttributeError:
                continue
            want, got = ([short(t.dtype) for t in op_db.tensors_in(r)] for r in (theirs, ours))
            agreed += want == got
            if want != got:
                wrong.append((op.name, op.variant_test_name, want, got))
    assert not wrong
    assert agreed > 500


# torch's names of operators that have another name or several records here, or none.
RECORDS = {"_convolution": ["convolution"], "conv_transpose2d": ["conv_transpose2d"],
           "_thnn_fused_lstm_cell": [], "_thnn_fused_gru_cell": [], "lstm_cell": [], "gru_cell": [], "rnn_tanh_cell": [],
           "rnn_relu_cell": [], "_scaled_dot_product_flash_attention": ["fused_attention"], "frobenius_norm": ["norm"],
           "nuclear_norm": ["norm"], "nll_loss2d": ["nll_loss"], "grid_sampler": ["grid_sample"],
           "linalg_matrix_norm": ["linalg_matrix_norm", "linalg_matrix_norm.str_ord"]}


def test_classes_on_gpus_are_those_of_torchs_lists():
    header = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
    if not header.exists():
        pytest.skip("this torch came without headers")
    text, checked = header.read_text(), 0
    for macro, name in (("LOWER_PRECISION_FP", "lower"), ("FP32", "f32"), ("FP32_SET_OPT_DTYPE", "f32"), ("PROMOTE", "promote")):
        body = re.search(rf"define AT_FORALL_{macro}\(_\)((?:.*\\\n)*.*\n)", text)[1]
        for op in re.findall(r"_\((\w+)", body):
            records = ["interpolate"] if "upsample" in op else RECORDS.get(op, [op])
            for record in records:
                checked += 1
                assert arete._C._autocast_class(record, "cuda") == name, (op, record)
    assert checked > 90
    assert arete._C._autocast_class("binary_cross_entropy", "cuda") == "banned"
    assert arete._C._autocast_class("binary_cross_entropy", "cpu") == "f32"
    for native in ("add", "relu", "gelu", "mean", "sqrt", "cat", "max_pool2d", "embedding", "silu", "sigmoid"):
        assert arete._C._autocast_class(native, "cuda") == "none"


# Of a half-type and a float32 matrix: the dtype of the result under autocast on a GPU.
ON_GPUS = {
    "low": [lambda h, f: arete.mm(h, f), lambda h, f: f @ f, lambda h, f: F.linear(f, f), lambda h, f: arete.einsum("ij,jk->ik", f, f),
            lambda h, f: arete.mv(f, f[0]), lambda h, f: h + h, lambda h, f: F.relu(h), lambda h, f: F.gelu(h), lambda h, f: h.mean(),
            lambda h, f: F.conv1d(f[None], f[:, :, None]), lambda h, f: arete.cat([h, h]), lambda h, f: arete.sqrt(h),
            lambda h, f: F.batch_norm(h, None, None, f[0], f[1], True), lambda h, f: F.scaled_dot_product_attention(f, f, f)],
    "float32": [lambda h, f: arete.exp(h), lambda h, f: h.log(), lambda h, f: h.pow(2), lambda h, f: h.sum(), lambda h, f: h.softmax(-1),
                lambda h, f: h.cumsum(0), lambda h, f: F.layer_norm(h, (4,)), lambda h, f: F.mse_loss(h, h), lambda h, f: h.norm(),
                lambda h, f: F.cross_entropy(h, h.argmax(1)), lambda h, f: h + f, lambda h, f: arete.addcmul(h, h, f),
                lambda h, f: arete.dot(h[0], f[0]), lambda h, f: arete.cat([h, f]), lambda h, f: arete.tensordot(h, f),
                lambda h, f: F.group_norm(h, 2), lambda h, f: h.prod(), lambda h, f: F.cosine_similarity(h, h)]}


@pytest.mark.skipif(not arete.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("low", [arete.float16, arete.bfloat16])
@pytest.mark.parametrize("want", ON_GPUS)
def test_dtypes_on_a_gpu(want, low):
    f = (arete.rand(4, 4) + 0.5).cuda()
    for function in ON_GPUS[want]:
        with arete.autocast("cuda", low):
            assert function(f.to(low), f).dtype is (low if want == "low" else arete.float32)
    with arete.autocast("cuda", low), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(f.sigmoid(), f.sigmoid())


@on_devices
def test_double_and_other_devices_are_left_alone(device):
    x = arete.rand(3, 3, device=device, dtype=arete.float64)
    other = "cuda" if device == "cpu" else "cpu"
    f = arete.rand(3, 3, device=device)
    with arete.autocast(device):
        assert (x @ x).dtype is arete.float64
        assert arete.ones(3, 3, device=device, dtype=arete.int64).sum().dtype is arete.int64
    before = arete.is_autocast_enabled(other)
    arete.set_autocast_enabled(other, True)
    try:
        assert (f @ f).dtype is arete.float32
    finally:
        arete.set_autocast_enabled(other, before)


@on_devices
def test_out_and_in_place_forms_compute_in_their_own_dtype(device):
    a = arete.rand(3, 3, device=device)
    exact = a @ a
    with arete.autocast(device):
        out = arete.mm(a, a, out=arete.empty(3, 3, device=device))
        again = arete.zeros(3, 3, device=device).addmm_(a, a)
    assert arete.equal(out, exact)
    assert again.dtype is arete.float32


@on_devices
def test_a_dtype_that_is_asked_for_wins(device):
    h = arete.rand(4, 4, device=device, dtype=arete.bfloat16)
    with arete.autocast(device):
        assert h.sum(dtype=arete.float64).dtype is arete.float64
        assert h.softmax(-1, dtype=arete.bfloat16).dtype is arete.bfloat16


# ---- regions


@on_devices
def test_regions_nest_and_end(device):
    a = arete.rand(3, 3, device=device)
    assert not arete.is_autocast_enabled(device)
    with arete.autocast(device, dtype=arete.float16):
        assert arete.is_autocast_enabled(device)
        assert arete.get_autocast_dtype(device) is arete.float16
        assert (a @ a).dtype is arete.float16
        with arete.autocast(device, enabled=False):
            assert (a @ a).dtype is arete.float32
            with arete.amp.autocast(device, dtype=arete.bfloat16):
                assert (a @ a).dtype is arete.bfloat16
        assert (a @ a).dtype is arete.float16
        with pytest.raises(ZeroDivisionError), arete.autocast(device, dtype=arete.bfloat16):
            1 / 0  # noqa: B018
        assert (a @ a).dtype is arete.float16
    assert (a @ a).dtype is arete.float32
    assert arete.get_autocast_dtype("cpu") is arete.bfloat16
    assert arete.get_autocast_dtype("cuda") is arete.get_autocast_gpu_dtype() is arete.float16


@on_devices
def test_decorator_is_reentrant_and_of_its_thread(device):
    seen = []

    @arete.autocast(device, dtype=arete.bfloat16)
    def f(x, depth):
        """of f"""
        seen.append((x @ x).dtype)
        if depth:
            f(x, depth - 1)
        thread = threading.Thread(target=lambda: seen.append((x @ x).dtype))
        thread.start()
        thread.join()

    f(arete.rand(3, 3, device=device), 1)
    assert seen == [arete.bfloat16, arete.bfloat16, arete.float32, arete.float32]
    assert f.__doc__ == "of f"
    assert not arete.is_autocast_enabled(device)


def test_spellings_and_what_is_not_available():
    a = arete.rand(2, 2)
    with arete.cpu.amp.autocast():
        assert (a @ a).dtype is arete.bfloat16
    if not arete.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"):
            region = arete.cuda.amp.autocast()
        with region:
            assert not arete.is_autocast_enabled("cuda")
        with pytest.warns(UserWarning, match="CUDA is not available"):
            assert not arete.cuda.amp.GradScaler().is_enabled()
    with pytest.warns(UserWarning, match="target dtype is not supported. Disabling autocast"):
        region = arete.autocast("cpu", dtype=arete.float64)
    with region:
        assert (a @ a).dtype is arete.float32
    with pytest.raises(RuntimeError, match="User specified an unsupported autocast device_type 'xpu'"):
        arete.autocast("xpu")
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        arete.autocast(arete.bfloat16)
    assert arete.amp.is_autocast_available("cuda")
    assert not arete.amp.is_autocast_available("mps")


# ---- cached casts and gradients


@on_devices
def test_a_parameter_is_cast_once_and_gradients_flow(device):
    lin = arete.nn.Linear(4, 4, bias=False).to(device)
    x = arete.rand(3, 4, device=device)
    casts = []
    with arete.autocast(device, dtype=arete.bfloat16):
        for _ in range(2):
            y = lin(x)
            casts.append(next(f for f, _ in y.grad_fn.next_functions if f is not None))
            y.float().sum().backward()
        with arete.autocast(device, dtype=arete.bfloat16, cache_enabled=False):
            alone = lin(x)
    assert casts[0] == casts[1]
    assert casts[0] not in [f for f, _ in alone.grad_fn.next_functions if f is not None]
    assert lin.weight.grad.dtype is arete.float32
    expected = 2 * x.to(arete.bfloat16).float().sum(0).expand(4, 4)
    np.testing.assert_allclose(lin.weight.grad.cpu().numpy(), expected.cpu().numpy(), rtol=2e-2)
    with arete.autocast(device, dtype=arete.bfloat16):
        after = lin(x)
    assert casts[0] not in [f for f, _ in after.grad_fn.next_functions if f is not None]


@on_devices
def test_the_cache_sees_writes_and_does_not_cut_gradients(device):
    w = arete.ones(2, 2, device=device).requires_grad_()
    x = arete.ones(1, 2, device=device)
    with arete.autocast(device, dtype=arete.bfloat16):
        with arete.no_grad():
            assert not (x @ w).requires_grad
        y = x @ w
        assert y.requires_grad
        with arete.no_grad():
            w.mul_(3)
        assert (x @ w).tolist() == [[6, 6]]
        with arete.autocast(device, dtype=arete.float16):
            assert (x @ w).dtype is arete.float16
        arete.clear_autocast_cache()
        (x @ w).float().sum().backward()
    assert w.grad.tolist() == [[1, 1], [1, 1]]


@on_devices
def test_gradients_have_the_dtypes_of_their_tensors(device):
    def run(T, kind):
        with T.autocast(kind, dtype=T.bfloat16):
            x = T.ones(2, 3, 8, 8, device=kind).requires_grad_()
            h = T.ones(2, 4, 8, 8, device=kind, dtype=T.bfloat16).requires_grad_()
            conv, norm, head = T.nn.Conv2d(3, 4, 3, padding=1).to(kind), T.nn.BatchNorm2d(4).to(kind), T.nn.Linear(4, 5).to(kind)
            y = head(T.nn.functional.relu(norm(conv(x) * h)).mean((2, 3)))
            loss = T.nn.functional.cross_entropy(y, T.tensor([0, 1], device=kind))
        loss.backward()
        return [short(t.dtype) for t in (y, loss, x.grad, h.grad, *(p.grad for m in (conv, norm, head) for p in m.parameters()))]

    assert run(arete, device) == run(torch, "cpu")


@on_devices
def test_backward_inside_a_region_is_the_same(device):
    arete.manual_seed(0)
    net = arete.nn.Sequential(arete.nn.Linear(6, 16), arete.nn.GELU(), arete.nn.LayerNorm(16), arete.nn.Linear(16, 3)).to(device)
    x, y = arete.rand(5, 6, device=device), arete.rand(5, 3, device=device)
    grads = []
    for inside in (False, True):
        net.zero_grad()
        with arete.autocast(device, dtype=arete.bfloat16):
            loss = F.mse_loss(net(x), y)
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        grads.append([p.grad.cpu().numpy() for p in net.parameters()])
    for a, b in zip(*grads):
        np.testing.assert_array_equal(a, b)


@on_devices
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_compute_in_the_lower_precision(kind, device):
    arete.manual_seed(0)
    layer = getattr(arete.nn, kind)(4, 6, num_layers=2, bidirectional=True).to(device)
    x = arete.rand(5, 3, 4, device=device)
    exact = layer(x)[0]
    with arete.autocast(device, dtype=arete.bfloat16):
        out, state = layer(x)
    assert {t.dtype for t in tensors_in([out, state])} == {arete.bfloat16}
    np.testing.assert_allclose(out.detach().float().cpu().numpy(), exact.detach().cpu().numpy(), atol=3e-2)
    out.float().sum().backward()
    assert {p.grad.dtype for p in layer.parameters()} == {arete.float32}
    cell = getattr(arete.nn, kind + "Cell")(4, 6).to(device)
    with arete.autocast(device, dtype=arete.bfloat16):
        assert {t.dtype for t in tensors_in(cell(x[0]))} == {arete.bfloat16}


@on_devices
def test_batch_norm_keeps_float32_statistics(device):
    norm = arete.nn.BatchNorm2d(3).to(device)
    x = arete.randn(4, 3, 5, 5, device=device)
    reference = torch.nn.BatchNorm2d(3)
    for training in (True, False):
        norm.train(training)
        reference.train(training)
        with arete.autocast(device, dtype=arete.bfloat16):
            y = norm(x.bfloat16())
        assert y.dtype is arete.bfloat16
        assert norm.running_mean.dtype is arete.float32
        want = reference(torch.from_numpy(x.bfloat16().float().cpu().numpy()))
        np.testing.assert_allclose(y.detach().float().cpu().numpy(), want.detach().numpy(), atol=2e-2)


@on_devices
def test_custom_functions(device):
    seen = {}

    class Cast(arete.autograd.Function):
        @staticmethod
        @arete.amp.custom_fwd(device_type=device, cast_inputs=arete.float32)
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            seen["forward"] = (x.dtype, w.dtype, arete.is_autocast_enabled(device))
            return x @ w

        @staticmethod
        @arete.amp.custom_bwd(device_type=device)
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            seen["backward"] = (g.dtype, arete.is_autocast_enabled(device))
            return g @ w.t(), x.t() @ g

    class AsCaller(arete.autograd.Function):
        @staticmethod
        @arete.amp.custom_fwd(device_type=device)
        def forward(ctx, x):
            seen["forward"] = arete.is_autocast_enabled(device)
            return x * 2

        @staticmethod
        @arete.amp.custom_bwd(device_type=device)
        def backward(ctx, g):
            seen["backward"] = arete.is_autocast_enabled(device)
            return g * 2

    x = arete.rand(3, 3, device=device, dtype=arete.bfloat16).requires_grad_()
    w = arete.rand(3, 3, device=device).requires_grad_()
    with arete.autocast(device, dtype=arete.bfloat16):
        y = Cast.apply(x, w)
    assert y.dtype is arete.float32
    y.sum().backward()
    assert seen == {"forward": (arete.float32, arete.float32, False), "backward": (arete.float32, False)}
    with arete.autocast(device):
        y = AsCaller.apply(w)
    y.sum().backward()
    assert seen == {"forward": True, "backward": True}


@on_devices
def test_checkpointing_computes_again_as_before(device):
    from arete.utils.checkpoint import checkpoint

    lin = arete.nn.Linear(4, 4).to(device)
    x = arete.rand(2, 4, device=device).requires_grad_()
    seen = []

    def block(t):
        y = lin(t)
        seen.append(y.dtype)
        return y

    with arete.autocast(device, dtype=arete.bfloat16):
        y = checkpoint(block, x, use_reentrant=False)
    y.float().sum().backward()
    assert seen == [arete.bfloat16, arete.bfloat16]
