"""ReductionKernel: map, reduce, map again."""
from __future__ import annotations

import operator
import re

from .. import _C
from .._C import Tensor
from .._cuda_streams import current_stream
from .._operators import _count_write, _ops
from .._snippets import TYPES, Evaluator, SnippetError
from ._launch import array_type, is_checking, refuse_gradient, tensor_of, written_tensor
from ._parameters import C_NAMES, as_tensors, bind_arguments, common_shape, is_generic, new, parameters
from ._text import HEAD, Array, Compiled, given_arguments, given_key, given_parameters, inner_name, mentions, typedefs, with_fault

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

    def __repr__(self):
        return f"<ReductionKernel {self.name}>"

    def __call__(self, *args, out=None, axis=None, keepdims=False):
        wrap = array_type(args)
        count = len(self.in_params)
        given = list(args[count:]) if len(args) > count else [] if out is None else [out]
        if given and len(given) != len(self.out_params):
            raise TypeError(f"{self.name} takes {count} inputs and {len(self.out_params)} outputs ({len(args)} given)")
        outs = [written_tensor(o) for o in given]
        if axis is not None:
            axis = [operator.index(a) for a in (axis if hasattr(axis, "__iter__") else (axis,))]
        bound, types, device = bind_arguments(self.in_params, args[:count], self.name, outs)
        for p, o in zip(self.out_params, outs):
            types.bind(p.type, o.dtype)
        results = self._as_expression(bound, types, device, axis, keepdims)
        if results is None:
            results = self._as_statements(bound, types, device, axis, keepdims)
        if given:
            for o, r in zip(outs, results):
                if o.shape != r.shape:
                    raise ValueError(f"{self.name}: the output has shape {tuple(o.shape)}, and the result {tuple(r.shape)}")
            for o, r in zip(outs, results):
                o.copy_(r)
            results = given
        elif wrap is not None:
            results = [wrap(r) for r in results]
        return results[0] if len(results) == 1 else tuple(results)

    # --- expressions ---

    def _as_expression(self, bound, types, device, axis, keepdims):
        wanted = _C.is_grad_enabled() and any(isinstance(b, Tensor) and b.requires_grad for b in bound)
        if self._programs is None or device.type == "cuda" and self.identity and not wanted:
            return None
        tensors = as_tensors(self.in_params, bound, types, device)
        program = self._program(tuple(t.dtype for t in tensors), types)
        if program is None:
            return None
        axes = [] if axis is None else axis
        if axis is not None and not axes:
            raise ValueError("axis=() reduces nothing: an ElementwiseKernel does that")
        (result,) = program(tensors, [], axes)
        return [result if keepdims else _ops.squeeze(result, axes or list(range(result.dim())))]

    def _program(self, dtypes, types):
        key = (dtypes, tuple(sorted((n, t._name) for n, t in types.generic.items())))
        if key in self._programs:
            return self._programs[key]
        out = self.out_params[0]
        out_dtype = types.known(out)

        def definition(rows, *values):
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
            program = _e.trace_rows(definition, list(dtypes), [], self.name)
        except SnippetError:
            if not self.identity:
                raise
            program = None
        self._programs[key] = program
        return program

    # --- statements ---

    def _as_statements(self, bound, types, device, axis, keepdims):
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
        rows, columns = _product(outside), _product(inside)
        results = [new(outside, types.known(p), device) for p in self.out_params]
        if rows:
            laid = []
            for p, b in zip(self.in_params, bound):
                if isinstance(b, Tensor) and not p.raw:
                    t = _ops.broadcast_to(b, shape)
                    b = Array(t, outside + inside, [t.stride()[d] for d in order])
                elif isinstance(b, Tensor):
                    b = Array(b)
                laid.append((p, b))
            # Results side by side where elements of one are not.
            beside = any(isinstance(a, Array) and not p.raw and kept and inside and a.strides[-1] > a.strides[len(kept) - 1] > 0
                         for p, a in laid)
            self._run(laid, results, types, device, rows, columns, beside)
            for r in results:
                _count_write(r)
        if keepdims:
            results = [r.reshape([1 if d in axes else shape[d] for d in range(nd)]) for r in results]
        return results

    def _run(self, laid, results, types, device, rows, columns, beside):
        checked = is_checking(device)
        reduced = types.known(self.out_params[0]) if self.reduce_type is None else (
            types.generic.get(self.reduce_type) or TYPES[self.reduce_type])
        reduced = {_C.float16: _C.float32, _C.bfloat16: _C.float32, _C.bool: _C.int32}.get(reduced, reduced)
        side = 1
        while side < (32 if beside else _THREADS) and side < rows and (beside or columns * side < _THREADS):
            side *= 2
        groups = (rows + side - 1) // side
        per = _THREADS // side
        shared = max(1, min(_BLOCKS // groups, (columns + per * 8 - 1) // (per * 8), 65535))
        key = (given_key(types, laid), reduced, checked,
               tuple(sorted((n, t._name) for n, t in types.generic.items())))
        if key not in self._compiled:
            self._compiled[key] = self._compile(laid, results, types, reduced, checked)
        parts, ended = new((shared * rows if shared > 1 else 1,), reduced, device), _counters(device, groups if shared > 1 else 1)
        arguments = [*given_arguments(types, laid), *results, parts, ended, ("q", rows), ("q", columns), ("I", side)]
        self._compiled[key].launch((groups, shared, 1), (_THREADS, 1, 1), arguments, device)

    def _compile(self, laid, results, types, reduced, checked):
        signatures, declarations = given_parameters(types, laid, checked)
        elements = [f"      const {C_NAMES[a.tensor.dtype]} {p.name} = {inner_name(p)}[i];"
                    for p, a in laid if isinstance(a, Array) and not p.raw]
        outputs = []
        for p, r in zip(self.out_params, results):
            signatures.append(f"{C_NAMES[r.dtype]}* _{p.name}_p")
            outputs.append(f"    {C_NAMES[r.dtype]}& {p.name} = _{p.name}_p[i];")
        signatures += ["_type_reduce* _parts", "unsigned* _ended", "long long _R", "long long _C", "unsigned _S"]
        identity = self.identity or _IDENTITIES[self._known][0]
        body = _BODY.format(threads=_THREADS, tree=_TREE, identity=identity, map=self.map_expr, post=self.post_map_expr,
                            elements="\n".join(elements), outputs="\n".join(outputs))
        text = (f"{HEAD}{typedefs(types)}typedef {C_NAMES[reduced]} _type_reduce;\n#define REDUCE(a, b) ({self.reduce_expr})\n"
                f"#line 1\n{self.preamble}\n"
                f'extern "C" __global__ void {self.name}({with_fault(signatures, checked)}) {{\n' + "\n".join(declarations) + body)
        return Compiled(text, self.name, self.options, checked, self.map_expr.splitlines())


_zeros = {}


def _counters(device, groups):
    """Zeros, one for each group of blocks, which the last block of a group leaves as zeros: those of a stream serve all its launches. A
    graph that is being recorded has its own."""
    if device.type != "cuda" or _C._cuda.is_current_stream_capturing():
        return _ops.zeros(groups, dtype=_C.int32, device=device)
    key = str(device), current_stream(device).cuda_stream
    if key not in _zeros or _zeros[key].numel() < groups:
        _zeros[key] = _ops.zeros(max(groups, _BLOCKS), dtype=_C.int32, device=device)
    return _zeros[key]


def _product(sizes):
    n = 1
    for s in sizes:
        n *= s
    return n
