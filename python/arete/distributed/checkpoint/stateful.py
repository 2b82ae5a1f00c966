"""Objects that checkpoints ask for their state, and give it back."""
from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["Stateful"]


@runtime_checkable
class Stateful(Protocol):
    """What has state_dict() and load_state_dict(); a class need not name it as its base.

    >>> isinstance(nn.Linear(1, 1), arete.distributed.checkpoint.stateful.Stateful)
    True
    """

    def state_dict(self) -> dict[str, Any]:
        """The state, in dictionaries."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes such a state over."""
        ...
