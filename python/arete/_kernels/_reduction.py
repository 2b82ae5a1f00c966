"""ReductionKernel: map, reduce, map again."""
from __future__ import annotations

import math
import operator
import re

from .. import _C
from .._C import Tensor
from .._operators import _ops
from .._snippets import TYPES, Evaluator, SnippetError
from . import _launch
from ._launch import array_type, is_bound_as_given, is_checking, refuse_gradient, written_tensor
from ._parameters import C_NAMES, KINDS, Inputs, bind_arguments, common_shape, is_generic, parameters
from ._text import HEAD, Array, Compiled, beginning, given_key, given_parameters, given_sources, inner_name, mentions, typedefs

_e = _C._expr
_RESERVED = ("i", "a", "b")

_REDUCTIONS = {"a+b": "sum", "a*b": "prod", "max(a,b)": "max", "min(a,b)": "min", "a&&b": "all", "a||b": "any",
               "b+a": "sum", "b*a": "prod", "fmax(a,b)": "max", "fmin(a,b)": "min"}
# The identities of those, as users may write them: another one takes part in the result.
_IDENTITIES = {"sum": ("0", "0.0", "0.0f", "0.f", "0."), "prod": ("1", "1.0", "1.0f", "1.f", "1."), "all": ("1", "true"),
               "any": ("0", "false"), "max": (), "min": ()}
_THREADS = 256
_BLOCKS = 1056  # that fill a large GPU

# What the threads of a block have found is taken together two and two, in shared memory.
_TREE = f"""  _shared[_tid] = _s;
  __syncthreads();
  for (unsigned _k = {_THREADS} / 2; _k >= _S; _k >>= 1) {{
    if (_tid < _k) {{
      _type_reduce _a = _shared[_tid], _b = _shared[_tid + _k];
      _shared[_tid] = REDUCE(_a, _b);
    }}
    __syncthreads();
  }}
"""

# One kernel: a block has `_S` results side by side and _THREADS / _S threads for each, which tree up what they found. Where a few results
# have much to be made of, gridDim.y blocks share them, and the last one to end takes their parts together.
_BODY = """
  __shared__ _type_reduce _shared[{threads}];
  __shared__ unsigned _before;
  const unsigned _tid = threadIdx.x, _lane = _tid % _S, _first = _tid / _S, _per = {threads} / _S;
  const long long _r = (long long)blockIdx.x * _S + _lane;
  _type_reduce _s = _type_reduce({identity});
  if (_r < _R) {{
    for (long long _c = (long long)blockIdx.y * _per + _first; _c < _C; _c += (long long)_per * gridDim.y) {{
      const long long i = _r * _C + _c;
{elements}
#line 1
      _type_reduce _a = _type_reduce({map});
      _s = REDUCE(_s, _a);
    }}
  }}
{tree}  if (gridDim.y > 1) {{
    if (_tid < _S && _r < _R) _parts[blockIdx.y * _R + _r] = _shared[_tid];
    __threadfence();
    __syncthreads();
    if (_tid == 0) _before = atomicAdd(&_ended[blockIdx.x], 1u);
    __syncthreads();
    if (_before != gridDim.y - 1) return;
    __threadfence();
    if (_tid == 0) _ended[blockIdx.x] = 0u;
    _s = _type_reduce({identity});
    if (_r < _R) {{
      for (unsigned _g = _first; _g < gridDim.y; _g += _per) {{
        _type_reduce _a = __ldcg(&_parts[_g * _R + _r]);
        _s = REDUCE(_s, _a);
      }}
    }}
{tree}  }}
  if (_tid < _S && _r < _R) {{
    const long long i = _r;
    const _type_reduce a = _shared[_tid];
{outputs}
#line 1
    {post}
    ;
  }}
}}
"""


