"""Mixed precision beside torch: dtypes under autocast, loss scaling, master weights, precision switches."""
import itertools
import pickle
import re
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import arete

torch = pytest.importorskip("torch")
F = arete.nn.functional
DEVICES = ["cpu"] + ["cuda"] * arete.cuda.is_available()
on_devices = pytest.mark.parametrize("device", DEVICES)


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
             ("tensor_split", "float32"), ("tensor_split", "bfloat16")}  # fmt: skip  # another overload there


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes_are_torchs_for_the_operator_database(dtype, monkeypatch):
    pytest.importorskip("expecttest")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import op_db

    kind, agreed, wrong = getattr(torch, dtype), 0, []
    for op in op_db.op_db:
        function = op_db.WRAPPED.get(f"{op.name}.{op.variant_test_name}") or op_db.WRAPPED.get(op.name) or op_db.resolve(op.name, None)
        if function is None or kind not in op.supported_dtypes("cpu") or (op.name, dtype) in DIFFERENT:
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
            except (op_db.Unsupported, RuntimeError, TypeError, NotImplementedError):
                continue
            with arete.autocast("cpu"):
                ours = function(*ours_args, **ours_kwargs)
            want, got = ([short(t.dtype) for t in op_db.tensors_in(r)] for r in (theirs, ours))
            agreed += want == got
            if want != got:
                wrong.append((op.name, op.variant_test_name, want, got))
    assert not wrong
    assert agreed > 500


# torch's names of operators that have another name or several records here, or none.
RECORDS = {"_convolution": ["convolution"], "conv_tbc": [], "conv_transpose2d": ["conv_transpose2d"], "native_layer_norm": [],
           "_thnn_fused_lstm_cell": [], "_thnn_fused_gru_cell": [], "lstm_cell": [], "gru_cell": [], "rnn_tanh_cell": [],
           "rnn_relu_cell": [], "_scaled_dot_product_flash_attention": ["fused_attention"], "frobenius_norm": ["norm"],
           "nuclear_norm": ["norm"], "nll_loss2d": ["nll_loss"], "grid_sampler": ["grid_sample"],
           "linalg_matrix_norm": ["linalg_matrix_norm", "linalg_matrix_norm_str_ord"]}  # fmt: skip


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
                lambda h, f: F.group_norm(h, 2), lambda h, f: h.prod(), lambda h, f: F.cosine_similarity(h, h)]}  # fmt: skip


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


# ---- GradScaler

OPTIMIZERS = [("SGD", dict(lr=0.1)), ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.3)), ("SGD", dict(lr=0.1, momentum=0.9, nesterov=True)),
              ("Adam", dict(lr=0.1)), ("AdamW", dict(lr=0.1, weight_decay=0.1, amsgrad=True)), ("Adagrad", dict(lr=0.1, lr_decay=0.1)),
              ("RMSprop", dict(lr=0.01, momentum=0.9, centered=True)), ("Adadelta", dict())]  # fmt: skip


