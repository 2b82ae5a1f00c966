"""How far a loop over a DataLoader is, and who waited in it for whom."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple

from .... import _C

if TYPE_CHECKING:
    from ..dataloader import DataLoader


class Times:
    """Seconds of waiting in an epoch. Outlives the iterator."""

    def __init__(self) -> None:
        self.consumer_wait = 0.0
        self.feed: Any = None  # of a feed that waits in the loop's place
        self.workers: Callable[[], float] = float  # the sum of the workers' times; 0 without them

    def loop_wait(self) -> float:
        return self.consumer_wait + (0.0 if self.feed is None else self.feed.worker_wait)


class Progress:
    """How far a loop is, and the random states from which its order can be made again. Outlives the iterator.

    `batch` counts those that the loop got; where they have numbers (no stream) it is the lowest number that it did not get, and
    `later` are those above that it got. `shares` is how many of each worker's batches it got, for streams without order, else None."""

    def __init__(self, loader: DataLoader, resume: Optional[dict]) -> None:
        self.source = words_of(loader._source())
        self.program = None if loader.generator is None else words_of(_C.default_generator)  # for samplers without a generator
        self.generators = [words_of(g) for g in loader._generators()]
        sampler = loader._epoch_sampler()
        self.epoch = None if sampler is None else sampler.epoch
        resume = resume or {}
        self.batch: int = resume.get("batch") or 0
        self.later = set(resume.get("later") or ())
        self.numbered = not loader._iterable
        self.shares: Optional[List[int]] = None
        if not self.numbered and loader.num_workers and not (loader.in_order and resume.get("shares") is None):
            # Of an ordered loop's first batches each worker made as many as the others, as long as none was at its end.
            whole, rest = divmod(self.batch, loader.num_workers)
            self.shares = list(resume.get("shares") or [whole + (w < rest) for w in range(loader.num_workers)])
        self.alone = False  # the loop makes the batches itself
        self.done = False

    def got(self, task: int, worker: int) -> None:
        """The loop got a batch."""
        if not self.numbered:
            self.batch += 1
            if self.shares is not None:
                self.shares[worker] += 1
            return
        self.later.add(task)
        while self.batch in self.later:
            self.later.remove(self.batch)
            self.batch += 1

    def state(self, loader: DataLoader) -> dict:
        inner = None
        if self.alone and not self.numbered and hasattr(loader.dataset, "state_dict"):
            inner = loader.dataset.state_dict()
        return state_of(self.source, self.generators, epoch=self.epoch, batch=self.batch, later=sorted(self.later), program=self.program,
                        shares=self.shares and list(self.shares), dataset=inner, replicas=loader._replicas())


def words_of(generator: Any) -> Tuple[int, int]:
    """Seed and offset."""
    return _C._generator_words(generator)


def state_of(source: Optional[Sequence[int]], generators: List[Sequence[int]], **entries: Any) -> dict:
    """A loader's state. Its first entries are the fields of LoaderState in C++."""
    seed, offset = source or (None, None)
    return {"version": 2, "epoch": None, "batch": 0, "seed": seed, "offset": offset, "later": [], "generators": generators,
            "program": None, "shares": None, "dataset": None, "replicas": None, **entries}
