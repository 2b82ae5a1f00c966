"""Differentiation: backward, grad, custom functions."""
from __future__ import annotations

import contextlib
import sys
import threading
import types
import weakref

from .. import _C
from .._C import Tensor
from .._C import Node  # noqa: F401
from .._grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled, set_multithreading_enabled  # noqa: F401
from .._operators import _count_write
from .._operators import zeros as _zeros
from .._operators import zeros_like
from ._passes import GradientEdge, backward, get_gradient_edge, grad  # noqa: F401
from .gradcheck import GradcheckError, gradcheck, gradgradcheck  # noqa: F401

Node.__doc__ = """A recorded step of a computation, the `grad_fn` of its results: name(), next_functions and hooks.

    >>> y = arete.ones(2, requires_grad=True).exp().sum()
    >>> y.grad_fn.name(), y.grad_fn.next_functions[0][0].name()
    ('SumBackward0', 'ExpBackward0')

    The tensors that it keeps for its backward are `_saved_` and the name of the argument, or of the result ("result" where it has none);
    dir() lists them. Which they are is this library's choice of a formula, not always PyTorch's.

    >>> y.grad_fn.next_functions[0][0]._saved_result
    tensor([2.7183, 2.7183], grad_fn=<exp>)
    """


def __getattr__(name: str):
    if name in ("forward_ad", "function", "functional", "grad_mode", "profiler", "variable"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    if name in ("DeviceType", "kineto_available", "_disable_profiler", "_profiler_enabled"):
        from .. import profiler

        return getattr(profiler, name)
    raise AttributeError(f"module 'arete.autograd' has no attribute '{name}'")


class FunctionCtx:
    """What the forward of a custom function leaves for its backward.

    >>> class Scale(arete.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x, factor):
    ...         ctx.factor = factor
    ...         return x * factor
    ...     @staticmethod
    ...     def backward(ctx, gradient):
    ...         return gradient * ctx.factor, None
    >>> x = arete.ones(2, requires_grad=True)
    >>> Scale.apply(x, 3.0).sum().backward()
    >>> x.grad
    tensor([3., 3.])
    """

    def __init__(self):
        self._to_save = self._for_jvp = ()
        self._materialize = True
        self._not_differentiable = ()
        self._dirty = ()

    def save_for_backward(self, *tensors):
        """Keeps inputs or outputs; read them as `ctx.saved_tensors`."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward can only save variables, but argument is of type {type(t).__name__}")
        self._to_save = tensors

    @property
    def saved_tensors(self):
        """What save_for_backward() kept; in jvp() what save_for_forward() did."""
        saved = iter(self._context.saved())
        return tuple(next(saved) if kept else None for kept in self._kept)

    saved_variables = saved_tensors

    def save_for_forward(self, *tensors):
        """Keeps inputs or outputs for jvp(), which reads them as `ctx.saved_tensors`."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError("save_for_forward can only save tensors for forward mode AD, but argument is of type "
                                f"{type(t).__name__}")
        self._for_jvp = tensors

    def mark_non_differentiable(self, *tensors):
        """These outputs have no gradient."""
        self._not_differentiable = tensors

    def mark_dirty(self, *tensors):
        """These inputs were changed in place and are outputs: the very tensors, which have the function's history from then on.

        RuntimeError where they are no outputs or leaves that require grad, NotImplementedError for views.
        """
        self._dirty = tensors

    def set_materialize_grads(self, value: bool):
        """Whether gradients that did not arrive are zeros (the default) or None."""
        self._materialize = value


class _SavedForJvp:
    def __init__(self, tensors):
        self._tensors = list(tensors)

    def saved(self):
        return self._tensors


