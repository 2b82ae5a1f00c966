"""What the driver tells of GPUs, by a stand-in of its Python package; with a GPU and the package, by the real one."""
import importlib.util
import sys
import types

import pytest

import arete

NAMES = {"utilization": 40, "memory_usage": 7, "temperature": 51, "power_draw": 250_000, "clock_rate": 1980, "device_memory_used": 1 << 30}


@pytest.fixture
def nvml(monkeypatch):
    module = types.ModuleType("pynvml")
    module.NVMLError = type("NVMLError", (Exception,), {})
    module.open, module.asked = 0, []

    def change(by):
        module.open += by

    def handle(name):
        module.asked.append(name)
        return name

    module.nvmlInit, module.nvmlShutdown = lambda: change(1), lambda: change(-1)
    module.nvmlDeviceGetHandleByIndex = module.nvmlDeviceGetHandleByUUID = handle
    module.nvmlDeviceGetUtilizationRates = lambda h: types.SimpleNamespace(gpu=40, memory=7)
    module.NVML_TEMPERATURE_GPU, module.NVML_CLOCK_SM = 0, 1
    module.nvmlDeviceGetTemperature = lambda h, sensor: {0: 51}[sensor]
    module.nvmlDeviceGetPowerUsage = lambda h: 250_000
    module.nvmlDeviceGetClockInfo = lambda h, clock: {1: 1980}[clock]
    module.nvmlDeviceGetMemoryInfo = lambda h: types.SimpleNamespace(used=1 << 30)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return module


def test_what_is_told(nvml, monkeypatch):
    assert {name: getattr(arete.cuda, name)(0) for name in NAMES} == NAMES and nvml.open == 0
    assert arete.cuda.temperature("cuda:0") == 51
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8a")
    nvml.asked.clear()
    arete.cuda.utilization(0)
    arete.cuda.utilization(1)
    assert nvml.asked == [3, "GPU-8a"]
    with pytest.raises(RuntimeError, match="device 2 is not visible"):
        arete.cuda.utilization(2)
    assert nvml.open == 0


def test_what_is_missing_is_said(nvml, monkeypatch):
    def fails():
        raise nvml.NVMLError("no driver")

    nvml.nvmlInit = fails
    with pytest.raises(RuntimeError, match="cuda driver can't be loaded: no driver"):
        arete.cuda.utilization(0)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ModuleNotFoundError, match="nvidia-ml-py"):
        arete.cuda.power_draw()


@pytest.mark.skipif(not arete.cuda.is_available() or importlib.util.find_spec("pynvml") is None, reason="needs a GPU and nvidia-ml-py")
def test_a_real_gpu():
    assert 0 <= arete.cuda.utilization() <= 100 and 0 < arete.cuda.temperature() < 120 and arete.cuda.device_memory_used() > 0
