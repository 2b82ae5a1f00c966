"""numpy.lib: `stride_tricks` is the library's own, the rest is NumPy's where it is installed."""
from . import stride_tricks

__all__ = ["stride_tricks"]


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        import numpy
    except ImportError:
        raise AttributeError(f"arete.numpy.lib has {name} from NumPy, which is not installed") from None
    return getattr(numpy.lib, name)
