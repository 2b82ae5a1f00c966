"""What processes compute together, with gradients: results are new tensors, and the gradient of one goes to all processes it came from.

Every process must call the same functions, and let the same gradients flow back, in the same order.

>>> dist = arete.distributed
>>> dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
>>> x = arete.ones(2, requires_grad=True)
>>> dist.nn.functional.all_reduce(x).sum().backward()
>>> x.grad
tensor([1., 1.])
>>> dist.destroy_process_group()
"""
from __future__ import annotations

from typing import Any, Optional, Sequence

from ... import _C, _operators
from ..._operators import _ops
from .. import distributed_c10d as c10d

__all__ = ["broadcast", "gather", "scatter", "reduce", "reduce_scatter", "all_gather", "all_to_all", "all_to_all_single", "all_reduce"]

_LINEAR = {0: "SUM", 7: "AVG", 8: "PREMUL_SUM"}


def _reduction(op: c10d.ReduceOp) -> tuple:
    return _LINEAR.get(op._kind, repr(op)), op._factor


def _without_gradient(op: c10d.ReduceOp, *tensors: Any) -> bool:
    """Whether there is only the plain function for it: what is not linear has no gradient here, and says so if one is asked for."""
    return op._kind not in _LINEAR and not (_C.is_grad_enabled() and any(t.requires_grad for t in tensors))


def _group(group: Optional[c10d.ProcessGroup], root: Optional[int] = None) -> tuple:
    group = c10d._of(group)
    return (group, group._number) if root is None else (group, group._number, c10d._root(group, root, None, "rank"))


def broadcast(tensor: Any, src: int, group: Optional[c10d.ProcessGroup] = None) -> Any:
    """The tensor of one process; its gradient is the sum of all."""
    _, number, root = _group(group, src)
    return _ops.collective_broadcast(tensor, root, number)


def gather(tensor: Any, dst: int = 0, group: Optional[c10d.ProcessGroup] = None) -> tuple:
    """The tensors of all processes for one; the others get zeros."""
    _, number, root = _group(group, dst)
    return _ops.collective_gather(tensor, root, number).unbind(0)


def scatter(tensors: Sequence[Any], src: int = 0, group: Optional[c10d.ProcessGroup] = None) -> Any:
    """Of the tensors of one process the one for this. All processes give tensors, whose shapes and dtype are the same."""
    _, number, root = _group(group, src)
    return _ops.collective_scatter(_operators.stack(list(tensors)), root, number)


def reduce(tensor: Any, dst: int, op: c10d.ReduceOp = c10d.ReduceOp.SUM, group: Optional[c10d.ProcessGroup] = None) -> Any:
    """The sum or average of all processes' tensors for one; the others get their own."""
    group, number, root = _group(group, dst)
    if _without_gradient(op, tensor):
        result = tensor.detach().clone()
        group._reduce(result, root, op, False)
        return result
    return _ops.collective_reduce(tensor, *_reduction(op), root, number)


def reduce_scatter(output: Any, input_list: Sequence[Any], op: c10d.ReduceOp = c10d.ReduceOp.SUM,
                   group: Optional[c10d.ProcessGroup] = None) -> Any:
    """Of the sums or averages of all processes' lists the element for this one, which is written to `output`."""
    group, number = _group(group)
    if _without_gradient(op, *input_list):
        group._reduce_scatter(output, list(input_list), op, False)
        return output
    result = _ops.collective_reduce_scatter(_operators.stack(list(input_list)), *_reduction(op), number)
    return output.copy_(result.reshape(output.shape))


def all_gather(tensor: Any, group: Optional[c10d.ProcessGroup] = None) -> tuple:
    """The tensors of all processes, of one shape."""
    group, number = _group(group)
    return _ops.collective_all_gather(tensor.unsqueeze(0), number).unbind(0)


def _all_gather_base(output_tensor: Any, input_tensor: Any, group: Optional[c10d.ProcessGroup] = None) -> Any:
    group, number = _group(group)
    return output_tensor.copy_(_ops.collective_all_gather(input_tensor, number).reshape(output_tensor.shape))


def all_to_all(output_tensor_list: Sequence[Any], input_tensor_list: Sequence[Any], group: Optional[c10d.ProcessGroup] = None) -> tuple:
    """Sends each process a tensor, and receives one from each, which is written to `output_tensor_list`."""
    group, number = _group(group)
    flat = _operators.cat([t.reshape(-1) for t in input_tensor_list])
    rows = [t.numel() for t in output_tensor_list]
    parts = _ops.collective_all_to_all(flat, rows, [t.numel() for t in input_tensor_list], number).split(rows)
    return tuple(out.copy_(part.reshape(out.shape)) for out, part in zip(output_tensor_list, parts))


def all_to_all_single(output: Any, input: Any, output_split_sizes: Optional[Sequence[int]] = None,
                      input_split_sizes: Optional[Sequence[int]] = None, group: Optional[c10d.ProcessGroup] = None) -> Any:
    """Sends each process some rows, and receives rows from each, which are written to `output`."""
    group, number = _group(group)
    result = _ops.collective_all_to_all(input, list(output_split_sizes or []), list(input_split_sizes or []), number)
    return output.copy_(result)


def all_reduce(tensor: Any, op: c10d.ReduceOp = c10d.ReduceOp.SUM, group: Optional[c10d.ProcessGroup] = None) -> Any:
    """The sum or average of all processes' tensors. Other reductions have no gradient."""
    group, number = _group(group)
    if _without_gradient(op, tensor):
        result = tensor.detach().clone()
        group._all_reduce(result, op, False)
        return result
    return _ops.collective_all_reduce(tensor, *_reduction(op), number)
