"""Functions made of functions, by passes backwards: gradients, products with Jacobians, maps over batches.

Arguments and results may be trees of tuples, lists and dicts. Results have no history of the function's own; they have that of tensors
around it, and of arguments, that require gradients, so that everything may stand inside everything else. `vmap` calls its function
once, with tensors whose batch dimension it does not see: each operator runs for the whole batch, by a rule.
"""
from __future__ import annotations

import functools

from . import _C
from ._C import Tensor
from ._functorch import vmap as _steps
from ._functorch.make_functional import check_alike as _check_alike
from ._grad_mode import enable_grad, no_grad
from ._operators import cat, eye, stack, zeros_like
from .autograd import _DifferentiatedTwice
from .autograd import grad as _backward
from .nn.utils.stateless import functional_call
from .utils._pytree import tree_flatten, tree_map, tree_map_only, tree_unflatten

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
           "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap"]


def __getattr__(name):
    why = {"functionalize": "programs are not rewritten"}.get(name)
    raise AttributeError(f"module 'arete.func' has no attribute '{name}'" + (f": {why}" if why else ""))


def _variables(tree, name):
    """The tensors of a tree as variables of their own, connected with what they were where that has history, and a list of them."""
    found = []

    def enter(t):
        if not isinstance(t, Tensor):
            raise ValueError(f"{name}: Expected all inputs to be differentiated to be Tensors, but got {type(t).__name__}")
        if not (t.is_floating_point() or t.is_complex()):
            raise RuntimeError(f"{name}: only Tensors of floating point and complex dtype can require gradients, got {t.dtype}")
        if _C._tangent_of(t) is not None:
            raise NotImplementedError(f"{name}: its results would lose the tangents of dual tensors: take forward mode's derivatives of "
                                      "results of their own")
        t = _C._share(t)  # under vmap it is one of the function's own
        found.append(t.view_as(t) if t.requires_grad else _C._detach_inside(t).requires_grad_())
        return found[-1]

    return tree_map(enter, tree), found


def _depend_on_others(tensors, variables) -> bool:
    """Whether the history of tensors leads to leaves besides these variables."""
    with enable_grad():
        own = {v.view_as(v).grad_fn.next_functions[0][0] for v in variables if v.is_leaf}
    if any(t.requires_grad and t.grad_fn is None and not any(t is v for v in variables) for t in tensors):
        return True
    waiting, seen = [t.grad_fn for t in tensors if t.grad_fn is not None], set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        following = [n for n, _ in node.next_functions if n is not None]
        if not following and node not in own:
            return True
        waiting += following
    return False


def _leave(tree, keep):
    def leave(t):
        if not t.requires_grad:
            return t
        if _C._tangent_of(t) is not None:
            raise NotImplementedError("functions of functions: their results would lose the tangents of dual tensors that they use")
        return _C._detach_inside(t)

    return tree if keep else tree_map_only(Tensor, leave, tree)


def _selected(argnums, args, name):
    """The numbers of the arguments to differentiate, and whether it was one number."""
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not numbers:
        raise RuntimeError(f"{name}: argnums must not be empty")
    for n in numbers:
        if not isinstance(n, int):
            raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(n)}")
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
    return [n % len(args) for n in numbers], not isinstance(argnums, tuple)


def _called(func, argnums, args, kwargs, has_aux, name):
    """func with variables for the arguments that count: its result, what it gives besides, the variables and their form."""
    numbers, single = _selected(argnums, args, name)
    chosen, variables = _variables(args[numbers[0]] if single else tuple(args[n] for n in numbers), name)
    given = list(args)
    for n, value in zip(numbers, (chosen,) if single else chosen):
        given[n] = value
    result, aux = func(*given, **kwargs), None
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise RuntimeError(f"{name}(f)(*args): output of function f should be a tuple: (output, aux) if has_aux is True")
        result, aux = result
    return result, aux, variables, tree_flatten(chosen)[1]


def _tensors_of(result, name):
    outputs, form = tree_flatten(result)
    for o in outputs:
        if not isinstance(o, Tensor):
            raise RuntimeError(f"{name}: Expected f(*args) to return only Tensors, got {type(o).__name__}")
    return outputs, form


