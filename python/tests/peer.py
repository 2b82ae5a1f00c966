"""PyTorch and its modules, beside which tests run what both libraries do. Where they are not installed something stands in their
place that may be named but not used: a test that comes to use it is skipped, and no other."""
import importlib

import pytest


class Missing:
    """A module that is not installed, or something in it."""

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return self._name

    def __getattr__(self, name):
        if name in ("__all__", "__file__", "__name__", "__signature__"):
            self._use()
        if name.startswith("__"):  # what Python and pytest ask everything for
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")

    def _use(self, *_, **__):
        pytest.skip(f"{self._name.partition('.')[0]} is not installed", allow_module_level=True)

    __call__ = __eq__ = __ne__ = __iter__ = __len__ = __getitem__ = __enter__ = __instancecheck__ = __mro_entries__ = __dir__ = _use
    __hash__ = object.__hash__


def peer(name="torch"):
    """The module of this name, or what stands in its place."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return Missing(name)
