"""Printed tensors beside torch's, with every option of set_printoptions."""
import math

import pytest
from peer import peer

import arete

reference = peer()

VALUES = [
    3.14159, [], [[]], [1, 2, 300], [True, False], [1.0, 2.0, -3.0], [0.1, 2.25, 100.0], [1e-5, 1.0], [1e-5, 2e-5], [1e9, 1.0],
    [0.5, math.nan, math.inf, -math.inf], [0.0, -0.0], [[0.5, 1.5], [2.5, 1000.25]], list(range(7)), [list(range(12))] * 5,
    [[[k + 0.5] * 9] * 6 for k in range(4)], [0.125] * 30, list(range(1001)), [1 + 2j, 0.25 - 1j], [0.1] * 1200,
]
OPTIONS = [
    {}, {"precision": 0}, {"precision": 2}, {"precision": 9}, {"threshold": 5}, {"threshold": 0, "edgeitems": 1},
    {"threshold": math.inf}, {"edgeitems": 1}, {"linewidth": 20}, {"linewidth": 160}, {"linewidth": 1}, {"profile": "short"},
    {"profile": "full"}, {"profile": "full", "precision": 1}, {"sci_mode": True}, {"sci_mode": False},
    {"sci_mode": True, "precision": 1, "linewidth": 40},
]


@pytest.fixture(autouse=True)
def default_options():
    yield
    for library in (arete, reference):
        library.set_printoptions(profile="default")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(options):
    for library in (arete, reference):
        library.set_printoptions(**options)
    for value in VALUES:
        assert repr(arete.tensor(value)) == repr(reference.tensor(value)).replace("torch.", "arete.")


def test_options_stay_until_they_are_set():
    x = arete.tensor([0.123456, 1.0])
    arete.set_printoptions(precision=2)
    arete.set_printoptions(sci_mode=True)
    assert repr(x) == "tensor([1.23e-01, 1.00e+00])"
    arete.set_printoptions(linewidth=200)  # scientific or not is chosen by the values again
    assert repr(x) == "tensor([0.12, 1.00])"
    arete.set_printoptions(profile="default")
    assert repr(x) == "tensor([0.1235, 1.0000])"


@pytest.mark.parametrize("options", [{"profile": "tiny"}, {"precision": -1}, {"edgeitems": 0}, {"linewidth": 0}, {"threshold": -1e300}],
                         ids=str)
def test_wrong_options_change_nothing(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        arete.set_printoptions(**options)
    assert repr(arete.tensor([0.25] * 2)) == "tensor([0.2500, 0.2500])"
