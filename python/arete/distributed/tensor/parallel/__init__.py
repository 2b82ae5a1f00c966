"""Modules and losses that are spread over the processes of a mesh."""
from . import style as style
from .loss import loss_parallel as loss_parallel
from .style import *  # noqa: F403
from .style import __all__ as _names

__all__ = [*_names, "loss_parallel"]
