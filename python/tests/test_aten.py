"""torch.ops.aten's operators that are halves of others, against PyTorch's."""
import numpy as np
import pytest
from peer import peer

import arete

torch = peer()
random = np.random.RandomState(0)
CASES = []


def case(name, *args, **options):
    CASES.append((name, args, options))


def r(*sizes):
    return random.standard_normal(sizes).astype(np.float32)


def classes(n, *sizes):
    return random.randint(0, n, sizes)


def between(*sizes):
    return abs(np.sin(r(*sizes)))


X, ALL = r(2, 4, 6, 6), [True] * 3
STATISTICS = lambda dims, keep=False: (X.mean(dims, keepdims=keep), 1 / np.sqrt(X.var(dims, keepdims=keep) + 1e-5))  # noqa: E731
for mask in (ALL, [False, True, False]):
    case("convolution_backward", r(2, 8, 4, 4), X, r(8, 2, 3, 3), [8], [1, 1], [0, 0], [1, 1], False, [0, 0], 2, mask)
case("convolution_backward", r(2, 6, 8, 8), X, r(4, 3, 3, 3), [6], [1, 1], [0, 0], [1, 1], True, [0, 0], 2, ALL)
case("col2im", r(2, 8, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])
case("im2col", X, [2, 2], [1, 1], [1, 1], [2, 2])
for weight in (r(4), None):
    case("native_group_norm", X, weight, weight, 2, 4, 36, 2, 1e-5)
    mean = X.reshape(2, 2, -1).mean(-1)
    case("native_group_norm_backward", r(2, 4, 6, 6), X, mean, 1 / np.sqrt(X.reshape(2, 2, -1).var(-1) + 1e-5), weight, 2, 4, 36, 2,
         [True, weight is not None, weight is not None])
    scale = None if weight is None else r(6, 6)
    case("native_layer_norm_backward", r(2, 4, 6, 6), X, [6, 6], *STATISTICS((2, 3), True), scale, scale, [True] + [scale is not None] * 2)
for training in (True, False):
    case("native_batch_norm", X, r(4), r(4), r(4), abs(r(4)), training, 0.1, 1e-5)
    case("_native_batch_norm_legit", X, r(4), r(4), r(4), abs(r(4)), training, 0.1, 1e-5)
    case("native_batch_norm_backward", r(2, 4, 6, 6), X, r(4), r(4), abs(r(4)), *STATISTICS((0, 2, 3)), training, 1e-5, ALL)
case("_native_batch_norm_legit.no_stats", X, r(4), r(4), True, 0.1, 1e-5)
case("_native_batch_norm_legit_no_training", X, r(4), r(4), r(4), abs(r(4)), 0.1, 1e-5)
P = np.exp(r(3, 5))
P /= P.sum(1, keepdims=True)
for dtype in ("bfloat16", "float32"):  # of the input; statistics and weights are float32
    half = [(v, dtype) for v in (r(2, 4, 6, 6), X)]
    case("native_layer_norm_backward", *half, [6, 6], *STATISTICS((2, 3), True), r(6, 6), r(6, 6), ALL)
    case("native_batch_norm_backward", *half, r(4), None, None, *STATISTICS((0, 2, 3)), True, 1e-5, ALL)
for mask in (ALL, [True, False, False]):
    case("native_layer_norm_backward", r(4), r(4), [4], r(1), abs(r(1)), r(4), r(4), mask)  # there are no rows to sum
case("_softmax", r(3, 5), 1, False)
case("_log_softmax", r(3, 5), -1, False)
case("_softmax_backward_data", r(3, 5), P, 1, "float32")
case("_log_softmax_backward_data", r(3, 5), np.log(P), 1, "float32")
for reduction in (0, 1, 2):
    case("nll_loss_forward", np.log(P), classes(5, 3), None, reduction, -100)
    case("nll_loss_forward", np.log(P), np.array([1, 2, 0]), abs(r(5)), reduction, 2)
    weight = abs(r(5))
    case("nll_loss_backward", r(3) if reduction == 0 else r(), np.log(P), np.array([1, 2, 0]), weight, reduction, 2,
         np.array(np.float32(3.5)))
    case("nll_loss_backward", r(3) if reduction == 0 else r(), np.log(P), np.full(3, 2), None, reduction, 2, np.array(np.float32(0)))
    case("nll_loss2d_backward", r(2, 3, 3) if reduction == 0 else r(), r(2, 4, 3, 3), classes(4, 2, 3, 3), abs(r(4)), reduction, 1,
         np.array(np.float32(7)))
    for name, *rest in (("mse_loss",), ("soft_margin_loss",), ("huber_loss", 0.7), ("smooth_l1_loss", 0.7)):
        case(f"{name}_backward", r(3, 4) if reduction == 0 else r(), r(3, 4), r(3, 4), reduction, *rest)
    case("binary_cross_entropy_backward", r(3, 4) if reduction == 0 else r(), between(3, 4), between(3, 4), None, reduction)
    case("_fft_r2c", r(3, 8), [0, 1], reduction, True)  # its normalization
    case("_fft_r2c", r(3, 8), [1], reduction, False)
    case("_fft_c2r", r(3, 5) + 1j * r(3, 5), [0, 1], reduction, 8)
    case("_fft_c2c", r(3, 5) + 1j * r(3, 5), [1], reduction, True)
    case("_fft_c2c", r(3, 5) + 1j * r(3, 5), [0, 1], reduction, False)
