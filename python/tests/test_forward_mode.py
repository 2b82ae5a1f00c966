"""Forward mode: tangents of operators, views, writes and custom functions. Run with both libraries."""
import importlib

import numpy as np
import pytest
from idiom_helpers import anywhere, on_the_cpu

import arete


def module_of(torch):
    return importlib.import_module(torch.__name__ + ".autograd.forward_ad")


def tangent(torch, t):
    found = module_of(torch).unpack_dual(t).tangent
    return None if found is None else found.detach().cpu().numpy()


def push(torch, device, f, values, directions, grad=False):
    """The values of f and the tangents, by forward mode."""
    fw = module_of(torch)
    with fw.dual_level():
        duals = [fw.make_dual(torch.tensor(x, device=device).requires_grad_(grad), torch.tensor(v, device=device))
                 for x, v in zip(values, directions)]
        y = fw.unpack_dual(f(torch, *duals))
    return y.primal.detach().cpu().numpy(), None if y.tangent is None else y.tangent.detach().cpu().numpy()


def in_place(torch, x, y):
    z = x.clone()
    z.mul_(y).add_(1.0)
    z[0] = x[1] * 2
    z[:, 1:] += y[:, 1:]
    z.t()[0].exp_()
    return z


def built(torch, x, y):
    out = torch.zeros(3, 4, dtype=x.dtype, device=x.device)
    early = out[:2, 1:]  # from before `out` is dual
    out[:2, :3] = x[:2, :3].t().contiguous().t()
    return torch.cat([early, out[1:, 1:] * y[1:, 1:]])


def network(torch, x, y):
    F = torch.nn.functional
    h = F.layer_norm(x @ y.t(), (3,))
    h = F.gelu(h).softmax(-1) @ y
    return F.cross_entropy(h, torch.tensor([0, 1, 2], device=x.device)) + F.mse_loss(h, x) + h.logsumexp(0).norm()


PROGRAMS = [
    lambda torch, x, y: x * y.sum(0) + torch.where(x > 0, x, y).exp(),
    lambda torch, x, y: torch.atan2(x, y) / (1 + x**2),
    lambda torch, x, y: (x.unsqueeze(0) - y.unsqueeze(1)).abs().amax(2).cumsum(0),
    lambda torch, x, y: torch.nn.functional.conv1d(x[None], y[:, None, :2].expand(3, 3, 2)),
    lambda torch, x, y: torch.linalg.solve(x[:, :3] + 3 * torch.eye(3, dtype=x.dtype, device=x.device), y),
    lambda torch, x, y: torch.gather(x, 1, torch.tensor([[0, 3], [1, 1], [2, 0]], device=x.device)).sort(1).values,
    lambda torch, x, y: torch.stack([*x.unbind(1), *y.split(1, 1)[0].unbind(1)]).roll(1),
    lambda torch, x, y: torch.complex(x, y).exp().real * torch.view_as_complex(torch.stack([x, y], -1)).abs(),
    lambda torch, x, y: x.detach() * y + x,
    lambda torch, x, y: x.to(torch.float32).double() + y.type(torch.float64),
    in_place, built, network]


@anywhere
@pytest.mark.parametrize("f", PROGRAMS, ids=range(len(PROGRAMS)))
@pytest.mark.parametrize("grad", [False, True])
def test_programs(torch, device, f, grad):
    draw = np.random.RandomState(0)
    values, directions = [[draw.randn(3, 4) for _ in range(2)] for _ in range(2)]
    primal, found = push(torch, device, f, values, directions, grad)
    step = 1e-6
    above, below = ([torch.tensor(x + s * v, device=device) for x, v in zip(values, directions)] for s in (step, -step))
    if f is PROGRAMS[8]:  # its first argument counts as a constant
        above = below = None
        expected = values[0] * directions[1] + directions[0]
    elif f is PROGRAMS[9]:
        expected = directions[0].astype("float32").astype("float64") + directions[1]
    else:
        expected = ((f(torch, *above) - f(torch, *below)) / (2 * step)).cpu().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(primal, f(torch, *[torch.tensor(x, device=device) for x in values]).cpu().numpy(), rtol=1e-12)


