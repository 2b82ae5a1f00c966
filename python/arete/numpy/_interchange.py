"""To and from NumPy, files, and the names that are NumPy's own because they are about the host: text, dates, its build."""
from __future__ import annotations

import builtins as _b
import functools as _functools
import importlib as _importlib
import sys as _sys

from .._C import Tensor
from ._array import ndarray, tensor_of, wrap

__all__ = [
    "asnumpy",
    "get_array_module",
    "info",
    "save",
    "savez",
    "savez_compressed",
    "load",
    "savetxt",
    "loadtxt",
    "genfromtxt",
    "fromregex",
    "fromfile",
]


def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    """A NumPy array: over the same memory on the CPU where that is in this order, else a copy."""
    import numpy

    r = a._host() if isinstance(a, ndarray) else a.detach().cpu().numpy() if isinstance(a, Tensor) else numpy.asarray(a)
    if out is not None:
        out[...] = r
        return out
    return numpy.asarray(r, order=order)


def get_array_module(*args):
    """arete.numpy if any argument is an array of it, else NumPy."""
    if _b.any(isinstance(a, (ndarray, Tensor)) for a in args):
        return _sys.modules[__package__]
    import numpy

    return numpy


def info(object=None, maxwidth=76, output=None, toplevel=None):
    """Prints what an object is, by its documentation."""
    import inspect

    if isinstance(object, str):
        object = getattr(_sys.modules[__package__], object)
    print(inspect.getdoc(object), file=output or _sys.stdout)


def to_host(x):
    """Arrays as NumPy's, in lists and dicts, too."""
    if isinstance(x, ndarray):
        return x._host()
    if isinstance(x, (list, tuple)):
        return type(x)(to_host(v) for v in x)
    return {k: to_host(v) for k, v in x.items()} if isinstance(x, dict) else x


def _from_host(x):
    if type(x).__module__ == "numpy" and hasattr(x, "dtype") and x.dtype.kind in "biufc":
        return wrap(tensor_of(x))
    if isinstance(x, (list, tuple)):
        return type(x)(_from_host(v) for v in x)
    return x


def _dtype_option(options):
    d = options.get("dtype")
    own = d if hasattr(d, "_tensor_dtype") else getattr(d, "dtype", None)  # of a class of numbers
    if hasattr(own, "_tensor_dtype"):
        options["dtype"] = own.name
    return options


def _by_numpy(name, text):
    def function(*args, **options):
        import numpy

        return _from_host(getattr(numpy, name)(*to_host(args), **_dtype_option(to_host(options))))

    function.__name__, function.__doc__ = name, text
    return function


save = _by_numpy("save", "An .npy file, by NumPy.")
savez = _by_numpy("savez", "An .npz file of several arrays, by NumPy.")
savez_compressed = _by_numpy("savez_compressed", "A compressed .npz file of several arrays, by NumPy.")
savetxt = _by_numpy("savetxt", "Rows of a text file, by NumPy.")
loadtxt = _by_numpy("loadtxt", "An array of the rows of a text file, by NumPy.")
genfromtxt = _by_numpy("genfromtxt", "An array of the rows of a text file with values missing, by NumPy.")
fromregex = _by_numpy("fromregex", "An array of what an expression finds in a text file, by NumPy.")
fromfile = _by_numpy("fromfile", "An array of the bytes or numbers of a file, by NumPy.")


class NpzFile(dict):
    """The arrays of an .npz file by their names."""

    files = property(lambda self: list(self))
    f = property(lambda self: self)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def close(self):
        """Nothing: the file has been read."""


def load(file, mmap_mode=None, allow_pickle=False, fix_imports=True, encoding="ASCII", *, max_header_size=10000):
    """An array from an .npy file, arrays by their names from an .npz file. Memory maps are refused: `numpy.load` has them."""
    if mmap_mode is not None:
        raise NotImplementedError("load(): mmap_mode; take numpy.load, and asarray of what it gives")
    import numpy

    content = numpy.load(file, allow_pickle=allow_pickle, encoding=encoding, max_header_size=max_header_size)
    if hasattr(content, "files"):
        with content:
            return NpzFile({k: _from_host(content[k]) for k in content.files})
    return _from_host(content)


# NumPy's own, where NumPy is installed: what they are about has no counterpart on a device.
HOST = frozenset("""
    busday_count busday_offset busdaycalendar bytes_ char character core ctypeslib datetime64 datetime_as_string datetime_data dtypes f2py
    flexible get_include is_busday matrix asmatrix bmat memmap nditer nested_iters object_ rec recarray record show_config
    show_runtime str_ strings test timedelta64 typing void
""".split())

ABSENT = {
    **dict.fromkeys(
        ("longdouble", "clongdouble", "float128", "complex256", "float96", "complex192"), "no dtype is wider than 64 bits a part"
    ),
}


@_functools.cache
def host_name(name):
    """NumPy's own object of a name, for the module's `__getattr__`."""
    if name in ABSENT:
        raise AttributeError(f"arete.numpy has no {name}: {ABSENT[name]}")
    if name == "testing":  # imported when it is used: few programs do
        return _importlib.import_module("arete.numpy.testing")
    if name not in HOST:
        raise AttributeError(f"module 'arete.numpy' has no attribute {name!r}")
    try:
        numpy = _importlib.import_module("numpy")
    except ImportError:
        raise AttributeError(f"arete.numpy has {name} from NumPy, which is not installed") from None
    return getattr(numpy, name) if hasattr(numpy, name) else _importlib.import_module(f"numpy.{name}")
