"""Normalization and distances."""

from __future__ import annotations

from typing import Optional, Sequence

from arete import Tensor, _ops


def batch_norm(
    input: Tensor,
    running_mean: Optional[Tensor],
    running_var: Optional[Tensor],
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes each channel of (N, C, ...) over all samples.

    In training by the batch's statistics, towards which the running ones move by `momentum` in
    place; else by the running ones.

    >>> x = arete.tensor([[1.0, 10.0], [3.0, 30.0]])
    >>> F.batch_norm(x, None, None, training=True)
    tensor([[-1.0000, -1.0000],
            [ 1.0000,  1.0000]])
    >>> F.batch_norm(x, arete.zeros(2), arete.ones(2), eps=0.0)
    tensor([[ 1., 10.],
            [ 3., 30.]])
    >>> F.batch_norm(x, None, None)
    Traceback (most recent call last):
    arete.ArgumentError: Expected running_mean and running_var to be defined when training=False or ...
    """
    return _ops.batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps
    )


def instance_norm(
    input: Tensor,
    running_mean: Optional[Tensor] = None,
    running_var: Optional[Tensor] = None,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes each channel of each sample of (N, C, ...).

    >>> F.instance_norm(arete.tensor([[[1.0, 3.0], [10.0, 30.0]]]))
    tensor([[[-1.0000,  1.0000],
             [-1.0000,  1.0000]]])
    """
    return _ops.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes over the last dimensions, whose sizes are normalized_shape.

    >>> F.layer_norm(arete.tensor([[1.0, 3.0], [10.0, 30.0]]), (2,))
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    >>> F.layer_norm(arete.ones(2, 3), (2,))
    Traceback (most recent call last):
    arete.ArgumentError: Given normalized_shape=[2], expected input with shape [*, 2], but got input of ...
    """
    return _ops.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Optional[Tensor] = None,
    eps: Optional[float] = None,
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions.

    >>> F.rms_norm(arete.tensor([3.0, 4.0]), (2,), arete.tensor([1.0, 2.0]))
    tensor([0.8485, 2.2627])
    """
    return _ops.rms_norm(input, normalized_shape, weight, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes the channels of each sample in num_groups groups.

    (N, C, ...) -> the same; ArgumentError unless num_groups divides C.

    >>> F.group_norm(arete.tensor([[1.0, 3.0, 10.0, 30.0]]), 2)
    tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])
    """
    return _ops.group_norm(input, num_groups, weight, bias, eps)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta.

    >>> F.local_response_norm(arete.ones(1, 2, 1), size=2, alpha=2.0, beta=1.0).flatten()
    tensor([0.5000, 0.3333])
    """
    return _ops.local_response_norm(input, size, float(alpha), float(beta), float(k))


def normalize(
    input: Tensor,
    p: float = 2.0,
    dim: int = 1,
    eps: float = 1e-12,
    out: Optional[Tensor] = None,
) -> Tensor:
    """x / max(|x|_p, eps) along `dim`.

    >>> F.normalize(arete.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    if isinstance(dim, (tuple, list)):
        result = input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
    else:
        result = _ops.normalize(input, float(p), dim, eps)
    return result if out is None else out.copy_(result)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along `dim`.

    >>> F.cosine_similarity(arete.tensor([[1.0, 0.0]]), arete.tensor([[3.0, 4.0], [0.0, 2.0]]))
    tensor([0.6000, 0.0000])
    """
    return _ops.cosine_similarity(x1, x2, dim, eps)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension.

    >>> F.pairwise_distance(arete.tensor([[0.0, 0.0]]), arete.tensor([[3.0, 4.0]]))
    tensor([5.0000])
    """
    return _ops.pairwise_distance(x1, x2, float(p), eps, keepdim)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """p-norm distances of all pairs of rows i < j of (N, D) -> (N (N - 1) / 2).

    >>> F.pdist(arete.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
    tensor([5.0000, 1.0000, 4.2426])
    >>> F.pdist(arete.ones(3))
    Traceback (most recent call last):
    arete.ArgumentError: pdist only supports 2D tensors, got: 1D. Operator: pdist
    """
    return _ops.pdist(input, float(p))
