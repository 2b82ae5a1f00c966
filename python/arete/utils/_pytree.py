"""Trees of tuples, lists, dicts and what programs add to these, taken apart to their leaves and put together again."""
from __future__ import annotations

import dataclasses
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any, NamedTuple

__all__ = ["GetAttrKey", "MappingKey", "NodeDef", "SequenceKey", "TreeSpec", "keystr", "register_dataclass",
           "register_pytree_node", "tree_all", "tree_any",
           "tree_flatten",
           "tree_flatten_with_path", "tree_iter", "tree_leaves", "tree_map", "tree_map_", "tree_map_only", "tree_map_with_path",
           "tree_structure",
           "tree_unflatten", "treespec_dumps", "treespec_loads"]

Context = Any
PyTree = Any


class NodeDef(NamedTuple):
    """A kind of node: flatten_fn(object) gives its children and what it needs besides to be made of such children, flatten_with_keys_fn
    children with where they stand.

    >>> arete.utils._pytree.SUPPORTED_NODES[list].flatten_fn([1, 2])
    ([1, 2], None)
    """

    type: Any
    flatten_fn: Any
    unflatten_fn: Any
    flatten_with_keys_fn: Any = None


class SequenceKey(NamedTuple):
    """The place of a child by its number.

    >>> str(arete.utils._pytree.SequenceKey(1)), arete.utils._pytree.SequenceKey(1).get("ab")
    ('[1]', 'b')
    """

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence):
        return sequence[self.idx]


class MappingKey(NamedTuple):
    """The place of a child by its key.

    >>> arete.utils._pytree.MappingKey("a").get({"a": 2})
    2
    """

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping):
        return mapping[self.key]


class GetAttrKey(NamedTuple):
    """The place of a child by the name of its attribute.

    >>> str(arete.utils._pytree.GetAttrKey("x"))
    '.x'
    """

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj):
        return getattr(obj, self.name)


def _dict_flatten(d):
    return list(d.values()), list(d)


def _dict_unflatten(values, keys):
    return dict(zip(keys, values))


def _dict_flatten_with_keys(d):
    return [(MappingKey(k), v) for k, v in d.items()], list(d)


def _list_flatten_with_keys(s):
    return [(SequenceKey(i), v) for i, v in enumerate(s)], None


_tuple_flatten_with_keys = _list_flatten_with_keys


def _list_flatten(s):
    return list(s), None


_tuple_flatten = _list_flatten


def _list_unflatten(values, context):
    return list(values)


def _tuple_unflatten(values, context):
    return tuple(values)


