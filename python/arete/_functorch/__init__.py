"""Names of torch._functorch that programs use beside torch.compile."""
from __future__ import annotations

from . import config as config
