"""States of optimizers that are spread over processes."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "parameters are not spread over processes",
                          "load_sharded_optimizer_state_dict"))
