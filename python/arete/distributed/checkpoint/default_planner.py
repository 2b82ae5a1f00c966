"""Plans of checkpoints of many processes."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "checkpoints are folders, and what is saved is the state that is given",
                          "DefaultLoadPlanner", "DefaultSavePlanner"))