SUPPORTED_NODES = {n.type: n for n in (
    NodeDef(tuple, _tuple_flatten, _tuple_unflatten, _list_flatten_with_keys),
    NodeDef(list, _list_flatten, _list_unflatten, _list_flatten_with_keys),
    NodeDef(dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
    NodeDef(OrderedDict, _dict_flatten, lambda c, keys: OrderedDict(zip(keys, c)), _dict_flatten_with_keys),
    NodeDef(defaultdict, lambda t: (list(t.values()), (t.default_factory, list(t))), lambda c, made: defaultdict(made[0], zip(made[1], c)),
            lambda t: ([(MappingKey(k), v) for k, v in t.items()], (t.default_factory, list(t)))),
    NodeDef(deque, lambda t: (list(t), t.maxlen), lambda c, length: deque(c, maxlen=length),
            lambda t: (_list_flatten_with_keys(t)[0], t.maxlen)),
    NodeDef(namedtuple, lambda t: (list(t), type(t)), lambda c, cls: cls(*c),
            lambda t: ([(GetAttrKey(n), v) for n, v in zip(t._fields, t)], type(t))),
)}
_names: dict = {f"{t.__module__}.{t.__qualname__}": t for t in SUPPORTED_NODES}


def register_pytree_node(cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, to_dumpable_context=None, from_dumpable_context=None,
                         flatten_with_keys_fn=None) -> None:
    """Makes a class a kind of node: flatten_fn(object) gives a list of children and a context, unflatten_fn(children, context)
    the object; flatten_with_keys_fn(object) pairs of a place and a child for tree_flatten_with_path(). treespec_dumps() writes forms under
    `serialized_type_name`, with to_dumpable_context(context), where the context is nothing that JSON can say.

    ValueError if it is one already.

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> arete.utils._pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda c, _: Pair(*c))
    >>> arete.utils._pytree.tree_map(lambda x: x + 1, Pair(1, 2)).b
    3
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    _names[serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"] = cls
    _dumpers[cls] = to_dumpable_context, from_dumpable_context


def register_dataclass(cls, *, field_names=None, drop_field_names=None, serialized_type_name=None) -> None:
    """Makes a dataclass a kind of node, whose children are its fields (`field_names`, or all but `drop_field_names`). A class of fields
    that are not named, and have no defaults, cannot be made again: ValueError, as for what is no dataclass. What is not named is as the
    class makes it in what is put together; recorded programs refuse objects in which it is another value. A class that is a node already
    becomes what is said now, with a warning.

    >>> import dataclasses
    >>> Pair = dataclasses.make_dataclass("Pair", ["a", "b"])
    >>> arete.utils._pytree.register_dataclass(Pair)
    >>> arete.utils._pytree.tree_map(lambda x: x + 1, Pair(1, 2))
    Pair(a=2, b=3)
    """
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        raise ValueError(f"register_dataclass(): a dataclass is wanted, not {cls!r}")
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}
    names = list(field_names) if field_names is not None else [n for n in fields if n not in (drop_field_names or ())]
    wrong = [n for n in names if n not in fields]
    wrong += [n for n, f in fields.items() if n not in names and f.default is f.default_factory is dataclasses.MISSING]
    if wrong:
        raise ValueError(f"register_dataclass(): {wrong} of {cls.__qualname__} are no fields, or left out without a default")
    if SUPPORTED_NODES.pop(cls, None):
        warnings.warn(f"{cls} is already registered as pytree node. Overwriting the previous registration.", stacklevel=2)
    _left_out.pop(cls, None)
    others = [f.name for f in dataclasses.fields(cls) if f.name not in names]
    if others:
        _left_out[cls] = others
    register_pytree_node(
        cls, lambda x: ([getattr(x, n) for n in names], None), lambda children, _: cls(**dict(zip(names, children))),
        serialized_type_name=serialized_type_name,
        flatten_with_keys_fn=lambda x: ([(GetAttrKey(n), getattr(x, n)) for n in names], None))


_left_out: dict = {}  # fields of dataclasses that are no children


def _check_whole(tree) -> None:
    """ValueError for an object with a field that its children do not make as it is."""
    if type(tree) not in _left_out:
        return
    node = SUPPORTED_NODES[type(tree)]
    made = node.unflatten_fn(*node.flatten_fn(tree))
    for name in _left_out[type(tree)]:
        here, there = (vars(x).get(name) if hasattr(x, "__dict__") else getattr(x, name, None) for x in (tree, made))
        try:
            same = here is there or type(here) is type(there) and bool(here.equal(there) if hasattr(here, "equal") else here == there)
        except (TypeError, ValueError, RuntimeError):
            same = False
        if not same:
            raise ValueError(f"the field '{name}' of {type(tree).__qualname__} is left out of trees, and is another value here ({here!r}) "
                             f"than the class gives it ({there!r}): name it in register_dataclass(field_names=)")


_register_pytree_node = register_pytree_node
_dumpers: dict = {}


def _kind(tree):
    if type(tree) in SUPPORTED_NODES:
        return SUPPORTED_NODES[type(tree)]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return SUPPORTED_NODES[namedtuple]
    if isinstance(tree, tuple) and isinstance(getattr(type(tree), "n_fields", None), int):
        # What functions with several results give, and structures of C: kinds of their own, made of a list.
        cls = type(tree)
        register_pytree_node(cls, lambda t: (list(t), None), lambda c, _: cls(c), flatten_with_keys_fn=_list_flatten_with_keys)
        return SUPPORTED_NODES[cls]
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

    @property
    def num_children(self):
        return len(self.children_specs)

    def children(self):
        return list(self.children_specs)

    def __eq__(self, other):
        return isinstance(other, TreeSpec) and (self.type, self.context, self.children_specs) == (
            other.type, other.context, other.children_specs)

    def __repr__(self):
        name = getattr(self.type, "__name__", self.type)
        return "*" if self.is_leaf() else f"TreeSpec({name}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """The form of a leaf.

    >>> arete.utils._pytree.LeafSpec() == arete.utils._pytree.tree_structure(1)
    True
    """

    def __init__(self):
        super().__init__(None, None, [])


def _get_node_type(tree):
    """What SUPPORTED_NODES has a node under."""
    return namedtuple if _is_namedtuple_instance(tree) else type(tree)


def _is_namedtuple_instance(tree):
    return isinstance(tree, tuple) and hasattr(tree, "_fields")


def tree_flatten(tree, is_leaf=None):
    """The leaves from left to right, and the form of the tree; where is_leaf(part) is true, a part is a leaf.

    >>> leaves, form = arete.utils._pytree.tree_flatten({"a": 1, "b": (2, None)})
    >>> leaves, arete.utils._pytree.tree_unflatten([10, 20, 30], form)
    ([1, 2, None], {'a': 10, 'b': (20, 30)})
    """
    kind = None if is_leaf is not None and is_leaf(tree) else _kind(tree)
    if kind is None:
        return [tree], TreeSpec(None, None, [])
    children, context = kind.flatten_fn(tree)
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
        unflatten = SUPPORTED_NODES[form.type].unflatten_fn if form.type in SUPPORTED_NODES else lambda c, cls: cls(*c)
        return unflatten(children, form.context)

    return make(treespec)


def tree_is_leaf(tree, is_leaf=None) -> bool:
    """Whether this is a leaf, without parts.

    >>> arete.utils._pytree.tree_is_leaf(3), arete.utils._pytree.tree_is_leaf([3])
    (True, False)
    """
    return is_leaf is not None and is_leaf(tree) or _kind(tree) is None


def is_structseq_instance(obj) -> bool:
    """Whether it is a structure of C or of results, a tuple with names for its items.

    >>> arete.utils._pytree.is_structseq_instance(arete.ones(2).max(0))
    True
    """
    return isinstance(obj, tuple) and isinstance(getattr(type(obj), "n_fields", None), int)


def _broadcast_to_and_flatten(tree, treespec, is_leaf=None):
    """The leaves of `tree` for each leaf of a form: a leaf of the tree stands for all that the form has there. None where the two have
    other forms.

    >>> arete.utils._pytree._broadcast_to_and_flatten((0, 1), arete.utils._pytree.tree_structure(([1, 2], 3)))
    [0, 0, 1]
    """
    kind = None if is_leaf is not None and is_leaf(tree) else _kind(tree)
    if kind is None:
        return [tree] * treespec.num_leaves
    children, context = kind.flatten_fn(tree)
    if (type(tree), context, len(children)) != (treespec.type, treespec.context, treespec.num_children):
        return None
    parts = [_broadcast_to_and_flatten(c, form, is_leaf) for c, form in zip(children, treespec.children_specs)]
    return None if None in parts else [leaf for part in parts for leaf in part]


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


def tree_map_(func, tree, *rests, is_leaf=None):
    """Calls func(leaf, ...) for each leaf and gives the tree as it is.

    >>> arete.utils._pytree.tree_map_(print, [1, (2,)])
    1
    2
    [1, (2,)]
    """
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_iter(tree, is_leaf=None):
    """The leaves one after the other.

    >>> list(arete.utils._pytree.tree_iter({"a": 1, "b": [2]}))
    [1, 2]
    """
    yield from tree_leaves(tree, is_leaf)


def tree_all(pred, tree, is_leaf=None) -> bool:
    """Whether pred(leaf) is true of all leaves.

    >>> arete.utils._pytree.tree_all(lambda x: x > 1, [1, 2]), arete.utils._pytree.tree_any(lambda x: x > 1, [1, 2])
    (False, True)
    """
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None) -> bool:
    """Whether pred(leaf) is true of a leaf.

    >>> arete.utils._pytree.tree_any(lambda x: x > 1, [1, (2,)])
    True
    """
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_flatten_with_path(tree, is_leaf=None):
    """The leaves with the places on the way to them, and the form.

    >>> leaves, form = arete.utils._pytree.tree_flatten_with_path({"a": [1, 2]})
    >>> [(arete.utils._pytree.keystr(path), leaf) for path, leaf in leaves]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """

    def walk(part, path):
        kind = None if is_leaf is not None and is_leaf(part) else _kind(part)
        if kind is None:
            yield path, part
            return
        if kind.flatten_with_keys_fn is None:
            raise ValueError(f"Did not find a flatten_with_keys_fn for type: {type(part)}. Please pass a flatten_with_keys_fn argument to "
                             "register_pytree_node.")
        for key, child in kind.flatten_with_keys_fn(part)[0]:
            yield from walk(child, (*path, key))

    return list(walk(tree, ())), tree_structure(tree, is_leaf)


def tree_map_with_path(func, tree, *rests, is_leaf=None):
    """The same tree with func(path, leaf, ...) for its leaves.

    >>> arete.utils._pytree.tree_map_with_path(lambda path, x: (len(path), x), [1, [2]])
    [(1, 1), [(2, 2)]]
    """
    leaves, form = tree_flatten_with_path(tree, is_leaf)
    others = [tree_flatten(rest, is_leaf)[0] for rest in rests]
    return tree_unflatten([func(path, *together) for (path, leaf), *more in zip(leaves, *others) for together in [(leaf, *more)]], form)


def keystr(kp) -> str:
    """A path as it is written in Python.

    >>> arete.utils._pytree.keystr((arete.utils._pytree.MappingKey("a"), arete.utils._pytree.SequenceKey(0)))
    "['a'][0]"
    """
    return "".join(map(str, kp))


def treespec_dumps(treespec, protocol=None) -> str:
    """A form as JSON.

    >>> text = arete.utils._pytree.treespec_dumps(arete.utils._pytree.tree_structure({"a": (1, 2)}))
    >>> arete.utils._pytree.tree_unflatten([3, 4], arete.utils._pytree.treespec_loads(text))
    {'a': (3, 4)}
    """
    import json

    if protocol not in (None, 1):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    names = {cls: name for name, cls in _names.items()}

    def plain(form):
        if form.is_leaf():
            return None
        if form.type not in names:
            raise NotImplementedError(f"Serializing {form.type} in pytree is not registered.")
        dump = _dumpers.get(form.type, (None, None))[0]
        return {"type": names[form.type], "context": dump(form.context) if dump else form.context,
                "children": list(map(plain, form.children_specs))}

    try:
        return json.dumps([1, plain(treespec)])
    except TypeError as e:
        raise TypeError("Unable to serialize context. Please make the context json dump-able, or register a custom serializer using "
                        "register_pytree_node.") from e


def treespec_loads(serialized: str):
    """The form that treespec_dumps() has written.

    >>> form = arete.utils._pytree.tree_structure([1, (2,)])
    >>> arete.utils._pytree.treespec_loads(arete.utils._pytree.treespec_dumps(form)) == form
    True
    """
    import json

    protocol, content = json.loads(serialized)
    if protocol != 1:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")

    def form(node):
        if node is None:
            return TreeSpec(None, None, [])
        if node["type"] not in _names:
            raise NotImplementedError(f"Deserializing {node['type']} in pytree is not registered.")
        cls = _names[node["type"]]
        load = _dumpers.get(cls, (None, None))[1]
        return TreeSpec(cls, load(node["context"]) if load else node["context"], list(map(form, node["children"])))

    return form(content)
