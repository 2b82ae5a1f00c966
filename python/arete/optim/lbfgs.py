"""L-BFGS, whose step computes loss and gradients many times."""
from __future__ import annotations

from typing import Any

from .. import _C
from .._C import Tensor
from .native import _Native


class LBFGS(_Native, kind="LBFGS"):
    """Newton's method with curvature learned from the last `history_size` gradients; line_search_fn "strong_wolfe" searches
    along each direction, otherwise `lr` is the step. `step(closure)` calls the closure many times: it clears the
    gradients, computes the loss, calls backward() and returns the loss.

    >>> w = arete.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = arete.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (w - 3).square().sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item()
    29.0
    >>> w.detach()
    tensor([3.0000, 3.0000])
    """

    def _start(self, params: Any, defaults: dict) -> None:
        if defaults["max_eval"] is None:
            defaults["max_eval"] = defaults["max_iter"] * 5 // 4
        super()._start(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @staticmethod
    def _with_tensors(state: dict, device: Any) -> None:
        pass  # its numbers are no tensors

    def step(self, closure):
        """Several iterations; returns the loss of the first call of the closure."""
        if self._scaling is not None:
            raise RuntimeError("LBFGS computes gradients anew as it goes: a GradScaler cannot step it")
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        state = self.state[self.param_groups[0]["params"][0]]
        self._impl.sync_memory(self, state)
        first: list = []

        def loss():
            value = closure()
            if not first:
                first.append(value)
            return value if isinstance(value, Tensor) else _C.tensor(float(value), dtype=_C.float64)

        try:
            self._impl.step_with(self, loss)
        finally:
            state.update(self._impl.memory())
        return first[0]
