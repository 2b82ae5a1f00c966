"""Why rows of the breadth benchmark may be slower than PyTorch: each reason with the rows that it holds for."""

from __future__ import annotations

import re

# (regular expression that is found in the names of the rows, reason)
REASONS = ()


def reason_of(name):
    """Why this row may be slower; None: it should not be."""
    return next((why for pattern, why in REASONS if re.search(pattern, name)), None)
