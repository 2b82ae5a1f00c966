"""What `torch.ops.aten` has beside the operators that programs call by other names: halves of them that graphs and rules of
decomposition name (`convolution_backward`, `native_group_norm`, `upsample_nearest2d`, ...), with torch's arguments. A backward half is
the gradient of the operator itself where torch does not hand it anything else that was saved.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _C, fft
from . import _operators as _o
from ._C import Tensor
from ._operators import _ops
from .autograd import grad as _grad
from ._grad_mode import enable_grad, inference_mode
from .nn import functional as F

_REDUCTIONS = ("none", "mean", "sum")


def _named(names: str, function: Callable) -> Callable:
    """`function` with arguments of these names, by position or by name; one left out before a given one is None."""
    places = names.split()

    def call(*args: Any, **given: Any) -> Any:
        count = max((k + 1 for k, name in enumerate(places) if name in given), default=0)
        return function(*args, *(given.pop(name, None) for name in places[len(args):count]), **given)

    return call


def _wide(t: Tensor) -> Tensor:
    """What halves are computed in."""
    return t.float() if t.dtype in (_C.float16, _C.bfloat16) else t


def _outside_inference(v: Any) -> Any:
    """What history may save."""
    return v.clone() if isinstance(v, Tensor) and v.is_inference() else v


def _gradients(forward: Callable, inputs: Sequence[Tensor], wanted: Sequence[bool], rest: Sequence[Any], grad_output: Tensor,
               **options: Any) -> Iterator[Tensor]:
    """The gradients of `forward(*inputs, *rest)` by the inputs that are wanted, also of tensors of inference mode and in it."""
    again = _C.is_grad_enabled() and any(t.requires_grad for t in (grad_output, *inputs))
    with inference_mode(False), enable_grad():
        grad_output, *inputs = map(_outside_inference, (grad_output, *inputs))
        of = [t.detach().requires_grad_() if w and not t.requires_grad else t for t, w in zip(inputs, wanted)]
        result = forward(*of, *map(_outside_inference, rest), **options)
        return iter(_grad(result, [t for t, w in zip(of, wanted) if w], grad_output, create_graph=again))


def _gradient(forward: Callable, rest: str = "", grad: str = "grad_output") -> Callable:
    """The backward half of `forward(x, *rest)`: of the gradient of its result, x and the rest, which has these names."""
    return _named(f"{grad} self {rest}", lambda grad_output, self, *rest, **options: next(
        _gradients(forward, [self], [True], rest, grad_output, **options)))


def _linear_gradient(forward: Callable, rest: str, grad: str = "grad_output") -> Callable:
    """The same of a function that is linear in x, of which torch gives the sizes alone."""
    backward = _gradient(forward)
    return _named(f"{grad} input_sizes {rest}", lambda grad_output, input_sizes, *rest: backward(
        grad_output, grad_output.new_zeros(input_sizes), *rest))


def _view_gradient(view: Callable, rest: str = "", grad: str = "grad_output", sizes: str = "input_sizes") -> Callable:
    """The same of a view, for elements of all dtypes."""

    def backward(grad_output: Tensor, input_sizes: Any, *rest: Any) -> Tensor:
        result = grad_output.new_zeros(input_sizes)
        view(result, *rest).copy_(grad_output)
        return result

    return _named(f"{grad} {sizes} {rest}", backward)


def _loss_gradient(function: Callable, *more: str) -> Callable:
    """Of a loss with its reduction as torch's number, then arguments of these names."""
    return _gradient(lambda x, target, reduction=1, *rest: function(x, target, reduction=_REDUCTIONS[reduction], **dict(zip(more, rest))),
                     " ".join(("target", "reduction", *more)))


# ---- pictures

def _pad(mode: str) -> Callable:
    return lambda self, padding: F.pad(self, padding, mode)


