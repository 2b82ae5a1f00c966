"""See `logging`."""
from .logging import get_log_level as get_log_level
