"""Where pickles have what makes tensors and dtypes again, and what is written in Python of tensors."""
from ._operators._tensor import (  # noqa: F401
    RemovableHandle, Tensor, _load_dtype, _load_generator, _rebuild, from_dlpack, from_numpy,
)
