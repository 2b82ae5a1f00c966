"""The CUDA driver's functions that programs call by name. A function is a RawKernel, its `.kernel`, or the `.ptr` of that."""
from __future__ import annotations

from ... import cuda as _cuda
from ..._kernels import RawKernel
from ..._kernels._raw import Function


def _kernel_of(function):
    if isinstance(function, Function):
        return function._kernel
    found = function if isinstance(function, RawKernel) else Function.known.get(function)
    if found is None:
        raise ValueError(f"{function!r} is no kernel")
    return found


def occupancyMaxActiveBlocksPerMultiprocessor(func, blockSize, dynamicSMemSize):
    """How many blocks of so many threads, with so many bytes of dynamic shared memory, a multiprocessor holds at once."""
    return _kernel_of(func)._kernel.resident_blocks(blockSize, dynamicSMemSize)


def occupancyMaxPotentialBlockSize(func, dynamicSMemSize, blockSizeLimit):
    """The fewest blocks that fill the GPU, and the threads of a block of which a multiprocessor holds the most; blockSizeLimit 0: any."""
    kernel = _kernel_of(func)
    most = min(kernel.max_threads_per_block, blockSizeLimit or 1024)
    sizes = range(most, 0, -1) if most < 32 else range(most // 32 * 32, 0, -32)
    threads = max(sizes, key=lambda n: n * kernel._kernel.resident_blocks(n, dynamicSMemSize))
    processors = _cuda.get_device_properties(_cuda.current_device()).multi_processor_count
    return kernel._kernel.resident_blocks(threads, dynamicSMemSize) * processors, threads