class Function:
    """Base of custom functions with static methods forward(ctx, *args) and backward(ctx, *gradients), or forward(*args)
    and setup_context(ctx, inputs, output). Called through `apply`.

    >>> class Square(arete.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     def backward(ctx, gradient):
    ...         x, = ctx.saved_tensors
    ...         return 2 * x * gradient
    >>> x = arete.tensor([3.0], requires_grad=True)
    >>> Square.apply(x).backward()
    >>> x.grad
    tensor([6.])
    """

    @staticmethod
    def forward(*args, **kwargs):
        """Computes the outputs; given by subclasses."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        """The gradients of forward's inputs (or None) from those of its outputs; given by subclasses, under this name or as vjp."""
        raise NotImplementedError("You must implement either the backward or vjp method for your custom "
                                  "autograd.Function to use it with backward mode AD.")

    vjp = backward

    @staticmethod
    def jvp(ctx, *tangents):
        """The tangents of forward's outputs from those of its inputs (None for what is no tensor), for forward mode; given by
        subclasses."""
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    setup_context = None
    # vmap(info, in_dims, *args), of whole batches, gives the outputs and the dimensions of their batches. Without it what forward calls
    # runs for the batch.
    vmap = None

    @classmethod
    def _apply_to_batch(cls, args):
        count, randomness = _C._vmap_level()
        info = types.SimpleNamespace(batch_size=count, randomness=randomness)
        whole = [_C._shared(a) if isinstance(a, Tensor) else a for a in args]
        dims = tuple(0 if isinstance(a, Tensor) and w is None else None for a, w in zip(args, whole))
        outputs, out_dims = cls.vmap(info, dims, *(_C._unbatch(a, 0) if d == 0 else w for a, d, w in zip(args, dims, whole)))
        single = not isinstance(outputs, (tuple, list))
        outputs = (outputs,) if single else outputs
        places = out_dims if isinstance(out_dims, (tuple, list)) else [out_dims] * len(outputs)
        found = tuple(o if d is None else _C._batch(o, d) for o, d in zip(outputs, places))
        return found[0] if single else found

    @classmethod
    def apply(cls, *args, **kwargs):
        """Calls forward and records the backward."""
        for a in args:
            if isinstance(a, Tensor) and getattr(type(a), "_history_is_of_parts", False) and a.requires_grad and _C.is_grad_enabled():
                raise NotImplementedError(f"{cls.__name__}: a custom Function of a tensor that is spread over processes; have "
                                          "distributed.tensor.experimental.local_map() call it with this process' part")
        if _C._in_vmap() and any(isinstance(a, Tensor) and _C._is_batched(a) for a in args):
            if cls.vmap is not None and not (_C.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad and _C._is_own(a)
                                                                          for a in args)):
                return cls._apply_to_batch(args)
            if cls.vmap is not None and cls.setup_context is None:
                raise NotImplementedError(f"{cls.__name__}: a Function with a static vmap() that is differentiated inside vmap needs "
                                          "setup_context(), too: forward(ctx, ...), which fills ctx, is not called")
            if cls.vmap is None and _C.is_grad_enabled() and any(
                    isinstance(a, Tensor) and _C._is_differentiated_around(a) for a in args):
                raise NotImplementedError(f"{cls.__name__}: a custom Function under vmap, of tensors that are differentiated around it, "
                                          "needs a static method vmap(info, in_dims, *args)")
        ctx = FunctionCtx()
        if _C._has_dual_level():
            tangents = [_C._tangent_of(a) if isinstance(a, Tensor) else None for a in args]
            if any(t is not None for t in tangents):
                return cls._apply_to_duals(ctx, args, kwargs, tangents)
        return cls._apply(ctx, args, kwargs)

    @classmethod
    def _apply_to_duals(cls, ctx, args, kwargs, tangents):
        _C._suspend_tangents()
        try:
            result = cls._apply(ctx, args, kwargs)
            if ctx._materialize:
                tangents = [zeros_like(a) if t is None and isinstance(a, Tensor) and (a.is_floating_point() or a.is_complex()) else t
                            for a, t in zip(args, tangents)]
            kept, ctx._kept = ctx._kept, tuple(t is not None for t in ctx._for_jvp)
            ctx._context = _SavedForJvp(t for t in ctx._for_jvp if t is not None)
            found = cls.jvp(ctx, *tangents)
            ctx._kept, ctx._for_jvp = kept, ()
        finally:
            _C._resume_tangents()
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        outputs = result if isinstance(result, tuple) else (result,)
        if len(found) != len(outputs):
            raise RuntimeError("Function's jvp returned an invalid number of forward gradients (expected "
                               f"{len(outputs)} but got {len(found)})")
        for o, t in zip(outputs, found):
            if isinstance(o, Tensor):
                _C._set_tangent(o, t.clone() if any(t is g for g in tangents if g is not None) else t)
        return result

    @classmethod
    def _apply(cls, ctx, args, kwargs):
        inputs = [a for a in args if isinstance(a, Tensor)]
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        count = len(args)
        of_batch = cls.vmap is not None and _C._in_vmap() and any(_C._is_batched(t) for t in inputs)
        # The graph owns the closures below, which must own neither inputs nor results: what is in the box is taken out again.
        box = {"args": args, "kwargs": kwargs}

        def forward(context, tensors):
            values, named = list(box.pop("args")), box.pop("kwargs")
            for i, t in zip(places, tensors):
                values[i] = t
            if of_batch:
                with enable_grad():  # around vmap; inside of it backward is the history
                    result = cls._apply_to_batch(values)
                cls.setup_context(ctx, tuple(values), result)
            elif cls.setup_context is not None:
                result = cls.forward(*values, **named)
                cls.setup_context(ctx, tuple(values), result)
            else:
                result = cls.forward(ctx, *values, **named)
            box["single"] = not isinstance(result, (tuple, list))
            outputs = (result,) if box["single"] else tuple(result)
            box["outputs"] = outputs
            # Inputs that were written to get the history of these: as results of their own they are saved without a circle.
            written = {id(t): t.detach() for t in ctx._dirty}
            if not written.keys() <= set(map(id, outputs)):
                raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                                   "are modified inplace must all be outputs of the Function.")
            ctx._kept = tuple(t is not None for t in ctx._to_save)
            context.save([written.get(id(t), t) for t in ctx._to_save if t is not None])
            ctx._to_save = ()
            box["kinds"] = [(t.shape, t.dtype, t.device) if isinstance(t, Tensor) else None for t in outputs]
            return [written.get(id(t), t) for t in outputs if isinstance(t, Tensor)]

        def backward(context, gradients):
            ctx._context = context
            ctx.needs_input_grad = tuple(
                context.needs(places.index(i)) if i in places else False for i in range(count))
            arrived, given = iter(gradients), []  # one for each output, None for what is no tensor
            for kind in box["kinds"]:
                g = None if kind is None else next(arrived)
                if g is None and kind is not None and ctx._materialize:
                    g = _zeros(kind[0], dtype=kind[1], device=kind[2])
                given.append(g)
            written = [f for f, base in ((cls.backward, Function.backward), (cls.vjp, Function.vjp)) if f is not base]
            if len(written) == 2:
                raise RuntimeError(f"Implementing both 'backward' and 'vjp' for a custom Function is not allowed: {cls.__name__}")
            result = (written or [cls.backward])[0](ctx, *given)
            result = (result,) if not isinstance(result, (tuple, list)) else tuple(result)
            if len(result) < count or any(r is not None for r in result[count:]):
                raise RuntimeError(f"function {cls.__name__}Backward returned an incorrect number of gradients "
                                   f"(expected {count}, got {len(result)})")
            for i, r in enumerate(result[:count]):
                if r is not None and i not in places:
                    raise RuntimeError(f"function {cls.__name__}Backward returned a gradient different than None at position {i + 1}, but "
                                       "the corresponding forward input was not a Variable")
            return [result[i] for i in places]

        results = iter(_C._apply_function(cls.__name__, inputs, forward, backward, of_batch))
        outputs, without, dirty = [], ctx._not_differentiable, ctx._dirty
        ctx._not_differentiable = ctx._dirty = ()
        for o in box.pop("outputs"):
            if not isinstance(o, Tensor):
                outputs.append(o)
                continue
            r = next(results)
            if any(o is d for d in dirty):
                if r.requires_grad and o._base is not None:
                    raise NotImplementedError(f"{cls.__name__}: a view was marked as dirty: its base would not know of it. clone() it, or "
                                              "return the changed values as a new tensor")
                r = o._take_history(r)
            outputs.append(r.detach() if any(o is n for n in without) else r)
        return outputs[0] if box["single"] else tuple(outputs)


