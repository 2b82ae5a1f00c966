"""Trees taken apart by the form of others."""
from __future__ import annotations

from typing import Any, Callable

from ..utils import _pytree

__all__ = ["register_pytree_flatten_spec", "tree_flatten_spec"]

_FLATTEN: dict = {}


def register_pytree_flatten_spec(cls: type, flatten_fn_spec: Callable, flatten_fn_exact_match_spec: Any = None) -> None:
    """flatten_fn_spec(object, spec) gives the children of a node in the order of a form."""
    _FLATTEN[cls] = flatten_fn_spec


def tree_flatten_spec(pytree: Any, spec: Any) -> list:
    """The leaves of a tree in the order of a form, which may name less of the keys of dicts.

    >>> arete.fx._pytree.tree_flatten_spec({"a": 1, "b": 2}, arete.utils._pytree.tree_structure({"b": 0}))
    [2]
    """
    if spec.is_leaf():
        return [pytree]
    if spec.type in _FLATTEN:
        children = _FLATTEN[spec.type](pytree, spec)
    elif isinstance(pytree, dict):
        children = [pytree[key] for key in spec.context]
    else:
        children = _pytree.SUPPORTED_NODES[spec.type].flatten_fn(pytree)[0] if spec.type in _pytree.SUPPORTED_NODES else list(pytree)
        children = children[: len(spec.children_specs)]
    return [leaf for child, form in zip(children, spec.children_specs) for leaf in tree_flatten_spec(child, form)]
