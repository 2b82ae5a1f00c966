"""Samplers that go on where a job ended."""
from __future__ import annotations

import math
from typing import Any, Iterator, Optional

from ..... import _C
from .....utils.data import DistributedSampler

__all__ = ["ElasticDistributedSampler"]


class ElasticDistributedSampler(DistributedSampler):
    """A DistributedSampler of the samples from `start_index` on, for an epoch that was begun by a job with another number of processes.

    >>> data = arete.utils.data.TensorDataset(arete.arange(8))
    >>> len(arete.distributed.elastic.utils.data.ElasticDistributedSampler(data, num_replicas=2, rank=0, start_index=4))
    2
    """

    def __init__(self, dataset: Any, num_replicas: Optional[int] = None, rank: Optional[int] = None, start_index: int = 0) -> None:
        super().__init__(dataset, num_replicas, rank)
        if start_index >= len(dataset):
            raise ValueError(f"Start index {start_index} should be less than dataset size {len(dataset)}")
        self.start_index = start_index
        self.num_samples = math.ceil((len(dataset) - start_index) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        left = len(self.dataset) - self.start_index
        order = _C._permutation(left, _C.Generator().manual_seed(self.epoch)).tolist()
        order = [self.start_index + i for i in order * math.ceil(self.total_size / left)]
        return iter(order[self.rank:self.total_size:self.num_replicas])
