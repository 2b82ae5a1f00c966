"""What layers are made of, as torch names it."""
from __future__ import annotations

from ... import _C
from .. import _ops
from ..._C import Tensor
from ..._grad_mode import no_grad

_GRID_MODES, _GRID_PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """grid_sample with its modes as numbers: bilinear, nearest, bicubic; zeros, border, reflection.

    >>> arete.grid_sampler(arete.tensor([[[[1.0, 3.0]]]]), arete.zeros(1, 1, 1, 2), 0, 0, True)
    tensor([[[[2.]]]])
    """
    return _ops.grid_sample(input, grid, _GRID_MODES[interpolation_mode], _GRID_PADDINGS[padding_mode], align_corners)


def grid_sampler_2d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """grid_sampler of images (N, C, H, W).

    >>> arete.grid_sampler_2d(arete.zeros(1, 3, 4, 4), arete.zeros(1, 2, 2, 2), 0, 0, False).shape
    arete.Size([1, 3, 2, 2])
    """
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def grid_sampler_3d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """grid_sampler of volumes (N, C, D, H, W).

    >>> arete.grid_sampler_3d(arete.zeros(1, 3, 4, 4, 4), arete.zeros(1, 2, 2, 2, 3), 0, 0, False).shape
    arete.Size([1, 3, 2, 2, 2])
    """
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def adaptive_max_pool1d(input: Tensor, output_size):
    """nn.functional.adaptive_max_pool1d with the places of the maxima, which torch's function of this name always gives.

    >>> values, places = arete.adaptive_max_pool1d(arete.tensor([[1.0, 3.0, 2.0, 0.0]]), 2)
    >>> values.tolist(), places.tolist()
    ([[3.0, 2.0]], [[1, 2]])
    """
    return _ops.adaptive_max_pool1d_with_indices(input, output_size)


# Below nn.functional, which has these functions with their arguments in another order.


