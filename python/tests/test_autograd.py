"""Differentiation from Python."""
import gc
import threading
import weakref

import pytest
from idiom_helpers import LIBRARIES

import arete as torch


def test_backward_and_grad():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = (x**3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    assert g.tolist() == [3, 12] and g.requires_grad
    (h,) = torch.autograd.grad(g.sum(), x)
    assert h.tolist() == [6, 12]
    y.backward()
    assert x.grad.tolist() == [3, 12]
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1).backward()
    (x * 2).backward(torch.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [5, 32]
    z = torch.ones(2, requires_grad=True)
    assert torch.autograd.grad(x.sum(), [x, z], allow_unused=True)[1] is None
    a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    (a * b).backward(inputs=[a])
    assert a.grad.tolist() == [1] and b.grad is None
    assert "Backward" in (a * b).grad_fn.name() and (a * b).grad_fn.next_functions[0][0].name() == "AccumulateGrad"


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__)
def test_kept_tensors(library):
    """What tools that draw graphs read: all attributes that begin with _saved_."""
    x, w = library.rand(3, 4, requires_grad=True), library.rand(4, 4, requires_grad=True)
    kept = {"mul": (x * w[:3], ["self", "other"]), "mm": (library.mm(x, w), ["self", "mat2"]), "exp": (x.exp(), ["result"]),
            "softmax": (x.softmax(-1), ["result"]), "log": (x.log(), ["self"]), "neg": (-x, []),
            "gather": (x.gather(1, library.zeros(3, 1, dtype=library.int64)), ["index"]),
            "eigh": (library.linalg.eigh(w + w.T)[0], ["eigenvalues", "eigenvectors"])}
    for name, (y, names) in kept.items():
        node = y.grad_fn
        shown = {a for a in dir(node) if a.startswith("_saved_") and isinstance(getattr(node, a), library.Tensor)}
        assert {"_saved_" + n for n in names} <= shown, (name, shown)
    y, z = kept["exp"][0], kept["mul"][0]
    assert library.equal(y.grad_fn._saved_result, y) and y.grad_fn._saved_result.grad_fn == y.grad_fn
    assert z.grad_fn._saved_self is x and library.equal(z.grad_fn._saved_other, w[:3])
    assert not hasattr(y.grad_fn, "_saved_self") and "name" in dir(y.grad_fn)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        y.grad_fn._saved_result
    with library.no_grad():
        w += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept["log"][0].grad_fn, z.grad_fn._saved_other


def test_lists_of_kept_tensors():
    places = torch.tensor([0, 1])
    node = torch.rand(3, 4, requires_grad=True)[places, places].grad_fn
    lists = [getattr(node, a) for a in dir(node) if a.startswith("_saved_") and isinstance(getattr(node, a), tuple)]
    assert all(isinstance(t, torch.Tensor) for one in lists for t in one)
    a, b = torch.rand(2, requires_grad=True), torch.rand(2, requires_grad=True)
    assert not [n for n in dir(torch.cat([a, b]).grad_fn) if n.startswith("_saved_")]


def test_hooks():
    x = torch.ones(2, requires_grad=True)
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.tolist()))
    other = x.register_hook(lambda g: g * 10)
    (x * 3).sum().backward()
    assert seen == [[3, 3]] and x.grad.tolist() == [30, 30]
    handle.remove()
    other.remove()
    x.grad = None
    y = x * 2
    y.retain_grad()
    y.sum().backward()
    assert seen == [[3, 3]] and x.grad.tolist() == [2, 2] and y.grad.tolist() == [1, 1]

    def fails(g):
        raise KeyError("from the hook")

    x.register_hook(fails)
    with pytest.raises(KeyError, match="from the hook"):
        (x * 2).sum().backward()


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, y=None):
        ctx.save_for_backward(x, None)
        ctx.factor = factor
        return x * factor, x.sum()

    @staticmethod
    def backward(ctx, g, g_sum):
        x, nothing = ctx.saved_tensors
        assert nothing is None and ctx.needs_input_grad[0] and x is not None
        return g * ctx.factor + g_sum, None, None


