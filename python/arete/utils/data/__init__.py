"""Datasets, samplers and the loader that makes batches of them, with PyTorch's names.

    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, num_workers=2)
    for xb, yb in loader: ...

Workers are threads of this process: nothing is pickled or copied between processes, and memory is not multiplied.
"""
from __future__ import annotations

from ._utils.collate import collate, default_collate, default_convert
from ._utils.worker import WorkerInfo, get_worker_info
from .dataloader import DataLoader, LoaderStats, _DatasetKind
from .dataset import (ChainDataset, ConcatDataset, Dataset, IterableDataset, StackDataset, Subset, TensorDataset,
                      TokenDataset, random_split)
from .prefetch import DevicePrefetcher
from .distributed import DistributedSampler
from .sampler import (BatchSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler,
                      WeightedRandomSampler)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DevicePrefetcher", "DistributedSampler", "IterableDataset",
    "LoaderStats", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset",
    "TokenDataset", "WeightedRandomSampler", "WorkerInfo", "_DatasetKind", "collate", "default_collate", "default_convert",
    "get_worker_info", "random_split",
]
