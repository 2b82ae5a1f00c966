"""Parameters that processes average now and then, in the place of gradients in each step."""
from . import averagers, utils  # noqa: F401

__all__ = ["averagers", "utils"]
