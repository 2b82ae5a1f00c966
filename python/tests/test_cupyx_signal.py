"""cupyx.scipy.signal: design of filters, spectra and peaks against plain loops of NumPy, and what they are by definition."""
import math

import numpy
import nvrtc
import pytest
from device_helpers import device_of_arrays, host, on_devices_of_arrays  # noqa: F401

import arete
import arete.cupy as cp
from arete.cupyx.scipy import signal

pytestmark = on_devices_of_arrays
RANDOM = numpy.random.default_rng(11)


def test_windows():
    for name, wanted in (("hann", numpy.hanning), ("hamming", numpy.hamming), ("blackman", numpy.blackman), ("bartlett", numpy.bartlett),
                         ("boxcar", numpy.ones), (("kaiser", 5.5), lambda n: numpy.kaiser(n, 5.5))):
        for n in (1, 2, 9, 10):
            assert numpy.allclose(host(signal.get_window(name, n, False)), wanted(n)) and len(signal.get_window(name, n)) == n
            if n > 1:
                assert numpy.allclose(host(signal.get_window(name, n)), wanted(n + 1)[:-1])
    assert host(signal.windows.triang(5)).tolist() == [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3]
    assert host(signal.windows.triang(4)).tolist() == [0.25, 0.75, 0.75, 0.25]
    taper = host(signal.windows.tukey(11, 0.4))
    assert numpy.allclose(taper, [0, 0.5, *[1] * 7, 0.5, 0]) and numpy.allclose(host(signal.windows.gaussian(3, 2.0))[0], numpy.exp(-0.125))
    w = signal.windows
    for name, numbers in (("hann", ()), ("kaiser", (5.5,)), ("general_cosine", ([0.5, 0.5],)), ("exponential", (None, 2.0))):
        window = getattr(w, name)
        assert numpy.array_equal(host(window(8, *numbers, False)), host(window(8, *numbers, sym=False)))
        assert numpy.array_equal(host(window(8, *numbers, True)), host(window(8, *numbers)))
        with pytest.raises(TypeError, match=f"{name}.. takes M and .*sym"):
            window(8, *numbers, True, 2)
    assert numpy.array_equal(host(w.exponential(8, None, 2.0)), host(w.exponential(8, tau=2.0)))
    for bad in ("none", "kaiser"):
        with pytest.raises(ValueError, match="window"):
            signal.get_window(bad, 5)


@pytest.mark.parametrize("order", [1, 2, 5, 8])
@pytest.mark.parametrize("kind, edges", [("low", 0.3), ("high", 0.2), ("band", (0.2, 0.5)), ("bandstop", (0.2, 0.5))])
def test_filters_of_infinite_response(order, kind, edges):
    passing = {"low": 0.0, "high": 1.0, "band": None, "bandstop": 0.0}[kind]
    for design, ripple in ((lambda **o: signal.butter(order, edges, kind, **o), None),
                           (lambda **o: signal.cheby1(order, 1, edges, kind, **o), 10 ** -0.05)):
        sos = design(output="sos")
        at = numpy.pi * numpy.array([*numpy.atleast_1d(edges), 0.0 if passing is None else passing])
        # The roots of polynomials of high order are known to few digits, so sections are what is compared.
        found = abs(host(signal.sosfreqz(sos, cp.array(at))[1]))
        assert numpy.allclose(found[:-1], numpy.sqrt(0.5) if ripple is None else ripple, atol=1e-6)
        if passing is not None:
            assert numpy.allclose(found[-1], 1 if ripple is None or order % 2 else ripple, atol=1e-6)
        z, p, k = design(output="zpk")
        z, p = host(z), host(p)
        assert (abs(p) < 1).all() and len(p) == order * (2 if kind.startswith("band") else 1)
        w = numpy.exp(1j * numpy.linspace(0.1, 3, 20))[:, None]
        wanted = k * (w - z).prod(1) / (w - p).prod(1)
        assert numpy.allclose(host(signal.sosfreqz(sos, cp.array(numpy.linspace(0.1, 3, 20)))[1]), wanted, atol=1e-6)
        if order < 5:
            b, a = design()
            assert numpy.allclose(host(signal.freqz(b, a, cp.array(numpy.linspace(0.1, 3, 20)))[1]), wanted, atol=1e-6)
            assert numpy.allclose(host(signal.sos2tf(sos)[0])[:len(b)], host(b), atol=1e-9)


