"""Operators are where their records say."""
import pytest

import arete
import arete.nn.functional
from arete import _C
from arete._operators import _signatures

FAMILIES = ("fft", "linalg", "special")
SURFACES = _C._record_surfaces()


def with_surface(surface):
    return [n for n, s in SURFACES.items() if s == surface and not n.startswith(tuple(f + "_" for f in FAMILIES))]


def test_surfaces_are_those_of_the_records():
    assert sorted(SURFACES) == sorted(_C._record_names())
    assert {n: _C._record(n)["surface"] for n in SURFACES} == SURFACES
    assert {SURFACES[n] for n in SURFACES} == {"method", "function", "functional", "internal"}


def test_functions_and_methods():
    for name in with_surface("method") + with_surface("function"):
        assert hasattr(arete, name), name  # callable, but for the module that is called like the record `random`
    for name in with_surface("method"):
        schema = _C._record(name)["schema"]
        own_signature = name not in _signatures.SIGNATURES
        if own_signature and schema.startswith((name + "(Tensor self", name + "(Tensor input")):
            assert hasattr(arete.Tensor, name), name
    written_out = {"where", "real", "imag"}  # real and imag are properties of tensors
    assert [n for n in with_surface("function") if hasattr(arete.Tensor, n) and n not in written_out] == []


def test_functions_of_networks():
    for name in with_surface("functional"):
        assert callable(getattr(arete.nn.functional, name)), name
        assert not hasattr(arete, name) and not hasattr(arete.Tensor, name), name


def test_building_blocks_are_hidden_but_can_be_called():
    for name in with_surface("internal"):
        assert not hasattr(arete, name) and not hasattr(arete.Tensor, name), name
    x = arete.tensor([3.0, -1.0])
    assert arete._ops.squared_error(x, arete.zeros(2)).tolist() == [9.0, 1.0]


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family):
    module = getattr(arete, family)
    for name, surface in SURFACES.items():
        if name.startswith(family + "_"):
            assert callable(getattr(module, name[len(family) + 1 :], None)) == (surface != "internal"), name


def test_numbers_for_tensors():
    x = arete.tensor([5.0, -7.0])
    assert arete.div(x, 2, rounding_mode="floor").tolist() == [2.0, -4.0]  # div_mode
    assert arete.where(x > 4, x, 0).tolist() == [5.0, 0.0]  # pointwise
    for function in (arete.matmul, arete._ops.copy):
        with pytest.raises(TypeError, match="must be Tensor"):
            function(x, 2)
