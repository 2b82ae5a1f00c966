"""States of optimizers that are spread over processes."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "state_dict.get_optimizer_state_dict() and load() read states, whoever has which part",
                          "load_sharded_optimizer_state_dict"))
