"""Variable by torch's other address of it."""
from . import Variable

__all__ = ["Variable"]
