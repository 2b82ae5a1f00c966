"""Sequences spread over processes: there are none."""
from __future__ import annotations

from ...._refused import refused as _refused

globals().update(_refused(__name__, "sequences are not spread over processes",
                          "context_parallel", "set_rotate_method"))
