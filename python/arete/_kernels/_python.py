"""Kernels from Python functions: the usual part of the language becomes the text of a kernel, for GPUs and the CPU alike."""
from __future__ import annotations

import ast
import functools
import inspect
import math
import textwrap
import types

from .. import _C
from .._C import Tensor
from . import _launch
from ._launch import device_of, is_checking, on_stream, raw_argument, refuse_gradient
from ._parameters import C_NAMES
from ._text import HEAD, Array, Compiled, beginning

# The types of C by rank: what two numbers come to is the higher.
_RANK = ["bool", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned", "long long", "unsigned long long", "float16",
         "bfloat16", "float", "double"]
_INT, _FLOAT = _RANK.index("int"), _RANK.index("float16")
_BY_NAME = {"bool": "bool", "bool_": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
            "int32": "int", "uint32": "unsigned", "int64": "long long", "uint64": "unsigned long long", "float16": "float16",
            "bfloat16": "bfloat16", "float32": "float", "float64": "double"}
_OF_KIND = {"?": "bool", "b": "signed char", "B": "unsigned char", "h": "short", "H": "unsigned short", "i": "int", "I": "unsigned",
            "q": "long long", "Q": "unsigned long long", "f": "float", "d": "double"}
_MATH = {name: name for name in (
    "sqrt rsqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc floor ceil "
    "trunc rint fabs isnan isinf isfinite pow atan2 fmod hypot copysign fmin fmax lgamma fma").split()}
_MATH |= {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
          "arctanh": "atanh",
          "power": "pow", "gamma": "tgamma", "absolute": "abs", "abs": "abs", "maximum": "max", "minimum": "min"}
_WHOLE = {"floor", "ceil", "trunc"}  # of which math's give integers
_HELPERS = """template <class T> __device__ T _floor_div(T a, T b) { T q = a / b; return q * b != a && (a < 0) != (b < 0) ? q - 1 : q; }
template <class T> __device__ T _modulo(T a, T b) { T r = a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
template <class T> __device__ T _modulo_float(T a, T b) { T r = fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
"""


class Intrinsic:
    """A name that means something in kernels only."""

    def __init__(self, name, text="", type="int", order=("dtype", "size")):
        self.__name__, self.text, self.type, self.order = name, text, type, order

    def __repr__(self):
        return f"<{self.__name__} of kernels>"

    def __call__(self, *args, **options):
        raise RuntimeError(f"{self.__name__} is for kernels: it means nothing outside of one")


class Axes:
    """`threadIdx` and the like."""

    def __init__(self, name):
        for axis in "xyz":
            setattr(self, axis, Intrinsic(f"{name}.{axis}", f"(int){name}.{axis}"))


INTRINSICS = {name: Intrinsic(name) for name in (
    "grid gridsize laneid syncthreads syncwarp shared_memory local_memory shfl_sync shfl_up_sync shfl_down_sync shfl_xor_sync "
    "atomic_add atomic_sub atomic_min atomic_max atomic_exch atomic_cas atomic_and atomic_or atomic_xor range threadfence").split()}
AXES = {name: Axes(name) for name in ("threadIdx", "blockIdx", "blockDim", "gridDim")}
warpsize = Intrinsic("warpsize", "32")


class Number:
    """An expression: its text and its type."""

    def __init__(self, text, type):
        self.text, self.type, self.rank = text, type, _RANK.index(type)

    def cast(self, type):
        return self if type == self.type else Number(f"({type})({self.text})", type)


class _ArrayOf:
    """An array argument, or memory that the kernel made: `dims` are the sizes of the latter."""

    def __init__(self, name, type, ndim, dims=None, declared=""):
        self.name, self.type, self.ndim, self.dims, self.declared = name, type, ndim, dims, declared


class _Part(_ArrayOf):
    """What the first indices of an array leave."""

    def __init__(self, name, whole, before):
        super().__init__(name, whole.type, whole.ndim - len(before))
        self.whole, self.before, self.root = whole, before, getattr(whole, "root", whole.name)


class _Constant(_ArrayOf):
    """An array of numbers that are known now."""

    def __init__(self, name, type, dims):
        super().__init__(name, type, len(dims), dims)


class _Outer(_ArrayOf):
    """An array of the library that the kernel has from elsewhere: one more argument of each launch, which is read."""

    def __init__(self, name, tensor):
        super().__init__(name, C_NAMES[tensor.dtype], tensor.dim())
        self.tensor = tensor
        self.contiguous = Array(tensor).contiguous


_MOST_CONSTANTS = 4096


def _common(a, b):
    """The type of what is computed from two numbers."""
    rank = max(a.rank, b.rank, _INT)
    return "float" if _RANK[rank] in ("float16", "bfloat16") else _RANK[rank]


def _higher(a, b):
    return _RANK[max(_RANK.index(a), _RANK.index(b))]


