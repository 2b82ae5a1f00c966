"""Scalers of gradients that are spread over processes: there are none."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "parameters are not spread over processes",
                          "ShardedGradScaler"))
