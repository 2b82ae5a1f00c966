"""What tensors are for another process: descriptions of memory that both share.

>>> from arete.multiprocessing.reductions import reduce_tensor
>>> rebuild, arguments = reduce_tensor(arete.zeros(2))
"""
from __future__ import annotations

from .._operators import _reductions

reduce_tensor, rebuild_tensor, rebuild_cuda_tensor = (getattr(_reductions(), name) for name in (
    "reduce_tensor", "rebuild_tensor", "rebuild_cuda_tensor"))

__all__ = ["init_reductions", "rebuild_cuda_tensor", "rebuild_tensor", "reduce_tensor"]


def init_reductions() -> None:
    """Nothing to do: what multiprocessing pickles asks the tensors themselves.

    >>> arete.multiprocessing.reductions.init_reductions()
    """
