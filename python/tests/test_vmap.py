"""vmap: every operator's samples beside the loop over elements, and what is made of it: gradients by sample, ensembles, Jacobians."""
import collections
import importlib
import warnings

import numpy as np
import pytest
from idiom_helpers import LIBRARIES

import arete
from arete import _C, Tensor, func

both = pytest.mark.parametrize("torch", LIBRARIES, ids=lambda library: library.__name__)

# Operators that say nothing without looking at values: how many results there are, or where they begin.
LOOKS = {
    "masked_select", "narrow.Tensor", "nonzero", "nonzero_numpy", "one_hot", "tensor_split.tensor_indices_or_sections", "unique",
    "unique_consecutive",
}
# Writes of batched values into some views of shared tensors, and positions of masks whose number the values decide.
NOT_YET = {"embedding", "embedding_bag", "flat_nonzero", "index_put"}
# Norms that write statistics, which all elements would share.
SHARED = {"batch_norm", "batch_norm_relu", "instance_norm", "fused_norm", "fused_norm_residual"}
BATCH = 3


def keyword_only(schema):
    """The names of a schema's arguments, and those that are given by name alone."""
    depth, parts = 0, [""]
    for c in schema[schema.index("(") + 1:schema.rindex(") ->")]:
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    names, named, by_name = [], set(), False
    for p in (p.strip() for p in parts if p.strip()):
        if p == "*":
            by_name = True
            continue
        names.append(p.split("=")[0].split()[-1])
        if by_name:
            named.add(names[-1])
    return names, named


def operator_of(name):
    for functional in (False, True):
        try:
            return _C.Operator(name.split(".")[0], functional=functional)
        except KeyError:
            pass
    return None


def tensors_of(result):
    return (result,) if isinstance(result, Tensor) else tuple(r for r in result if isinstance(r, Tensor))


def assert_close(got, wanted, what):
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, (what, got, wanted)
    if got.is_floating_point():
        got, wanted = got.double(), wanted.double()
    if got.is_floating_point() or got.is_complex():
        assert arete.allclose(got, wanted, rtol=1e-4, atol=1e-5, equal_nan=True), what
    else:
        assert arete.equal(got, wanted), what


def cases(name):
    """(f, tensors): the samples of a record as functions of some of their tensors, all, the first or the last."""
    f = operator_of(name)
    if f is None:
        return
    names, named = keyword_only(_C._record(name)["schema"])
    for sample in _C._record_samples(name):
        places = [i for i, a in enumerate(sample) if isinstance(a, Tensor)]
        if not places:
            continue
        for mapped in dict.fromkeys((tuple(places), *((places[0],), (places[-1],)) * (len(places) > 1))):

            def call(*row, sample=sample, mapped=mapped):
                given = list(sample)
                for i, t in zip(mapped, row):
                    given[i] = t
                positional = [a for n, a in zip(names, given) if n not in named]
                return tensors_of(f(*positional, **{n: a for n, a in zip(names, given) if n in named and a is not None}))

            yield call, [sample[i] for i in mapped]


def batch_of(t):
    """Elements that differ where that is no matter: of floats in another order."""
    turned = t.flip(0) if t.is_floating_point() and t.dim() and t.shape[0] > 1 else t
    return arete.stack([t, turned, t])


def is_refused(name, error):
    text = str(error)
    return ((name in LOOKS | NOT_YET and "data-dependent control flow" in text)
            or (name in NOT_YET and "inplace arithmetic" in text)  # max_norm writes into the table
            or (name in SHARED and ("updated in place" in text or "inplace arithmetic" in text))
            or (name in ("seeded_dropout", "fused_attention") and "randomness error mode" in text))


def record_names():
    return [n for n in _C._record_names() if not _C._record_facts(n)["random"] and not n.startswith("collective")]


@pytest.mark.filterwarnings("ignore")
def test_every_record_beside_the_loop():
    counts = collections.Counter()
    for name in record_names():
        for f, tensors in cases(name):
            stacked = [batch_of(t) for t in tensors]
            try:
                loop = [f(*(t[b].clone() for t in stacked)) for b in range(BATCH)]
                wanted = [arete.stack(parts) for parts in zip(*loop)]
            except Exception:  # the sample is no sample in another order, or its results have sizes of their own
                counts["left out"] += 1
                continue
            try:
                got = func.vmap(f)(*stacked)
            except arete.AutogradError as error:
                assert is_refused(name, error), (name, error)
                counts["refused"] += 1
                continue
            for g, w in zip(got, wanted, strict=True):
                assert_close(g, w, name)
            counts["equal"] += 1
    assert counts["equal"] > 5000 and counts["refused"] < 130 and counts["left out"] < 20, counts