def test_designs_that_are_known_or_refused():
    b, a = host(signal.butter(2, 0.5))
    assert numpy.allclose(b, [0.29289322, 0.58578644, 0.29289322]) and numpy.allclose(a, [1, 0, 0.17157288])
    assert numpy.allclose(host(signal.butter(3, 25, fs=100))[0], host(signal.butter(3, 0.5))[0])
    z, p, k = signal.butter(1, 7.0, analog=True, output="zpk")
    assert len(z) == 0 and host(p).tolist() == [-7] and k == 7
    for call, error in ((lambda: signal.butter(2, 1.5), ValueError), (lambda: signal.butter(2, 0.5, "sideways"), ValueError),
                        (lambda: signal.butter(2, 0.2, "band"), ValueError), (lambda: signal.butter(2, 1, analog=True, fs=3), ValueError),
                        (lambda: signal.iirfilter(2, 0.5, btype="low", ftype="bessel"), NotImplementedError)):
        with pytest.raises(error):
            call()
    h = host(signal.firwin(31, 0.3, window=("kaiser", 6.0)))
    assert numpy.isclose(h.sum(), 1) and numpy.allclose(h, h[::-1]) and abs(numpy.polyval(h, numpy.exp(1j * 0.8 * numpy.pi))) < 1e-2


@pytest.mark.parametrize("call, error", [
    (lambda: signal.firwin(11, 0.3, pass_zero="foo"), "pass_zero='foo'"), (lambda: signal.firwin(11, 0.3, pass_zero=1), "pass_zero=1"),
    (lambda: signal.firwin(11, [0.2, 0.4], pass_zero="lowpass"), "one element"),
    (lambda: signal.firwin(11, 0.3, pass_zero="bandstop"), "at least two elements"),
    (lambda: signal.butter(2, [0.5, 0.2], "band"), "less than"), (lambda: signal.butter(2, [0.5, 0.5], "stop"), "less than"),
    (lambda: signal.butter(2.5, 0.2), "nonnegative integer"), (lambda: signal.butter(-1, 0.2), "nonnegative integer"),
    (lambda: signal.bilinear_zpk([1, 2, 3], [1, 2], 1.0, 2.0), "as many poles"), (lambda: signal.freqz([1.0], worN=-1), "nonnegative")])
def test_designs_that_do_not_go_together_are_refused(call, error):
    with pytest.raises(ValueError, match=error):
        call()


def test_polynomials_with_leading_zeros_and_responses_at_few_frequencies():
    z, p, k = signal.tf2zpk([0, 0, 1.0, 2.0], [2.0, 1.0, 0.25])
    assert numpy.allclose(host(z), [-2]) and numpy.allclose(sorted(host(p).imag), [-0.25, 0.25]) and k == 0.5
    assert [len(host(v)) for v in signal.freqz([1.0, 2.0], worN=0)] == [0, 0]
    assert host(signal.freqz([1.0, 2.0], worN=numpy.int64(5))[0]).shape == (5,)
    assert numpy.allclose(host(signal.freqz([1.0, 2.0], worN=0.0)), [[0], [3]])
    assert numpy.allclose(host(signal.freqz([1.0, 2.0], worN=1, include_nyquist=True)), [[0], [3]])


def recursion(b, a, x):
    y = numpy.zeros(len(x))
    for n in range(len(x)):
        y[n] = sum(b[k] * x[n - k] for k in range(len(b)) if n >= k) - sum(a[k] * y[n - k] for k in range(1, len(a)) if n >= k)
    return y


@pytest.mark.parametrize("poles, tolerance", [
    ([0.9, 0.8j, -0.8j], 1e-14), ([0.9999], 1e-12), ([1.0], 1e-13), ([0.995 + 0.05j, 0.995 - 0.05j], 1e-12), ([1.05], 1e-13),
    ([1.02 + 0.5j, 1.02 - 0.5j, 0.5], 1e-13), ([3.0], 1e-13), ([], 1e-15)])
