"""Classes of tensors and modes that see operators below the recording of history (`__torch_dispatch__`): there are none here, and
`__torch_function__` (arete.overrides) sees operators above it."""
from __future__ import annotations

import contextlib
from typing import Any, Iterator

from .._refused import refused

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass"]

globals().update(refused("arete.utils._python_dispatch", "operators are seen above the recording of history alone, by "
                         "overrides.TorchFunctionMode", "TorchDispatchMode"))


def is_traceable_wrapper_subclass(t: object) -> bool:
    """False: no tensor is a wrapper of others by `__torch_dispatch__`.

    >>> arete.utils._python_dispatch.is_traceable_wrapper_subclass(arete.ones(1))
    False
    """
    return False


def _get_current_dispatch_mode() -> Any:
    return None


def _get_current_dispatch_mode_stack() -> list:
    return []


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list]:
    yield []  # there are none