@pytest.mark.filterwarnings("ignore")
def test_every_gradient_and_level_beside_the_loop():
    counts = collections.Counter()
    for name in record_names():
        if name in LOOKS | NOT_YET | SHARED or _C._record_facts(name)["gradient"] == "none":
            continue
        for f, tensors in list(cases(name))[:1]:
            if not all(t.is_floating_point() for t in tensors):
                continue

            def loss(*row, f=f):
                found = [r for r in f(*row) if r.is_floating_point()]
                return sum(((r * r).sum() for r in found), row[0].sum() * 0)

            one = func.grad(loss, argnums=tuple(range(len(tensors))))
            stacked = [batch_of(t) for t in tensors]
            try:
                loop = [one(*(t[b].clone() for t in stacked)) for b in range(BATCH)]
            except Exception:
                counts["left out"] += 1
                continue
            wanted = [arete.stack(parts) for parts in zip(*loop)]
            try:
                for g, w in zip(func.vmap(one)(*stacked), wanted, strict=True):
                    assert_close(g, w, f"{name}, differentiated inside")
            except arete.AutogradError as error:
                assert is_refused(name, error), (name, error)
                continue
            outside = [t.clone().requires_grad_() for t in stacked]
            func.vmap(loss)(*outside).sum().backward()
            for t, w in zip(outside, wanted):
                assert_close(arete.zeros_like(w) if t.grad is None else t.grad, w, f"{name}, differentiated outside")
            twice = [arete.stack([t, t.flip(0)]) for t in stacked]
            nested = func.vmap(func.vmap(f))(*twice)
            for g, a, b in zip(nested, func.vmap(f)(*stacked), func.vmap(f)(*(t.flip(0) for t in stacked)), strict=True):
                assert_close(g, arete.stack([a, b]), f"{name}, two levels")
            counts["equal"] += 1
    assert counts["equal"] > 250 and counts["left out"] < 10, counts


@pytest.mark.filterwarnings("ignore")
def test_gradients_around_every_record():
    """Of several samples, with all tensors or one mapped, integers and complex numbers among them: as the loop has them."""
    counts = collections.Counter()
    for name in record_names():
        if _C._record_facts(name)["gradient"] == "none":
            continue
        samples = list(cases(name))
        for f, tensors in samples[::max(1, len(samples) // 12)]:
            floating = [t.is_floating_point() or t.is_complex() for t in tensors]

            def loss(*row, f=f, floating=floating):
                found = [arete.view_as_real(r) if r.is_complex() else r for r in f(*row)]
                weights = [arete.arange(r.numel(), dtype=r.dtype).reshape(r.shape).cos() + 1 if r.is_floating_point() else None
                           for r in found]
                nothing = sum((arete.view_as_real(t) if t.is_complex() else t).sum() * 0 for t, is_float in zip(row, floating) if is_float)
                return sum((((r * r + r) * w).sum() for r, w in zip(found, weights) if w is not None), nothing)

            looped, whole = ([t.clone().requires_grad_() if is_float else t for t, is_float in zip(map(batch_of, tensors), floating)]
                             for _ in range(2))
            try:
                sum(loss(*(t[b].clone() for t in looped)) for b in range(BATCH)).backward()
            except Exception:  # the sample has no result that depends on these, or is none in another order
                counts["left out"] += 1
                continue
            try:
                func.vmap(loss)(*whole).sum().backward()
            except arete.AutogradError as error:
                assert is_refused(name, error), (name, error)
                counts["refused"] += 1
                continue
            for t, w in zip(whole, looped):
                if w.grad is not None:
                    tolerance = 2e-3 if t.element_size() > 2 else 2e-2
                    got, wanted = (arete.view_as_real(g) if g.is_complex() else g.double() for g in (t.grad, w.grad))
                    assert arete.allclose(got, wanted, rtol=tolerance, atol=1e-3, equal_nan=True), (name, t.shape, got, wanted)
            counts["equal"] += 1
    assert counts["equal"] > 4000 and counts["refused"] < 100 and counts["left out"] < 400, counts


def calls_of(f):
    """How many operators a function calls."""
    trace = _C._CallTrace()
    trace.start()
    try:
        f()
    finally:
        trace.stop()
    return len(trace.calls())


class Convolutions(arete.nn.Module):
    def __init__(self):
        super().__init__()
        nn = arete.nn
        self.net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2),
                                 nn.Conv2d(4, 4, 3, stride=2), nn.Flatten(), nn.Linear(4, 3))

    def forward(self, x):
        return self.net(x)


