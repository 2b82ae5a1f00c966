"""Fourier transforms under the names of torch.fft."""
from ._families import install as _install

__all__ = _install("fft", globals())