@anywhere
def test_levels_and_what_has_no_tangent(torch, device):
    fw = module_of(torch)
    x, v = torch.tensor([1.0, 2.0], device=device), torch.ones(2, device=device)
    for use, text in ((lambda: fw.make_dual(x, v), "no level exists"), (lambda: fw.exit_dual_level(), "")):
        with pytest.raises(RuntimeError, match=text or None):
            use()
    assert fw.unpack_dual(x).primal is x and fw.unpack_dual(x).tangent is None
    with fw.dual_level() as level:
        assert level == 0
        with pytest.raises(RuntimeError, match="Nested forward mode AD is not supported at the moment"):
            fw.enter_dual_level()
        dual = fw.make_dual(x, v)
        assert not dual.requires_grad and dual.is_leaf and fw.unpack_dual(dual).tangent is v and dual.data_ptr() == x.data_ptr()
        primal = fw.unpack_dual(dual).primal
        for t in (x, dual.detach(), dual.data, dual > 0, primal, primal * 2, torch.ones_like(dual)):
            assert fw.unpack_dual(t).tangent is None
        with torch.no_grad():
            assert tangent(torch, dual * 2).tolist() == [2, 2]
        with torch.inference_mode():
            assert tangent(torch, dual * 2) is None
        with pytest.raises(NotImplementedError, match="out= function"):
            torch.mul(dual, 2, out=torch.empty(2, device=device))
        for primal, direction, kind, text in (
                (x, torch.ones(3, device=device), RuntimeError, "a different size"), (x, v.long(), ValueError, "Expected tangent"),
                (x.long(), v, ValueError, "Expected primal"), (dual, v, RuntimeError, "already has a forward gradient"),
                (x, dual, RuntimeError, "itself has a forward gradient")):
            with pytest.raises(kind, match=text):
                fw.make_dual(primal, direction)
        other = torch.zeros(2, device=device)
        other.copy_(dual)
        assert tangent(torch, other).tolist() == [1, 1]
        other.mul_(3)
        assert tangent(torch, other).tolist() == [3, 3] and v.tolist() == [1, 1]
        other[0] = 5.0
        assert tangent(torch, other).tolist() == [0, 3]
        dual.mul_(2)  # writes through the tangent that was given
        assert v.tolist() == [2, 2] and x.tolist() == [2, 4] and fw.unpack_dual(x).tangent is None
        dual.zero_()
        assert tangent(torch, dual).tolist() == [0, 0]
        turned = fw.make_dual(torch.ones(2, 3, device=device).t(), torch.ones(3, 2, device=device))
        assert fw.unpack_dual(turned).tangent.stride() == (1, 3)
    assert fw.unpack_dual(other).tangent is None


@anywhere
def test_many_temporaries(torch, device):
    """What nobody holds is let go; what is held keeps its tangent."""
    fw = module_of(torch)
    with fw.dual_level():
        x = fw.make_dual(torch.ones(3, device=device), torch.ones(3, device=device))
        kept, y = [], x
        for i in range(300):
            y = y * 1.0 + (x - x)
            if i % 100 == 0:
                kept.append(y[1:])
        for t in (*kept, y, x):
            assert (tangent(torch, t) == 1).all()


@anywhere
def test_backwards_passes_of_duals(torch, device):
    """The gradient has a tangent: a product with the Hessian; and tangents can be differentiated."""
    fw = module_of(torch)
    x, v = torch.tensor([1.0, 2.0], device=device, requires_grad=True), torch.tensor([1.0, 3.0], device=device)
    constant = torch.tensor([2.0, 5.0], device=device)
    with fw.dual_level():
        dual = fw.make_dual(x, v)
        (g,) = torch.autograd.grad((dual**3).sum() + (dual.exp() / dual.tanh()).sum(), x)
        hvp = tangent(torch, g)
        (once,) = torch.autograd.grad((fw.make_dual(constant, v) * x).sum(), x)  # the factor is dual, and needs no gradient
        assert tangent(torch, once).tolist() == [1, 3]
        y = dual**3
        (again,) = torch.autograd.grad(fw.unpack_dual(y).tangent.sum(), x)
        np.testing.assert_allclose(again.cpu().numpy(), [6, 36], rtol=1e-6)
    expected = torch.autograd.functional.hvp(lambda t: (t**3).sum() + (t.exp() / t.tanh()).sum(), x, v)[1]
    np.testing.assert_allclose(hvp, expected.cpu().numpy(), rtol=1e-5)


