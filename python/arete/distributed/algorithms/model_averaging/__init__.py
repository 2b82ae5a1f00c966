"""Parameters that processes average now and then, in the place of gradients in each step."""
from . import averagers, hierarchical_model_averager, utils  # noqa: F401

__all__ = ["averagers", "hierarchical_model_averager", "utils"]
