"""Special functions under the names of torch.special."""
from ._families import install

__all__ = install("special", globals())
