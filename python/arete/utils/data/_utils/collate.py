"""Makes a batch of a list of items."""
from __future__ import annotations

import copy
import re
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any, Callable, Dict, Optional, Tuple, Type, Union

from .... import _C, _operators

__all__ = ["collate", "default_collate", "default_convert", "default_collate_fn_map"]

# Kinds of NumPy's dtypes that no tensor has: programs that collate by themselves look for them.
np_str_obj_array_pattern = re.compile("[SaUO]")


def _is_numpy(value: Any) -> bool:
    """True for NumPy's arrays and scalars, without importing NumPy."""
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


def _from_numpy(array: Any) -> Any:
    if array.dtype.kind in "SUOVmM":
        raise TypeError(f"default_collate makes no tensor of a NumPy array of dtype {array.dtype}")
    return _operators.as_tensor(array)


def _from_scalars(batch: Sequence) -> Any:
    import numpy

    return _from_numpy(numpy.stack(batch))


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def default_convert(data: Any) -> Any:
    """Turns NumPy arrays into tensors, also inside of dicts, tuples and lists; other values stay as they are.

    >>> import numpy
    >>> arete.utils.data.default_convert({"x": numpy.ones(2), "name": "a"})
    {'x': tensor([1., 1.], dtype=arete.float64), 'name': 'a'}
    """
    if isinstance(data, _C.Tensor):
        return data
    if _is_numpy(data):
        return data if data.dtype.kind in "SUO" else _operators.as_tensor(data)
    if isinstance(data, Mapping):
        return _rebuilt_mapping(data, {key: default_convert(value) for key, value in data.items()})
    if _is_namedtuple(data):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, tuple):
        return [default_convert(value) for value in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _rebuilt_sequence(data, [default_convert(value) for value in data])
    return data


def _rebuilt_mapping(like: Mapping, content: dict) -> Any:
    """A mapping of the type of `like`, or a dict where that cannot be made."""
    if type(like) is dict:
        return content
    try:
        if isinstance(like, MutableMapping):
            clone = copy.copy(like)
            clone.update(content)
            return clone
        return type(like)(content)  # type: ignore[call-arg]
    except TypeError:
        return content


def _rebuilt_sequence(like: Sequence, content: list) -> Any:
    if type(like) is list:
        return content
    try:
        if isinstance(like, MutableSequence):
            clone = copy.copy(like)
            clone[:] = content
            return clone
        return content if isinstance(like, range) else type(like)(content)  # type: ignore[call-arg]
    except TypeError:
        return content


def _collate_tensors(batch: Sequence, *, collate_fn_map: Optional[dict] = None) -> Any:
    return _operators.stack(list(batch), 0)


def _collate_floats(batch: Sequence, *, collate_fn_map: Optional[dict] = None) -> Any:
    return _C.tensor(list(batch), dtype=_C.float64)


def _collate_ints(batch: Sequence, *, collate_fn_map: Optional[dict] = None) -> Any:
    return _C.tensor(list(batch))


def _collate_texts(batch: Sequence, *, collate_fn_map: Optional[dict] = None) -> Any:
    return batch


default_collate_fn_map: Dict[Union[Type, Tuple[Type, ...]], Callable] = {
    _C.Tensor: _collate_tensors, float: _collate_floats, int: _collate_ints, str: _collate_texts, bytes: _collate_texts,
}


def collate(batch: Sequence, *, collate_fn_map: Optional[dict] = None) -> Any:
    """Collates by a table from types to functions `f(batch, *, collate_fn_map)`; containers of those types are gone through.

    dicts give dicts, namedtuples the same, tuples and lists lists of collated columns. NumPy arrays become tensors.

    >>> table = {str: lambda batch, *, collate_fn_map=None: "+".join(batch)}
    >>> arete.utils.data.collate(["a", "b"], collate_fn_map=table)
    'a+b'
    """
    first = batch[0]
    if collate_fn_map:
        if type(first) in collate_fn_map:
            return collate_fn_map[type(first)](batch, collate_fn_map=collate_fn_map)
        if not _is_numpy(first):  # numpy.float64 is a float to Python, but keeps its own dtype
            for kind, function in collate_fn_map.items():
                if isinstance(first, kind):
                    return function(batch, collate_fn_map=collate_fn_map)
    if _is_numpy(first):
        return _operators.stack([_from_numpy(item) for item in batch], 0) if first.shape else _from_scalars(batch)
    if isinstance(first, Mapping):
        return _rebuilt_mapping(first, {key: collate([item[key] for item in batch], collate_fn_map=collate_fn_map) for key in first})
    if _is_namedtuple(first):
        return type(first)(*(collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)))
    if isinstance(first, Sequence):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError(f"the items of a batch must be equally long, not {sorted({len(item) for item in batch})}")
        columns = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)]
        return columns if isinstance(first, tuple) else _rebuilt_sequence(first, columns)
    raise TypeError("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
                    f"found {type(first)}")


def default_collate(batch: Sequence) -> Any:
    """Stacks tensors (and NumPy arrays), makes tensors of numbers (float64, int64, bool), and leaves strings in lists.

    `[(x0, 3), (x1, 5)]` gives `[stack([x0, x1]), tensor([3, 5])]`, `[{"a": 1}, {"a": 2}]` gives `{"a": tensor([1, 2])}`.

    >>> arete.utils.data.default_collate([(arete.zeros(2), 3, "a"), (arete.ones(2), 5, "b")])
    [tensor([[0., 0.],
            [1., 1.]]), tensor([3, 5]), ('a', 'b')]
    >>> arete.utils.data.default_collate([object()])
    Traceback (most recent call last):
    TypeError: default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found ...
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
