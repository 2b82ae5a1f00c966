"""DTensors, under the address that torch has for them."""
from . import DTensor as DTensor, distribute_module as distribute_module, distribute_tensor as distribute_tensor
