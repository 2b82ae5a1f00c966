"""Jacobians and Hessians of functions, and their products with vectors.

Functions take tensors and give tensors, one or a tuple of them; results have the same form. They are made of passes backwards: a
product from the right is the gradient of one from the left with respect to the vector.
"""
from __future__ import annotations

from .._C import Tensor
from .._grad_mode import enable_grad
from .._operators import ones_like, stack, zeros, zeros_like
from . import forward_ad
from ._passes import grad

__all__ = ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"]


def _as_tuple(x, what, name):
    if isinstance(x, Tensor):
        return False, (x,)
    given, x = x, tuple(x) if isinstance(x, (tuple, list)) else (x,)
    for i, t in enumerate(x):
        if not isinstance(t, Tensor):
            where = f"Value {i} of the tuple" if isinstance(given, (tuple, list)) else "The value"
            raise TypeError(f"The {what} given to {name} must be either a Tensor or a tuple of Tensors. {where} has type {type(t)}.")
    return True, x


def _leaves(inputs, create_graph):
    """The inputs as variables of their own, with history where the results shall have it."""
    return tuple(t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_() for t in inputs)


def _call(func, inputs, name, strict):
    """Whether there are several outputs, and them."""
    several, outputs = _as_tuple(func(*inputs), "outputs of the user-provided function", name)
    for i, t in enumerate(outputs):
        if strict and not t.requires_grad:
            raise RuntimeError(f"Output {i} of the user-provided function does not require gradients. The outputs must be computed in a "
                               "differentiable manner from the input when running in strict mode.")
    return several, outputs


