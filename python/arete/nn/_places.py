"""Where in a network an exception was raised: a note on it, made when it leaves the innermost module that is part of another."""
from __future__ import annotations

import pathlib
import sys
from types import CodeType, FrameType
from typing import Any, Iterator, Optional

from .._C import Tensor

_FOLDER = str(pathlib.Path(__file__).resolve().parents[1])
_LINKED = str(pathlib.Path(__file__).absolute().parents[1])


class PlaceNote(str):
    """The text of such a note, which tells modules further out that there is one."""


def _is_own(code: CodeType) -> bool:
    return code.co_filename.startswith((_FOLDER, _LINKED, "<nn."))


def _frames(frame: Optional[FrameType]) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _described(values: Any) -> list[str]:
    found = []
    for v in values:
        if isinstance(v, Tensor):
            made = v.grad_fn
            found.append(f"{v.dtype._name}{list(v.shape)}" + (f" from {made!r}" if made is not None else ""))
        elif isinstance(v, (tuple, list)):
            found += _described(v)
    return found


def _note(error: BaseException, frame: FrameType) -> str:
    """Of an error that leaves the call of a module, which runs in this frame; empty if no other module calls that."""
    calls = [f for f in _frames(frame) if f.f_code is frame.f_code]
    modules = [f.f_locals["self"] for f in calls]
    path = []
    for inner, outer in zip(modules, modules[1:]):
        if inner is not outer:
            path.append(next((name for name, m in outer.named_modules() if m is inner), None) or f"<{type(inner).__name__}>")
    if not path:
        return ""
    line = next(((f.f_code, f.f_lineno) for f in _frames(frame) if not _is_own(f.f_code)), None)
    raised = error.__traceback__
    while raised is not None:
        if not _is_own(raised.tb_frame.f_code):
            line = raised.tb_frame.f_code, raised.tb_lineno
        raised = raised.tb_next
    text = f"In module '{'.'.join(reversed(path))}' of class {type(modules[0]).__name__}, part of {type(modules[-1]).__name__}"
    if line is not None:
        text += f", line {line[1]} of {line[0].co_filename}"
    given = _described((calls[0].f_locals["args"], tuple(calls[0].f_locals["kwargs"].values())))
    return text + (f", given {', '.join(given)}" if given else "")


def note(error: Exception) -> None:
    """Says on an error where it was raised; called by the call of a module that it leaves."""
    if any(type(n) is PlaceNote for n in getattr(error, "__notes__", ())):
        return
    try:
        text = PlaceNote(_note(error, sys._getframe(1)))
    except Exception:  # noqa: BLE001: the error is the one to tell of
        return
    if not text:
        return
    if sys.version_info >= (3, 11):
        error.add_note(text)
    else:  # there are no notes: for others to see that it was said, and in the text where that is one
        error.__notes__ = [text]
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (f"{error.args[0]}\n{text}",)
