"""numpy.random: Generator and the old functions, over arete's generators. The numbers are the same on every device, and not NumPy's."""
from __future__ import annotations

import builtins as _b
import functools as _functools
import operator as _operator

from .. import _C, _operators as _t
from ..random import _check_may_set
from ._array import (
    axis_of as _axis_of, get_device as _get_device, result_into as _result_into, sizes_of as _sizes_of, tensor_of as _tensor_of,
    result as _result,
)
from ._distributions import (
    F64 as _F64, Distributions as _Distributions, float_type as _float_type, require as _require, shape_of as _shape_of,
)
from ._types import as_dtype as _as_dtype

__all__ = ["Generator", "RandomState", "SeedSequence", "BitGenerator", "Philox", "default_rng", "get_state", "set_state", "seed"]


class SeedSequence:
    """A seed of whole numbers, from the operating system where none is given, and seeds for others that it makes."""

    def __init__(self, entropy=None, *, spawn_key=(), pool_size=4):
        import secrets

        self.entropy = secrets.randbits(128) if entropy is None else entropy
        self.spawn_key, self.pool_size, self.n_children_spawned = tuple(spawn_key), pool_size, 0

    def _number(self):
        import hashlib

        text = repr((self.entropy if isinstance(self.entropy, _b.int) else [int(v) for v in self.entropy], self.spawn_key))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def spawn(self, n_children):
        """Seeds that have nothing to do with this one and each other."""
        first, self.n_children_spawned = self.n_children_spawned, self.n_children_spawned + n_children
        return [SeedSequence(self.entropy, spawn_key=self.spawn_key + (first + i,)) for i in range(n_children)]

    def generate_state(self, n_words, dtype="uint32"):
        size = {"uint32": 1, "uint64": 2}.get(_as_dtype(dtype).name)
        if size is None:
            raise ValueError("only support uint32 or uint64")
        words = _t.randint(0, 2**32, (n_words, size), generator=_generator(self._number()))
        return _result((words[:, 0] if size == 1 else words[:, 0] << 32 | words[:, 1]).to(_as_dtype(dtype)._tensor_dtype))


def _generator(seed):
    g = _C.Generator()
    g.manual_seed(seed - 2**64 if seed >= 2**63 else seed)
    return g


class BitGenerator:
    """The numbers behind a Generator: Philox4x32-10, whatever NumPy calls the one that a program names."""

    def __init__(self, seed=None):
        if isinstance(seed, SeedSequence):
            self.seed_seq = seed
        else:
            if seed is not None and not isinstance(seed, _b.int):
                seed = [_operator.index(v) for v in seed] if hasattr(seed, "__iter__") else _operator.index(seed)
            if isinstance(seed, _b.int) and seed < 0:
                raise ValueError("expected non-negative integer")
            self.seed_seq = SeedSequence(seed)
        self._generator = _generator(self.seed_seq._number())

    @property
    def state(self):
        return {"bit_generator": "Philox", "state": self._generator.get_state()}

    @state.setter
    def state(self, value):
        self._generator.set_state(value["state"])

    def spawn(self, n_children):
        return [BitGenerator(s) for s in self.seed_seq.spawn(n_children)]


Philox = PCG64 = PCG64DXSM = MT19937 = SFC64 = BitGenerator


def _into(t, out):
    return _result_into(t, out, "no")


class Generator(_Distributions):
    """Random arrays, from a state of their own. `bit_generator` is one of `BitGenerator`'s, or a seed."""

    def __init__(self, bit_generator):
        self.bit_generator = bit_generator if isinstance(bit_generator, BitGenerator) else BitGenerator(bit_generator)
        self._own = self.bit_generator._generator

    def __repr__(self):
        return "Generator(Philox)"

    def spawn(self, n_children):
        """Generators that have nothing to do with this one."""
        return [Generator(b) for b in self.bit_generator.spawn(n_children)]

    def __reduce__(self):
        return _generator_of, (self.bit_generator.seed_seq.entropy, self.bit_generator.seed_seq.spawn_key, self._own.get_state())

    def random(self, size=None, dtype=float, out=None):
        """Uniform numbers from 0 to below 1."""
        return _into(self._uniform(_shape_of(size) if out is None else out.shape, _float_type(dtype if out is None else out.dtype)), out)

    def standard_normal(self, size=None, dtype=float, out=None):
        return _into(self._normal(_shape_of(size) if out is None else out.shape, _float_type(dtype if out is None else out.dtype)), out)

    def standard_exponential(self, size=None, dtype=float, method="zig", out=None):
        if method not in ("zig", "inv"):
            raise ValueError("method must be 'zig' or 'inv'")
        d = _float_type(dtype if out is None else out.dtype)
        return _into((-self._open(_shape_of(size) if out is None else out.shape).log()).to(d), out)

    def standard_gamma(self, shape, size=None, dtype=float, out=None):
        _, (a,) = self._array(size if out is None else out.shape, shape)
        _require(a >= 0, "shape < 0")
        return _into(self._gamma(a).to(_float_type(dtype if out is None else out.dtype)), out)

    def integers(self, low, high=None, size=None, dtype="int64", endpoint=False):
        """Whole numbers from low to below high, or to high with `endpoint`."""
        return self._integers(low, high, size, dtype, endpoint)

    def permuted(self, x, axis=None, out=None):
        """Each vector along an axis in an order of its own, or all elements."""
        t = _tensor_of(x)
        if axis is None:
            flat = t.reshape(-1)
            return _result_into(flat[_t.randperm(flat.numel(), device=t.device, generator=self._own)].reshape(t.shape), out)
        keys = self._uniform(t.shape).to(t.device)
        return _result_into(_t.gather(t, _axis_of(axis, t.dim()), _t.argsort(keys, _axis_of(axis, t.dim()))), out)

    def multivariate_hypergeometric(self, colors, nsample, size=None, method="marginals"):
        if method not in ("marginals", "count"):
            raise ValueError("method must be \"count\" or \"marginals\".")
        counts = [int(c) for c in _tensor_of(colors).tolist()]
        if nsample > _b.sum(counts):
            raise ValueError("nsample > sum(colors)")
        shape = () if size is None else _sizes_of(size)
        left, rest, r = _t.full(shape, float(nsample), dtype=_F64, device=_get_device()), _b.sum(counts), []
        for c in counts:
            rest -= c
            x = self.hypergeometric(
                _result(_t.full(shape, float(c), dtype=_F64)), _result(_t.full(shape, float(rest), dtype=_F64)), _result(left)
            )._tensor
            r.append(x)
            left = left - x
        return _result(_t.stack(r, -1))


