"""Thirty common architectures, each written here from its paper, in plain torch style; the library is an argument."""
from . import classifiers, dense, generative, interaction, sequences, speech, transformers
from .task import MODELS, Task

__all__ = ["MODELS", "Task"]
