"""Sequences spread over processes: `context_parallel`."""
from __future__ import annotations

from ...._refused import refused as _refused
from ._attention import context_parallel as context_parallel

globals().update(_refused(__name__, "there are no operators on tensors that are spread over processes",
                          "implicit_replication", "local_map", "register_sharding"))
