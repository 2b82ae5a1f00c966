"""Hooks within which ZeroRedundancyOptimizers step, which are refused by torch's names."""
from __future__ import annotations

from ...._refused import refused as _refused

globals().update(_refused(__name__, "ZeroRedundancyOptimizer.step() runs after the pass backward", "hook_with_zero_step",
                          "hook_with_zero_step_interleaved"))
