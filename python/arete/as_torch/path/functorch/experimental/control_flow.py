"""The older address of torch._higher_order_ops."""
from torch._higher_order_ops import cond, map

__all__ = ["cond", "map"]