case("embedding_dense_backward", r(4, 3, 5), classes(7, 4, 3), 7, 2, False)
case("embedding_dense_backward", r(4, 3, 5), classes(7, 4, 3), 7, -1, True)
case("native_dropout_backward", r(3, 4), r(3, 4) > 0, 2.0)
case("_cdist_forward", r(3, 4), r(5, 4), 2.0, None)
case("_pdist_forward", r(5, 3), 1.0)
case("elu", r(9), 1.5, 2.0, 0.7)
for is_result in (False, True):
    case("elu_backward", r(9), 1.5, 2.0, 0.7, is_result, r(9))
for name in ("sigmoid", "tanh", "silu", "mish", "hardswish", "hardsigmoid", "gelu"):
    case(f"{name}_backward", r(9), r(9))
case("gelu_backward", r(9), r(9), approximate="tanh")
for name, *rest in (("threshold", 0.3), ("hardtanh", -0.5, 0.5), ("softplus", 2.0, 0.5), ("softshrink", 0.5), ("hardshrink", 0.5),
                    ("leaky_relu", 0.1, False)):
    case(f"{name}_backward", r(9), r(9), *rest)
values = r(9)
case("log_sigmoid_backward", r(9), values, np.exp(-abs(values)))
case("logit_backward", r(9), between(9), None)
case("logit_backward", r(9), between(9), 0.2)
case("resize", r(3, 4), [2, 3])
case("resize", r(2, 3, 2, 2), [1, 2, 2, 2], memory_format="channels_last")
case("resize_as", r(3, 4), r(2, 3))
case("zero", r(3))
case("select_backward", r(4), [3, 4], 0, 1)
case("slice_backward", r(3, 2), [3, 5], 1, 1, 5, 2)
case("select_backward", np.arange(4), [3, 4], 0, -1)
case("slice_backward", np.arange(3), [6], 0, 1, 9, 2)
case("diagonal_backward", np.arange(3), [3, 4], 0, 0, 1)
case("diagonal_backward", r(3), [3, 4], 1, 0, 1)
case("index_select_backward", r(3, 2), [3, 5], 1, np.array([0, 0]))
case("unfold_backward", r(3, 2, 3), [3, 5], 1, 3, 2)
case("trace_backward", r(), [3, 4])
for rank in (1, 2, 3):
    x = r(2, 3, *[5] * rank)
    for name in ("reflection", "replication"):
        case(f"{name}_pad{rank}d", x, [1, 2] * rank)
        case(f"{name}_pad{rank}d_backward", r(2, 3, *[8] * rank), x, [1, 2] * rank)
    linear = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")[rank - 1]
    for name, *rest in ((f"upsample_nearest{rank}d",), (f"_upsample_nearest_exact{rank}d",), (linear, True), (linear, False)):
        case(name, x, [7] * rank, *rest)
        case(f"{name}.vec", x, None, *rest, [1.7] * rank)
        case(f"{name}_backward", r(2, 3, *[7] * rank), [7] * rank, [2, 3] + [5] * rank, *rest)
case("upsample_bicubic2d", r(2, 3, 5, 5), [7, 9], True)
case("upsample_bicubic2d", r(2, 3, 5, 5), [7, 9], False, 1.5, 1.8)
case("_upsample_bilinear2d_aa", r(2, 3, 9, 9), [4, 5], False)
for scales in ((None, 1.6), (1.6, None), (1.6,)):
    case("upsample_bilinear2d", r(1, 2, 4, 4), [6, 6], False, *scales)
    case("upsample_nearest2d", r(1, 2, 4, 5), [6, 8], *scales)
    case("upsample_bilinear2d_backward", r(1, 2, 6, 6), [6, 6], [1, 2, 4, 4], False, *scales)
