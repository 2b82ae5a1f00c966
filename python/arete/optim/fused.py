"""The optimizers of the C++ library."""
from __future__ import annotations

from .. import _C
from .._C import Tensor
from .optimizer import Optimizer


def _only_if(**settings) -> dict:
    """Settings that torch has not appear where they are used only, so that states look like torch's."""
    return {name: value for name, value in settings.items() if value}


class _Fused(Optimizer):
    """Settings live in the groups here and are handed to the C++ optimizer before each step."""

    _kind = ""
    _shows_step = True  # whether torch's state has a "step"
    _settings: tuple[str, ...] = ()
    _numbers_of_state: tuple[str, ...] = ()  # those that the C++ optimizer keeps as numbers
    _pairs = {"betas": ("beta1", "beta2"), "etas": ("eta_minus", "eta_plus"), "step_sizes": ("step_min", "step_max")}

    def __init__(self, params, defaults: dict):
        if defaults.get("fused") and defaults.get("differentiable"):
            raise RuntimeError("`fused` does not support `differentiable`")
        if defaults.get("fused") and defaults.get("foreach"):
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        self._impl = None
        self._scaling = None  # (found_inf, inverse scale) while a GradScaler steps
        super().__init__(params, defaults)

    def _read(self, group: dict) -> dict[str, float]:
        settings = {}
        for name in self._settings:
            if name in self._pairs:
                settings.update(zip(self._pairs[name], map(float, group[name])))
            elif name in group:
                settings[name] = float(group[name])
        return settings

    def _make(self):
        self._impl = _C._make_optimizer(self._kind, [(g["params"], self._read(g)) for g in self.param_groups])
        self._handed = [self._read(g) for g in self.param_groups]

    def add_param_group(self, param_group: dict) -> None:
        """Adds parameters with settings of their own."""
        super().add_param_group(param_group)
        kept = self._states() if self._impl is not None else None
        self._make()  # also checks the settings
        if kept:
            self._load_states(kept)

    def _hand_over(self):
        for i, group in enumerate(self.param_groups):
            settings = self._read(group)
            if settings != self._handed[i]:
                for name, value in settings.items():
                    self._impl.set(i, name, value)
                self._handed[i] = settings

    def step(self, closure=None):
        """One update of every parameter that has a gradient."""
        loss = self._call(closure)
        self._hand_over()
        if self._scaling is None:
            self._impl.step()
        else:
            self._impl.step_scaled(*self._scaling)
        return loss

    def _order(self) -> list[Tensor]:
        return [p for g in self.param_groups for p in g["params"]]

    def _states(self) -> dict:
        tensors, numbers = self._impl.state()
        params, state = self._order(), {}
        for key, value in list(tensors.items()) + list(numbers.items()):
            if not key.startswith("state."):
                continue
            _, number, name = key.split(".", 2)
            if name == "step":
                if value == 0 or not self._shows_step:
                    continue
                value = _C.tensor(float(value), dtype=_C.float32)
            elif name in self._numbers_of_state:
                value = _C.tensor(value, dtype=_C.float64)
            state.setdefault(params[int(number)], {})[name] = value
        return state

    def _load_states(self, state: dict) -> None:
        tensors, numbers = self._impl.state()
        numbers = {k: v for k, v in numbers.items() if not k.startswith("state.")}
        for i, group in enumerate(self.param_groups):
            for name, value in self._read(group).items():
                numbers[f"param_groups.{i}.{name}"] = value
        fresh = {}
        place = {id(p): i for i, p in enumerate(self._order())}
        for p, values in state.items():
            if not isinstance(p, Tensor):
                continue
            if values and not self._shows_step:
                numbers[f"state.{place[id(p)]}.step"] = 1.0  # not the first one any more
            for name, value in values.items():
                key = f"state.{place[id(p)]}.{name}"
                if name == "step" or name in self._numbers_of_state:
                    numbers[key] = float(value)
                elif isinstance(value, Tensor):
                    fresh[key] = value
        self._impl.load(fresh, numbers)
        self._handed = [self._read(g) for g in self.param_groups]

    @property
    def state(self):
        """Parameter to its state: tensors shared with the optimizer, "step" as a tensor."""
        return self._states() if self._impl is not None else {}

    @state.setter
    def state(self, value):
        if value:
            self._load_states(value)

    def __getstate__(self):
        raise TypeError("optimizers are saved through state_dict()")


