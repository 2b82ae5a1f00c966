"""The older name of torch.hub.load_state_dict_from_url()."""
from __future__ import annotations

import importlib
import importlib.util
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("load_url", "load_state_dict_from_url"):
        return importlib.import_module("arete.hub").load_state_dict_from_url
    if name == "tqdm" and importlib.util.find_spec("tqdm"):  # which torch has here, too
        return importlib.import_module("tqdm").tqdm
    raise AttributeError(f"module 'arete.utils.model_zoo' has no attribute {name!r}")
