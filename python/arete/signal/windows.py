"""Window functions under the names of torch.signal.windows: M samples of a bell, symmetric (`sym`) or one period of it."""
from __future__ import annotations

from .. import _C
from .._operators import _ops, strided

__all__ = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming",
           "hann", "kaiser", "nuttall"]


def _middle(last):
    return last / 2


def _window(name, M, sym, options, numbers):
    """What `_ops.signal_window` makes of its numbers, of which some may be functions of where the symmetric window ends.

    A periodic window is the symmetric one of M + 1 points without its last."""
    dtype = options.pop("dtype", None) or _C.get_default_dtype()
    device, layout = options.pop("device", None), options.pop("layout", None)
    requires_grad = options.pop("requires_grad", False)
    if options:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(options))}'")
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not None and layout is not strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if dtype not in (_C.float32, _C.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    last = float(M - 1 if sym else M)
    result = _ops.signal_window(name, M, last, [float(n(last) if callable(n) else n) for n in numbers], dtype=dtype, device=device)
    return result.requires_grad_() if requires_grad else result


def exponential(M: int, *, center=None, tau: float = 1.0, sym: bool = True, **options):
    """exp(-|k - center| / tau). `center` is the middle unless given, which only a periodic window allows.

    >>> arete.signal.windows.exponential(4)
    tensor([0.2231, 0.6065, 0.6065, 0.2231])
    """
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    return _window("exponential", M, sym, options, [_middle if center is None else center, tau])


def cosine(M: int, *, sym: bool = True, **options):
    """sin(pi (k + 1/2) / M): half a wave whose zeros lie half a step outside.

    >>> arete.signal.windows.cosine(4)
    tensor([0.3827, 0.9239, 0.9239, 0.3827])
    """
    return _window("cosine", M, sym, options, [])


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options):
    """exp(-((k - middle) / std)^2 / 2).

    >>> arete.signal.windows.gaussian(4)
    tensor([0.3247, 0.8825, 0.8825, 0.3247])
    """
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _window("gaussian", M, sym, options, [_middle, std])


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options):
    """I0(beta sqrt(1 - (2 k / (M - 1) - 1)^2)) / I0(beta), the modified Bessel function of order 0.

    >>> arete.signal.windows.kaiser(5)
    tensor([5.2773e-05, 2.1567e-01, 1.0000e+00, 2.1567e-01, 5.2773e-05])
    """
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _window("kaiser", M, sym, options, [beta])


def general_cosine(M: int, *, a, sym: bool = True, **options):
    """a[0] - a[1] cos(x) + a[2] cos(2 x) - ..., x = 2 pi k / (M - 1).

    >>> arete.signal.windows.general_cosine(4, a=[0.5, 0.5])
    tensor([0.0000, 0.7500, 0.7500, 0.0000])
    >>> arete.signal.windows.general_cosine(-1, a=[0.5])
    Traceback (most recent call last):
    ValueError: general_cosine requires non-negative window length, got M=-1
    """
    a = list(a)
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _window("general_cosine", M, sym, options, a)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options):
    """alpha - (1 - alpha) cos(2 pi k / (M - 1)).

    >>> arete.signal.windows.general_hamming(4, alpha=0.6)
    tensor([0.2000, 0.8000, 0.8000, 0.2000])
    """
    return general_cosine(M, a=[alpha, 1 - alpha], sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options):
    """0.54 - 0.46 cos(2 pi k / (M - 1)).

    >>> arete.signal.windows.hamming(4)
    tensor([0.0800, 0.7700, 0.7700, 0.0800])
    """
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options):
    """sin(pi k / (M - 1))^2.

    >>> arete.signal.windows.hann(4)
    tensor([0.0000, 0.7500, 0.7500, 0.0000])
    >>> arete.signal.windows.hann(4, sym=False)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options):
    """0.42 - 0.5 cos(x) + 0.08 cos(2 x), x = 2 pi k / (M - 1).

    >>> arete.signal.windows.blackman(5)[1:4]
    tensor([0.3400, 1.0000, 0.3400])
    """
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options):
    """Four terms by Nuttall, continuous in the first derivative, with the least sidelobes.

    >>> arete.signal.windows.nuttall(5)
    tensor([3.6280e-04, 2.2698e-01, 1.0000e+00, 2.2698e-01, 3.6280e-04])
    """
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **options)


def bartlett(M: int, *, sym: bool = True, **options):
    """A triangle: 1 - |2 k / (M - 1) - 1|.

    >>> arete.signal.windows.bartlett(4)
    tensor([0.0000, 0.6667, 0.6667, 0.0000])
    """
    return _window("bartlett", M, sym, options, [])
