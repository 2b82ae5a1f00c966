"""ChannelShuffle."""

from __future__ import annotations

from arete import Tensor

from .. import functional as F
from .module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Interleaves the channels of `groups` groups of (N, C, ...).

    >>> nn.ChannelShuffle(2)(arete.arange(4).reshape(1, 4, 1)).flatten()
    tensor([0, 2, 1, 3])
    """

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
