"""Dictionaries whose keys are objects by identity, which do not keep them."""
from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref):
    """A weak reference that is equal to others of the same object."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        super().__init__(key, callback)
        self._id = id(key)

    def __call__(self) -> Any:
        return super().__call__()

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: Any) -> bool:
        a, b = self(), other()
        return a is b if a is not None and b is not None else self is other


class TensorWeakRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor: Any) -> None:
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Any:
        return self.ref()


class WeakIdKeyDictionary(MutableMapping):
    """A dictionary by the identity of its keys, which it does not keep.

    >>> x = arete.ones(2)
    >>> notes = arete.utils.weak.WeakIdKeyDictionary({x: "two ones"})
    >>> notes[x], arete.ones(2) in notes
    ('two ones', False)
    >>> del x
    >>> len(notes)
    0
    """

    def __init__(self, dict: Any = None, ref_type: Any = WeakIdRef) -> None:  # noqa: A002
        self._values: Any = {}
        self._ref_type = ref_type
        if dict is not None:
            self.update(dict)

    def _gone(self, ref: Any) -> None:
        self._values.pop(ref, None)

    def __getitem__(self, key: Any) -> Any:
        return self._values[WeakIdRef(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._values[WeakIdRef(key, self._gone)] = value

    def __delitem__(self, key: Any) -> None:
        del self._values[WeakIdRef(key)]

    def __contains__(self, key: Any) -> bool:
        try:
            return WeakIdRef(key) in self._values
        except TypeError:
            return False

    def __iter__(self) -> Iterator[Any]:
        for ref in list(self._values):
            key = ref()
            if key is not None:
                yield key

    def __len__(self) -> int:
        return len(self._values)


WeakTensorKeyDictionary = WeakIdKeyDictionary
