"""Which compiled functions need not run: Note [Skipped functions] in python/src/skip.cpp.

A function is closed if all that its Python does is known to be the same while nothing that it reads is written. That is shown in two
steps, from one call that is watched:

- Of all code that runs the instructions are known to change nothing but what the call itself made: no attribute, item, global or
  variable of others is set. All functions in C that it calls, or could call by a name, are known to be pure (or are operators, whose
  calls are recorded).
- What such code can reach begins at names: globals, attributes, constants, variables of functions around it. So all objects that these
  names lead to, from the function and its arguments on, are looked at: dicts and classes are watched for writes, lists, tensors and
  cells are compared before each call. An object of a class that is not known ends it.

Anything else, and anything not understood, means that the function runs each time, which is always right.
"""
from __future__ import annotations

import builtins
import collections
import dis
import functools
import math
import sys
import threading
import types
import weakref
from typing import Any, Callable

from arete import _C

_HERE = __file__
_FOLDER = __file__.rpartition("/")[0] + "/"
_MOST_OBJECTS = 2000
_MOST_KINDS = 16  # of arguments
_MOST_KINDS_MADE = 256
_MOST_CHANGES = 8
_CALLS_BEFORE = 3  # the first ones make state, and plans

CAN_SKIP = _C._can_skip

# Instructions of Python 3.12 that change nothing but what the frame has. Sets of attributes, items and globals, imports and classes are
# not among them.
_INSTRUCTIONS = frozenset("""
    CACHE POP_TOP PUSH_NULL END_FOR END_SEND NOP RESUME EXTENDED_ARG COPY SWAP UNARY_NEGATIVE UNARY_NOT UNARY_INVERT BINARY_SUBSCR
    BINARY_SLICE BINARY_OP COMPARE_OP IS_OP CONTAINS_OP GET_LEN MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS PUSH_EXC_INFO CHECK_EXC_MATCH
    POP_EXCEPT RERAISE RAISE_VARARGS WITH_EXCEPT_START BEFORE_WITH RETURN_GENERATOR YIELD_VALUE SEND GET_ITER GET_YIELD_FROM_ITER
    FOR_ITER CLEANUP_THROW LOAD_ASSERTION_ERROR RETURN_VALUE RETURN_CONST UNPACK_SEQUENCE UNPACK_EX LOAD_CONST LOAD_FAST LOAD_FAST_CHECK
    LOAD_FAST_AND_CLEAR STORE_FAST DELETE_FAST LOAD_GLOBAL LOAD_ATTR LOAD_SUPER_ATTR LOAD_DEREF LOAD_CLOSURE MAKE_CELL COPY_FREE_VARS
    MAKE_FUNCTION BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP BUILD_CONST_KEY_MAP BUILD_STRING BUILD_SLICE LIST_APPEND SET_ADD MAP_ADD
    LIST_EXTEND SET_UPDATE DICT_MERGE DICT_UPDATE FORMAT_VALUE CALL KW_NAMES CALL_FUNCTION_EX CALL_INTRINSIC_1 JUMP_FORWARD
    JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE
""".split())
# Attributes by which a program gets at what is not looked at here, or that are different after each step.
_ATTRIBUTES = frozenset(("grad", "data", "_version", "_base", "gi_frame", "gi_yieldfrom", "cell_contents"))
_SPECIAL_ATTRIBUTES = frozenset(("__class__", "__name__", "__qualname__", "__init__", "__call__", "__len__", "__getitem__", "__enter__",
                                 "__exit__", "__doc__"))
# Code of this package that sets attributes of its own, whose effect is known: modes that are as before at the end, and what is made or set
# once, and watched then.
_KNOWN_CODE = frozenset(("_GradSwitch.__enter__", "inference_mode.__enter__", "set_grad_enabled.__init__", "_Native._impl",
                         "_mark_steps.<locals>.stepped", "autocast.__init__"))