case("upsample_nearest2d", r(1, 1, 5, 4), [49, 5], None, 1.3)
case("upsample_nearest2d", r(1, 1, 49, 4), [55, 5], None, 1.3)
# By name.
case("upsample_bilinear2d", self=r(1, 2, 4, 4), output_size=[6, 6], align_corners=False, scales_w=1.6)
case("upsample_bilinear2d.vec", input=r(1, 2, 4, 4), output_size=None, align_corners=True, scale_factors=[1.6, 1.5])
case("upsample_nearest1d_backward", r(1, 2, 6), output_size=[6], input_size=[1, 2, 4], scales=1.5)
case("gelu_backward", grad_output=r(9), self=r(9), approximate="tanh")
case("hardtanh_backward", r(9), self=r(9), min_val=-0.5, max_val=0.5)
case("hardshrink_backward", grad_out=r(9), self=r(9), lambd=0.5)
case("binary_cross_entropy_backward", r(3, 4), between(3, 4), between(3, 4), reduction=0)
case("huber_loss_backward", r(3, 4), r(3, 4), target=r(3, 4), reduction=0, delta=0.7)
case("select_backward", grad_output=r(4), input_sizes=[3, 4], dim=0, index=1)
case("index_select_backward", grad=r(3, 2), self_sizes=[3, 5], dim=1, index=np.array([0, 0]))
case("unfold_backward", grad_in=r(3, 2, 3), input_sizes=[3, 5], dim=1, size=3, step=2)
case("trace_backward", grad=r(), sizes=[3, 4])
case("reflection_pad1d_backward", r(1, 8), self=r(1, 5), padding=[1, 2])
case("adaptive_max_pool2d", self=X, output_size=[2, 3])
case("_native_batch_norm_legit.no_stats", X, r(4), r(4), training=True, momentum=0.1, eps=1e-5)
case("native_batch_norm", input=X, weight=r(4), bias=r(4), running_mean=r(4), running_var=abs(r(4)), training=False, momentum=0.1, eps=1e-5)
case("convolution_backward", r(2, 8, 4, 4), input=X, weight=r(8, 2, 3, 3), bias_sizes=[8], stride=[1, 1], padding=[0, 0], dilation=[1, 1],
     transposed=False, output_padding=[0, 0], groups=2, output_mask=ALL)
case("avg_pool2d_backward", r(2, 4, 3, 3), X, kernel_size=[2, 2], stride=[], padding=[0, 0], ceil_mode=False, count_include_pad=True,
     divisor_override=None)
case("_upsample_bicubic2d_aa", r(2, 3, 9, 9), [4, 5], False)
for rank in (2, 3):
    x, small = r(2, 3, *[6] * rank), [4] * rank
    for stride, n in (([], 2), ([2] * rank, 3)):
        case(f"avg_pool{rank}d_backward", r(2, 3, *[n] * rank), x, [3] * rank, stride, [n - 2] * rank, False, True, None)
        _, places = getattr(arete.nn.functional, f"max_pool{rank}d_with_indices")(arete.tensor(x), 3, stride or None, n - 2)
        case(f"max_pool{rank}d_with_indices_backward", r(*places.shape), x, [3] * rank, stride, [n - 2] * rank, [1] * rank, False,
             places.numpy())
    case(f"_adaptive_avg_pool{rank}d", x, small)
    case(f"_adaptive_avg_pool{rank}d_backward", r(2, 3, *small), x)
    case(f"adaptive_max_pool{rank}d", x, small)
    places = getattr(arete.ops.aten, f"adaptive_max_pool{rank}d")(arete.tensor(x), small)[1]
    case(f"adaptive_max_pool{rank}d_backward", r(2, 3, *small), x, places.numpy())
    samples = random.random_sample((2, 3, rank)).astype(np.float32)
    case(f"fractional_max_pool{rank}d", x, [2] * rank, [3] * rank, samples)
    places = getattr(arete.ops.aten, f"fractional_max_pool{rank}d")(arete.tensor(x), [2] * rank, [3] * rank, arete.tensor(samples))[1]
    case(f"fractional_max_pool{rank}d_backward", r(*places.shape), x, [2] * rank, [3] * rank, places.numpy())
