"""ElementwiseKernel: statements for every element."""
from __future__ import annotations

import math
import re

from .. import _C
from .._C import Tensor
from .._operators import _ops
from .._snippets import Evaluator, SnippetError
from . import _launch
from ._launch import array_type, device_of, is_bound_as_given, is_checking, refuse_gradient, tensor_of, written_tensor
from ._parameters import C_NAMES, KINDS, Inputs, Types, bind_arguments, common_shape, parameters
from ._text import (
    HEAD, Array, Compiled, beginning, collapsed, given_key, given_sources, given_parameters, inner_name, is_assigned, mentions, typedefs,
)

_e = _C._expr
_RESERVED = ("i", "n")
# What only statements for one element of a thread may say: elements behind it would be skipped, or threads counted.
_ALONE = re.compile(r"\b(return|break|goto|asm|threadIdx|blockIdx|blockDim|gridDim|__\w+)\b")
# The same in macros of the preamble, and functions of it that look at threads.
_HIDDEN = re.compile(r"#\s*define[^\n]*\b(return|break|goto)\b|\b(threadIdx|blockIdx|blockDim|gridDim)\b")
# Several times what a large GPU holds: of many elements each thread has some, whose divisors and addresses it begins with once.
_THREADS = 1 << 20
# So many elements, and those that a grid has beyond them in a last block of up to 1024, are counted by 32 bits: a thread that has done
# the last element adds up to as many once more.
_SHORT = (1 << 31) - 1024


