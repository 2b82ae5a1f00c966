"""The parts of the loader: collation, pinning, worker threads."""
from . import collate, pin_memory, worker  # noqa: F401
