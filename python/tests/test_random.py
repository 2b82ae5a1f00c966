"""Seeds and states."""
from __future__ import annotations

import subprocess
import sys

import pytest

import arete
from arete import random
from arete.random import fork_rng


def test_states():
    random.manual_seed(7)
    assert random.initial_seed() == 7
    state = random.get_rng_state()
    assert state.dtype == arete.uint8
    first = arete.rand(5).tolist()
    second = arete.rand(5).tolist()
    random.set_rng_state(state)
    assert arete.rand(5).tolist() == first and arete.rand(5).tolist() == second and first != second
    random.manual_seed(7)
    assert arete.rand(5).tolist() == first
    assert random.manual_seed(2 ** 64 - 1) is not None and random.manual_seed(-1) is not None
    assert random.seed() != random.seed()


def test_generator_states():
    g = arete.Generator()
    g.manual_seed(3)
    state = g.get_state()
    a = arete.rand(3, generator=g).tolist()
    g.set_state(state)
    assert arete.rand(3, generator=g).tolist() == a
    with pytest.raises((TypeError, RuntimeError)):
        g.set_state(arete.zeros(3))


def test_generator_methods_without_the_module():
    # In a fresh process: the methods are the class's own, and arete.random is the module.
    program = "import arete; s = arete.Generator().get_state(); print(len(s), arete.random.initial_seed() >= 0)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == ["16", "True"], run.stderr


def test_a_state_moves_between_generators():
    a, b = arete.Generator(), arete.Generator()
    assert a.manual_seed(2**64 - 1) is a and a.initial_seed() == 2**64 - 1
    arete.rand(7, generator=a)
    assert b.set_state(a.get_state()) is b and b.initial_seed() == 2**64 - 1
    assert arete.rand(5, generator=a).tolist() == arete.rand(5, generator=b).tolist()
    with pytest.raises((OverflowError, RuntimeError)):
        a.manual_seed(2**64)
    # The default generator's state is the one that operators draw from.
    state = arete.default_generator.get_state()
    first = arete.rand(3).tolist()
    arete.default_generator.set_state(state)
    assert arete.rand(3).tolist() == first
    assert a.seed() == a.initial_seed() != b.initial_seed()


@pytest.mark.parametrize("enabled", [True, False])
def test_fork(enabled):
    random.manual_seed(1)
    a = arete.rand(2).tolist()
    random.manual_seed(1)
    with fork_rng(devices=[], enabled=enabled):
        arete.rand(100)
    assert (arete.rand(2).tolist() == a) == enabled
    random.manual_seed(1)
    with pytest.raises(KeyError):
        with fork_rng():
            arete.rand(100)
            raise KeyError
    assert arete.rand(2).tolist() == a


@pytest.mark.parametrize("weights, text", [([0.0, 0.0], "invalid multinomial distribution"),
                                           ([0.5, -0.1], "either `inf`, `nan` or element < 0"),
                                           ([[1.0, 2.0], [0.0, float("nan")]], "either `inf`, `nan` or element < 0")])
def test_weights_that_are_none(weights, text):
    """On the host; a device would have to be waited for."""
    for call in (arete.multinomial, arete.Tensor.multinomial):
        for replacement in (False, True):
            with pytest.raises(ValueError, match=text):
                call(arete.tensor(weights), 1, replacement)
