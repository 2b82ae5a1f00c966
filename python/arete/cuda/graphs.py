"""Callables whose forward and backward pass are recorded once and replayed: for models of many small kernels."""
from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

from .. import _C, autograd
from .._C import Tensor
from .._cuda_streams import Stream, current_stream, stream
from .._operators import zeros_like
from ..nn import Module
from ._graph import CUDAGraph, graph, graph_pool_handle

__all__ = ["make_graphed_callables"]


def _tensors(result: Any) -> Tuple[Tensor, ...]:
    found = (result,) if isinstance(result, Tensor) else tuple(result)
    if not all(isinstance(t, Tensor) for t in found):
        raise TypeError("make_graphed_callables: results must be a tensor or a tuple of tensors")
    return found


class _Graphed:
    """One callable: tensors with fixed addresses, and a graph for each direction."""

    def __init__(self, function: Callable, args: Sequence[Tensor], allow_unused: bool) -> None:
        if not all(isinstance(t, Tensor) and t.is_cuda for t in args):
            raise TypeError("make_graphed_callables: sample_args must be CUDA tensors")
        self.function = function
        self.allow_unused = allow_unused
        self.parameters: List[Tensor] = list(function.parameters()) if isinstance(function, Module) else []
        if isinstance(function, Module):
            if any(b.requires_grad for b in function.buffers()):
                raise RuntimeError("make_graphed_callables: buffers must not require gradients")
            if function._forward_hooks or function._forward_pre_hooks or function._backward_hooks:
                raise RuntimeError("Modules must not have hooks registered at the time they are passed. However, registering "
                                   "hooks on modules after passing them through make_graphed_callables is allowed.")
        self.args = tuple(args)
        self.inputs = self.args + tuple(self.parameters)
        self.needed = [t for t in self.inputs if t.requires_grad]

    def _backward(self, outputs: Sequence[Tensor], grads: Sequence[Tensor]):
        live = [o for o in outputs if o.requires_grad]
        if not live or not self.needed:
            return None
        return autograd.grad(live, self.needed, [g for g in grads if g is not None], allow_unused=self.allow_unused)

    def warm_up(self, times: int) -> None:
        for _ in range(times):
            outputs = _tensors(self.function(*self.args))
            self._backward(outputs, [zeros_like(o) if o.requires_grad else None for o in outputs])

    def record_forward(self, pool: Any) -> None:
        self.forward = CUDAGraph()
        with graph(self.forward, pool):
            result = self.function(*self.args)
        self.single = isinstance(result, Tensor)
        self.outputs = _tensors(result)

    def record_backward(self, pool: Any) -> None:
        self.grads = [zeros_like(o) if o.requires_grad else None for o in self.outputs]
        self.backward: Optional[CUDAGraph] = CUDAGraph()
        found = None
        with graph(self.backward, pool):
            found = self._backward(self.outputs, self.grads)
        if found is None:
            self.backward = None
            found = ()
        left = iter(found)
        self.found = [next(left) if t.requires_grad and self.backward else None for t in self.inputs]

    def callable(self) -> Callable:
        outer = self

        class Graphed(autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                for own, given in zip(outer.args, inputs):
                    if own.data_ptr() != given.data_ptr():
                        own.detach().copy_(given)
                outer.forward.replay()
                return tuple(o.detach() for o in outer.outputs)

            @staticmethod
            def backward(ctx, *grads):
                for own, given in zip(outer.grads, grads):
                    if own is not None:
                        own.copy_(given) if given is not None else own.zero_()
                if outer.backward is not None:
                    outer.backward.replay()
                return tuple(f.detach() if f is not None else None for f in outer.found)

        def run(*args):
            if len(args) != len(outer.args):
                raise TypeError(f"the graphed callable takes {len(outer.args)} tensors, not {len(args)}")
            for own, given in zip(outer.args, args):
                if own.shape != given.shape or own.dtype != given.dtype:
                    raise ValueError(f"the graphed callable was recorded for a tensor {tuple(own.shape)} of {own.dtype}, "
                                     f"not {tuple(given.shape)} of {given.dtype}")
            results = Graphed.apply(*args, *outer.parameters)
            return results[0] if outer.single else results

        return run


def make_graphed_callables(callables: Union[Callable, Tuple[Callable, ...]], sample_args: Tuple, num_warmup_iters: int = 3,
                           allow_unused_input: bool = False, pool: Any = None):
    """Records the forward and backward pass of a module or function (or of each of a tuple) into CUDA graphs, and returns
    callables that replay them.

    `sample_args` is a tuple of CUDA tensors for each callable, with the shapes, dtypes and requires_grad that real calls have;
    callables get tensors only and return a tensor or a tuple of them. A module is returned as itself, its forward() replaced while it
    is in the mode (training or not) it was recorded in. Results are overwritten by the next call: copy what has to stay.

    >>> net = nn.Linear(4, 2).cuda()  # doctest: +SKIP
    >>> net = arete.cuda.make_graphed_callables(net, (arete.randn(8, 4, device="cuda"),))  # doctest: +SKIP
    >>> net(arete.randn(8, 4, device="cuda")).sum().backward()  # doctest: +SKIP
    """
    single = not isinstance(callables, tuple)
    if single:
        callables, sample_args = (callables,), (sample_args,)
    if len(callables) != len(sample_args):
        raise ValueError("make_graphed_callables: sample_args needs a tuple for each callable")
    recorded = [_Graphed(c, args, allow_unused_input) for c, args in zip(callables, sample_args)]
    pool = graph_pool_handle() if pool is None else pool
    _C._cuda.synchronize(-1)
    side = Stream()
    side.wait_stream(current_stream())
    with stream(side):
        for r in recorded:
            r.warm_up(num_warmup_iters)
    current_stream().wait_stream(side)
    _C._cuda.synchronize(-1)
    # In the order of an iteration, so that the graphs can share memory.
    for r in recorded:
        r.record_forward(pool)
    for r in reversed(recorded):
        r.record_backward(pool)

    def replaced(r: _Graphed):
        run = r.callable()
        if not isinstance(r.function, Module):
            return run
        module, mode, plain = r.function, r.function.training, r.function.forward

        def forward(*args):
            return run(*args) if module.training == mode else plain(*args)

        module.forward = forward  # type: ignore[method-assign]
        return module

    results = tuple(replaced(r) for r in recorded)
    return results[0] if single else results