def train(T, device, make, steps, overflows, clip=False, growth_interval=3, **settings):
    """A few steps on a small problem where some losses are infinite."""
    w = T.tensor([[1.0, 2.0, -1.0], [0.5, -0.3, 0.2]], device=device).requires_grad_()
    b = T.tensor([0.1, 0.2], device=device).requires_grad_()
    optimizer = make([w, b])
    scaler = T.amp.GradScaler(device, init_scale=1024.0, growth_interval=growth_interval, **settings)
    trace = []
    for i in range(steps):
        optimizer.zero_grad()
        x = T.tensor([[0.1 * i, 1.0, -0.2], [0.3, 0.1 * i, 0.7]], device=device)
        loss = ((x @ w.t() + b) ** 2).mean()
        scaler.scale(loss * float("inf") if i in overflows else loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            T.nn.utils.clip_grad_norm_([w, b], 0.5)
        scaler.step(optimizer)
        scaler.update()
        trace.append((scaler.get_scale(), scaler._get_growth_tracker(), w.detach().cpu().numpy().copy(), b.detach().cpu().numpy().copy()))
    return trace, optimizer, scaler


def expect_same(ours, theirs):
    for a, b in zip(ours, theirs):
        assert a[:2] == b[:2]
        np.testing.assert_allclose(a[2], b[2], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(a[3], b[3], rtol=1e-5, atol=1e-6)


@on_devices
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("name,options", OPTIMIZERS)
def test_trajectories_are_torchs(name, options, clip, device):
    arguments = dict(steps=14, overflows=(0, 1, 5), clip=clip)
    ours, optimizer, scaler = train(arete, device, lambda p: getattr(arete.optim, name)(p, **options), **arguments)
    theirs, reference, their_scaler = train(torch, "cpu", lambda p: getattr(torch.optim, name)(p, **options), **arguments)
    expect_same(ours, theirs)
    assert scaler.state_dict() == their_scaler.state_dict()
    state, want = optimizer.state_dict()["state"], reference.state_dict()["state"]
    for number, values in want.items():
        for key, value in values.items():
            if value is not None:  # the count of steps knows of those left out, too
                np.testing.assert_allclose(state[number][key].cpu().numpy(), value.numpy(), rtol=1e-4, atol=1e-6)


@on_devices
def test_an_optimizer_written_in_python(device):
    def plain(T):
        class Plain(T.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {"lr": 0.1})

            def step(self, closure=None):
                with T.no_grad():
                    for group in self.param_groups:
                        for p in group["params"]:
                            p.add_(p.grad, alpha=-group["lr"])
                return "stepped"

        return Plain

    for clip in (False, True):
        arguments = dict(steps=8, overflows=(2,), clip=clip)
        ours, optimizer, scaler = train(arete, device, plain(arete), **arguments)
        theirs, _, _ = train(torch, "cpu", plain(torch), **arguments)
        expect_same(ours, theirs)
    loss = (optimizer.param_groups[0]["params"][0] ** 2).sum()
    optimizer.zero_grad()
    optimizer.param_groups[0]["params"][1].grad = arete.zeros(2, device=device)
    scaler.scale(loss).backward()
    assert scaler.step(optimizer) == "stepped"


@on_devices
def test_several_optimizers_losses_and_accumulation(device):
    def run(T, kind):
        a, b, c = (T.tensor([v], device=kind).requires_grad_() for v in (1.0, 2.0, 3.0))
        first, second = T.optim.SGD([a, b], lr=0.1, momentum=0.9), T.optim.Adam([c], lr=0.1)
        scaler, out = T.amp.GradScaler(kind, init_scale=64.0, growth_interval=2), []
        for i in range(6):
            first.zero_grad()
            second.zero_grad()
            for part in range(2):  # accumulation
                losses = scaler.scale([(a * b).sum() / (part + 1), (c * c).sum() * (float("inf") if i == 1 else 1)])
                losses[0].backward(retain_graph=True)
                losses[1].backward()
            scaler.unscale_(first)
            scaler.step(first)
            scaler.step(second)
            scaler.update()
            out.append([scaler.get_scale(), *(float(p.detach().cpu()[0]) for p in (a, b, c))])
        return out

    # Only the optimizer whose gradients overflowed leaves its step out, but the scale is one.
    np.testing.assert_allclose(run(arete, device), run(torch, "cpu"), rtol=1e-5)


@on_devices
def test_a_skipped_step_changes_nothing(device):
    w = arete.tensor([1.0, 2.0], device=device).requires_grad_()
    optimizer, scaler = arete.optim.AdamW([w], lr=0.1), arete.amp.GradScaler(device)
    w.grad = arete.tensor([1.0, float("nan")], device=device)
    scaler.scale(arete.ones((), device=device))
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [1, 2]
    state = optimizer.state_dict()["state"][0] if optimizer.state_dict()["state"] else {}
    assert all(float(v.abs().sum()) == 0 for v in state.values())
    assert scaler.get_scale() == 2.0**15
    assert scaler.num_skipped() == 1
    w.grad = arete.tensor([2.0**15, -(2.0**15)], device=device)
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_allclose(w.tolist(), [0.9 - 0.001, 2.1 - 0.002], rtol=1e-4)
    assert float(optimizer.state_dict()["state"][0]["step"]) == 1


@on_devices
def test_steps_with_and_without_a_scaler_mix(device):
    def run(T, kind):
        w = T.tensor([1.0, -2.0], device=kind).requires_grad_()
        optimizer, scaler = T.optim.Adam([w], lr=0.1), T.amp.GradScaler(kind, init_scale=4.0)
        for i in range(6):
            optimizer.zero_grad()
            loss = (w * w).sum() * (float("inf") if i == 2 else 1)
            if i % 2:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        return w.detach().cpu().numpy()

    np.testing.assert_allclose(run(arete, device), run(torch, "cpu"), rtol=1e-5)


def messages(T, kind):
    """What each mistake is answered with."""
    w = T.ones(2, device=kind).requires_grad_()
    unused = T.ones(2, device=kind).requires_grad_()
    optimizer, other = T.optim.SGD([w], lr=0.1), T.optim.SGD([unused], lr=0.1)
    said = []

    def attempt(f):
        try:
            f()
            said.append(None)
        except (RuntimeError, AssertionError, ValueError) as e:
            said.append(str(e).strip())

    scaler = T.amp.GradScaler(kind, init_scale=8.0)
    attempt(lambda: scaler.unscale_(optimizer))
    attempt(lambda: scaler.step(optimizer))
    attempt(lambda: scaler.update())
    scaler.scale(w.sum()).backward()
    attempt(lambda: scaler.update())
    attempt(lambda: scaler.step(other))
    scaler.unscale_(optimizer)
    attempt(lambda: scaler.unscale_(optimizer))
    scaler.step(optimizer)
    attempt(lambda: scaler.step(optimizer))
    attempt(lambda: scaler.unscale_(optimizer))
    attempt(lambda: scaler.step(optimizer, closure=lambda: None))
    attempt(lambda: scaler.scale(3))
    attempt(lambda: scaler.load_state_dict({}))
    attempt(lambda: T.amp.GradScaler(kind, growth_factor=1.0))
    attempt(lambda: T.amp.GradScaler(kind, backoff_factor=1.0))
    half = T.ones(2, device=kind, dtype=T.float16).requires_grad_()
    half.grad = T.ones(2, device=kind, dtype=T.float16)
    attempt(lambda: scaler.unscale_(T.optim.SGD([half], lr=0.1)))
    return said


@on_devices
def test_errors_begin_with_torchs_words(device):
    for ours, theirs in zip(messages(arete, device), messages(torch, "cpu"), strict=True):
        assert theirs is not None
        assert theirs.replace(" ", "") in (ours or "nothing").replace(" ", "")


@on_devices
def test_update_takes_a_scale(device):
    w = arete.ones(2, device=device).requires_grad_()
    scaler = arete.amp.GradScaler(device)
    scaler.scale(w.sum())
    scaler.update(4.0)
    assert scaler.get_scale() == 4
    scaler.update(arete.tensor(2.0, device=device))
    assert scaler.get_scale() == 2
    with pytest.raises(ValueError, match="new_scale should be a float"):
        scaler.update(arete.ones(2, device=device))


@on_devices
def test_the_floor(device):
    trace, _, scaler = train(arete, device, lambda p: arete.optim.SGD(p, lr=0.1), steps=12, overflows=range(12), min_scale=16.0)
    assert [t[0] for t in trace] == [512, 256, 128, 64, 32, 16, 16, 16, 16, 16, 16, 16]
    assert scaler.num_skipped() == 12


@on_devices
def test_state_dict_and_pickle(device):
    arguments = dict(steps=4, overflows=(1,))
    _, optimizer, scaler = train(arete, device, lambda p: arete.optim.SGD(p, lr=0.1), **arguments)
    _, _, reference = train(torch, "cpu", lambda p: torch.optim.SGD(p, lr=0.1), **arguments)
    state = scaler.state_dict()
    assert state == reference.state_dict()
    assert {k: type(v) for k, v in state.items()} == {k: type(v) for k, v in reference.state_dict().items()}
    fresh = arete.amp.GradScaler(device)
    fresh.load_state_dict(state)
    assert fresh.state_dict() == state == pickle.loads(pickle.dumps(scaler)).state_dict()
    scaler.load_state_dict({**state, "scale": 2.0, "_growth_tracker": 1})
    assert scaler.get_scale() == 2
    assert scaler._get_growth_tracker() == 1
    assert fresh.get_growth_factor() == 2 and fresh.get_backoff_factor() == 0.5 and fresh.get_growth_interval() == 3  # noqa: PT018
    fresh.set_growth_factor(3.0)
    fresh.set_growth_interval(7)
    fresh.set_backoff_factor(0.25)
    assert list(fresh.state_dict().values())[1:4] == [3.0, 0.25, 7]


@on_devices
def test_not_enabled_everything_passes(device):
    w = arete.ones(2, device=device).requires_grad_()
    optimizer, scaler = arete.optim.SGD([w], lr=0.5), arete.amp.GradScaler(device, enabled=False)
    loss = w.sum()
    assert scaler.scale(loss) is loss or arete.equal(scaler.scale(loss), loss)
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0.5, 0.5]
    assert scaler.get_scale() == 1.0
    assert scaler.state_dict() == {}
    assert not scaler.is_enabled()


@on_devices
def test_report_names_the_parameter(device):
    net = arete.nn.Sequential(arete.nn.Linear(2, 2), arete.nn.Linear(2, 2)).to(device)
    optimizer, scaler = arete.optim.SGD(net.parameters(), lr=0.1), arete.amp.GradScaler(device)
    assert "0 of 0 steps" in scaler.report(net)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(net(arete.ones(1, 2, device=device)).sum()).backward()
        if step == 1:
            net[0].bias.grad[1] = float("inf")
            net[0].weight.grad[0, 0] = float("nan")
        scaler.step(optimizer)
        scaler.update()
    text = scaler.report(net)
    assert "1 of 3 steps skipped" in text
    assert "step 2, in the gradients of 2 of 4 parameters" in text
    where = "" if device == "cpu" else " on cuda:0"
    assert f"'0.bias' (float32[2]{where})" in text
    assert "normal at the start" in text
    assert "parameter 1" in scaler.report()


@on_devices
def test_a_whole_training_in_float16(device):
    arete.manual_seed(0)
    net = arete.nn.Sequential(arete.nn.Linear(8, 32), arete.nn.ReLU(), arete.nn.Linear(32, 1)).to(device)
    x = arete.randn(64, 8, device=device)
    y = x.sum(1, keepdim=True)
    optimizer, scaler = arete.optim.AdamW(net.parameters(), lr=1e-2), arete.amp.GradScaler(device)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        with arete.autocast(device, dtype=arete.float16):
            loss = F.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        arete.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 20
    assert all(p.dtype is arete.float32 and bool(p.isfinite().all()) for p in net.parameters())


# ---- master weights

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


# ---- precision switches and conversions


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


# ---- the idioms of PyTorch's pages on automatic mixed precision, written once for both


def networks(T, kind, number=1):
    """Small networks with the same weights in both libraries, and data."""
    rng = np.random.default_rng(0)

    def tensor(*sizes):
        return T.from_numpy(rng.normal(size=sizes).astype(np.float32)).to(kind)

    made = []
    for _ in range(number):
        net = T.nn.Sequential(T.nn.Linear(8, 16), T.nn.Tanh(), T.nn.Linear(16, 2)).to(kind)
        with T.no_grad():
            for p in net.parameters():
                p.copy_(tensor(*p.shape) * 0.3)
        made.append(net)
    return made, [(tensor(4, 8), tensor(4, 2)) for _ in range(4)]


def typical(torch, device):
    (net,), data = networks(torch, device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loss_fn = torch.nn.MSELoss()
    scaler = torch.amp.GradScaler(device)
    for input, target in data:
        optimizer.zero_grad()
        with torch.autocast(device_type=device, dtype=torch.float16):
            output = net(input)
            loss = loss_fn(output, target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        yield loss.item()


def clipping(torch, device):
    (net,), data = networks(torch, device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(device)
    for input, target in data:
        optimizer.zero_grad()
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            loss = torch.nn.functional.mse_loss(net(input), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.1)
        scaler.step(optimizer)
        scaler.update()
        yield loss.item()


def accumulation(torch, device):
    (net,), data = networks(torch, device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(device)
    for i, (input, target) in enumerate(data):
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            loss = torch.nn.functional.mse_loss(net(input), target)
            loss = loss / 2
        scaler.scale(loss).backward()
        if (i + 1) % 2 == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        yield loss.item()


def penalty(torch, device):
    (net,), data = networks(torch, device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device)
    for input, target in data:
        optimizer.zero_grad()
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            output = net(input)
            loss = torch.nn.functional.mse_loss(output, target)
        scaled_grad_params = torch.autograd.grad(outputs=scaler.scale(loss), inputs=net.parameters(), create_graph=True)
        inv_scale = 1.0 / scaler.get_scale()
        grad_params = [p * inv_scale for p in scaled_grad_params]
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            grad_norm = 0
            for grad in grad_params:
                grad_norm += grad.pow(2).sum()
            grad_norm = grad_norm.sqrt()
            loss = loss + grad_norm
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        yield loss.item()


def several(torch, device):
    (net0, net1), data = networks(torch, device, 2)
    optimizer0, optimizer1 = torch.optim.SGD(net0.parameters(), lr=1e-3), torch.optim.SGD(net1.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device)
    for input, target in data:
        optimizer0.zero_grad()
        optimizer1.zero_grad()
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            output0, output1 = net0(input), net1(input)
            loss0 = torch.nn.functional.mse_loss(2 * output0 + 3 * output1, target)
            loss1 = torch.nn.functional.mse_loss(3 * output0 - 5 * output1, target)
        scaler.scale(loss0).backward(retain_graph=True)
        scaler.scale(loss1).backward()
        scaler.unscale_(optimizer0)
        scaler.step(optimizer0)
        scaler.step(optimizer1)
        scaler.update()
        yield loss0.item() + loss1.item()


@on_devices
@pytest.mark.parametrize("idiom", [typical, clipping, accumulation, penalty, several])
def test_idioms_of_the_documentation(idiom, device):
    np.testing.assert_allclose(list(idiom(arete, device)), list(idiom(torch, "cpu")), rtol=3e-2)
