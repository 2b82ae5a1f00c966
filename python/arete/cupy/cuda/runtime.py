"""The CUDA runtime's functions that programs call by name."""
from __future__ import annotations

from ... import cuda as _cuda

memcpyHostToHost, memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice, memcpyDefault = range(5)
is_hip = False


class CUDARuntimeError(RuntimeError):
    """What went wrong in a call of the runtime."""


def _need():
    if not _cuda.is_available():
        raise CUDARuntimeError(f"cudaErrorNoDevice: {_cuda.unavailable_reason()}")


def getDeviceCount():
    return _cuda.device_count()


def getDevice():
    _need()
    return _cuda.current_device()


def setDevice(device):
    _need()
    _cuda.set_device(device)


def deviceSynchronize():
    _need()
    _cuda.synchronize()


def streamSynchronize(stream):
    """Waits for a stream, which is given by its address."""
    _need()
    (_cuda.ExternalStream(stream) if stream else _cuda.default_stream()).synchronize()


def memGetInfo():
    """Bytes of the current GPU that are free, and all."""
    _need()
    return _cuda.mem_get_info()


def getDeviceProperties(device):
    """A dict as the runtime fills it in, with what is known here; the name is bytes."""
    _need()
    p = _cuda.get_device_properties(device)
    return {"name": p.name.encode(), "major": p.major, "minor": p.minor, "totalGlobalMem": p.total_memory,
            "multiProcessorCount": p.multi_processor_count, "warpSize": 32, "maxThreadsPerBlock": 1024}


def deviceCanAccessPeer(device, peer):
    _need()
    return int(_cuda.can_device_access_peer(device, peer))


def driverGetVersion():
    return runtimeGetVersion()


def runtimeGetVersion():
    """The version of CUDA, as 13000."""
    from ... import version

    major, _, minor = (version.cuda or "0.0").partition(".")
    return int(major) * 1000 + int(minor.partition(".")[0] or 0) * 10