def _gradients(outputs, variables, cotangents, create):
    """One gradient for each variable, zeros where it plays no part."""
    pairs = [(o, c) for o, c in zip(outputs, cotangents) if o.requires_grad]
    if not pairs:
        return [zeros_like(v) for v in variables]
    create = create or any(_C._has_outer_history(t) for pair in pairs for t in pair if t is not None)
    found = _backward([o for o, _ in pairs], variables, [c for _, c in pairs], retain_graph=True, create_graph=create, allow_unused=True)
    return [zeros_like(v) if g is None else g for g, v in zip(found, variables)]


def grad_and_value(func, argnums=0, has_aux=False):
    """A function that gives the gradient of `func` and its value: see grad().

    >>> arete.func.grad_and_value(lambda x: x**2)(arete.tensor(3.0))
    (tensor(6.), tensor(9.))
    """

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        wanted = _C.is_grad_enabled()
        with enable_grad():
            value, aux, variables, form = _called(func, argnums, args, kwargs, has_aux, "grad_and_value")
            if not isinstance(value, Tensor):
                raise RuntimeError(f"grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got {type(value)}")
            if value.dim() != 0:
                raise RuntimeError("grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with "
                                   f"{value.dim()} dims. Maybe you wanted to use the vjp or jacrev APIs instead?")
            keep = wanted and _depend_on_others([value], variables)
            gradients = tree_unflatten(_gradients([value], variables, [None], keep), form)
        results = _leave((gradients, value), keep)
        return (results[0], (results[1], _leave(aux, keep))) if has_aux else results

    return wrapper


def grad(func, argnums=0, has_aux=False):
    """A function that gives the gradient of `func`, whose result is one number, for the arguments with these numbers.

    With has_aux `func` gives a pair, and the second of it is given beside the gradient.

    >>> arete.func.grad(arete.func.grad(lambda x: x**3))(arete.tensor(2.0))
    tensor(12.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        gradients, value = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return wrapper


def vjp(func, *primals, has_aux=False):
    """The result of func(*primals), and a function that multiplies its Jacobian from the left: of a cotangent like the result it gives
    a tuple with one product for each of the primals.

    >>> y, pull = arete.func.vjp(lambda x: x**2, arete.tensor([1.0, 2.0]))
    >>> y, pull(arete.ones(2))
    (tensor([1., 4.]), (tensor([2., 4.]),))
    """
    wanted = _C.is_grad_enabled()
    with enable_grad():
        result, aux, variables, form = _called(func, tuple(range(len(primals))), primals, {}, has_aux, "vjp")
        outputs, out_form = _tensors_of(result, "vjp")
        keep = wanted and _depend_on_others(outputs, variables)

    def product(cotangents):
        given, given_form = tree_flatten(cotangents)
        if given_form != out_form:
            raise RuntimeError(f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
                               f"cotangents: {given_form}, primal output: {out_form}")
        again = _C.is_grad_enabled() and (keep or any(c.requires_grad for c in given))
        with enable_grad():
            return _leave(tree_unflatten(_gradients(outputs, variables, given, again), form), again)

    shown = _leave(result, keep)
    return (shown, product, _leave(aux, keep)) if has_aux else (shown, product)


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """The result of func(*primals), and the product of its Jacobian with the tangents: the gradient of a product from the left with
    respect to the vector.

    >>> arete.func.jvp(lambda x: x**2, (arete.tensor([1.0, 2.0]),), (arete.ones(2),))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to be tuples")
    directions, form = tree_flatten(tangents)
    if form != tree_flatten(primals)[1]:
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to have the same python structure")
    wanted = _C.is_grad_enabled()
    with enable_grad():
        result, aux, variables, _ = _called(func, tuple(range(len(primals))), primals, {}, has_aux, "jvp")
        outputs, out_form = _tensors_of(result, "jvp")
        keep = wanted and (any(t.requires_grad for t in directions) or _depend_on_others(outputs, variables))
        units = [_C._share(zeros_like(_C._detach_inside(o))).requires_grad_() for o in outputs]
        products = [p.to_dense() if p.is_sparse else p for p in _gradients(outputs, variables, units, True)]
        for p, t in zip(products, directions):
            if p.shape != t.shape:
                raise RuntimeError(f"jvp(f, primals, tangents): Expected primals and tangents to have the same shapes, got {p.shape} and "
                                   f"{t.shape}")
            if strict and not p.requires_grad:
                raise RuntimeError("jvp(f, primals, tangents, strict=True): the output of f is independent of an input")
        pushed = tree_unflatten(_gradients(products, units, directions, keep), out_form)
    shown = (_leave(result, keep), _leave(pushed, keep))
    return (*shown, _leave(aux, keep)) if has_aux else shown


