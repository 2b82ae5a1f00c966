"""Programs of one process ask whether they are one of several: they are not.

As in torch where it is built without: `is_available()` is False, and there is nothing to start processes with.
"""
from __future__ import annotations


def is_available() -> bool:
    """Whether processes can work together here: not yet.

    >>> arete.distributed.is_available() and arete.distributed.is_initialized()
    False
    """
    return False


def is_initialized() -> bool:
    """Whether this process is one of several.

    >>> arete.distributed.is_initialized()
    False
    """
    return False


def is_torchelastic_launched() -> bool:
    """Whether torchrun started this process for work with others.

    >>> arete.distributed.is_torchelastic_launched()
    False
    """
    return False


def is_nccl_available() -> bool:
    """Whether processes can talk through NCCL.

    >>> arete.distributed.is_nccl_available()
    False
    """
    return False


def is_gloo_available() -> bool:
    """Whether processes can talk through Gloo.

    >>> arete.distributed.is_gloo_available()
    False
    """
    return False


def is_mpi_available() -> bool:
    """Whether processes can talk through MPI.

    >>> arete.distributed.is_mpi_available()
    False
    """
    return False


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(f"module 'arete.distributed' has no attribute '{name}'")
    raise AttributeError(f"module 'arete.distributed' has no attribute '{name}': programs run in one process "
                         "(arete.distributed.is_available() is False)")
