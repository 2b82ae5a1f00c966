"""Losses of logits whose classes are spread over processes."""
from .._loss import loss_parallel as loss_parallel

__all__ = ["loss_parallel"]
