"""Networks cut into stages, each in a process of its own, through which microbatches go one after the other. docs/pipelines.md has
examples."""
from __future__ import annotations

from ..._refused import refused as _refused
from ._IR import Pipe as Pipe, SplitPoint as SplitPoint, pipe_split as pipe_split, pipeline as pipeline, split_by_cost as split_by_cost
from .schedules import (
    Schedule1F1B as Schedule1F1B,
    ScheduleGPipe as ScheduleGPipe,
    ScheduleInterleaved1F1B as ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble as ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS as ScheduleLoopedBFS,
    ScheduleZBVZeroBubble as ScheduleZBVZeroBubble,
)
from .stage import PipelineStage as PipelineStage, build_stage as build_stage

globals().update(_refused(__name__, "no schedule computes forward and backward steps at the same time", "ScheduleDualPipeV"))

__all__ = ["Pipe", "PipelineStage", "Schedule1F1B", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble",
           "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "SplitPoint", "build_stage", "pipe_split", "pipeline", "split_by_cost"]
