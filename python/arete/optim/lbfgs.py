"""L-BFGS, whose step computes loss and gradients many times."""
from __future__ import annotations

from .. import _C
from .._C import Tensor
from .fused import _Fused

_LISTS = ("old_dirs", "old_stps", "ro")


class LBFGS(_Fused):
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

    _kind = "LBFGS"
    _settings = ("lr", "max_iter", "max_eval", "tolerance_grad", "tolerance_change", "history_size")
    _numbers_of_state = ("func_evals", "n_iter", "t", "prev_loss")

    def __init__(self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100,
                 line_search_fn=None):  # fmt: skip
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(params, dict(lr=lr, max_iter=max_iter, max_eval=max_eval, tolerance_grad=tolerance_grad,
                                      tolerance_change=tolerance_change, history_size=history_size,
                                      line_search_fn=line_search_fn))  # fmt: skip

    def _read(self, group: dict) -> dict[str, float]:
        search = group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise RuntimeError(f"only 'strong_wolfe' is supported as line_search_fn, not {search!r}")
        return dict(super()._read(group), strong_wolfe=float(search is not None))

    def step(self, closure):
        """Several iterations; returns the loss of the first call of the closure."""
        if self._scaling is not None:
            raise RuntimeError("LBFGS computes gradients anew as it goes: a GradScaler cannot step it")
        self._hand_over()
        first: list = []

        def loss():
            value = closure()
            if not first:
                first.append(value)
            return value if isinstance(value, Tensor) else _C.tensor(float(value), dtype=_C.float64)

        self._impl.step_with(loss)
        return first[0]

    def _states(self) -> dict:
        tensors, numbers = self._impl.state()
        values: dict = {}
        for key, value in sorted({**numbers, **tensors}.items()):
            if key.startswith("state.0."):
                name, _, index = key[len("state.0.") :].partition(".")
                if index:
                    values.setdefault(name, {})[int(index)] = value
                else:
                    values[name] = int(value) if name in ("func_evals", "n_iter") else value
        if values.get("n_iter"):
            for name in _LISTS:
                values[name] = [value for _, value in sorted(values.get(name, {}).items())]
        return {self._order()[0]: values} if values else {}

    def _load_states(self, state: dict) -> None:
        tensors: dict = {}
        numbers = {k: v for k, v in self._impl.state()[1].items() if not k.startswith("state.")}
        numbers.update({f"param_groups.0.{name}": value for name, value in self._read(self.param_groups[0]).items()})
        for name, value in state.get(self._order()[0], {}).items():
            if name in _LISTS:
                tensors.update({f"state.0.{name}.{i}": v for i, v in enumerate(value)})
            elif name in self._numbers_of_state:
                numbers[f"state.0.{name}"] = float(value)
            elif name != "al":  # torch's scratch
                tensors[f"state.0.{name}"] = value if isinstance(value, Tensor) else _C.tensor(float(value))
        self._impl.load(tensors, numbers)
        self._handed = [self._read(g) for g in self.param_groups]
