"""Where pickles have functions that are written in Python."""
from ._operators._functions import *  # noqa: F403
