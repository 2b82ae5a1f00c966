"""Tensor.data: the same memory, whose writes the backward pass does not notice. Run with both libraries."""
import pytest
from idiom_helpers import anywhere

import arete


@anywhere
def test_writes_are_not_noticed(torch, device):
    p = torch.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    for write in (lambda: p.data.mul_(2), lambda: p.data.copy_(torch.ones(3)), lambda: p.data[0].zero_(), lambda: p.data.view(3, 1).add_(1),
                  lambda: p.data.data.add_(1), lambda: p.data.detach().add_(1), lambda: p.data.__setitem__(0, 5.0)):
        loss = (p * p).sum()
        before = p._version
        write()
        assert p._version == before
        p.grad = None
        loss.backward()
        assert torch.equal(p.grad, 2 * p.detach())  # with the values of now


@anywhere
def test_other_writes_are(torch, device):
    p = torch.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    view = p.detach()[1:]

    def under_no_grad():
        with torch.no_grad():
            p.mul_(2)

    for write in (lambda: p.detach().mul_(2), under_no_grad, lambda: view.zero_()):
        loss = (p * p).sum()
        before = p._version
        write()
        assert p._version == before + 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@anywhere
def test_results_and_activations(torch, device):
    x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    y = x.exp()
    y.data.fill_(10)  # which its gradient reads
    y.sum().backward()
    assert x.grad.tolist() == [10, 10]
    y = x.exp()
    y.detach().fill_(10)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@anywhere
def test_its_own_counter(torch, device):
    x = torch.zeros(3, device=device)
    x.add_(1)
    data = x.data
    assert (x._version, data._version) == (1, 0)
    data.add_(1)
    view = data[1:]
    view.add_(1)
    assert (x._version, data._version, view._version, x.data._version) == (1, 2, 2, 0)
    x.add_(1)
    assert (x._version, data._version) == (2, 2) and x.tolist() == [3, 4, 4] == data.tolist()
    assert data.data_ptr() == x.data_ptr() and not data.requires_grad and data.is_leaf and data._base is None


@anywhere
def test_history_of_what_data_is_computed_with(torch, device):
    """Saved tensors that have a counter of their own are checked by it."""
    w = torch.tensor([2.0], device=device, requires_grad=True)
    data = torch.tensor([3.0], device=device).data
    loss = (w * data).sum()
    data.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    loss = (w * data).sum()
    data.data.mul_(2)
    loss.backward()
    assert w.grad.item() == 12


@anywhere
def test_assignment_goes_on_counting(torch, device):
    p = torch.nn.Parameter(torch.ones(2, device=device))
    with torch.no_grad():
        p.mul_(1)
    before = p._version
    loss = (p * p).sum()
    p.data = torch.full((2,), 3.0, device=device)
    assert p._version == before
    loss.backward()
    assert p.grad.tolist() == [6, 6]
    loss = (p * p).sum()
    with torch.no_grad():
        p.mul_(2)
    assert p._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_others_who_look_for_writes_see_them():
    """Casts that a region of autocast keeps, and master copies of parameters."""
    linear = arete.nn.Linear(2, 1, bias=False)
    x = arete.ones(1, 2)
    with arete.autocast("cpu", dtype=arete.bfloat16):
        linear(x)
        linear.weight.data.fill_(3)
        assert linear(x).item() == 6
    p = arete.nn.Parameter(arete.ones(2, dtype=arete.bfloat16))
    optimizer = arete.optim.SGD([p], lr=1.0, master_weights=True)
    p.grad = arete.ones_like(p)
    optimizer.step()
    p.data.fill_(100)
    optimizer.step()
    assert p.tolist() == [99, 99]


@anywhere
def test_set_keeps_dtypes_and_leaves(torch, device):
    x = torch.ones(3, device=device)
    assert x.set_(torch.zeros(2, device=device)) is x and x.tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="Could not set tensor of type"):
        x.set_(torch.zeros(2, dtype=torch.float64, device=device))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        x.requires_grad_().set_(torch.zeros(2, device=device))
    with torch.no_grad():
        assert x.set_(torch.ones(1, device=device)).requires_grad


@anywhere
def test_what_requires_a_gradient_has_floating_data(torch, device):
    p = torch.ones(2, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="must be floating point or complex dtype"):
        p.data = torch.ones(2, device=device, dtype=torch.int64)
    assert p.dtype == torch.float32
    p.data = torch.ones(3, device=device, dtype=torch.float64)
    assert p.dtype == torch.float64 and p.requires_grad
