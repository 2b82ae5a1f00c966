"""Functions that layers' tests do not reach, beside PyTorch's."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import re

import numpy as np
import pytest
from nn_helpers import assert_same, ours, theirs, values
from peer import peer

import arete
from arete.nn import functional as F

torch = peer()
TF = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore")


def test_signatures_are_torchs():
    """Names and order of arguments, and their defaults, where torch's are written in Python."""
    checked = 0
    for name in sorted(set(dir(F)) & set(dir(TF))):
        if name.startswith("_") or not inspect.isfunction(getattr(TF, name)):
            continue
        theirs_ = inspect.signature(getattr(TF, name)).parameters
        if "args" in theirs_:  # torch chooses between two functions by return_indices
            continue
        mine = inspect.signature(getattr(F, name)).parameters
        assert list(mine) == list(theirs_), name
        for key, parameter in theirs_.items():
            if parameter.default is inspect.Parameter.empty:
                continue
            a, b = mine[key].default, parameter.default
            assert a == b or (a in (None, ()) and b in (None, ())), (name, key)
        checked += 1
    assert checked > 75


CASES = [
    ("relu6", [(3, 4)], {}),
    ("celu", [(3, 4)], {"alpha": 0.5}),
    ("conv_tbc", [(5, 2, 3), (3, 3, 4), (4,)], {"pad": 1}),
    ("pad", [(2, 3, 4)], {"pad": [1, 2, 0, 1], "value": 0.5}),
    ("pad", [(2, 3, 4)], {"pad": (1, 2), "mode": "reflect"}),
    ("interpolate", [(2, 3, 4, 5)], {"size": 6, "mode": "area"}),
    ("interpolate", [(2, 3, 4, 5)], {"scale_factor": [2, 1.5], "mode": "nearest-exact"}),
    ("interpolate", [(2, 3, 4, 5)], {"size": (3, 3), "mode": "bicubic", "align_corners": True}),
    ("upsample", [(2, 3, 4, 5)], {"scale_factor": 2}),
    ("upsample_bilinear", [(2, 3, 4, 5)], {"scale_factor": 2}),
    ("grid_sample", [(2, 3, 4, 5), (2, 3, 3, 2)], {"align_corners": False}),
    ("grid_sample", [(2, 3, 4, 5), (2, 3, 3, 2)],
     {"mode": "nearest", "padding_mode": "border", "align_corners": True}),
    ("affine_grid", [(2, 2, 3)], {"size": (2, 3, 4, 5), "align_corners": True}),
    ("one_hot", ["i4:2,3"], {"num_classes": 5}),
    ("normalize", [(3, 4)], {"p": 1, "dim": 0}),
    ("normalize", [(3, 4, 5)], {"dim": (1, 2)}),
    ("pdist", [(4, 3)], {"p": 1.5}),
    ("softmax", [(3, 4)], {}),
    ("softmin", [(3, 4, 5)], {"dtype": "float64"}),
    ("log_softmax", [(3, 4)], {"dim": 0, "dtype": "float64"}),
    ("mse_loss", [(3, 4), (3, 4)], {"size_average": False}),
    ("mse_loss", [(3, 4), (3, 4), None], {"weight": "+:3,4"}),
    ("l1_loss", [(3, 4), (3, 4)], {"reduce": False}),
    ("huber_loss", [(3, 4), (3, 4)], {"weight": "+:3,4", "delta": 0.3}),
    ("cross_entropy", [(3, 4), "i4:3"], {"size_average": False}),
    ("nll_loss", [(3, 4), "i4:3"], {"size_average": True, "reduce": True}),
    ("gaussian_nll_loss", [(3, 4), (3, 4)], {"var": 0.5}),
    ("multilabel_soft_margin_loss", [(3, 4), "p:3,4"], {"reduction": "sum"}),
    ("embedding_bag", ["i7:6", (7, 3), "o"], {"mode": "mean", "include_last_offset": True}),
    ("max_pool2d", [(2, 3, 8, 8), 2], {"stride": 1, "return_indices": True}),
    ("max_pool1d_with_indices", [(2, 3, 8), 2], {}),
    ("adaptive_max_pool2d", [(2, 3, 8, 8), (3, None)], {"return_indices": True}),
    ("avg_pool2d", [(2, 3, 8, 8), (2, 3)], {}),
    ("lp_pool1d", [(2, 3, 8), 2.0, 3], {}),
    ("scaled_dot_product_attention", [(2, 2, 4, 8), (2, 2, 5, 8), (2, 2, 5, 8)], {"scale": 0.3}),
    ("scaled_dot_product_attention", [(2, 4, 4, 8), (2, 2, 4, 8), (2, 2, 4, 8)],
     {"is_causal": True, "enable_gqa": True}),
    ("triplet_margin_with_distance_loss", [(3, 4), (3, 4), (3, 4)], {"margin": 0.7}),
    ("local_response_norm", [(2, 5, 3)], {"size": 3}),
    ("batch_norm", [(4, 3), None, None], {"training": True}),
    ("prelu", [(3, 4), (4,)], {}),
    ("bilinear", [(3, 4), (3, 5), (6, 4, 5)], {}),
    ("feature_alpha_dropout", [(3, 4)], {"training": False}),
]
SIZES = {("avg_pool2d", 1), ("adaptive_max_pool2d", 1)}  # arguments that are sizes, not inputs


