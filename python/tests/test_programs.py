"""Programs as strangers write them, a short function of `torch` each: run with both libraries from the same numbers, they give the
same results."""
import copy
import functools
import math
import warnings

import numpy as np
import pytest
from idiom_helpers import pytorch

import arete


def numbers(torch, *shape, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape).astype(np.float32))


def classes(torch, count, *shape, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).randint(0, count, shape))


def started(torch, module, seed=0):
    random = np.random.RandomState(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.from_numpy((0.2 * random.randn(*p.shape)).astype(np.float32)))
    return module


def plain(torch, result):
    if isinstance(result, torch.Tensor):
        return result.detach().float().numpy() if result.is_floating_point() else result.detach().numpy()
    if isinstance(result, dict):
        return {k: plain(torch, v) for k, v in result.items()}
    if isinstance(result, (list, tuple)):
        return [plain(torch, v) for v in result]
    return result


def compare(a, b):
    assert type(a) is type(b), (a, b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for k in a:
            compare(a[k], b[k])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            compare(x, y)
    elif isinstance(a, np.ndarray):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    elif isinstance(a, float):
        assert a == pytest.approx(b, rel=2e-5, abs=2e-5)
    else:
        assert a == b


def in_both(program):
    """The test runs the program with each library and compares what it gives; without PyTorch it only runs."""

    @functools.wraps(program)
    def test():
        mine = plain(arete, program(arete))
        if pytorch is not None:
            compare(mine, plain(pytorch, program(pytorch)))

    del test.__wrapped__  # whose arguments pytest would take for fixtures
    return test


@in_both
def test_straight_through_estimator(torch):
    class Quantize(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            q = torch.round(x / scale).clamp(-8, 7)
            ctx.save_for_backward(x, scale)
            ctx.mark_non_differentiable(q)
            return q * scale, q

        @staticmethod
        def backward(ctx, g, _):
            x, scale = ctx.saved_tensors
            inside = (x / scale >= -8) & (x / scale <= 7)
            return g * inside, ((torch.round(x / scale) - x / scale) * g * inside).sum() if ctx.needs_input_grad[1] else None

    x, scale = torch.autograd.Variable(numbers(torch, 4, 5), requires_grad=True), torch.tensor(0.3, requires_grad=True)
    y, q = Quantize.apply(x, scale)
    (y**2).sum().backward()
    return y, q, q.requires_grad, x.grad, scale.grad


@in_both
def test_low_rank_adapters_by_parametrization(torch):
    nn = torch.nn

    class Adapter(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.a, self.b = nn.Parameter(numbers(torch, 2, inputs)), nn.Parameter(torch.zeros(outputs, 2))

        def forward(self, weight):
            return weight + self.b @ self.a

    net = started(torch, nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))))
    nn.utils.parametrize.register_parametrization(net[0], "weight", Adapter(4, 4))
    net[0].parametrizations.weight.original.requires_grad_(False)
    free = [p for _, p in net.named_parameters() if p.requires_grad]
    groups = [{"params": [p for p in free if p.dim() > 1], "weight_decay": 0.1}, {"params": [p for p in free if p.dim() < 2]}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.0)
    for i in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(numbers(torch, 6, 4, seed=i)), classes(torch, 2, 6, seed=i), label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(free, 1.0, foreach=True)
        optimizer.step()
    return net.state_dict(), loss


@in_both
def test_spectral_norm_from_a_checkpoint(torch):
    nn = torch.nn
    layer = nn.utils.parametrizations.spectral_norm(started(torch, nn.Linear(3, 4)))
    state = layer.state_dict()
    state["parametrizations.weight.0._u"] = nn.functional.normalize(numbers(torch, 4), dim=0)
    state["parametrizations.weight.0._v"] = nn.functional.normalize(numbers(torch, 3), dim=0)
    layer.load_state_dict(state)
    for _ in range(2):
        y = layer(numbers(torch, 2, 3))
    y.sum().backward()
    return y, layer.parametrizations.weight.original.grad, layer.state_dict()


@in_both
def test_a_schedule_of_its_own_and_plateaus(torch):
    class Warm(torch.optim.lr_scheduler._LRScheduler):
        def get_lr(self):
            return [base * min(1.0, (self.last_epoch + 1) / 4) for base in self.base_lrs]

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    warm, plateau, rates = Warm(optimizer), torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=0), []
    for metric in (1.0, 2.0, 2.0, 2.0, 3.0):
        optimizer.step()
        warm.step()
        plateau.step(metric)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates, isinstance(warm, torch.optim.lr_scheduler.LRScheduler)


