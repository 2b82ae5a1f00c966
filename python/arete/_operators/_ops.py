"""Every operator of the C++ library, those that are not shown elsewhere too, as a function with the arguments of its schema; `name_`
where it works in place."""
from __future__ import annotations

import sys

from .. import _C
from .._refused import refused

__all__: list[str] = []

sys.modules[f"{__package__.partition('.')[0]}._ops"] = sys.modules[__name__]  # the address that torch has for them
globals().update(refused("arete._ops", "functions that take functions, as cond(), are plain functions", "HigherOrderOperator"))


def __getattr__(name: str):
    in_place = name.endswith("_") and not name.startswith("_")
    try:
        operator = _C.Operator(name, in_place)
    except KeyError:
        raise AttributeError(f"there is no operator record '{name}'") from None
    globals()[name] = operator
    return operator


def __dir__():
    return sorted(_C._record_names())