@pytest.mark.parametrize("name,inputs,options", CASES, ids=[f"{c[0]}{i}" for i, c in enumerate(CASES)])
def test_function(name, inputs, options):
    results, leaves = [], []
    for lib, to, functions in ((arete, ours, F), (torch, theirs, TF)):
        args = []
        for i, spec in enumerate(inputs):
            if spec == "o":
                args.append(to(np.array([0, 2, 6])))
            elif isinstance(spec, (int, float)) or spec is None or (name, i) in SIZES:
                args.append(spec)
            else:
                args.append(to(values(spec, i + 1)))
        args = [a for i, a in enumerate(args) if a is not None or name == "batch_norm"]
        keywords = dict(options)
        for key, value in options.items():
            if isinstance(value, str) and ":" in value:
                keywords[key] = to(values(value, 5))
            if key == "dtype":
                keywords[key] = getattr(lib, value)
        for a in args:
            if isinstance(a, lib.Tensor) and a.dtype.is_floating_point:
                a.requires_grad_()
        y = getattr(functions, name)(*args, **keywords)
        first = y[0] if isinstance(y, tuple) else y
        if first.requires_grad:
            (first * first).sum().backward()
        results.append(y)
        given = [a for a in args if isinstance(a, lib.Tensor)]
        # A gradient that is zero everywhere may be missing.
        leaves.append([lib.zeros_like(a) if a.grad is None else a.grad for a in given])
    assert_same(*results)
    assert_same(*leaves, 1e-4)


@pytest.mark.parametrize("name,args", [
    ("relu", ()), ("relu6", ()), ("elu", (0.7,)), ("selu", ()), ("celu", (0.5,)), ("silu", ()),
    ("leaky_relu", (0.2,)), ("hardtanh", (-0.5, 0.5)), ("hardswish", ()), ("hardsigmoid", ()),
    ("mish", ()), ("threshold", (0.1, 2.0)), ("rrelu", (0.2, 0.2)),
])
def test_in_place_forms(name, args):
    """The input is overwritten and the gradient is that of the usual form."""
    results = []
    for to, functions in ((ours, F), (theirs, TF)):
        x = to(values((3, 4), 1)).requires_grad_()
        y = x * 1
        z = getattr(functions, name)(y, *args, inplace=True)
        assert z is y
        (z * z).sum().backward()
        results.append((z, x.grad))
    assert_same(*results)
    if hasattr(F, name + "_"):
        x = ours(values((3, 4), 1))
        assert getattr(F, name + "_")(x, *args) is x
        assert_same(x, results[0][0])