@anywhere
def test_random_numbers_are_those_of_the_call(torch, device):
    fw = module_of(torch)
    with fw.dual_level():
        x = fw.make_dual(torch.ones(1000, device=device), torch.full((1000,), 2.0, device=device))
        for y in (torch.nn.functional.dropout(x, 0.5), torch.nn.functional.dropout(x.clone(), 0.5, inplace=True)):
            assert (tangent(torch, y) == 2 * fw.unpack_dual(y).primal.cpu().numpy()).all()
            assert 300 < (tangent(torch, y) == 0).sum() < 700
        noise = x.clone().normal_()
        assert (tangent(torch, noise) == 0).all()


@on_the_cpu
def test_custom_functions(torch, device):
    fw = module_of(torch)
    seen = []

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, n, y):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x, y)
            ctx.n = n
            return x * y * n

        @staticmethod
        def backward(ctx, g):
            return g, None, g

        @staticmethod
        def jvp(ctx, tx, tn, ty):
            x, y = ctx.saved_tensors
            seen.append((tx.tolist(), tn, ty.tolist()))
            return 10 * (tx * y + ty * x) * ctx.n  # ten times too much

    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    class Handed(Plain):
        @staticmethod
        def jvp(ctx, t):
            return t

    class Wrong(Plain):
        @staticmethod
        def jvp(ctx, t):
            return t, t

    class Short(Plain):
        @staticmethod
        def jvp(ctx, t):
            return t[:1]

    x, v = torch.tensor([1.0, 2.0]), torch.ones(2)
    with fw.dual_level():
        dual = fw.make_dual(x, v)
        y = Scale.apply(dual, 3, x)
        assert tangent(torch, y).tolist() == [30, 60] and seen == [([1, 1], None, [0, 0])]
        assert y.tolist() == [3, 12] and tangent(torch, y * 2).tolist() == [60, 120]
        assert tangent(torch, Plain.apply(x)) is None
        handed = Handed.apply(dual)
        handed.mul_(5)
        assert tangent(torch, handed).tolist() == [5, 5]
        if torch is arete:  # torch's write goes through to the tangent that was handed on
            assert v.tolist() == [1, 1]
        v.fill_(1)
        if torch is arete:  # a function that runs another one: torch's has no tangent here either, and the outer one's counts
            class Outer(Plain):
                @staticmethod
                def forward(ctx, x):
                    return Handed.apply(x) * x

                @staticmethod
                def jvp(ctx, t):
                    return t * 7

            assert tangent(torch, Outer.apply(dual)).tolist() == [7, 7] and tangent(torch, dual * 2).tolist() == [2, 2]
        for function, kind, text in ((Plain, NotImplementedError, "You must implement the jvp function"),
                                     (Wrong, RuntimeError, r"invalid number of forward gradients \(expected 1 but got 2\)"),
                                     (Short, RuntimeError, "different size")):
            with pytest.raises(kind, match=text):
                function.apply(dual)
        assert tangent(torch, dual * 2).tolist() == [2, 2]  # an error leaves things in order


def test_windows_on_memory():
    fw, base = arete.autograd.forward_ad, arete.arange(8.0)
    with fw.dual_level():
        part = fw.make_dual(base[2:6], arete.tensor([1.0, 2, 3, 4]))  # whose memory begins elsewhere
        assert tangent(arete, part.as_strided((2,), (2,))).tolist() == [1, 3]
        window = part.as_strided((2,), (1,), 4)
        assert window.tolist() == [4, 5] and tangent(arete, window).tolist() == [3, 4]
        gaps = fw.make_dual(base[::2], arete.ones(4))
        with pytest.raises(NotImplementedError, match="gaps"):
            gaps.as_strided((2,), (2,))


