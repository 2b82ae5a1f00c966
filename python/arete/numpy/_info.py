"""What the array API standard asks a library about itself."""
from __future__ import annotations

from .. import _C
from ._array import get_device
from ._types import OF_TENSOR, _KINDS, as_dtype

__all__ = ["__array_namespace_info__"]


class __array_namespace_info__:
    """Devices, dtypes and what the library can do."""

    def capabilities(self):
        """Whether masks and shapes that depend on data are there, and how many axes an array may have."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 16}

    def default_device(self):
        """Where arrays are made."""
        return get_device()

    def default_dtypes(self, *, device=None):
        """The dtypes of arrays for which none is given."""
        return {"real floating": as_dtype("float64"), "complex floating": as_dtype("complex128"), "integral": as_dtype("int64"),
                "indexing": as_dtype("int64")}

    def dtypes(self, *, device=None, kind=None):
        """The dtypes by their names, all or those of a kind."""
        kinds = "".join(_KINDS.values()) if kind is None else "".join(_KINDS[k] for k in ([kind] if isinstance(kind, str) else kind))
        return {d.name: d for d in OF_TENSOR.values() if d.kind in kinds and d.name not in ("float16", "bfloat16")}

    def devices(self):
        """The devices that arrays can be on."""
        from .. import cuda

        return [_C.device("cpu")] + [_C.device(f"cuda:{i}") for i in range(cuda.device_count() if cuda.is_available() else 0)]
