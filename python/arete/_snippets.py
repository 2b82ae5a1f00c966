"""The language of elementwise kernels: statements of C on scalars, such as `float d = x - y; z = d * d`.

What is understood: assignments (also += -= *= /=), declarations with an initial value, the operators of C without
++, -- and pointers, ?:, casts, calls of mathematical functions, numbers. Loops and branches are not: `cond ? a : b`
chooses. A snippet is evaluated once on symbolic values, which gives a fused program for any device."""
from __future__ import annotations

import re

from . import _C

_e = _C._expr

TYPES = {
    "float": _C.float32, "double": _C.float64, "half": _C.float16, "float16": _C.float16, "float32": _C.float32,
    "float64": _C.float64, "bfloat16": _C.bfloat16, "int": _C.int32, "int8": _C.int8, "int16": _C.int16,
    "int32": _C.int32, "int64": _C.int64, "long": _C.int64, "uint8": _C.uint8, "bool": _C.bool, "char": _C.int8,
    "short": _C.int16, "uint16": _C.uint16, "uint32": _C.uint32, "uint64": _C.uint64,
}

_FUNCTIONS1 = {
    "abs": "abs", "fabs": "abs", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "round", "rint": "round",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2",
    "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos",
    "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh",
    "atanh": "atanh", "erf": "erf", "erfc": "erfc", "lgamma": "lgamma", "isnan": "is_nan", "isinf": "is_inf",
}
_FUNCTIONS2 = {"pow": "pow", "min": "min", "max": "max", "fmin": "min", "fmax": "max", "atan2": "atan2",
               "copysign": "copysign", "fmod": "fmod"}

_TOKEN = re.compile(r"""\s*(?:(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[fFlLuU]*|0[xX][0-9a-fA-F]+)
                        |(?P<name>[A-Za-z_]\w*(?:::\w+)*)
                        |(?P<op><<|>>|<=|>=|==|!=|&&|\|\||\+=|-=|\*=|/=|[-+*/%<>=!~&|^?:(),;]))""", re.X)


class SnippetError(ValueError):
    """A snippet outside the language, with the place."""


def _tokens(text):
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
    place, tokens = 0, []
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        if not match:
            rest = text[place:].lstrip()
            raise SnippetError(f"cannot read {rest[:20]!r} in {text!r}")
        kind = match.lastgroup
        tokens.append((kind, match.group(kind)))
        place = match.end()
    tokens.append(("end", ""))
    return tokens


_PRECEDENCE = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!="], ["<", "<=", ">", ">="], ["<<", ">>"], ["+", "-"],
               ["*", "/", "%"]]


