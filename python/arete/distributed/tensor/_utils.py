"""Parts of tensors that are spread over processes: there are none."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "there are no tensors that are spread over processes",
                          "compute_local_shape_and_global_offset"))
