"""Numbers that become elements of a dtype: what fits, what is cut off, what is refused."""
import math

import pytest
from idiom_helpers import anywhere

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
    for place in ([0], [1, 2]):
        filled = INTEGERS.index_fill(0, arete.tensor(place), arete.tensor(2.9))
        assert filled.tolist() == [2 if k in place else v for k, v in enumerate([1, 2, 3, -4])]
    assert arete.fill(INTEGERS, arete.tensor(-1.9)).tolist() == [-1] * 4 and MASK.masked_fill(MASK, arete.tensor(0.5)).equal(MASK)
    assert BYTES.clone().fill_(arete.tensor(300.5)).tolist() == [44] * 4  # which PyTorch does not look at
    for wrong in (float("inf"), float("nan"), 1e30):
        with pytest.raises(RuntimeError, match=OVERFLOW.format("int64")):
            INTEGERS.masked_fill(MASK, arete.tensor(wrong))
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


UNFIT = [([300], "uint8"), ([-300], "uint8"), ([128], "int8"), ([-129], "int8"), ([2**31], "int32"), ([2**40], "int16"),
         ([1e10], "int32"), ([1e300], "int64"), ([math.nan], "int32"), ([math.inf], "int64"), ([[1], [256]], "uint8"),
         ([255.9], "uint8"), ([-0.5], "uint8"), ([300, 1.5], "int8"), ([1.5, 300], "int8"), ([127.9], "int8"),
         ([128.0], "int8"), ([True, 300], "uint8"), (300, "int8"), (1e10, "int32"),
         ([[0] * 50, [0] * 49 + [256]], "uint8")]


@anywhere
@pytest.mark.parametrize("numbers, dtype", UNFIT, ids=str)
def test_lists_of_numbers_that_do_not_fit(torch, device, numbers, dtype):
    at = {"dtype": getattr(torch, dtype), "device": device}
    made = [lambda: torch.tensor(numbers, **at), lambda: torch.as_tensor(numbers, **at),
            lambda: torch.ones(1, **at).new_tensor(numbers), lambda: torch.asarray(numbers, **at)]
    for make in made:
        with pytest.raises(RuntimeError, match=OVERFLOW.format(dtype)):
            make()


@anywhere
def test_lists_of_numbers_that_fit(torch, device):
    for numbers, dtype, expected in (
            ([255, 0], "uint8", [255, 0]), ([-128, 127], "int8", [-128, 127]), ([1.7, -1.7], "int32", [1, -1]),
            ([-1, -255], "uint8", [255, 1]), ([-(2**63), 2**63 - 1], "int64", [-(2**63), 2**63 - 1]),
            ([True, False], "uint8", [1, 0]), ([2, 0], "bool", [True, False]), ([0.5, 2], "bool", [True, True]),
            ([1e40], "float32", [math.inf]), ([7e4], "float16", [math.inf]), ([300, 300.5], "float64", [300, 300.5]),
            ([-(2**31), 2**31 - 1.0], "int32", [-(2**31), 2**31 - 1]), ([], "int8", []),
            ([9007199254740993.0], "int64", [9007199254740992]), ([[3], [4]], "int16", [[3], [4]])):
        assert torch.tensor(numbers, dtype=getattr(torch, dtype), device=device).tolist() == expected


POWERS = {
    "operator": lambda torch, x, e: x**e,
    "function": lambda torch, x, e: torch.pow(x, e),
    "method": lambda torch, x, e: x.pow(e),
    "pow_": lambda torch, x, e: x.pow_(e),
    "**=": lambda torch, x, e: x.__ipow__(e),
    "out": lambda torch, x, e: torch.pow(x, e, out=x.float()),
    "_foreach_pow": lambda torch, x, e: torch._foreach_pow([x], e),
    "_foreach_pow_": lambda torch, x, e: torch._foreach_pow_([x], e),
    "_foreach_pow of a list": lambda torch, x, e: torch._foreach_pow([x], [e]),
    "0-d": lambda torch, x, e: torch.pow(x[0], e),
    "nothing": lambda torch, x, e: x[:0] ** e,
    "not contiguous": lambda torch, x, e: x[::2] ** e,
}


@anywhere
@pytest.mark.parametrize("name", POWERS)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int8", "bool"])
def test_negative_powers_of_integers(torch, device, name, dtype):
    for exponent in (-1, -2, -7):
        x = torch.tensor([1, 2, 4], dtype=getattr(torch, dtype), device=device)
        before = x.tolist()
        with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
            POWERS[name](torch, x, exponent)
        assert x.tolist() == before


@anywhere
def test_other_powers_with_negative_exponents(torch, device):
    x = torch.tensor([1, 2, 4], device=device)
    assert (x**-1.0).tolist() == [1, 0.5, 0.25] == (x.float() ** -1).tolist() and (x**0).tolist() == [1, 1, 1]
    assert torch.float_power(x, -1).tolist() == [1, 0.5, 0.25] and (x**2).tolist() == [1, 4, 16]
    assert (2 ** torch.tensor([-1, 3], device=device)).tolist() == [0, 8]  # exponents in tensors are not looked at
    assert (x ** torch.tensor([-1, -1, 2], device=device)).tolist() == [1, 0, 16]
    assert (x.to(torch.complex64) ** -1).tolist() == [1, 0.5, 0.25]
    assert [t.tolist() for t in torch._foreach_pow([x], 2)] == [[1, 4, 16]] and x.clone().pow_(3).tolist() == [1, 8, 64]
    half = torch.tensor([2.0], dtype=torch.float16, device=device, requires_grad=True)
    (half**-1).sum().backward()
    assert half.grad.item() == -0.25


@pytest.mark.parametrize("dtype", [arete.int8, arete.int16, arete.int32, arete.int64])
def test_shifts_by_what_is_no_place(dtype):
    """To the left nothing is left then, to the right the sign; by numbers below zero as by those that are too large."""
    bits = arete.iinfo(dtype).bits
    by = arete.tensor([-bits, -9, -8, -2, -1, bits, bits + 1, 100], dtype=dtype).repeat(9)
    x, y = arete.full_like(by, 3), arete.full_like(by, -3)
    assert (x << by).tolist() == (y << by).tolist() == (x >> by).tolist() == [0] * 72
    assert (y >> by).tolist() == [-1] * 72


@anywhere
def test_halves_are_compared_with_the_half_that_a_number_becomes(torch, device):
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.tensor([0.1, 0.3, -0.7, 2.5], dtype=dtype, device=device)
        for n, number in enumerate((0.1, 0.3, -0.7, 2.5)):
            assert [(x == number)[n].item(), (x != number)[n].item(), (x >= number)[n].item(), (x > number)[n].item(),
                    (x <= number)[n].item(), (x < number)[n].item()] == [True, False, True, False, True, False]
        assert torch.where(x > 0.3, x, 9.0)[1].item() == 9
