"""Numbers by chance: pi, and the price of a European call beside the formula of Black and Scholes."""
import arete.cupy

arete.cupy.install()

import math  # noqa: E402

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402

from picture import save  # noqa: E402

inside = cp.ReductionKernel("T x, T y", "int64 hits", "x * x + y * y < 1 ? 1 : 0", "a + b", "hits = a", "0", "inside")
payoff = cp.ReductionKernel("T z, T s0, T strike, T drift, T width", "T total", "max(s0 * exp(drift + width * z) - strike, (T)0)", "a + b",
                            "total = a", "0", "payoff")
S0, STRIKE, RATE, VOLATILITY, YEARS = 100.0, 105.0, 0.03, 0.2, 1.0


def compute(x, y, z):
    pi = 4 * inside(x, y) / x.size
    price = math.exp(-RATE * YEARS) * payoff(z, S0, STRIKE, (RATE - VOLATILITY**2 / 2) * YEARS, VOLATILITY * math.sqrt(YEARS)) / z.size
    return float(pi), float(price)


def by_numpy(x, y, z):
    ends = S0 * np.exp((RATE - VOLATILITY**2 / 2) * YEARS + VOLATILITY * math.sqrt(YEARS) * z)
    return 4 * (x * x + y * y < 1).mean(), math.exp(-RATE * YEARS) * np.maximum(ends - STRIKE, 0).mean()


def exact():
    d = (math.log(S0 / STRIKE) + (RATE + VOLATILITY**2 / 2) * YEARS) / (VOLATILITY * math.sqrt(YEARS))
    normal = lambda v: 0.5 * math.erfc(-v / math.sqrt(2))  # noqa: E731
    return math.pi, S0 * normal(d) - STRIKE * math.exp(-RATE * YEARS) * normal(d - VOLATILITY * math.sqrt(YEARS))


def main(size=1 << 20, folder="."):
    x, y = cp.random.random(size), cp.random.random(size)
    pi, price = compute(x, y, cp.random.standard_normal(size))
    points = np.zeros((200, 200))
    px, py = (np.minimum((cp.asnumpy(v[:20000]) * 200).astype(int), 199) for v in (x, y))
    points[py, px] = 1 + (px**2 + py**2 < 200**2)
    save(f"{folder}/monte_carlo.png", points)
    want_pi, want_price = exact()
    return max(abs(pi - want_pi), abs(price - want_price) / 10)


if __name__ == "__main__":
    print("distance from pi and the price:", main())
