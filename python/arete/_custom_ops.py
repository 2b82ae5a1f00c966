"""The older names of arete.library."""
from __future__ import annotations

from ._refused import refused as _refused
from .library import impl_abstract as impl_abstract

globals().update(_refused(__name__, "the fakes of operators know all sizes", "get_ctx"))