def test_gumbel_softmax():
    arete.manual_seed(3)
    logits = ours(np.log(np.array([0.1, 0.2, 0.7], np.float32))).expand(4000, 3).clone()
    logits.requires_grad_()
    hard = F.gumbel_softmax(logits, tau=0.5, hard=True)
    assert set(np.unique(hard.detach().numpy().round(5))) == {0.0, 1.0}
    np.testing.assert_allclose(hard.detach().numpy().mean(0), [0.1, 0.2, 0.7], atol=0.03)
    (hard[:, 0]).sum().backward()
    assert float(logits.grad.abs().sum()) > 0
    soft = F.gumbel_softmax(logits.detach(), tau=2.0)
    np.testing.assert_allclose(soft.sum(-1).numpy(), 1, rtol=1e-5)


def test_embedding_options():
    rows, weight = values("i7:2,4", 1), values((7, 3), 2)
    for options in ({"max_norm": 0.5}, {"padding_idx": -2}, {"scale_grad_by_freq": True}):
        grads, tables = [], []
        for to, functions in ((ours, F), (theirs, TF)):
            table = to(weight).requires_grad_()
            out = functions.embedding(to(rows), table, **options)
            (out * out).sum().backward()
            grads.append(table.grad)
            tables.append(table)
        assert_same(*grads)
        assert_same(*tables)


def test_legacy_reductions_agree():
    for size_average in (None, True, False):
        for reduce in (None, True, False):
            a, b = values((3, 4), 1), values((3, 4), 2)
            options = {"size_average": size_average, "reduce": reduce}
            assert_same(
                F.smooth_l1_loss(ours(a), ours(b), **options),
                TF.smooth_l1_loss(theirs(a), theirs(b), **options),
            )


ERRORS = [
    (ValueError, lambda F, x: F.dropout(x((2, 2)), 1.5)),
    (ValueError, lambda F, x: F.binary_cross_entropy(x((2, 2)), x((2, 3)))),
    (ValueError, lambda F, x: F.binary_cross_entropy_with_logits(x((2, 2)), x((2, 3)))),
    (RuntimeError, lambda F, x: F.binary_cross_entropy(x("p:2,2") + 1, x("p:2,2"))),
    (RuntimeError, lambda F, x: F.binary_cross_entropy(x("p:2,2"), x("p:2,2") - 1, reduction="none")),
    (RuntimeError, lambda F, x: F.binary_cross_entropy(x("p:2,2") * float("nan"), x("p:2,2"), x("p:2"), reduction="sum")),
    (ValueError, lambda F, x: F.interpolate(x((1, 2, 3)))),
    (ValueError, lambda F, x: F.interpolate(x((1, 2, 3)), 3, 2.0)),
    (ValueError, lambda F, x: F.interpolate(x((1, 2, 3)), 3, mode="nearest", align_corners=True)),
    (ValueError, lambda F, x: F.grid_sample(x((1, 2, 3, 3)), x((1, 2, 2, 2)), mode="cubic")),
    (ValueError, lambda F, x: F.grid_sample(x((1, 2, 3, 3)), x((1, 2, 2, 2)), padding_mode="z")),
    (ValueError, lambda F, x: F.poisson_nll_loss(x((2,)), x((2,)), reduction="avg")),
    (RuntimeError, lambda F, x: F.margin_ranking_loss(x((2,)), x((2, 2)), x((2,)))),
    (ValueError, lambda F, x: F.fractional_max_pool2d(x((1, 2, 4, 4)), 2)),
    (ValueError, lambda F, x: F.multi_margin_loss(x((2, 3)), x((2,)), p=3)),
    (ValueError, lambda F, x: F.embedding_bag(x("i3:4"), x((3, 2)))),
    ((AssertionError, ValueError), lambda F, x: F.embedding(x("i3:4"), x((3, 2)), padding_idx=7)),
]


@pytest.mark.parametrize("i", range(len(ERRORS)))
def test_errors(i):
    """The same kind of error, and a text that begins with torch's."""
    error, call = ERRORS[i]
    texts = []
    for functions, to in ((F, ours), (TF, theirs)):
        with pytest.raises(error) as info:
            call(functions, lambda spec, to=to: to(values(spec)))
        texts.append(re.sub(r"torch\.Size\((.*?)\)", r"\1", str(info.value)).rstrip(" ."))
    assert texts[0].startswith(texts[1])