def once_differentiable(function):
    """Decorates a backward whose own gradient is not wanted.

    >>> class Negate(arete.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return -x
    ...     @staticmethod
    ...     @arete.autograd.once_differentiable
    ...     def backward(ctx, gradient):
    ...         return -gradient
    >>> x = arete.ones(1, requires_grad=True)
    >>> Negate.apply(x).backward()
    >>> x.grad
    tensor([-1.])
    """
    import functools

    @functools.wraps(function)
    def wrapped(ctx, *gradients):
        with no_grad():
            result = function(ctx, *gradients)
        if not (_C.is_grad_enabled() and any(isinstance(g, Tensor) and g.requires_grad for g in gradients)):
            return result
        given = [g for g in gradients if isinstance(g, Tensor) and g.requires_grad]
        of_pass = [r if r is None else _OnceOnly.apply(r, *given) for r in (result if isinstance(result, (tuple, list)) else (result,))]
        return tuple(of_pass)

    return wrapped


class _DifferentiatedTwice(RuntimeError):  # noqa: N818
    """A function marked by once_differentiable() is in a graph that is differentiated again."""


class _OnceOnly(Function):
    """A gradient that is not to be differentiated with respect to those that it was made of."""

    @staticmethod
    def forward(ctx, result, *given):
        return result.detach()

    @staticmethod
    def backward(ctx, gradient):
        raise _DifferentiatedTwice("trying to differentiate twice a function that was marked with @once_differentiable")


