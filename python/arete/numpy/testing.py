"""NumPy's functions for tests, which take the library's arrays, numbers among them, as well.

>>> import arete.numpy as np
>>> np.testing.assert_equal(np.arange(3).sum(), 3)
>>> np.testing.assert_allclose(np.ones(2), [1, 1])
"""
from __future__ import annotations

import functools as _functools

from ._array import ndarray as _ndarray
from ._interchange import asnumpy as _asnumpy


def _host(x):
    if isinstance(x, _ndarray):
        return _asnumpy(x)[()]  # a number as NumPy's
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(_host(v) for v in x)
    return {k: _host(v) for k, v in x.items()} if type(x) is dict else x


@_functools.cache
def __getattr__(name):
    import numpy.testing

    try:
        found = getattr(numpy.testing, name)
    except AttributeError:
        raise AttributeError(f"module 'arete.numpy.testing' has no attribute {name!r}") from None
    if not name.startswith("assert_") or name in ("assert_raises", "assert_raises_regex", "assert_warns", "assert_no_warnings"):
        return found

    @_functools.wraps(found)
    def function(*args, **options):
        return found(*(_host(a) for a in args), **{k: _host(v) for k, v in options.items()})

    return function


def __dir__():
    import numpy.testing

    return sorted({*globals(), *dir(numpy.testing)})
