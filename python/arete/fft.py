"""Fourier transforms under the names of torch.fft."""
from ._families import install

__all__ = install("fft", globals())