class detect_anomaly:
    """Inside, a NaN in a result or gradient is an error that names the operator which made it.

    >>> with arete.autograd.detect_anomaly():
    ...     arete.tensor([-1.0], requires_grad=True).sqrt().backward()
    Traceback (most recent call last):
    arete.ArgumentError: Function 'sqrt' returned nan values in its output...
    """

    def __init__(self, check_nan: bool = True):
        if not check_nan:
            raise NotImplementedError(f"{type(self).__name__}(): check_nan=False: what is detected are NaNs")
        self._previous = _C._is_anomaly()

    def __enter__(self):
        self._previous = _C._is_anomaly()
        _C._set_anomaly(True)

    def __exit__(self, *error):
        _C._set_anomaly(self._previous)


class set_detect_anomaly(detect_anomaly):
    """Switches anomaly detection on or off, from now on or for a block.

    >>> with arete.autograd.set_detect_anomaly(True):
    ...     print(arete.autograd.is_anomaly_enabled())
    True
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        super().__init__(check_nan)
        _C._set_anomaly(mode)

    def __enter__(self):
        pass


def is_anomaly_enabled() -> bool:
    """Whether anomaly detection is on.

    >>> arete.autograd.is_anomaly_enabled()
    False
    """
    return _C._is_anomaly()


class _VariableType(type):
    def __instancecheck__(cls, thing):
        return isinstance(thing, Tensor)

    def __subclasscheck__(cls, kind):
        return issubclass(kind, Tensor)


class Variable(metaclass=_VariableType):
    """A tensor over the same memory, from the time when tensors that take part in differentiation were wrapped.

    >>> x = arete.autograd.Variable(arete.ones(2), requires_grad=True)
    >>> x.requires_grad, isinstance(x, arete.autograd.Variable)
    (True, True)
    """

    # queue_callback(f) calls f when all gradients of the backward pass under way are known.
    _execution_engine = types.SimpleNamespace(queue_callback=_C._at_end_of_pass)

    def __new__(cls, data=None, requires_grad=False):
        if data is None:
            data = _zeros(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)


_hooks_disabled = threading.local()


class _SavedTensorsHooks:
    """A context that may be entered again and again."""

    def __enter__(self):
        reason = getattr(_hooks_disabled, "reason", None)
        if reason is not None:
            raise RuntimeError(reason)
        self._enter()

    def __exit__(self, *error):
        _C._exit_saved_tensors_hooks()


class saved_tensors_hooks(_SavedTensorsHooks):
    """Inside, pack_hook(tensor) is called for each tensor that backward needs, and what it returns is kept instead;
    unpack_hook(that) gives the values back when backward reads them.

    >>> x = arete.tensor([3.0], requires_grad=True)
    >>> with arete.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), arete.from_numpy):
    ...     y = x * x
    >>> y.backward()
    >>> x.grad
    tensor([6.])
    """

    def __init__(self, pack_hook, unpack_hook):
        self._hooks = pack_hook, unpack_hook

    def _enter(self):
        _C._enter_saved_tensors_hooks(*self._hooks)


class save_on_cpu(_SavedTensorsHooks):
    """Inside, what backward needs of GPU tensors is kept in host memory (`pin_memory`: without waiting for the copies).

    >>> x = arete.ones(2, requires_grad=True)
    >>> with arete.autograd.graph.save_on_cpu():
    ...     y = x.exp().sum()
    >>> y.backward()
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        self._pin_memory = pin_memory

    def _enter(self):
        _C._enter_save_on_cpu(self._pin_memory)


class _Copies:
    """What allow_mutation_on_saved_tensors() gives; `clear()` lets go of the copies, after which no pass needs them."""

    class _Key:
        """Stands for a copy in the graph."""

    def __init__(self):
        self._copies = weakref.WeakKeyDictionary()

    def clear(self):
        self._copies.clear()

    def _keep(self, tensor):
        key = self._Key()
        self._copies[key] = tensor.detach().clone()
        return key

    def _give(self, key):
        if key not in self._copies:
            raise AssertionError("Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was "
                                 "originally recorded.")
        return self._copies[key]


