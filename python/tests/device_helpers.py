"""Tests that run once on each device that is here."""
import os

import pytest

import arete

DEVICES = ["cpu"] + ["cuda"] * arete.cuda.is_available()
on_devices = pytest.mark.parametrize("device", DEVICES)
on_devices_of_arrays = pytest.mark.usefixtures("device")  # of a module that has the fixture below

# For programs that tell how much memory they take, in KiB: not that of getrusage(), which a process has from its parent.
PEAK = """
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@pytest.fixture(name="device", params=DEVICES)
def device_of_arrays(request):
    """Where arete.numpy makes its arrays."""
    before = arete.numpy.get_device()
    arete.numpy.set_device(request.param)
    yield request.param
    arete.numpy.set_device(before)


def without_gpus(**more):
    """The environment of a process that sees no GPU: where there are some, networks are spread over them unless a mesh says otherwise."""
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "", **more}


def host(x):
    """NumPy's arrays of arrays, also in lists and tuples; other things themselves."""
    return [host(v) for v in x] if isinstance(x, (list, tuple)) else arete.cupy.asnumpy(x) if hasattr(x, "get") else x