def linearize(func, *primals):
    """The result of func(*primals), and the function that multiplies its Jacobian there with tangents like the primals, any number of
    times: `func` is called once. RuntimeError for tangents of another structure or other shapes.

    >>> y, push = arete.func.linearize(lambda x: x**2, arete.tensor([1.0, 2.0]))
    >>> y, push(arete.tensor([1.0, 0.0]))
    (tensor([1., 4.]), tensor([2., 0.]))
    """
    with enable_grad():
        result, _, variables, _ = _called(func, tuple(range(len(primals))), primals, {}, False, "linearize")
        outputs, out_form = _tensors_of(result, "linearize")
        units = [_C._share(zeros_like(_C._detach_inside(o))).requires_grad_() for o in outputs]
        products = _gradients(outputs, variables, units, True)
    in_form = tree_flatten(primals)[1]

    def push(*tangents):
        given, form = tree_flatten(tangents)
        if form != in_form:
            raise RuntimeError(f"Expected the tangents {form} to have the same argspec as the primals {in_form}")
        for i, (t, v) in enumerate(zip(given, variables)):
            if t.shape != v.shape:
                raise RuntimeError(f"tangent:{i} with shape {t.shape} in flattened pytree doesn't match the shape {v.shape} of the "
                                   "corresponding primal.")
        return _leave(tree_unflatten(_gradients(products, units, given, False), out_form), False)

    return _leave(result, False), push


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None):
    """A function that gives the Jacobian of `func`: for each tensor of its result and each argument with one of these numbers a tensor
    of both their sizes. The passes backwards, one for each element of the result, are made as one batch, or as batches of chunk_size.

    >>> arete.func.jacrev(lambda x: x**2)(arete.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        wanted = _C.is_grad_enabled()
        with enable_grad():
            result, aux, variables, form = _called(func, argnums, args, kwargs, has_aux, "jacrev")
            outputs, out_form = _tensors_of(result, "jacrev")
            keep = wanted and _depend_on_others(outputs, variables)
            jacobians = _rows(outputs, variables, form, keep, chunk_size)
        jacobian = _leave(tree_unflatten(jacobians, out_form), keep)
        return (jacobian, _leave(aux, keep)) if has_aux else jacobian

    return wrapper


def _for_units(like, f, results, place, chunk_size=None):
    """f of the tensors of like's sizes that have one element that is 1, as one batch, whose dimension in the results is at `place`. Where
    there are none, results of the sizes of `results`."""
    if not like.numel():
        return [r.new_zeros((0, *r.shape) if place == 0 else (*r.shape, 0)) for r in results]
    units = eye(like.numel(), dtype=like.dtype, device=like.device).reshape(like.numel(), *like.shape)
    return vmap(lambda unit: tuple(f(unit)), out_dims=place, chunk_size=chunk_size)(units)


def _rows(outputs, variables, form, keep, chunk_size=None):
    """The Jacobians of the outputs, by passes backwards."""
    jacobians = []
    for o in outputs:
        rows = _for_units(o, lambda unit: _gradients([o], variables, [unit], keep), variables, 0, chunk_size)  # noqa: B023
        jacobians.append(tree_unflatten([r.reshape(o.shape + v.shape) for r, v in zip(rows, variables)], form))
    return jacobians


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """The Jacobian as jacrev() gives it, by products with units of the arguments, as one batch: for functions with more results than
    arguments.

    >>> arete.func.jacfwd(lambda x: x.sum())(arete.ones(2))
    tensor([1., 1.])
    """
    if randomness != "error":
        raise NotImplementedError("jacfwd(): randomness: the function is called once, so there is nothing to choose")

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        wanted = _C.is_grad_enabled()
        with enable_grad():
            result, aux, variables, form = _called(func, argnums, args, kwargs, has_aux, "jacfwd")
            outputs, out_form = _tensors_of(result, "jacfwd")
            keep = wanted and _depend_on_others(outputs, variables)
            weights = [_C._share(zeros_like(_C._detach_inside(o))).requires_grad_() for o in outputs]
            products = _gradients(outputs, variables, weights, True)
            try:
                columns = [_for_units(v, lambda unit, p=p: _gradients([p], weights, [unit], keep), outputs, -1)
                           for v, p in zip(variables, products)]
                jacobians = [tree_unflatten([c[k].reshape(o.shape + v.shape) for c, v in zip(columns, variables)], form)
                             for k, o in enumerate(outputs)]
            except _DifferentiatedTwice:  # products from the right are gradients of those from the left
                jacobians = _rows(outputs, variables, form, keep)
        jacobian = _leave(tree_unflatten(jacobians, out_form), keep)
        return (jacobian, _leave(aux, keep)) if has_aux else jacobian

    return wrapper


def hessian(func, argnums=0):
    """A function that gives the second derivatives of `func`.

    >>> arete.func.hessian(lambda x: (x**3).sum())(arete.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacrev(jacrev(func, argnums), argnums)


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """A function that gives what `func` gives for each element of a dimension of its arguments, stacked. `func` is called once, with
    tensors that look like one element, and each operator that it calls runs for all elements at once.

    in_dims: the dimension, None for arguments that stay whole, or a tuple (or tree) of these; arguments that are given by name stay
    whole. out_dims: where results are stacked, None for what is the same for all elements. randomness: "error" (random numbers are one),
    "different" ones for each element or the "same". chunk_size: so many elements at a time. Values of one element cannot be looked at
    (`item()`, `if x:`): RuntimeError. What all elements share cannot be written to in place with what each of them has: RuntimeError,
    before anything is written.

    >>> arete.vmap(arete.dot)(arete.tensor([[1.0, 2.0], [3.0, 4.0]]), arete.ones(2, 2))
    tensor([3., 7.])
    >>> per_sample = arete.vmap(arete.func.grad(lambda w, x: (w * x).sum()), in_dims=(None, 0))
    >>> per_sample(arete.ones(2), arete.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[1., 2.],
            [3., 4.]])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        return _steps.vmap_impl(func, in_dims, out_dims, randomness, chunk_size, *args, **kwargs)

    return wrapper


def replace_all_batch_norm_modules_(root):
    """Makes the batch norms of a module do without running statistics, which elements of a batch under vmap() could not share: in training
    and in evaluation they normalize by those of their input. Gives the module.

    >>> net = arete.nn.Sequential(arete.nn.Conv2d(1, 2, 3), arete.nn.BatchNorm2d(2))
    >>> arete.func.replace_all_batch_norm_modules_(net)[1].running_mean is None
    True
    """
    from .nn.modules.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
    return root


def stack_module_state(models):
    """The parameters and the buffers of modules of one kind, each stacked along a new first dimension: two dicts for
    functional_call() under vmap().

    >>> parameters, buffers = arete.func.stack_module_state([arete.nn.Linear(2, 3) for _ in range(4)])
    >>> parameters["weight"].shape, buffers
    (arete.Size([4, 3, 2]), {})
    """
    models = list(models)
    _check_alike(models, "stack_module_state")

    def together(states):
        first = states[0]
        with no_grad():
            return {name: stack([s[name] for s in states]).requires_grad_(first[name].requires_grad) for name in first}

    return together([dict(m.named_parameters()) for m in models]), together([dict(m.named_buffers()) for m in models])