class SGD(_Fused):
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
    arete.ArgumentError: Invalid learning rate value: -1.000000...
    """

    _kind = "SGD"
    _shows_step = False
    _settings = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "master_weights")

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False,
                 foreach=None, differentiable=False, fused=None, master_weights=False):  # fmt: skip
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                      nesterov=nesterov, maximize=maximize, foreach=foreach,
                                      differentiable=differentiable, fused=fused,
                                      **_only_if(master_weights=master_weights)))  # fmt: skip


class Adam(_Fused):
    """Adam (Kingma and Ba 2015); decoupled_weight_decay makes it AdamW. master_weights as in SGD.

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.Adam([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7500])
    """

    _kind = "Adam"
    _settings = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "master_weights")

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None,
                 maximize=False, capturable=False, differentiable=False, fused=None,
                 decoupled_weight_decay=False, master_weights=False):  # fmt: skip
        if decoupled_weight_decay:
            self._kind = "AdamW"
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                                      maximize=maximize, foreach=foreach, capturable=capturable,
                                      differentiable=differentiable, fused=fused,
                                      decoupled_weight_decay=decoupled_weight_decay,
                                      **_only_if(master_weights=master_weights)))  # fmt: skip


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.AdamW([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7475])
    """

    _kind = "AdamW"

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False,
                 foreach=None, capturable=False, differentiable=False, fused=None, master_weights=False):  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
                         capturable=capturable, differentiable=differentiable, fused=fused,
                         decoupled_weight_decay=True, master_weights=master_weights)  # fmt: skip


class Lion(_Fused):
    """Lion (Chen et al. 2023): the sign of a mixture of gradient and momentum.

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.Lion([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7500])
    """

    _kind = "Lion"
    _settings = ("lr", "betas", "weight_decay", "maximize")

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0, *, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize))


class RMSprop(_Fused):
    """RMSprop (Hinton 2012), optionally centered and with momentum.

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.RMSprop([w], lr=0.05)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.5000])
    """

    _kind = "RMSprop"
    _settings = ("lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize")

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False,
                 capturable=False, foreach=None, maximize=False, differentiable=False):  # fmt: skip
        super().__init__(params, dict(lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered,
                                      weight_decay=weight_decay, capturable=capturable, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable))  # fmt: skip


class Adagrad(_Fused):
    """Adagrad (Duchi et al. 2011).

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.Adagrad([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7500])
    """

    _kind = "Adagrad"
    _settings = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize")

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10,
                 foreach=None, *, maximize=False, differentiable=False, fused=None):  # fmt: skip
        super().__init__(params, dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
                                      initial_accumulator_value=initial_accumulator_value, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable, fused=fused))  # fmt: skip


class Adadelta(_Fused):
    """Adadelta (Zeiler 2012).

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.Adadelta([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.9992])
    """

    _kind = "Adadelta"
    _settings = ("lr", "rho", "eps", "weight_decay", "maximize")

    def __init__(self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False,
                 maximize=False, differentiable=False):  # fmt: skip
        super().__init__(params, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                      capturable=capturable, foreach=foreach, differentiable=differentiable))  # fmt: skip


class NAdam(_Fused):
    """Adam with Nesterov's momentum (Dozat 2016).

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.NAdam([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7359])
    """

    _kind = "NAdam"
    _settings = ("lr", "betas", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay", "maximize")
    _numbers_of_state = ("mu_product",)

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3,
                 decoupled_weight_decay=False, *, foreach=None, maximize=False, capturable=False,
                 differentiable=False):  # fmt: skip
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                      momentum_decay=momentum_decay, decoupled_weight_decay=decoupled_weight_decay,
                                      maximize=maximize, foreach=foreach, capturable=capturable,
                                      differentiable=differentiable))  # fmt: skip


class RAdam(_Fused):
    """Rectified Adam (Liu et al. 2020): the second moment counts as far as enough gradients were seen.

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.RAdam([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.5000])
    """

    _kind = "RAdam"
    _settings = ("lr", "betas", "eps", "weight_decay", "decoupled_weight_decay", "maximize")

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *,
                 foreach=None, maximize=False, capturable=False, differentiable=False):  # fmt: skip
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                      foreach=foreach, capturable=capturable,
                                      decoupled_weight_decay=decoupled_weight_decay,
                                      differentiable=differentiable))  # fmt: skip


class Adamax(_Fused):
    """Adam by the largest gradient instead of the mean square (Kingma and Ba 2015).

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.Adamax([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7500])
    """

    _kind = "Adamax"
    _settings = ("lr", "betas", "eps", "weight_decay", "maximize")

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False,
                 differentiable=False, capturable=False):  # fmt: skip
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable, capturable=capturable))  # fmt: skip


class Rprop(_Fused):
    """Steps that follow the signs of the gradient (Riedmiller and Braun 1993), for gradients of the whole data.

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.Rprop([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.7500])
    """

    _kind = "Rprop"
    _settings = ("lr", "etas", "step_sizes", "maximize")

    def __init__(self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, capturable=False, foreach=None,
                 maximize=False, differentiable=False):  # fmt: skip
        super().__init__(params, dict(lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize,
                                      differentiable=differentiable, capturable=capturable))  # fmt: skip


class ASGD(_Fused):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992); the average is state[parameter]["ax"].

    >>> w = arete.tensor([1.0], requires_grad=True)
    >>> optimizer = arete.optim.ASGD([w], lr=0.25)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.5000])
    """

    _kind = "ASGD"
    _settings = ("lr", "lambd", "alpha", "t0", "weight_decay", "maximize")
    _numbers_of_state = ("eta", "mu")

    def __init__(self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False,
                 differentiable=False, capturable=False):  # fmt: skip
        super().__init__(params, dict(lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable, capturable=capturable))  # fmt: skip
