"""Random inputs for measurements: sizes by their distributions, tensors of those sizes in various layouts."""
from __future__ import annotations

import math
import random
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from .... import _C, _operators

__all__ = ["Fuzzer", "FuzzedParameter", "ParameterAlias", "FuzzedTensor"]


class ParameterAlias:
    """In a distribution: the value of another parameter.

    >>> arete.utils.benchmark.ParameterAlias("k0")
    ParameterAlias(alias_to='k0')
    """

    def __init__(self, alias_to: str) -> None:
        self.alias_to = alias_to

    def __repr__(self) -> str:
        return f"ParameterAlias(alias_to={self.alias_to!r})"


class FuzzedParameter:
    """A number, "uniform" or "loguniform" from `minval` to `maxval` (whole where both are), or one of the values of a dict with
    their probabilities."""

    def __init__(self, name: str, minval: Optional[Union[int, float]] = None, maxval: Optional[Union[int, float]] = None,
                 distribution: Optional[Union[str, Dict[Any, float]]] = None, strict: bool = False) -> None:
        if isinstance(distribution, dict):
            if not distribution or min(distribution.values()) < 0 or sum(distribution.values()) <= 0:
                raise ValueError(f"FuzzedParameter {name!r}: probabilities must not be negative, nor all 0")
            if strict and not math.isclose(sum(distribution.values()), 1.0):
                raise ValueError(f"FuzzedParameter {name!r}: probabilities must add up to 1, which strict asks for")
        elif distribution not in ("uniform", "loguniform"):
            raise ValueError(f"FuzzedParameter {name!r}: distribution must be 'uniform', 'loguniform' or a dict, not {distribution!r}")
        elif minval is None or maxval is None or minval > maxval or (distribution == "loguniform" and minval <= 0):
            raise ValueError(f"FuzzedParameter {name!r}: no {distribution} numbers from {minval} to {maxval}")
        self.name, self._minval, self._maxval, self._distribution = name, minval, maxval, distribution

    def sample(self, state: random.Random) -> Any:
        """One value."""
        if isinstance(self._distribution, dict):
            return state.choices(list(self._distribution), list(self._distribution.values()))[0]
        low, high = self._minval, self._maxval
        assert low is not None and high is not None
        whole = isinstance(low, int) and isinstance(high, int)
        if self._distribution == "uniform":
            return state.randint(int(low), int(high)) if whole else state.uniform(low, high)
        value = math.exp(state.uniform(math.log(low), math.log(high)))
        return min(max(round(value), low), high) if whole else value


class FuzzedTensor:
    """A tensor whose sizes (and steps between elements) are numbers or names of parameters. With a probability of
    1 - `probability_contiguous` its dimensions lie in another order in memory. `dim_parameter` names the parameter that
    says how many of the sizes are used; sizes with fewer or more elements than allowed are drawn again."""

    def __init__(self, name: str, size: Sequence[Union[str, int]], steps: Optional[Sequence[Union[str, int]]] = None,
                 probability_contiguous: float = 0.5, min_elements: Optional[int] = None, max_elements: Optional[int] = None,
                 max_allocation_bytes: Optional[int] = None, dim_parameter: Optional[str] = None,
                 roll_parameter: Optional[str] = None, dtype: Any = _C.float32, cuda: bool = False,
                 tensor_constructor: Optional[Callable[..., Any]] = None) -> None:
        self.name = name
        self._size, self._steps = tuple(size), tuple(steps) if steps is not None else (1,) * len(size)
        if len(self._steps) != len(self._size):
            raise ValueError(f"FuzzedTensor {name!r}: {len(self._size)} sizes, but {len(self._steps)} steps")
        self._probability_contiguous = probability_contiguous
        self._least, self._most, self._bytes = min_elements or 0, max_elements, max_allocation_bytes
        self._dim_parameter, self._roll_parameter = dim_parameter, roll_parameter
        self._dtype, self._cuda, self._constructor = dtype or _C.float32, cuda, tensor_constructor

    @property
    def _device(self) -> str:
        return "cuda" if self._cuda else "cpu"

    def _shape(self, params: Dict[str, Any]) -> Optional[Tuple[List[int], List[int]]]:
        """Sizes and steps; None if they are not allowed."""
        dims = params[self._dim_parameter] if self._dim_parameter else len(self._size)
        size, steps = ([params[s] if isinstance(s, str) else s for s in part[:dims]] for part in (self._size, self._steps))
        allocated = math.prod(n * s for n, s in zip(size, steps))
        fits = self._least <= math.prod(size) and (self._most is None or math.prod(size) <= self._most)
        return (size, steps) if fits and (self._bytes is None or allocated * self._dtype.itemsize <= self._bytes) else None

    def _make(self, size: List[int], steps: List[int], params: Dict[str, Any], state: random.Random) -> Tuple[Any, Dict[str, Any]]:
        order = list(range(len(size)))
        if state.random() > self._probability_contiguous:
            state.shuffle(order)
        if self._roll_parameter and order:
            by = params[self._roll_parameter] % len(order)
            order = order[by:] + order[:by]
        stored = [size[d] * steps[d] for d in order]
        if self._constructor is not None:
            whole = self._constructor(size=tuple(stored), dtype=self._dtype, **params)
        elif self._dtype.is_floating_point or self._dtype.is_complex:
            whole = _operators.randn(stored, dtype=self._dtype, device=self._device)
        else:
            whole = _operators.randint(0, 2 if self._dtype is _C.bool else 127, stored, dtype=self._dtype, device=self._device)
        back = [order.index(d) for d in range(len(order))]
        tensor = whole.permute(back)[tuple(slice(None, None, s) for s in steps)]
        return tensor, {"numel": tensor.numel(), "order": tuple(order), "steps": tuple(steps), "is_contiguous": tensor.is_contiguous(),
                        "dtype": str(self._dtype)}