class Cell(arete.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = arete.nn.LSTMCell(5, 4), arete.nn.Linear(4, 3)

    def forward(self, x):
        h, c = self.cell(x)
        h, c = self.cell(x, (h, c))
        return self.out(h)


class Words(arete.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layer = arete.nn.Embedding(7, 8), arete.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.out = arete.nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.layer(self.words(x)).mean(1))


def networks():
    nn = arete.nn
    return {
        "mlp": (nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3)), lambda n: arete.randn(n, 5)),
        "cnn": (Convolutions(), lambda n: arete.randn(n, 2, 8, 8)),
        "lstm cell": (Cell(), lambda n: arete.randn(n, 5)),
        "transformer": (Words(), lambda n: arete.randint(0, 7, (n, 4))),
    }


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm cell", "transformer"])
def test_gradients_by_sample(name):
    arete.manual_seed(1)
    model, inputs = networks()[name]
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def loss(parameters, x, y):
        out = func.functional_call(model, parameters, (x.unsqueeze(0),))
        return arete.nn.functional.cross_entropy(out, y.unsqueeze(0))

    x, y = inputs(6), arete.tensor([0, 1, 2, 0, 1, 2])
    by_sample = func.vmap(func.grad(loss), in_dims=(None, 0, 0))
    got = by_sample(parameters, x, y)
    for i in range(6):
        wanted = func.grad(loss)(parameters, x[i], y[i])
        for k in parameters:
            assert_close(got[k][i], wanted[k], k)
    assert not any(g.requires_grad for g in got.values())
    in_chunks = func.vmap(func.grad(loss), in_dims=(None, 0, 0), chunk_size=4)(parameters, x, y)
    for k in parameters:
        assert_close(in_chunks[k], got[k], k)
    few, many = (calls_of(lambda n=n: by_sample(parameters, x[:n], y[:n])) for n in (2, 6))
    assert few == many
    compiled = arete.compile(by_sample)
    for _ in range(3):
        for k, g in compiled(parameters, x, y).items():
            assert_close(g, got[k], k)


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm cell", "transformer"])
def test_ensembles(name):
    arete.manual_seed(2)
    models = [networks()[name][0] for _ in range(3)]
    parameters, buffers = func.stack_module_state(models)
    x = networks()[name][1](4)
    run = func.vmap(lambda p, b: func.functional_call(models[0], (p, b), (x,)), in_dims=(0, 0)) if buffers else \
        func.vmap(lambda p: func.functional_call(models[0], p, (x,)))
    given = (parameters, buffers) if buffers else (parameters,)
    got = run(*given)
    assert_close(got, arete.stack([m(x) for m in models]).detach(), name)
    got.square().sum().backward()
    for m, i in zip(models, range(3)):
        m(x).square().sum().backward()
        for k, p in m.named_parameters():
            assert_close(parameters[k].grad[i], p.grad, k)


def test_jacobians_take_as_many_calls_as_one_pass():
    w = arete.randn(6, 6)
    f = lambda x: arete.tanh(x @ w[:x.shape[0]])  # noqa: E731
    for jacobian in (func.jacrev, func.jacfwd, lambda f: func.hessian(lambda x: f(x).square().sum())):
        few, many = (calls_of(lambda n=n: jacobian(f)(arete.ones(n))) for n in (2, 6))
        assert few == many
    x = arete.randn(6)
    assert_close(func.jacrev(f)(x), func.jacfwd(f)(x), "both ways")
    assert_close(func.jacrev(f, chunk_size=4)(x), func.jacfwd(f)(x), "in chunks")
    assert_close(func.vmap(func.jacrev(f))(x.expand(2, 6)), func.jacrev(f)(x).expand(2, 6, 6), "of a batch")
    assert_close(func.jacrev(func.vmap(lambda a: a.sin() * a.sum()))(x.expand(2, 6))[1, :, 1],
                 func.jacrev(lambda a: a.sin() * a.sum())(x), "through a batch")
    y = arete.autograd.functional.hessian(lambda x: f(x).square().sum(), x, vectorize=True)
    assert_close(y, func.hessian(lambda x: f(x).square().sum())(x), "vectorize")


@both
def test_what_cannot_be_looked_at(torch):
    x = torch.ones(3, 2)
    with pytest.raises(RuntimeError, match="It looks like you're calling .item\\(\\) on a Tensor"):
        torch.vmap(lambda a: a.sum().item())(x)
    with pytest.raises(RuntimeError, match="data-dependent control flow"):
        torch.vmap(lambda a: a if a.sum() > 0 else -a)(x)
    with pytest.raises(RuntimeError, match="vmap: "):
        torch.vmap(lambda a: a.nonzero())(x)
    with pytest.raises(ValueError, match="can not return a BatchedTensor when out_dim is None"):
        torch.vmap(lambda a: a, out_dims=None)(x)
    texts = []
    torch.vmap(lambda a: (texts.append(repr(a)), a)[1])(x)
    assert texts[0].startswith("BatchedTensor(")


