"""Where processes meet, by the name of torch's module; in the package the name is the function's."""
from .distributed_c10d import rendezvous

__all__ = ["rendezvous"]
