"""Batch normalization."""

from __future__ import annotations

from typing import Any, Callable, Optional

from ... import _C, _operators
from ..._C import Tensor
from ..._operators import _ops
from .. import functional as F
from .. import init
from ..parameter import Parameter, UninitializedBuffer, UninitializedParameter
from ._records import layer
from .lazy import LazyModuleMixin
from .module import Module, weight_and_bias

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "SyncBatchNorm",
]


@layer("BatchNorm1d")
class _NormBase(Module):
    """What batch and instance norm share: weights, running statistics, their state."""

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]
    num_features: int
    eps: float
    momentum: Optional[float]
    affine: bool
    track_running_stats: bool

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        options = {"device": device, "dtype": dtype}
        if affine:
            self.weight = Parameter(_operators.empty(num_features, **options))
            self.bias = Parameter(_operators.empty(num_features, **options))
        else:
            self.register_parameter("weight", None)
            self.register_parameter("bias", None)
        if track_running_stats:
            self.register_buffer("running_mean", _operators.zeros(num_features, **options))
            self.register_buffer("running_var", _operators.ones(num_features, **options))
            count = _C.tensor(0, dtype=_C.int64, device=device)
            self.register_buffer("num_batches_tracked", count)
        else:
            self.register_buffer("running_mean", None)
            self.register_buffer("running_var", None)
            self.register_buffer("num_batches_tracked", None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forgets the running statistics."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def _load_from_state_dict(
        self, state_dict: dict, prefix: str, local_metadata: dict, *rest: Any
    ) -> None:
        version = local_metadata.get("version")
        if (version is None or version < 2) and self.track_running_stats:
            # Older files do not count batches.
            key = prefix + "num_batches_tracked"
            if key not in state_dict:
                own = self.num_batches_tracked
                known = own is not None and own.device.type != "meta"
                state_dict[key] = own if known else _C.tensor(0, dtype=_C.int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    def forward(self, input: Tensor) -> Tensor:
        return self._normalize(input, F.batch_norm)

    def forward_relu(self, input: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        """relu(forward(input) + residual) in one pass: what a Sequential does before a ReLU."""
        return self._normalize(input, _ops.batch_norm_relu, residual)

    def _normalize(self, input: Tensor, function: Callable[..., Tensor], *more: Any) -> Tensor:
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        training = self.training
        if training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the mean over all batches
                momentum = 1.0 / float(self.num_batches_tracked)
        mean, var = self.running_mean, self.running_var
        own_statistics = training or (mean is None and var is None)
        if training and not self.track_running_stats:
            mean = var = None
        weight, bias = weight_and_bias(self)
        return function(
            input, mean, var, weight, bias, own_statistics, momentum, self.eps, *more
        )


class BatchNorm1d(_BatchNorm):
    """Normalizes each feature of (N, C) or (N, C, L) over the batch.

    Running statistics, used in evaluation, move by `momentum` (None: the mean over all batches).

    >>> layer = nn.BatchNorm1d(2)
    >>> layer(arete.tensor([[1.0, 10.0], [3.0, 30.0]])).detach()
    tensor([[-1.0000, -1.0000],
            [ 1.0000,  1.0000]])
    >>> layer.running_mean
    tensor([0.2000, 2.0000])
    >>> layer(arete.ones(1, 2))
    Traceback (most recent call last):
    arete.ArgumentError: Expected more than 1 value per channel when training, got input size [1, 2]...
    >>> layer(arete.ones(2))
    Traceback (most recent call last):
    ValueError: expected 2D or 3D input (got 1D input)
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class BatchNorm2d(_BatchNorm):
    """Normalizes each channel of (N, C, H, W) over the batch.

    >>> nn.BatchNorm2d(3)(arete.randn(4, 3, 8, 8)).shape
    arete.Size([4, 3, 8, 8])
    >>> nn.BatchNorm2d(3)(arete.randn(4, 3))
    Traceback (most recent call last):
    ValueError: expected 4D input (got 2D input)
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 4:
            raise ValueError(f"expected 4D input (got {input.dim()}D input)")


class BatchNorm3d(_BatchNorm):
    """Normalizes each channel of (N, C, D, H, W) over the batch.

    >>> nn.BatchNorm3d(3)(arete.randn(4, 3, 2, 8, 8)).shape
    arete.Size([4, 3, 2, 8, 8])
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 5:
            raise ValueError(f"expected 5D input (got {input.dim()}D input)")


class SyncBatchNorm(_BatchNorm):
    """Normalizes each channel over the batches of all processes of a group, which may differ in size.

    It is a batch norm where there are no others: in evaluation, and without a group.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    >>> nn.SyncBatchNorm.convert_sync_batchnorm(net)[1]
    SyncBatchNorm(2, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Optional[Any] = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.size(1) == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input: Tensor) -> Tensor:
        return self._normalize(input, self._over_all)

    def forward_relu(self, input: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        y = self(input)
        return (y if residual is None else y + residual).relu()

    def _over_all(self, input: Tensor, mean: Any, var: Any, weight: Any, bias: Any, uses_batch: bool,
                  momentum: float, eps: float) -> Tensor:
        group = self.process_group
        if group is None and _C._distributed.is_initialized():
            group = _C._distributed.world()
        if not (uses_batch and self.training) or group is None or group.size() == 1:
            return F.batch_norm(input, mean, var, weight, bias, uses_batch, momentum, eps)
        return _C._distributed.sync_batch_norm(input, mean, var, weight, bias, momentum, eps, group)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Optional[Any] = None) -> Module:
        """The network with a SyncBatchNorm in the place of each batch norm; weights and statistics stay the same tensors."""
        result = module
        if isinstance(module, _BatchNorm):
            result = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group
            )
            if module.affine:
                result.weight, result.bias = module.weight, module.bias
            result.running_mean, result.running_var = module.running_mean, module.running_var
            result.num_batches_tracked = module.num_batches_tracked
            result.training = module.training
        for name, child in module.named_children():
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """Takes num_features from the first input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine = affine
        self.track_running_stats = track_running_stats
        options = {"device": device, "dtype": dtype}
        if affine:
            self.weight = UninitializedParameter(**options)
            self.bias = UninitializedParameter(**options)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**options)
            self.running_var = UninitializedBuffer(**options)
            self.num_batches_tracked = _C.tensor(0, dtype=_C.int64, device=device)

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Gives the parameters the shapes that the first input asks for."""
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        if self.affine:
            self.weight.materialize((self.num_features,))
            self.bias.materialize((self.num_features,))
        if self.track_running_stats:
            self.running_mean.materialize((self.num_features,))
            self.running_var.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """A BatchNorm1d that takes num_features from its first input.

    >>> layer = nn.LazyBatchNorm1d()
    >>> _ = layer(arete.randn(2, 3, 4))
    >>> layer
    BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """A BatchNorm2d that takes num_features from its first input.

    >>> layer = nn.LazyBatchNorm2d()
    >>> _ = layer(arete.randn(2, 3, 4, 4))
    >>> layer
    BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """A BatchNorm3d that takes num_features from its first input.

    >>> layer = nn.LazyBatchNorm3d()
    >>> _ = layer(arete.randn(2, 3, 4, 4, 4))
    >>> layer
    BatchNorm3d(3, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
    """

    cls_to_become = BatchNorm3d
