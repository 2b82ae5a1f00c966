"""What the driver tells of a GPU as a whole, whoever uses it: NVML through the package nvidia-ml-py from PyPI."""
from __future__ import annotations

import contextlib
from typing import Any, Iterator

from .. import _C
from .._cuda_streams import _number

__all__ = ["utilization", "memory_usage", "temperature", "power_draw", "clock_rate", "device_memory_used"]


@contextlib.contextmanager
def _device(device: Any) -> Iterator[tuple]:
    """NVML's module and its handle of the GPU that CUDA gives this number, by its place on the PCI bus: NVML's numbers are others, in
    another order and of GPUs that CUDA is not shown."""
    try:
        import pynvml  # type: ignore[import-not-found]
    except ImportError as e:
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed or it can't be imported.") from e
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as e:
        raise RuntimeError(f"cuda driver can't be loaded: {e}") from e
    try:
        yield pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(_C._cuda.pci_bus_id(_number(device)))
    finally:
        pynvml.nvmlShutdown()


def utilization(device: Any = None) -> int:
    """The percentage of the last sample period in which kernels ran on the GPU."""
    with _device(device) as (nvml, handle):
        return nvml.nvmlDeviceGetUtilizationRates(handle).gpu


def memory_usage(device: Any = None) -> int:
    """The percentage of the last sample period in which the GPU's memory was read or written."""
    with _device(device) as (nvml, handle):
        return nvml.nvmlDeviceGetUtilizationRates(handle).memory


def temperature(device: Any = None) -> int:
    """The temperature of the GPU in degrees Celsius."""
    with _device(device) as (nvml, handle):
        return nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)


def power_draw(device: Any = None) -> int:
    """The power that the GPU draws in milliwatts, the mean of the last second."""
    with _device(device) as (nvml, handle):
        return nvml.nvmlDeviceGetPowerUsage(handle)


def clock_rate(device: Any = None) -> int:
    """The clock of the multiprocessors in MHz."""
    with _device(device) as (nvml, handle):
        return nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)


def device_memory_used(device: Any = None) -> int:
    """Bytes of the GPU's memory that all processes have together."""
    with _device(device) as (nvml, handle):
        return nvml.nvmlDeviceGetMemoryInfo(handle).used
