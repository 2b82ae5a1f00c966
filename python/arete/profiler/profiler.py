"""Where torch has what arete.profiler has."""
from . import (  # noqa: F401
    ProfilerAction, ProfilerActivity, _default_schedule_fn, profile, schedule, supported_activities, tensorboard_trace_handler,
)