def _upsample(mode: str, aligned: bool, antialias: bool = False) -> Callable:
    def upsample(self: Tensor, output_size: Any, *rest: Any) -> Tensor:
        options: dict[str, Any] = {"mode": mode, "antialias": antialias}
        if aligned:
            options["align_corners"], *rest = rest  # type: ignore[assignment]
        scales = [s for given in rest for s in (given if isinstance(given, Sequence) else (given,))]
        if all(s is None for s in scales):
            return F.interpolate(self, size=list(output_size), **options)
        if output_size is not None:
            # Scales that are not given are those of the sizes, which have to come out of them again.
            scales += [None] * (len(output_size) - len(scales))
            for k, (before, after) in enumerate(zip(self.shape[2:], output_size)):
                if scales[k] is None:
                    scales[k] = after / before
                    if int(before * scales[k]) < after:
                        scales[k] = math.nextafter(scales[k], math.inf)
        result = F.interpolate(self, scale_factor=scales, **options)
        if output_size is not None and tuple(result.shape[2:]) != tuple(output_size):
            raise NotImplementedError(f"upsample: output_size {tuple(output_size)} is not what the scales {scales} give")
        return result

    return upsample


def _scale_names(rank: int) -> str:
    return "scales" if rank == 1 else "scales_h scales_w" if rank == 2 else "scales_d scales_h scales_w"


def _upsample_arguments(forward: Callable, rank: int, aligned: bool) -> Callable:
    """By the names of both overloads: a scale for each dimension, or all in a list."""
    sizes = "output_size align_corners" if aligned else "output_size"
    single, listed = _named(f"self {sizes} {_scale_names(rank)}", forward), _named(f"input {sizes} scale_factors", forward)
    return lambda *args, **named: (listed if named.keys() & {"input", "scale_factors"} else single)(*args, **named)


def _upsample_backward(forward: Callable, rank: int, aligned: bool) -> Callable:
    backward = _gradient(forward)
    return _named("grad_output output_size input_size " + ("align_corners " if aligned else "") + _scale_names(rank),
                  lambda grad_output, output_size, input_size, *rest: backward(
                      grad_output, grad_output.new_zeros(input_size), output_size, *rest))


def _pool(name: str) -> Callable:
    def pool(x: Tensor, kernel_size: Any, stride: Any = (), *rest: Any) -> Tensor:
        return getattr(F, name)(x, kernel_size, stride or None, *rest)

    return pool


def _adaptive_backward(rank: int) -> Callable:
    pool = _gradient(getattr(F, f"adaptive_avg_pool{rank}d"))
    return lambda grad_output, self: pool(grad_output, self, grad_output.shape[-rank:])


def _chosen_backward(rank: int, rest: str) -> Callable:
    """Of pools that give the places of what they chose: these are the last argument."""

    def backward(grad_output: Tensor, self: Tensor, *rest: Any) -> Tensor:
        places = rest[-1]
        flat = self.new_zeros(self.shape).flatten(-rank)
        return flat.scatter_add(-1, places.flatten(-rank), grad_output.flatten(-rank)).view(self.shape)

    return _named(f"grad_output self {rest} indices", backward)


