"""States of models and optimizers that are spread over processes: none are."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "parameters are not spread over processes; state_dict() has them whole",
                          "StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict",
                          "set_model_state_dict", "set_optimizer_state_dict", "set_state_dict"))
