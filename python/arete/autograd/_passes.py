"""Backward passes: backward() and grad()."""
from __future__ import annotations

import warnings
from typing import NamedTuple

from .. import _C
from .._C import Node, Tensor
from .._operators import ones_like, zeros_like
from .._vmap import level as _level


class GradientEdge(NamedTuple):
    """A place in the graph: output `output_nr` of what `node` made. backward() and grad() take it in the place of a tensor.

    >>> x = arete.tensor(3.0, requires_grad=True)
    >>> arete.autograd.graph.get_gradient_edge(2 * x)
    GradientEdge(node=<mul>, output_nr=0, ownership_token=None)
    """

    node: Node
    output_nr: int
    ownership_token: Node | None = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The place in the graph where the gradient of a tensor arrives, which keeps the graph alive and not the tensor.

    RuntimeError of a tensor that requires no gradient.

    >>> x = arete.tensor(3.0, requires_grad=True)
    >>> y = x * x
    >>> edge, z = arete.autograd.graph.get_gradient_edge(y), y.exp().log()
    >>> del y
    >>> arete.autograd.grad(z, edge, retain_graph=True), arete.autograd.grad(edge, x)
    ((tensor(1.),), (tensor(6.),))
    """
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(*_C._gradient_edge(_leaf(tensor)))


def _tensors(x) -> list[Tensor]:
    """A list of tensors; edges of the graph are tensors without values there."""
    given = [x] if isinstance(x, (Tensor, GradientEdge)) else list(x)
    return [_C._at_edge(t.node, t.output_nr) if isinstance(t, GradientEdge) else t for t in given]


def _gradients(outputs, given):
    """One gradient for each output; ones where none is given."""
    if given is None:
        given = [None] * len(outputs)
    given = [given] if isinstance(given, Tensor) else list(given)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    filled = []
    for t, g in zip(outputs, given):
        if g is None:
            if t.requires_grad and t.numel() != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if t.requires_grad and t.is_complex():
                raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {t.dtype}")
            g = ones_like(t)
        elif g.shape != t.shape:
            raise RuntimeError(f"Mismatch in shape: grad_output[{len(filled)}] has a shape of {g.shape} and output[{len(filled)}] has a "
                               f"shape of {t.shape}.")
        filled.append(g)
    return filled


def _own_parts(outputs, given):
    """For DTensors what this process has of them, and of the gradients given."""
    if not any(hasattr(t, "_spec") for t in outputs):
        return outputs, given
    given = [None] * len(outputs) if given is None else _tensors(given)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    pairs = [t._of_pass(g) if hasattr(t, "_spec") else (t, g) for t, g in zip(outputs, given)]
    return [t for t, _ in pairs], [g for _, g in pairs]


def _leaf(x):
    """Of a DTensor the tensor that gets its gradient."""
    return getattr(x, "__dict__", {}).get("_local_tensor", x)


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """Accumulates the gradients of `tensors` in the leaves they depend on (or in `inputs` alone, leaves or not).

    RuntimeError for outputs of several elements without a gradient of the same shape.

    >>> x = arete.tensor([2.0, 3.0], requires_grad=True)
    >>> arete.autograd.backward(x.square(), arete.tensor([1.0, 10.0]))
    >>> x.grad
    tensor([ 4., 60.])
    >>> arete.autograd.backward(2 * x)
    Traceback (most recent call last):
    RuntimeError: grad can be implicitly created only for scalar outputs
    """
    tensors, grad_tensors = _own_parts(_tensors(tensors), grad_tensors)
    gradients = _gradients(tensors, grad_tensors)
    keep = create_graph if retain_graph is None else retain_graph
    only = [] if inputs is None else [_leaf(x) for x in _tensors(inputs)]
    if inputs is not None and not only:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    _C._backward(tensors, gradients, keep, create_graph, only)


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
         is_grads_batched=False, materialize_grads=False):
    """The gradients of `outputs` with respect to `inputs`, as a tuple.

    create_graph allows to differentiate them again; allow_unused gives None for inputs that play no part, which else
    are an error, and materialize_grads zeros. With is_grads_batched the first dimension of each of grad_outputs counts passes, which
    are run as one batch (func.vmap), and so does that of the results.

    >>> x = arete.tensor(2.0, requires_grad=True)
    >>> dx, = arete.autograd.grad(x**3, x, create_graph=True)
    >>> dx.item(), arete.autograd.grad(dx, x)
    (12.0, (tensor(12.),))
    >>> arete.autograd.grad(x**2, arete.ones(1, requires_grad=True))
    Traceback (most recent call last):
    arete.AutogradError: One of the differentiated Tensors appears to not have been used in the graph...
    >>> v = arete.ones(2, requires_grad=True)
    >>> arete.autograd.grad(v**2, v, arete.eye(2), is_grads_batched=True)
    (tensor([[2., 0.],
            [0., 2.]]),)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    if not only_inputs:
        warnings.warn("only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for other "
                      "parts of the graph, please use torch.autograd.backward.", FutureWarning, stacklevel=2)
    given = _tensors(inputs)
    spread = [hasattr(x, "_spec") for x in given]
    outputs, inputs = _tensors(outputs), [_leaf(x) for x in given]
    if is_grads_batched and (any(spread) or any(hasattr(t, "_spec") for t in outputs)):
        raise NotImplementedError("grad: is_grads_batched of tensors that are spread over processes is not supported")
    outputs, grad_outputs = _own_parts(outputs, grad_outputs)
    keep = create_graph if retain_graph is None else retain_graph
    unused = materialize_grads if allow_unused is None else allow_unused
    if is_grads_batched:
        result = _batch_of_gradients(outputs, inputs, grad_outputs, keep, create_graph, unused)
    else:
        result = _C._grad(outputs, inputs, _gradients(outputs, grad_outputs), keep, create_graph, unused)
    if materialize_grads:
        result = [zeros_like(x, requires_grad=create_graph) if g is None else g for g, x in zip(result, inputs)]
    return tuple(x._of_gradient(g) if shared else g for g, x, shared in zip(result, given, spread))


def _batch_of_gradients(outputs, inputs, given, keep, create_graph, unused):
    """One pass for each element of the first dimension of the gradients given."""
    given = [given] if given is None or isinstance(given, Tensor) else list(given)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    sizes = {g.size(0) for g in given if g is not None and g.dim() > 0}
    for i, (g, t) in enumerate(zip(given, outputs)):
        if g is None or g.dim() == 0:
            raise ValueError("is_grads_batched=True: each of grad_outputs must be a tensor whose first dimension counts the passes, "
                             f"but grad_outputs[{i}] is {'None' if g is None else 'without dimensions'}")
        if g.shape[1:] != t.shape:
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The sizes "
                "of the remaining dimensions are expected to match the shape of corresponding output, but a mismatch was detected: "
                f"grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of {t.shape}. If you only want some tensors "
                "in `grad_output` to be considered batched, consider using vmap.")
    if len(sizes) != 1:
        raise ValueError(f"is_grads_batched=True: the gradients count different numbers of passes: {sorted(sizes)}")
    count = sizes.pop()
    if count == 0:
        raise ValueError("is_grads_batched=True: there must be at least one pass, but the first dimension of the gradients is 0")
    with _level(count):
        found = _C._grad(outputs, inputs, [_C._batch(g, 0) for g in given], keep, create_graph, unused)
        return [None if g is None else _C._unbatch(g, 0) for g in found]
