"""Loss scaling."""
from __future__ import annotations

import enum
import warnings
import weakref
from collections.abc import Iterable
from typing import Any, Optional

from .. import _C
from .._C import Tensor


class OptState(enum.Enum):
    """What was done with an optimizer's gradients since update().

    >>> arete.amp.grad_scaler.OptState.UNSCALED.value
    1
    """

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class GradScaler:
    """Multiplies losses so that small gradients do not vanish in float16, leaves out steps whose gradients overflowed
    and adapts the scale. With the optimizers of the library nothing waits for the device.

    >>> weight = arete.ones(1, requires_grad=True)
    >>> scaler, optimizer = arete.amp.GradScaler("cpu"), arete.optim.SGD([weight], lr=0.5)
    >>> scaler.scale(weight.sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> weight, scaler.get_scale()
    (tensor([0.5000], requires_grad=True), 65536.0)
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True, *, min_scale: float = 2.0**-24) -> None:
        self._device = device
        if enabled and device == "cuda" and not _C._cuda.is_available():
            warnings.warn(f"{_C.Tensor.__module__}.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            enabled = False
        self._options = (float(init_scale), float(growth_factor), float(backoff_factor), int(growth_interval), float(min_scale),
                         bool(enabled))
        self._scaler = _C._GradScaler(*self._options)
        self._optimizers: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def scale(self, outputs: Any) -> Any:
        """A tensor, or tensors in lists and tuples, times the scale."""
        if isinstance(outputs, Tensor):
            return self._scaler.scale(outputs)
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(map(self.scale, outputs))
        if isinstance(outputs, Iterable):
            return map(self.scale, outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _face(self, optimizer: Any) -> Any:
        """What the C++ scaler sees of an optimizer."""
        face = self._optimizers.get(optimizer)
        if face is None:
            # Weak: the face is no object that Python's collector looks into.
            itself, scaler = weakref.ref(optimizer), weakref.ref(self)
            masters = all(g.get("master_weights") for g in optimizer.param_groups)
            fused = all(g.get("fused") for g in optimizer.param_groups)
            face = _C._Scalable(lambda: [p for g in itself().param_groups for p in g["params"]],
                                lambda found_inf, inverse: scaler()._step(itself(), found_inf, inverse), masters,
                                masters or fused)
            self._optimizers[optimizer] = face
        return face

    def _step(self, optimizer: Any, found_inf: Tensor, inverse_scale: Optional[Tensor]) -> None:
        args, kwargs = self._arguments
        if not hasattr(optimizer, "_scaling"):  # written in Python: only the host can leave the step out
            self._result = None if found_inf.item() else optimizer.step(*args, **kwargs)
            return
        optimizer._scaling = (found_inf, inverse_scale)
        try:
            self._result = optimizer.step(*args, **kwargs)
        finally:
            optimizer._scaling = None

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients by the scale, in place: before they are clipped or looked at. Of parameters that are spread over
        processes what one has found all know, so all call it."""
        face = self._face(optimizer)
        self._scaler.unscale_(face)
        if self.is_enabled():
            for spec in self._spread(optimizer):
                spec.agree(self._scaler.found_inf(face))

    @staticmethod
    def _spread(optimizer: Any) -> list:
        """Over which processes parameters are spread: one of each kind."""
        specs = (getattr(p, "_spec", None) for g in optimizer.param_groups for p in g["params"])
        return list({spec.mesh: spec for spec in specs if spec is not None}.values())

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step() from unscaled gradients, unless some are infinite or NaN. They stay unscaled."""
        if not self.is_enabled():
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        face = self._face(optimizer)
        if self._scaler.is_ready(face) and (not hasattr(optimizer, "_scaling") or self._spread(optimizer)):
            self.unscale_(optimizer)
        self._arguments, self._result = (args, kwargs), None
        self._scaler.step(face)
        return self._result

    def update(self, new_scale: Any = None) -> None:
        """Moves the scale by what the steps since the last call found, or sets it."""
        if isinstance(new_scale, Tensor):
            self._scaler.update_to(new_scale)
        else:
            self._scaler.update(None if new_scale is None else float(new_scale))

    def report(self, model: Any = None) -> str:
        """For people: the scale, how many steps were skipped, and which parameter of the model overflowed first."""
        named = model.named_parameters() if hasattr(model, "named_parameters") else model or ()
        return self._scaler.report(list(named))

    def _found_inf_per_device(self, optimizer: Any) -> dict:
        """{device: 1.0 or 0.0 in a tensor}: whether gradients overflowed since the last update; {} if none was looked at."""
        found = self._scaler.found_inf(self._face(optimizer))
        return {} if found is None else {found.device: found}

    def get_scale(self) -> float:
        """The scale; waits for the device."""
        return self._scaler.get_scale()

    @property
    def _scale(self) -> Optional[Tensor]:
        return self._scaler.scale_tensor()

    def num_skipped(self) -> int:
        """How many updates found an overflow; waits for the device."""
        return self._scaler.num_skipped()

    def get_growth_factor(self) -> float:
        return self._scaler.state()[1]

    def set_growth_factor(self, new_factor: float) -> None:
        self._scaler.set_growth_factor(new_factor)

    def get_backoff_factor(self) -> float:
        return self._scaler.state()[2]

    def set_backoff_factor(self, new_factor: float) -> None:
        self._scaler.set_backoff_factor(new_factor)

    def get_growth_interval(self) -> int:
        return self._scaler.state()[3]

    def set_growth_interval(self, new_interval: int) -> None:
        self._scaler.set_growth_interval(new_interval)

    def _get_growth_tracker(self) -> int:
        return self._scaler.state()[4]

    def is_enabled(self) -> bool:
        return self._scaler.is_enabled()

    _NAMES = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")

    def state_dict(self) -> dict:
        """Scale, settings and the number of steps since the scale changed; {} if not enabled."""
        return dict(zip(self._NAMES, self._scaler.state())) if self.is_enabled() else {}

    def load_state_dict(self, state_dict: dict) -> None:
        if not self.is_enabled():
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")
        self._scaler.load_state(*(state_dict[name] for name in self._NAMES))

    def __getstate__(self) -> dict:
        return {"device": self._device, "options": self._options, "state": self.state_dict()}

    def __setstate__(self, state: dict) -> None:
        self._device, self._options = state["device"], state["options"]
        self._scaler = _C._GradScaler(*self._options)
        self._optimizers = weakref.WeakKeyDictionary()
        if state["state"]:
            self.load_state_dict(state["state"])