class ElementwiseKernel:
    """Statements of C for every element of arrays, which broadcast:

        squared = ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "squared")
        z = squared(x, y)

    Type names are dtypes or single capital letters, which stand for whatever is passed. A `raw` parameter is the whole array: `x[k]` by
    an index in C order, `x[idx]` by one for each dimension, `x.size()`, `x.shape()[d]`, `x.strides()[d]` (bytes), `x.ndim`. `i` is the
    element's index in C order, `_ind.get()[d]` its index in dimension d, `n` (also `_ind.size()`) the number of elements: the broadcast
    size, or `size=` of the call.

    preamble     text before the kernel: functions, macros, constants
    loop_prep    statements that every thread runs before its elements, after_loop: after them
    reduce_dims  False keeps the dimensions of `_ind` as they are
    no_return    the call gives nothing; return_tuple: always a tuple
    options      of the compiler, on GPUs; "-DNAME=VALUE" on every device

    Statements that are one expression for each result become a fused program with gradients; the others one kernel, which has none."""

    def __init__(self, in_params: str, out_params: str, operation: str, name: str = "kernel", reduce_dims: bool = True,
                 preamble: str = "", no_return: bool = False, return_tuple: bool = False, doc: str = "", *, loop_prep: str = "",
                 after_loop: str = "", options=()):
        self.in_params, self.out_params = (parameters(t, _RESERVED) for t in (in_params, out_params))
        self.operation, self.name, self.preamble, self.reduce_dims = operation, name, preamble, reduce_dims
        self.no_return, self.return_tuple, self.loop_prep, self.after_loop = no_return, return_tuple, loop_prep, after_loop
        # Whether a thread may have one element only.
        defined = "\n".join([preamble, *(f"#define {o[2:]}" for o in options if o.startswith("-D"))])
        self._alone = bool(_ALONE.search(loop_prep + operation + after_loop) or _HIDDEN.search(defined))
        self.options, self.__doc__ = tuple(options), doc or type(self).__doc__
        if not name.isidentifier():
            raise ValueError(f"the name of a kernel must be an identifier, not {name!r}")
        if not self.out_params:
            raise ValueError("a kernel needs at least one output")
        names = [p.name for p in self.in_params + self.out_params]
        if len(set(names)) != len(names):
            raise ValueError("parameters must have different names")
        Types(self.in_params + self.out_params)
        self._expressions = {} if self.in_params and not (
            preamble or loop_prep or after_loop or options or any(p.raw for p in self.in_params + self.out_params)) else None
        raw = [p.raw for p in self.in_params + self.out_params]
        self._compiled, self._launches = {}, _C._cuda.Launches(by_layout=True, narrow=False, raw=raw)

    _array = None  # the type of results where no argument is an array: a tensor

    @staticmethod
    def _device():
        """Where they are then."""
        return _C._default_device() or _C.device("cpu")

    def __repr__(self):
        return f"<ElementwiseKernel {self.name}>"

    def __call__(self, *args, size: int | None = None, block_size: int = 128):
        """Results as new arrays, or written into output arguments that follow the inputs. `size` is the number of elements where
        every array is raw."""
        results = NotImplemented if _launch._checking else self._launches.call(args, (size, block_size))
        if results is NotImplemented:
            results = self._call(args, size, block_size)
        count = len(self.in_params)
        if len(args) == count or self.no_return:
            return results
        return args[count] if len(args) == count + 1 and not self.return_tuple else args[count:]

    def _call(self, args, size, block_size):
        """A call that no earlier one was like."""
        count = len(self.in_params)
        if len(args) not in (count, count + len(self.out_params)):
            raise TypeError(f"{self.name} takes {count} inputs and {len(self.out_params)} outputs ({len(args)} given)")
        wrap, given = array_type(args), args[count:]
        alone = all(tensor_of(a) is None for a in args)  # what is made then is as the class has it
        outs = [written_tensor(a) for a in given]
        if any(t is None for t in outs):
            raise TypeError(f"{self.name}: outputs must be arrays")
        bound, types, device = bind_arguments(self.in_params, args[:count], self.name, outs)
        if alone:
            wrap, device = self._array, self._device()
        for p, out in zip(self.out_params, outs):
            if types.bind(p.type, out.dtype) is not out.dtype:
                raise TypeError(f"{self.name}: the output {p.name!r} is of {types.known(p)._name}, and the given array of "
                                f"{out.dtype._name}")
        run = self._as_expression(bound, types, device, wrap) if size is None else None
        if run is None:
            return self._as_statements(args, bound, types, device, outs, size, block_size, wrap)
        bound = [*bound, *outs]
        if is_bound_as_given(args, bound):
            self._launches.keep(args, (size, block_size), run)
        return run(*bound)

    # --- expressions ---

    def _as_expression(self, bound, types, device, wrap):
        """The call as a function of the bound arguments; None where the statements are not expressions."""
        if self._expressions is None:
            return None
        inputs, count = Inputs(self.in_params, bound, types, device), len(bound)
        program = self._program(inputs, types)
        if program is None:
            return None

        no_return, return_tuple = self.no_return, self.return_tuple  # the table of plans, which has this, is the kernel's: no circle

        def run(*bound):
            results = program(*inputs.of(bound))
            if len(bound) > count:
                for out, r in zip(bound[count:], results):
                    out.copy_(r)
            elif not no_return:
                if wrap is not None:
                    results = [wrap(r) for r in results]
                return results[0] if len(results) == 1 and not return_tuple else tuple(results)

        return run

    def _program(self, inputs, types):
        if inputs.key in self._expressions:
            return self._expressions[inputs.key]
        out_dtypes = [types.known(p) for p in self.out_params]

        def definition(*values):
            values = inputs.in_order(values)
            variables = {p.name: v for p, v in zip(self.in_params, values)}
            evaluator = Evaluator(self.operation, variables, types.generic, values[0])
            result = evaluator.run()
            outputs = []
            for p, dtype in zip(self.out_params, out_dtypes):
                if p.name not in result:
                    raise SnippetError(f"{p.name!r} is never assigned in {self.operation!r}")
                outputs.append((evaluator._value(result[p.name]).cast(dtype), dtype))
            return outputs

        try:
            program = _e.trace(definition, *inputs.dtypes(), self.name)
        except SnippetError:
            program = None
        self._expressions[inputs.key] = program
        return program

    # --- statements ---

    def _as_statements(self, args, bound, types, device, outs, size, block_size, wrap):
        self._check_assignments(bool(outs))
        inputs = [b for b in bound if isinstance(b, Tensor)]
        refuse_gradient(inputs + outs, self.name)
        listed = [(p, b) for p, b in zip(self.in_params, bound)]
        shapes = [tuple(b.shape) for p, b in listed if not p.raw and isinstance(b, Tensor)]
        shapes += [tuple(o.shape) for p, o in zip(self.out_params, outs) if not p.raw]
        if size is not None:
            if any(len(s) for s in shapes):
                raise ValueError(f"{self.name}: Specified 'size' can be used only if all of the ndarray are 'raw'.")
            shape = (int(size),)
        elif not shapes and not any(not p.raw for p, _ in listed):
            raise ValueError(f"{self.name}: Loop size is undecided.")
        else:
            shape = common_shape(shapes, self.name)
        if not outs and size is None and any(p.raw for p in self.out_params):
            raise ValueError(f"{self.name}: Output array size is Undecided")
        for p, out in zip(self.out_params, outs):
            if not p.raw and tuple(out.shape) != shape and size is None:
                raise ValueError(f"{self.name}: the output {p.name!r} has shape {tuple(out.shape)}, and the elements {shape}")
        device_of(inputs + outs, self.name)
        return self._run(args, [*bound, *outs], types, device, shape, size, block_size, wrap)

    def _check_assignments(self, given):
        for p in self.out_params:
            if p.raw:
                continue
            if not is_assigned(self.operation, p.name):
                raise SnippetError(f"{p.name!r} is never assigned in {self.operation!r}")
            first = re.search(rf"\b{p.name}\b\s*(\S\S?)", self.operation)
            if not given and first and first[1] in ("+=", "-=", "*=", "/="):
                raise SnippetError(f"{p.name!r} has no value yet in {self.operation!r}")

    def _run(self, args, bound, types, device, shape, size, block_size, wrap):
        listed = list(zip(self.in_params + self.out_params, bound))
        made = [] if len(bound) > len(self.in_params) else [(shape, types.known(p)) for p in self.out_params]
        plain = [_ops.broadcast_to(b, shape) for p, b in listed if not p.raw and isinstance(b, Tensor)]
        strides = [t.stride() for t in plain] + [_row_major(shape) for _ in made]
        count, sizes = math.prod(shape), shape
        if self.reduce_dims:
            sizes, strides = collapsed(shape, strides)
        rows = iter(strides)
        arrays = [(p, Array(b) if p.raw else Array(b, sizes, next(rows))) if isinstance(b, Tensor) else (p, b) for p, b in listed]
        new = [(p, Array.of(dtype, shape if p.raw else sizes, _row_major(shape) if p.raw else next(rows)))
               for p, (_, dtype) in zip(self.out_params, made)]
        checked = is_checking(device)
        # Plans for any number of elements are for as many as 32 bits count (Note [Prepared launches]).
        short = count <= _SHORT
        key = (given_key(types, arrays + new), len(sizes), checked, short,
               tuple(sorted((n, t._name) for n, t in types.generic.items())))
        if key not in self._compiled:
            self._compiled[key] = self._compile(arrays + new, types, len(sizes), checked, short)
        most = max(_THREADS // block_size, 1) if device.type == "cuda" and not self._alone else 2**31 - 1
        # With any number of elements in one row: Note [Prepared launches].
        even = (self.reduce_dims or len(shape) == 1) and all(
            b.is_contiguous() and (p.raw or tuple(b.shape) == shape and shape != ()) for p, b in listed if isinstance(b, Tensor))
        even = even and not (made and len(shape) > 1 and any(p.raw for p in self.out_params))
        if even:
            row, sources = [("count",), ("count",)], []
            for k, (p, a) in enumerate(arrays):
                if isinstance(a, Array):
                    sources += [("array", k), ("extents", k)] if p.raw else [("array", k), *row, ("q", a.dtype.itemsize)]
                else:
                    sources.append(("number", k, KINDS[types.known(p)]))
            for k, (_, a) in enumerate(new):
                sources += [("made", k), *row, ("q", a.dtype.itemsize)]
            sources += row
        else:
            sources = given_sources(types, arrays)
            for k, (_, a) in enumerate(new):
                sources += a.sources("made", k)
            sources += [("q", count), *(("q", s) for s in sizes)]
        return self._compiled[key].run(
            self._launches, (args, (size, block_size)), bound, device, sources, made, range(len(self.in_params), len(bound)),
            grid=(min((count + block_size - 1) // block_size, most), 1, 1), block=(block_size, 1, 1), wrap=wrap,
            results=0 if self.no_return else len(made), one=not self.return_tuple, count=count,
            spread=(True, block_size, most) if even else None)

    def _compile(self, arrays, types, nd, checked, short):
        outputs = {p.name for p in self.out_params}
        signatures, declarations = given_parameters(types, arrays, checked)
        indexed = mentions(self.operation + self.loop_prep + self.after_loop, "_ind") or nd > 1 and any(
            isinstance(a, Array) and not p.raw and not a.contiguous for p, a in arrays)
        # `i` and `n` are of 64 bits. Where 32 bits are enough the compiler is to see it: it divides by half as wide numbers then, with a
        # fraction of the instructions, which are most of what it has to do for statements with `%`.
        word, bits = ("unsigned", " & 0x7fffffff") if short else ("ptrdiff_t", "")
        declarations.append(f"  const ptrdiff_t n = _n{bits};")
        elements = [f"    ptrdiff_t i = _i{bits};"]
        for p, a in arrays:
            if isinstance(a, Array) and not p.raw:
                place = f"{inner_name(p)}[{'i' if a.contiguous or nd == 1 else '_ind.get()'}]"
                reference = "&" if p.name in outputs else ""
                elements.append(f"    {'' if reference else 'const '}{C_NAMES[a.dtype]}{reference} {p.name} = {place};")
        signatures += ["long long _n", *(f"long long _n{d}" for d in range(nd))]
        if indexed:
            sizes = "".join(f", _n{d}" for d in range(nd))
            declarations.append(f"  CIndexer<{nd}> _ind(n{sizes});")
            elements.insert(1, "    _ind.set(i);")
        prep = f"#line 1\n{self.loop_prep}\n  ;\n" if self.loop_prep else ""
        after = f"#line 1\n{self.after_loop}\n  ;\n" if self.after_loop else ""
        text = (f"{HEAD}{typedefs(types)}#line 1\n{self.preamble}\n"
                + beginning(self.name, signatures, checked) + "\n".join(declarations) + f"\n{prep}"
                # Unrolled, each thread would begin with dividing the elements among rounds.
                "#pragma unroll 1\n"
                f"  for ({word} _i = blockIdx.x * ({word})blockDim.x + threadIdx.x; _i < n; _i += ({word})blockDim.x * gridDim.x) {{\n"
                + "\n".join(elements) + f"\n#line 1\n{self.operation}\n  ;\n  }}\n{after}}}\n")
        return Compiled(text, self.name, self.options, checked, self.operation.splitlines())


def _row_major(shape):
    strides, n = [], 1
    for s in reversed(shape):
        strides.append(n)
        n *= s
    return strides[::-1]
