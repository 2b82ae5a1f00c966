"""Fourier transforms under the names of torch.fft."""
from ._operators import _install_family

__all__ = _install_family("fft", globals())