case("prims.iota", 5, start=2, step=3, dtype="int64", device="cpu", requires_grad=False)
case("prims.convert_element_type", r(3), "float64")
case("prims.broadcast_in_dim", r(3), [2, 3, 4], [1])
case("prims.rev", r(3, 4), [1])


def called(lib, name, args, options):
    space, name = (lib.ops.prims, name[6:]) if name.startswith("prims.") else (lib.ops.aten, name)
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(space, packet), overload) if overload else getattr(space, packet)

    def given(v):
        if isinstance(v, np.ndarray):
            return lib.tensor(v.astype(np.complex64) if v.dtype.kind == "c" else v)
        if isinstance(v, tuple):
            return lib.tensor(v[0]).to(getattr(lib, v[1]))
        return getattr(lib, v) if v in ("float32", "float64", "int64", "channels_last") else v

    result = operator(*map(given, args), **{k: given(v) for k, v in options.items()})
    return list(result) if isinstance(result, (tuple, list)) else [result]

for mode in range(3):
    for weights, padding, last in ((None, -1, False), (None, 1, True), (r(4), -1, True)):
        if weights is None or mode == 0:
            case("_embedding_bag", r(5, 3), np.array([0, 1, 2, 1]), np.array([0, 2, 2, 4])[:4 if last else 3], False, mode, False, weights,
                 last, padding)


@pytest.mark.parametrize("index", range(len(CASES)), ids=[f"{i}-{name}" for i, (name, _, _) in enumerate(CASES)])
def test_against_torch(index):
    ours, theirs = called(arete, *CASES[index]), called(torch, *CASES[index])
    assert [t is None for t in ours] == [t is None for t in theirs]
    for a, b in zip(ours, theirs):
        if a is not None:
            assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1]
            if any(isinstance(v, tuple) and v[1] == "bfloat16" for v in CASES[index][1]):  # PyTorch adds up in bfloat16
                np.testing.assert_allclose(a.float().numpy(), b.float().numpy(), rtol=1e-2, atol=3e-2)
            else:
                np.testing.assert_allclose(a.numpy(), b.resolve_conj().numpy(), rtol=1e-4, atol=1e-5)


INFERENCE = [case for case in CASES if case[0] in (
    "gelu_backward", "mse_loss_backward", "convolution_backward", "reflection_pad1d_backward", "embedding_dense_backward",
    "upsample_nearest2d_backward", "slice_backward", "nll_loss_backward", "avg_pool2d_backward", "log_sigmoid_backward")]


@pytest.mark.parametrize("index", range(len(INFERENCE)))
def test_halves_of_inference_tensors(index):
    expected = called(arete, *INFERENCE[index])
    with arete.inference_mode():
        inside = called(arete, *INFERENCE[index])
    for a, b in zip(expected, inside):
        assert (a is None) == (b is None) and (a is None or arete.equal(a, b) and not b.requires_grad)
    with arete.inference_mode():
        g, x = arete.ones(3), arete.arange(3.0)
    assert arete.equal(arete.ops.aten.gelu_backward(g, x), arete.ops.aten.gelu_backward(g.clone(), x.clone()))


def test_backward_halves_have_gradients_themselves():
    g, x = (arete.tensor(r(7).astype(np.float64), requires_grad=True) for _ in range(2))
    assert arete.autograd.gradcheck(arete.ops.aten.gelu_backward, (g, x))
    assert not arete.ops.aten.gelu_backward(g.detach(), x.detach()).requires_grad
    g, x, w = (arete.tensor(r(*sizes).astype(np.float64), requires_grad=True) for sizes in ((1, 2, 3), (1, 2, 4), (2, 2, 2)))
    assert arete.autograd.gradcheck(lambda *t: arete.ops.aten.convolution_backward(
        *t, [2], [1], [0], [1], False, [0], 1, [True, True, True]), (g, x, w))


def test_dropout_says_what_it_kept():
    x = arete.ones(1000)
    out, mask = arete.ops.aten.native_dropout(x, 0.25, True)
    assert arete.equal(out, mask / 0.75) and 600 < mask.sum() < 900
    assert arete.equal(arete.ops.aten.native_dropout(x, 0.25, False)[0], x)


def test_scales_and_sizes_that_do_not_fit():
    with pytest.raises(NotImplementedError, match="is not what the scales"):
        arete.ops.aten.upsample_nearest1d(arete.ones(1, 1, 4), [7], 2.0)
