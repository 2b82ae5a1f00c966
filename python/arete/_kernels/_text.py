"""Texts of kernels made from users' statements. They are CUDA C++ with the arrays of device/user_kernel.cuh, and what runs kernels on
the CPU reads the same text."""
from __future__ import annotations

import functools
import math
import re

from .. import _C
from ._launch import Fault, is_bound_as_given
from ._parameters import C_NAMES, KINDS

HEAD = '#include "user_kernel.cuh"\n'


@functools.cache
def mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def is_assigned(text: str, name: str) -> bool:
    """Whether statements may give the name a value: assign to it, count it up, hand its address or itself to a function."""
    n = re.escape(name)
    return re.search(rf"\b{n}\b\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|\b{n}\b\s*(?:\+\+|--)|(?:\+\+|--)\s*{n}\b|&\s*{n}\b|[(,]\s*{n}\s*[,)]",
                     text) is not None


class Array:
    """How a tensor is an argument: its pointer, and the sizes and strides (in bytes) that its layout needs said."""

    def __init__(self, tensor, sizes=None, strides=None):
        self._lay(tensor.dtype, tensor.shape if sizes is None else sizes, tensor.stride() if strides is None else strides)

    @classmethod
    def of(cls, dtype, sizes, strides):
        """Of a tensor that is made later."""
        array = cls.__new__(cls)
        array._lay(dtype, sizes, strides)
        return array

    def _lay(self, dtype, sizes, strides):
        self.dtype, self.sizes = dtype, tuple(sizes)
        expected = item = dtype.itemsize
        self.strides = tuple(s * item for s in strides)
        contiguous = True
        for size, stride in zip(reversed(self.sizes), reversed(self.strides)):
            contiguous = contiguous and (size == 1 or stride == expected)
            expected *= size
        self.contiguous = contiguous or 0 in self.sizes

    @property
    def key(self):
        return self.dtype, len(self.sizes), self.contiguous

    def signature(self, name):
        extents = "".join(f", long long {name}_n{d}, long long {name}_s{d}" for d in range(len(self.sizes)))
        return f"{C_NAMES[self.dtype]}* {name}_p, long long {name}_n{extents}"

    def sources(self, place, k):
        """What it is in a launch of arrays that lie like it, where its pointer is that of "array" or "made" number k."""
        return [(place, k), ("q", math.prod(self.sizes)), *(("q", v) for pair in zip(self.sizes, self.strides) for v in pair)]

    def declaration(self, name, checked):
        nd = len(self.sizes)
        extents = "".join([f", {name}_n{d}" for d in range(nd)] + [f", {name}_s{d}" for d in range(nd)])
        fault = f" {name}.fault = _fault;" if checked else ""
        return (f"  CArray<{C_NAMES[self.dtype]}, {nd}, {int(self.contiguous)}> "
                f"{name}({name}_p, {name}_n{extents});{fault}")


def number_signature(dtype, name):
    return f"{'float' if dtype in (_C.float16, _C.bfloat16) else C_NAMES[dtype]} {name}_v"


def inner_name(parameter):
    """What an array is called; of one that is not raw the name is that of its element."""
    return parameter.name if parameter.raw else "_" + parameter.name


def given_key(types, given):
    """What a kernel of `given`, pairs of a parameter and an Array or a number, depends on."""
    return tuple(a.key if isinstance(a, Array) else types.known(p) for p, a in given)


def given_sources(types, given):
    sources = []
    for k, (p, a) in enumerate(given):
        sources += a.sources("array", k) if isinstance(a, Array) else [("number", k, KINDS[types.known(p)])]
    return sources


def given_parameters(types, given, checked):
    """The parameters of the kernel for them, and the declarations that it begins with."""
    signatures, declarations = [], []
    for p, a in given:
        if isinstance(a, Array):
            signatures.append(a.signature(inner_name(p)))
            declarations.append(a.declaration(inner_name(p), checked))
        else:
            signatures.append(number_signature(types.known(p), p.name))
            declarations.append(f"  const {C_NAMES[types.known(p)]} {p.name} = {p.name}_v;")
    return signatures, declarations


def typedefs(types):
    return "".join(f"typedef {C_NAMES[t]} {name};\n" for name, t in sorted(types.generic.items()))


class Compiled:
    """A text, its function, and the lines of the user that errors of the checked mode show."""

    def __init__(self, text, name, options, checked, lines):
        options = [*options, "-DARETE_CHECKED"] if checked else list(options)
        self.kernel = _C._cuda.RawKernel(text, name, options)
        self.name, self.text, self.options, self.checked, self.lines = name, text, options, checked, lines

    def run(self, launches, call, bound, device, sources, made=(), written=(), *, grid=(1, 1, 1), block=(1, 1, 1), at=(), **results):
        """Launches with the tensors and numbers `bound`, where `at` says, or the plan; the plan stays for calls like `call`, arguments
        and options (Note [Prepared launches] in python/src/kernel_launch.cpp)."""
        fault = Fault(device) if self.checked else None
        plan = _C._cuda.LaunchPlan(self.kernel, device, grid, block, [*sources, fault.tensor] if fault else sources, made, written,
                                   **results)
        result = launches.run(plan, tuple(bound), *at)
        if fault:
            fault.look(self.name, self.lines)
        elif is_bound_as_given(call[0], bound):
            launches.keep(*call, plan)
        return result


def beginning(name, signatures, checked):
    """A kernel up to its first statement."""
    parameters = ", ".join([*signatures, "long long* _fault"] if checked else signatures)
    return f'extern "C" __global__ void {name}({parameters}) {{\n'


def collapsed(shape, strides):
    """The shape and the strides of each operand with dimensions that all of them run through in one taken together."""
    sizes, rows = [], [[] for _ in strides]
    for d, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(r[-1] == s[d] * size for r, s in zip(rows, strides)):
            sizes[-1] *= size
            for r, s in zip(rows, strides):
                r[-1] = s[d]
        else:
            sizes.append(size)
            for r, s in zip(rows, strides):
                r.append(s[d])
    return tuple(sizes) or (1,), [tuple(r) or (0,) for r in rows]
