"""Errors, by the name of torch's module."""
from ._files import CheckpointException

__all__ = ["CheckpointException"]
