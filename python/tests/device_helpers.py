"""Tests that run once on each device that is here."""
import pytest

import arete

on_devices = pytest.mark.parametrize("device", ["cpu"] + ["cuda"] * arete.cuda.is_available())
