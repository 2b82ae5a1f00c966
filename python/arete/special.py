"""Special functions under the names of torch.special."""
from ._families import install as _install

__all__ = _install("special", globals())
