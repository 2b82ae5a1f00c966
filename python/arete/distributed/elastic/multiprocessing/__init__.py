"""See `errors`."""
from . import errors as errors