@in_both
def test_generation_with_a_cache(torch):
    nn, functional = torch.nn, torch.nn.functional
    embed, q, k, v = (started(torch, m, i) for i, m in enumerate((nn.Embedding(11, 8), *(nn.Linear(8, 8) for _ in range(3)))))

    def attend(tokens, position, cache):
        x = embed(tokens)
        n = tokens.shape[1]
        cache[0][:, position:position + n], cache[1][:, position:position + n] = k(x), v(x)
        keys, values = cache[0][:, :position + n], cache[1][:, :position + n]
        mask = torch.hstack([torch.zeros(n, position), torch.full((n, n), float("-inf")).triu(1)])
        weights = (torch.einsum("bid,bjd->bij", q(x), keys) / math.sqrt(8) + mask).softmax(-1, torch.float32)
        return (weights @ values) @ embed.weight.t()

    with torch.inference_mode():
        head = nn.Linear(8, 2)  # made here, it has parameters that want gradients, too
        tokens, cache, kept = classes(torch, 11, 2, 3), (torch.zeros(2, 16, 8), torch.zeros(2, 16, 8)), []
        logits, sequence = attend(tokens, 0, cache), tokens
        for _ in range(5):
            scores = logits[:, -1] / 0.8
            best, _ = torch.topk(scores, 5)
            scores[scores < best[:, [-1]]] = -float("inf")
            ordered, order = torch.sort(scores.softmax(-1), descending=True)
            drop = ordered.cumsum(-1) > 0.9
            drop[..., 1:] = drop[..., :-1].clone()
            drop[..., 0] = 0
            p = scores.softmax(-1).masked_fill(drop.scatter(1, order, drop), 0.0)
            assert torch.multinomial(p, 1).shape == (2, 1)
            kept.append(p / p.sum(-1, keepdim=True))
            token = p.argmax(-1, keepdim=True)
            logits = attend(token, sequence.shape[1], cache)
            sequence = torch.cat([sequence, token], 1)
        whole = attend(sequence, 0, (torch.zeros(2, 16, 8), torch.zeros(2, 16, 8)))[:, -1]
    return sequence, kept, whole, functional.softmax(logits[:, -1], 0).sum(), head.weight.requires_grad


@in_both
def test_attention_over_a_graph(torch):
    n, source, target = 6, *classes(torch, 6, 2, 14)
    h = numbers(torch, n, 3).requires_grad_()
    score = torch.nn.functional.leaky_relu((h[source] * h[target]).sum(-1), 0.2)
    top = torch.full((n,), float("-inf")).scatter_reduce(0, target, score.detach(), "amax", include_self=False)
    score = (score - top[target]).exp()
    weight = score / (torch.zeros(n).scatter_add(0, target, score)[target] + 1e-16)
    out = torch.zeros_like(h).index_add(0, target, weight[:, None] * h[source])
    out.pow(2).sum().backward()
    return out, h.grad, torch.bincount(target, minlength=n)


@in_both
def test_two_steps_of_sharpness_aware_minimization(torch):
    class Sharp(torch.optim.Optimizer):
        def __init__(self, parameters, base, rho, **options):
            super().__init__(parameters, {"rho": rho, **options})
            self.base = base(self.param_groups, **options)
            self.param_groups = self.base.param_groups

        @torch.no_grad()
        def climb(self):
            norms = [p.grad.norm() for group in self.param_groups for p in group["params"]]
            scale = 0.1 / (torch.stack(norms).norm() + 1e-12)
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["before"] = p.data.clone()
                    p.add_(p.grad * scale)
            self.zero_grad()

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data = self.state[p]["before"]
            self.base.step()
            self.zero_grad()

    net = started(torch, torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)))
    optimizer = Sharp(net.parameters(), torch.optim.SGD, rho=0.1, lr=0.1, momentum=0.9)
    for i in range(3):
        for step in (optimizer.climb, optimizer.step):
            torch.nn.functional.cross_entropy(net(numbers(torch, 8, 4, seed=i)), classes(torch, 2, 8, seed=i)).backward()
            step()
    return net.state_dict()


