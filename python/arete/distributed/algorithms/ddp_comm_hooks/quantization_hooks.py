"""Hooks that exchange gradients as bytes: each process rounds its own to 256 values and all add up what the others sent."""
from __future__ import annotations

from typing import Any

from ... import distributed_c10d as dist
from ....futures import Future
from .... import _C, _operators

__all__ = ["quantization_pertensor_hook", "quantization_perchannel_hook"]

_MOST = 255  # of a byte
_LEAST_SCALE = 2.0**-23  # float32's epsilon, for gradients that are zero


def _exchange(process_group: Any, rows: Any) -> Any:
    """The mean over the processes of a matrix, each of whose rows travels with a scale and a zero point of its own."""
    group = dist._of(process_group)
    low, high = rows.amin(1, keepdim=True).clamp(max=0), rows.amax(1, keepdim=True).clamp(min=0)
    scale = (high / _MOST - low / _MOST).clamp(min=_LEAST_SCALE)  # high - low may be infinite
    zero = (-(low / scale).round()).clamp(0, _MOST)
    mine = [_operators.cat([scale, zero], 1), ((rows / scale).round() + zero).clamp(0, _MOST).to(_C.uint8)]
    scales, values = [[_operators.empty_like(t) for _ in range(group.size())] for t in mine]
    calls = [dist.all_gather(into, t, group=group, async_op=True) for into, t in zip((scales, values), mine)]

    def mean(_: Any) -> Any:
        for call in calls:
            call.wait()
        return sum(s[:, :1] / group.size() * (v.to(_C.float32) - s[:, 1:]) for s, v in zip(scales, values))

    return calls[-1].get_future().then(mean)


def _exchange_rows(process_group: Any, buffer: Any, size: int) -> Future:
    """As `_exchange`, of a tensor of one dimension in rows of `size`; complex numbers are two each."""
    flat = (_operators.view_as_real(buffer).reshape(-1) if buffer.is_complex() else buffer).float()
    count = flat.numel()
    rows = _operators.cat([flat, flat.new_zeros(-count % size)]).reshape(-1, size)

    def done(exchanged: Any) -> Any:
        mean = exchanged.value().reshape(-1)[:count]
        return _operators.view_as_complex(mean.reshape(-1, 2)) if buffer.is_complex() else mean

    return _exchange(process_group, rows).then(done)


def quantization_pertensor_hook(process_group: Any, bucket: dist.GradBucket) -> Future:
    """The mean of gradients that travel as bytes between the least and the greatest one of a process' bucket."""
    buffer = bucket.buffer()
    return _exchange_rows(process_group, buffer, max(1, buffer.numel() * (2 if buffer.is_complex() else 1)))


def quantization_perchannel_hook(process_group: Any, bucket: dist.GradBucket, bucket_size: int = 512) -> Future:
    """As `quantization_pertensor_hook`, with a least and a greatest one of each `bucket_size` gradients that follow each other."""
    return _exchange_rows(process_group, bucket.buffer(), bucket_size)
