"""Trees of tuples, lists, dicts and what programs add to these, taken apart to their leaves and put together again."""
from __future__ import annotations

from collections import OrderedDict, defaultdict, deque

__all__ = ["TreeSpec", "register_pytree_node", "tree_flatten", "tree_leaves", "tree_map", "tree_map_only", "tree_structure",
           "tree_unflatten"]

# Of each kind of node: its children and what it needs besides to be made of such children.
_NODES = {
    tuple: (lambda t: (list(t), None), lambda c, _: tuple(c)),
    list: (lambda t: (list(t), None), lambda c, _: list(c)),
    dict: (lambda t: (list(t.values()), list(t)), lambda c, keys: dict(zip(keys, c))),
    OrderedDict: (lambda t: (list(t.values()), list(t)), lambda c, keys: OrderedDict(zip(keys, c))),
    defaultdict: (lambda t: (list(t.values()), (t.default_factory, list(t))),
                  lambda c, made: defaultdict(made[0], zip(made[1], c))),
    deque: (lambda t: (list(t), t.maxlen), lambda c, length: deque(c, maxlen=length)),
}


def register_pytree_node(cls, flatten_fn, unflatten_fn, **details) -> None:
    """Makes a class a kind of node: flatten_fn(object) gives a list of children and a context, unflatten_fn(children, context)
    the object. What `details` say of names and files is for exporters, which there are none of.

    ValueError if it is one already.

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> arete.utils._pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda c, _: Pair(*c))
    >>> arete.utils._pytree.tree_map(lambda x: x + 1, Pair(1, 2)).b
    3
    """
    if cls in _NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _NODES[cls] = (flatten_fn, unflatten_fn)


def _kind(tree):
    if type(tree) in _NODES:
        return _NODES[type(tree)]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return lambda t: (list(t), type(t)), lambda c, cls: cls(*c)
    return None


class TreeSpec:
    """The form of a tree without its leaves.

    >>> arete.utils._pytree.tree_structure((1, [2, 3])) == arete.utils._pytree.tree_structure((4, [5, 6]))
    True
    """

    def __init__(self, kind, context, children):
        self.type, self.context, self.children_specs = kind, context, children
        self.num_leaves = 1 if kind is None else sum(c.num_leaves for c in children)

    def is_leaf(self) -> bool:
        return self.type is None

    def __eq__(self, other):
        return isinstance(other, TreeSpec) and (self.type, self.context, self.children_specs) == (
            other.type, other.context, other.children_specs)

    def __repr__(self):
        name = getattr(self.type, "__name__", self.type)
        return "*" if self.is_leaf() else f"TreeSpec({name}, {self.context}, {self.children_specs})"


def tree_flatten(tree, is_leaf=None):
    """The leaves from left to right, and the form of the tree; where is_leaf(part) is true, a part is a leaf.

    >>> leaves, form = arete.utils._pytree.tree_flatten({"a": 1, "b": (2, None)})
    >>> leaves, arete.utils._pytree.tree_unflatten([10, 20, 30], form)
    ([1, 2, None], {'a': 10, 'b': (20, 30)})
    """
    kind = None if is_leaf is not None and is_leaf(tree) else _kind(tree)
    if kind is None:
        return [tree], TreeSpec(None, None, [])
    children, context = kind[0](tree)
    leaves, forms = [], []
    for child in children:
        more, form = tree_flatten(child, is_leaf)
        leaves += more
        forms.append(form)
    return leaves, TreeSpec(type(tree), context, forms)


def tree_unflatten(leaves, treespec):
    """A tree of this form with these leaves: see tree_flatten().

    >>> arete.utils._pytree.tree_unflatten("ab", arete.utils._pytree.tree_structure([1, 2]))
    ['a', 'b']
    """
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
                         f"holds {treespec.num_leaves} items ({treespec}).")
    remaining = iter(leaves)

    def make(form):
        if form.is_leaf():
            return next(remaining)
        children = [make(c) for c in form.children_specs]
        unflatten = _NODES[form.type][1] if form.type in _NODES else lambda c, cls: cls(*c)
        return unflatten(children, form.context)

    return make(treespec)


def tree_leaves(tree, is_leaf=None):
    """The leaves from left to right.

    >>> arete.utils._pytree.tree_leaves([1, (2, {"a": 3})])
    [1, 2, 3]
    """
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree, is_leaf=None):
    """The form of a tree.

    >>> arete.utils._pytree.tree_structure((1, [2, 3])).num_leaves
    3
    """
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None):
    """The same tree with func(leaf, ...) for its leaves; `rests` are trees of the same form.

    >>> arete.utils._pytree.tree_map(lambda a, b: a + b, {"x": 1, "y": [2]}, {"x": 10, "y": [20]})
    {'x': 11, 'y': [22]}
    """
    leaves, form = tree_flatten(tree, is_leaf)
    others = []
    for rest in rests:
        more, other = tree_flatten(rest, is_leaf)
        if other != form:
            raise ValueError(f"the trees differ: {form} and {other}")
        others.append(more)
    return tree_unflatten([func(*together) for together in zip(leaves, *others)], form)


def tree_map_only(kind, func, tree, is_leaf=None):
    """tree_map() of the leaves of a class, or of several; others stay.

    >>> arete.utils._pytree.tree_map_only(int, lambda x: -x, [1, "a", 2.0])
    [-1, 'a', 2.0]
    """
    return tree_map(lambda x: func(x) if isinstance(x, kind) else x, tree, is_leaf=is_leaf)