def batch_norm(input: Tensor, weight, bias, running_mean, running_var, training: bool, momentum: float, eps: float,
               cudnn_enabled: bool = True):
    """nn.functional.batch_norm. Nothing of cuDNN takes part, whether it may or not.

    >>> arete.batch_norm(arete.tensor([[1.0], [3.0]]), None, None, None, None, True, 0.1, 1e-5)
    tensor([[-1.0000],
            [ 1.0000]])
    """
    return _ops.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(input: Tensor, weight, bias, running_mean, running_var, use_input_stats: bool, momentum: float, eps: float,
                  cudnn_enabled: bool = True):
    """nn.functional.instance_norm. Nothing of cuDNN takes part, whether it may or not.

    >>> arete.instance_norm(arete.tensor([[[1.0, 3.0]]]), None, None, None, None, True, 0.1, 1e-5)
    tensor([[[-1.0000,  1.0000]]])
    """
    return _ops.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False):
    """The rows of `weight` with these numbers; that of padding_idx, unless it is negative, gets no gradient.

    >>> arete.embedding(arete.tensor([[1.0, 2.0], [3.0, 4.0]]), arete.tensor([1, 0]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    padding = None if padding_idx < 0 else padding_idx
    return _ops.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


# Losses below nn.functional take the reduction as a number, too: 0 none, 1 mean, 2 sum. By default they are not reduced, as PyTorch's.


def kl_div(input: Tensor, target: Tensor, reduction=0, *, log_target: bool = False):
    """nn.functional.kl_div, by default not reduced; the reduction may be a number: 0 none, 1 mean, 2 sum.

    >>> arete.kl_div(arete.tensor([0.5]).log(), arete.tensor([1.0]))
    tensor([0.6931])
    """
    if reduction == 1:  # nn.functional's warns of its own default
        return _ops.kl_div(input, target, 0, log_target).mean()
    return _ops.kl_div(input, target, reduction, log_target)


_BAG_MODES = ("sum", "mean", "max")
_SUMMED = (_C.float32, _C.float16, _C.bfloat16)


def embedding_bag(weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
                  sparse: bool = False, per_sample_weights=None, include_last_offset: bool = False, padding_idx=None):
    """nn.functional.embedding_bag of bags that begin at `offsets`, the mode as a number (0 sum, 1 mean, 2 max), and what torch gives
    besides: of each index the bag it is in (nothing for plain sums on a CPU, as torch's do not need it), of each bag how many of its
    indices count (zeros for sums on a CPU) and which indices have the maximum (on a CPU for means the counts again, on a GPU nothing).

    >>> rows, indices, offsets = arete.tensor([[1.0], [2.0]]), arete.tensor([0, 1, 1]), arete.tensor([0, 1])
    >>> out, bag, size, index = arete.embedding_bag(rows, indices, offsets, mode=2)
    >>> out.tolist(), bag.tolist(), size.tolist(), index.tolist()
    ([[1.0], [2.0]], [0, 1, 1], [1, 2], [[0], [1]])
    """
    if mode not in (0, 1, 2):
        raise ValueError(f"embedding_bag(): mode is 0 (sum), 1 (mean) or 2 (max), not {mode!r}")
    words = _BAG_MODES[mode]
    out = _ops.embedding_bag(indices, weight, offsets, None, 2.0, scale_grad_by_freq, words, sparse, per_sample_weights,
                             include_last_offset, padding_idx)
    with no_grad():
        bags = out.shape[0]
        unused = offsets[:bags] if weight.requires_grad else offsets  # as torch, whose two ways give different lengths
        plain = per_sample_weights is None or per_sample_weights.stride(0) == 1
        if words == "sum" and padding_idx is None and plain and weight.device.type == "cpu" and weight.dtype in _SUMMED and \
                weight.stride(1) == 1:
            bag = offsets.new_empty(0)
        else:
            # The first bag begins at 0: the number of the others that have begun is the bag. What lies behind a last offset is one more.
            bag = _ops.places_of_numbers(offsets[1:], indices.numel(), offsets.dtype == _C.int32)
        if words == "sum" and weight.device.type == "cpu":
            return out, bag, *(_ops.zeros(unused.numel(), dtype=unused.dtype, device=unused.device) for _ in range(2))
        if padding_idx is None:
            size = _ops.bag_sizes(offsets, indices.numel())[:bags]
        else:
            counted = indices != padding_idx % weight.shape[0]
            size = _ops.zeros_like(offsets).index_add(0, bag, counted.to(bag.dtype))[:bags]
        if words != "max" and weight.device.type != "cpu":
            return out, bag, size, offsets.new_empty(0)
        if words == "sum":
            return out, bag, size, _ops.zeros(unused.numel(), dtype=unused.dtype, device=unused.device)
        if words == "mean":
            return out, bag, size, size.clone()
        if bags == 0:
            return out, bag, size, indices.new_zeros(out.shape)
        padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
        rows = _ops.embedding_bag_maxima(weight, indices, offsets.long(), offsets.numel(), padding, True)[1][:bags]
        return out, bag, size, rows.clamp(min=0).to(indices.dtype)


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight=None, pos_weight=None, reduction=0):
    """nn.functional.binary_cross_entropy_with_logits, by default not reduced; the reduction may be a number: 0 none, 1 mean, 2 sum.

    >>> arete.binary_cross_entropy_with_logits(arete.zeros(2), arete.ones(2))
    tensor([0.6931, 0.6931])
    """
    return _ops.binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight)


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction=0):
    """nn.functional.cosine_embedding_loss, by default not reduced; the reduction may be a number: 0 none, 1 mean, 2 sum.

    >>> arete.cosine_embedding_loss(arete.eye(2), arete.ones(2, 2), arete.ones(2))
    tensor([0.2929, 0.2929])
    """
    return _ops.cosine_embedding_loss(input1, input2, target, margin=margin, reduction=reduction)


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction=0):
    """nn.functional.hinge_embedding_loss, by default not reduced; the reduction may be a number: 0 none, 1 mean, 2 sum.

    >>> arete.hinge_embedding_loss(arete.tensor([0.5, 0.5]), arete.tensor([1.0, -1.0]))
    tensor([0.5000, 0.5000])
    """
    return _ops.hinge_embedding_loss(input, target, margin=margin, reduction=reduction)


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction=0):
    """nn.functional.margin_ranking_loss, by default not reduced; the reduction may be a number: 0 none, 1 mean, 2 sum.

    >>> arete.margin_ranking_loss(arete.tensor([1.0, 2.0]), arete.tensor([2.0, 1.0]), arete.ones(2))
    tensor([1., 0.])
    """
    return _ops.margin_ranking_loss(input1, input2, target, margin=margin, reduction=reduction)


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-06,
                        swap: bool = False, reduction=0):
    """nn.functional.triplet_margin_loss, by default not reduced; the reduction may be a number: 0 none, 1 mean, 2 sum.

    >>> arete.triplet_margin_loss(arete.zeros(2, 1), arete.ones(2, 1), arete.ones(2, 1))
    tensor([1., 1.])
    """
    return _ops.triplet_margin_loss(anchor, positive, negative, margin=margin, p=p, eps=eps, swap=swap, reduction=reduction)


def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths, target_lengths, blank: int = 0, reduction=0, zero_infinity: bool = False):
    """nn.functional.ctc_loss, by default not reduced; the reduction may be a number: 0 none, 1 mean, 2 sum.

    >>> scores = arete.zeros(4, 1, 3).log_softmax(-1)
    >>> arete.ctc_loss(scores, arete.tensor([[1, 2]]), (4,), (2,))
    tensor([1.6864])
    """
    return _ops.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
