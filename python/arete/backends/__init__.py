"""Switches of torch.backends that mean something here."""
from __future__ import annotations

from . import _switches, cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum  # noqa: F401


class _Backends(_switches.Switches):
    fp32_precision = _switches.precision_of(
        _switches.ALL, """What f32 products and convolutions may round their operands to, "ieee" or "tf32", where nothing closer says:
        convolutions start with "tf32", so it is products that this decides.""")


_switches.become(__name__, _Backends)