class _Function:
    """The source of a Python function and what its names stand for."""

    def __init__(self, function):
        self.name, self.function = function.__name__, function
        try:
            lines, self.first = inspect.getsourcelines(function)
        except OSError:
            raise ValueError(f"{self.name}: the source of the function is not there to be read") from None
        try:
            nodes = list(ast.walk(ast.parse(textwrap.dedent("".join(lines)))))
        except SyntaxError:  # of a lambda in the middle of a statement
            if self.name != "<lambda>":
                raise
            nodes = []
        if self.name == "<lambda>":
            self.name = f"lambda_{self.first}"
            self.tree = self._of_lambda(nodes)
        else:
            self.tree = next(n for n in nodes if isinstance(n, ast.FunctionDef))
        args = self.tree.args
        if args.vararg or args.kwarg or args.kwonlyargs or args.defaults:
            raise TypeError(f"{self.name}: a kernel takes plain arguments, with no defaults and no stars")
        self.parameters = [a.arg for a in args.args]
        outer = inspect.getclosurevars(function)
        self.names = {**outer.builtins, **outer.globals, **outer.nonlocals}

    def _of_lambda(self, nodes):
        """The definition of a function that gives the lambda's expression."""
        code = self.function.__code__
        names = list(code.co_varnames[:code.co_argcount])
        found = [n for n in nodes if isinstance(n, ast.Lambda) and [a.arg for a in n.args.args] == names]
        if len(found) != 1:
            raise ValueError(f"{self.name}: which text is this lambda's is not known; write it with def, or in a line of its own")
        given = ast.copy_location(ast.Return(found[0].body), found[0].body)
        return ast.copy_location(ast.FunctionDef(self.name, found[0].args, [given], []), found[0])


