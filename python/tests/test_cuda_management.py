"""What the driver tells of GPUs, by a stand-in of its Python package; with a GPU and the package, by the real one."""
import importlib.util
import sys
import types

import fake_gpus
import pytest

import arete

# The package's functions, for GPUs at two places of the PCI bus.
STAND_IN = """
import sys, types

nvml = sys.modules["pynvml"] = types.ModuleType("pynvml")
nvml.NVMLError = type("NVMLError", (Exception,), {})
nvml.open, nvml.NVML_TEMPERATURE_GPU, nvml.NVML_CLOCK_SM = 0, 0, 1
known = {"0000:89:00.0": 1, "0000:90:00.0": 2}

def change(by):
    nvml.open += by

def handle(pci_bus_id):
    if pci_bus_id not in known:
        raise nvml.NVMLError("not found")
    return known[pci_bus_id]

nvml.nvmlInit, nvml.nvmlShutdown, nvml.nvmlDeviceGetHandleByPciBusId = lambda: change(1), lambda: change(-1), handle
nvml.nvmlDeviceGetUtilizationRates = lambda h: types.SimpleNamespace(gpu=40 * h, memory=7 * h)
nvml.nvmlDeviceGetTemperature = lambda h, sensor: {0: 50 + h}[sensor]
nvml.nvmlDeviceGetPowerUsage = lambda h: 250_000 * h
nvml.nvmlDeviceGetClockInfo = lambda h, clock: {1: 1980 + h}[clock]
nvml.nvmlDeviceGetMemoryInfo = lambda h: types.SimpleNamespace(used=h << 30)
"""


def test_what_is_told_is_of_the_gpu_that_cuda_means():
    fake_gpus.run(STAND_IN + """
import os
def told(device):
    names = ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate", "device_memory_used")
    return [getattr(torch.cuda, name)(device) for name in names]

first, second = [80, 14, 52, 500_000, 1982, 2 << 30], [40, 7, 51, 250_000, 1981, 1 << 30]
assert told(0) == first and told("cuda:1") == second and told(None) == first and nvml.open == 0
with torch.cuda.device(1):
    assert told(None) == second
os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # too late for CUDA
assert told(0) == first
try:
    torch.cuda.utilization(2)
except RuntimeError as e:
    assert "2" in str(e), e
else:
    raise AssertionError
assert nvml.open == 0
""")


def test_processes_are_asked_for_by_the_place_on_the_bus(tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho \"12, $1\"\n")
    program.chmod(0o755)
    fake_gpus.run(f"""
import os
os.environ["PATH"] = {str(tmp_path)!r} + ":" + os.environ["PATH"]
ask = torch.cuda.list_gpu_processes
assert ask(1).splitlines() == ["GPU:1", "process         12 uses --id=0000:89:00.0 MB GPU memory"], ask(1)
with torch.cuda.device(1):
    assert ask() == ask(1) and ask(0).splitlines()[0] == "GPU:0" and "--id=0000:90:00.0" in ask(0)
""")


def test_what_is_missing_is_said(monkeypatch):
    def fails():
        raise module.NVMLError("no driver")

    module = types.ModuleType("pynvml")
    module.NVMLError, module.nvmlInit = type("NVMLError", (Exception,), {}), fails
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with pytest.raises(RuntimeError, match="cuda driver can't be loaded: no driver"):
        arete.cuda.utilization(0)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ModuleNotFoundError, match="nvidia-ml-py"):
        arete.cuda.power_draw()


@pytest.mark.skipif(not arete.cuda.is_available() or importlib.util.find_spec("pynvml") is None, reason="needs a GPU and nvidia-ml-py")
def test_a_real_gpu():
    assert 0 <= arete.cuda.utilization() <= 100 and 0 < arete.cuda.temperature() < 120 and arete.cuda.device_memory_used() > 0