def _generator_of(entropy, key, state):
    g = Generator(BitGenerator(SeedSequence(entropy, spawn_key=key)))
    g._own.set_state(state)
    return g


class RandomState(_Distributions):
    """NumPy's older interface, with a state of its own."""

    def __init__(self, seed=None):
        self.seed(seed)

    def seed(self, seed=None):
        """Begins anew."""
        self._own = BitGenerator(seed)._generator

    def get_state(self, legacy=True):
        """The state, to be given back to `set_state`."""
        return ("Philox", (self._own or _C.default_generator).get_state(), 0, 0, 0.0)

    def set_state(self, state):
        """Goes on from a state."""
        if self._own is None:
            _check_may_set()
        (self._own or _C.default_generator).set_state(state[1])

    def __reduce__(self):
        return _random_state_of, (self.get_state(),)

    def rand(self, *size, dtype=float):
        """Uniform numbers from 0 to below 1."""
        return _result(self._uniform(size, _float_type(dtype)))

    def randn(self, *size, dtype=float):
        """Normal numbers."""
        return _result(self._normal(size, _float_type(dtype)))

    def random_sample(self, size=None, dtype=float):
        """Uniform numbers from 0 to below 1."""
        return _result(self._uniform(_shape_of(size), _float_type(dtype)))

    random = ranf = sample = random_sample

    def randint(self, low, high=None, size=None, dtype=int):
        """Whole numbers from low to below high."""
        return self._integers(low, high, size, dtype, False)

    def random_integers(self, low, high=None, size=None):
        """Whole numbers from low to high."""
        return self._integers(*((1, low) if high is None else (low, high)), size, int, True)

    def standard_normal(self, size=None, dtype=float):
        return _result(self._normal(_shape_of(size), _float_type(dtype)))

    def normal(self, loc=0.0, scale=1.0, size=None, dtype=float):
        return self._normal_of(loc, scale, size, _float_type(dtype))

    def uniform(self, low=0.0, high=1.0, size=None, dtype=float):
        return self._uniform_of(low, high, size, _float_type(dtype))

    def standard_exponential(self, size=None):
        return self.exponential(size=size)

    def standard_gamma(self, shape, size=None):
        return self.gamma(shape, size=size)


def _with_dtype(name):
    """A distribution with CuPy's argument `dtype`."""
    draw = getattr(RandomState, name)

    @_functools.wraps(draw)
    def function(self, *args, dtype=None, **options):
        result = draw(self, *args, **options)
        return result if dtype is None else result.astype(dtype)

    return function


for _name in ("beta binomial chisquare dirichlet exponential f gamma geometric gumbel hypergeometric laplace logistic lognormal logseries "
              "multivariate_normal negative_binomial noncentral_chisquare noncentral_f pareto poisson power rayleigh standard_cauchy "
              "standard_exponential standard_gamma standard_t triangular vonmises wald weibull zipf").split():
    setattr(RandomState, _name, _with_dtype(_name))


def _random_state_of(state):
    r = RandomState(0)
    r.set_state(state)
    return r


class _Program(RandomState):
    """The functions of the module: those of the program's own generator, which `arete.manual_seed` seeds, too."""

    def __init__(self):
        self._own = None

    def seed(self, seed=None):
        """Begins anew; the program's other random numbers do, too."""
        if seed is not None and hasattr(seed, "__iter__"):
            seed = SeedSequence([_operator.index(v) for v in seed])._number() >> 1
        if seed is not None and not 0 <= _operator.index(seed) < 2**63:
            raise ValueError("Seed must be between 0 and 2**63 - 1")
        _check_may_set()
        _C.manual_seed(SeedSequence()._number() >> 1 if seed is None else _operator.index(seed))


_program = _Program()
for _name in dir(_program):
    if not _name.startswith("_") and callable(getattr(_program, _name)):
        globals()[_name] = getattr(_program, _name)
        __all__ += [_name] if _name not in __all__ else []


def default_rng(seed=None):
    """A Generator; one that is one already is given back."""
    if isinstance(seed, Generator):
        return seed
    return Generator(seed if isinstance(seed, BitGenerator) else BitGenerator(seed))
