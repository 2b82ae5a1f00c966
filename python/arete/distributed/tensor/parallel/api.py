"""parallelize_module, under the address that torch has for it."""
from .style import parallelize_module as parallelize_module
