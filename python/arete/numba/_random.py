"""numba.cuda.random: random numbers in kernels, by xoroshiro128+ (Blackman and Vigna, 2018): a state a thread, two words each.

    >>> import numpy as np
    >>> from arete.numba import cuda
    >>> from arete.numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float64
    >>> @cuda.jit
    ... def draw(states, x):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         x[i] = xoroshiro128p_uniform_float64(states, i)
    >>> x = np.zeros(1000)
    >>> draw[4, 256](create_xoroshiro128p_states(1024, seed=1), x)
    >>> bool(abs(x.mean() - 0.5) < 0.05 and x.min() >= 0 and x.max() < 1)
    True

States begin at words of SplitMix64, each at a place of its own of a period of 2^128: numbers are not those of Numba."""
from __future__ import annotations

import math

from .. import numpy as _np
from .._kernels._launch import on_stream
from .._kernels._python import PythonKernel

__all__ = ["create_xoroshiro128p_states", "init_xoroshiro128p_states", "xoroshiro128p_next", "xoroshiro128p_normal_float32",
           "xoroshiro128p_normal_float64", "xoroshiro128p_uniform_float32", "xoroshiro128p_uniform_float64"]

_STEP, _TURN = 2.0**-53, 2 * math.pi


def _words(n, seed, start):
    """Words of SplitMix64 from `seed` on."""
    import numpy

    k = numpy.arange(2 * n, dtype=numpy.uint64) + numpy.uint64(2 * start + 1)
    z = numpy.uint64(seed % 2**64) + numpy.uint64(0x9E3779B97F4A7C15) * k
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> numpy.uint64(shift))) * numpy.uint64(factor)
    return (z ^ (z >> numpy.uint64(31))).reshape(n, 2)


def create_xoroshiro128p_states(n, seed, subsequence_start=0, stream=0):
    """States for n threads, on the GPU where there is one."""
    from ._cuda import to_device

    return to_device(_words(n, int(seed), int(subsequence_start)), stream)


def init_xoroshiro128p_states(states, seed, subsequence_start=0, stream=0):
    """Sets states anew."""
    with on_stream(stream):
        states[...] = _np.asarray(_words(len(states), int(seed), int(subsequence_start)))


def _device(function):
    return PythonKernel(function, mode="numpy", device=True)


@_device
def xoroshiro128p_next(states, index):
    """A word of 64 bits."""
    a = states[index, 0]
    b = states[index, 1]
    word = a + b
    b = b ^ a
    states[index, 0] = ((a << 24) | (a >> 40)) ^ b ^ (b << 16)
    states[index, 1] = (b << 37) | (b >> 27)
    return word


@_device
def xoroshiro128p_uniform_float64(states, index):
    """A number of [0, 1)."""
    return (xoroshiro128p_next(states, index) >> 11) * _STEP


@_device
def xoroshiro128p_uniform_float32(states, index):
    """A number of [0, 1) in float32: of 24 bits, so that none is rounded to 1."""
    return _np.float32(xoroshiro128p_next(states, index) >> 40) * _np.float32(5.9604644775390625e-08)


@_device
def xoroshiro128p_normal_float64(states, index):
    """A number of the standard normal distribution (Box and Muller, 1958)."""
    u = 1.0 - xoroshiro128p_uniform_float64(states, index)
    v = xoroshiro128p_uniform_float64(states, index)
    return math.sqrt(-2.0 * math.log(u)) * math.cos(_TURN * v)


@_device
def xoroshiro128p_normal_float32(states, index):
    """The same in float32."""
    return _np.float32(xoroshiro128p_normal_float64(states, index))
