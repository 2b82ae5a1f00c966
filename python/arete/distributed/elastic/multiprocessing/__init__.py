"""What starts processes and tells of their errors: `errors`, and names of `api`."""
from . import api as api
from . import errors as errors
from .api import *  # noqa: F403