_FUNCTIONS = {len, range, isinstance, issubclass, zip, enumerate, reversed, min, max, sum, abs, round, all, any, sorted, map, filter,
              divmod, pow, callable, iter, next, list, tuple, dict, set, frozenset, int, float, bool, str, complex, slice, type, super,
              object, object.__new__, collections.OrderedDict, *(f for f in vars(math).values() if callable(f))}
_METHODS = {
    dict: {"get", "items", "keys", "values", "copy"}, list: {"append", "extend", "copy", "index", "count", "insert", "reverse", "pop"},
    tuple: {"index", "count"}, set: {"add", "union", "copy", "isdisjoint", "issubset"}, frozenset: {"union", "isdisjoint", "issubset"},
}
_FUNCTION_IDS = frozenset(map(id, _FUNCTIONS))
_METHODS[collections.OrderedDict] = _METHODS[collections.defaultdict] = _METHODS[dict]  # type: ignore[index]
_PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range, types.CodeType)
_TENSOR_METHODS = frozenset(("dim", "ndimension", "numel", "nelement", "is_floating_point", "is_complex", "is_signed", "element_size",
                             "get_device", "detach", "is_contiguous", "size", "stride", "backward", "to", "clone", "contiguous"))
_OWN_FUNCTIONS = frozenset(("_zero_grad", "is_grad_enabled", "_set_grad_enabled", "is_inference_mode_enabled", "_set_inference_mode",
                            "is_recording", "_total_norm", "_clip_grads_with_norm", "_clip_grad_value", "_is_compiling", "step",
                            "_is_autocast_enabled", "_autocast_dtype", "_set_autocast", "_enter_autocast_region",
                            "_leave_autocast_region", "_autocast_cache", "is_available"))
_C_FUNCTION_TYPES = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
                     types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType)
_OPERATORS = (_C.Operator, _C.OperatorMethod)
_HEAP_TYPE = 1 << 9


class _Open(Exception):
    """The function is not closed, and why."""