class _Translation:
    """One function for arguments of certain types."""

    def __init__(self, source, arguments, mode, functions, is_kernel=False):
        self.source, self.mode, self.functions = source, mode, functions
        self.outer = {} if is_kernel else None  # arrays of the library by what names them
        self.arguments = dict(arguments)  # name -> type of C, or _ArrayOf
        self.variables, self.arrays = {}, {n: a for n, a in arguments if isinstance(a, _ArrayOf)}
        self.fixed = {n: a for n, a in arguments if not isinstance(a, _ArrayOf)}
        self.variables.update(self.fixed)
        self.written, self.result, self.depth = set(), None, 0
        for _ in range(8):  # types of variables are those of all that is assigned to them
            before = dict(self.variables), self.result
            self.lines, self.temporaries = [], 0
            for statement in source.tree.body:
                self.statement(statement, 1)
            if before == (self.variables, self.result):
                return
        raise TypeError(f"{source.name}: the types of its variables depend on each other without end")

    # --- texts ---

    def fail(self, node, what, error=TypeError):
        raise error(f"{self.source.name}: line {self.line(node)}: {what}")

    def line(self, node):
        return node.lineno + self.source.first - 1

    def add(self, depth, text, node=None):
        if node is not None:
            self.lines.append(f"#line {self.line(node)}")
        self.lines.append("  " * depth + text)

    def body(self):
        declared = [f"  {t} {n};" for n, t in self.variables.items() if n not in self.fixed]
        arrays = [a.declared for a in self.arrays.values() if a.declared]
        return "\n".join(declared + arrays + self.lines)

    # --- statements ---

    def block(self, statements, depth):
        for s in statements:
            self.statement(s, depth)

    def statement(self, s, depth):
        method = getattr(self, "do_" + type(s).__name__, None)
        if method is None:
            self.fail(s, f"kernels have no '{type(s).__name__.lower()}'", NotImplementedError)
        method(s, depth)

    def do_Pass(self, s, depth):
        pass

    def do_Expr(self, s, depth):
        if isinstance(s.value, ast.Constant):
            return  # documentation
        value = self.value(s.value, statement=True)
        self.add(depth, f"{value.text};", s)

    def do_Assign(self, s, depth):
        if len(s.targets) == 1:
            self.assign(s.targets[0], s.value, s, depth)
            return
        value = self.kept(self.value(s.value), s, depth)
        for target in s.targets:
            self.store(target, value, s, depth)

    def kept(self, v, s, depth):
        """A value, computed now."""
        self.temporaries += 1
        name = f"_t{self.temporaries}"
        self.add(depth, f"const {v.type} {name} = {v.text};", s)
        return Number(name, v.type)

    def do_AnnAssign(self, s, depth):
        if s.value is not None:
            self.assign(s.target, s.value, s, depth)

    def assign(self, target, source, s, depth):
        if isinstance(target, ast.Tuple):
            values = self.several(source)
            if len(values) != len(target.elts):
                self.fail(s, f"{len(target.elts)} names for {len(values)} values", ValueError)
            kept = [self.kept(v, s, depth) for v in values]  # all are computed before the first is assigned
            self.add(depth, ";")
            for t, v in zip(target.elts, kept):
                self.store(t, v, s, depth)
            return
        if isinstance(target, ast.Name) and (isinstance(source, ast.Call) and self.memory(target.id, source)
                                             or isinstance(source, ast.Subscript) and self.part(target.id, source, s, depth)):
            return
        self.store(target, self.value(source), s, depth)

    def several(self, node):
        if isinstance(node, ast.Tuple):
            return [self.value(v) for v in node.elts]
        if isinstance(node, ast.Call):
            what = self.known(node.func)
            if what in (INTRINSICS["grid"], INTRINSICS["gridsize"]) and node.args:
                return self.grid(what.__name__, self.literal(node.args[0]))
        if isinstance(node, ast.Attribute) and node.attr == "shape" and self.array(node.value):
            a = self.array(node.value)
            return [self.extent(a, d) for d in range(a.ndim)]
        self.fail(node, "several values are a tuple, grid(2) or a shape")

    def memory(self, name, call):
        """`name = shared_memory(dtype, size)`, which declares it."""
        what = self.known(call.func)
        if getattr(what, "__name__", None) not in ("shared_memory", "local_memory") or not isinstance(what, Intrinsic):
            return False
        given = dict(zip(what.order, call.args)) | {k.arg: k.value for k in call.keywords}
        if set(given) != set(what.order):
            self.fail(call, f"{what.__name__}({', '.join(what.order)})")
        type_ = self.type_of(self.known(given["dtype"]))
        if type_ is None:
            self.fail(call, f"{ast.unparse(given['dtype'])} is no dtype")
        size = self.literal(next(v for k, v in given.items() if k != "dtype"))
        shared = what.__name__ == "shared_memory"
        if size in (None, 0) and shared:
            dims, text = (None,), f"  extern __shared__ {type_} {name}[];"
        else:
            dims = tuple(size) if isinstance(size, tuple) else (size,)
            if not all(isinstance(d, int) and d > 0 for d in dims):
                self.fail(call, f"sizes are numbers known before the kernel runs, not {size!r}")
            text = f"  {'__shared__ ' if shared else ''}{type_} {name}{''.join(f'[{d}]' for d in dims)};"
        self.arrays[name] = _ArrayOf(name, type_, len(dims), dims, text)
        return True

    def part(self, name, node, s, depth):
        """`row = x[i]` of an array of more dimensions, a part of it from here on."""
        a, given = self.indices(node)
        if a is None or len(given) >= a.ndim or isinstance(a, _Outer):
            return False
        if name in self.variables or name in self.arrays and not isinstance(self.arrays[name], _Part):
            self.fail(s, f"{name!r} is a number or an array already, and stays it")
        self.arrays[name] = _Part(name, a, [self.kept(v, s, depth) for v in given])
        return True

    def store(self, target, value, s, depth):
        if isinstance(target, ast.Name):
            name = target.id
            if name in self.arrays:
                self.fail(s, f"{name!r} is an array, and stays one")
            if name in self.fixed:
                if value.rank > _RANK.index(self.fixed[name]):
                    self.fail(s, f"the argument {name!r} is of {self.fixed[name]}, and this of {value.type}")
            else:
                self.variables[name] = _higher(self.variables.get(name, value.type), value.type)
            self.add(depth, f"{name} = {value.text};", s)
        elif isinstance(target, ast.Subscript):
            place = self.element(target)
            if isinstance(self.indices(target)[0], (_Constant, _Outer)):
                self.fail(s, f"{self.root(target)!r} is a constant: what is written is an argument")
            self.written.add(getattr(self.arrays[self.root(target)], "root", self.root(target)))
            self.add(depth, f"{place.text} = {value.text};", s)
        else:
            self.fail(s, "names and elements of arrays are assigned to", NotImplementedError)

    def do_AugAssign(self, s, depth):
        left = self.value(s.target) if not isinstance(s.target, ast.Name) or s.target.id in self.variables else None
        if left is None:
            self.fail(s, f"{s.target.id!r} has no value yet")
        self.store(s.target, self.arithmetic(s.op, left, self.value(s.value), s), s, depth)

    def do_If(self, s, depth):
        self.add(depth, f"if ({self.truth(s.test)}) {{", s.test)
        self.block(s.body, depth + 1)
        if s.orelse:
            self.add(depth, "} else {")
            self.block(s.orelse, depth + 1)
        self.add(depth, "}")

    def do_While(self, s, depth):
        if s.orelse:
            self.fail(s, "a loop has no else", NotImplementedError)
        self.add(depth, f"while ({self.truth(s.test)}) {{", s.test)
        self.block(s.body, depth + 1)
        self.add(depth, "}")

    def do_For(self, s, depth):
        if s.orelse or not isinstance(s.target, ast.Name):
            self.fail(s, "loops are `for name in range(...)` or over a tuple, without an else", NotImplementedError)
        call = s.iter
        if isinstance(call, (ast.Tuple, ast.List)):
            self.each(s, depth)
            return
        if not isinstance(call, ast.Call) or self.known(call.func) not in (range, INTRINSICS["range"]) or not 1 <= len(call.args) <= 3:
            self.fail(s, "loops run over range(...)", NotImplementedError)
        unroll = None
        for k in call.keywords:
            unroll = self.literal(k.value)
            if k.arg != "unroll" or unroll is not True and (type(unroll) is not int or unroll < 1):
                self.fail(call, "range() has one option: unroll=True, or how many rounds")
        given = [self.value(a) for a in call.args]
        if any(v.rank >= _FLOAT for v in given):
            self.fail(s, "range() counts by integers")
        one = Number("1", "int")
        start, stop, step = {1: lambda: (Number("0", "int"), given[0], one), 2: lambda: (*given, one), 3: lambda: given}[len(given)]()
        type_ = _RANK[max(start.rank, stop.rank, step.rank, _INT)]
        type_ = {"unsigned": "long long", "unsigned long long": "long long"}.get(type_, type_)
        self.temporaries += 1
        k = f"_k{self.temporaries}"
        self.add(depth, f"const {type_} {k}_stop = {stop.text}, {k}_step = {step.text};", s)
        forward = self.literal(call.args[2]) if len(given) == 3 else 1  # None: not known yet
        if forward == 0:
            self.fail(s, "range() arg 3 must not be zero", ValueError)
        test = (f"{k}_step > 0 ? {k} < {k}_stop : {k} > {k}_stop" if forward is None
                else f"{k} {'<' if forward > 0 else '>'} {k}_stop")
        self.variables[s.target.id] = _higher(self.variables.get(s.target.id, type_), type_)
        if s.target.id in self.fixed:
            self.fail(s, f"{s.target.id!r} is an argument")
        if unroll is not None:
            self.add(depth, "#pragma unroll" + ("" if unroll is True else f" {unroll}"))
        self.add(depth, f"for ({type_} {k} = {start.text}; {test}; {k} += {k}_step) {{", s)
        self.add(depth + 1, f"{s.target.id} = {k};")
        self.block(s.body, depth + 1)
        self.add(depth, "}")

    def each(self, s, depth):
        """`for x in (-1, 0, 1)`."""
        values = [self.value(v) for v in s.iter.elts]
        if not values:
            self.fail(s, "a loop over nothing")
        type_ = functools.reduce(_higher, [v.type for v in values])
        self.temporaries += 1
        k = f"_k{self.temporaries}"
        self.add(depth, f"{type_} {k}_of[{len(values)}];", s)
        for n, v in enumerate(values):
            self.add(depth, f"{k}_of[{n}] = {v.text};")
        self.add(depth, f"for (int {k} = 0; {k} < {len(values)}; ++{k}) {{", s)
        self.store(s.target, Number(f"{k}_of[{k}]", type_), s, depth + 1)
        self.block(s.body, depth + 1)
        self.add(depth, "}")

    def do_Break(self, s, depth):
        self.add(depth, "break;", s)

    def do_Continue(self, s, depth):
        self.add(depth, "continue;", s)

    def do_Return(self, s, depth):
        if s.value is None or isinstance(s.value, ast.Constant) and s.value.value is None:
            self.add(depth, "return;", s)
            return
        value = self.value(s.value)
        self.result = value.type if self.result is None else _higher(self.result, value.type)
        self.add(depth, f"return {value.text};", s)

    # --- what names stand for ---

    def known(self, node):
        """The Python object of a name outside of the function, or of an attribute of it; None for what is not known."""
        if isinstance(node, ast.Name):
            if node.id in self.variables or node.id in self.arrays:
                return None
            return self.source.names.get(node.id)
        if isinstance(node, ast.Attribute):
            inner = self.known(node.value)
            return None if inner is None else getattr(inner, node.attr, None)
        return None

    @staticmethod
    def type_of(what):
        """The type of C that a dtype is; None for what is no dtype."""
        if what is float or what is int:
            return {float: "double", int: "long long"}[what]
        if isinstance(what, str):
            return _BY_NAME.get(what)
        if isinstance(what, type(_C.float32)):
            return C_NAMES.get(what)
        name = getattr(what, "name", None) if not isinstance(what, type) else what.__name__
        return _BY_NAME.get(name) if isinstance(name, str) else None

    def literal(self, node):
        """A number, or a tuple of some, that is known now; None where it is None or not known."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple(self.literal(e) for e in node.elts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.literal(node.operand)
            return None if inner is None else -inner
        if isinstance(node, ast.BinOp):
            a, b = self.literal(node.left), self.literal(node.right)
            known = {ast.Add: lambda: a + b, ast.Sub: lambda: a - b, ast.Mult: lambda: a * b, ast.FloorDiv: lambda: a // b}
            operation = known.get(type(node.op))
            return operation() if operation and isinstance(a, int) and isinstance(b, int) else None
        what = self.known(node)
        return what if isinstance(what, (bool, int, float, tuple)) else None

    def array(self, node):
        if not isinstance(node, ast.Name):
            return None
        return self.arrays.get(node.id) or self.constant(node)

    def constant(self, node):
        """An array that the function has from elsewhere. The elements of others' arrays are part of the kernel, as they are now."""
        what = self.known(node)
        if not (hasattr(what, "dtype") and hasattr(what, "tolist")) or not getattr(what, "ndim", 0):
            return None
        tensor = what if isinstance(what, Tensor) else getattr(what, "_tensor", None)
        if isinstance(tensor, Tensor):
            if self.outer is None or tensor.dtype not in C_NAMES:
                self.fail(node, f"take the array {node.id!r} as an argument")
            return self.outer.setdefault(id(what), _Outer(f"_o{len(self.outer)}_{node.id}", tensor))
        type_, dims = self.type_of(what.dtype), tuple(what.shape)
        if type_ in (None, "float16", "bfloat16") or not 0 < math.prod(dims) <= _MOST_CONSTANTS:
            self.fail(node, f"the array {node.id!r} is no constant of a kernel: those have numbers, and at most {_MOST_CONSTANTS}; "
                            "take it as an argument")
        if id(what) not in self.functions:
            name = f"_c{len(self.functions)}_{node.id}"
            flat = what.reshape(-1).tolist()
            numbers = ", ".join(self.number(v, node).cast(type_).text for v in flat)
            text = f"static __constant__ {type_} {name}[{len(flat)}] = {{{numbers}}};\n"
            self.functions[id(what)] = (name, None, text, what)  # which keeps it, and its id
        return _Constant(self.functions[id(what)][0], type_, dims)

    def root(self, node):
        while isinstance(node, ast.Subscript):
            node = node.value
        return node.id if isinstance(node, ast.Name) else None

    # --- expressions ---

    def number(self, value, node):
        if isinstance(value, bool):
            return Number("true" if value else "false", "bool")
        if isinstance(value, int):
            small = -(1 << 31) < value < 1 << 31
            if not -(1 << 63) < value < 1 << 63:
                self.fail(node, f"{value} is no number of 64 bits", OverflowError)
            if small and self.mode == "cuda":
                return Number(str(value) if value >= 0 else f"({value})", "int")
            return Number(f"{value}ll" if value >= 0 else f"({value}ll)", "long long")
        if isinstance(value, float):
            suffix, type_ = ("f", "float") if self.mode == "cuda" else ("", "double")
            if math.isnan(value):
                return Number(f"({type_})NAN", type_)
            if math.isinf(value):
                return Number(f"({type_})({'-' if value < 0 else ''}INFINITY)", type_)
            text = repr(value)
            text += "" if any(c in text for c in ".e") else ".0"
            return Number(f"{text}{suffix}" if value >= 0 else f"({text}{suffix})", type_)
        if hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            type_ = self.type_of(value.dtype)
            if type_:
                return self.number(value.item(), node).cast(type_)
        self.fail(node, f"{value!r} is nothing that kernels compute with")

    def truth(self, node):
        """The text of what is asked only whether it is true."""
        if isinstance(node, ast.BoolOp):
            op = " && " if isinstance(node.op, ast.And) else " || "
            return "(" + op.join(f"(bool)({self.truth(v)})" for v in node.values) + ")"
        return self.value(node).text

    def value(self, node, statement=False):
        method = getattr(self, "of_" + type(node).__name__, None)
        if method is None:
            self.fail(node, f"kernels have no '{type(node).__name__}'", NotImplementedError)
        v = method(node)
        if v is None and not statement:
            self.fail(node, "a number is expected, and this has none")
        return v

    def of_Constant(self, node):
        return self.number(node.value, node)

    def of_Name(self, node):
        if node.id in self.variables:
            return Number(node.id, self.variables[node.id])
        if node.id in self.arrays and self.arrays[node.id].ndim == 0:  # as cupy.int32(3) is
            return self.place(self.arrays[node.id], [], node)
        if node.id in self.arrays:
            self.fail(node, f"the array {node.id!r} is used by its elements")
        if node.id in self.source.names:
            what = self.source.names[node.id]
            return Number(what.text, what.type) if isinstance(what, Intrinsic) and what.text else self.number(what, node)
        self.fail(node, f"name {node.id!r} has no value yet", NameError)

    def of_Attribute(self, node):
        a = self.array(node.value)
        if a is not None:
            if node.attr == "size":
                if isinstance(a, _Part):
                    sizes = [self.extent(a, d).cast("long long").text for d in range(a.ndim)]
                    return Number(f"({' * '.join(sizes)})", "long long")
                return Number(f"{a.name}.size()", "long long") if a.dims is None else Number(str(math.prod(a.dims)), "int")
            if node.attr == "ndim":
                return Number(str(a.ndim), "int")
            self.fail(node, f"arrays of kernels have no {node.attr!r} by itself")
        what = self.known(node)
        if isinstance(what, Intrinsic) and what.text:
            return Number(what.text, what.type)
        if what is None:
            self.fail(node, f"unknown name {ast.unparse(node)!r}", NameError)
        return self.number(what, node)

    def extent(self, a, d):
        if not -a.ndim <= d < a.ndim:
            self.fail(self.source.tree, f"{a.name} has {a.ndim} dimensions", IndexError)
        d %= a.ndim
        if isinstance(a, _Part):
            return self.extent(a.whole, d + len(a.before))
        return Number(f"{a.name}.shape()[{d}]", "long long") if a.dims is None else Number(str(a.dims[d]), "int")

    def of_Subscript(self, node):
        if isinstance(node.value, ast.Attribute) and node.value.attr in ("shape", "strides") and self.array(node.value.value):
            a = self.array(node.value.value)
            d = self.literal(node.slice)
            if not isinstance(d, int):
                self.fail(node, "a dimension is a number known before the kernel runs")
            if node.value.attr == "shape":
                return self.extent(a, d)
            if a.dims is not None or isinstance(a, _Part):
                self.fail(node, "strides are those of arguments", NotImplementedError)
            return Number(f"{a.name}.strides()[{d % a.ndim}]", "long long")
        inner = self.known(node.value)
        if isinstance(inner, tuple):
            k = self.literal(node.slice)
            if isinstance(k, int):
                return self.number(inner[k], node)
        return self.element(node)

    def element(self, node):
        a, indices = self.indices(node)
        if a is None:
            self.fail(node, f"{ast.unparse(node)!r} is no element of an array")
        return self.place(a, indices, node)

    def indices(self, node):
        """The array that `x[i, j]` or `x[i][j]` is of, or None, and its indices."""
        root = node
        while isinstance(root, ast.Subscript):
            root = root.value
        a, indices = self.array(root), []
        while a is not None and isinstance(node, ast.Subscript):
            part = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if any(isinstance(p, ast.Slice) for p in part):
                self.fail(node, "kernels take elements, not slices", NotImplementedError)
            indices = [self.value(p) for p in part] + indices
            node = node.value
        return a, indices

    def place(self, a, indices, node):
        for i in indices:
            if i.rank >= _FLOAT:
                self.fail(node, f"an index is an integer, not {i.type}")
        if a.ndim == 0 and not indices:
            return Number(f"{a.name}[0]", a.type)
        if len(indices) != a.ndim:
            self.fail(node, f"{a.name} has {a.ndim} dimensions, and {len(indices)} indices are given", IndexError)
        if isinstance(a, _Part):
            return self.place(a.whole, a.before + indices, node)
        if isinstance(a, _Constant):
            at = indices[0].text
            for i, n in zip(indices[1:], a.dims[1:]):
                at = f"({at} * {n} + {i.text})"
            return Number(f"{a.name}[{at}]", a.type)
        if a.dims is not None:
            return Number(a.name + "".join(f"[{i.text}]" for i in indices), a.type)
        if a.ndim == 1:
            return Number(f"{a.name}[{indices[0].text}]", a.type)
        return Number(f"{a.name}({', '.join(i.text for i in indices)})", a.type)

    def of_BinOp(self, node):
        return self.arithmetic(node.op, self.value(node.left), self.value(node.right), node)

    def arithmetic(self, op, a, b, node):
        type_ = _common(a, b)
        whole = _RANK.index(type_) < _FLOAT
        plain = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}.get(type(op))
        if plain:
            return Number(f"({a.text} {plain} {b.text})", type_)
        if isinstance(op, ast.Div):
            type_ = type_ if not whole else "float" if self.mode == "cuda" and _RANK.index(type_) <= _INT else "double"
            return Number(f"(({type_})({a.text}) / ({type_})({b.text}))", type_)
        if isinstance(op, (ast.FloorDiv, ast.Mod)):
            floor = isinstance(op, ast.FloorDiv)
            pair = f"({type_})({a.text}), ({type_})({b.text})"
            if whole:
                return Number(f"{'_floor_div' if floor else '_modulo'}({pair})", type_)
            if floor:
                return Number(f"floor(({type_})({a.text}) / ({type_})({b.text}))", type_)
            return Number(f"_modulo_float({pair})", type_)
        if isinstance(op, ast.Pow):
            floating = type_ if not whole else "double"
            power = Number(f"pow(({floating})({a.text}), ({floating})({b.text}))", floating)
            return Number(f"({type_})rint({power.text})", type_) if whole else power
        bits = {ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}.get(type(op))
        if bits is None:
            self.fail(node, f"kernels have no '{type(op).__name__}'", NotImplementedError)
        if not whole:
            self.fail(node, f"'{bits}' is for integers")
        both = a.type == b.type == "bool" and bits in "&|^"
        return Number(f"({a.text} {bits} {b.text})", "bool" if both else type_)

    def of_UnaryOp(self, node):
        if isinstance(node.op, ast.Not):
            return Number(f"(!({self.truth(node.operand)}))", "bool")
        v = self.value(node.operand)
        type_ = _common(v, v)
        if isinstance(node.op, ast.Invert) and v.rank >= _FLOAT:
            self.fail(node, "'~' is for integers")
        return Number(f"({ {ast.USub: '-', ast.UAdd: '+', ast.Invert: '~'}[type(node.op)] }({v.text}))", type_)

    def of_BoolOp(self, node):
        if any(self.value(v).type != "bool" for v in node.values):
            self.fail(node, "'and' and 'or' of numbers have no value here: write `a if a else b`, or compare them", NotImplementedError)
        return Number(self.truth(node), "bool")

    def of_Compare(self, node):
        signs = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
        parts, left = [], self.value(node.left)
        for op, right in zip(node.ops, node.comparators):
            if type(op) not in signs:
                self.fail(node, f"kernels have no '{type(op).__name__}'", NotImplementedError)
            right = self.value(right)
            type_ = _common(left, right)
            # A negative int stays below what is unsigned, as in Python.
            if "unsigned" in type_ and left.type != right.type:
                type_ = "long long"
            parts.append(f"({left.cast(type_).text} {signs[type(op)]} {right.cast(type_).text})")
            left = right
        return Number("(" + " && ".join(parts) + ")", "bool")

    def of_IfExp(self, node):
        a, b = self.value(node.body), self.value(node.orelse)
        type_ = a.type if a.type == b.type else _common(a, b)
        return Number(f"({self.truth(node.test)} ? {a.cast(type_).text} : {b.cast(type_).text})", type_)

    # --- calls ---

    def grid(self, name, ndim):
        if ndim not in (1, 2, 3):
            self.fail(self.source.tree, f"{name}() takes 1, 2 or 3 dimensions")
        axes = "xyz"[:ndim]
        if name == "grid":
            return [Number(f"((long long)blockIdx.{a} * blockDim.{a} + threadIdx.{a})", "long long") for a in axes]
        return [Number(f"((long long)blockDim.{a} * gridDim.{a})", "long long") for a in axes]

    def of_Call(self, node):
        what = self.known(node.func)
        if what is None:
            self.fail(node, f"unknown function {ast.unparse(node.func)!r}", NameError)
        options = {k.arg: k.value for k in node.keywords}
        if isinstance(what, Intrinsic):
            return self.intrinsic(what.__name__, node)
        if options:
            self.fail(node, "calls in kernels have no arguments by name", NotImplementedError)
        if isinstance(what, PythonKernel) and what.device:
            return self.device_call(what.source, node)
        if isinstance(what, types.FunctionType) and getattr(what, "__module__", "").partition(".")[0] not in ("arete", "numpy", "math"):
            return self.device_call(_Function(what), node)
        if what is len:
            a = self.array(node.args[0])
            if a is None or a.ndim == 0:
                self.fail(node, "len() is of arrays")
            return self.extent(a, 0)
        args = [self.value(a) for a in node.args]
        if what in (min, max) and len(args) >= 2:
            type_ = functools.reduce(lambda t, v: _common(Number("", t), v), args, args[0].type)
            text = args[0].cast(type_).text
            for v in args[1:]:
                text = f"{what.__name__}({text}, {v.cast(type_).text})"
            return Number(text, type_)
        if what is abs:
            return Number(f"abs({args[0].text})", _common(args[0], args[0]))
        if what in (bool, int, float) and len(args) == 1:
            cuda = self.mode == "cuda"
            type_ = "bool" if what is bool else ("int" if cuda else "long long") if what is int else "float" if cuda else "double"
            return Number(f"({type_})({args[0].text})", type_)
        type_ = self.type_of(what)
        if type_ is not None and len(args) == 1:
            return args[0].cast(type_)
        return self.math_call(what, args, node)

    def math_call(self, what, args, node):
        name = getattr(what, "__name__", "")
        of_math = what is getattr(math, name, None)
        if name not in _MATH:
            self.fail(node, f"kernels do not know {ast.unparse(node.func)}()", NotImplementedError)
        type_ = functools.reduce(lambda t, v: _common(Number("", t), v), args, args[0].type if args else "int")
        type_ = _common(Number("", type_), Number("", type_))
        if _MATH[name] not in ("abs", "max", "min") and _RANK.index(type_) < _FLOAT:
            type_ = "float" if self.mode == "cuda" else "double"
        text = f"{_MATH[name]}({', '.join(a.cast(type_).text for a in args)})"
        if name.startswith("is"):
            return Number(f"(bool){text}", "bool")
        if of_math and name in _WHOLE:
            return Number(f"(long long){text}", "long long")
        return Number(text, type_)

    def device_call(self, source, node):
        """A call of another function, which is translated for these arguments."""
        given = []
        for a in node.args:
            inner = self.array(a)
            given.append(inner if inner is not None else self.value(a))
        if len(given) != len(source.parameters):
            self.fail(node, f"{source.name}() takes {len(source.parameters)} arguments, not {len(given)}")
        for a in given:
            if isinstance(a, _ArrayOf) and (a.dims is not None or isinstance(a, (_Part, _Outer))):
                self.fail(node, "memory that a kernel made, parts of arrays, constants and arrays from elsewhere are not handed to a "
                          "function", NotImplementedError)
        key = (source.function, tuple((a.type, a.ndim, a.contiguous) if isinstance(a, _ArrayOf) else a.type for a in given))
        if key not in self.functions:
            self.functions[key] = None
            listed = [(n, _copy(a, n) if isinstance(a, _ArrayOf) else a.type) for n, a in zip(source.parameters, given)]
            inner = _Translation(source, listed, self.mode, self.functions)
            name = f"{source.name}_{len(self.functions)}"
            signature = ", ".join(f"CArray<{t.type}, {t.ndim}, {int(t.contiguous)}> {n}" if isinstance(t, _ArrayOf) else f"{t} {n}"
                                  for n, t in listed)
            text = f"static __device__ {inner.result or 'void'} {name}({signature}) {{\n{inner.body()}\n}}\n"
            del self.functions[key]  # what it needs stands before it
            self.functions[key] = (name, inner.result, text, {k for k, n in enumerate(source.parameters) if n in inner.written})
        if self.functions[key] is None:
            self.fail(node, f"{source.name}() calls itself", NotImplementedError)
        name, result, _, written = self.functions[key]
        self.written |= {given[k].name for k in written}
        call = f"{name}({', '.join(a.name if isinstance(a, _ArrayOf) else a.text for a in given)})"
        return Number(call, result) if result else _Nothing(call)

    def intrinsic(self, name, node):
        if name in ("syncthreads", "syncwarp", "threadfence"):
            return _Nothing({"syncthreads": "__syncthreads()", "syncwarp": "__syncwarp()", "threadfence": "__threadfence()"}[name])
        if name in ("grid", "gridsize"):
            values = self.grid(name, self.literal(node.args[0]) if node.args else None)
            if len(values) != 1:
                self.fail(node, f"{name}({len(values)}) is assigned to {len(values)} names")
            return values[0]
        if name == "laneid":
            return Number("(int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32)", "int")
        if name.startswith("shfl"):
            args = [self.value(a) for a in node.args] + [self.value(k.value) for k in node.keywords if k.arg == "width"]
            if len(args) not in (3, 4):
                self.fail(node, f"{name}(mask, value, lane)")
            type_ = _common(args[1], args[1])
            rest = "".join(f", {a.text}" for a in args[2:])
            return Number(f"__{name}((unsigned)({args[0].text}), {args[1].cast(type_).text}{rest})", type_)
        if name.startswith("atomic_"):
            return self.atomic(name[len("atomic_"):], node)
        self.fail(node, f"{name}() stands in an assignment by itself" if "memory" in name else f"{name}() is for loops")

    def atomic(self, op, node):
        a = self.array(node.args[0]) if node.args else None
        wanted = 4 if op == "cas" else 3
        if a is None or len(node.args) != wanted:
            self.fail(node, f"atomic_{op}(array, index, {'compared, ' if op == 'cas' else ''}value)")
        at = node.args[1]
        place = self.place(a, [self.value(i) for i in (at.elts if isinstance(at, ast.Tuple) else [at])], node)
        whole = _RANK.index(a.type) < _FLOAT
        floating = ("float", "double") if op in ("add", "sub", "exch") else ()
        if a.type not in ("int", "unsigned", "long long", "unsigned long long", *floating):
            self.fail(node, f"there is no atomic_{op} of {a.type}")
        values = [self.value(v).cast(a.type) for v in node.args[2:]]
        if isinstance(a, (_Constant, _Outer)):
            self.fail(node, f"{node.args[0].id!r} is a constant: what is written is an argument")
        self.written.add(getattr(a, "root", a.name))
        function = {"cas": "CAS"}.get(op, op.capitalize())
        if op == "sub" and a.type not in ("int", "unsigned"):
            function, values = "Add", [Number(f"(-({values[0].text}))", a.type)]
        if a.type == "long long" and whole and op not in ("min", "max", "and", "or", "xor"):
            listed = ", ".join(f"(unsigned long long)({v.text})" for v in values)
            return Number(f"(long long)atomic{function}((unsigned long long*)&{place.text}, {listed})", a.type)
        return Number(f"atomic{function}(&{place.text}, {', '.join(v.text for v in values)})", a.type)


