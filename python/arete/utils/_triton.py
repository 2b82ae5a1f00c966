"""Whether kernels can be written in Triton's language: they cannot."""
from __future__ import annotations

__all__ = ["has_triton", "has_triton_package"]


def has_triton() -> bool:
    """False: kernels are compiled from CUDA's language (arete.kernels).

    >>> arete.utils._triton.has_triton()
    False
    """
    return False


def has_triton_package() -> bool:
    """False, also where the package is installed: it is not used."""
    return False
