"""The older address of DTensors."""
from ..tensor import DTensor as DTensor, distribute_module as distribute_module, distribute_tensor as distribute_tensor
