"""The optimizers of the C++ library. Their options, defaults and checks are the C++ ones."""
from __future__ import annotations

from typing import Any

from .. import _C
from .._C import Tensor
from .optimizer import Optimizer


def _made_init(kind: str):
    """An __init__ whose arguments are the options of a C++ optimizer."""
    arguments, defaults, values = ["self", "params"], [], {}
    for name, default, how in _C._optimizer_fields(kind):
        if how == "*":
            arguments.append("*")
            continue
        values[name] = default
        if how == "fixed":
            defaults.append(f"{name!r}: _values[{name!r}]")
            continue
        if how == "own" and "*" not in arguments:
            arguments.append("*")
        arguments.append(f"{name}=_values[{name!r}]")
        # What PyTorch has not is in a group only where it is used, so that states look like PyTorch's.
        defaults.append(f"**({{{name!r}: {name}}} if {name} else {{}})" if how == "own" else f"{name!r}: {name}")
    scope: dict = {"_values": values}
    exec(f"def __init__({', '.join(arguments)}):\n    self._start(params, {{{', '.join(defaults)}}})", scope)
    return scope["__init__"]


# What they do to an element depends on others.
_OF_WHOLE_PARAMETERS = ("Adafactor", "LBFGS", "Muon")


class _Native(Optimizer):
    """`param_groups` and `state` decide; the C++ optimizer takes over what differs before each step (see Note [State that
    Python owns] in python/src/optim.cpp), so it is made where it is first needed and never copied or saved."""

    _kind = ""
    _repeats = False  # a group has a parameter several times
    _scaling: Any = None  # (found_inf, inverse scale) while a GradScaler steps
    _tells_of_steps = True

    def __init_subclass__(cls, kind: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if not kind:
            return
        cls._kind = kind
        if "__init__" not in cls.__dict__:
            init = _made_init(kind)
            init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
            cls.__init__ = init  # type: ignore[misc]

    def __init__(self, params: Any, *args: Any, **settings: Any) -> None:
        raise TypeError(f"{type(self).__name__} is a base class")

    def _start(self, params: Any, defaults: dict) -> None:
        if defaults.get("fused"):
            if defaults.get("differentiable"):
                raise RuntimeError("`fused` does not support `differentiable`")
            if defaults.get("foreach"):
                raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        if defaults.get("foreach") and not defaults.get("capturable", True) and isinstance(defaults["lr"], Tensor):
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        Optimizer.__init__(self, params, defaults)

    @property
    def _impl(self) -> Any:
        native = self.__dict__.get("_native")
        if native is None:
            native = self.__dict__["_native"] = _C._Optimizer(self._kind)
        return native

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, default, how in _C._optimizer_fields(self._kind):
                if how in ("argument", "python", "fixed"):
                    group.setdefault(name, default)
            place = group.get("capturable") or group.get("fused")
            for p in group["params"]:
                self._with_tensors(self.state.get(p, {}), p.device if place else "cpu")

    @staticmethod
    def _with_tensors(state: dict, device: Any) -> None:
        """Old states have counts and numbers that are no tensors."""
        dtype = _C.float64 if _C.get_default_dtype() is _C.float64 else _C.float32
        for name, value in state.items():
            if isinstance(value, (int, float)):
                state[name] = _C.tensor(float(value), dtype=dtype, device=device)

    def add_param_group(self, param_group: dict) -> None:
        super().add_param_group(param_group)
        params = self.param_groups[-1]["params"]
        self._repeats = self._repeats or len(params) != len(set(params))
        try:
            _C._check_optimizer_group(self._kind, self.param_groups[-1])
            if self._kind in _OF_WHOLE_PARAMETERS:
                for p in self.param_groups[-1]["params"]:
                    spec = getattr(p, "_spec", None)
                    if spec is not None and any(placement.is_shard() for placement in spec.placements):
                        raise NotImplementedError(f"{self._kind}: a step depends on whole parameters, and one is spread over processes")
        except BaseException:
            self.param_groups.pop()
            raise

    # Of parameters that are spread over processes the state is this process' part.

    def _state_told(self, param: Any, values: Any) -> Any:
        spread = getattr(param, "_spread_beside", None)
        return values if spread is None else {name: spread(v) for name, v in values.items()}

    def _state_taken(self, param: Tensor, value: Tensor) -> Tensor:
        part = getattr(param, "_part_beside", None)
        return value if part is None else part(value)

    def step(self, closure=None):
        """One update of every parameter that has a gradient."""
        loss = None if closure is None else self._call(closure)
        if self._repeats:
            self._update_repeatedly()
        else:
            self._update()
        return loss

    def _update(self) -> None:
        self._impl.step(self, *(self._scaling or ()))

    def _update_repeatedly(self) -> None:
        """Updates parameters that a group has several times as often, one update after the other: a single one takes all at a time."""
        given = rest = [group["params"] for group in self.param_groups]
        scaling = self._scaling
        try:
            while any(rest):
                later: list = []
                for group, params in zip(self.param_groups, rest):
                    first = {id(p): p for p in params}
                    group["params"] = list(first.values())
                    later.append([p for p in params if first.pop(id(p), None) is None])
                self._update()
                rest = later
                if scaling:  # which is taken off the gradients now
                    self._scaling = scaling[0], scaling[1].new_ones(scaling[1].shape)
        finally:
            self._scaling = scaling
            for group, params in zip(self.param_groups, given):
                group["params"] = params


class SGD(_Native, kind="SGD"):
    """Gradient descent with momentum, optionally Nesterov's. With master_weights parameters in half types are
    updated through copies in float32; what is written to a parameter between two steps goes on from there.

    `params` are tensors, pairs of names and tensors, or dicts with "params" and settings of their own; ValueError for
    none, and for settings out of their range.

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.SGD([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.5000])
    >>> optimizer.zero_grad()
    >>> arete.optim.SGD([w], lr=-1.0)
    Traceback (most recent call last):
    arete.ArgumentError: Invalid learning rate: -1.0...
    """


class Adam(_Native, kind="Adam"):
    """Adam (Kingma and Ba 2015); decoupled_weight_decay makes it AdamW. master_weights as in SGD.

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.Adam([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7500])
    """


class AdamW(Adam, kind="AdamW"):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.AdamW([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7475])
    """


class Lion(_Native, kind="Lion"):
    """Lion (Chen et al. 2023): the sign of a mixture of gradient and momentum.

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.Lion([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7500])
    """


class RMSprop(_Native, kind="RMSprop"):
    """RMSprop (Hinton 2012), optionally centered and with momentum.

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.RMSprop([w], lr=0.05)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.5000])
    """


class Adagrad(_Native, kind="Adagrad"):
    """Adagrad (Duchi et al. 2011).

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.Adagrad([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7500])
    """

    def _start(self, params: Any, defaults: dict) -> None:
        super()._start(params, defaults)
        self._impl.make_state(self)

    def share_memory(self) -> None:
        """Moves the sums into memory that processes share."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()