def _is_own(o: Any) -> bool:
    module = getattr(o, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in ("arete", _C.Tensor.__module__)  # that of as_torch


def _is_of_package(function: Any) -> bool:
    owner = getattr(function, "__objclass__", None) or getattr(function, "__self__", None)
    return _is_own(function) or owner in _OPERATORS or (owner is not None and (_is_own(owner) or _is_own(type(owner))))


def _is_own_code(code: types.CodeType) -> bool:
    return code.co_filename.startswith(_FOLDER) or code.co_filename.startswith("<nn.")


def _is_python_class(cls: type) -> bool:
    return bool(cls.__flags__ & _HEAP_TYPE) and type(cls) is type and "__module__" in vars(cls) and all(
        base is object or base is _C.Tensor or base.__flags__ & _HEAP_TYPE for base in cls.__mro__)


def _where(code: types.CodeType, offset: int) -> str:
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return f"line {line} of {code.co_qualname}"
    return code.co_qualname


def _name_of(o: Any) -> str:
    # Of other classes an attribute may be anything, and run anything.
    if type(o) in (*_C_FUNCTION_TYPES, *_OPERATORS, types.FunctionType, types.MethodType, type) or type(o).__module__ == "nanobind":
        return str(getattr(o, "__qualname__", None) or getattr(o, "__name__", None) or type(o).__qualname__)
    return type(o).__qualname__


def _is_known_of_text(name: str) -> bool:
    return name not in ("format", "format_map")  # which read attributes, and what these give


def _is_known_operator(o: Any) -> bool:
    return not str(getattr(o, "__name__", "")).startswith("as_strided")  # it counts from where the memory begins


def _check_callable(o: Any, own: bool = False) -> bool:
    """Whether a call of it (by code of this package) does nothing that is not seen: it is Python's, or pure, or an operator."""
    kind = type(o)
    if kind in _OPERATORS:
        return _is_known_operator(o)
    if kind is types.FunctionType or (own and (o is id or kind is weakref.ReferenceType)):
        return True
    if kind is types.MethodType:
        return _check_callable(o.__func__, own)
    if id(o) in _FUNCTION_IDS or (kind is types.BuiltinFunctionType and o in _FUNCTIONS):
        return True
    if kind in (types.MethodDescriptorType, types.WrapperDescriptorType):
        owner = o.__objclass__
        if owner is _C.Tensor:
            return o.__name__ in _TENSOR_METHODS
        if owner is str:
            return _is_known_of_text(o.__name__)
        return o.__name__ in _METHODS.get(owner, ()) or (owner is object and o.__name__ == "__init__")
    if kind is types.BuiltinFunctionType:
        owner = type(o.__self__)
        return _is_known_of_text(o.__name__) if owner is str else o.__name__ in _METHODS.get(owner, ())
    if kind is types.MethodWrapperType:
        return o.__name__ == "__init__" and o.__objclass__ is object
    if issubclass(kind, type):
        return _is_python_class(o) and all(
            made is getattr(object, name) or type(made) is types.FunctionType
            for name in ("__new__", "__init__") for made in (getattr(o, name),))
    if _is_own(kind):
        return type(getattr(kind, "__call__", None)) is types.FunctionType
    if kind.__module__ == "nanobind":
        return _is_own(o) and o.__name__ in _OWN_FUNCTIONS
    return type(getattr(kind, "__call__", None)) is types.FunctionType


class _Monitor:
    """All Python code that runs in this thread meanwhile, and what is called."""

    def __init__(self) -> None:
        self.codes: dict[types.CodeType, None] = {}
        self.functions: dict[int, Any] = {}
        self.bad = ""
        self._thread = threading.get_ident()
        self._tool = -1

    def __enter__(self) -> "_Monitor":
        monitoring = sys.monitoring
        try:
            for tool in (4, 3):
                if monitoring.get_tool(tool) is None:
                    monitoring.use_tool_id(tool, "arete.compile")
                    self._tool = tool
                    break
            else:
                self.bad = "other tools use sys.monitoring"
                return self
            monitoring.register_callback(self._tool, monitoring.events.PY_START, self._on_start)
            monitoring.register_callback(self._tool, monitoring.events.CALL, self._on_call)
            monitoring.set_events(self._tool, monitoring.events.PY_START | monitoring.events.CALL)
        except Exception as e:
            self.bad = f"sys.monitoring says {type(e).__name__}"
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            if self._tool >= 0:
                sys.monitoring.set_events(self._tool, 0)
                for event in (sys.monitoring.events.PY_START, sys.monitoring.events.CALL):
                    sys.monitoring.register_callback(self._tool, event, None)
                sys.monitoring.free_tool_id(self._tool)
        except Exception as e:
            self.bad = self.bad or f"sys.monitoring says {type(e).__name__}"

    def _on_start(self, code: types.CodeType, offset: int) -> None:
        if threading.get_ident() == self._thread and code.co_filename != _HERE:
            self.codes[code] = None

    def _on_call(self, code: types.CodeType, offset: int, function: Any, first: Any) -> None:
        if threading.get_ident() != self._thread or code.co_filename == _HERE:
            return
        self.functions[id(function)] = function
        try:
            if not self.bad and not _check_callable(function, _is_own_code(code)):
                self.bad = f"{_where(code, offset)} calls {_name_of(function)}"
        except Exception as e:
            self.bad = f"to look at what it calls gives {type(e).__name__}"


@functools.lru_cache(maxsize=4096)
def _names_of(code: types.CodeType) -> tuple[frozenset, frozenset]:
    """Globals that code names, and attributes; _Open if it may change what others have."""
    own = _is_own_code(code)
    globals_, attributes = set(), set()
    known = own and code.co_qualname in _KNOWN_CODE
    for i in dis.get_instructions(code):
        if i.opname not in _INSTRUCTIONS and not known:
            if i.opname != "STORE_DEREF" or i.argval not in code.co_cellvars:
                raise _Open(f"{_where(code, i.offset)} does what may change something ({i.opname} {i.argval})")
        if i.opname == "IS_OP" and not own:
            raise _Open(f"{_where(code, i.offset)} asks which object something is")
        if i.opname == "STORE_ATTR":
            attributes.add(i.argval)
        if i.opname == "LOAD_GLOBAL":
            globals_.add(i.argval)
        elif i.opname in ("LOAD_ATTR", "LOAD_SUPER_ATTR"):
            name = i.argval
            if not own and (name in _ATTRIBUTES or (name.startswith("__") and name not in _SPECIAL_ATTRIBUTES)):
                raise _Open(f"{_where(code, i.offset)} reads {name}")
            attributes.add(name)
    for constant in code.co_consts:
        if type(constant) is str and constant.isidentifier():
            attributes.add(constant)
    # Functions in C may call these, unseen.
    for name in () if own else sorted(attributes | globals_):
        if name.startswith("as_strided") or not _is_known_of_text(name):
            raise _Open(f"{code.co_qualname} names {name}")
    return frozenset(globals_), frozenset(attributes)


class _Search:
    """All objects that the code which ran may reach; `watches` gets them, and `kept` what it borrows."""

    def __init__(self, codes: Any, watches: Any, kept: list) -> None:
        self.codes, self.watches, self.kept = codes, watches, kept
        names = [_names_of(code) for code in codes]
        self.names = frozenset().union(*(attributes for _, attributes in names))
        # What code of others names.
        self.others_names = frozenset().union(*(n for code in codes if not _is_own_code(code) for n in _names_of(code)))
        self.seen: set[int] = set()
        self.found: set[types.CodeType] = set()
        self.waiting: list[tuple[Any, str]] = []

    def add(self, o: Any, text: str) -> None:
        if type(o) not in _PLAIN_TYPES and id(o) not in self.seen:
            self.seen.add(id(o))
            self.kept.append(o)
            self.waiting.append((o, text))

    def add_named(self, o: Any, text: str, name: str) -> None:
        # Functions in C of this package that its own code alone names are seen when they are called. Others might give them to a
        # function in C, which calls them.
        if name in self.others_names or not (type(o) in _C_FUNCTION_TYPES or type(o).__module__ == "nanobind") or not _is_of_package(o):
            self.add(o, text)

    def run(self) -> None:
        while self.waiting:
            if len(self.seen) > _MOST_OBJECTS:
                raise _Open(f"it may read more than {_MOST_OBJECTS} objects")
            self.look_at(*self.waiting.pop())

    def look_at(self, o: Any, text: str) -> None:
        kind = type(o)
        if issubclass(kind, _C.Tensor):
            if kind is not _C.Tensor:
                self.add(kind, kind.__qualname__)
            why = self.watches.tensor(o)
            if why:
                raise _Open(f"{text} is a tensor that {why}")
        elif kind is tuple or kind is _C.Size:
            for item in o:
                self.add(item, text)
        elif kind is list:
            items = self.watches.list(o)
            self.kept.append(items)  # they are compared by address
            for item in items:
                self.add(item, text)
        elif kind is slice:
            for item in (o.start, o.stop, o.step):
                self.add(item, text)
        elif kind is frozenset:
            for item in o:
                self.add(item, text)
        elif kind in (dict, collections.OrderedDict):
            self.watch_dict(o, None, f"{text}: an item, ")
            if kind is collections.OrderedDict:
                # Nobody tells that items change places, so there must be none to do so; it may have attributes, too.
                self.watch_dict(vars(o), None, f"{text}.")
                self.watches.instance(o)
                if len(o) > 1 or vars(o):
                    raise _Open(f"it may read {text}, of class {kind.__qualname__}")
            for key, value in list(o.items()):
                self.add(key, text)
                self.add(value, text)
        elif kind is types.FunctionType:
            self.look_at_function(o, text)
        elif kind is types.MethodType:
            self.add(o.__func__, text)
            self.add(o.__self__, text)
        elif kind is property:
            self.add(o.fget, text)
        elif kind in (classmethod, staticmethod):
            self.add(o.__func__, text)
        elif kind is types.ModuleType:
            self.watches.instance(o)
            self.look_at_names(vars(o), self.names, f"{o.__name__}.")
        elif issubclass(kind, type):
            self.look_at_class(o)
        elif kind in _OPERATORS:
            if not _is_known_operator(o):
                raise _Open(f"{text} is as_strided")
        elif kind in _C_FUNCTION_TYPES or kind.__module__ == "nanobind":
            if not self.is_known_function(o):
                raise _Open(f"{text} is a function that may do anything")
        elif _is_python_class(kind):
            self.look_at_instance(o, text)
        elif not _is_own(kind):
            raise _Open(f"it may read {text}, of class {kind.__qualname__}")

    def is_known_function(self, o: Any) -> bool:
        if type(o) in (types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType):
            # Attributes of an instance are watched where they are, whoever's class they are found through.
            return o.__objclass__ is object or o.__name__ == "__dict__" or _is_of_package(o) or _check_callable(o)
        return _check_callable(o, own=True)

    def watch_dict(self, d: dict, names: Any, text: str) -> None:
        if not self.watches.dict(d, names, text):
            raise _Open("a dict cannot be watched")

    def look_at_names(self, d: dict, names: Any, text: str) -> None:
        self.watch_dict(d, names, text)
        for name in names & d.keys():
            self.add_named(d[name], text + name, name)

    def look_at_function(self, f: types.FunctionType, text: str) -> None:
        if f.__code__ not in self.codes:
            return
        self.found.add(f.__code__)
        if f.__builtins__ is not vars(builtins):
            raise _Open(f"{f.__qualname__} has builtins of its own")
        self.watches.function(f, f"{f.__qualname__} itself")
        names, _ = _names_of(f.__code__)
        # Functions that it makes have its globals.
        for code in _inner(f.__code__):
            if code in self.codes:
                self.found.add(code)
                names |= _names_of(code)[0]
        self.look_at_names(f.__globals__, names, "global ")
        self.look_at_names(vars(builtins), names - f.__globals__.keys(), "builtin ")
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
            contents = self.watches.cell(cell)  # none, if it is empty
            self.kept += (cell, contents)
            for value in contents:
                # Others may find that what a weak reference leads to is gone; this package keeps what it refers to so.
                self.add(value() if type(value) is weakref.ReferenceType and _is_own_code(f.__code__) else value, name)
        for defaults in (f.__defaults__, f.__kwdefaults__):
            self.add(defaults, f"a default of {f.__qualname__}")
        if not _is_own_code(f.__code__):
            own = vars(f)
            self.watches.instance(f)
            self.look_at_names(own, self.names, f"{f.__qualname__}.")

    def look_at_class(self, cls: type) -> None:
        if cls.__flags__ & _HEAP_TYPE and type(cls) is not type and not _is_own(cls):
            raise _Open(f"it may read {cls.__qualname__}, of class {type(cls).__qualname__}")
        if not cls.__flags__ & _HEAP_TYPE or not self.watches.type(cls, f"class {cls.__qualname__}"):
            return
        for base in cls.__mro__:
            if not base.__flags__ & _HEAP_TYPE:
                continue
            for name, value in list(vars(base).items()):
                if name in self.names:
                    self.add_named(value, f"{cls.__qualname__}.{name}", name)
                    continue
                inner = value.fget if type(value) is property else value.__func__ if type(value) in (classmethod, staticmethod) else value
                if type(inner) is types.FunctionType and inner.__code__ in self.codes:
                    self.add(inner, f"{cls.__qualname__}.{name}")

    def look_at_instance(self, o: Any, text: str) -> None:
        cls = type(o)
        for base in cls.__mro__:
            if base is not object and not base.__flags__ & _HEAP_TYPE:
                raise _Open(f"it may read {text}, of class {cls.__qualname__}")
            for name, value in vars(base).items():
                if type(value) is types.MemberDescriptorType and name in self.names:
                    raise _Open(f"it may read {text}, whose class has __slots__")
        self.add(cls, cls.__qualname__)
        try:
            own = object.__getattribute__(o, "__dict__")
        except AttributeError:
            self.watches.instance(o)
            return
        self.watches.instance(o)
        # Without a reference: another dict in its place ends this one.
        if "param_groups" in own and _is_own(cls) and "param_groups" not in self.others_names:
            self.watch_dict(own, self.names, f"{text}.")
            self.look_at_groups(own["param_groups"], text)
            for name in self.names & own.keys() - {"param_groups"}:
                self.add(own[name], f"{text}.{name}")
        else:
            self.look_at_names(own, self.names, f"{text}.")

    def look_at_groups(self, groups: Any, text: str) -> None:
        """Those of an optimizer, whose settings (a learning rate) only its step reads, which is not skipped."""
        if type(groups) is not list or not all(type(group) is dict for group in groups):
            raise _Open(f"{text}.param_groups is no list of dicts")
        self.watches.list(groups)
        self.kept += (groups, *groups)
        for group in groups:
            self.look_at_names(group, self.names, f"{text}.param_groups: ")


def _inner(code: types.CodeType) -> Any:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _inner(constant)


class _Kind:
    """Calls with arguments of one kind."""

    def __init__(self, args: tuple, kwargs: dict) -> None:
        self.arguments = _C._Arguments(args, kwargs)
        self.kept: list = self.arguments.objects()
        self.count = 0
        self.forget()

    def forget(self) -> None:
        self.watches: Any = None
        self.watched: list = []
        self.observed: Any = None
        self.skip: Any = None


class Skipper:
    """Runs or skips the calls of one compiled function."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.lock = threading.Lock()  # of all but what may be skipped; who does not get it follows
        self.reset()

    def reset(self) -> None:
        self.kinds: list[_Kind] = []
        self.function: Any = None
        self.changes, self.skipped, self.made = 0, 0, 0
        self.reason = ""
        self._note("follow: too few calls were alike")
        if not CAN_SKIP:
            self._give_up("skipping needs Python 3.12")
        elif not _C._start_watching():
            self._give_up("all watchers of Python are in use")

    def _note(self, text: str) -> None:
        _C._note_skipping(self.program, text)

    def _give_up(self, reason: str) -> None:
        self.reason = reason
        self.kinds.clear()
        self._note(f"follow: {reason}")

    def call(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        if self.reason:
            return self.program.call(function, args, kwargs)
        if self._is_known(function):
            for kind in self.kinds:
                skip, watched = kind.skip, kind.watched  # another thread may forget them meanwhile
                if skip is not None:
                    result = skip.run(args, kwargs)
                    del watched
                    if result is not NotImplemented:
                        self.skipped += 1
                        return result
        return self._follow(function, args, kwargs)

    def _is_known(self, function: Callable) -> bool:
        # Bound methods are made anew each time.
        known = self.function
        return function is known or (type(function) is type(known) is types.MethodType and function.__self__ is known.__self__
                                     and function.__func__ is known.__func__)

    def _follow(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        if _C._is_compiling() or not self.lock.acquire(blocking=False):
            return self.program.call(function, args, kwargs)
        try:
            return self._look_at(function, args, kwargs)
        finally:
            self.lock.release()

    def _look_at(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        if self.reason:
            return self.program.call(function, args, kwargs)
        if not self._is_known(function):
            self.function = function
            self.kinds.clear()
        kind = next((k for k in self.kinds if k.arguments.fit(args, kwargs)), None)
        if kind is None:
            kind = _Kind(args, kwargs)
            if kind.arguments.why():
                if not self.kinds:
                    self._note(f"follow: {kind.arguments.why()}")
                return self.program.call(function, args, kwargs)
            self.kinds.insert(0, kind)
            del self.kinds[_MOST_KINDS:]
            self.made += 1
            if self.made > _MOST_KINDS_MADE + self.skipped // 32:
                self._give_up("its arguments differ from call to call")
                return self.program.call(function, args, kwargs)
        kind.count += 1
        if kind.watches is not None and kind.watches.what():
            self._note_change(kind)
            if self.reason:
                return self.program.call(function, args, kwargs)
        if kind.count <= _CALLS_BEFORE:
            return self.program.call(function, args, kwargs)
        if kind.watches is None:
            return self._watch(kind, function, args, kwargs)
        if not kind.watches.is_unchanged():  # something that is compared
            kind.forget()
            self._count_change("what it reads")
            return self.program.call(function, args, kwargs)
        if kind.skip is not None and not kind.skip.is_sample_due():
            return self.program.call(function, args, kwargs)
        if not kind.watches.are_apart(kind.arguments, args, kwargs):
            return self.program.call(function, args, kwargs)
        return self._observe(kind, function, args, kwargs)

    def _note_change(self, kind: _Kind) -> None:
        what = kind.watches.what()
        kind.forget()
        kind.count = 0
        self._count_change(what)

    def _count_change(self, what: str) -> None:
        self.changes += 1
        if self.changes > _MOST_CHANGES + self.skipped // 32:
            self._give_up(f"{what} is written between calls")
        else:
            self._note(f"follow: {what} was written")

    def _watch(self, kind: _Kind, function: Callable, args: tuple, kwargs: dict) -> Any:
        monitor = _Monitor()
        try:
            with monitor:
                result = self.program.call(function, args, kwargs)
        except BaseException:
            self._give_up("a call that was watched ended with an error")
            raise
        try:
            if monitor.bad:
                raise _Open(monitor.bad)
            kept: list = []
            watches = _C._Watches()
            search = _Search(monitor.codes, watches, kept)
            search.add(function, "the function")
            for o in monitor.functions.values():
                if type(o) in (types.FunctionType, types.MethodType) or issubclass(type(o), type):
                    search.add(o, _name_of(o))
                elif type(o) not in (*_C_FUNCTION_TYPES, *_OPERATORS, weakref.ReferenceType) and type(o).__module__ != "nanobind":
                    search.add(type(o), type(o).__qualname__)
            for o in kind.kept:
                search.add(o, "an argument")
            for o in kind.arguments.classes():
                search.add(o, o.__qualname__)
            search.run()
            for code in monitor.codes:
                if code not in search.found:
                    raise _Open(f"it is not known where {code.co_qualname} is from")
            kind.watches, kind.watched = watches, kept
            if watches.what():
                self._note_change(kind)
        except _Open as reason:
            self._give_up(str(reason))
        except Exception as e:  # of what others have in their classes
            self._give_up(f"to look at what it reads gives {type(e).__name__}")
        return result

    def _observe(self, kind: _Kind, function: Callable, args: tuple, kwargs: dict) -> Any:
        watches = kind.watches
        try:
            result, observed = _C._observe(self.program, function, args, kwargs, watches)
        except BaseException:
            self._give_up("a call that was observed ended with an error")
            raise
        if isinstance(observed, tuple):
            reason, for_good = observed
            if for_good:
                self._give_up(reason)
            else:
                kind.observed = None
                kind.count += 1
                if kind.skip is not None or kind.count > 64:
                    self._give_up(reason)
            return result
        if watches.what():
            self._note_change(kind)
            return result
        if not watches.is_unchanged():
            kind.forget()
            self._count_change("what it reads")
            return result
        kind.watched += observed.take_objects()
        if kind.skip is not None:
            if not kind.skip.agrees(observed):
                self._give_up("a call that ran did something else than those before it, though nothing that it reads was written")
        elif kind.observed is not None and kind.observed.agrees(observed):
            kind.skip = _C._Skip(self.program, watches, observed)
            self._note("skip")
        kind.observed = observed
        return result
