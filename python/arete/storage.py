"""The memory of tensors, as bytes and as elements of one dtype."""
from ._operators import TypedStorage, UntypedStorage  # noqa: F401