@in_both
def test_lazy_layers_before_they_have_shapes(torch):
    nn = torch.nn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's about what may change
        net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3))
        other = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3))
    kinds = [(k, type(v).__name__) for k, v in net.state_dict().items()]
    net.to(torch.float64).to("cpu").half().float()
    kinds += [(type(p).__name__, str(p.dtype).split(".")[1]) for p in (*net.parameters(), *net.buffers())]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for use in (lambda: net[0].weight + 1, lambda: net[0].weight.numel(), lambda: nn.init.normal_(net[0].weight)):
        with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
            use()
    net(numbers(torch, 2, 2, 5, 5)).sum().backward()
    optimizer.step()
    other.load_state_dict(net.state_dict())
    return kinds, [type(m).__name__ for m in net], [list(p.shape) for p in other.parameters()], list(net[1].running_mean.shape)


@in_both
def test_losses_of_torch_itself(torch):
    a, b, c = (numbers(torch, 4, 3, seed=i) for i in range(3))
    sign, p, log = torch.sign(c[:, 0]), c.sigmoid(), (lambda x: x.log_softmax(1))
    results = []
    for reduction in (0, 1, 2):
        results += [torch.binary_cross_entropy_with_logits(a, p, None, p[0], reduction),
                    torch.hinge_embedding_loss(a, torch.sign(b), 1.0, reduction),
                    torch.cosine_embedding_loss(a, b, sign, 0.1, reduction), torch.kl_div(log(a), log(b), reduction, log_target=True),
                    torch.margin_ranking_loss(a, b, torch.sign(c), 0.2, reduction),
                    torch.poisson_nll_loss(a, p, True, False, 1e-8, reduction),
                    torch.triplet_margin_loss(a, b, c, 1.0, 2.0, 1e-6, False, reduction)]
    weight, index, offsets = numbers(torch, 6, 3), torch.tensor([1, 2, 4, 5, 4, 3, 2, 4]), torch.tensor([0, 3, 3, 5])
    for mode in (1, 2):
        results += [*torch.embedding_bag(weight, index, offsets, False, mode),
                    *torch.embedding_bag(weight, index, offsets, False, mode, False, None, False, 4)]
    return results, torch.embedding_bag(weight, index, offsets)[0]


@in_both
def test_warnings_of_gradients(torch):
    if torch is not arete:
        torch.set_warn_always(True)  # another test may have seen them
    x = torch.ones(2, requires_grad=True)
    y = 2 * x
    with pytest.warns(UserWarning, match="The .grad attribute of a Tensor that is not a leaf Tensor is being accessed"):
        assert y.grad is None
    with pytest.warns(UserWarning, match=r"Using backward\(\) with create_graph=True will create a reference cycle"):
        (x**3).sum().backward(create_graph=True)
    x.grad = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        z = 2 * x
        z.retain_grad()
        assert z.grad is None and x.grad is None and torch.ones(1).grad is None
    weight, factor = torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
    product = weight @ factor
    weight.set_(torch.zeros(2, 2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    return weight._version


@in_both
def test_marks_for_compilers_and_guards_of_processes(torch):
    import importlib

    distributed, compiler, jit = (importlib.import_module(f"{torch.__name__}.{n}") for n in ("distributed", "compiler", "jit"))

    class Net(torch.nn.Module):
        width: jit.Final[int] = 3

        @jit.ignore
        def skipped(self):
            return {"bias"}

        @jit.unused
        def unused(self):
            return None

        @compiler.disable
        def forward(self, x):
            return x if jit.is_scripting() or jit.is_tracing() or compiler.is_compiling() else x * self.width

    rank = distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
    device = torch.get_device_module("cpu")
    return Net()(torch.ones(2)), Net().skipped(), rank, torch.typename(torch.ones(1)), device is torch.cpu


def test_what_is_refused_says_why():
    for name, why in [("fake_quantize_per_tensor_affine", "round and clamp in an autograd.Function"),
                      ("quantize_per_tensor", "no quantised tensors")]:
        assert not hasattr(arete, name)
        with pytest.raises(AttributeError, match=why):
            getattr(arete, name)
    assert not arete.distributed.rpc.is_available()
    with pytest.raises(NotImplementedError, match="groups of processes exchange"):
        arete.distributed.rpc.init_rpc("name")
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'$"):
        arete.nonsense  # noqa: B018


def test_switches_of_torchs_for_running_as_it_is(monkeypatch):
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    monkeypatch.setenv("PYTORCH_JIT", "0")

    @arete.compile(mode="max-autotune", fullgraph=True)
    def double(x):
        return 2 * x

    net = arete.nn.Linear(2, 2)
    assert double(2) == 4 and arete.compile(net) is net and arete.jit.script(net) is net
    assert copy.copy(arete.jit.trace(double, (1,))) is double
