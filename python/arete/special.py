"""Special functions under the names of torch.special."""
from ._operators import _install_family

__all__ = _install_family("special", globals())
