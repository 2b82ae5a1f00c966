"""The texts of schemas, taken apart."""
from __future__ import annotations

from .. import _C


def split(text: str) -> list[str]:
    """The parts of "int a, int[2] b=[1, 2]" between commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text + ","):
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
        depth += c in "[("
        depth -= c in "])"
    return [p for p in parts if p]


def arguments(signature: str) -> list[tuple[str, str, bool]]:
    """Name, default as written ("" for none) and "by keyword only" of each argument of "(Tensor self, int dim=-1, *, ...)"."""
    found, keyword = [], False
    for part in split(signature[1:-1]):
        if part == "*":
            keyword = True
            continue
        left, _, default = part.partition("=")
        found.append((left.rsplit(" ", 1)[1], default, keyword))
    return found


def signature_of(record: str) -> str:
    schema = _C._record(record)["schema"]
    return schema[schema.index("(") : schema.rindex("->")].strip()
