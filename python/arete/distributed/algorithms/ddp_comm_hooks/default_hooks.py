"""Hooks that exchange means, as they are or in half the bytes."""
from __future__ import annotations

from typing import Any, Callable, Optional

from ... import distributed_c10d as dist
from ....futures import Future
from .... import _C

__all__ = ["allreduce_hook", "fp16_compress_hook", "bf16_compress_hook", "fp16_compress_wrapper", "bf16_compress_wrapper"]


def _allreduce_fut(process_group: Any, tensor: Any) -> Future:
    """The mean of a tensor over the processes of a group, or of the default one; the tensor is overwritten."""
    group = dist._of(process_group)
    tensor.div_(group.size())
    return dist.all_reduce(tensor, group=group, async_op=True).get_future().then(lambda done: done.value()[0])


def allreduce_hook(process_group: Any, bucket: dist.GradBucket) -> Future:
    """The mean, as without a hook."""
    return _allreduce_fut(process_group, bucket.buffer())


def _compress_hook(dtype: Any, process_group: Any, bucket: dist.GradBucket) -> Future:
    buffer = bucket.buffer()
    small = buffer.to(dtype)
    return _allreduce_fut(process_group, small).then(lambda done: buffer.copy_(done.value()))


def fp16_compress_hook(process_group: Any, bucket: dist.GradBucket) -> Future:
    """The mean of gradients that travel as float16."""
    return _compress_hook(_C.float16, process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: dist.GradBucket) -> Future:
    """The mean of gradients that travel as bfloat16."""
    return _compress_hook(_C.bfloat16, process_group, bucket)


def _wrapper(dtype: Any, hook: Callable) -> Callable:
    def compressing(state: Optional[Any], bucket: dist.GradBucket) -> Future:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))
        return hook(state, bucket).then(lambda done: buffer.copy_(done.value()))

    return compressing


def fp16_compress_wrapper(hook: Callable) -> Callable:
    """A hook whose gradients are cast to float16 first."""
    return _wrapper(_C.float16, hook)


def bf16_compress_wrapper(hook: Callable) -> Callable:
    """A hook whose gradients are cast to bfloat16 first."""
    return _wrapper(_C.bfloat16, hook)
