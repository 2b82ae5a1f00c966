"""Switches of torch.backends that mean something here."""
from __future__ import annotations

from . import _switches, cuda, cudnn, mps  # noqa: F401


class _Backends(_switches.Switches):
    @property
    def fp32_precision(self) -> str:
        """That of products; setting it sets that of convolutions, too."""
        return cuda.matmul.fp32_precision

    @fp32_precision.setter
    def fp32_precision(self, precision: str):
        cuda.matmul.fp32_precision = cudnn.fp32_precision = precision


_switches.become(__name__, _Backends)