IN_PLACE = [n for n in dir(F) if "inplace" in str(getattr(getattr(F, n), "__signature__", ""))]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    """`inplace` writes the result into the input, gives that, and is recorded."""
    function, other = getattr(F, name), getattr(TF, name)
    rest = (0.3, 0.5) if name == "threshold" else ()
    options = {"training": False} if "training" in str(function.__signature__) else {}
    array = values((2, 3, 4, 5, 6) if name == "dropout3d" else (2, 3, 4))
    x, leaf, y = ours(array), ours(array).requires_grad_(), theirs(array)
    assert function(x, *rest, inplace=True, **options) is x
    assert_same(x, other(y, *rest, inplace=True, **options))
    middle = leaf * 1
    (function(middle, *rest, inplace=True, **options) * 2).sum().backward()
    (g,) = arete.autograd.grad((function(leaf, *rest, **options) * 2).sum(), leaf)
    assert_same(leaf.grad, g)
    if "dropout" in name:
        assert function(leaf, inplace=True, training=False) is leaf
    else:
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            function(leaf, *rest, inplace=True, **options)
        assert getattr(F, name + "_", None) is None or getattr(F, name + "_")(ours(array), *rest) is not None
    with pytest.raises(TypeError, match="argument 'inplace' .* must be bool"):
        function(x, *rest, inplace=1, **options)


def test_dropout_in_place_draws():
    x = arete.ones(40, 50)
    for name in ("dropout", "dropout1d", "dropout2d", "alpha_dropout", "feature_alpha_dropout"):
        y = x.clone()
        assert getattr(F, name)(y, 0.5, True, True) is y and not arete.equal(x, y)


LEGACY = [n for n in dir(F) if "size_average" in str(getattr(getattr(F, n), "__signature__", ""))]


@pytest.mark.parametrize("size_average,reduce", [(None, True), (None, False), (True, None), (False, None), (False, True), (True, False)])
def test_older_words_for_reduction(size_average, reduce):
    assert len(LEGACY) == 17
    for name in LEGACY:
        results = []
        for functions, to in ((F, ours), (TF, theirs)):
            x, y = to(values("p:3,4", 1)), to(values("p:3,4", 2))
            args = [x, y]
            if name in ("cross_entropy", "nll_loss", "multi_margin_loss"):
                args[1] = to(values("i4:3", 2))
            elif name == "multilabel_margin_loss":
                args[1] = to(values("i4:3,4", 2))
            elif name in ("triplet_margin_loss", "margin_ranking_loss"):
                args.append(to(values("s:3,4", 3)))
            elif name == "cosine_embedding_loss":
                args.append(to(values("s:3", 3)))
            with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated, please use reduction="):
                results.append(getattr(functions, name)(*args, size_average=size_average, reduce=reduce))
        assert_same(*results)


def test_functions_are_found_by_their_names():
    """Copies and pickles of functions are these functions."""
    for name in ("relu", "conv2d", "max_pool2d", "linear", "elu_", "softmax", "dropout"):
        function = getattr(F, name)
        assert copy.deepcopy(function) is function and pickle.loads(pickle.dumps(function)) is function
        assert function.__module__.startswith("arete.nn.functional") and function.__name__ == name
    assert pickle.loads(pickle.dumps(arete.exp)) is arete.exp and str(inspect.signature(arete.clamp_min)) == "(self, min)"


def test_unknown_arguments():
    for call in (lambda: F.relu(arete.ones(2), dtype=arete.float64), lambda: F.relu(arete.ones(2), alpha=1),
                 lambda: F.relu(3.0), lambda: F.mse_loss(arete.ones(2), arete.ones(2), reduce="none")):
        with pytest.raises(TypeError):
            call()


