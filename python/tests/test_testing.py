"""assert_close and make_tensor against PyTorch's."""
from __future__ import annotations

import inspect
import re

import numpy
import pytest
from peer import peer

import arete
from arete import testing as ours

torch = peer()
theirs = torch.testing
NUMBER = r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?"
nan, inf = float("nan"), float("inf")


def t(values, dtype="float32"):
    return lambda m: m.tensor(values, dtype=getattr(m, dtype))


CASES = [
    (t([1.0, 2.0]), t([1.0, 2.0]), {}), (t([1.0, 2.0]), t([1.0, 2.00001]), {}), (t([1.0, 2.0]), t([1.0, 2.001]), {}),
    (t([[1.0, 2.0], [3.0, 4.0]]), t([[1.0, 2.5], [3.0, 0.0]]), {}), (t([1.0, nan]), t([1.0, nan]), {}),
    (t([1.0, nan]), t([1.0, nan]), {"equal_nan": True}), (t([1.0, nan]), t([nan, 1.0]), {"equal_nan": True}),
    (t([inf, -inf]), t([inf, -inf]), {}), (t([inf, 1.0]), t([-inf, 1.0]), {}), (t([1.0, 1.0]), t([inf, 1.0]), {"rtol": 1.0, "atol": 1.0}),
    (t([1, 2, 3], "int64"), t([1, 2, 4], "int64"), {}), (t([1, 2, 3], "int64"), t([1, 2, 4], "int64"), {"rtol": 0, "atol": 1}),
    (t([2 ** 62], "int64"), t([2 ** 62 + 1], "int64"), {}), (t([True, False], "bool"), t([True, True], "bool"), {}),
    (t([1.0]), t([1.0], "float64"), {}), (t([1.0]), t([1.0000001], "float64"), {"check_dtype": False}),
    (t([1.0, 2.0], "float16"), t([1.001, 2.0], "float16"), {}), (t([1.0, 2.0], "bfloat16"), t([1.02, 2.0], "bfloat16"), {}),
    (t([1 + 2j], "complex64"), t([1 + 2.1j], "complex64"), {}), (t([1 + 2j, 0], "complex128"), t([1 + 2j, 0], "complex128"), {}),
    (t([1.0, 2.0]), t([[1.0, 2.0]]), {}), (t([]), t([]), {}), (t(1.0), t(1.5), {}), (t(3, "int32"), t(4, "int32"), {}),
    (t(0.5), t(0.0), {}),
    (t([1.0]), t([1.1]), {"rtol": 0.2, "atol": 0.0}), (t([1.0]), t([1.1]), {"rtol": 0, "atol": 0}), (t([1.0]), t([2.0]), {"msg": "mine"}),
    (t([1.0]), t([2.0]), {"msg": lambda m: "before " + m}), (t([0.0, 0.0]), t([0.0, 1e-3]), {}), (t([0.0, 1e-3]), t([0.0, 0.0]), {}),
    (lambda m: 1.0, lambda m: 1.0 + 1e-9, {}), (lambda m: 1.0, lambda m: 1.1, {}), (lambda m: 1, lambda m: 1.0, {}),
    (lambda m: 1, lambda m: 2, {}), (lambda m: nan, lambda m: nan, {"equal_nan": True}), (lambda m: nan, lambda m: nan, {}),
    (lambda m: 1 + 1j, lambda m: 1 + 1.1j, {}), (lambda m: True, lambda m: True, {}), (lambda m: True, lambda m: False, {}),
    (lambda m: None, lambda m: None, {}), (lambda m: None, lambda m: 1, {}), (lambda m: inf, lambda m: inf, {}),
    (lambda m: [1, m.ones(2)], lambda m: [1, m.ones(2)], {}), (lambda m: [1, {"a": m.ones(2)}], lambda m: [1, {"a": m.zeros(2)}], {}),
    (lambda m: (1, 2), lambda m: [1, 2], {}), (lambda m: [1], lambda m: [1, 2], {}), (lambda m: {"a": 1}, lambda m: {"b": 1}, {}),
    (lambda m: numpy.ones(2), lambda m: numpy.ones(2), {}), (lambda m: numpy.ones(2), lambda m: numpy.zeros(2), {}),
    (lambda m: numpy.float64(1), lambda m: numpy.float64(1.1), {}), (lambda m: m.ones(2), lambda m: numpy.ones(2), {}),
    (lambda m: "a", lambda m: "a", {}), (lambda m: object(), lambda m: object(), {}), (lambda m: m.ones(2), lambda m: [1.0, 1.0], {}),
    (lambda m: m.ones(2, 3).t(), lambda m: m.ones(3, 2), {"check_stride": True}), (lambda m: m.ones(2, 3).t(), lambda m: m.ones(3, 2), {}),
    (t([1.0]), t([1.0]), {"rtol": 1.0}), (t([1.0]), t([1.0]), {"check_device": False}),
]