class Adadelta(_Native, kind="Adadelta"):
    """Adadelta (Zeiler 2012).

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.Adadelta([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.9992])
    """


class NAdam(_Native, kind="NAdam"):
    """Adam with Nesterov's momentum (Dozat 2016).

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.NAdam([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7359])
    """


class SparseAdam(_Native, kind="SparseAdam"):
    """Adam for sparse gradients, as those of `nn.Embedding(sparse=True)`: rows of a table that a step does not use keep their values and
    averages, and cost nothing.

    >>> table = arete.nn.Embedding(3, 2, sparse=True)
    >>> before = table.weight.detach().clone()
    >>> optimizer = arete.optim.SparseAdam(table.parameters())
    >>> table(arete.tensor([1])).sum().backward()
    >>> optimizer.step()
    >>> (table.weight != before).any(1)
    tensor([False,  True, False])
    """


class RAdam(_Native, kind="RAdam"):
    """Rectified Adam (Liu et al. 2020): the second moment counts as far as enough gradients were seen.

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.RAdam([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.5000])
    """


class Adamax(_Native, kind="Adamax"):
    """Adam by the largest gradient instead of the mean square (Kingma and Ba 2015).

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.Adamax([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7500])
    """


class Rprop(_Native, kind="Rprop"):
    """Steps that follow the signs of the gradient (Riedmiller and Braun 1993), for gradients of the whole data.

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.Rprop([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7500])
    """


class ASGD(_Native, kind="ASGD"):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992); the average is state[parameter]["ax"].

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.ASGD([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.5000])
    """


class Adafactor(_Native, kind="Adafactor"):
    """Adafactor (Shazeer and Stern 2018): of the squared gradients of a matrix it keeps the means of rows and columns only,
    and its steps are relative to the size of the parameter.

    >>> w = arete.tensor([[1.0, 2.0]], requires_grad=True)
    >>> optimizer = arete.optim.Adafactor([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> sorted(optimizer.state[w])
    ['col_var', 'row_var', 'step']
    """


class Muon(_Native, kind="Muon"):
    """Muon (Jordan et al. 2024), for matrices: the momentum is made orthogonal before it is descended on. Other parameters
    need another optimizer beside it.

    >>> w = arete.eye(2).requires_grad_()
    >>> optimizer = arete.optim.Muon([w], lr=0.25, weight_decay=0)
    >>> (w * arete.tensor([[3.0, 0.0], [0.0, 0.5]])).sum().backward()
    >>> optimizer.step()
    >>> (w - arete.eye(2)).detach().diag().sign()
    tensor([-1., -1.])
    """
