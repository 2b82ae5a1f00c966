"""Points that fill the unit cube more evenly than random ones: the sequence of Sobol (1967) with the direction numbers of Joe and Kuo
(2008), which are SciPy's. Where SciPy is not installed an engine cannot be made."""
from __future__ import annotations

from typing import Any, Optional

from . import _operators
from ._C import Tensor

__all__ = ["SobolEngine"]


class SobolEngine:
    """A source of points of the sequence, in up to 21201 dimensions. With `scramble` the points are permuted at random (by Matousek's way),
    by `seed` or the program's generator; these numbers are not torch's. ImportError without SciPy.

    >>> arete.quasirandom.SobolEngine(0)
    Traceback (most recent call last):
    ValueError: Supported range of dimensionality for SobolEngine is [1, 21201]
    """

    MAXBIT, MAXDIM = 30, 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: Optional[int] = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        try:
            from scipy.stats import qmc  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError("SobolEngine takes its direction numbers from SciPy, which is not installed") from error
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        if scramble and seed is None:
            seed = int(_operators.randint(0, 2**31, ()).item())
        self._engine = qmc.Sobol(dimension, scramble=scramble, seed=seed, bits=self.MAXBIT)

    @property
    def num_generated(self) -> int:
        """How many points have been given."""
        return self._engine.num_generated

    def draw(self, n: int = 1, out: Optional[Tensor] = None, dtype: Any = None) -> Tensor:
        """The next n points (n, dimension)."""
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of numbers that are no power of two, which torch takes without a word
            points = self._engine.random(n)
        found = _operators.from_numpy(points).to(dtype or _operators.get_default_dtype())
        return found if out is None else out.resize_(found.shape).copy_(found)

    def draw_base2(self, m: int, out: Optional[Tensor] = None, dtype: Any = None) -> Tensor:
        """The next 2 ** m points; ValueError where those and the ones before are no power of two."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points have been "
                             f"previously generated, then: n={self.num_generated}+2**{m}={total}")
        return self.draw(2**m, out, dtype)

    def reset(self) -> "SobolEngine":
        """From the first point on."""
        self._engine.reset()
        return self

    def fast_forward(self, n: int) -> "SobolEngine":
        """Leaves n points out."""
        self._engine.fast_forward(n)
        return self

    def __repr__(self) -> str:
        said = f"dimension={self.dimension}" + (", scramble=True" if self.scramble else "")
        return f"SobolEngine({said}" + (f", seed={self.seed})" if self.seed is not None else ")")
