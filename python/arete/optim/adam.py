"""torch's place of the class."""
from .native import Adam as Adam
