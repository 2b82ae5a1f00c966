"""Types of arguments that take one number for several."""
from __future__ import annotations

from typing import Any, List, Union

__all__ = ["BroadcastingList1", "BroadcastingList2", "BroadcastingList3"]


class _Broadcasting:
    def __getitem__(self, of: Any) -> Any:
        return Union[of, List[of]]


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _Broadcasting()
