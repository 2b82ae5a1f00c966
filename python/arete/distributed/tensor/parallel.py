"""Layers spread over processes: there are none."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "layers are not spread over processes",
                          "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
                          "RowwiseParallel", "SequenceParallel", "loss_parallel", "parallelize_module"))
