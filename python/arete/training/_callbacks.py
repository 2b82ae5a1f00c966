"""What is called while a trainer runs."""
from __future__ import annotations

import math
from typing import Any


class Callback:
    """Base class: each method does nothing. What must survive a resumed run is in `state_dict`.

    >>> class Print(arete.training.Callback):
    ...     def on_epoch_end(self, trainer):
    ...         print(trainer.history[-1]["epoch"])
    """

    def on_fit_begin(self, trainer: Any) -> None:
        """Before the first epoch, after what was saved has been loaded."""

    def on_epoch_begin(self, trainer: Any) -> None:
        """Before the first batch of an epoch."""

    def on_step_end(self, trainer: Any) -> None:
        """After an update; `trainer.step` counts them, `trainer.loss` is the mean loss of its batches, on the device."""

    def on_epoch_end(self, trainer: Any) -> None:
        """After validation, before the checkpoint; figures are in `trainer.history[-1]`."""

    def on_fit_end(self, trainer: Any) -> None:
        """After the last epoch."""

    def state_dict(self) -> dict:
        """What a checkpoint keeps."""
        return {}

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes it back."""


class EarlyStopping(Callback):
    """Ends training after an epoch when a figure has not become better by more than `min_delta` for `patience` epochs, or is no
    longer finite.

    >>> arete.training.EarlyStopping("val_loss", patience=3).best
    inf
    """

    def __init__(self, monitor: str = "val_loss", patience: int = 3, min_delta: float = 0.0, mode: str = "min") -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', but got {mode!r}")
        if patience < 0:
            raise ValueError(f"patience must not be negative, but got {patience}")
        self.monitor, self.patience, self.min_delta, self.mode = monitor, patience, min_delta, mode
        self.best = math.inf if mode == "min" else -math.inf
        self.waited = 0

    def on_epoch_end(self, trainer: Any) -> None:
        value = trainer.figure(self.monitor)
        gain = self.best - value if self.mode == "min" else value - self.best
        if gain > self.min_delta:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        if not math.isfinite(value) or self.waited > self.patience:
            trainer.should_stop = True

    def state_dict(self) -> dict:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state_dict: dict) -> None:
        self.best, self.waited = state_dict["best"], state_dict["waited"]
