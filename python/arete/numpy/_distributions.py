"""The distributions that generators of numpy.random draw from."""
from __future__ import annotations

import math
import operator

from .. import _C, _operators as _t
from ._array import (
    axis_of as _axis_of, get_device as _get_device, ndarray as _ndarray, sizes_of as _sizes_of, tensor_of as _tensor_of, result as _result,
)
from ._types import LIMITS as _LIMITS, as_dtype as _as_dtype

F64 = _C.float64


def shape_of(size, *parameters):
    """The shape of the result: `size`, or that of the parameters together."""
    together = tuple(_t.broadcast_shapes(*[p.shape for p in parameters])) if parameters else ()
    if size is None:
        return together
    shape = _sizes_of(size)
    if parameters and tuple(_t.broadcast_shapes(together, shape)) != shape:
        raise ValueError(f"Output size {shape} is not compatible with broadcast dimensions of inputs {together}.")
    return shape


def _real(*values):
    return [_tensor_of(v).to(_get_device(), F64) for v in values]


def require(condition, text):
    if not bool(_t.as_tensor(condition).all()):
        raise ValueError(text)


class Distributions:
    """What Generator and RandomState have in common. Parameters are numbers or arrays, which broadcast."""

    _own = None  # the generator; None is the program's

    def _uniform(self, shape, dtype=F64):
        return _t.rand(shape, dtype=dtype, device=_get_device(), generator=self._own)

    def _open(self, shape):
        """Uniform numbers above 0, to take logarithms of."""
        return 1 - self._uniform(shape)

    def _normal(self, shape, dtype=F64):
        return _t.randn(shape, dtype=dtype, device=_get_device(), generator=self._own)

    def _reject(self, shape, propose):
        """Values of the first proposals that are accepted; `propose(places)` gives values and a mask for those places."""
        n = math.prod(shape)
        r, left = _t.zeros(n, dtype=F64, device=_get_device()), _t.arange(n, device=_get_device())
        while left.numel():
            values, ok = propose(left)
            r[left[ok]] = values[ok]
            left = left[~ok]
        return r.reshape(shape)

    def _gamma(self, a):
        """Gamma numbers by Marsaglia's and Tsang's method: cubes of shifted normal numbers, below shape 1 by a power of a uniform one."""
        shape, a = tuple(a.shape), a.reshape(-1)
        d = _t.where(a < 1, a + 1, a) - 1 / 3
        c = 1 / (9 * d).sqrt()

        def propose(at):
            x, u, k = self._normal(at.shape), self._open(at.shape), d[at]
            v = (1 + c[at] * x) ** 3
            ok = (v > 0) & (u.log() < 0.5 * x * x + k - k * v + k * v.clamp(min=1e-300).log())
            return k * v, ok | (k == math.inf)

        r = self._reject((a.numel(),), propose)
        r = _t.where(a < 1, r * self._open(a.shape) ** (1 / a.clamp(min=1e-300)), r)
        return _t.where(a == 0, 0, r).reshape(shape)

    def bytes(self, length):
        """Random bytes."""
        return _t.randint(0, 256, (length,), generator=self._own).to(_C.uint8).numpy().tobytes()

    def _array(self, size, *values):
        parameters = _real(*values)
        shape = shape_of(size, *parameters)
        return shape, [p.expand(shape) for p in parameters]

    def _normal_of(self, loc, scale, size, dtype=F64):
        if isinstance(loc, (int, float)) and isinstance(scale, (int, float)):  # no tensors, and nobody waits for a GPU
            if not scale >= 0:
                raise ValueError("scale < 0")
            return _result(self._normal(shape_of(size), dtype).mul_(scale).add_(loc))
        shape, (m, s) = self._array(size, loc, scale)
        require(s >= 0, "scale < 0")
        return _result((self._normal(shape) * s + m).to(dtype))

    def _uniform_of(self, low, high, size, dtype=F64):
        if isinstance(low, (int, float)) and isinstance(high, (int, float)):
            if not math.isfinite(high - low):
                raise OverflowError("high - low range exceeds valid bounds")
            return _result(self._uniform(shape_of(size), dtype).mul_(high - low).add_(low))
        shape, (a, b) = self._array(size, low, high)
        if not bool(_t.isfinite(b - a).all()):
            raise OverflowError("high - low range exceeds valid bounds")
        return _result((self._uniform(shape) * (b - a) + a).to(dtype))

    def normal(self, loc=0.0, scale=1.0, size=None):
        return self._normal_of(loc, scale, size)

    def uniform(self, low=0.0, high=1.0, size=None):
        return self._uniform_of(low, high, size)

    def exponential(self, scale=1.0, size=None):
        shape, (s,) = self._array(size, scale)
        require(s >= 0, "scale < 0")
        return _result(-self._open(shape).log() * s)

    def gamma(self, shape, scale=1.0, size=None):
        _, (a, s) = self._array(size, shape, scale)
        require(a >= 0, "shape < 0")
        require(s >= 0, "scale < 0")
        return _result(self._gamma(a) * s)

    def beta(self, a, b, size=None):
        _, (x, y) = self._array(size, a, b)
        require(x > 0, "a <= 0")
        require(y > 0, "b <= 0")
        x, y = self._gamma(x), self._gamma(y)
        return _result(x / (x + y))

    def chisquare(self, df, size=None):
        _, (d,) = self._array(size, df)
        require(d > 0, "df <= 0")
        return _result(2 * self._gamma(d / 2))

    def noncentral_chisquare(self, df, nonc, size=None):
        shape, (d, n) = self._array(size, df, nonc)
        require(d > 0, "df <= 0")
        require(n >= 0, "nonc < 0")
        more = self._poisson(n / 2)  # a mixture over whole numbers of further degrees
        return _result(2 * self._gamma(d / 2 + more))

    def f(self, dfnum, dfden, size=None):
        _, (a, b) = self._array(size, dfnum, dfden)
        require(a > 0, "dfnum <= 0")
        require(b > 0, "dfden <= 0")
        return _result(self._gamma(a / 2) * b / (self._gamma(b / 2) * a))

    def noncentral_f(self, dfnum, dfden, nonc, size=None):
        _, (a, b, n) = self._array(size, dfnum, dfden, nonc)
        top = self.noncentral_chisquare(_result(a), _result(n))._tensor
        return _result(top * b / (2 * self._gamma(b / 2) * a))

    def standard_t(self, df, size=None):
        shape, (d,) = self._array(size, df)
        require(d > 0, "df <= 0")
        return _result(self._normal(shape) * (d / 2).sqrt() / self._gamma(d / 2).sqrt())

    def standard_cauchy(self, size=None):
        return _result(_t.tan(math.pi * (self._uniform(shape_of(size)) - 0.5)))

    def laplace(self, loc=0.0, scale=1.0, size=None):
        shape, (m, s) = self._array(size, loc, scale)
        require(s >= 0, "scale < 0")
        u = self._open(shape) - 0.5
        return _result(m - s * _t.sign(u) * _t.log1p((-2 * u.abs()).clamp(min=-1 + 2**-53)))

    def logistic(self, loc=0.0, scale=1.0, size=None):
        shape, (m, s) = self._array(size, loc, scale)
        require(s >= 0, "scale < 0")
        u = self._open(shape).clamp(max=1 - 2**-53)
        return _result(m + s * (u.log() - _t.log1p(-u)))

    def gumbel(self, loc=0.0, scale=1.0, size=None):
        shape, (m, s) = self._array(size, loc, scale)
        require(s >= 0, "scale < 0")
        return _result(m - s * _t.log(-self._open(shape).clamp(max=1 - 2**-53).log()))

    def lognormal(self, mean=0.0, sigma=1.0, size=None):
        shape, (m, s) = self._array(size, mean, sigma)
        require(s >= 0, "sigma < 0")
        return _result((self._normal(shape) * s + m).exp())

    def pareto(self, a, size=None):
        shape, (x,) = self._array(size, a)
        require(x > 0, "a <= 0")
        return _result(_t.expm1(-self._open(shape).log() / x))

    def power(self, a, size=None):
        shape, (x,) = self._array(size, a)
        require(x > 0, "a <= 0")
        return _result(self._open(shape) ** (1 / x))

    def rayleigh(self, scale=1.0, size=None):
        shape, (s,) = self._array(size, scale)
        require(s >= 0, "scale < 0")
        return _result(s * (-2 * self._open(shape).log()).sqrt())

    def weibull(self, a, size=None):
        shape, (x,) = self._array(size, a)
        require(x >= 0, "a < 0")
        return _result(_t.where(x == 0, 0, (-self._open(shape).log()) ** (1 / x)))

    def triangular(self, left, mode, right, size=None):
        shape, (a, c, b) = self._array(size, left, mode, right)
        require(a <= c, "left > mode")
        require(c <= b, "mode > right")
        require(a < b, "left == right")
        u = self._uniform(shape)
        return _result(_t.where(u < (c - a) / (b - a), a + (u * (b - a) * (c - a)).sqrt(), b - ((1 - u) * (b - a) * (b - c)).sqrt()))

    def vonmises(self, mu, kappa, size=None):
        shape, (m, k) = self._array(size, mu, kappa)
        require(k >= 0, "kappa < 0")
        flat = k.reshape(-1).clamp(min=1e-9)
        tau = 1 + (1 + 4 * flat * flat).sqrt()  # Best's and Fisher's rejection from a wrapped Cauchy number
        rho = (tau - (2 * tau).sqrt()) / (2 * flat)
        s = _t.where(flat < 1e-5, 1 / flat, (1 + rho * rho) / (2 * rho))

        def propose(at):
            z = _t.cos(math.pi * self._uniform(at.shape))
            w = (1 + s[at] * z) / (s[at] + z)
            y, v = flat[at] * (s[at] - w), self._open(at.shape)
            ok = (y * (2 - y) - v >= 0) | ((y / v).clamp(min=1e-300).log() + 1 - y >= 0)
            return _t.acos(w.clamp(-1, 1)), ok

        angle = self._reject(shape, propose)
        angle = _t.where(self._uniform(shape) < 0.5, -angle, angle)
        return _result(_t.remainder(angle + m + math.pi, 2 * math.pi) - math.pi)

    def wald(self, mean, scale, size=None):
        shape, (m, s) = self._array(size, mean, scale)
        require(m > 0, "mean <= 0")
        require(s > 0, "scale <= 0")
        y = self._normal(shape) ** 2 * m
        x = m + m / (2 * s) * (y - (4 * s * y + y * y).sqrt())
        return _result(_t.where(self._uniform(shape) <= m / (m + x), x, m * m / x))

    # --- whole numbers ---

    def _poisson(self, rate):
        return _t.poisson(rate.contiguous(), generator=self._own)

    def poisson(self, lam=1.0, size=None):
        _, (rate,) = self._array(size, lam)
        require(rate >= 0, "lam < 0 or lam is NaN")
        return _result(self._poisson(rate).to(_C.int64))

    def _binomial(self, n, p):
        """By beta numbers, which halve how many trials are left, and the last few one by one."""
        n, p, count = n.to(F64).clone(), p.clone(), _t.zeros(n.shape, dtype=F64, device=n.device)
        while n.numel() and bool((n > 16).any()):
            many = n > 16
            a = (n / 2).floor() + 1
            b = n + 1 - a
            x, y = self._gamma(_t.where(many, a, 1.0)), self._gamma(_t.where(many, b, 1.0))
            middle = x / (x + y)
            below = middle <= p
            count = _t.where(many & below, count + a, count)
            p = _t.where(many, _t.where(below, (p - middle) / (1 - middle), p / middle), p)
            n = _t.where(many, _t.where(below, b - 1, a - 1), n)
        trials = self._uniform((16,) + tuple(n.shape)) < p
        return count + (trials & (_t.arange(16, device=n.device).reshape((16,) + (1,) * n.dim()) < n)).sum(0)

    def binomial(self, n, p, size=None):
        _, (trials, chance) = self._array(size, n, p)
        require(trials >= 0, "n < 0")
        require((chance >= 0) & (chance <= 1), "p < 0, p > 1 or p is NaN")
        return _result(self._binomial(trials, chance).to(_C.int64))

    def negative_binomial(self, n, p, size=None):
        _, (k, chance) = self._array(size, n, p)
        require(k > 0, "n <= 0")
        require((chance > 0) & (chance <= 1), "p <= 0, p > 1 or p is NaN")
        return _result(self._poisson(self._gamma(k) * (1 - chance) / chance).to(_C.int64))

    def geometric(self, p, size=None):
        shape, (chance,) = self._array(size, p)
        require((chance > 0) & (chance <= 1), "p <= 0, p > 1 or p contains NaNs")
        return _result((self._open(shape).log() / _t.log1p(-chance)).ceil().clamp(1, 2.0**62).to(_C.int64))

    def logseries(self, p, size=None):
        shape, (chance,) = self._array(size, p)
        require((chance >= 0) & (chance < 1), "p < 0, p >= 1 or p is NaN")
        u = self._uniform(shape)
        q = -_t.expm1(u * _t.log1p(-chance))  # Kemp's method
        v = self._open(shape)
        r = (1 + v.log() / q.clamp(min=1e-300).log()).floor()
        return _result(_t.where(v > chance, 1, _t.where(v <= q * q, r, _t.where(v >= q, 1, 2))).to(_C.int64))

    def zipf(self, a, size=None):
        shape, (x,) = self._array(size, a)
        require(x > 1, "a <= 1 or a is NaN")
        flat = x.reshape(-1) - 1
        b = 2.0 ** flat

        def propose(at):
            u, v, am = self._open(at.shape), self._uniform(at.shape), flat[at]
            k = (u ** (-1 / am)).floor()
            t = (1 + 1 / k) ** am
            ok = (k < 2.0**62) & (k >= 1) & (v * k * (t - 1) / (b[at] - 1) <= t / b[at])
            return k, ok

        return _result(self._reject(shape, propose).to(_C.int64))

    def hypergeometric(self, ngood, nbad, nsample, size=None):
        shape, (good, bad, n) = self._array(size, ngood, nbad, nsample)
        require((good >= 0) & (bad >= 0) & (n >= 0), "ngood, nbad or nsample < 0")
        require(n <= good + bad, "ngood + nbad < nsample")
        found = _t.zeros(shape, dtype=F64, device=_get_device())
        for i in range(int(n.max()) if n.numel() else 0):  # one after another, without replacement
            hit = self._uniform(shape) * (good + bad - i).clamp(min=1) < good - found
            found = _t.where((i < n) & hit, found + 1, found)
        return _result(found.to(_C.int64))

    def multinomial(self, n, pvals, size=None):
        p = _real(pvals)[0]
        if p.dim() and bool((p[..., :-1].sum(-1) > 1 + 1e-12).any()):
            raise ValueError(
                "sum(pvals[:-1].astype(np.float64)) > 1.0. The pvals array is cast to 64-bit floating point prior to checking the sum."
            )
        require((p >= 0) & (p <= 1), "pvals < 0, pvals > 1 or pvals contains NaNs")
        trials = _real(n)[0]
        shape = tuple(_t.broadcast_shapes(trials.shape, p.shape[:-1])) if size is None else _sizes_of(size)
        left, rest = trials.expand(shape).clone(), _t.ones(shape, dtype=F64, device=_get_device())
        r = []
        for i in range(p.shape[-1]):
            q = p[..., i].expand(shape)
            x = left if i == p.shape[-1] - 1 else self._binomial(left, (q / rest.clamp(min=1e-300)).clamp(0, 1))
            r.append(x)
            left, rest = left - x, rest - q
        return _result(_t.stack(r, -1).to(_C.int64))

    def dirichlet(self, alpha, size=None):
        a = _real(alpha)[0]
        require(a > 0, "alpha <= 0")
        x = self._gamma(a.expand((() if size is None else _sizes_of(size)) + tuple(a.shape)))
        return _result(x / x.sum(-1, True))

    def multivariate_normal(self, mean, cov, size=None, check_valid="warn", tol=1e-8, *, method="svd"):
        m, c = _real(mean, cov)
        if m.dim() != 1:
            raise ValueError("mean must be 1 dimensional")
        if c.dim() != 2 or c.shape[0] != c.shape[1]:
            raise ValueError("cov must be 2 dimensional and square")
        if c.shape[0] != m.shape[0]:
            raise ValueError("mean and cov must have same length")
        if check_valid not in ("warn", "raise", "ignore"):
            raise ValueError("check_valid must equal 'warn', 'raise', or 'ignore'")
        if method not in ("svd", "eigh", "cholesky"):
            raise ValueError("method must be one of {'eigh', 'svd', 'cholesky'}")
        from .. import linalg

        w, v = linalg.eigh(c)
        if check_valid != "ignore" and bool((w < -tol * w.abs().amax().clamp(min=1)).any()):
            if check_valid == "raise":
                raise ValueError("covariance is not symmetric positive-semidefinite.")
            import warnings

            warnings.warn("covariance is not symmetric positive-semidefinite.", RuntimeWarning, stacklevel=2)
        z = self._normal((() if size is None else _sizes_of(size)) + tuple(m.shape))
        return _result(m + _t.matmul(z * w.clamp(min=0).sqrt(), v.T))

    # --- orders ---

    def permutation(self, x, axis=0):
        """An array in another order along an axis, or the numbers below one."""
        if not hasattr(x, "__len__") and not getattr(x, "ndim", 0):
            return _result(_t.randperm(operator.index(x), device=_get_device(), generator=self._own))
        t = _tensor_of(x)
        axis = _axis_of(axis, t.dim())
        return _result(_t.index_select(t, axis, _t.randperm(t.shape[axis], device=t.device, generator=self._own)))

    def shuffle(self, x, axis=0):
        """Another order, in place: of an array along an axis, or of a list."""
        if isinstance(x, _ndarray):
            x._write(self.permutation(x, axis)._tensor)
            return
        if isinstance(x, dict) or not hasattr(x, "__setitem__"):
            raise TypeError(f"unsupported type {type(x).__name__}: shuffle() takes arrays and lists")
        order = _t.randperm(len(x), generator=self._own).tolist()
        x[:] = [x[i] for i in order]

    def choice(self, a, size=None, replace=True, p=None, axis=0, shuffle=True):
        """Elements of an array, or numbers below one, each as probable as another or as `p` says."""
        whole = not hasattr(a, "__len__") and not getattr(a, "ndim", 0)
        t = None if whole else _tensor_of(a)
        axis = 0 if whole else _axis_of(axis, t.dim())
        n = operator.index(a) if whole else t.shape[axis]
        shape = () if size is None else _sizes_of(size)
        k = math.prod(shape)
        if n <= 0 and k:
            raise ValueError(
                "a must be a positive integer unless no samples are taken" if whole else "a cannot be empty unless no samples are taken"
            )
        if not replace and k > n:
            raise ValueError("Cannot take a larger sample than population when replace is False")
        if p is not None:
            q = _real(p)[0]
            if q.dim() != 1 or q.shape[0] != n:
                raise ValueError("a and p must have same size")
            if bool((q < 0).any()) or q.isnan().any():
                raise ValueError("Probabilities are not non-negative")
            if abs(float(q.sum()) - 1) > 1e-8:
                raise ValueError("Probabilities do not sum to 1")
            if not replace and int((q > 0).sum()) < k:
                raise ValueError("Fewer non-zero entries in p than size")
            if replace:
                edges = _t.cumsum(q, 0)
                at = _t.searchsorted(edges / edges[-1], self._uniform((k,)), right=True).clamp(max=n - 1)
            else:  # the first k of exponential clocks with these rates
                at = _t.argsort(-self._open((n,)).log() / q, 0)[:k]
        elif replace:
            at = (
                _t.randint(0, n, (k,), device=_get_device(), generator=self._own)
                if k
                else _t.zeros(0, dtype=_C.int64, device=_get_device())
            )
        else:
            at = _t.randperm(n, device=_get_device(), generator=self._own)[:k]
        at = at.reshape(shape)
        if whole:
            return _result(at)
        r = _t.index_select(t, axis, at.reshape(-1).to(t.device))
        return _result(r.reshape(tuple(t.shape[:axis]) + shape + tuple(t.shape[axis + 1:])))

    def _integers(self, low, high, size, dtype, closed):
        if high is None:
            low, high = 0, low
        d = _as_dtype(dtype)
        if d.name in ("int64", "uint64") and type(low) is type(high) is int and high + closed >= 2**63:
            return self._large_integers(low, high + closed, size, d)
        a, b = _tensor_of(low), _tensor_of(high)
        if a.is_floating_point() or b.is_floating_point():
            a, b = a.floor(), b.floor()
        a, b = a.to(_C.int64).to(_get_device()), b.to(_C.int64).to(_get_device()) + int(closed)
        if d.kind not in "iub":
            raise TypeError(f"Unsupported dtype {d!r} for randint")
        least, most = (0, 1) if d.kind == "b" else _LIMITS[d._tensor_dtype]
        require(a >= least, f"low is out of bounds for {d.name}")
        require(b - 1 <= most, f"high is out of bounds for {d.name}")
        require(a < b, "low >= high")
        shape = shape_of(size, a, b)
        if not a.dim() and not b.dim():
            return _result(_t.randint(int(a), int(b), shape, device=_get_device(), generator=self._own).to(d._tensor_dtype))
        r = a + (self._uniform(shape) * (b - a)).floor().to(_C.int64)
        return _result(_t.minimum(r, b - 1).to(d._tensor_dtype))

    def _large_integers(self, low, end, size, d):
        """Up to an end that int64 does not hold: in the place of [low, end) as many numbers from -2**63 on, of all of them their words."""
        least, most = _LIMITS[d._tensor_dtype]
        require(least <= low, f"low is out of bounds for {d.name}")
        require(end - 1 <= most, f"high is out of bounds for {d.name}")
        require(low < end, "low >= high")
        shape, where = shape_of(size), {"device": _get_device(), "generator": self._own}
        if end - low == 2**64:
            words = _t.randint(0, 2**32, (2, *shape), **where)
            return _result((words[0] << 32 | words[1]).to(d._tensor_dtype))
        return _result((_t.randint(-(2**63), end - low - 2**63, shape, **where).to(_C.uint64) + (2**63 + low) % 2**64).to(d._tensor_dtype))


def float_type(dtype):
    d = _as_dtype(dtype)
    if d.name not in ("float32", "float64"):
        raise TypeError(f"Unsupported dtype {d!r} for random")
    return d._tensor_dtype
