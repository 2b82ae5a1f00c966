"""See `api`."""
from .api import *  # noqa: F403
