"""The logger of programs that launchers start: its level is that of the variable LOGLEVEL, or WARNING."""
from __future__ import annotations

import inspect
import logging
import os
from typing import Optional

__all__ = ["get_log_level", "get_logger"]


def get_log_level() -> str:
    """The level's name.

    >>> arete.distributed.elastic.utils.logging.get_log_level()
    'WARNING'
    """
    return os.environ.get("LOGLEVEL", "WARNING")


def get_logger(name: Optional[str] = None) -> logging.Logger:
    """The logger of this name, or of the module that calls.

    >>> arete.distributed.elastic.utils.logging.get_logger("mine").name
    'mine'
    """
    if name is None:
        frame = inspect.currentframe()
        name = frame.f_back.f_globals.get("__name__", "root") if frame is not None and frame.f_back is not None else "root"
    logger = logging.getLogger(name)
    logger.setLevel(get_log_level().upper())
    return logger