@both
def test_writes(torch):
    total, x = torch.zeros(2), torch.arange(6.0).reshape(3, 2)

    def into_captured(a):
        total.add_(a)
        return a

    # torch says another thing with each version and build.
    with pytest.raises(RuntimeError, match="vmap: inplace arithmetic" if torch is arete else None):
        torch.vmap(into_captured)(x)
    with pytest.raises(RuntimeError):
        torch.vmap(lambda a: torch.add(a, a, out=total))(x)
    assert not total.any()

    def own(a):
        made = torch.zeros_like(a)
        made[0] = a[1]
        made.mul_(2).add_(a)
        b = a.new_zeros(3)
        b[1:] = a
        return made, b

    made, b = torch.vmap(own)(x)
    np.testing.assert_allclose(made.numpy(), [[2, 1], [8, 3], [14, 5]])
    np.testing.assert_allclose(b.numpy(), [[0, 0, 1], [0, 2, 3], [0, 4, 5]])
    y = x.clone()
    torch.vmap(lambda a: a.mul_(2))(y)  # what is mapped over is written itself
    assert torch.equal(y, 2 * x)


@both
def test_views_and_writes_beside_the_batch(torch):
    x = torch.arange(24.0).reshape(3, 1, 8)
    views = [lambda a: a.squeeze(()), lambda a: a.squeeze(), lambda a: a.unsqueeze(-1), lambda a: a.permute(-1, 0), lambda a: a.view(4, -1),
             lambda a: a[0].expand(2, -1), lambda a: a[0, 2].expand(2, 2), lambda a: a[0, 1].unsqueeze(-1), lambda a: a[0, 1].squeeze(),
             lambda a: a[0, 1].permute(()), lambda a: a[0, 1].view(1, 1), lambda a: a.as_strided((2, 2), (3, 1))]
    for view in views:
        assert torch.equal(torch.vmap(view)(x), torch.stack([view(a) for a in x]))

    def write(a, number):
        a.squeeze(()).unsqueeze(0).permute(0, 2, 1)[0, 1].copy_(number)  # the batch stays in front where copying broadcasts
        a[1:].fill_(7)
        a[1].as_strided((2,), (1,)).copy_(torch.ones(2))
        return a

    written = torch.vmap(write)(torch.zeros(3, 2, 4), torch.arange(3.0))
    np.testing.assert_array_equal(written.numpy(), [[[0, n, 0, 0], [1, 1, 7, 7]] for n in range(3)])


@both
@pytest.mark.parametrize("draw", ["rand", "dropout", "normal_", "bernoulli"])
def test_randomness(torch, draw):
    x = torch.full((64, 8), 0.5)
    f = {"rand": lambda a: torch.rand(8) + 0 * a, "dropout": lambda a: torch.nn.functional.dropout(a, 0.5),
         "normal_": lambda a: torch.zeros_like(a).normal_(), "bernoulli": lambda a: torch.bernoulli(a)}[draw]
    with pytest.raises(RuntimeError, match="randomness error mode"):
        torch.vmap(f)(x)
    different = torch.vmap(f, randomness="different")(x)
    assert different.shape == (64, 8) and not torch.equal(different[0], different[1]) and different.std(0).min() > 0.1
    if draw == "dropout":  # of channels, and of what has no batch
        channels = torch.vmap(lambda a: torch.nn.functional.dropout2d(torch.ones(1, 40)) + 0 * a[0], randomness="different")(x)
        assert channels.shape == (64, 1, 40) and not torch.equal(channels[0], channels[1])
    if draw in ("rand", "dropout"):  # torch draws the others for batched tensors with no randomness but "different"
        same = torch.vmap(f, randomness="same")(x)
        assert torch.equal(same[0], same[63]) and same[0].std() > 0.05


@both
def test_products_fold(torch):
    vmap = importlib.import_module(f"{torch.__name__}.func").vmap
    a, b, m = torch.randn(3, 4, 5), torch.randn(3, 5, 6), torch.randn(5, 6)
    for x, y, dims in ((a, b, 0), (a, m, (0, None)), (m.mT.contiguous(), b.mT.contiguous().mT[:, :5], (None, 0)),
                       (a[:, 0], b, 0), (a[:, 0], m, (0, None)), (a, b[:, :, 0], 0), (m.mT.contiguous(), b[:, :, 0], (None, 0))):
        got = vmap(lambda x, y: x @ y, in_dims=dims)(x, y)
        each = [(x if dims == (None, 0) else x[i]) @ (y if dims == (0, None) else y[i]) for i in range(3)]
        np.testing.assert_allclose(got.numpy(), torch.stack(each).numpy(), rtol=1e-5, atol=1e-5)