class _Nothing:
    """A call that gives nothing: a statement only."""

    def __init__(self, text):
        self.text = text

    @property
    def type(self):
        raise TypeError(f"{self.text} has no value")

    rank = cast = type


def _copy(a, name):
    b = _ArrayOf(name, a.type, a.ndim)
    b.contiguous = a.contiguous
    return b


class PythonKernel:
    """A kernel that is written as a Python function; `kernel[grid, block](*args)` or `kernel(grid, block, args)` launches it. See
    arete.cupyx.jit."""

    def __init__(self, function, *, mode="cuda", device=False, options=()):
        if mode not in ("cuda", "numpy"):
            raise ValueError(f"mode must be 'cuda' or 'numpy', not {mode!r}")
        functools.update_wrapper(self, function)
        self.function, self.mode, self.device, self.options = function, mode, device, tuple(options)
        self._compiled, self._launches = {}, _C._cuda.Launches(by_layout=False, narrow=mode == "cuda")

    @functools.cached_property
    def source(self):
        return _Function(self.function)

    @property
    def name(self):
        return self.function.__name__

    def __repr__(self):
        return f"<PythonKernel {self.name}>"

    def __getitem__(self, launch):
        launch = launch if isinstance(launch, tuple) else (launch,)
        if not 2 <= len(launch) <= 4:
            raise ValueError(f"{self.name}[grid, block] or [grid, block, stream, shared_bytes], not {len(launch)} values")
        grid, block, stream, shared = *launch, *(None, 0)[len(launch) - 2:]
        return lambda *args: self(grid, block, args, shared, stream)

    def forall(self, count, block=256):
        """Launches a thread for each of `count` elements, in one dimension."""
        return self[(count + block - 1) // block, block]

    def __call__(self, grid, block, args, shared_mem: int = 0, stream=None):
        if stream is not None:
            with on_stream(stream):
                return self(grid, block, args, shared_mem)
        args = tuple(args)
        if _launch._checking or self._launches.call(args, (), grid, block, shared_mem) is NotImplemented:
            self._call(grid, block, args, shared_mem)

    def _call(self, grid, block, args, shared):
        """A call that no earlier one was like."""
        if self.device:
            raise TypeError(f"{self.name} is for other kernels to call")
        if len(args) != len(self.source.parameters):
            raise TypeError(f"{self.name}() takes {len(self.source.parameters)} arguments ({len(args)} given)")
        bound = [self._argument(a) for a in args]
        tensors = [a for a in bound if isinstance(a, Tensor)]
        refuse_gradient(tensors, self.name)
        device = device_of(tensors, self.name)
        checked = is_checking(device)
        arrays = [Array(a) if isinstance(a, Tensor) else a for a in bound]
        key = (checked, *(a.key if isinstance(a, Array) else a[0] for a in arrays))
        if key not in self._compiled:
            self._compiled[key] = self._compile(arrays, checked)
        compiled, written, outer = self._compiled[key]
        device_of([*tensors, *outer] if tensors else outer, self.name)
        sources = []
        for k, a in enumerate(bound):
            sources += [("array", k), ("extents", k)] if isinstance(a, Tensor) else [("number", k, a[0])]
        for t in outer:
            sources += [t, *Array(t).sources("array", 0)[1:]]
        compiled.run(self._launches, (args, ()), [a if isinstance(a, Tensor) else a[1] for a in bound], device, sources,
                     written=[k for k, n in enumerate(self.source.parameters) if n in written], at=(grid, block, shared))

    def _argument(self, a):
        if self.mode == "cuda" and isinstance(a, float) and type(a) is float:
            return "f", a
        if self.mode == "cuda" and isinstance(a, int) and not isinstance(a, bool) and -(1 << 31) <= a < 1 << 31:
            return "i", a
        if isinstance(a, (bool, float)):
            return "?" if isinstance(a, bool) else "d", a
        bound = raw_argument(a)
        if isinstance(bound, Tensor) and bound.dtype not in C_NAMES:
            raise TypeError(f"{self.name}: kernels have no arguments of {bound.dtype}")
        return bound

    def _compile(self, bound, checked):
        listed, signatures, declarations = [], [], []
        for name, a in zip(self.source.parameters, bound):
            if isinstance(a, Array):
                inner = _ArrayOf(name, C_NAMES[a.dtype], len(a.sizes))
                inner.contiguous = a.contiguous
                listed.append((name, inner))
                signatures.append(a.signature(name))
                declarations.append(a.declaration(name, checked))
            else:
                listed.append((name, _OF_KIND[a[0]]))
                signatures.append(f"{_OF_KIND[a[0]]} {name}")
        functions = {}
        translation = _Translation(self.source, listed, self.mode, functions, is_kernel=True)
        if translation.result:
            raise TypeError(f"{self.name}: a kernel returns nothing")
        outer = list(translation.outer.values())
        for o in outer:
            signatures.append(Array(o.tensor).signature(o.name))
            declarations.append(Array(o.tensor).declaration(o.name, checked))
        text = (HEAD + _HELPERS + "".join(f[2] for f in functions.values())
                + beginning(self.name, signatures, checked)
                + "\n".join(declarations) + "\n" + translation.body() + "\n}\n")
        return Compiled(text, self.name, self.options, checked, ()), translation.written, [o.tensor for o in outer]
