"""The functions of networks: `import arete.nn.functional as F`. Those that are one operator each are made from its record."""

from ... import _C as _C
from ..._grouped import grouped_mm
from ._activation import log_softmax, softmax, softmin
from ._attention import _canonical_mask, multi_head_attention_forward
from ._convolution import group_norm, upsample
from ._loss import gaussian_nll_loss, triplet_margin_with_distance_loss
from ._pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
)

for _name in _C._functional_operators():
    if _name not in globals():
        globals()[_name] = _C.Operator(_name, _name.endswith("_"), functional=True)
native_channel_shuffle = channel_shuffle  # noqa: F821 -- one of those installed
