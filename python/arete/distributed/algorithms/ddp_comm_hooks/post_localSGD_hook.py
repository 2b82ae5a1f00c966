"""Gradients that travel among all processes at first, later within subgroups; the rest is up to an averager of parameters."""
from __future__ import annotations

import logging
from typing import Any

from ... import distributed_c10d as dist
from ....futures import Future
from . import default_hooks as default

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """`start_localSGD_iter`: the first step whose gradients are averaged within `subgroup` alone (none: those of this machine), or with
    `post_local_gradient_allreduce=False` not at all."""

    def __init__(self, process_group: Any, subgroup: Any, start_localSGD_iter: int, post_local_gradient_allreduce: bool = True) -> None:
        self.process_group = process_group
        self.subgroup = subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: dist.GradBucket) -> None:
        """Counts steps, by their last buckets."""
        if bucket.is_last():
            self.iter += 1
            if self.iter == self.start_localSGD_iter:
                logging.getLogger(__name__).info("Start to apply local SGD after %s iterations.", self.iter)


def post_localSGD_hook(state: PostLocalSGDState, bucket: dist.GradBucket) -> Future:
    """The mean over all processes, and from `state.start_localSGD_iter` on over the subgroup."""
    is_local = state.iter >= state.start_localSGD_iter
    state.maybe_increase_iter(bucket)
    if not is_local:
        return default._allreduce_fut(state.process_group, bucket.buffer())
    if not state.post_local_gradient_allreduce:
        done: Future = Future()
        done.set_result(bucket.buffer())
        return done
    if state.subgroup is None:
        state.subgroup, _ = dist.new_subgroups()
    return default._allreduce_fut(state.subgroup, bucket.buffer())
