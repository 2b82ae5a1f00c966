"""The sampler that divides a dataset among processes."""
from __future__ import annotations

import importlib
import math
from typing import Any, Iterator, Optional

from ... import _C
from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """The indices of one of `num_replicas` processes: each `num_replicas`-th of an order that all of them share.

    Call `set_epoch(epoch)` before each epoch, or every epoch has the same order. So that all processes get equally many, the
    order is filled up from its beginning, or with `drop_last` cut at its end.

    >>> data = arete.utils.data.TensorDataset(arete.arange(6))
    >>> list(arete.utils.data.DistributedSampler(data, num_replicas=2, rank=1, shuffle=False))
    [1, 3, 5]
    """

    def __init__(self, dataset: Any, num_replicas: Optional[int] = None, rank: Optional[int] = None, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False) -> None:
        if num_replicas is None or rank is None:
            try:
                distributed: Any = importlib.import_module("arete.distributed")
            except ImportError:
                distributed = None
            if distributed is None or not distributed.is_available():
                raise RuntimeError("DistributedSampler: arete.distributed is not available: give num_replicas and rank")
            if not distributed.is_initialized():
                raise ValueError("DistributedSampler: the default process group has not been initialized: call init_process_group "
                                 "first, or give num_replicas and rank")
            num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
            rank = distributed.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"rank {rank} of {num_replicas} processes: it must be between 0 and {num_replicas - 1}")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        n = len(dataset)
        self.num_samples = n // num_replicas if drop_last else math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        if self.shuffle:
            generator = _C.Generator().manual_seed(self.seed + self.epoch)
            order = _C._permutation(n, generator).tolist()
        else:
            order = list(range(n))
        if self.total_size > n > 0:
            order = (order * math.ceil(self.total_size / n))
        return iter(order[self.rank:self.total_size:self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the epoch."""
        self.epoch = epoch
