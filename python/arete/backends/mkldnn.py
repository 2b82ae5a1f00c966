"""oneDNN, of which the products and convolutions of CPUs are."""
from __future__ import annotations

from typing import Any

from . import _switches


def is_available() -> bool:
    return True


class _MKLDNN(_switches.Switches):
    @property
    def enabled(self) -> bool:
        """Always: there are no other products and convolutions of CPUs."""
        return True

    @enabled.setter
    def enabled(self, value: Any) -> None:
        if not value:
            raise RuntimeError("mkldnn.enabled: oneDNN cannot be switched off, CPUs have no other products and convolutions")


_switches.become(__name__, _MKLDNN)