def convolution(input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any,  # noqa: A002
                dilation: Any, transposed: bool, output_padding: Any, groups: int) -> Tensor:
    rank = weight.dim() - 2
    if transposed:
        return getattr(F, f"conv_transpose{rank}d")(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return getattr(F, f"conv{rank}d")(input, weight, bias, stride, padding, dilation, groups)


def _convolution_backward(grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Any, stride: Any,  # noqa: A002
                          padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int, output_mask: Any) -> tuple:
    rest = (None, stride, padding, dilation, transposed, output_padding, groups)
    found = _gradients(convolution, [input, weight], output_mask[:2], rest, grad_output) if any(output_mask[:2]) else iter(())
    bias = grad_output.sum([0, *range(2, grad_output.dim())]) if output_mask[2] else None
    return (next(found) if output_mask[0] else None, next(found) if output_mask[1] else None, bias)


# ---- normalization

def _norm_gradients(input: Tensor, weight: Any, *gradients: Any) -> tuple:  # noqa: A002
    """The first has the input's dtype, the others the weight's."""
    dtype = (input if weight is None else weight).dtype
    first, *others = gradients
    return (None if first is None else first.to(input.dtype), *(None if t is None else t.to(dtype) for t in others))


def _normalized_backward(grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, dims: list) -> Tensor:
    """Of (x - mean) * rstd, where both are those of x over these dimensions. `grad` is that of the result."""
    hat = (x - mean) * rstd
    return rstd * (grad - grad.mean(dims, keepdim=True) - hat * (grad * hat).mean(dims, keepdim=True))


def _native_group_norm(input: Tensor, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> tuple:  # noqa: A002
    parts = _wide(input.reshape(N, group, -1))
    mean, variance = parts.mean(-1), parts.var(-1, correction=0)
    return _ops.group_norm(input, group, weight, bias, eps), mean, (variance + eps).rsqrt()


def _native_group_norm_backward(grad_out: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, weight: Any, N: int,  # noqa: A002
                                C: int, HxW: int, group: int, output_mask: Any) -> tuple:
    g, x = _wide(grad_out).reshape(N, C, -1), _wide(input).reshape(N, C, -1)
    scaled = g if weight is None else g * weight.view(1, C, 1)
    parts, mean, rstd = x.reshape(N, group, -1), mean.view(N, group, 1), rstd.view(N, group, 1)
    hat = ((parts - mean) * rstd).reshape(N, C, -1)
    first = _normalized_backward(scaled.reshape(N, group, -1), parts, mean, rstd, [-1]).reshape(input.shape) if output_mask[0] else None
    return _norm_gradients(input, weight, first, (g * hat).sum([0, 2]) if output_mask[1] else None,
                           g.sum([0, 2]) if output_mask[2] else None)


def _native_layer_norm_backward(grad_out: Tensor, input: Tensor, normalized_shape: Any, mean: Tensor, rstd: Tensor,  # noqa: A002
                                weight: Any, bias: Any, output_mask: Any) -> tuple:
    before = input.dim() - len(normalized_shape)
    rows, dims = list(range(before)), list(range(before, input.dim()))
    g, x = _wide(grad_out), _wide(input)
    first = _normalized_backward(g if weight is None else g * weight, x, mean, rstd, dims) if output_mask[0] else None
    return _norm_gradients(input, weight, first, *((t.sum(rows) if rows else t) if wanted else None for t, wanted in (
        (g * (x - mean) * rstd, output_mask[1]), (g, output_mask[2]))))


def _native_batch_norm(input: Tensor, weight: Any, bias: Any, *rest: Any, **given: Any) -> tuple:  # noqa: A002
    # Without statistics that are kept the next argument is `training`.
    kept = () if rest and isinstance(rest[0], bool) else ("running_mean", "running_var")
    given.update(zip((*kept, "training", "momentum", "eps"), rest))
    training, eps = given["training"], given["eps"]
    dims = [0, *range(2, input.dim())]
    saved = (input.new_empty(0), input.new_empty(0))
    if training:
        saved = (input.mean(dims), (input.var(dims, correction=0) + eps).rsqrt())
    return F.batch_norm(input, given.get("running_mean"), given.get("running_var"), weight, bias, training, given["momentum"], eps), *saved


def _native_batch_norm_no_training(input: Tensor, weight: Any, bias: Any, running_mean: Tensor, running_var: Tensor,  # noqa: A002
                                   momentum: float, eps: float) -> tuple:
    return _native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)


def _native_batch_norm_backward(grad_out: Tensor, input: Tensor, weight: Any, running_mean: Any, running_var: Any,  # noqa: A002
                                save_mean: Any, save_invstd: Any, train: bool, eps: float, output_mask: Any) -> tuple:
    dims, shape = [0, *range(2, input.dim())], [1, -1] + [1] * (input.dim() - 2)
    mean, rstd = (save_mean, save_invstd) if train else (running_mean, (running_var + eps).rsqrt())
    mean, rstd = mean.view(shape), rstd.view(shape)
    g, x = _wide(grad_out), _wide(input)
    scaled = g if weight is None else g * weight.view(shape)
    first = None
    if output_mask[0]:
        first = _normalized_backward(scaled, x, mean, rstd, dims) if train else scaled * rstd
    return _norm_gradients(input, weight, first, (g * (x - mean) * rstd).sum(dims) if output_mask[1] else None,
                           g.sum(dims) if output_mask[2] else None)


# ---- softmax, classes, elements

def _softmax(function: Callable) -> Callable:
    return lambda self, dim, half_to_float: function(self, dim, dtype=_C.float32 if half_to_float else None)


def _nll_loss_forward(self: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int) -> tuple:
    kept = target != ignore_index
    one = self.new_ones(()) if weight is None else weight[target.masked_fill(~kept, 0)]
    total = (one * kept).sum().to(self.dtype) if reduction else self.new_zeros(())
    return F.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction]), total