def test_negative_targets_and_powers_of_negative_numbers():
    """NaN where torch has it, in values and gradients."""
    t = [0.3, -0.2, 0.0]
    assert_same(F.kl_div(arete.tensor([-1.0, -2.0, -3.0]), arete.tensor(t), reduction="none"),
                TF.kl_div(torch.tensor([-1.0, -2.0, -3.0]), torch.tensor(t), reduction="none"))
    for p in (0.5, 1, 2, 3, float("inf")):
        for row in ([0.0, 0.0, 1.0, 2.0], [-1.0, 0.5, 1.0, 2.0]):
            x, y = arete.tensor([[row]], requires_grad=True), torch.tensor([[row]], requires_grad=True)
            a, b = F.lp_pool1d(x, p, 2), TF.lp_pool1d(y, p, 2)
            a.sum().backward(), b.sum().backward()
            assert_same((a, x.grad), (b, y.grad))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_l1_loss_of_complex_numbers(reduction):
    x = arete.tensor([3 + 4j, 1 - 1j], requires_grad=True)
    loss = arete.nn.functional.l1_loss(x, arete.tensor([0j, 1 - 2j]), reduction=reduction)
    assert loss.tolist() == {"none": [5.0, 1.0], "mean": 3.0, "sum": 6.0}[reduction]
    loss.sum().backward()
    scale = 0.5 if reduction == "mean" else 1.0
    assert arete.allclose(x.grad, arete.tensor([0.6 + 0.8j, 1j]) * scale)


def test_integers():
    """Averages of powers are no integers; differences of integers are."""
    x = arete.tensor([[[1, 2, 3, -4, 5, 7]]])
    assert F.lp_pool1d(x, 2.0, 2).tolist() == F.lp_pool1d(x.float(), 2.0, 2).tolist()
    for loss in (F.l1_loss(x, x + 1, reduction="sum"), F.smooth_l1_loss(x, x + 1, reduction="sum", beta=0)):
        assert loss.dtype is arete.int64 and loss.item() == 6


def test_shapes_that_do_not_belong_together():
    with pytest.raises(RuntimeError, match="expected to have the same number of dimensions"):
        F.triplet_margin_loss(arete.ones(2, 3), arete.ones(3), arete.ones(2, 3))
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        F.soft_margin_loss(arete.ones(3), arete.ones(2, 3))
    with pytest.raises(NotImplementedError, match="Padding size 0 is not supported for 3D input"):
        F.pad(arete.ones(1, 2, 3), (), mode="reflect")
    with pytest.raises(RuntimeError, match="one number, or one for each spatial dimension"):
        arete.nn.Conv2d(1, 1, 3, padding=(), padding_mode="reflect")


def test_classes_of_multilabel_soft_margin_are_those_of_the_input():
    x, y = arete.tensor([0.5, -1.0]), arete.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    expected = -(y * F.logsigmoid(x) + (1 - y) * F.logsigmoid(-x))
    assert_same(F.multilabel_soft_margin_loss(x, y, reduction="none"), expected.sum(0) / 2)  # as many classes as the input has


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_positions_of_grid_sample_have_a_gradient(mode):
    x, grid = arete.rand(1, 1, 3, 3, requires_grad=True), (arete.rand(1, 2, 2, 2) - 0.5).requires_grad_()
    F.grid_sample(x, grid, mode=mode, align_corners=True).sum().backward()
    assert (grid.grad == 0).all() if mode == "nearest" else (grid.grad != 0).any()


@pytest.mark.parametrize("library", ["arete", "torch"])
def test_cross_entropy_of_probabilities_ignores_nothing(library):
    lib = {"arete": arete, "torch": torch}[library]
    x = lib.ones(2, 3, requires_grad=True)
    target = lib.full((2, 3), 1 / 3)
    for ignored in (0, 1, 2, 100):
        for call in (lambda: lib.nn.functional.cross_entropy(x, target, ignore_index=ignored),
                     lambda: lib.nn.functional.cross_entropy(x, target, lib.ones(3), ignore_index=ignored,
                                                             label_smoothing=0.1),
                     lambda: lib.nn.CrossEntropyLoss(ignore_index=ignored, reduction="none")(x, target)):
            with pytest.raises(RuntimeError, match="ignore_index is not supported for floating point target"):
                call()
        assert lib.nn.functional.cross_entropy(x, lib.tensor([ignored % 3, 1]), ignore_index=ignored).dim() == 0
    for ignored in (-100, -1):  # which are no classes
        assert abs(lib.nn.functional.cross_entropy(x, target, ignore_index=ignored).item() - 1.0986123) < 1e-6


