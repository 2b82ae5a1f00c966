"""Linear algebra under the names of torch.linalg."""
from ._families import install

__all__ = install("linalg", globals())