def _vectors(v, like, name, of):
    """The vectors of a product; without any 1, for one tensor of one element."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if {of} is a single Tensor with a single element.")
        return tuple(ones_like(t) for t in like)
    v = _as_tuple(v, "vectors", name)[1]
    if len(v) != len(like):
        raise RuntimeError(f"{of} and v must have the same number of tensors: got {len(like)} and {len(v)}")
    for i, (a, b) in enumerate(zip(v, like)):
        if a.shape != b.shape:
            raise RuntimeError(f"Entry {i} in {of} and v have different sizes: got {b.shape} and {a.shape}")
    return v


def _grad(outputs, inputs, v, create_graph, strict):
    """Gradients of those outputs that have any; zeros for inputs that play no part."""
    kept = [(o, w) for o, w in zip(outputs, v) if o.requires_grad]
    found = grad([o for o, _ in kept], inputs, [w for _, w in kept], retain_graph=True, create_graph=create_graph,
                 allow_unused=True) if kept else [None] * len(inputs)
    for i, g in enumerate(found):
        if strict and g is None:
            raise RuntimeError(f"The output of the user-provided function is independent of input {i}. This is not allowed in strict mode.")
    return tuple(zeros_like(x) if g is None else g for g, x in zip(found, inputs))


def _done(tensors, several, create_graph):
    tensors = tensors if create_graph else tuple(t.detach() for t in tensors)
    return tensors if several else tensors[0]


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), v J): the outputs, and the product of a vector with the Jacobian.

    `v` has the shapes of the outputs, and may be left out for a single number. `create_graph` lets the results be differentiated;
    `strict` makes an output that does not depend on an input an error instead of zeros.

    >>> x = arete.tensor([1.0, 2.0])
    >>> arete.autograd.functional.vjp(lambda x: x**2, x, arete.tensor([1.0, 10.0]))
    (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    with enable_grad():
        several, inputs = _as_tuple(inputs, "inputs", "vjp")
        inputs = _leaves(inputs, create_graph)
        of_outputs, outputs = _call(func, inputs, "vjp", strict)
        found = _grad(outputs, inputs, _vectors(v, outputs, "vjp", "the user-provided function's output"), create_graph, strict)
    return _done(outputs, of_outputs, create_graph), _done(found, several, create_graph)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), J v): the outputs, and the product of the Jacobian with a vector of the inputs' shapes; see vjp().

    >>> x = arete.tensor([1.0, 2.0])
    >>> arete.autograd.functional.jvp(lambda x: x.sum() * x, x, arete.tensor([1.0, 0.0]))
    (tensor([3., 6.]), tensor([4., 2.]))
    """
    with enable_grad():
        inputs = _leaves(_as_tuple(inputs, "inputs", "jvp")[1], create_graph)
        v = _vectors(v, inputs, "jvp", "the input to the user-provided function")
        several, outputs = _call(func, inputs, "jvp", strict)
        weights = tuple(zeros_like(o).requires_grad_() for o in outputs)
        products = _grad(outputs, inputs, weights, True, strict)
        found = _grad(products, weights, v, create_graph, False)
    return _done(outputs, several, create_graph), _done(found, several, create_graph)


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The derivatives of all elements of the outputs with respect to all of the inputs: (*output shape, *input shape), or a tuple of
    them for several inputs, and a tuple of those for several outputs.

    One pass backwards for each element of an output; `vectorize` makes them as one batch of passes. strategy="forward-mode" calls the
    function once for each element of the inputs, and wants `vectorize`, as in torch, and neither `create_graph` nor `strict`.

    >>> arete.autograd.functional.jacobian(lambda x: x**2, arete.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if strategy == "forward-mode":
        return _forward_jacobian(func, inputs, create_graph, strict, vectorize)
    if strategy != "reverse-mode":
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    with enable_grad():
        several, inputs = _as_tuple(inputs, "inputs", "jacobian")
        inputs = _leaves(inputs, create_graph)
        of_outputs, outputs = _call(func, inputs, "jacobian", strict)
        rows = tuple(_rows(out, inputs, create_graph, strict, vectorize) for out in outputs)
    rows = tuple(_done(row, several, create_graph) for row in rows)
    return rows if of_outputs else rows[0]


def _forward_jacobian(func, inputs, create_graph, strict, vectorize):
    for name, on, kind in (("create_graph", create_graph, NotImplementedError), ("strict", strict, RuntimeError)):
        if on:
            raise kind(f'torch.autograd.functional.jacobian: `{name}=True` and `strategy="forward-mode"` are not supported together (yet). '
                       f'Please either set `{name}=False` or `strategy="reverse-mode"`.')
    if not vectorize:
        raise NotImplementedError("Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for "
                                  "`vectorize=True`.")
    several, inputs = _as_tuple(inputs, "inputs", "jacobian")
    inputs = _leaves(inputs, False)
    columns = []  # by input and its element: the tangents of the outputs
    of_outputs, outputs = _call(func, inputs, "jacobian", False)
    for i, x in enumerate(inputs):
        columns.append([])
        for j in range(x.numel()):
            unit = zeros(x.shape, dtype=x.dtype, device=x.device)
            unit.view(-1)[j] = 1
            with forward_ad.dual_level():
                found = _as_tuple(func(*inputs[:i], forward_ad.make_dual(x, unit), *inputs[i + 1:]), "outputs", "jacobian")[1]
                tangents = [forward_ad.unpack_dual(o).tangent for o in found]
            columns[-1].append([zeros_like(o) if t is None else t.detach() for o, t in zip(outputs, tangents)])
    rows = [tuple(stack([c[k] for c in of_x], -1).reshape(*out.shape, *x.shape) if of_x else out.detach().new_zeros((*out.shape, *x.shape))
                  for of_x, x in zip(columns, inputs)) for k, out in enumerate(outputs)]
    rows = tuple(_done(row, several, False) for row in rows)
    return rows if of_outputs else rows[0]


def _rows(out, inputs, create_graph, strict, vectorize):
    """The Jacobians of one output."""
    shapes = [(*out.shape, *x.shape) for x in inputs]
    if not out.numel() or not out.requires_grad:
        return tuple(zeros(shape, dtype=out.dtype, device=out.device) for shape in shapes)
    units = [zeros_like(out) for _ in range(out.numel())]
    for i, unit in enumerate(units):
        unit.view(-1)[i] = 1
    if vectorize:
        found = grad([out], inputs, [stack(units)], retain_graph=True, create_graph=create_graph, allow_unused=True, is_grads_batched=True)
        found = [zeros(out.numel(), *x.shape, dtype=x.dtype, device=x.device) if g is None else g for g, x in zip(found, inputs)]
    else:
        found = [stack(column) for column in zip(*(_grad((out,), inputs, (unit,), create_graph, strict) for unit in units))]
    return tuple(g.reshape(shape) for g, shape in zip(found, shapes))


def _gradient_of(func, name, strict):
    def gradient(*inputs):
        _, outputs = _call(func, inputs, name, strict)
        if len(outputs) != 1 or outputs[0].numel() != 1:
            raise RuntimeError(f"The function given to {name} should return a single Tensor" +
                               (" with a single element." if len(outputs) == 1 else "."))
        return _grad(outputs, inputs, (ones_like(outputs[0]),), True, strict)

    return gradient


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The second derivatives of a function with one number as result: (*input shape, *input shape), or for several inputs a tuple
    of tuples of them; see jacobian().

    >>> arete.autograd.functional.hessian(lambda x: (x**3).sum(), arete.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    several, inputs = _as_tuple(inputs, "inputs", "hessian")
    found = jacobian(_gradient_of(func, "hessian", strict), inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if several else found[0][0]


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), v H): the number, and the product of a vector with the Hessian, in one pass backwards through the gradient.

    >>> arete.autograd.functional.vhp(lambda x: (x**3).sum(), arete.tensor([1.0, 2.0]), arete.tensor([1.0, 1.0]))
    (tensor(9.), tensor([ 6., 12.]))
    """
    with enable_grad():
        several, inputs = _as_tuple(inputs, "inputs", "vhp")
        inputs = _leaves(inputs, create_graph)
        v = _vectors(v, inputs, "vhp", "the input to the user-provided function")
        kept = []

        def once(*x):
            kept.append(func(*x))
            return kept[-1]

        gradient = _gradient_of(once, "vhp", strict)(*inputs)
        found = _grad(gradient, inputs, v, create_graph, strict)
    return _done(_as_tuple(kept[0], "outputs", "vhp")[1], False, create_graph), _done(found, several, create_graph)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), H v). The Hessian is symmetric: vhp() is the same.

    >>> arete.autograd.functional.hvp(lambda x: x[0] * x[1], arete.tensor([1.0, 2.0]), arete.tensor([0.0, 1.0]))
    (tensor(2.), tensor([1., 0.]))
    """
    return vhp(func, inputs, v, create_graph, strict)
