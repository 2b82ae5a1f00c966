"""The loop."""
from __future__ import annotations

import contextlib
import itertools
import math
import os
import sys
import time
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence

from .. import _C, amp, distributed as dist, random
from .._grad_mode import inference_mode
from .._operators import Tensor, cat, full
from ..metrics import MeanMetric
from ..nn import Module
from ..nn.parallel import DistributedDataParallel
from ..nn.utils import clip_grad_norm_
from ..optim.lr_scheduler import ReduceLROnPlateau
from ..serialization import load, save
from ..utils.data import DistributedSampler
from ._callbacks import Callback


def _moved(batch: Any, device: Any) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: _moved(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_moved(value, device) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(_moved(value, device) for value in batch)
    return batch


class Trainer:
    """Trains a module on batches of (input, target); `compute` may be overridden for others.

    `loss`: a function of outputs and targets. `scheduler` steps after each epoch, or with `scheduler_interval="step"` after each update
    (one that wants a figure, as ReduceLROnPlateau, gets `monitor`). `metrics`: of arete.metrics, by name. `accumulate`: batches whose
    gradients are added before an update. `precision`: "bfloat16", or "float16", which scales losses. `folder`: where last.pt and best.pt
    (by `monitor`) are written after each epoch, and last.pt after `checkpoint_every` updates, too. `compile`:
    the module is compiled. `profiler`: its step() is called after each update.

    Started by `arete run`, each process trains on its part: the loader has a DistributedSampler, gradients and figures are those of all
    processes, and rank 0 writes.

    >>> net = nn.Linear(2, 1)
    >>> data = arete.utils.data.TensorDataset(arete.randn(8, 2), arete.randn(8, 1))
    >>> trainer = arete.training.Trainer(net, arete.optim.SGD(net.parameters(), 0.1), F.mse_loss, progress=False)
    >>> history = trainer.fit(arete.utils.data.DataLoader(data, 4), epochs=2)
    >>> sorted(history[-1])
    ['epoch', 'lr', 'seconds', 'step', 'train_loss']
    """

    def __init__(self, model: Module, optimizer: Any, loss: Callable, *, scheduler: Any = None, scheduler_interval: str = "epoch",
                 metrics: Optional[dict] = None, device: Any = None, accumulate: int = 1, clip_norm: Optional[float] = None,
                 precision: Optional[str] = None, callbacks: Sequence[Callback] = (), folder: Optional[str] = None,
                 monitor: Optional[str] = None, mode: str = "min", compile: bool = False, profiler: Any = None,
                 progress: bool = True, checkpoint_every: int = 0) -> None:
        if scheduler_interval not in ("epoch", "step"):
            raise ValueError(f"scheduler_interval must be 'epoch' or 'step', but got {scheduler_interval!r}")
        if scheduler_interval == "step" and isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError("scheduler_interval='step': ReduceLROnPlateau wants a figure, which there is after each epoch")
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', but got {mode!r}")
        if precision not in (None, "float32", "bfloat16", "float16"):
            raise ValueError(f"precision must be 'float32', 'bfloat16' or 'float16', but got {precision!r}")
        if accumulate < 1:
            raise ValueError(f"accumulate must be at least 1, but got {accumulate}")
        if checkpoint_every < 0 or checkpoint_every and folder is None:
            raise ValueError(f"checkpoint_every is a number of updates, and needs a folder, but got {checkpoint_every}")
        if int(os.environ.get("WORLD_SIZE", 1)) > 1 and not dist.is_initialized():
            dist.init_process_group()
        self.is_distributed = dist.is_initialized() and dist.get_world_size() > 1
        self.rank = dist.get_rank() if self.is_distributed else 0
        self.device = _C.device(device) if device is not None else next(model.parameters()).device
        self.model, self.optimizer, self.loss_function = model.to(self.device), optimizer, loss
        self.scheduler, self.scheduler_interval = scheduler, scheduler_interval
        self.metrics = dict(metrics or {})
        self.accumulate, self.clip_norm, self.callbacks = accumulate, clip_norm, list(callbacks)
        self.folder, self.monitor, self.mode, self.profiler, self.progress = folder, monitor, mode, profiler, progress
        self._autocast = None if precision in (None, "float32") else getattr(_C, precision)
        self.scaler = amp.GradScaler(self.device.type, enabled=precision == "float16")
        self._network: Any = DistributedDataParallel(model) if self.is_distributed else model
        if compile:
            from ..compiler import compile as compiled
            self._network = compiled(self._network)
        self.epoch = self.step = 0
        self.history: list[dict] = []
        self.best = math.inf if mode == "min" else -math.inf
        self.loss: Any = None
        self.should_stop = False
        self.checkpoint_every, self._interrupted = checkpoint_every, False
        self._losses, self._loader = MeanMetric(), None  # of the epoch under way
        self._within: Optional[dict] = None  # where the epoch goes on
        self._over = False  # the epoch under way has no more batches
        self._told: Any = None  # what processes answered in _ends()

    def compute(self, batch: Any) -> tuple:
        """Outputs, targets and the loss of a batch, of which metrics take the first two."""
        inputs, target = batch
        outputs = self._network(inputs)
        return outputs, target, self.loss_function(outputs, target)

    def figure(self, name: Optional[str]) -> float:
        """A figure of the last epoch; without a name val_loss, or train_loss where nothing was validated."""
        figures = self.history[-1]
        if name is None:
            name = "val_loss" if "val_loss" in figures else "train_loss"
        if name not in figures:
            raise ValueError(f"there is no figure {name!r}; there are {', '.join(sorted(figures))}")
        return float(figures[name])

    def fit(self, train: Iterable, validation: Optional[Iterable] = None, epochs: int = 1, resume: bool = False) -> list:
        """Trains until there are `epochs` epochs, and gives their figures. `resume`: goes on from last.pt of the folder where it is
        there, between two epochs or within one, with the same bits as if the run had not ended, as long as the loaders draw from the
        program's generator alone."""
        self._check_sampler(train)
        if resume:
            if self.folder is None:
                raise ValueError("resume needs a folder")
            if os.path.exists(os.path.join(self.folder, "last.pt")):
                self.load_checkpoint(os.path.join(self.folder, "last.pt"))
        self.should_stop = self._interrupted = False
        self._told = None
        self._call("on_fit_begin")
        with self.profiler if hasattr(self.profiler, "__enter__") else contextlib.nullcontext():
            while self.epoch < epochs and not self.should_stop and not self._ends(now=True):
                self._one_epoch(train, validation, epochs)
        self._call("on_fit_end")
        return self.history

    def interrupt(self) -> None:
        """Ends fit() after the update under way, of several processes, whichever is told, after the next one. The epoch has
        no figures then, but with a folder the state is saved, so that a resumed run goes on within it."""
        self._interrupted = True

    def validate(self, loader: Iterable) -> dict:
        """The mean loss and the metrics, under "val_" and their names."""
        return self._evaluated(loader, "val_")

    def predict(self, loader: Iterable) -> Any:
        """Outputs for all inputs, one after another, on the host. Batches may be inputs alone, or lists that begin with them."""
        results = []
        with inference_mode(), self._mode(False):
            for batch in loader:
                batch = _moved(batch, self.device)
                with self._casting():
                    results.append(self._network(batch[0] if isinstance(batch, (list, tuple)) else batch).cpu())
        if not results:
            raise ValueError("predict needs at least one batch")
        return cat(results)

    def state_dict(self) -> dict:
        """All that a run needs to go on. Of several processes all call it together."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": self.epoch, "step": self.step,
                 "history": self.history, "best": self.best, "scaler": self.scaler.state_dict(),
                 "random": self._of_all(random.get_rng_state()),
                 "callbacks": [c.state_dict() for c in self.callbacks]}
        if self.scheduler is not None:
            state["scheduler"] = self.scheduler.state_dict()
        if self._loader is not None:  # within an epoch
            if not hasattr(self._loader, "state_dict"):
                raise ValueError("within an epoch the state of a run needs a loader that has a state_dict()")
            state["within"] = self._of_all({"loader": self._loader.state_dict(), "losses": self._on_host(self._losses),
                                            "metrics": {name: self._on_host(m) for name, m in self.metrics.items()},
                                            "seconds": time.monotonic() - self._start, "over": self._over})
        return state

    def load_state_dict(self, state: dict) -> None:
        """Goes back to a state; the trainer has been made with the same arguments."""
        if len(state["callbacks"]) != len(self.callbacks) or ("scheduler" in state) != (self.scheduler is not None):
            raise ValueError("the saved run had other callbacks, or a scheduler where this one has none (or none where it has one)")
        world, within = dist.get_world_size() if self.is_distributed else 1, state.get("within")
        if within is not None and len(within) != world:
            raise ValueError(f"the state is of {len(within)} processes within an epoch, where as many go on with it, but this run has "
                             f"{world}; between epochs the number may change")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        for callback, own in zip(self.callbacks, state["callbacks"]):
            callback.load_state_dict(own)
        self.epoch, self.step, self.best = state["epoch"], state["step"], state["best"]
        self.history = [dict(figures) for figures in state["history"]]
        self._within = None if within is None else within[self.rank]
        # With another number of processes nothing is as it was: random numbers go on from where they are.
        if len(state["random"]) == world:
            random.set_rng_state(state["random"][self.rank])

    def save_checkpoint(self, path: str, state: Optional[dict] = None) -> None:
        """Writes a state, by default the present one; the file appears complete or not at all. Rank 0 writes."""
        state = self.state_dict() if state is None else state
        if self.rank == 0:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            save(state, path)

    def load_checkpoint(self, path: str) -> None:
        """Reads a state."""
        self.load_state_dict(load(path, map_location="cpu"))

    # ---- inside

    def _of_all(self, own: Any) -> list:
        """The objects of all processes."""
        if not self.is_distributed:
            return [own]
        found: list = [None] * dist.get_world_size()
        dist.all_gather_object(found, own)
        return found

    @staticmethod
    def _on_host(metric: Any) -> dict:
        return {name: value.cpu() for name, value in metric.state_dict().items()}

    def _ends(self, now: bool = False) -> bool:
        """Whether a process was interrupted; several are asked together, and answer as of the update before, so that no device idles until
        this one's answers are there, unless they are wanted `now`."""
        if not self.is_distributed:
            return self._interrupted
        flag = full((), int(self._interrupted), dtype=_C.int32, device=self.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        before, self._told = self._told, flag.to("cpu", non_blocking=True)
        if bool(self._told if now else before):
            self._interrupted = True
            return True
        return False

    def _call(self, name: str) -> None:
        for callback in self.callbacks:
            getattr(callback, name)(self)

    def _check_sampler(self, loader: Any) -> None:
        if self.is_distributed and not isinstance(getattr(loader, "sampler", None), DistributedSampler):
            raise ValueError("with several processes the training loader needs a DistributedSampler: all of them would train on the same")

    def _casting(self) -> Any:
        return contextlib.nullcontext() if self._autocast is None else amp.autocast(self.device.type, dtype=self._autocast)

    @contextlib.contextmanager
    def _mode(self, training: bool) -> Iterator[None]:
        net = self._network if isinstance(self._network, Module) else self.model
        before = net.training
        net.train(training)
        try:
            yield
        finally:
            net.train(before)

    def _one_epoch(self, train: Any, validation: Any, epochs: int) -> None:
        self._start = time.monotonic()
        if isinstance(getattr(train, "sampler", None), DistributedSampler):
            train.sampler.set_epoch(self.epoch)
        self._call("on_epoch_begin")
        losses, shown = self._losses, 0.0
        losses.reset()
        for metric in self.metrics.values():
            metric.reset()
        self._over = False
        if self._within is not None:
            within, self._within = self._within, None
            self._over = within.get("over", False)
            self._start -= within["seconds"]
            losses.load_state_dict(within["losses"])
            for name, metric in self.metrics.items():
                metric.load_state_dict(within["metrics"][name])
            if not self._over:
                train.load_state_dict(within["loader"])
        self._loader = train
        with self._mode(True):
            batches = iter(() if self._over else train)
            while group := list(itertools.islice(batches, self.accumulate)):
                self._over = len(group) < self.accumulate  # the loader is at its beginning again
                self._update(group, losses)
                self._call("on_step_end")
                if self.profiler is not None:
                    self.profiler.step()
                if self.progress and self.rank == 0 and sys.stderr.isatty() and time.monotonic() - shown > 0.5:
                    shown = time.monotonic()
                    sys.stderr.write(f"\repoch {self.epoch + 1}/{epochs}  step {self.step}  loss {float(losses.compute()):.4f} ")
                    sys.stderr.flush()
                ends = self._ends()
                if self.folder is not None and (ends or self.checkpoint_every and self.step % self.checkpoint_every == 0):
                    self.save_checkpoint(os.path.join(self.folder, "last.pt"))
                if ends:
                    self._loader = None
                    return
                if self.should_stop:
                    break
        self._loader = None
        figures = {"train_loss": float(self._total(losses)), **self._values("train_")}
        if validation is not None:
            figures.update(self._evaluated(validation, "val_"))
        self.epoch += 1
        figures.update(epoch=self.epoch, step=self.step, lr=float(self.optimizer.param_groups[0]["lr"]),
                       seconds=time.monotonic() - self._start)
        self.history.append(figures)
        if self.scheduler is not None and self.scheduler_interval == "epoch":
            self._step_scheduler()
        self._call("on_epoch_end")
        if self.progress and self.rank == 0:
            text = "  ".join(f"{k} {v:.4f}" for k, v in figures.items() if k not in ("epoch", "step", "lr", "seconds"))
            clear = "\r" if sys.stderr.isatty() else ""
            print(f"{clear}epoch {self.epoch}/{epochs}  {text}  {figures['seconds']:.1f} s", file=sys.stderr)
        self._keep()

    @staticmethod
    def _size_of(target: Any) -> int:
        """How much a batch counts in the mean loss."""
        return len(target) if isinstance(target, Tensor) and target.dim() else 1

    def _step_scheduler(self) -> None:
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(self.figure(self.monitor))
        else:
            self.scheduler.step()

    def _update(self, group: list, losses: MeanMetric) -> None:
        self.optimizer.zero_grad()
        total = None
        for i, batch in enumerate(group):
            batch = _moved(batch, self.device)
            last = i + 1 == len(group)
            sync = contextlib.nullcontext() if last or not self.is_distributed else self._network.no_sync()
            with sync:
                with self._casting():
                    outputs, target, loss = self.compute(batch)
                self.scaler.scale(loss / len(group)).backward()
            loss = loss.detach()
            losses.update(loss, self._size_of(target))
            total = loss / len(group) if total is None else total + loss / len(group)
            for metric in self.metrics.values():
                metric.update(outputs.detach(), target)
        self.loss = total
        if self.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1
        if self.scheduler is not None and self.scheduler_interval == "step":
            self.scheduler.step()

    def _total(self, metric: Any) -> Any:
        return metric.to(self.device).sync_and_compute() if self.is_distributed else metric.compute()

    def _values(self, prefix: str) -> dict:
        found: dict = {}
        for name, metric in self.metrics.items():
            value = self._total(metric)
            found.update({prefix + key: float(v) for key, v in value.items()} if isinstance(value, dict) else
                         {prefix + name: float(value) if value.numel() == 1 else value.tolist()})
        return found

    def _evaluated(self, loader: Iterable, prefix: str) -> dict:
        losses = MeanMetric()
        for metric in self.metrics.values():
            metric.reset()
        with inference_mode(), self._mode(False):
            for batch in loader:
                with self._casting():
                    outputs, target, loss = self.compute(_moved(batch, self.device))
                losses.update(loss, self._size_of(target))
                for metric in self.metrics.values():
                    metric.update(outputs, target)
        return {prefix + "loss": float(self._total(losses)), **self._values(prefix)}

    def _keep(self) -> None:
        value = self.figure(self.monitor)
        better = value < self.best if self.mode == "min" else value > self.best
        if better:
            self.best = value
        if self.folder is None:
            return
        state = self.state_dict()
        self.save_checkpoint(os.path.join(self.folder, "last.pt"), state)
        if better:
            self.save_checkpoint(os.path.join(self.folder, "best.pt"), state)