def _nll_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int,
                       total_weight: Tensor) -> Tensor:
    dim, ignored = min(self.dim() - 1, 1), target == ignore_index
    at = target.masked_fill(ignored, 0)
    share = -grad_output / total_weight if reduction == 1 else -grad_output
    share = (share if weight is None else share * weight[at]).expand(at.shape).masked_fill(ignored, 0)
    return _o.zeros_like(self).scatter(dim, at.unsqueeze(dim), share.to(self.dtype).unsqueeze(dim))


def _elu(self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    return scale * _o.where(self > 0, self, alpha * _o.expm1(self * input_scale))


def _elu_backward(grad_output: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, self_or_result: Tensor) -> Tensor:
    x = self_or_result
    below = (x + alpha * scale) * input_scale if is_result else alpha * scale * input_scale * _o.exp(x * input_scale)
    return grad_output * _o.where(x > 0, _o.full_like(x, scale), below)


def _embedding_dense_backward(grad_output: Tensor, indices: Tensor, num_weights: int, padding_idx: int,
                              scale_grad_by_freq: bool) -> Tensor:
    weight = grad_output.new_zeros(num_weights, grad_output.shape[-1])
    padding = padding_idx if padding_idx >= 0 else None
    return next(_gradients(lambda w, at: F.embedding(at, w, padding, scale_grad_by_freq=scale_grad_by_freq),
                           [weight], [True], [indices], grad_output))


def _embedding_bag(weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
                   sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False,
                   padding_idx: int = -1) -> tuple:
    """nn.functional.embedding_bag (`mode` 0: sums, 1: means, 2: maxima) and three tensors of integers, of which torch fills those
    that its backward of the mode reads: the bag of each index, the indices that count in each bag (means, maxima), and the rows
    that the maxima are of.

    >>> arete._embedding_bag(arete.eye(3), arete.tensor([0, 2, 1]), arete.tensor([0, 2]), mode=1)[1:3]
    (tensor([0, 0, 1]), tensor([2, 1]))
    """
    result = F.embedding_bag(indices, weight, offsets, scale_grad_by_freq=scale_grad_by_freq, mode=("sum", "mean", "max")[mode],
                             sparse=sparse, per_sample_weights=per_sample_weights, include_last_offset=include_last_offset,
                             padding_idx=None if padding_idx < 0 else padding_idx)
    if include_last_offset:
        indices = indices[:offsets[-1]]
    bags, n = result.shape[0], indices.numel()
    sizes = offsets.new_zeros(bags)
    if mode == 0 and padding_idx < 0:
        return result, offsets.new_empty(0), sizes, sizes.clone()
    begins = offsets[:bags]
    bag = _o.repeat_interleave(_o.cat([begins[1:], begins.new_full((1,), n)]) - begins)
    if mode == 0:
        return result, bag, sizes, sizes.clone()
    counts = indices != padding_idx
    sizes = sizes.index_add(0, bag, counts.to(sizes.dtype))
    if mode == 1:
        return result, bag, sizes, sizes.clone()
    at = (weight.detach()[indices] == result.detach()[bag]) & counts.unsqueeze(1)
    places = at.new_full(at.shape, n, dtype=indices.dtype)
    places = _o.where(at, _o.arange(n, dtype=indices.dtype, device=indices.device).unsqueeze(1), places)
    first = places.new_full(tuple(result.shape), n).scatter_reduce(0, bag.unsqueeze(1).expand_as(places), places, "amin")
    return result, bag, sizes, _o.cat([indices, indices.new_zeros(1)])[first]


def _native_dropout(input: Tensor, p: float, train: Any) -> tuple:  # noqa: A002
    if train is False or p == 0:
        return input.clone(), _o.ones_like(input, dtype=_C.bool)
    mask = _o.rand_like(input, dtype=_C.float32) >= p
    return input * mask / (1 - p) if p < 1 else _o.zeros_like(input), mask


# By torch's numbers for what a transformation is scaled with: nothing, 1 / sqrt(n), 1 / n.
_FORWARD, _INVERSE = ("backward", "ortho", "forward"), ("forward", "ortho", "backward")


def _fft_r2c(self: Tensor, dim: Any, normalization: int, onesided: bool) -> Tensor:
    return (fft.rfftn if onesided else fft.fftn)(self, dim=dim, norm=_FORWARD[normalization])


def _fft_c2r(self: Tensor, dim: Any, normalization: int, last_dim_size: int) -> Tensor:
    sizes = [*(self.shape[d] for d in dim[:-1]), last_dim_size]
    return fft.irfftn(self, sizes, dim, norm=_INVERSE[normalization])


def _fft_c2c(self: Tensor, dim: Any, normalization: int, forward: bool) -> Tensor:
    return (fft.fftn if forward else fft.ifftn)(self, dim=dim, norm=(_FORWARD if forward else _INVERSE)[normalization])


def _broadcast_in_dim(a: Tensor, shape: Any, broadcast_dimensions: Any) -> Tensor:
    sizes = [1] * len(shape)
    for at, size in zip(broadcast_dimensions, a.shape):
        sizes[at] = size
    return a.reshape(sizes).expand(shape)


def _slice(x: Tensor, dim: int, start: Any, end: Any, step: int) -> Tensor:
    return x[(slice(None),) * (dim % x.dim()) + (slice(start, end, step),)]


OPERATORS: dict[str, Callable] = {
    "convolution": convolution, "convolution_backward": _convolution_backward,
    "col2im": lambda self, output_size, kernel_size, dilation, padding, stride: F.fold(
        self, output_size, kernel_size, dilation, padding, stride),
    "im2col": lambda self, kernel_size, dilation, padding, stride: F.unfold(self, kernel_size, dilation, padding, stride),
    "native_group_norm": _native_group_norm, "native_group_norm_backward": _native_group_norm_backward,
    "native_layer_norm_backward": _native_layer_norm_backward,
    "native_batch_norm": _native_batch_norm, "_native_batch_norm_legit": _native_batch_norm,
    "_native_batch_norm_legit_no_training": _native_batch_norm_no_training, "native_batch_norm_backward": _native_batch_norm_backward,
    "_softmax": _softmax(F.softmax), "_log_softmax": _softmax(F.log_softmax),
    "_softmax_backward_data": lambda grad_output, output, dim, input_dtype: (
        output * (grad_output - (grad_output * output).sum(dim, keepdim=True))).to(input_dtype),
    "_log_softmax_backward_data": lambda grad_output, output, dim, input_dtype: (
        grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype),
    "nll_loss_forward": _nll_loss_forward, "nll_loss2d_forward": _nll_loss_forward,
    "nll_loss_backward": _nll_loss_backward, "nll_loss2d_backward": _nll_loss_backward,
    "embedding_dense_backward": _embedding_dense_backward, "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "native_dropout": _native_dropout, "native_dropout_backward": lambda grad_output, mask, scale: grad_output * mask * scale,
    "_cdist_forward": lambda x1, x2, p, compute_mode: _o.cdist(x1, x2, p), "_pdist_forward": lambda self, p=2.0: F.pdist(self, p),
    "_fft_r2c": _fft_r2c, "_fft_c2r": _fft_c2r, "_fft_c2c": _fft_c2c,
    "elu": _elu, "elu_backward": _elu_backward,
    "sigmoid_backward": lambda grad_output, output: grad_output * (output * (1 - output)).conj(),
    "tanh_backward": lambda grad_output, output: grad_output * (1 - output * output).conj(),
    "threshold_backward": lambda grad_output, self, threshold: grad_output.masked_fill(self <= threshold, 0),
    "gelu_backward": _gradient(F.gelu), "silu_backward": _gradient(F.silu), "mish_backward": _gradient(F.mish),
    "hardswish_backward": _gradient(F.hardswish), "hardsigmoid_backward": _gradient(F.hardsigmoid),
    "hardtanh_backward": _gradient(F.hardtanh, "min_val max_val"), "softplus_backward": _gradient(F.softplus, "beta threshold"),
    "softshrink_backward": _gradient(F.softshrink, "lambd"), "hardshrink_backward": _gradient(F.hardshrink, "lambd", "grad_out"),
    "leaky_relu_backward": lambda grad_output, self, negative_slope, self_is_result: _gradient(F.leaky_relu)(
        grad_output, self, negative_slope),
    "log_sigmoid_backward": lambda grad_output, self, buffer: _gradient(F.logsigmoid)(grad_output, self),
    "logit_backward": _gradient(lambda x, eps=None: _o.logit(x, eps), "eps"),
    "mse_loss_backward": _loss_gradient(F.mse_loss), "soft_margin_loss_backward": _loss_gradient(F.soft_margin_loss),
    "smooth_l1_loss_backward": _loss_gradient(F.smooth_l1_loss, "beta"), "huber_loss_backward": _loss_gradient(F.huber_loss, "delta"),
    "binary_cross_entropy_backward": _gradient(lambda x, target, weight=None, reduction=1: F.binary_cross_entropy(
        x, target, weight, reduction=_REDUCTIONS[reduction]), "target weight reduction"),
    "resize": lambda self, size, *, memory_format=None: self.clone().resize_(size, memory_format=memory_format),
    "resize_as": lambda self, the_template, *, memory_format=None: self.clone().resize_as_(the_template, memory_format=memory_format),
    "zero": lambda self: _o.zeros_like(self),
    "select_backward": _view_gradient(lambda x, dim, index: x.select(dim, index), "dim index"),
    "slice_backward": _view_gradient(_slice, "dim start end step"),
    "diagonal_backward": _view_gradient(lambda x, offset, dim1, dim2: x.diagonal(offset, dim1, dim2), "offset dim1 dim2"),
    "trace_backward": _view_gradient(lambda x: x.diagonal(), grad="grad", sizes="sizes"),
    "index_select_backward": lambda grad, self_sizes, dim, index: grad.new_zeros(self_sizes).index_add(dim, index, grad),
    "unfold_backward": _linear_gradient(lambda x, dim, size, step: x.unfold(dim, size, step), "dim size step", "grad_in"),
    # of torch.ops.prims
    "iota": lambda length, *, start, step, dtype, device, requires_grad: _o.arange(
        start, start + length * step, step, dtype=dtype, device=device, requires_grad=requires_grad),
    "convert_element_type": lambda a, dtype: a.to(dtype), "broadcast_in_dim": _broadcast_in_dim,
    "rev": lambda a, dims: a.flip(dims), "view_of": lambda a: a.view(a.shape), "device_put": lambda a, device, non_blocking=False: (
        a.to(device, non_blocking=non_blocking)), "copy_to": lambda a, b: a.copy_(b),
}

for _rank in (1, 2, 3):
    for _name, _mode in (("reflection", "reflect"), ("replication", "replicate")):
        OPERATORS[f"{_name}_pad{_rank}d"] = _pad(_mode)
        OPERATORS[f"{_name}_pad{_rank}d_backward"] = _gradient(_pad(_mode), "padding")
for _rank in (2, 3):
    OPERATORS[f"avg_pool{_rank}d_backward"] = _gradient(
        _pool(f"avg_pool{_rank}d"), "kernel_size stride padding ceil_mode count_include_pad divisor_override")
    OPERATORS[f"_adaptive_avg_pool{_rank}d"] = _named("self output_size", getattr(F, f"adaptive_avg_pool{_rank}d"))
    OPERATORS[f"_adaptive_avg_pool{_rank}d_backward"] = _adaptive_backward(_rank)
    OPERATORS[f"adaptive_max_pool{_rank}d"] = _named("self output_size", getattr(F, f"adaptive_max_pool{_rank}d_with_indices"))
    for _name, _rest in (("max_pool{}d_with_indices", "kernel_size stride padding dilation ceil_mode"), ("adaptive_max_pool{}d", ""),
                         ("fractional_max_pool{}d", "kernel_size output_size")):
        OPERATORS[_name.format(_rank) + "_backward"] = _chosen_backward(_rank, _rest)
    OPERATORS[f"fractional_max_pool{_rank}d"] = lambda self, kernel_size, output_size, random_samples, _of=getattr(
        F, f"fractional_max_pool{_rank}d_with_indices"): _of(self, kernel_size, output_size, _random_samples=random_samples)
for _name, _rank, _mode, _aligned, _antialias in (
        *((f"{name}{rank}d", rank, mode, False, False) for rank in (1, 2, 3)
          for name, mode in (("upsample_nearest", "nearest"), ("_upsample_nearest_exact", "nearest-exact"))),
        ("upsample_linear1d", 1, "linear", True, False), ("upsample_bilinear2d", 2, "bilinear", True, False),
        ("upsample_trilinear3d", 3, "trilinear", True, False), ("upsample_bicubic2d", 2, "bicubic", True, False),
        ("_upsample_bilinear2d_aa", 2, "bilinear", True, True), ("_upsample_bicubic2d_aa", 2, "bicubic", True, True)):
    _forward = _upsample(_mode, _aligned, _antialias)
    OPERATORS[_name] = _upsample_arguments(_forward, _rank, _aligned)
    OPERATORS[_name + "_backward"] = _upsample_backward(_forward, _rank, _aligned)
