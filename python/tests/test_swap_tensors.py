"""Tensors whose objects exchange what they show."""
import weakref

import pytest

import arete
from arete import nn


def test_swapped_tensors():
    a, b = nn.Parameter(arete.zeros(2)), arete.ones(3, dtype=arete.float64)
    a.mark, calls = "a", []
    a.register_hook(lambda g: calls.append(g.tolist()))
    (a * 2).sum().backward()
    held, grad = [a, b], a.grad
    arete.utils.swap_tensors(a, b)
    assert held[0] is a and held[1] is b
    assert type(a) is arete.Tensor and a.tolist() == [1, 1, 1] and a.dtype == arete.float64 and not hasattr(a, "mark")
    assert type(b) is nn.Parameter and b.tolist() == [0, 0] and b.mark == "a" and b.requires_grad and b.grad is grad
    (b * 3).sum().backward()
    assert b.grad.tolist() == [5, 5] and calls == [[2, 2], [3, 3]] and a.grad is None
    arete.utils.swap_tensors(a, a)
    assert a.tolist() == [1, 1, 1]
    layer = nn.Linear(2, 2)
    optimizer = arete.optim.SGD(layer.parameters(), lr=1.0)
    weight = layer.weight
    arete.utils.swap_tensors(weight, nn.Parameter(arete.ones(2, 2)))
    layer(arete.ones(1, 2)).sum().backward()
    optimizer.step()
    assert layer.weight is weight and weight.tolist() == [[0, 0], [0, 0]]


def test_tensors_that_others_hold_are_not_swapped():
    a, b = arete.zeros(2, requires_grad=True), arete.ones(2)
    view = b[:1]
    with pytest.raises(RuntimeError, match="use_count of t2"):
        arete.utils.swap_tensors(a, b)
    del view
    product = a * a
    with pytest.raises(RuntimeError, match="use_count of t1"):
        arete.utils.swap_tensors(a, b)
    del product
    reference = weakref.ref(b)
    with pytest.raises(RuntimeError, match="Cannot swap t2 because it has weakref"):
        arete.utils.swap_tensors(a, b)
    del reference
    arete.utils.swap_tensors(a, b)
    assert a.tolist() == [1, 1] and b.requires_grad
