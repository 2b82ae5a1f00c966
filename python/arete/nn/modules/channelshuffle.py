"""ChannelShuffle."""

from __future__ import annotations

from ..._C import Tensor
from .. import functional as F
from ._records import layer
from .module import Module

__all__ = ["ChannelShuffle"]


@layer
class ChannelShuffle(Module):
    """Interleaves the channels of `groups` groups of (N, C, ...).

    >>> nn.ChannelShuffle(2)(arete.arange(4).reshape(1, 4, 1)).flatten()
    tensor([0, 2, 1, 3])
    """


