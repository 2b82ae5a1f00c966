"""dtypes of torch's that no tensor has here, as names: programs have them in tables of formats. Tensors of them are refused."""
from __future__ import annotations

from ._C import Tensor

__all__: list[str] = []

_SIZES = {"float8_e8m0fnu": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float4_e2m1fn_x2": 1,
          "complex32": 4, "qint8": 1, "quint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1,
          **{f"{kind}{bits}": 1 for kind in ("uint", "int") for bits in range(1, 8)}}


class AbsentDType:
    """The name of a dtype. It is no dtype: operators refuse it where they take one."""

    def __init__(self, name: str) -> None:
        self._name, self.itemsize = name, _SIZES[name]
        self.is_floating_point, self.is_complex = name.startswith("float"), name == "complex32"
        self.is_signed = not name.startswith(("uint", "quint"))

    def __repr__(self) -> str:
        return f"{Tensor.__module__}.{self._name}"

    def __reduce__(self) -> tuple:
        return _named, (self._name,)


NAMES = {name: AbsentDType(name) for name in _SIZES}


def _named(name: str) -> AbsentDType:
    return NAMES[name]