def test_custom_functions():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    a, b = Scaled.apply(x, 4)
    assert a.tolist() == [4, 8] and b.item() == 3 and a.requires_grad
    a.sum().backward()  # the gradient of b is zeros
    assert x.grad.tolist() == [4, 4]
    y = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: Scaled.apply(t, 2.5), [y])
    assert torch.autograd.gradgradcheck(lambda t: t.exp(), [y])
    assert not torch.autograd.gradcheck(lambda t: t.detach() * t, [y], raise_exception=False)
    assert not torch.autograd.gradcheck(lambda t: (t - 100).sqrt(), [y], raise_exception=False)  # NaN everywhere

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g, g

    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        Wrong.apply(y).sum().backward()


def test_graphs_are_freed():
    x = torch.ones(3, requires_grad=True)

    class Marker:
        pass

    marker = Marker()
    w = weakref.ref(marker)

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, m):
            ctx.m = m
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    y = Keeps.apply(x, marker)
    y.sum().backward()
    del y, marker
    gc.collect()
    assert w() is None


def test_in_place_rules():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x += 1
    y = x.exp()
    z = y * 2
    y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    with torch.no_grad():
        x += 1
    assert x.tolist() == [2, 2]
    x.data = torch.zeros(2)
    assert x.tolist() == [0, 0] and x.requires_grad


def test_changes_of_the_layout_count_as_writes():
    for change in (lambda x: x.resize_(3), lambda x: x.resize_(30), lambda x: x.resize_(3, 4).resize_(12), lambda x: x.resize_(2, 6),
                   lambda x: x.resize_as_(torch.ones(4, 3)), lambda x: x.unsqueeze_(0)):
        x, w = torch.arange(12.0), torch.ones(12, requires_grad=True)
        y = x.view(12)  # what is changed
        loss = (w * y).sum()
        before = y._version
        change(y)
        assert y._version > before
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    x, w = torch.arange(12.0), torch.ones(12, requires_grad=True)
    loss = (w * x).sum()
    assert x.resize_(12)._version == 0  # is of that size already
    loss.backward()
    assert w.grad.tolist() == x.tolist()


@pytest.mark.parametrize("which", ["x", "both"])
@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 4)])
def test_high_derivatives_of_cosine_similarity(which, shape):
    """Along a direction, each as the slope of the one before."""
    g = torch.Generator().manual_seed(3)
    x, y, along = (torch.randn(shape, generator=g, dtype=torch.float64) for _ in range(3))

    def derivatives(at, order):
        at = at.clone().requires_grad_()
        other = y * at if which == "both" else y
        value = torch.nn.functional.cosine_similarity(at, other, dim=-1).square().sum()
        for _ in range(order - 1):
            (slope,) = torch.autograd.grad(value, at, create_graph=True)
            value = (slope * along).sum()
        return torch.autograd.grad(value, at)[0]

    step = 1e-5
    for order in (2, 3, 4):
        ahead, behind = (derivatives(x + sign * step * along, order - 1) for sign in (1, -1))
        torch.testing.assert_close(derivatives(x, order), (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-5)


def test_derivatives_of_too_high_an_order_are_refused():
    x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    value = torch.nn.functional.cosine_similarity(x, x * x, dim=0)
    with pytest.raises(NotImplementedError, match="reduces too many values of a row"):
        for _ in range(8):
            (slope,) = torch.autograd.grad(value, x, create_graph=True)
            value = slope.sum()


def test_retained_gradients_of_what_a_function_has_written():
    a = torch.ones(2, requires_grad=True)
    b = a * 2
    b.retain_grad()
    c = b * 1
    WrittenTo.apply(b)
    (b * 7 + c).sum().backward()
    assert b.grad.tolist() == [7, 7] and a.grad.tolist() == [30, 30]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        WrittenTo.apply(a)
    # In-place views give back the gradient of what it was about, in its shape, as in PyTorch.
    b = torch.ones(2, 3, requires_grad=True) * 2
    b.retain_grad()
    b.t_()
    (b * 7).sum().backward()
    assert b.grad.shape == (2, 3)


class WrittenTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, other=None):
        ctx.mark_dirty(x)
        result = x.mul_(2) if other is None else other
        ctx.save_for_backward(x)
        return result

    @staticmethod
    def backward(ctx, gradient):
        assert ctx.saved_tensors[0].grad_fn.name().startswith("WrittenTo")
        return 2 * gradient, None


