"""Operators are where their records say."""
import types

import pytest

import arete
import arete.nn.functional
from arete import _C

FAMILIES = ("fft", "linalg", "special")
SURFACES = {n: _C._record(n)["surface"] for n in _C._record_names()}


def with_surface(surface):
    return [n for n, s in SURFACES.items() if s == surface and not n.startswith(tuple(f + "_" for f in FAMILIES))]


def base(name):
    return name.partition(".")[0]


def test_all_ways_of_showing_are_there():
    assert {SURFACES[n] for n in SURFACES} == {"method", "function", "functional", "internal"}


def test_functions_and_methods():
    for name in with_surface("method") + with_surface("function"):
        assert isinstance(getattr(arete, base(name)), (_C.Operator, types.FunctionType)), name
    for name in with_surface("method"):
        if "." not in name and _C._record(name)["schema"].startswith((name + "(Tensor self", name + "(Tensor input")):
            assert hasattr(arete.Tensor, name), name
    written_out = {"where", "real", "imag"}  # real and imag are properties of tensors
    assert [n for n in with_surface("function") if hasattr(arete.Tensor, n) and n not in written_out] == []


def test_overloads_have_one_name():
    def records(operator):
        return [record for record, _ in operator._records]

    assert records(arete.max) == ["max", "max.dim", "maximum"]
    assert records(arete.clamp) == ["clamp", "clamp.Tensor"]
    assert records(arete.Tensor.clamp_) == ["clamp", "clamp.Tensor"]
    assert records(arete.normal) == ["normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor", "normal.float_float"]
    assert records(arete.arange) == ["arange.start"] * 2
    assert records(arete.nn.functional.conv2d) == ["conv2d", "conv2d.padding"]
    assert records(arete._ops.histogram) == ["histogram", "histogram.bin_ct"]
    assert [n for n in dir(arete) + dir(arete.Tensor) if "." in n] == []
    with pytest.raises(AttributeError, match="there is no operator record 'max_dim'"):
        arete._ops.max_dim


def test_errors_and_nodes_have_the_public_name():
    x = arete.tensor([[1.0, 2.0]], requires_grad=True)
    assert x.max(1).values.grad_fn.name() == "MaxBackward0"
    with pytest.raises(IndexError, match="Operator: max(\\.|$)"):
        x.max(5)


def test_arguments_by_torchs_names():
    x = arete.tensor([[1.0, 5.0], [3.0, 2.0]])
    assert arete.clamp_min(x, min=x.mean(1, keepdim=True)).tolist() == [[3.0, 5.0], [3.0, 2.5]]
    assert [t.tolist() for t in arete.split(arete.arange(3), split_size_or_sections=[1, 2])] == [[0], [1, 2]]
    assert [t.tolist() for t in arete.arange(3).split(split_size=2)] == [[0, 1], [2]]


@pytest.mark.parametrize("call", [
    lambda x: arete.add(x, x, requires_grad=True), lambda x: arete.add(x, x, pin_memory=True),
    lambda x: arete.add(x, x, layout=arete.strided),
    lambda x: arete.add(x, x, dtype=arete.float64), lambda x: x.add_(1, out=x), lambda x: arete.nn.functional.relu(x, requires_grad=True),
    lambda x: x.exp_(dtype=arete.float64), lambda x: arete.zeros(2, layout="strided")])
def test_arguments_that_mean_nothing_are_refused(call):
    with pytest.raises(TypeError, match="unexpected keyword argument|must be arete.layout"):
        call(arete.ones(2))


def test_gradients_of_what_is_written_to():
    x = arete.empty(2)
    assert arete.ones(2, out=x, requires_grad=True) is x and x.requires_grad


def test_functions_of_networks():
    for name in with_surface("functional"):
        assert callable(getattr(arete.nn.functional, name)), name
        assert not isinstance(getattr(arete, name, None), _C.Operator) and not hasattr(arete.Tensor, name), name


def test_building_blocks_are_hidden_but_can_be_called():
    recorded = {"contiguous", "to"}  # calls of recorded programs, of methods that are written by hand
    for name in with_surface("internal"):
        assert not hasattr(arete, name) and hasattr(arete.Tensor, name) == (name in recorded), name
    x = arete.tensor([3.0, -1.0])
    assert arete._ops.squared_error(x, arete.zeros(2)).tolist() == [9.0, 1.0]


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family):
    module = getattr(arete, family)
    for name, surface in SURFACES.items():
        if name.startswith(family + "_"):
            assert callable(getattr(module, base(name)[len(family) + 1 :], None)) == (surface != "internal"), name


def test_numbers_for_tensors():
    x = arete.tensor([5.0, -7.0])
    assert arete.div(x, 2, rounding_mode="floor").tolist() == [2.0, -4.0]  # a composition
    assert arete.where(x > 4, x, 0).tolist() == [5.0, 0.0]  # pointwise
    for function in (arete.matmul, arete._ops.copy):
        with pytest.raises(TypeError, match="must be Tensor"):
            function(x, 2)
