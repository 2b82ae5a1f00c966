"""Sequences spread over processes (`context_parallel`), and functions of plain tensors that take such that are spread."""
from __future__ import annotations

from ...._refused import refused as _refused
from .._dtensor import implicit_replication as implicit_replication
from ._attention import context_parallel as context_parallel
from ._func_map import local_map as local_map

globals().update(_refused(__name__, "operators that the library does not know compute of whole tensors; local_map() has them take parts",
                          "register_sharding"))
