"""How tensors are printed: the options that set_printoptions() sets, and the numbers alone."""
from __future__ import annotations

from typing import Any

from . import _C
from ._C import set_printoptions

__all__ = ["PRINT_OPTS", "set_printoptions"]


class _PrintOptions:
    """precision, threshold, edgeitems, linewidth and sci_mode as they are.

    >>> arete._tensor_str.PRINT_OPTS.edgeitems
    3
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return _C._print_options()[name]
        except KeyError:
            raise AttributeError(f"there is no option of printing named {name!r}") from None


PRINT_OPTS = _PrintOptions()


def _tensor_str(self: Any, indent: int) -> str:
    """The numbers of a tensor in brackets, without its dtype and device; further lines begin with so many spaces.

    >>> print(arete._tensor_str._tensor_str(arete.eye(2), 2))
    [[1., 0.],
      [0., 1.]]
    """
    text = str(self.detach().cpu()).removeprefix("tensor(")
    end = text.rfind("]") + 1 or min((text.find(c) for c in ",)" if c in text), default=len(text))
    return text[:end].replace("\n" + " " * 7, "\n" + " " * indent)