def outcome(module, arrays, a, b, options):
    try:
        module.assert_close(a(arrays), b(arrays), **options)
    except Exception as error:
        return type(error), str(error)
    return None, ""


@pytest.mark.parametrize("case", range(len(CASES)))
def test_same_verdict(case):
    """Also the same lines about how many elements differ, by how much and where."""
    kind, text = outcome(ours, arete, *CASES[case])
    expected, expected_text = outcome(theirs, torch, *CASES[case])
    assert kind is expected, (text, expected_text)
    if kind is AssertionError:
        def lines(message):
            wanted = ("Mismatched", "Greatest", "Tensor", "Scalars", "Expected", "The failure")
            found = [line for line in message.splitlines() if line.startswith(wanted)]
            return [re.sub(NUMBER, "#", line) for line in found], [float(x) for line in found for x in re.findall(NUMBER, line)]

        assert lines(text)[0] == lines(expected_text)[0]
        assert lines(text)[1] == pytest.approx(lines(expected_text)[1], rel=5e-3)  # differences are computed in float64 here


def test_failure_text():
    with pytest.raises(AssertionError) as info:
        ours.assert_close({"x": [arete.tensor([[1.0, 2.0], [3.0, 4.0]])]}, {"x": [arete.tensor([[1.0, 2.5], [3.0, 4.0]])]})
    text = str(info.value)
    for part in ("Mismatched elements: 1 / 4 (25.0%)", "Greatest absolute difference: 0.5 at index (0, 1)", "item ['x'][0]", "1.3e-06"):
        assert part in text


DTYPES = ["float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int8", "uint8", "int16", "int32", "int64", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"low": 2, "high": 5}, {"exclude_zero": True}, {"noncontiguous": True}, {"low": 0, "high": 1},
                                     {"low": -1e30, "high": 1e30}])
def test_make_tensor(dtype, options):
    if dtype == "bool" and options.get("low") == 2:
        return
    if options.get("low") == -1e30 and "float" not in dtype and "complex" not in dtype:
        x = ours.make_tensor(50, dtype=getattr(arete, dtype), device="cpu", **options)  # PyTorch's does not clamp these for int64
        assert dtype == "bool" or int(x.to(arete.float64).max()) > arete.iinfo(x.dtype).max / 2
        return
    for shape in ((), (4,), (2, 0), (5, 6, 7)):
        x = ours.make_tensor(shape, dtype=getattr(arete, dtype), device="cpu", **options)
        reference = theirs.make_tensor(shape, dtype=getattr(torch, dtype), device="cpu", **options)
        assert tuple(x.shape) == tuple(reference.shape) and x.is_contiguous() == reference.is_contiguous() and x.requires_grad is False
        assert str(x.dtype).rpartition(".")[2] == dtype
        if not x.numel():
            continue
        values = x.to(arete.float64) if not x.is_complex() else arete.tensor([[z.real, z.imag] for z in x.reshape(-1).tolist()])
        low, high = options.get("low", -9), options.get("high", 10)
        if dtype == "uint8":
            low = max(low, 0)
        assert float(values.min()) >= low - abs(low) * 0.004  # of bfloat16's rounding
        assert float(values.max()) < high or (high > 100) or (options.get("exclude_zero") and dtype == "bool")
        if options.get("exclude_zero"):
            assert all(v != 0 for v in x.reshape(-1).tolist())
    again = ours.make_tensor(2, 3, dtype=arete.float32, device="cpu", requires_grad=True)
    assert again.requires_grad and again.is_leaf and tuple(again.shape) == (2, 3)


def test_make_tensor_errors():
    for options in ({"low": 3, "high": 3}, {"low": nan}, {"dtype": arete.int32, "requires_grad": True}):
        with pytest.raises(ValueError):
            ours.make_tensor((2,), **{"dtype": arete.float32, "device": "cpu", **options})


def test_signatures():
    for name in ours.__all__:
        a, b = inspect.signature(getattr(ours, name)).parameters.values(), inspect.signature(getattr(theirs, name)).parameters.values()
        assert [(p.name, p.kind, p.default) for p in a] == [(p.name, p.kind, p.default) for p in b], name
