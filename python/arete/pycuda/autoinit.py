"""Programs import it for what it does in PyCUDA: here a device is ready when it is first used."""
from __future__ import annotations

from . import driver

device = driver.Device(0)
context = driver.Context