class Evaluator:
    """Evaluates a snippet on symbolic values. `variables` maps names to values; assignments change it."""

    def __init__(self, text: str, variables: dict, types: dict, like):
        self._text, self._tokens, self._at = text, _tokens(text), 0
        self.variables, self._types, self._like = variables, types, like

    # ---- tokens
    def _peek(self):
        return self._tokens[self._at][1]

    def _take(self, expected=None):
        kind, text = self._tokens[self._at]
        if expected is not None and text != expected:
            self._fail(f"expected {expected!r}, found {text or 'the end'!r}")
        self._at += 1
        return kind, text

    def _fail(self, why):
        raise SnippetError(f"{why} in {self._text!r}")

    # ---- statements
    def run(self) -> dict:
        while self._peek():
            if self._peek() == ";":
                self._take()
                continue
            self._statement()
            if self._peek():
                self._take(";")
        return self.variables

    def expression_only(self):
        value = self._expression()
        if self._peek():
            self._fail(f"unexpected {self._peek()!r}")
        return self._value(value)

    def _statement(self):
        kind, name = self._take()
        while name == "const":
            kind, name = self._take()
        if kind != "name":
            self._fail(f"a statement must be an assignment, not {name!r}")
        if name in ("for", "while", "if", "return", "do", "switch", "auto") and name != "auto":
            self._fail(f"'{name}' is not understood (a ? b : c chooses)")
        declared = None
        if self._tokens[self._at][0] == "name":  # "float d = ..."
            if name != "auto":
                declared = self._type(name)
            _, name = self._take()
        _, op = self._take()
        if op not in ("=", "+=", "-=", "*=", "/="):
            self._fail(f"expected an assignment to {name!r}")
        value = self._expression()
        if op != "=":
            if name not in self.variables:
                self._fail(f"{name!r} has no value yet")
            value = self._binary(op[0], self.variables[name], value)
        if declared is not None:
            value = self._value(value).cast(declared)
        self.variables[name] = value

    def _type(self, name):
        dtype = self._types.get(name) or TYPES.get(name)
        if dtype is None:
            self._fail(f"unknown type {name!r}")
        return dtype

    # ---- expressions
    def _value(self, x):
        return x if isinstance(x, _e.Value) else self._number_as_value(x)

    def _number_as_value(self, x):
        return self._like.zero_as(float(x), _C.int64 if isinstance(x, int) else _C.float32)

    def _expression(self):
        condition = self._level(0)
        if self._peek() != "?":
            return condition
        self._take()
        a = self._expression()
        self._take(":")
        b = self._expression()
        if not isinstance(condition, _e.Value):
            return a if condition else b
        if not isinstance(a, _e.Value) and not isinstance(b, _e.Value):
            floating = isinstance(a, float) or isinstance(b, float)
            a, b = (self._like.zero_as(float(v), _C.float32 if floating else _C.int64) for v in (a, b))
        elif not isinstance(a, _e.Value):
            a = b.constant(float(a))
        elif not isinstance(b, _e.Value):
            b = a.constant(float(b))
        return _e.where(condition, a, b)

    def _level(self, level):
        if level == len(_PRECEDENCE):
            return self._unary()
        left = self._level(level + 1)
        while self._peek() in _PRECEDENCE[level]:
            _, op = self._take()
            left = self._binary(op, left, self._level(level + 1))
        return left

    def _binary(self, op, a, b):
        if not isinstance(a, _e.Value) and not isinstance(b, _e.Value):
            return self._constants(op, a, b)
        floating = (a.is_floating if isinstance(a, _e.Value) else isinstance(a, float)) or (
            b.is_floating if isinstance(b, _e.Value) else isinstance(b, float))
        if op == "/" and not floating:  # C's division of integers
            return _e.trunc_div(self._value(a), self._value(b))
        if op == "%":
            return _e.fmod(a, b) if isinstance(a, _e.Value) or isinstance(b, _e.Value) else a % b
        if op in ("&&", "||"):
            a, b = self._truth(a), self._truth(b)
            op = op[0]
        if not isinstance(a, _e.Value):
            a = b.constant(float(a)) if not floating or b.is_floating else self._value(float(a))
        return {
            "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b, "<": lambda: a < b,
            "<=": lambda: a <= b, ">": lambda: a > b, ">=": lambda: a >= b, "==": lambda: a == b,
            "!=": lambda: a != b, "&": lambda: a & b, "|": lambda: a | b, "^": lambda: a ^ b,
            "<<": lambda: a << b, ">>": lambda: a >> b,
        }[op]()

    def _truth(self, x):
        x = self._value(x)
        return x if x.is_boolean else x != 0.0

    def _constants(self, op, a, b):
        if op == "/":
            if b == 0:
                self._fail("division by zero")
            return a / b if isinstance(a, float) or isinstance(b, float) else int(a / b)
        if op == "%":
            if b == 0:
                self._fail("division by zero")
            return a % b
        return {
            "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "<": lambda: a < b, "<=": lambda: a <= b,
            ">": lambda: a > b, ">=": lambda: a >= b, "==": lambda: a == b, "!=": lambda: a != b,
            "&": lambda: a & b, "|": lambda: a | b, "^": lambda: a ^ b, "<<": lambda: a << b, ">>": lambda: a >> b,
            "&&": lambda: bool(a and b), "||": lambda: bool(a or b),
        }[op]()

    def _unary(self):
        kind, text = self._tokens[self._at]
        if text in ("-", "+", "!", "~"):
            self._take()
            x = self._unary()
            if not isinstance(x, _e.Value):
                return {"-": lambda: -x, "+": lambda: x, "!": lambda: not x, "~": lambda: ~x}[text]()
            return {"-": lambda: -x, "+": lambda: x, "!": lambda: x.logical_not(), "~": lambda: ~x}[text]()
        if text == "(" and self._tokens[self._at + 1][0] == "name" and self._tokens[self._at + 2][1] == ")" and (
                self._tokens[self._at + 1][1] in self._types or self._tokens[self._at + 1][1] in TYPES):
            self._take()
            dtype = self._type(self._take()[1])
            self._take(")")
            return self._value(self._unary()).cast(dtype)
        return self._primary()

    def _primary(self):
        kind, text = self._take()
        if text == "(":
            x = self._expression()
            self._take(")")
            return x
        if kind == "number":
            digits = text.rstrip("uUlL") if text[:2].lower() == "0x" else text.rstrip("fFlLuU")
            if text[:2].lower() == "0x":
                return int(digits, 16)
            return float(digits) if any(c in text for c in ".eEfF") else int(digits)
        if kind != "name":
            self._fail(f"unexpected {text or 'end'!r}")
        name = text.rsplit("::", 1)[-1]
        if self._peek() == "(":
            return self._call(name)
        if text in self.variables:
            return self.variables[text]
        if text in ("true", "false"):
            return text == "true"
        if text in ("M_PI", "INFINITY", "NAN"):
            return {"M_PI": 3.141592653589793, "INFINITY": float("inf"), "NAN": float("nan")}[text]
        self._fail(f"unknown name {text!r}")

    def _call(self, name):
        self._take("(")
        arguments = []
        while self._peek() != ")":
            arguments.append(self._expression())
            if self._peek() != ")":
                self._take(",")
        self._take(")")
        dtype = self._types.get(name) or TYPES.get(name)
        if dtype is not None:
            if len(arguments) != 1:
                self._fail(f"a conversion to {name} takes one value")
            return self._value(arguments[0]).cast(dtype)
        if name.endswith("f") and name[:-1] in {**_FUNCTIONS1, **_FUNCTIONS2}:
            name = name[:-1]
        if name in _FUNCTIONS1 and len(arguments) == 1:
            return getattr(_e, _FUNCTIONS1[name])(self._value(arguments[0]))
        if name in _FUNCTIONS2 and len(arguments) == 2:
            a, b = arguments
            if not isinstance(a, _e.Value) and not isinstance(b, _e.Value):
                a = self._value(a)
            return getattr(_e, _FUNCTIONS2[name])(a, b)
        self._fail(f"unknown function {name}() with {len(arguments)} argument(s)")