@pytest.mark.parametrize("dtype", [numpy.float64, numpy.float32])
def test_recursive_filters(poles, tolerance, dtype):
    """Of more than one block, near the border of what is stable and beyond it."""
    b, a, n = numpy.array([0.5, -0.25], dtype), numpy.atleast_1d(numpy.poly(poles)).real.astype(dtype), 30 if poles == [3.0] else 300
    x = RANDOM.normal(size=(2, n)).astype(dtype)
    wanted = numpy.array([recursion(b.astype(float), a.astype(float), row.astype(float)) for row in x])
    found = host(signal.lfilter(cp.array(b), cp.array(a), cp.array(x)))
    assert found.dtype == dtype
    error = numpy.abs(found - wanted).max() / numpy.abs(wanted).max()
    assert error < tolerance * (1 if dtype == numpy.float64 else 2.0**29)


@pytest.mark.parametrize("b, a", [
    ([1.0, 0.5, 0.25, -1, 2], [2.0, 0.5]), ([1.0], [1.0, 0.5, -0.25, 0.1]), ([1.0, 2, 3], [1.0]), ([3.0], [2.0])])
def test_filters_go_on_from_their_state(b, a):
    x = RANDOM.normal(size=(2, 40))
    order = max(len(a), len(b)) - 1
    wanted, state, parts = host(signal.lfilter(b, a, cp.array(x))), cp.zeros((2, order)), []
    for start, end in ((0, 1), (1, 3), (3, 3), (3, 40)):  # some of them shorter than the state
        y, state = signal.lfilter(b, a, cp.array(x[:, start:end]), zi=state)
        parts.append(host(y))
    assert state.shape == (2, order) and numpy.allclose(numpy.concatenate(parts, 1), wanted)
    half, after = signal.lfilter(b, a, cp.array(x.astype("float16")), zi=cp.zeros((2, order), "float16"))
    assert half.dtype == after.dtype == numpy.float16 and numpy.allclose(host(half), wanted, atol=0.02, rtol=2e-3)
    t = arete.tensor(x[:1], requires_grad=True)
    signal.lfilter(b, a, t)[0, -1].backward()  # by time, the response turned around
    assert numpy.allclose(t.grad[0].numpy()[::-1], host(signal.lfilter(b, a, cp.array(numpy.eye(1, 40)[0]))))


def test_what_is_no_number_reaches_what_it_counts_in():
    x = numpy.zeros(30)
    x[10] = math.nan
    assert numpy.isnan(host(signal.lfilter([1.0, 2, 3], [1.0], cp.array(x)))).nonzero()[0].tolist() == [10, 11, 12]
    assert numpy.isnan(host(signal.lfilter([1.0], [1.0, 0.5], cp.array(x)))).nonzero()[0].tolist() == [*range(10, 30)]
    assert numpy.isnan(host(signal.upfirdn([1.0, 2, 3], cp.array(x), 2))).nonzero()[0].tolist() == [20, 21, 22]
    _, state = signal.lfilter([1.0, 2, 3, 4], [1.0], cp.array(x[:13]), zi=cp.zeros(3))
    assert numpy.isnan(host(state)).tolist() == [True, False, False]


def test_filters_forth_and_back():
    b, a = signal.butter(3, 0.25)
    sos, x = signal.butter(3, 0.25, output="sos"), RANDOM.normal(size=(2, 60))
    steady, _ = signal.lfilter(b, a, cp.ones(20), zi=signal.lfilter_zi(b, a))
    assert numpy.allclose(host(steady), 1)
    steady, after = signal.sosfilt(sos, cp.ones(20), zi=signal.sosfilt_zi(sos))
    assert numpy.allclose(host(steady), 1) and numpy.allclose(host(after), host(signal.sosfilt_zi(sos)))
    assert host(signal.filtfilt([2.0], [1.0], cp.ones(5))).tolist() == [4] * 5
    for n in (13, 12):  # more than this on both sides; what is beyond has the state of a constant
        wide = numpy.concatenate([2 * x[:, :1] - x[:, n:0:-1], x, 2 * x[:, -1:] - x[:, -2:-n - 2:-1]], 1)
        wanted = []
        for row in wide:
            for _ in range(2):
                row = recursion(host(b), host(a), numpy.concatenate([numpy.full(300, row[0]), row]))[300:][::-1]
            wanted.append(row[n:-n])
        assert numpy.allclose(host(signal.filtfilt(b, a, cp.array(x), padlen=n)), wanted, atol=1e-9)
        assert numpy.allclose(host(signal.sosfiltfilt(sos, cp.array(x.T.copy()), axis=0, padlen=n)).T, wanted, atol=1e-9)
    for padtype in ("odd", "even", "constant", None):
        assert numpy.allclose(host(signal.filtfilt(b, a, cp.full(40, 3.0), padtype=padtype)), 3)
    with pytest.raises(ValueError, match="greater than padlen"):
        signal.filtfilt(b, a, cp.ones(5))


