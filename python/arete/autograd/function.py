"""Custom functions under the name of torch's module."""
from . import Function, FunctionCtx, once_differentiable  # noqa: F401

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
