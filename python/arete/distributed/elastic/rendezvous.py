"""How machines find each other: `arete run` does that by a store, whose options are --rdzv-backend and --rdzv-endpoint. The exceptions
are there for programs that catch them."""
from __future__ import annotations

from ..._refused import refused

__all__ = ["RendezvousClosedError", "RendezvousConnectionError", "RendezvousError", "RendezvousGracefulExitError", "RendezvousHandler",
           "RendezvousHandlerRegistry", "RendezvousInfo", "RendezvousParameters", "RendezvousStateError", "RendezvousStoreInfo",
           "RendezvousTimeoutError"]


class RendezvousError(Exception):
    """Machines did not find each other."""


class RendezvousClosedError(RendezvousError):
    """They were looked for after their job had ended."""


class RendezvousConnectionError(RendezvousError):
    """The store could not be reached."""


class RendezvousStateError(RendezvousError):
    """What the store holds is damaged."""


class RendezvousTimeoutError(RendezvousError):
    """Some did not come in time."""


class RendezvousGracefulExitError(RendezvousError):
    """One left as it was asked to."""


globals().update(refused(
    "arete.distributed.elastic.rendezvous", "`arete run` brings machines together (--rdzv-backend, --rdzv-endpoint)",
    "RendezvousHandler", "RendezvousHandlerRegistry", "RendezvousInfo", "RendezvousParameters", "RendezvousStoreInfo"))