def _flat(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, (list, tuple)):
            yield from _flat(item)
        else:
            yield item


class Fuzzer:
    """Draws parameters, and makes tensors by them; draws again where a tensor's or one of the `constraints` (functions of the
    parameters) is not met. A seed gives the same inputs each time.

    >>> b = arete.utils.benchmark
    >>> fuzzer = b.Fuzzer([b.FuzzedParameter("n", 1, 100, "loguniform")], [b.FuzzedTensor("x", ("n", 4), min_elements=16)], seed=0)
    >>> all(tensors["x"].shape == (params["n"], 4) for tensors, properties, params in fuzzer.take(5))
    True
    """

    def __init__(self, parameters: Sequence[Any], tensors: Sequence[Any], constraints: Optional[Sequence[Callable[..., bool]]] = None,
                 seed: Optional[int] = None) -> None:
        self._parameters, self._tensors = list(_flat(parameters)), list(_flat(tensors))
        names = [p.name for p in self._parameters] + [t.name for t in self._tensors]
        if len(set(names)) != len(names):
            raise ValueError(f"Fuzzer: names must differ: {sorted(n for n in set(names) if names.count(n) > 1)}")
        self._constraints, self._seed = list(constraints or ()), seed
        self._drawn = self._rejected = 0

    def take(self, n: int) -> Iterator[Tuple[Dict[str, Any], Dict[str, Dict[str, Any]], Dict[str, Any]]]:
        """`n` times tensors, their properties and parameters, all by name."""
        state = random.Random(self._seed)
        self._drawn = self._rejected = 0
        for _ in range(n):
            params, shapes = self._draw(state)
            made = {t.name: t._make(*shapes[t.name], params, state) for t in self._tensors}
            yield {name: m[0] for name, m in made.items()}, {name: m[1] for name, m in made.items()}, params

    @property
    def rejection_rate(self) -> float:
        """The part of what take() drew that was not allowed."""
        return self._rejected / self._drawn if self._drawn else 0.0

    def _draw(self, state: random.Random) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        for _ in range(1000):
            self._drawn += 1
            params = {p.name: p.sample(state) for p in self._parameters}
            for name, value in params.items():
                for _ in params:  # an alias of an alias is resolved, a circle is not
                    value = params[value.alias_to] if isinstance(value, ParameterAlias) else value
                params[name] = value
            shapes = {t.name: t._shape(params) for t in self._tensors}
            if None not in shapes.values() and all(allowed(params) for allowed in self._constraints):
                return params, shapes
            self._rejected += 1
        raise RuntimeError("Fuzzer: 1000 times in a row no allowed parameters: the constraints are too narrow")