def test_inputs_that_a_function_wrote_to():
    x = torch.ones(3, requires_grad=True)
    y = x * 3
    assert WrittenTo.apply(y) is y and y.grad_fn.name().startswith("WrittenTo")
    y.sum().backward()
    assert x.grad.tolist() == [6, 6, 6]
    with pytest.raises(NotImplementedError, match="a view was marked as dirty"):
        WrittenTo.apply((x * 1)[:2])
    saved = torch.ones(2, requires_grad=True).exp()
    WrittenTo.apply(saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        WrittenTo.apply(x)
    with pytest.raises(RuntimeError, match="Some elements marked as dirty"):
        WrittenTo.apply(x * 1, torch.ones(1))
    with torch.no_grad():
        before = x[0].item()
        assert WrittenTo.apply(x) is x and x[0].item() == 2 * before


class Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k, "text", x + 1, None

    @staticmethod
    def backward(ctx, *gradients):
        assert [g is None for g in gradients] == [False, True, False, True]
        return gradients[0] * ctx.k + gradients[2], None


def test_results_that_are_no_tensors_have_a_gradient_of_their_own():
    x = torch.ones(2, requires_grad=True)
    first, text, second, nothing = Mixed.apply(x, 3)
    assert text == "text" and nothing is None
    (first + 2 * second).sum().backward()
    assert x.grad.tolist() == [5, 5]
    x.grad = None
    Mixed.apply(x, 3)[0].sum().backward()
    assert x.grad.tolist() == [3, 3]


class Given(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gradients):
        ctx.gradients = gradients
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return ctx.gradients(gradient)


def test_gradients_for_what_is_no_tensor():
    x = torch.ones(2, requires_grad=True)
    Given.apply(x, lambda g: (g, None, None)).sum().backward()
    assert x.grad.tolist() == [1, 1]
    Given.apply(x, lambda g: (g.expand(3, 2), None)).sum().backward()
    assert x.grad.tolist() == [4, 4]
    for wrong in (lambda g: g[:1], lambda g: torch.ones(3), lambda g: g.sum(), lambda g: torch.ones(2, 1)):
        with pytest.raises(RuntimeError, match="returned an invalid gradient at index 0 - got .* but expected shape compatible with"):
            Given.apply(x, lambda g, wrong=wrong: (wrong(g), None)).sum().backward()
    with pytest.raises(RuntimeError, match="a gradient different than None at position 2, but the corresponding forward input was not"):
        Given.apply(x, lambda g: (g, g)).sum().backward()


class TwoResults(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        second = x + 1
        ctx.mark_non_differentiable(second)
        ctx.owned = Owned()
        TwoResults.latest = weakref.ref(ctx.owned)
        return x * 2, second

    @staticmethod
    def backward(ctx, gradient, _):
        return 2 * gradient


class Owned:
    pass


def test_functions_own_neither_inputs_nor_results():
    x = torch.ones(2, requires_grad=True)
    between = x * 1
    seen = weakref.ref(between)
    first, second = TwoResults.apply(between)
    assert first.requires_grad and not second.requires_grad
    del between
    assert seen() is None  # backward does not need it
    first.sum().backward()
    assert x.grad.tolist() == [2, 2]
    del first, second
    assert TwoResults.latest() is None
    y = x * 3
    kept = weakref.ref(WrittenTo.apply(y))
    del y
    assert kept() is None


def test_anomaly_begins_where_it_is_said():
    autograd = torch.autograd
    outer = autograd.detect_anomaly()
    assert not autograd.is_anomaly_enabled()
    with outer:
        assert autograd.is_anomaly_enabled()
        with autograd.set_detect_anomaly(False):
            assert not autograd.is_anomaly_enabled()
        assert autograd.is_anomaly_enabled()
    assert not autograd.is_anomaly_enabled()
    for refused in (autograd.detect_anomaly, lambda check_nan: autograd.set_detect_anomaly(True, check_nan)):
        with pytest.raises(NotImplementedError, match="check_nan=False"):
            refused(check_nan=False)
    assert not autograd.is_anomaly_enabled()


def test_anomaly():
    x = torch.tensor([-1.0], requires_grad=True)
    with torch.autograd.detect_anomaly():
        with pytest.raises(RuntimeError):
            x.sqrt().backward()
    assert not torch.autograd.is_anomaly_enabled()


def test_gradients_in_batches():
    """is_grads_batched: the first dimension of the gradients counts passes."""
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([[1.0, 0.0, 2.0], [0.5, 1.0, 0.0]], requires_grad=True)
    y, z = w @ x, (x * x).sum()
    g = torch.randn(4, 2), torch.randn(4)
    together = torch.autograd.grad([y, z], [x, w], g, is_grads_batched=True, retain_graph=True)
    for i in range(4):
        one = torch.autograd.grad([y, z], [x, w], [g[0][i], g[1][i]], retain_graph=True)
        assert all(torch.equal(a[i], b) for a, b in zip(together, one))
    (jacobian,) = torch.autograd.grad(x**3, x, torch.eye(3), is_grads_batched=True, create_graph=True)
    assert torch.equal(jacobian, torch.diag(3 * x**2)) and jacobian.requires_grad
    unused = torch.autograd.grad(z, w, torch.ones(2), is_grads_batched=True, allow_unused=True, retain_graph=True)
    assert unused == (None,)
    with pytest.raises(RuntimeError, match="If `is_grads_batched=True`, we interpret the first dimension"):
        torch.autograd.grad(y, x, torch.ones(4, 3), is_grads_batched=True)
    with pytest.raises(ValueError, match="grad_outputs\\[0\\] is None"):
        torch.autograd.grad(z, x, is_grads_batched=True)
    torch.autograd.grad(y, x, g[0], is_grads_batched=True)  # the last pass frees the graph
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(y, x, g[0], is_grads_batched=True)


class Doubled(torch.autograd.Function):
    """A wrong backward, as `wrong` says."""

    wrong = ""
    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Doubled.calls += 1
        if Doubled.wrong == "now and then" and Doubled.calls % 2:
            return 2.001 * g
        return 2 * g + (Doubled.wrong == "constant")


@pytest.mark.parametrize("fast", [False, True])
def test_gradcheck_options(fast):
    x = torch.tensor([0.5, 2.0, -1.0], dtype=torch.float64, requires_grad=True)
    check = torch.autograd.gradcheck
    many = {"fast_mode": fast, "check_batched_grad": True, "check_grad_dtypes": True}
    assert check(torch.exp, x, **many)
    assert check(lambda t: (t.sin(), t.sum(), t.detach()), [x], check_undefined_grad=False, **many)
    assert not check(lambda t: t.detach() * t, x, fast_mode=fast, raise_exception=False)
    z = torch.tensor([0.5 + 1j, 2 - 1j], dtype=torch.complex128, requires_grad=True)
    assert check(lambda t: (t * t.conj() * t, t.abs()), z, fast_mode=fast)
    assert not check(lambda t: t.detach() * t, z, fast_mode=fast, raise_exception=False)
    w = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert check(lambda *_: w @ x, [x, w], fast_mode=fast)  # leaves that the function holds itself
    assert torch.autograd.gradgradcheck(lambda t: (t.exp() * t, t.sin()), x, fast_mode=fast)
    for wrong, text in (("now and then", "Backward is not reentrant"), ("constant", "backward not multiplied by grad_output")):
        Doubled.wrong = wrong
        with pytest.raises(torch.autograd.GradcheckError, match=text):
            check(Doubled.apply, x, fast_mode=fast, atol=0.1)
    Doubled.wrong = "now and then"
    assert check(Doubled.apply, x, fast_mode=fast, atol=0.1, nondet_tol=1e-2)
    Doubled.wrong = ""
    assert check(Doubled.apply, x, fast_mode=fast)


def test_gradcheck_says_what_it_does_not_check():
    """Who asks for it is told, not answered as if it had been looked at."""
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    for options in ({"check_forward_ad": True, "check_batched_forward_grad": True}, {"masked": True}):
        with pytest.raises(NotImplementedError):
            torch.autograd.gradcheck(torch.exp, x, **options)
    with pytest.raises(AssertionError, match="at least one of check_forward_ad or check_backward_ad"):
        torch.autograd.gradcheck(torch.exp, x, check_backward_ad=False)
    with pytest.raises(TypeError):
        torch.autograd.gradcheck(torch.exp, x, check_everything=True)
    with pytest.raises(RuntimeError, match="has a dimension with stride 0"):
        torch.autograd.gradcheck(torch.exp, torch.ones(1, dtype=torch.float64).expand(3).requires_grad_())
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        torch.autograd.gradcheck(torch.exp, x.detach())
    with pytest.warns(UserWarning, match="not a double precision"):
        torch.autograd.gradcheck(lambda t: 2 * t, torch.ones(1, requires_grad=True), atol=0.1)


def test_gradients_that_did_not_arrive():
    """None where the function asked for that, else zeros."""
    seen = []

    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, materialize):
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            seen.append((a, b))
            return (0 if a is None else a * 2) + (0 if b is None else b * 3), None

    x = torch.ones(2, requires_grad=True)
    for materialize in (True, False):
        Both.apply(x, materialize)[1].sum().backward()
    assert seen[0][0].tolist() == [0, 0] and seen[1][0] is None and seen[1][1].tolist() == [1, 1]
    assert x.grad.tolist() == [6, 6]


def test_vjp_is_another_name_of_backward():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def vjp(ctx, g):
            return 2 * g

    x = torch.ones(2, requires_grad=True)
    Twice.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2]

    class Both(Twice):
        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(RuntimeError, match="Implementing both 'backward' and 'vjp'"):
        Both.apply(x).sum().backward()


