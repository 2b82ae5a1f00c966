"""What torch's checkpoints say of themselves; Arete's have an index."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "checkpoints are folders, and what is saved is the state that is given", "Metadata"))