def test_promotion_is_that_of_one_element():
    numbers, row = arete.ones(3, dtype=arete.float64), arete.ones(2)
    assert func.vmap(lambda a: a * row)(numbers).dtype == arete.float32
    assert func.vmap(lambda a: a * 2.5)(arete.ones(3, dtype=arete.int64)).dtype == arete.float32
    assert func.vmap(lambda a, b: a + b)(numbers, arete.ones(3)).dtype == arete.float64


def test_custom_functions():
    class Double(arete.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    class Summed(Double):
        @staticmethod
        def vmap(info, in_dims, x):
            assert info.batch_size == 3 and in_dims == (0,)
            return Summed.apply(x), 0

    x = arete.arange(3.0)
    assert arete.equal(func.vmap(Double.apply)(x), 2 * x)
    assert arete.equal(func.vmap(func.grad(Double.apply))(x), arete.full((3,), 2.0))
    with pytest.raises(NotImplementedError, match="static method vmap"):
        func.vmap(Double.apply)(x.clone().requires_grad_())
    leaf = x.clone().requires_grad_()
    func.vmap(Summed.apply)(leaf).sum().backward()
    assert arete.equal(leaf.grad, arete.full((3,), 2.0))


def test_custom_functions_inside_and_around():
    class Times(arete.autograd.Function):
        @staticmethod
        def forward(x, s):
            return x * s

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.factor = inputs[1]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor, None

    class Batched(Times):
        @staticmethod
        def vmap(info, in_dims, x, s):
            return x * s, 0

    class Product(arete.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g * w, g * x

    x = arete.arange(6.0).reshape(3, 2)
    for function in (Times, Batched):
        inside = func.vmap(func.grad(lambda a, f=function: (f.apply(a, 3.0) * a).sum()))
        assert_close(inside(x), 6 * x, "inside")
    leaf = x.clone().requires_grad_()
    func.vmap(func.grad(lambda a: (Batched.apply(a * a, 3.0) * a).sum()))(leaf).sum().backward()  # 9 x^2, and around it 18 x
    assert_close(leaf.grad, 18 * x, "both")
    w = arete.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="static method vmap"):  # the captured parameter would get nothing
        func.vmap(lambda a: Product.apply(a, w))(x)
    assert_close(func.vmap(lambda a: func.grad(lambda w: Product.apply(a, w).sum())(w.detach()))(x), x, "shared inside")


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    from arete.utils.checkpoint import checkpoint

    w, x = arete.randn(2, requires_grad=True), arete.randn(3, 2, requires_grad=True)
    f = lambda a: checkpoint(lambda a: (a * w).sin().sum(), a, use_reentrant=reentrant)  # noqa: E731
    func.vmap(f)(x).sum().backward()
    slope = (x * w).cos().detach()
    assert_close(x.grad, slope * w.detach(), "input")
    assert_close(w.grad, (slope * x.detach()).sum(0), "captured")
    assert_close(func.vmap(func.grad(f))(x.detach()).detach(), slope * w.detach(), "inside")


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_run_again_where_they_are_differentiated_inside(reentrant):
    from arete.utils.checkpoint import checkpoint

    w, x, calls = arete.randn(2), arete.randn(3, 2), []

    def part(a, w):
        calls.append(a.requires_grad)
        return (a * w).sin() * arete.nn.functional.dropout(a, 0.5)

    def f(a, w):
        return checkpoint(part, a, w, use_reentrant=reentrant).sum()

    plain = lambda a, w: part(a, w).sum()  # noqa: E731
    for dims in ((0, None), (0, 0)):
        results = []
        for g, runs in ((f, 2), (plain, 1)):
            calls.clear()
            arete.manual_seed(0)
            per_sample = func.vmap(func.grad(g, argnums=(0, 1)), in_dims=dims, randomness="different")
            results.append(per_sample(x, w if dims[1] is None else w.expand(3, 2)))
            assert len(calls) == runs, (g, calls)
        for got, wanted in zip(*results, strict=True):
            assert_close(got, wanted, dims)
    calls.clear()
    leaf = w.clone().requires_grad_()  # differentiated around: the graph is kept, and the numbers are the same
    func.vmap(lambda a: f(a, leaf), randomness="different")(x).sum().backward()
    assert leaf.grad is not None


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_run_once_in_forward(reentrant):
    from arete.utils.checkpoint import checkpoint

    def parts(w, calls):
        norm = arete.nn.BatchNorm1d(2)

        def around(a):  # w is differentiated around vmap, or is a parameter beside the batch
            calls.append(norm)
            norm(arete.ones(3, 2) * 2)
            return (arete.nn.functional.dropout(a, 0.5) * w).sin().sum()

        def within(a):
            calls.append(norm)
            norm(arete.ones(3, 2) * 2)
            return func.vmap(lambda row: (row * w).sin())(arete.nn.functional.dropout(a, 0.5)).sum()

        return around, within

    x = arete.randn(3, 2)
    for which, runs in ((0, 1), (1, 2)):  # the first keeps its graph, the second is an ordinary checkpoint
        results = []
        for is_checkpointed in (False, True):
            calls, w, leaf = [], arete.tensor([0.5, -2.0], requires_grad=True), x.clone().requires_grad_()
            part = parts(w, calls)[which]
            f = (lambda a: checkpoint(part, a, use_reentrant=reentrant)) if is_checkpointed else part  # noqa: E731
            arete.manual_seed(4)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # reentrant, and the input is not differentiated inside
                y = func.vmap(f, randomness="different")(x).sum() if which == 0 else f(leaf)
            assert len(calls) == 1 and calls[0].num_batches_tracked == 1, (which, is_checkpointed)
            values = [y.detach(), arete.randn(3), calls[0].running_mean.clone()]
            y.backward()
            assert len(calls) == (runs if is_checkpointed else 1)
            results.append([*values, w.grad, *([leaf.grad] if which else [])])
        for plain, got in zip(*results, strict=True):
            assert_close(got, plain, which)


@pytest.mark.parametrize("program", [
    lambda run, w, x: run(lambda a: func.vmap(func.vmap(lambda row: (row * w).tanh()))(a).sum(), x),  # all of vmap inside
    lambda run, w, x: run(lambda a: func.vmap(func.grad(lambda row: (row * w).sin().sum()))(a.reshape(12, 2)).sum(), x),
    lambda run, w, x: func.vmap(func.vmap(lambda e: run(lambda a: (a * w).tanh().sum(), e)))(x).sum(),  # outside
    lambda run, w, x: func.vmap(lambda e: run(lambda a: func.vmap(lambda row: (row * w).tanh())(a).sum(), e))(x).sum(),  # both
    lambda run, w, x: func.vmap(func.jacrev(lambda e: run(lambda a: (a * w).tanh().sum(0), e)))(x).sum(),
    lambda run, w, x: func.vmap(lambda e: sum(t.sum() for t in run(lambda a: (a, w, a * 2), e)))(x.detach()).sum(),  # w is used by no call
])
def test_checkpoints_beside_levels_of_vmap(program):
    from arete.utils.checkpoint import checkpoint

    start, found = arete.randn(4, 3, 2), []
    for run in (lambda f, a: f(a), lambda f, a: checkpoint(f, a, use_reentrant=False)):
        w, x = arete.tensor([0.5, -2.0], requires_grad=True), start.clone().requires_grad_()
        y = program(run, w, x)
        found.append([y, *arete.autograd.grad(y, (w, x), allow_unused=True)])
    for got, want in zip(*found, strict=True):
        assert got is want is None or arete.allclose(got, want, atol=1e-5)


def test_second_derivatives_of_what_has_one():
    class Square(arete.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @arete.autograd.once_differentiable
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    x = arete.arange(3.0)
    f = lambda x: Square.apply(x) + 3 * x  # noqa: E731
    assert_close(func.jacfwd(f)(x), arete.diag(2 * x + 3), "jacfwd")
    with pytest.raises(RuntimeError, match="once_differentiable"):
        func.jvp(f, (x,), (arete.ones(3),))


def test_captured_and_nested_complex_numbers():
    w, x = arete.randn(4, requires_grad=True), arete.randn(3, 2, 4, requires_grad=True)
    f = lambda a: (arete.fft.fft(a).abs() * arete.complex(w, 2 * w).abs()).sum() + a.sum()  # noqa: E731
    func.vmap(func.vmap(f))(x).sum().backward()
    got = x.grad, w.grad
    x.grad = w.grad = None
    sum(f(x[i, j]) for i in range(3) for j in range(2)).backward()
    assert_close(got[0], x.grad, "mapped")
    assert_close(got[1], w.grad, "captured")


def test_statistics_that_all_share_are_written_once():
    x, weights = arete.randn(4, 2), arete.randn(3, 2)
    shared, once = ((arete.zeros(2), arete.ones(2)) for _ in range(2))
    norm = lambda w, m, v: arete.nn.functional.batch_norm(x, m, v, weight=w, training=True)  # noqa: E731
    got = func.vmap(norm, in_dims=(0, None, None))(weights, *shared)
    norm(weights[0], *once)
    assert_close(shared[0], once[0], "mean")
    assert_close(shared[1], once[1], "variance")
    assert_close(got, arete.stack([norm(w, None, None) for w in weights]), "values")


def test_writes_and_leftovers():
    base, x = arete.randn(4, 4), arete.randn(3, 4)
    for f in (lambda a: arete.select_scatter(base, a, 0, 1), lambda a: arete.slice_scatter(base, a[None], 0, 1, 2),
              lambda a: arete.diagonal_scatter(base, a), lambda a: arete.as_strided_scatter(base, a, (4,), (4,), 1),
              lambda a: (a * 1).cumprod_(0), lambda a: (a * 1).view(2, 2).renorm_(2, 0, 0.5),
              lambda a: arete.nn.functional.embedding(arete.tensor([1, 0]), a.view(2, 2), padding_idx=1)):
        whole, looped = x.clone().requires_grad_(), x.clone().requires_grad_()
        func.vmap(f)(whole).square().sum().backward()
        arete.stack([f(a) for a in looped]).square().sum().backward()
        assert_close(whole.grad, looped.grad, "gradient")
    assert func.vmap(lambda a: arete.cat([arete.empty(0), a]))(arete.ones(3, 2, 2)).shape == (3, 2, 2)
    numbers, half = arete.tensor([1.0001, 2.0], dtype=arete.float64), arete.tensor([1.0, 2.0], dtype=arete.float16)
    assert_close(func.vmap(lambda a: a == half)(numbers), arete.stack([a == half for a in numbers]), "as a program compares")


@both
def test_what_looks_at_values(torch):
    vmap, grad = (getattr(importlib.import_module(f"{torch.__name__}.func"), name) for name in ("vmap", "grad"))
    same = lambda f, *batches: np.testing.assert_allclose(  # noqa: E731
        vmap(f)(*batches).numpy(), torch.stack([f(*row) for row in zip(*batches)]).numpy(), rtol=1e-4, atol=1e-6)
    functional = torch.nn.functional
    x = torch.tensor(np.random.default_rng(0).random((3, 6), dtype=np.float32))
    counts, numbers = torch.tensor([[1, 2], [2, 1], [3, 0]]), torch.tensor([[0, 1, 1], [2, 0, 1], [1, 1, 2]])
    same(lambda v: torch.histc(v, 4), x)
    same(lambda v: torch.histogram(v, 4).hist, x)
    same(lambda v: torch.bincount(v, minlength=4), numbers)
    same(lambda v, w: torch.bincount(v, w, minlength=4), numbers, x[:, :3])
    with pytest.raises((RuntimeError, ValueError)):  # the elements have different numbers of counts
        vmap(torch.bincount)(numbers)
    same(lambda a, b: torch.linspace(a, b, 4), x[:, 0], x[:, 1])
    same(lambda a, b: torch.logspace(a, b, 4), x[:, 0], x[:, 1])
    same(lambda v: (v > 0.5).nonzero_static(size=6), x)
    same(lambda v: torch.repeat_interleave(v, output_size=3), counts)
    same(lambda v, n: torch.repeat_interleave(v, n, output_size=3), x[:, :2], counts)
    with pytest.raises((RuntimeError, ValueError)):  # of one element
        vmap(lambda n: torch.repeat_interleave(n, output_size=3))(counts + torch.tensor([[0], [1], [0]]))
    same(lambda v, m, s: v.masked_scatter(m, s), x, x > 0.5, x + 1)
    same(lambda v, m, s: grad(lambda v, s: (v.masked_scatter(m, s) ** 2).sum(), argnums=1)(v, s), x, x > 0.5, x + 1)
    for mean, std in ((x, x), (x, -x)):
        draw = lambda: vmap(torch.normal, randomness="different")(mean, std)  # noqa: B023, E731
        if (std < 0).any():
            pytest.raises((RuntimeError, ValueError), draw)
        else:
            assert draw().shape == (3, 6)
    assert vmap(lambda v: torch.multinomial(v, 2), randomness="different")(x).shape == (3, 2)
    assert vmap(lambda v: torch.distributions.Categorical(logits=v).sample(), randomness="different")(x).shape == (3,)
    assert functional.interpolate(x.reshape(3, 1, 6), size=4).shape == (3, 1, 4)
    for mode, more in (("nearest", {}), ("bilinear", {"align_corners": True}), ("bicubic", {"antialias": True})):
        same(lambda v: functional.interpolate(v.reshape(1, 2, 1, 3), size=(3, 5), mode=mode, **more), x)  # noqa: B023


@both
@pytest.mark.parametrize("joined", [False, True])
def test_ctc_losses_of_batches(torch, joined):
    vmap, grad = (getattr(importlib.import_module(f"{torch.__name__}.func"), name) for name in ("vmap", "grad"))
    g = np.random.default_rng(0)
    x = torch.tensor(g.standard_normal((4, 9, 2, 5), dtype=np.float32)).log_softmax(-1)
    lengths, steps = torch.tensor([[3, 2], [1, 4], [2, 3], [4, 1]]), torch.tensor([[9, 7], [8, 9], [9, 9], [6, 9]])
    targets = torch.tensor(g.integers(1, 5, (4, 5) if joined else (4, 2, 4)))
    functional, loss = torch.nn.functional, lambda x, t, s, n: torch.nn.functional.ctc_loss(x, t, s, n)
    cases = [(loss, (x, targets, steps, lengths))] * (torch is arete) + [
        (lambda x, t: functional.ctc_loss(x, t, (9, 8), (3, 2)), (x, targets)),
        (lambda x: functional.ctc_loss(x, targets[0], (9, 8), (3, 2), reduction="none"), (x,))]
    for f, batches in cases:  # PyTorch's rule is a loop whose parts must be as long as each other: its lengths cannot differ
        each = lambda f: torch.stack([f(*row) for row in zip(*batches)]).numpy()  # noqa: B023, E731
        np.testing.assert_allclose(vmap(f)(*batches).numpy(), each(f), rtol=1e-5)
        if torch is not arete:
            continue  # PyTorch has no rule for the gradient
        slope = grad(lambda *row: f(*row).sum())  # noqa: B023
        np.testing.assert_allclose(vmap(slope)(*batches).numpy(), each(slope), rtol=1e-4, atol=1e-6)
    if torch is arete:
        with pytest.raises(ValueError, match="input_lengths to have value at most 9"):
            vmap(loss)(x, targets, steps + 1, lengths)
        with pytest.raises(IndexError, match="out of bounds"):
            vmap(lambda x, t: functional.ctc_loss(x, t, (9, 8), (3, 2)))(x, targets + 4)
        if joined:
            with pytest.raises(ValueError, match="the sum of target_lengths"):
                vmap(loss)(x, targets, steps, lengths - 1)


@pytest.mark.parametrize("joined", [False, True])
def test_ctc_losses_of_batches_of_batches(joined):
    functional = arete.nn.functional
    x = arete.randn(9, 3, 4, 2, 5).log_softmax(-1)  # both levels take a dimension that is not the first
    targets = arete.randint(1, 5, (5, 3, 4) if joined else (2, 3, 4, 4))
    f = lambda x, t: functional.ctc_loss(x, t, (9, 8), (3, 2), reduction="none")  # noqa: E731
    losses = func.vmap(func.vmap(f, in_dims=1), in_dims=1)
    for g in (f, func.grad(lambda x, t: f(x, t).sum())):
        got = func.vmap(func.vmap(g, in_dims=1), in_dims=1)(x, targets)
        want = arete.stack([arete.stack([g(x[:, i, j], targets[:, i, j]) for j in range(4)]) for i in range(3)])
        assert_close(got, want, "batches")
    for i, j in ((0, 0), (1, 2), (2, 3)):
        other = targets.clone()
        if not joined:
            other[1, i, j, 2:] = -100  # what is behind the end of a target is none
            assert_close(losses(x, other)[i, j], f(x[:, i, j], other[:, i, j]), "behind the end")
        other[(4, i, j) if joined else (1, i, j, 1)] = 5  # the last label of an element
        with pytest.raises(IndexError, match="out of bounds"):
            losses(x, other)


@both
def test_batch_norms_without_statistics(torch):
    func, nn = importlib.import_module(f"{torch.__name__}.func"), torch.nn
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.BatchNorm1d(4, affine=False)))
    assert func.replace_all_batch_norm_modules_(net) is net
    assert not dict(net.named_buffers()) and not net[2][0].track_running_stats
    x = torch.randn(5, 6, 3)
    got = func.vmap(lambda x: func.functional_call(net, dict(net.named_parameters()), (x,)))(x)
    np.testing.assert_allclose(got.detach().numpy(), torch.stack([net(a) for a in x]).detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(net.eval()(x[0]).detach().numpy(), got[0].detach().numpy(), rtol=1e-4, atol=1e-5)


def test_batched_tensors_do_not_leave():
    kept = []
    func.vmap(lambda a: (kept.append(a), a)[1])(arete.ones(3))
    with pytest.raises(RuntimeError, match="outside|data-dependent"):
        (kept[0] + 1).item()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert func.vmap(lambda a: a.sum(0))(arete.ones(0, 2)).shape == (0,)