def test_put_of_nothing_has_gradients():
    x, source = torch.ones(3, requires_grad=True), torch.ones(0, requires_grad=True)
    x.put(torch.zeros(0, dtype=torch.int64), source).sum().backward()
    assert x.grad.tolist() == [1, 1, 1] and source.grad.shape == (0,)


@pytest.mark.parametrize("function", [torch.clamp_min, torch.clamp_max, torch.fmax, torch.fmin, torch.clamp,
                                      lambda x, y: torch.clamp(x, max=y), lambda x, y: torch.clamp(x, y, y + 1)])
def test_gradient_of_what_is_at_its_bound(function):
    """Where both are equal the first has the whole gradient."""
    x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([1.0, 2.0], requires_grad=True)
    function(x, y).sum().backward()
    assert x.grad.tolist() == [1, 1] and (y.grad is None or y.grad.tolist() == [0, 0])


@pytest.mark.parametrize("function, log", [(torch.xlogy, torch.log), (torch.special.xlog1py, torch.log1p)])
def test_gradient_of_products_with_logarithms_at_zero(function, log):
    """x log(y) is linear in x: at x = 0, too, its slope is log(y), and 0 where that is infinite."""
    x = torch.tensor([0.0, 0.0, 0.5, 0.0], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([2.0, 3.0, 2.0, -1.0], dtype=torch.float64, requires_grad=True)
    function(x, y).sum().backward()
    expected = log(y.detach())
    expected[3] = 0
    assert x.grad.tolist() == expected.tolist()
    for start in (0.0, 0.5):
        x = torch.tensor([start], dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(function, [x, y.detach()[:1].requires_grad_()], check_undefined_grad=False)
        assert torch.autograd.gradgradcheck(function, [x, y.detach()[:1].requires_grad_()], check_undefined_grad=False)


@pytest.mark.parametrize("function", [
    lambda x: x.t(), lambda x: x.t().exp(), lambda x: x.prod(0), lambda x: x.flip(1).t().cumsum(0),
    lambda x: (x.t() + 1j).square()])
@pytest.mark.parametrize("fast", [False, True])
def test_gradcheck_of_results_in_another_order(function, fast):
    """Weights of results that are not contiguous are written through views of them, never through copies."""
    x = torch.tensor([[1.5, -0.5, 2.0], [0.7, 1.1, -1.3]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (x,), fast_mode=fast)
    assert torch.autograd.gradgradcheck(function, (x,), fast_mode=fast)


@pytest.mark.parametrize("name, call, write", [
    ("polygamma", lambda x: torch.polygamma(1, x), lambda x: x.polygamma_(1)),
    ("mvlgamma", lambda x: torch.mvlgamma(x, 2), lambda x: x.mvlgamma_(2)),
    ("float_power", lambda x: torch.float_power(x, 1.5), lambda x: x.float_power_(1.5)),
    ("cumprod", lambda x: x.cumprod(0), lambda x: x.cumprod_(0)),
    ("igamma", lambda x: torch.igamma(torch.full_like(x, 2.5), x), None)])
def test_writing_over_what_a_gradient_reads(name, call, write):
    x = torch.tensor([1.5, 2.5, 3.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(call, (x,)), name
    if name == "polygamma":  # of integers, too
        assert torch.equal(call(torch.tensor([1, 2])), call(torch.tensor([1.0, 2.0])))
    if write:
        assert torch.autograd.gradcheck(lambda x: write(x * 1), (x,)), name
        assert torch.autograd.gradgradcheck(lambda x: write(x * 1), (x,)), name
        if name != "cumprod":  # along the whole
            wanted, = torch.autograd.grad(call(x).sum(), x)
            for mapped in (torch.vmap(lambda row: write(row * 1)), torch.vmap(torch.vmap(lambda one: write(one * 1)))):
                rows = x.detach().repeat(2, 1).requires_grad_()
                mapped(rows).sum().backward()
                assert torch.equal(rows.grad, wanted.expand(2, 3)), name
            inside = torch.vmap(torch.func.grad(lambda row: write(row * 1).sum()))(x.detach()[None])
            assert torch.equal(inside[0], wanted), name


@pytest.mark.parametrize("call, text", [
    (torch.igamma, "igamma: input"), (torch.special.gammainc, "igamma: input"),
    (torch.special.gammaincc, "igammac: input"), (torch.special.zeta, "zeta"),
    (lambda a, x: a.mul(1).igamma_(x), "igamma: input")])
def test_gradients_that_nobody_knows_are_errors(call, text):
    a = torch.tensor([1.5, 2.5], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([1.2, 2.0], dtype=torch.float64, requires_grad=True)
    call(a.detach(), x).sum().backward()
    for other in (x, x.detach()):
        y = call(a, other).sum()
        with pytest.raises(NotImplementedError, match=f"the derivative for '{text}' is not implemented."):
            y.backward()
    if call is not torch.igamma:
        return
    assert torch.autograd.grad(call(a, x).sum(), x)[0].shape == (2,)
    with pytest.raises(NotImplementedError, match="the derivative for 'nextafter' is not implemented."):
        torch.nextafter(a, x).sum().backward()


def test_a_dropout_of_nothing_in_place_writes_nothing():
    dropout = torch.nn.functional.dropout, torch.nn.functional.alpha_dropout
    x = torch.tensor([[1.0, 2.0], [0.5, 0.0]], requires_grad=True)
    for p, training in ((0.0, True), (0.5, False)):
        y = (x * 1).softmax(1)
        before = y._version
        for drop in dropout:
            z = drop(y, p, training, inplace=True)
            assert z.data_ptr() == y.data_ptr() and y._version == before
        (y * y).sum().backward()  # softmax has kept its result
    changed = torch.ones(2)
    torch.nn.functional.dropout(changed, 1.0, inplace=True)
    assert changed.tolist() == [0, 0] and changed._version == 1


@pytest.mark.parametrize("torch", LIBRARIES)
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_equal_elements_share_the_gradient_of_a_median(torch, name):
    nan, inf = float("nan"), float("inf")
    cases = [([1.0, 0, 1, 0, 1, 0], [0, 1 / 3] * 3), ([[1.0, 2], [2, 5]], [[0, 0.5], [0.5, 0]]), (4.0, 1),
             ([1.0, nan, 1, 3, 3], [0, 1, 0, 0, 0] if name == "median" else [0.5, 0, 0.5, 0, 0]),
             ([-inf, -inf, 1.0], [0.5, 0.5, 0]), ([inf, 1.0, inf], [0.5, 0, 0.5]), ([-2.0, 3, -2, 0, -2], [1 / 3, 0] * 2 + [1 / 3])]
    for values, share in cases + [([nan, nan], [0.5, 0.5])] * (name == "median"):
        x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        middle = getattr(torch, name)(x * 1)
        assert torch.equal(middle.nan_to_num(9), getattr(torch, name)(x.detach()).nan_to_num(9)) and middle.shape == ()
        middle.backward()
        assert torch.allclose(x.grad, torch.tensor(share, dtype=torch.float64))


@pytest.mark.parametrize("torch", LIBRARIES)
def test_gradcheck_calls_functions_as_they_are(torch):
    x = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)

    def recorded_ones(x):
        with torch.no_grad():
            rest = x + 1
        return tuple(t for t in (x.sin(), x * 2, rest) if t.requires_grad)

    assert torch.autograd.gradcheck(recorded_ones, (x,))
    around = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    with pytest.raises(AssertionError, match="outputs with the same shape when inputs are perturbed"):
        torch.autograd.gradcheck(lambda x: x.expand(10) if x > 0.5 else x.expand(5), (around,))
    with pytest.raises(AssertionError, match="outputs with the same dtype when inputs are perturbed"):
        torch.autograd.gradcheck(lambda x: x if x > 0.5 else x.to(torch.float32), (around,))


@pytest.mark.parametrize("torch", LIBRARIES)
def test_gradients_made_of_zeros_can_be_differentiated(torch):
    x, other = torch.tensor(0.5, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    slope, nothing = torch.autograd.grad(x * x, (x, other), create_graph=True, materialize_grads=True)
    assert slope == 1 and nothing == 0 and nothing.requires_grad
    assert torch.autograd.grad(nothing, x, materialize_grads=True)[0] == 0
    assert not torch.autograd.grad(x * 3, (x, other), materialize_grads=True)[1].requires_grad


@pytest.mark.parametrize("torch", LIBRARIES)
@pytest.mark.parametrize("change", [
    "t.t_()", "t.transpose_(0, 1)", "t.swapaxes_(0, 1)", "t.swapdims_(0, 1)", "t.squeeze_()", "t.squeeze_(0)", "t.unsqueeze_(0)",
    "t.as_strided_((2,), (1,))", "t.resize_(2)", "t.resize_as_(torch.ones(2))", "t.set_(torch.ones(3))", "t.add_(1)"])
def test_inference_tensors_keep_their_shapes_elsewhere(torch, change):
    with torch.inference_mode():
        t, other, again = (torch.ones(1, 2) for _ in range(3))
        exec(change, {"t": again, "torch": torch})
        assert again.is_inference()
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode is not allowed"):
        exec(change, {"t": t, "torch": torch})
    with torch.no_grad(), pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode is not allowed"):
        exec(change, {"t": other, "torch": torch})
    if torch.__name__ == "arete":  # the other finds out afterwards
        assert t.tolist() == [[1.0, 1.0]]
        assert t.resize_(1, 2) is t  # has that size


@pytest.mark.parametrize("torch", LIBRARIES)
@pytest.mark.parametrize("write", ["a.mul_(2)", "a.view(-1).mul_(2)", "a[:1].mul_(2)"])
def test_retained_gradients_are_of_the_last_values(torch, write):
    a = torch.ones(2, requires_grad=True).clone()
    a.retain_grad()
    exec(write, {"a": a})
    (a * 3).sum().backward()
    assert a.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("torch", LIBRARIES)
def test_retained_gradients_of_views_of_one_memory(torch):
    base = torch.ones(1, requires_grad=True).clone()
    view, other = base[:], base[:]
    view.retain_grad()
    other.retain_grad()
    view.mul_(2)
    (view * 2 + other * 3).sum().backward()
    assert view.grad.item() == 2 and other.grad.item() == 3


@pytest.mark.parametrize("torch", LIBRARIES)
@pytest.mark.parametrize("index", [slice(None), ..., (), (slice(None), ...)], ids=str)
def test_indices_that_take_everything_give_a_tensor_of_its_own(torch, index):
    x = torch.ones(2, requires_grad=True) * 1
    y = x[index]
    assert y is not x and y._is_view() and y.data_ptr() == x.data_ptr()
    y.retain_grad()
    (y * 2 + x * 3).sum().backward()
    assert y.grad.tolist() == [2.0, 2.0]
    z = torch.zeros(2)
    z[index].unsqueeze_(0)
    assert z.shape == (2,)


@pytest.mark.parametrize("torch", LIBRARIES)
def test_inference_mode_leaves_tensors_from_outside_as_they_are(torch):
    weight = torch.ones(2, requires_grad=True)
    buffer = torch.ones(2)
    with torch.inference_mode():
        for t in (weight, buffer):
            assert not any(f(t).is_inference() for f in (
                lambda t: t.contiguous(), lambda t: t.to(torch.float32), lambda t: torch.nn.functional.dropout(t, 0.0),
                lambda t: t.view(1, 2), lambda t: t.flatten(), lambda t: t[:1], lambda t: t.detach()))
            assert not t.is_inference() and (t * 2).is_inference() and (t * 2).view(1, 2).is_inference()
        row = buffer.view(1, 2)
        torch._foreach_add_([buffer], 1)
        row.add_(1)
    assert buffer.tolist() == [3.0, 3.0] and row.add_(1).tolist() == [[4.0, 4.0]] and not buffer.is_inference()
    (weight * buffer).sum().backward()
    assert weight.grad.tolist() == [4.0, 4.0]


@pytest.mark.parametrize("torch", LIBRARIES)
def test_switches_hold_in_every_step_of_a_generator(torch):
    seen = []

    @torch.no_grad()
    def steps():
        try:
            for _ in range(3):
                try:
                    seen.append(torch.is_grad_enabled())
                    yield torch.is_grad_enabled()
                except ValueError as error:
                    seen.append((str(error), torch.is_grad_enabled()))
                    yield "again"
        finally:
            seen.append(("closed", torch.is_grad_enabled()))

    with torch.enable_grad():
        g = steps()
        assert next(g) is False and torch.is_grad_enabled()
        assert g.throw(ValueError("mine")) == "again" and torch.is_grad_enabled()
        g.close()
        assert torch.is_grad_enabled()
    assert seen == [False, ("mine", False), ("closed", False)]
    g = steps()
    next(g)
    with pytest.raises(KeyError):
        g.throw(KeyError("not caught"))


@pytest.mark.parametrize("torch", LIBRARIES)
def test_callbacks_at_the_end_of_a_pass(torch):
    order = []
    x = torch.ones(2, requires_grad=True)

    class Marked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            torch.autograd.Variable._execution_engine.queue_callback(lambda: order.append(x.grad.tolist()))
            order.append("backward")
            return g

    Marked.apply(x * 2).sum().backward()
    assert order == ["backward", [2.0, 2.0]]
    with pytest.raises(RuntimeError, match="backward"):
        torch.autograd.Variable._execution_engine.queue_callback(lambda: None)


@pytest.mark.parametrize("torch", LIBRARIES, ids=lambda library: library.__name__)
def test_edges_stand_for_tensors(torch):
    graph, grad = torch.autograd.graph, torch.autograd.grad
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    edge, leaf = graph.get_gradient_edge(y), graph.get_gradient_edge(x)
    assert isinstance(edge, graph.GradientEdge) and edge.output_nr == 0 and edge.node == y.grad_fn
    z = (3 * y).sum()
    del y
    assert [g.tolist() for g in grad(z, [x, edge], retain_graph=True)] == [[6, 12], [3, 3]]
    assert grad(edge, leaf, torch.tensor([1.0, 10.0]), retain_graph=True)[0].tolist() == [2, 40]
    torch.autograd.backward(z, inputs=[leaf], retain_graph=True)
    torch.autograd.backward(graph.get_gradient_edge(z))
    assert x.grad.tolist() == [12, 24]
    assert [graph.get_gradient_edge(t).output_nr for t in x.unbind()] == [0, 1]
    with pytest.raises(RuntimeError, match="does not require gradients"):
        graph.get_gradient_edge(torch.ones(1))


@pytest.mark.parametrize("torch", LIBRARIES, ids=lambda library: library.__name__)
def test_saved_tensors_may_be_written(torch):
    graph = torch.autograd.graph
    x = torch.full((2,), 3.0, requires_grad=True)
    with graph.allow_mutation_on_saved_tensors() as copies:
        y, z = x.clone(), x.exp()
        loss = (y**2).sum() + z.sum()
        y.zero_()
        z.mul_(5)
        loss.backward()
        torch.testing.assert_close(x.grad, 6 + x.detach().exp())
        with pytest.raises(RuntimeError, match="cannot be nested"):
            with graph.allow_mutation_on_saved_tensors():
                pass
        gone = (x.exp() ** 2).sum()
        copies.clear()
        with pytest.raises(AssertionError):
            gone.backward()
        late = (x.exp() ** 2).sum()
    with pytest.raises(AssertionError, match="outside of the 'allow_mutation_on_saved_tensors' context"):
        late.backward()
    y = x.clone()
    loss = (y**2).sum()
    y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_passes_nested_too_deep():
    """Bound methods of C are no frames of Python, whose limit would be too late."""
    before = torch.ones(1, requires_grad=True).clone()
    chain = [before]
    for _ in range(2000):
        t = torch.ones(1, requires_grad=True).clone()
        t.register_hook(chain[-1].backward)
        chain.append(t)
    with pytest.raises(RuntimeError, match="nested too deep|maximum recursion"):
        chain[-1].backward(torch.ones(1))
    chain[100].backward(torch.ones(1))


def test_passes_have_one_thread():
    x = torch.ones(2, requires_grad=True)
    with torch.autograd.set_multithreading_enabled(False), torch.autograd.grad_mode.set_multithreading_enabled(True):
        threads = []
        y = x * 2
        y.register_hook(lambda g: threads.append(threading.get_ident()))
        y.sum().backward()
    assert threads == [threading.get_ident()]
    assert torch.autograd.set_multithreading_enabled(False)(lambda: 3)() == 3
