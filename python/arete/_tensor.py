"""Where pickles have what makes tensors, storages and dtypes again."""
from ._operators._tensor import RemovableHandle, UntypedStorage, _load_dtype, _rebuild, from_dlpack, from_numpy  # noqa: F401