def test_polynomials_through_windows():
    t = numpy.arange(30.0)
    cubic = 0.01 * t**3 - t + 2
    for size in (5, 9):
        assert numpy.allclose(host(signal.savgol_filter(cp.array(cubic), size, 3)), cubic)
        slope = host(signal.savgol_filter(cp.array(cubic), size, 3, 1, 0.5))
        assert numpy.allclose(slope, (0.03 * t**2 - 1) / 0.5)
    assert numpy.allclose(host(signal.savgol_coeffs(5, 2)) * 35, [-3, 12, 17, 12, -3])
    x = RANDOM.normal(size=12)
    wide = numpy.pad(x, 2, mode="reflect")
    wanted = numpy.convolve(wide, numpy.array([-3, 12, 17, 12, -3]) / 35, "valid")
    assert numpy.allclose(host(signal.savgol_filter(cp.array(x), 5, 2, mode="mirror")), wanted)


@pytest.mark.parametrize("up, down", [(3, 2), (2, 3), (1, 4), (5, 1), (4, 6)])
def test_other_rates(up, down):
    x, h = RANDOM.normal(size=(2, 50)), RANDOM.normal(size=7)
    between = numpy.zeros((2, 49 * up + 1))
    between[:, ::up] = x
    wanted = [numpy.convolve(row, h)[::down] for row in between]
    assert numpy.allclose(host(signal.upfirdn(cp.array(h), cp.array(x), up, down)), wanted)
    wide = RANDOM.normal(size=70) + 1j * RANDOM.normal(size=70)
    between = numpy.zeros(49 * up + 1)
    between[::up] = x[0]
    found = signal.upfirdn(cp.array(wide), cp.array(x[0]), up, down)
    assert numpy.allclose(host(found), numpy.convolve(between, wide)[::down])
    t = numpy.arange(200) / 200
    slow = numpy.sin(6 * numpy.pi * t)
    y = host(signal.resample_poly(cp.array(slow), up, down))
    assert len(y) == -(-200 * up // down)
    inner = slice(len(y) // 4, -(len(y) // 4))
    assert numpy.allclose(y[inner], numpy.sin(6 * numpy.pi * numpy.arange(len(y)) * down / up / 200)[inner], atol=5e-3)


def test_correlations_of_matrices_begin_where_those_of_scipy_do():
    x, w = numpy.arange(12.0).reshape(3, 4) ** 2 % 7, numpy.array([[1.0, 2], [3, -1]])
    for boundary, wanted in (("fill", [[4, 20, 11, 2], [9, 16, 5, 6], [9, 8, 6, 2]]),
                             ("wrap", [[4, 20, 11, 0], [9, 16, 5, 9], [8, 7, 16, 10]]),
                             ("symm", [[4, 20, 11, 6], [9, 16, 5, 4], [8, 18, 10, 10]])):
        assert numpy.allclose(host(signal.correlate2d(cp.array(x), cp.array(w), "same", boundary)), wanted)
    assert numpy.allclose(host(signal.correlate2d(cp.array(w), cp.array(x), "same")), [[16, 9], [20, 4]])


def test_complex_signals():
    x = numpy.arange(6) * (1 + 2j)
    y, state = signal.lfilter([1.0, 2], [1, 0.5], cp.array(x), zi=cp.array([1j]))
    assert numpy.allclose(host(y), numpy.array([0, 1, 3.5, 5.25, 7.375, 9.3125]) * (1 + 2j) + 1j * (-0.5) ** numpy.arange(6))
    assert numpy.allclose(host(state), 5.34375 * (1 + 2j) + 1j * (-0.5) ** 6)
    assert numpy.allclose(host(signal.lfilter([1.0, 2], [1, 0.5], cp.array(x.real), zi=cp.array([1j]))[0])[:2], [1j, 1 - 0.5j])
    assert numpy.allclose(host(signal.lfilter_zi([1.0, 2j], [1.0, 0.5])), [-1 / 3 + 4j / 3])
    assert numpy.allclose(host(signal.resample(cp.array(x), 4)), numpy.array([0.5, 1.76794919, 2.5, 5.23205081]) * (1 + 2j))
    assert numpy.allclose(host(signal.upfirdn(cp.array([1.0, 2, 3]), cp.array(x), 2, 3)), numpy.array([0, 2, 9, 8, 15]) * (1 + 2j))
    poly = host(signal.resample_poly(cp.array(x.real), 3, 2))
    assert numpy.allclose(host(signal.resample_poly(cp.array(x), 3, 2)), poly * (1 + 2j))
    for h in ([], [[1.0]]):
        with pytest.raises(ValueError, match="h must be 1-D"):
            signal.upfirdn(h, cp.array(x))
    with pytest.raises(NotImplementedError, match="coefficients"):
        signal.lfilter([1j], [1], cp.array(x))


def test_signals_of_no_or_one_element():
    for shape in ((0,), (0, 5), (5, 0)):
        assert host(signal.lfilter([1.0, 2], [1, 0.5], cp.zeros(shape))).shape == shape
        assert host(signal.wiener(cp.zeros(shape))).shape == host(signal.medfilt(cp.zeros(shape))).shape == shape
    assert host(signal.fftconvolve(cp.ones(4), [])).shape == (0,) == host(signal.fftconvolve(cp.zeros((0, 4)), cp.ones((3, 3)))).shape
    assert numpy.allclose(host(signal.detrend(cp.array([[3.0], [4.0]]))), 0)
    x = RANDOM.normal(size=9)
    assert numpy.allclose(host(signal.savgol_filter(cp.array(x), 1, 0)), x)


def parts_of(x, size, step):
    return numpy.stack([x[k:k + size] for k in range(0, len(x) - size + 1, step)])


def test_spectra():
    x, fs = RANDOM.normal(size=300) + 4, 10.0
    w = numpy.hanning(65)[:-1]
    rows = parts_of(x, 64, 32)
    power = abs(numpy.fft.rfft((rows - rows.mean(1, keepdims=True)) * w)) ** 2 / (fs * (w**2).sum())
    power[:, 1:-1] *= 2
    f, found = signal.welch(cp.array(x), fs, nperseg=64)
    assert numpy.allclose(host(found), power.mean(0)) and numpy.allclose(host(f), numpy.fft.rfftfreq(64, 1 / fs))
    f, t, found = signal.spectrogram(cp.array(x), fs, "hann", 64, 32)
    assert numpy.allclose(host(found), power.T) and numpy.allclose(host(t), (numpy.arange(8) * 32 + 32) / fs)
    f, found = signal.periodogram(cp.array(x), fs)
    assert numpy.isclose(host(found).sum() * fs / 300, x.var())
    f, found = signal.periodogram(cp.array(x * (1 + 2j)), fs, detrend=False)
    assert numpy.allclose(host(found), abs(numpy.fft.fft(x * (1 + 2j))) ** 2 / (fs * 300))
    y = RANDOM.normal(size=300)
    assert numpy.allclose(host(signal.coherence(cp.array(x), cp.array(3 * x + 1), nperseg=64)[1]), 1)
    both = parts_of(y, 64, 32)
    cross = numpy.fft.rfft((rows - rows.mean(1, keepdims=True)) * w).conj() * numpy.fft.rfft((both - both.mean(1, keepdims=True)) * w)
    cross[:, 1:-1] *= 2
    assert numpy.allclose(host(signal.csd(cp.array(x), cp.array(y), fs, nperseg=64)[1]), cross.mean(0) / (fs * (w**2).sum()))
    for call in (lambda: signal.welch(cp.array(x), nperseg=64, noverlap=64), lambda: signal.welch(cp.array(x), average="most"),
                 lambda: signal.spectrogram(cp.array(x), mode="loud"), lambda: signal.welch(cp.array(x), nperseg=64, nfft=32)):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("options", [{}, {"nperseg": 64}, {"nperseg": 50, "noverlap": 40}, {"nperseg": 64, "window": "hamming"}], ids=str)
def test_spectra_and_back(options):
    x = RANDOM.normal(size=(2, 500))
    f, t, z = signal.stft(cp.array(x), 8.0, **options)
    times, y = signal.istft(z, 8.0, **options)
    assert z.shape[1:] == (len(f), len(t)) and numpy.allclose(host(y)[:, :500], x) and len(times) == y.shape[-1]
    w = host(signal.get_window(options.get("window", "hann"), options.get("nperseg", 256)))
    middle = numpy.argmin(abs(host(t) * 8 - 250))
    at = int(round(host(t)[middle] * 8)) - len(w) // 2
    assert numpy.allclose(host(z)[:, :, middle], numpy.fft.rfft(x[:, at:at + len(w)] * w) / w.sum())


def test_spectra_along_other_axes():
    x = RANDOM.normal(size=(2, 40, 3))
    f, t, along = signal.spectrogram(cp.array(x), nperseg=8, axis=1)
    wanted = host(signal.spectrogram(cp.array(numpy.moveaxis(x, 1, -1)), nperseg=8)[2])
    assert along.shape == (2, len(f), 3, len(t)) and numpy.allclose(host(along), numpy.moveaxis(wanted, 2, 1))
    z = host(signal.stft(cp.array(x), nperseg=8, axis=1)[2])  # (2, frequency, 3, time)
    for order, wanted in (((3, 0, 1, 2), (1, 0, 2)), ((1, 3, 0, 2), (1, 0, 2)), ((0, 3, 2, 1), (0, 1, 2)), ((0, 2, 1, 3), (0, 2, 1))):
        t, back = signal.istft(cp.array(z.transpose(order)), nperseg=8, time_axis=order.index(3), freq_axis=order.index(1) - 4)
        assert numpy.allclose(host(back), x.transpose(wanted)) and len(t) == 40
    with pytest.raises(ValueError, match="differing"):
        signal.istft(cp.array(z), time_axis=1, freq_axis=1)


def prominence_of(x, p):
    lows = []
    for step in (-1, 1):
        i, low = p, x[p]
        while 0 <= i < len(x) and x[i] <= x[p]:
            low, i = min(low, x[i]), i + step
        lows.append(low)
    return x[p] - max(lows)


def test_peaks():
    x = numpy.sin(numpy.arange(400) / 7) + 0.3 * RANDOM.normal(size=400)
    top = [i for i in range(1, 399) if x[i - 1] < x[i] > x[i + 1]]
    peaks, found = signal.find_peaks(cp.array(x), height=(0.2, None), prominence=0.4)
    wanted = [i for i in top if x[i] >= 0.2 and prominence_of(x, i) >= 0.4]
    assert host(peaks).tolist() == wanted and numpy.allclose(host(found["peak_heights"]), x[wanted])
    assert numpy.allclose(host(found["prominences"]), [prominence_of(x, i) for i in wanted])
    peaks, found = signal.find_peaks(cp.array(x), distance=20)
    left, chosen = sorted(top, key=lambda i: -x[i]), []
    while left:
        chosen.append(left[0])
        left = [i for i in left if abs(i - left[0]) >= 20]
    assert host(peaks).tolist() == sorted(chosen) and not found
    peaks, found = signal.find_peaks(cp.array([0, 1, 1, 1, 0, 2, 0, 3, 3.0]), plateau_size=1)
    assert host(peaks).tolist() == [2, 5] and host(found["plateau_sizes"]).tolist() == [3, 1]
    assert host(found["left_edges"]).tolist() == [1, 5]
    peaks, found = signal.find_peaks(cp.array([0.0, 2, 4, 2, 0, 0, 8, 0]), width=0, threshold=2)
    assert host(peaks).tolist() == [2, 6] and host(found["widths"]).tolist() == [2, 1] and host(found["left_ips"]).tolist() == [1, 5.5]
    assert host(signal.find_peaks(cp.zeros(9))[0]).size == 0 and host(signal.find_peaks(cp.zeros(0))[0]).size == 0
    assert host(signal.argrelmax(cp.array(x))[0]).tolist() == top
    assert host(signal.argrelmin(cp.array([[3, 1, 2], [0, 5, 4]]), axis=1))[0].tolist() == [0]
    for limits in (cp.array([0.1, 0.5]), [0.1, 0.5], (cp.full(400, 0.1), cp.full(400, 0.5))):
        assert host(signal.find_peaks(cp.array(x), height=limits)[0]).tolist() == [i for i in top if 0.1 <= x[i] <= 0.5]
    for measured in (signal.peak_prominences, signal.peak_widths):
        with pytest.raises(TypeError, match="safely cast"):
            measured(cp.array(x), [1.5])
        with pytest.raises(ValueError, match="1-D"):
            measured(cp.array(x), [top])
    with pytest.raises(ValueError, match="1-D"):
        signal.find_peaks(cp.ones((2, 2)))
    with pytest.raises(ValueError, match="wlen"):
        signal.peak_prominences(cp.array(x), cp.array(top), wlen=1)


def test_measures_of_peaks_that_callers_have():
    x, peaks = cp.array([0.0, 1, 0, 2, 0]), cp.array([1, 3])
    data = signal.peak_prominences(x, peaks)
    for found, wanted in zip(signal.peak_widths(x, peaks, prominence_data=data), signal.peak_widths(x, peaks)):
        assert host(found).tolist() == host(wanted).tolist()
    for left, right in (([0, -1], [2, 4]), ([0, 4], [2, 4]), ([0, 0], [2, 2]), ([0, 0], [2, 5])):
        with pytest.raises(ValueError, match="prominence data is invalid for peak 3"):
            signal.peak_widths(x, peaks, prominence_data=(data[0], cp.array(left), cp.array(right)))
    with pytest.raises(ValueError, match="invalid for peak 7"):
        signal.peak_widths(x, cp.array([1, 7]), prominence_data=data)
    with pytest.raises(ValueError, match="same shape"):
        signal.peak_widths(x, peaks, prominence_data=(data[0][:1], *data[1:]))
    with pytest.raises(TypeError, match="`right_bases`"):
        signal.peak_widths(x, peaks, prominence_data=(*data[:2], cp.array([2.0, 4])))
    # Below 0 the heights are above the peaks, and at the ends nothing is beside them.
    ends = signal.peak_widths(cp.array([1.0, 0, 1]), cp.array([0, 2]), prominence_data=(-cp.ones(2), cp.array([0, 2]), cp.array([0, 2])))
    assert numpy.allclose(host(ends[1]), 1.5) and float(ends[3][0]) == 0 and float(ends[2][1]) == 2


@pytest.mark.parametrize("wlen", [None, 3, 20, 101])
@pytest.mark.parametrize("size", [5, 64, 601])
def test_measures_of_peaks_step_by_step(size, wlen):
    """With equal elements and NaN: bases are the nearest of the lowest, widths end at the first element that is not above them."""
    for x in (RANDOM.normal(size=size), numpy.round(RANDOM.normal(size=size).cumsum()), RANDOM.normal(size=size).cumsum()):
        if size == 601:
            x[RANDOM.integers(0, size, 3)] = math.nan
        peaks = numpy.array([i for i in range(1, size - 1) if x[i - 1] < x[i] > x[i + 1]], "int64")
        prominences, *bases = (host(v) for v in signal.peak_prominences(cp.array(x), cp.array(peaks), wlen))
        widths, heights, *ends = (host(v) for v in signal.peak_widths(cp.array(x), cp.array(peaks), 0.7, wlen=wlen))
        for k, p in enumerate(peaks):
            reach = size if wlen is None else math.ceil(wlen) // 2
            for step, base, end in zip((-1, 1), bases, ends):
                i = low = p
                while 0 <= i < size and abs(i - p) <= reach and x[i] <= x[p]:
                    low, i = i if x[i] < x[low] else low, i + step
                assert base[k] == low
                i = p
                while i != low and heights[k] < x[i]:
                    i += step
                part = (heights[k] - x[i]) / (x[i - step] - x[i]) if x[i] < heights[k] else 0
                assert end[k] == pytest.approx(i - step * part)
            assert prominences[k] == x[p] - max(x[bases[0][k]], x[bases[1][k]])
            assert widths[k] == pytest.approx(ends[1][k] - ends[0][k])


@pytest.mark.skipif(nvrtc.opened() is None, reason="no NVRTC")
def test_the_kernels_of_peaks_compile_for_gpus():
    signal.find_peaks(cp.array([0.0, 2, 0, 3, 0]), prominence=0, width=0)
    for kernel in (signal._peaks._prominences_kernel, signal._peaks._widths_kernel):
        compiled = [c for c, *_ in kernel._compiled.values()]
        assert compiled and not any(nvrtc.problems(c.text, c.options) for c in compiled)
