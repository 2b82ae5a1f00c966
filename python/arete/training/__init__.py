"""A training loop: epochs, validation, checkpoints, early stopping, mixed precision, several processes."""
from ._callbacks import Callback as Callback, EarlyStopping as EarlyStopping
from ._trainer import Trainer as Trainer

__all__ = ["Callback", "EarlyStopping", "Trainer"]
