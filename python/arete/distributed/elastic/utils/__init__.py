"""What programs that were started anew use."""
from . import data  # noqa: F401
