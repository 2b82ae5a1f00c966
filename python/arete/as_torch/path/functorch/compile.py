"""The older address of what backends of programs are made of."""
from torch._functorch.aot_autograd import make_boxed_func

__all__ = ["make_boxed_func"]