@on_the_cpu
def test_gradcheck_of_forward_mode(torch, device):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

        @staticmethod
        def jvp(ctx, t):
            return t * 3

    x = torch.tensor([[0.3, 0.7]], dtype=torch.float64, requires_grad=True)
    z = torch.tensor([0.3 + 1j, 0.7 - 2j], dtype=torch.complex128, requires_grad=True)
    for fast in (False, True):
        assert torch.autograd.gradcheck(Wrong.apply, x, fast_mode=fast)
        with pytest.raises(RuntimeError, match="forward"):
            torch.autograd.gradcheck(Wrong.apply, x, check_forward_ad=True, fast_mode=fast)
        assert not torch.autograd.gradcheck(Wrong.apply, x, check_forward_ad=True, check_backward_ad=False, fast_mode=fast,
                                            raise_exception=False)
        for f, given in ((lambda t: (t.sin() @ t.mT, t.exp()), x), (lambda t: t * t.exp(), z), (lambda t: t.abs(), z)):
            assert torch.autograd.gradcheck(f, given, check_forward_ad=True, fast_mode=fast)
    assert torch.autograd.gradgradcheck(lambda t: t.sin() * t, x, check_fwd_over_rev=True)


@on_the_cpu
def test_jacobians(torch, device):
    functional = torch.autograd.functional
    x, y = torch.tensor([[0.5, 2.0]], dtype=torch.float64), torch.ones(2, dtype=torch.float64)

    def f(a, b):
        return (a * b).sin().sum(0), b.sum()

    forward = functional.jacobian(f, (x, y), strategy="forward-mode", vectorize=True)
    for a, b in zip(forward, functional.jacobian(f, (x, y))):
        for c, d in zip(a, b):
            assert c.shape == d.shape and torch.allclose(c, d)
    hessian = functional.hessian(lambda t: (t**3).sum(), y, outer_jacobian_strategy="forward-mode", vectorize=True)
    assert torch.allclose(hessian, 6 * torch.eye(2, dtype=torch.float64))
    for options, kind in (({}, NotImplementedError), ({"vectorize": True, "create_graph": True}, NotImplementedError),
                          ({"vectorize": True, "strict": True}, RuntimeError)):
        with pytest.raises(kind):
            functional.jacobian(f, (x, y), strategy="forward-mode", **options)


@on_the_cpu
def test_linearize(torch, device):
    linearize = importlib.import_module(torch.__name__ + ".func").linearize
    calls = []

    def f(a):
        calls.append(1)
        return {"square": a["x"] ** 2, "sum": a["x"].sum()}

    x = torch.tensor([1.0, 2.0])
    value, push = linearize(f, {"x": x})
    assert value["square"].tolist() == [1, 4] and not value["square"].requires_grad
    before = len(calls)
    for scale in (1.0, 2.0):
        pushed = push({"x": torch.full((2,), scale)})
        assert pushed["square"].tolist() == [2 * scale, 4 * scale] and pushed["sum"].item() == 2 * scale
    assert len(calls) == before
    with pytest.raises(RuntimeError, match="same argspec"):
        push(x)
    with pytest.raises(RuntimeError, match="doesn't match the shape"):
        push({"x": torch.ones(3)})


def test_all_operators():
    """Of the samples of all records: what forward mode gives is the product that arete.func.jvp() makes of passes backwards."""
    from arete.utils._pytree import tree_leaves, tree_map_only

    _C, fw, checked, refused = arete._C, module_of(arete), 0, set()

    def of(values):
        return [t for t in tree_leaves(values) if isinstance(t, arete.Tensor) and (t.is_floating_point() or t.is_complex())]

    arete.manual_seed(0)
    for name in _C._record_names():
        facts, op = _C._record_facts(name), getattr(arete._ops, name.split(".")[0], None)
        if op is None or facts["random"] or facts["gradient"] != "any order":
            continue
        if name in ("fourier_transform", "fused_norm_backward"):  # parts of others, which do not differentiate all of their arguments
            continue
        for sample in _C._record_samples(name)[:6]:
            args = tree_map_only(arete.Tensor, lambda t: t.detach().double() if t.is_floating_point() else t.detach(), list(sample))
            primals = of(args)
            directions = [arete.randn_like(t) for t in primals]

            def call(*given):
                left = iter(given)
                return of(op(*tree_map_only(arete.Tensor, lambda t: next(left) if t.is_floating_point() or t.is_complex() else t, args)))

            try:
                if not primals or not call(*primals):
                    continue
            except (RuntimeError, TypeError):  # a sample that is of one dtype only
                continue
            try:
                with fw.dual_level():
                    found = [fw.unpack_dual(t).tangent for t in call(*map(fw.make_dual, primals, directions))]
            except NotImplementedError:
                refused.add(name)
                continue
            expected = arete.func.jvp(call, tuple(primals), tuple(directions))[1]
            for a, b in zip(found, expected):
                if not b.isfinite().all():
                    continue
                a = arete.zeros_like(b) if a is None else a
                assert a.shape == b.shape and arete.allclose(a.to(b.dtype), b, rtol=1e-7, atol=1e-9), name
                checked += 1
    assert checked > 2000 and refused <= {"_linalg_eigh", "_linalg_svd", "igamma", "igammac", "nextafter", "special_zeta"}


