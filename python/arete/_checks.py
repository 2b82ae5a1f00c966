"""Conditions that programs say and that are looked at here."""
from __future__ import annotations

import builtins

from . import _C
from ._C import Tensor


def _assert(condition, message):
    """AssertionError with the message where a condition, a bool or a tensor of one, is False.

    >>> arete._assert(arete.tensor(1) > 2, "one is not more than two")
    Traceback (most recent call last):
    AssertionError: one is not more than two
    """
    asked = getattr(type(condition), "__torch_function__", None)
    if asked is not None and not isinstance(condition, Tensor):
        return asked(_assert, (type(condition),), (condition, message), {})  # what records calls has this one, too
    assert condition, message


def _assert_async(input, assert_msg="Expected Tensor with single nonzero value, but got zero"):  # noqa: A002
    """RuntimeError if the one element is zero; on GPUs, too, the program waits for it.

    >>> arete._assert_async(arete.tensor(0), "zero")
    Traceback (most recent call last):
    RuntimeError: zero
    """
    if input.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous" if input.numel() else
                           "Boolean value of Tensor with no values is ambiguous")
    if input.device.type != "meta" and not input.item():
        raise RuntimeError(assert_msg)


def _check_with(error_type, cond, message=None):
    """An error of this type with message() if `cond` is False.

    >>> arete._check_with(ValueError, False, lambda: "no")
    Traceback (most recent call last):
    ValueError: no
    """
    if not isinstance(cond, builtins.bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not cond:
        raise error_type("Expected cond to be True, but got False" if message is None else str(message()))


def _check_is_size(i, message=None, *, max=None):  # noqa: A002
    """RuntimeError with message() if `i` is no size: less than 0, or more than `max`.

    >>> arete._check_is_size(-1, lambda: "less than none")
    Traceback (most recent call last):
    RuntimeError: less than none
    """
    _check_with(RuntimeError, i >= 0 and (max is None or i <= max), message)


def _check_tensor_all_with(error_type, cond, message=None):
    """An error of this type with message() if an element of a tensor of bools is False.

    >>> arete._check_tensor_all_with(ValueError, arete.tensor([True, False]), lambda: "not all")
    Traceback (most recent call last):
    ValueError: not all
    """
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not _C.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, builtins.bool(cond.all().item()), message)


def _check_tensor_all(cond, message=None):
    """RuntimeError with message() if an element of a tensor of bools is False.

    >>> arete._check_tensor_all(arete.tensor([True, True]))
    """
    _check_tensor_all_with(RuntimeError, cond, message)


def _shape_as_tensor(input):  # noqa: A002
    """The sizes as a tensor.

    >>> arete._shape_as_tensor(arete.ones(2, 3))
    tensor([2, 3])
    """
    return _C.tensor(list(input.shape), dtype=_C.int64)
