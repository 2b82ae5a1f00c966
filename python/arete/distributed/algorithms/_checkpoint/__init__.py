"""Modules whose activations are computed again."""
from . import checkpoint_wrapper  # noqa: F401
