"""What tensors are for another process: descriptions of memory that both share; and events, handles of the driver.

>>> from arete.multiprocessing.reductions import reduce_tensor
>>> rebuild, arguments = reduce_tensor(arete.zeros(2))
"""
from __future__ import annotations

from multiprocessing.reduction import ForkingPickler

from .._cuda_streams import Event
from .._operators import _reductions

reduce_tensor, rebuild_tensor, rebuild_cuda_tensor = (getattr(_reductions(), name) for name in (
    "reduce_tensor", "rebuild_tensor", "rebuild_cuda_tensor"))

__all__ = ["init_reductions", "rebuild_cuda_tensor", "rebuild_event", "rebuild_tensor", "reduce_event", "reduce_tensor"]


def rebuild_event(device, handle: bytes) -> Event:
    """The event of another process, of what reduce_event() gave there: arete.cuda.Event.from_ipc_handle(device, handle)."""
    return Event.from_ipc_handle(device, handle)


def reduce_event(event: Event) -> tuple:
    """What a pickle for another process holds of an event of a GPU: rebuild_event and its arguments. ValueError for one that was not made
    with `interprocess`."""
    handle = event.ipc_handle()  # which gives it a device
    return rebuild_event, (event.device, handle)


def init_reductions() -> None:
    """Tells multiprocessing how events are sent; loading this module has done so. Tensors are asked themselves.

    >>> arete.multiprocessing.reductions.init_reductions()
    """
    ForkingPickler.register(Event, reduce_event)


init_reductions()
