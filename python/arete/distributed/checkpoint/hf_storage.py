"""Files of checkpoints of many processes."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "`arete ckpt merge` and `split` make one of the other",
                          "HuggingFaceStorageReader", "HuggingFaceStorageWriter"))
