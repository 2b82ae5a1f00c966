"""The package opt_einsum, which is not used: einsum finds its order by itself."""
from __future__ import annotations


def is_available() -> bool:
    return False
