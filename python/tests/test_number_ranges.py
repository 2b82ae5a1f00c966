"""Numbers that become elements of a dtype: what fits, what is cut off, what is refused."""
import math

import pytest

import arete

INTEGERS = arete.tensor([1, 2, 3, -4])
BYTES = arete.tensor([1, 2, 3, 200], dtype=arete.uint8)
MASK = arete.tensor([True, False, False, True])
OVERFLOW = "value cannot be converted to type {} without overflow"

WRITES = {
    "full": lambda x, v: arete.full((2,), v, dtype=x.dtype),
    "full_like": lambda x, v: arete.full_like(x, v),
    "new_full": lambda x, v: x.new_full((2,), v),
    "fill_": lambda x, v: x.clone().fill_(v),
    "masked_fill": lambda x, v: x.masked_fill(MASK, v),
    "index_fill": lambda x, v: x.index_fill(0, arete.tensor([1]), v),
    "scatter": lambda x, v: x.scatter(0, arete.tensor([1]), v),
    "pad": lambda x, v: arete.nn.functional.pad(x, (1, 1), value=v),
    "setitem": lambda x, v: x.clone().__setitem__(0, v),
    "threshold": lambda x, v: arete.nn.functional.threshold(x, 1, v),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("x, value", [(BYTES, 256), (BYTES, -256), (BYTES, -0.5), (BYTES, 255.5), (INTEGERS.to(arete.int8), 128),
                                      (INTEGERS.to(arete.int16), -32769), (INTEGERS.int(), 2.0**31), (INTEGERS, 2.0**63),
                                      (INTEGERS, math.inf), (INTEGERS, math.nan)], ids=str)
def test_beyond_the_range(name, x, value):
    with pytest.raises(RuntimeError, match=OVERFLOW.format(x.dtype._name)):
        WRITES[name](x, value)


@pytest.mark.parametrize("name", WRITES)
def test_complex_among_reals(name):
    if name == "pad":
        pytest.skip("takes real numbers only")
    for x in (INTEGERS, INTEGERS.float()):
        with pytest.raises(RuntimeError, match=OVERFLOW.format(x.dtype._name)):
            WRITES[name](x, 1j)


def test_fractions_are_cut_off():
    assert INTEGERS.masked_fill(MASK, 1.9).tolist() == [1, 2, 3, 1]
    assert INTEGERS.masked_fill(MASK, arete.tensor(-1.9)).tolist() == [-1, 2, 3, -1]
    assert arete.nn.functional.threshold(INTEGERS, 1.5, -2.5).tolist() == [-2, 2, 3, -2]
    assert arete.nn.functional.threshold(BYTES, 2.9, 20.7).tolist() == [20, 20, 3, 200]
    assert arete.addcmul(INTEGERS, INTEGERS, INTEGERS, value=2.9).tolist() == [3, 10, 21, 28]
    assert INTEGERS.index_add(0, arete.tensor([0]), INTEGERS[1:2], alpha=2.9).tolist() == [5, 2, 3, -4]
    assert arete.full((1,), -255, dtype=arete.uint8).item() == 1  # as two's complement
    for refused in (lambda: arete.add(INTEGERS, INTEGERS, alpha=1.5), lambda: arete.add(MASK, MASK, alpha=1.5)):
        with pytest.raises(RuntimeError, match="argument alpha must not be a floating point number"):
            refused()


def test_numbers_beside_tensors():
    """Those that are chosen or are exponents must be among the integers; sums and products wrap."""
    for refused in (lambda: arete.where(BYTES > 1, BYTES, 300), lambda: arete.where(BYTES > 1, 300, BYTES), lambda: BYTES.pow(300)):
        with pytest.raises(RuntimeError, match=OVERFLOW.format("uint8")):
            refused()
    assert arete.where(BYTES > 1, BYTES, -1).tolist() == [255, 2, 3, 200] and arete.where(BYTES > 1, BYTES, 300.5).dtype is arete.float32
    assert arete.where(BYTES > 1, BYTES, arete.tensor(300)).tolist() == [44, 2, 3, 200]
    assert arete.pow(300, BYTES).tolist()[0] == 44 and (BYTES + 300).tolist() == [45, 46, 47, 244]


def test_ranges_of_integers():
    """Of int64 the numbers between whole bounds are counted, of other dtypes those between the bounds as they are."""
    assert arete.arange(0, 1.5, dtype=arete.int64).tolist() == [0]
    assert arete.arange(0, 1.5, dtype=arete.uint8).tolist() == [0, 1]
    assert arete.arange(0.5, 3, dtype=arete.int32).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match=OVERFLOW.format("uint8")):
        arete.linspace(0, 300, 3, dtype=arete.uint8)
