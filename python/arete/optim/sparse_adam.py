"""Adam for tables of which a step uses few rows."""
from __future__ import annotations

from typing import Any

from .. import _operators as ops
from .._C import Tensor
from .._grad_mode import enable_grad, no_grad
from .optimizer import Optimizer


class SparseAdam(Optimizer):
    """Adam that leaves rows of a table and their averages alone in steps that do not use them: rows whose gradient is zero. Gradients of
    `nn.Embedding(sparse=True)` are plain tensors here, so no row of a table is told from one that was used and has a zero gradient.

    >>> table = arete.nn.Embedding(3, 2, sparse=True)
    >>> before = table.weight.detach().clone()
    >>> optimizer = arete.optim.SparseAdam(table.parameters())
    >>> table(arete.tensor([1])).sum().backward()
    >>> optimizer.step()
    >>> (table.weight != before).any(1)
    tensor([False,  True, False])
    """

    def __init__(self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, maximize: bool = False):
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 < lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    @no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step, after `closure()`, if there is one, whose result it returns."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, -p.grad if group["maximize"] else p.grad, group)
        return loss

    def _update(self, p: Tensor, gradient: Tensor, group: dict) -> None:
        state = self.state[p]
        if not state:
            state["step"] = 0
            state["exp_avg"], state["exp_avg_sq"] = ops.zeros_like(p), ops.zeros_like(p)
        state["step"] += 1
        (first, second), mean, square = group["betas"], state["exp_avg"], state["exp_avg_sq"]
        used = gradient != 0
        if p.dim() > 1:
            used = used.flatten(1).any(1).reshape(-1, *[1] * (p.dim() - 1))
        mean.copy_(ops.where(used, mean.lerp(gradient, 1 - first), mean))
        square.copy_(ops.where(used, square.lerp(gradient * gradient, 1 - second), square))
        step = group["lr"] * (1 - second ** state["step"]) ** 0.5 / (1 - first ** state["step"])
        p.sub_(ops.where(used, step * mean / (square.sqrt() + group["eps"]), 0))