class ReductionKernel:
    """map, reduce, map again, over any axes, in one kernel:

        l2norm = ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
        l2norm(x, axis=1)

    `reduce_expr` takes two values `a` and `b` together, starting from `identity`; `post_map_expr` makes the result of what they come to,
    `a`. What is reduced has the type `reduce_type`, that of the first output if it is not given. A raw parameter is the whole array; `i` is
    the index in C order of the element in the map expression, where the reduced dimensions come last, and of the result in the other.

    a + b, a * b, max(a, b), min(a, b), a && b and a || b of expressions have gradients, and their identity need not be said."""

    def __init__(self, in_params, out_params, map_expr, reduce_expr, post_map_expr, identity, name="reduce_kernel", reduce_type=None,
                 reduce_dims=True, preamble="", options=()):
        self.in_params, self.out_params = (parameters(t, _RESERVED) for t in (in_params, out_params))
        if not self.in_params or not self.out_params:
            raise ValueError("a reduction needs an input and an output")
        if any(p.raw for p in self.out_params):
            raise ValueError("the outputs of a reduction are not raw")
        if not name.isidentifier():
            raise ValueError(f"the name of a kernel must be an identifier, not {name!r}")
        if reduce_type is not None and not is_generic(reduce_type) and reduce_type not in TYPES:
            raise TypeError(f"unknown type {reduce_type!r}")
        self.map_expr, self.reduce_expr, self.post_map_expr, self.name = map_expr, reduce_expr, post_map_expr, name
        self.identity = "" if identity is None else str(identity)
        self.reduce_type, self.reduce_dims, self.preamble, self.options = reduce_type, reduce_dims, preamble, tuple(options)
        self._known = _REDUCTIONS.get(re.sub(r"\s+", "", reduce_expr))
        for name_, text in (("reduce_expr", reduce_expr), ("map_expr", map_expr)):
            if not text.strip():
                raise ValueError(f"{name_} is empty")
        if not any(mentions(reduce_expr, v) for v in "ab"):
            raise ValueError(f"the reduction {reduce_expr!r} takes no a and b together")
        simple = len(self.out_params) == 1 and not (preamble or options or reduce_type or any(p.raw for p in self.in_params))
        simple = simple and (not self.identity or self.identity in _IDENTITIES.get(self._known, ()))
        if not self.identity and not (simple and self._known or _IDENTITIES.get(self._known)):
            raise ValueError(f"the reduction {reduce_expr!r} needs an identity")
        self._programs = {} if self._known and simple else None
        self._compiled = {}
        self._launches = _C._cuda.Launches(by_layout=True, narrow=False, raw=[p.raw for p in self.in_params])

    def __repr__(self):
        return f"<ReductionKernel {self.name}>"

    def __call__(self, *args, out=None, axis=None, keepdims=False):
        count = len(self.in_params)
        known = len(args) == count and out is None and not _launch._checking
        result = self._launches.call(args, (axis, keepdims)) if known else NotImplemented
        if result is not NotImplemented:
            return result
        given = list(args[count:]) if len(args) > count else [] if out is None else [out]
        if given and len(given) != len(self.out_params):
            raise TypeError(f"{self.name} takes {count} inputs and {len(self.out_params)} outputs ({len(args)} given)")
        results = self._call(args[:count], [written_tensor(o) for o in given], axis, keepdims)
        return results if not given else given[0] if len(given) == 1 else tuple(given)

    def _call(self, args, outs, axis, keepdims):
        """A call that no earlier one was like."""
        call, wrap = (args, (axis, keepdims)), None if outs else array_type(args)
        if axis is not None:
            axis = [operator.index(a) for a in (axis if hasattr(axis, "__iter__") else (axis,))]
        bound, types, device = bind_arguments(self.in_params, args, self.name, outs)
        for p, o in zip(self.out_params, outs):
            types.bind(p.type, o.dtype)
        run = self._as_expression(bound, types, device, axis, keepdims, wrap)
        if run is None:
            results = self._as_statements(call, bound, types, device, axis, keepdims, wrap)
        else:
            results = run(*bound)
            if is_bound_as_given(args, bound):
                self._launches.keep(*call, run)
        for o, r in zip(outs, results if isinstance(results, tuple) else (results,)):
            if o.shape != r.shape:
                raise ValueError(f"{self.name}: the output has shape {tuple(o.shape)}, and the result {tuple(r.shape)}")
            o.copy_(r)
        return results

    # --- expressions ---

    def _as_expression(self, bound, types, device, axis, keepdims, wrap):
        """The call as a function of the bound arguments, or None."""
        wanted = _C.is_grad_enabled() and any(isinstance(b, Tensor) and b.requires_grad for b in bound)
        if self._programs is None or device.type == "cuda" and self.identity and not wanted:
            return None
        inputs = Inputs(self.in_params, bound, types, device)
        program = self._program(inputs, types)
        if program is None:
            return None
        axes = [] if axis is None else axis
        if axis is not None and not axes:
            raise ValueError("axis=() reduces nothing: an ElementwiseKernel does that")

        def run(*bound):
            (result,) = program(*inputs.of(bound), axes)
            result = result if keepdims else _ops.squeeze(result, axes or list(range(result.dim())))
            return result if wrap is None else wrap(result)

        return run

    def _program(self, inputs, types):
        if inputs.key in self._programs:
            return self._programs[inputs.key]
        out = self.out_params[0]
        out_dtype = types.known(out)

        def definition(rows, *values):
            values = inputs.in_order(values)
            variables = {p.name: v for p, v in zip(self.in_params, values)}
            mapped = Evaluator(self.map_expr, variables, types.generic, values[0]).expression_only()
            if self._known not in ("any", "all"):
                mapped = mapped.cast(out_dtype)
            reduced = rows._reduce(self._known, mapped, True)
            evaluator = Evaluator(self.post_map_expr, {"a": reduced}, types.generic, values[0])
            result = evaluator.run()
            if out.name not in result:
                raise SnippetError(f"{out.name!r} is never assigned in {self.post_map_expr!r}")
            return [(evaluator._value(result[out.name]).cast(out_dtype), out_dtype)]

        try:
            program = _e.trace_rows(definition, *inputs.dtypes(), self.name)
        except SnippetError:
            if not self.identity:
                raise
            program = None
        self._programs[inputs.key] = program
        return program

    # --- statements ---

    def _as_statements(self, call, bound, types, device, axis, keepdims, wrap):
        arrays = [b for b in bound if isinstance(b, Tensor)]
        refuse_gradient(arrays, self.name)
        shapes = [tuple(b.shape) for p, b in zip(self.in_params, bound) if not p.raw and isinstance(b, Tensor)]
        if not shapes:
            raise ValueError(f"{self.name}: Loop size is undecided.")
        shape = common_shape(shapes, self.name)
        nd = len(shape)
        axes = list(range(nd)) if axis is None else axis
        for a in axes:
            if not -nd <= a < nd:
                raise IndexError(f"{self.name}: axis {a} is out of range for {nd} dimensions")
        axes = sorted({a % nd for a in axes})
        kept = [d for d in range(nd) if d not in axes]
        order = kept + axes
        inside, outside = tuple(shape[d] for d in axes), tuple(shape[d] for d in kept)
        laid = []
        for p, b in zip(self.in_params, bound):
            if isinstance(b, Tensor) and not p.raw:
                strides = _ops.broadcast_to(b, shape).stride()
                b = Array(b, outside + inside, [strides[d] for d in order])
            elif isinstance(b, Tensor):
                b = Array(b)
            laid.append((p, b))
        # Results side by side where elements of one are not.
        beside = any(isinstance(a, Array) and not p.raw and kept and inside and a.strides[-1] > a.strides[len(kept) - 1] > 0
                     for p, a in laid)
        sizes = [1 if d in axes else shape[d] for d in range(nd)] if keepdims else outside
        return self._run(call, bound, laid, sizes, types, device, math.prod(outside), math.prod(inside), beside, wrap)

    def _run(self, call, bound, laid, sizes, types, device, rows, columns, beside, wrap):
        checked = is_checking(device)
        reduced = types.known(self.out_params[0]) if self.reduce_type is None else (
            types.generic.get(self.reduce_type) or TYPES[self.reduce_type])
        reduced = {_C.float16: _C.float32, _C.bfloat16: _C.float32, _C.bool: _C.int32}.get(reduced, reduced)
        side = 1
        while side < (32 if beside else _THREADS) and side < rows and (beside or columns * side < _THREADS):
            side *= 2
        groups = (rows + side - 1) // side
        per = _THREADS // side
        shared = max(1, min(_BLOCKS // max(groups, 1), (columns + per * 8 - 1) // (per * 8), 65535))
        # All of any number of elements: Note [Prepared launches].
        even = call[1][0] is None and all(
            b.is_contiguous() and (p.raw or a.sizes == tuple(b.shape) != ()) for (p, a), b in zip(laid, bound) if isinstance(a, Array))
        key = (given_key(types, laid), reduced, checked,
               tuple(sorted((n, t._name) for n, t in types.generic.items())))
        if key not in self._compiled:
            self._compiled[key] = self._compile(laid, types, reduced, checked)
        count = len(self.out_params)
        parts = _BLOCKS if even else shared * rows if shared > 1 else 1
        made = [*((sizes, types.known(p)) for p in self.out_params), ((parts,), reduced)]
        if even:
            given = []
            for k, (p, a) in enumerate(laid):
                given += [("array", k), ("extents", k)] if isinstance(a, Array) else [("number", k, KINDS[types.known(p)])]
        else:
            given = given_sources(types, laid)
        sources = [*given, *(("made", k) for k in range(count + 1)), ("counters", groups if shared > 1 else 1),
                   ("q", rows), ("count",) if even else ("q", columns), ("I", side)]
        return self._compiled[key].run(self._launches, call, bound, device, sources, made, grid=(groups, shared, 1),
                                       block=(_THREADS, 1, 1), wrap=wrap, results=count, count=columns,
                                       spread=(False, per * 8, min(_BLOCKS, 65535)) if even else None)

    def _compile(self, laid, types, reduced, checked):
        signatures, declarations = given_parameters(types, laid, checked)
        elements = [f"      const {C_NAMES[a.dtype]} {p.name} = {inner_name(p)}[i];"
                    for p, a in laid if isinstance(a, Array) and not p.raw]
        outputs = []
        for p in self.out_params:
            type_ = C_NAMES[types.known(p)]
            signatures.append(f"{type_}* _{p.name}_p")
            outputs.append(f"    {type_}& {p.name} = _{p.name}_p[i];")
        signatures += ["_type_reduce* _parts", "unsigned* _ended", "long long _R", "long long _C", "unsigned _S"]
        identity = self.identity or _IDENTITIES[self._known][0]
        body = _BODY.format(threads=_THREADS, tree=_TREE, identity=identity, map=self.map_expr, post=self.post_map_expr,
                            elements="\n".join(elements), outputs="\n".join(outputs))
        text = (f"{HEAD}{typedefs(types)}typedef {C_NAMES[reduced]} _type_reduce;\n#define REDUCE(a, b) ({self.reduce_expr})\n"
                f"#line 1\n{self.preamble}\n"
                + beginning(self.name, signatures, checked) + "\n".join(declarations) + body)
        return Compiled(text, self.name, self.options, checked, self.map_expr.splitlines())

