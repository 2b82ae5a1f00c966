"""Programs without state."""
from __future__ import annotations

import copy
import io
from typing import Any

from .._program import Recorded
from ..nn import Module
from ._programs import ScriptModule, _load_bytes
from ._script import _RecordModule


class _FrozenRecord(ScriptModule):
    """A copy of a scripted module that shows none of its state."""

    def __init__(self, record: Any, preserved: Any) -> None:
        Module.__init__(self)
        twin = copy.deepcopy(record)
        for t in (*twin.parameters(), *twin.buffers()):
            t.requires_grad_(False)
        try:
            first = record._recorded.clone()
            first.program.freeze()
        except RuntimeError:  # not recorded yet
            first = None
        self.__dict__.update(_twin=twin, _first=first, _preserved=tuple(preserved), training=False)
        for name in preserved:
            self.__dict__[name] = getattr(twin._scripted.function, name)

    @property
    def _recorded(self) -> Recorded:  # type: ignore[override]
        twin = self.__dict__["_twin"]
        if self._first is not None and not twin._scripted.count:
            return self._first
        recorded = twin._recorded.clone()
        recorded.program.freeze()
        return recorded

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._twin(*args, **kwargs)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self.__dict__["_first"] = None
        self._twin._apply(fn)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        self.__dict__["_first"] = None
        self._twin.to(*args, **kwargs)
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self)(self._twin, self._preserved)
        made.__dict__["_first"] = self._first
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        file = io.BytesIO()
        self.save(file)
        return _load_bytes, (file.getvalue(),)

    def extra_repr(self) -> str:
        return self._twin.extra_repr()


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """A copy of a traced or scripted module in evaluation mode, whose parameters and buffers are constants: it has no state_dict, and
    no gradient flows to them. Of a scripted module `preserved_attrs` names attributes and methods that the copy has, too; what was
    traced has none.

    >>> net = arete.jit.trace(arete.nn.Linear(2, 2).eval(), arete.ones(1, 2))
    >>> frozen = arete.jit.freeze(net)
    >>> len(frozen.state_dict()), frozen(arete.ones(1, 2)).requires_grad
    (0, False)
    """
    if not isinstance(mod, ScriptModule):
        raise RuntimeError("Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your "
                           f"'nn.Module'. Got: {type(mod).__name__}")
    if mod.training:
        raise RuntimeError("Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before "
                           "freezing.")
    if isinstance(mod, _RecordModule):
        return _FrozenRecord(mod, preserved_attrs or ())
    if preserved_attrs:
        raise NotImplementedError("jit.freeze(): a recorded program has no attributes to preserve")
    recorded = mod._recorded.clone()
    recorded.program.freeze()
    return ScriptModule(recorded)


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """freeze(), if it is not frozen: kernels are chosen where the program runs, and arete.compile() of it puts them together.

    >>> net = arete.jit.trace(arete.nn.Linear(2, 2).eval(), arete.ones(1, 2))
    >>> len(arete.jit.optimize_for_inference(net).state_dict())
    0
    """
    if not isinstance(mod, _FrozenRecord):
        return freeze(mod, other_methods)
    gone = [name for name in other_methods or () if name not in mod._preserved]
    if gone:
        raise AttributeError(f"jit.optimize_for_inference(): freeze(preserved_attrs=) has not kept {gone}")
    return mod


def run_frozen_optimizations(mod: Any, optimize_numerics: bool = True, preserved_methods: Any = None) -> None:
    """Nothing: kernels are chosen where a program runs.

    >>> arete.jit.run_frozen_optimizations(arete.jit.freeze(arete.jit.trace(arete.nn.ReLU().eval(), arete.ones(2))))
    """