def test_lists_are_single_calls():
    """Functions of several tensors at once give tangents as those of one do, also in place; texts show them."""
    fw = module_of(arete)
    with fw.dual_level():
        x, y = fw.make_dual(arete.tensor([1.0, 2.0]), arete.tensor([1.0, 0.5])), arete.ones(2)
        found = arete._foreach_mul([x, y], 2.0)
        assert fw.unpack_dual(found[0]).tangent.tolist() == [2.0, 1.0] and fw.unpack_dual(found[1]).tangent is None
        a, b = arete._foreach_add([x, y], [x * x, x])
        assert fw.unpack_dual(a).tangent.tolist() == [3.0, 2.5] and fw.unpack_dual(b).tangent.tolist() == [1.0, 0.5]
        assert fw.unpack_dual(arete._foreach_norm([x])[0]).tangent.item() == pytest.approx(2 / 5 ** 0.5)
        arete._foreach_mul_([x, y], 3.0)
        assert fw.unpack_dual(x).tangent.tolist() == [3.0, 1.5] and x.tolist() == [3.0, 6.0]
        assert repr(x) == "tensor([3., 6.], tangent=tensor([3.0000, 1.5000]))" and repr(y) == "tensor([3., 3.])"
    assert repr(x) == "tensor([3., 6.])"


OVER_REVERSE = {
    "conv1d, uneven edges": lambda f, x, w: f.conv1d(x, w, padding="same"),
    "conv2d, uneven edges": lambda f, x, w: f.conv2d(x.unsqueeze(2), w.unsqueeze(2), padding="same"),
    "conv3d, uneven edges": lambda f, x, w: f.conv3d(x[:, :, None, None], w[:, :, None, None], padding="same"),
    "conv_transpose1d": lambda f, x, w: f.conv_transpose1d(x, w, stride=2, output_padding=1),
    "bilinear": lambda f, x, w: f.bilinear(x[0], x[0] * 2, w.reshape(2, 4, 1).expand(2, 4, 4)),
    "unfold": lambda f, x, w: f.unfold(x.unsqueeze(-1) * w[:1, :, :1, None], (2, 1)) ** 2,
    "in place": lambda f, x, w: (x * w[:1, :, :1]).div_(x**2 + 1, rounding_mode=None),
}
OF_COMPLEX = [n for n in OVER_REVERSE if n not in ("bilinear", "unfold", "in place")]
OF_REAL = {
    "layer_norm": lambda f, x, w: f.layer_norm(x, (4,)) * w[:1, :, :1],
    "group_norm": lambda f, x, w: f.group_norm(x, 1) * w[:1, :, :1],
    "batch_norm": lambda f, x, w: f.batch_norm(x, None, None, training=True) * w[:1, :, :1],
}


@pytest.mark.parametrize("name, dtype", [(n, "float64") for n in {**OVER_REVERSE, **OF_REAL}] + [(n, "complex128") for n in OF_COMPLEX])
def test_forward_over_reverse_of_compositions(name, dtype):
    """What a composition makes on its way is saved for the backward pass, and has tangents there."""
    arete.manual_seed(0)
    x, w = (arete.randn(*sizes, dtype=getattr(arete, dtype), requires_grad=True) for sizes in ((1, 2, 4), (2, 2, 2)))
    call = {**OVER_REVERSE, **OF_REAL}[name]
    assert arete.autograd.gradgradcheck(lambda x, w: call(arete.nn.functional, x, w), (x, w), check_fwd_over_rev=True,
                                        check_rev_over_rev=False)
