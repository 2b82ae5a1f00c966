"""The CPU."""
from __future__ import annotations


def get_cpu_capability() -> str:
    """ "DEFAULT": libraries ask which of PyTorch's kernels for instruction sets there are (its interpolation of bytes, for one), and there
    are none of those. Arete's kernels are chosen by the processor, or by ARETE_SIMD.

    >>> arete.backends.cpu.get_cpu_capability()
    'DEFAULT'
    """
    return "DEFAULT"
