"""Random numbers on a device. They are Philox's, whatever the generator is called."""
from __future__ import annotations

from .. import numpy as _np
from .._kernels._launch import on_stream as _on_stream
from . import driver as _driver

__all__ = ["MRG32k3aRandomNumberGenerator", "PhiloxRandomNumberGenerator", "XORWOWRandomNumberGenerator", "rand"]


class _Generator:
    """Numbers of a sequence of its own; `seed_getter` gives, for how many seeds are wanted, an array whose first number is the seed."""

    def __init__(self, seed_getter=None, offset=0):
        seed = None if seed_getter is None else int(seed_getter(1)[0])
        if offset:
            raise NotImplementedError("a generator begins at the beginning of its sequence: offset is 0")
        self._random = _np.random.default_rng(seed)

    def _placed(self, draw, stream):
        before = _np.get_device()
        _np.set_device(_driver._device())
        try:
            with _on_stream(stream):
                return draw()
        finally:
            _np.set_device(before)

    def gen_uniform(self, shape, dtype, stream=None):
        """Numbers of [0, 1)."""
        return self._placed(lambda: self._random.random(shape, dtype=dtype), stream)

    def gen_normal(self, shape, dtype, stream=None):
        """Numbers of the standard normal distribution."""
        return self._placed(lambda: self._random.standard_normal(shape, dtype=dtype), stream)

    def fill_uniform(self, data, stream=None):
        """Writes numbers of [0, 1) to an array."""
        with _on_stream(stream):
            data[...] = self.gen_uniform(data.shape, data.dtype)

    def fill_normal(self, data, stream=None):
        """Writes numbers of the standard normal distribution to an array."""
        with _on_stream(stream):
            data[...] = self.gen_normal(data.shape, data.dtype)


XORWOWRandomNumberGenerator = MRG32k3aRandomNumberGenerator = PhiloxRandomNumberGenerator = _Generator


def rand(shape, dtype="float32", stream=None):
    """A new array of numbers of [0, 1)."""
    return _Generator().gen_uniform(shape, dtype, stream)