@contextlib.contextmanager
def allow_mutation_on_saved_tensors():
    """Inside, tensors that backward needs may be written in place: of each a copy is kept (PyTorch makes it at the first write),
    until the context ends. Backward passes through what was recorded inside must run inside.

    RuntimeError where such contexts are nested.

    >>> with arete.autograd.graph.allow_mutation_on_saved_tensors():
    ...     x = arete.full((2,), 3.0, requires_grad=True)
    ...     y = x.clone()
    ...     z = y**2
    ...     y.zero_().shape, z.sum().backward()
    (arete.Size([2]), None)
    >>> x.grad
    tensor([6., 6.])
    """
    if getattr(_hooks_disabled, "copies", False):
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    copies = _Copies()
    _hooks_disabled.copies = True
    try:
        with saved_tensors_hooks(copies._keep, copies._give):
            yield copies
    finally:
        _hooks_disabled.copies = False
        copies.clear()


class disable_saved_tensors_hooks(contextlib.ContextDecorator):
    """Inside, entering hooks is a RuntimeError with this text.

    >>> with arete.autograd.graph.disable_saved_tensors_hooks("not here"):
    ...     with arete.autograd.graph.save_on_cpu():
    ...         pass
    Traceback (most recent call last):
    RuntimeError: not here
    """

    def __init__(self, error_message: str):
        self._message = error_message

    def __enter__(self):
        self._outer = getattr(_hooks_disabled, "reason", None)
        _hooks_disabled.reason = self._message

    def __exit__(self, *error):
        _hooks_disabled.reason = self._outer


class _MultiHandle:
    """What register_multi_grad_hook() returns; `remove()` takes the hook away."""

    def __init__(self, handles):
        self._handles = handles

    def remove(self):
        for h in self._handles:
            h.remove()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.remove()


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """Calls `fn` once in each backward pass: with a list of the gradients of all `tensors` (None for one that the pass does not
    reach) when the last of them is known, or with mode "any" with the first gradient that is known.

    >>> a, b = arete.ones(2, requires_grad=True), arete.ones(2, requires_grad=True)
    >>> handle = arete.autograd.graph.register_multi_grad_hook((a, b), lambda grads: print(grads))
    >>> (2 * a * b).sum().backward()
    [tensor([2., 2.]), tensor([2., 2.])]
    >>> (3 * a).sum().backward()
    [tensor([3., 3.]), None]
    >>> handle.remove()
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = list(tensors)
    for t in tensors:
        if not t.requires_grad:
            raise RuntimeError("register_multi_grad_hook(): cannot register a hook on a tensor that doesn't require gradient")
    passes = {}  # by thread and number of a pass: the gradients that it has brought

    def finish(number):
        found = passes.pop(number, None)
        if found is not None and mode == "all":
            fn([found.get(i) for i in range(len(tensors))])

    def make(index):
        def hook(gradient):
            alive = _C._passes_under_way()
            thread = threading.get_ident()
            number = thread, alive[-1]
            found = passes.get(number)
            if found is None:
                for old in [p for p in list(passes) if p[0] == thread and p[1] not in alive]:  # ended with an error
                    passes.pop(old, None)
                _C._at_end_of_pass(lambda: finish(number))
                found = passes[number] = {}
            found[index] = gradient
            if mode == "all" and len(found) == len(tensors):
                finish(number)
            elif mode == "any" and len(found) == 1:
                fn(gradient)

        return hook

    return _MultiHandle([t.register_hook(make(i)) for i, t in enumerate(tensors)])


def increment_version(tensor):
    """Counts a write to a tensor, or to each of several: what writes past the operators says so with it, and a backward
    pass that needs the values of before is an error.

    RuntimeError for what is no tensor. Writes to those of inference mode are not counted.

    >>> x = arete.ones(2, requires_grad=True)
    >>> y = x.exp()
    >>> arete.autograd.graph.increment_version(y)
    >>> y.sum().backward()
    Traceback (most recent call last):
    arete.AutogradError: one of the variables needed for gradient computation has been modified by an inplace...
    """
    if isinstance(tensor, Tensor):
        tensor = (tensor,)
    elif not hasattr(tensor, "__iter__"):
        raise RuntimeError("increment_version expect a Iterable[Tensor] as input")
    tensors = list(tensor)
    for t in tensors:
        if not isinstance(t, Tensor):
            raise RuntimeError("increment_version expects each element of the iterable to be a tensor")
    for t in tensors:
        _count_write(t)


# A module of torch's, so that it can be imported from.
graph = types.ModuleType(__name__ + ".graph", "Nodes, and what is kept for backward.")
for _name in (GradientEdge, Node, allow_mutation_on_saved_tensors, disable_saved_tensors_hooks, get_gradient_edge, increment_version,
              register_multi_grad_hook, save_on_cpu, saved_tensors_hooks):
    setattr(graph, _name.__name__, _name)
sys.modules[graph.__name__] = graph
