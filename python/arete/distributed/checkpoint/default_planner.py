"""Plans of checkpoints of many processes."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "checkpoints are written by one process: arete.save()",
                          "DefaultLoadPlanner", "DefaultSavePlanner"))
