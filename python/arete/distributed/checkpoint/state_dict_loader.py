"""Loading, by the name of torch's module."""
from ._files import load

__all__ = ["load"]
