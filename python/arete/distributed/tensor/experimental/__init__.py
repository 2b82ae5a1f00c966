"""Sequences spread over processes (`context_parallel`), and functions of plain tensors, and operators of programs, that take such that are
spread."""
from __future__ import annotations

from .._parts import implicit_replication as implicit_replication
from ._attention import context_parallel as context_parallel
from ._func_map import local_map as local_map
from ._register_sharding import register_sharding as register_sharding