def test_glu_keeps_the_order_of_dimensions():
    x = arete.randn(2, 4, 3, 5).contiguous(memory_format=arete.channels_last).requires_grad_()
    y = arete.nn.functional.glu(x, 1)
    y.sum().backward()
    assert y.stride() == (30, 1, 10, 2) and x.grad.stride() == x.stride()
    assert arete.nn.functional.glu(arete.zeros(6, 4).t(), 0).stride() == (1, 2)
    assert arete.nn.functional.glu(arete.zeros(6, 4).t(), 1).stride() == (1, 4)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("sizes, to", [((2, 3, 5), (7,)), ((2, 3, 5), (3,)), ((2, 3, 4, 6), (7, 6)), ((1, 4, 6, 5), (4, 9)),
                                       ((2, 2, 4, 5, 3), (5, 3, 7))])
def test_gradients_of_nearest_resampling_are_sums_of_what_was_chosen(sizes, to, mode):
    count = math.prod(sizes[2:])
    chosen = F.interpolate(arete.arange(count, dtype=arete.float64).reshape(1, 1, *sizes[2:]), size=to, mode=mode).long().flatten()
    for dtype in (arete.float32, arete.bfloat16, arete.float64):  # the first two share what is known of the sizes
        for channels_last in (False, True):
            last = arete.zeros(sizes[0], *sizes[2:], sizes[1], dtype=dtype).movedim(-1, 1)
            x = last if channels_last else last.contiguous()
            x.requires_grad_()
            y = F.interpolate(x, size=to, mode=mode)
            g = arete.randint(0, 4, y.shape).to(dtype)  # sums are exact
            y.backward(g.movedim(1, -1).contiguous().movedim(-1, 1) if channels_last else g)
            sums = arete.zeros(*sizes[:2], count, dtype=arete.float64).index_add(2, chosen, g.flatten(2).double())
            assert arete.equal(x.grad.double(), sums.reshape(sizes)), (dtype, channels_last)


@pytest.mark.parametrize("rank", (1, 2, 3))
def test_gradients_of_convolutions_by_name(rank):
    """`nn.grad` gives what autograd does, and can be differentiated again."""
    from arete.nn import grad

    count = 2 * 4 * 6**rank
    x = (arete.arange(count, dtype=arete.float64) % 7 - 3).reshape(2, 4, *[6] * rank).requires_grad_()
    weight = (arete.arange(12 * 3**rank, dtype=arete.float64) % 5 - 2).reshape(6, 2, *[3] * rank).requires_grad_()
    y = getattr(F, f"conv{rank}d")(x, weight, None, 2, 1, 2, 2)
    gy = (arete.arange(y.numel(), dtype=arete.float64) % 3 - 1).reshape(y.shape)
    of_x, of_weight = arete.autograd.grad(y, (x, weight), gy, create_graph=True)
    mine = getattr(grad, f"conv{rank}d_input")(x.shape, weight, gy, 2, 1, 2, 2)
    assert arete.equal(mine, of_x)
    assert arete.equal(*(arete.autograd.grad(t.square().sum(), weight)[0] for t in (mine, of_x)))
    mine = getattr(grad, f"conv{rank}d_weight")(x, weight.shape, gy, [2] * rank, padding=1, dilation=2, groups=2)
    assert arete.equal(mine, of_weight)
    assert arete.equal(*(arete.autograd.grad(t.square().sum(), x)[0] for t in (mine, of_weight)))
    with arete.no_grad():
        assert not getattr(grad, f"conv{rank}d_input")(x.shape, weight, gy, 2, 1, 2, 2).requires_grad
