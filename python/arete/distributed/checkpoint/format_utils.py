"""Files of checkpoints of many processes."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "checkpoints are written by one process: arete.save()",
                          "_EmptyStateDictLoadPlanner", "_load_state_dict", "dcp_to_torch_save", "torch_save_to_dcp"))
