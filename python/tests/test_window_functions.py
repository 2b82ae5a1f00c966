"""Windows of torch's own namespace."""
import pytest

import arete

NAMES = ("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window")


@pytest.mark.parametrize("name", NAMES)
def test_as_in_torch(name):
    torch = pytest.importorskip("torch")
    for args, kwargs in (((7,), {}), ((8, False), {}), ((0,), {}), ((1,), {}), ((2,), {}), ((6,), {"dtype": "float64"}),
                         ((6,), {"dtype": "float16"})):
        ours, theirs = (getattr(t, name)(*args, **{k: getattr(t, v) for k, v in kwargs.items()}) for t in (arete, torch))
        assert str(ours.dtype).partition(".")[2] == str(theirs.dtype).partition(".")[2]
        assert ours.tolist() == pytest.approx(theirs.tolist(), abs=2e-3 if kwargs.get("dtype") == "float16" else 1e-6)
    if name == "hamming_window":
        assert arete.hamming_window(5, True, 0.6, 0.3).tolist() == pytest.approx(torch.hamming_window(5, True, 0.6, 0.3).tolist(), abs=1e-6)
    if name == "kaiser_window":
        assert arete.kaiser_window(5, False, 3.0).tolist() == pytest.approx(torch.kaiser_window(5, False, 3.0).tolist(), abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_options_and_errors(name):
    window = getattr(arete, name)
    assert window(4, requires_grad=True).requires_grad and window(4, device="meta").device.type == "meta"
    for call, error, text in ((lambda: window(-1), RuntimeError, "requires non-negative window_length"),
                              (lambda: window(4, dtype=arete.int64), RuntimeError, "expects floating point dtypes"),
                              (lambda: window(4, sigma=1), TypeError, "unexpected keyword argument 'sigma'")):
        with pytest.raises(error, match=text):
            call()
