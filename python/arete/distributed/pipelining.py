"""Models cut into stages on several processes: there are none."""
from __future__ import annotations

from .._refused import refused as _refused

globals().update(_refused(__name__, "models are not cut into stages",
                          "PipelineStage", "Schedule1F1B", "ScheduleGPipe", "ScheduleInterleaved1F1B", "SplitPoint", "pipe_split",
                          "pipeline"))
