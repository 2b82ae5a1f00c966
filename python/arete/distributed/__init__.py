"""Processes that work together, under torch.distributed's names: groups of them exchange tensors.

Tensors of the CPU travel by Gloo, those of GPUs by NCCL; ones whose elements are not in order are copied first. Calls record no
history. docs/distributed.md has examples.

>>> dist = arete.distributed
>>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
>>> x = arete.ones(2)
>>> dist.all_reduce(x)
>>> x, dist.get_world_size()
(tensor([1., 1.]), 1)
>>> dist.destroy_process_group()
"""
from __future__ import annotations

from .. import _C as _C
from . import algorithms as algorithms
from .distributed_c10d import *  # noqa: F403
from .distributed_c10d import _coalescing_manager as _coalescing_manager
from .distributed_c10d import _make_nccl_premul_sum as _make_nccl_premul_sum
from .distributed_c10d import _name_nccl
from .distributed_c10d import _rank_not_in_group as _rank_not_in_group
from ._group_methods import *  # noqa: F403
from .failures import flight_record as flight_record
from .failures import last_report as last_report
from .failures import write_flight_record as write_flight_record
from .object_collectives import *  # noqa: F403
from . import _functional_collectives as _functional_collectives
from . import device_mesh as device_mesh
from . import nn as nn
from . import rpc as rpc
from . import autograd as autograd
from .rendezvous import rendezvous as rendezvous  # the module of that name is loaded before
from .device_mesh import DeviceMesh as DeviceMesh
from .device_mesh import init_device_mesh as init_device_mesh


def is_available() -> bool:
    """Whether processes can work together here.

    >>> arete.distributed.is_available()
    True
    """
    return True


def is_torchelastic_launched() -> bool:
    """Whether torchrun started this process for work with others.

    >>> arete.distributed.is_torchelastic_launched()
    False
    """
    import os

    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def is_nccl_available() -> bool:
    """Whether processes can talk through NCCL: whether there is a GPU, and NCCL is installed.

    >>> arete.distributed.is_nccl_available() in (True, False)
    True
    """
    _name_nccl()
    return _C._distributed.is_nccl_available()


def is_gloo_available() -> bool:
    """Whether processes can talk through Gloo, which is left out of builds without it.

    >>> arete.distributed.is_gloo_available() in (True, False)
    True
    """
    return _C._distributed.is_gloo_available()


def is_mpi_available() -> bool:
    """Whether processes can talk through MPI.

    >>> arete.distributed.is_mpi_available()
    False
    """
    return False


def is_ucc_available() -> bool:
    """Whether processes can talk through UCC.

    >>> arete.distributed.is_ucc_available()
    False
    """
    return False


def is_backend_available(backend: str) -> bool:
    """Whether there is a backend of that name.

    >>> arete.distributed.is_backend_available("mpi")
    False
    """
    name = backend.lower()
    return name in ("store", "fake") or (name == "gloo" and is_gloo_available()) or (name == "nccl" and is_nccl_available())


_LAZY = ("_tensor", "checkpoint", "elastic", "fsdp", "launcher", "optim", "pipelining", "tensor", "utils")


def __getattr__(name: str):
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    if name.startswith("__"):
        raise AttributeError(f"module 'arete.distributed' has no attribute '{name}'")
    raise AttributeError(f"module 'arete.distributed' has no attribute '{name}': there are groups, their functions and stores, as "
                         "docs/distributed.md says")
