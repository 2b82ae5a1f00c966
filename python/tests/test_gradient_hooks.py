"""Hooks that run once gradients are accumulated, or once those of several tensors are known."""
from __future__ import annotations

import gc
import weakref

import pytest

import arete

try:
    import torch as pytorch
except ImportError:
    pytorch = None

either = pytest.mark.parametrize("torch", [arete] + [pytorch] * (pytorch is not None), ids=lambda lib: lib.__name__)


@either
def test_after_accumulation(torch):
    x = torch.ones(2, requires_grad=True)
    seen = []
    handle = x.register_post_accumulate_grad_hook(lambda p: seen.append((p is x, p.grad.tolist())))
    (x * 2).sum().backward()
    ((x * 3).sum() + x.sum()).backward()  # once for a pass, however many paths lead there
    assert seen == [(True, [2.0, 2.0]), (True, [6.0, 6.0])]
    handle.remove()
    x.sum().backward()
    assert len(seen) == 2


@either
def test_an_optimizer_within_backward(torch):
    torch.manual_seed(1)
    nn = torch.nn
    nets = [nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    plain = torch.optim.SGD(nets[0].parameters(), lr=0.1, momentum=0.9)
    steppers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in nets[1].parameters()}
    most = [0]

    def step(p):
        most[0] = max(most[0], sum(q.grad is not None for q in nets[1].parameters()))
        steppers[p].step()
        steppers[p].zero_grad()

    for p in nets[1].parameters():
        p.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        x = torch.randn(5, 4)
        plain.zero_grad()
        nets[0](x).square().mean().backward()
        plain.step()
        nets[1](x).square().mean().backward()
    assert most == [1] and all(p.grad is None for p in nets[1].parameters())
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@either
def test_of_inputs_alone(torch):
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    seen = []
    for name, leaf in (("a", a), ("b", b)):
        leaf.register_hook(lambda g, name=name: seen.append((name, g.tolist())))
        leaf.register_post_accumulate_grad_hook(lambda p, name=name: seen.append((name + ".grad", p.grad.tolist())))

    def outputs():
        h, k = a * b, b * 3
        k.register_hook(lambda g: seen.append("k"))
        return h, k, (2 * h + k).sum()

    h, k, y = outputs()
    k.retain_grad()
    y.backward(inputs=[a])
    assert seen == [("a", [2.0, 2.0]), ("a.grad", [2.0, 2.0])] and b.grad is None and k.grad is None
    torch.autograd.backward(outputs()[2], inputs=(a, a))  # named twice, added once
    assert seen[2:] == [("a", [2.0, 2.0]), ("a.grad", [4.0, 4.0])]
    seen.clear()
    outputs()[2].backward(inputs=b)
    assert seen == ["k", ("b", [5.0, 5.0]), ("b.grad", [5.0, 5.0])] and a.grad.tolist() == [4.0, 4.0]
    # What is no leaf keeps its gradient as after retain_grad(); what lies behind it gets none.
    seen.clear()
    h, k, y = outputs()
    y.backward(inputs=[h], retain_graph=True)
    assert h.grad.tolist() == [2.0, 2.0] and h.retains_grad and not seen
    y.backward(inputs=[h, a])
    assert h.grad.tolist() == [4.0, 4.0] and seen == [("a", [2.0, 2.0]), ("a.grad", [6.0, 6.0])]
    c = torch.ones(2, requires_grad=True)
    outputs()[2].backward(inputs=[c])
    assert c.grad is None
    for backward in (torch.autograd.backward, torch.Tensor.backward):
        with pytest.raises(RuntimeError, match="argument to `backward\\(\\)` cannot be empty"):
            backward(y, inputs=[])
        with pytest.raises(RuntimeError, match="does not require grad|requires_grad=False"):
            backward(outputs()[2], inputs=[torch.ones(2)])


@pytest.mark.filterwarnings("ignore:Using backward")
@either
def test_a_hook_takes_the_gradient_of_an_input(torch):
    x = torch.ones(2, requires_grad=True)
    taken = []

    def take(p):
        taken.append(p.grad)
        p.grad = None

    x.register_post_accumulate_grad_hook(take)
    for _ in range(2):
        (x * x).sum().backward(inputs=[x], create_graph=len(taken) == 1)
    assert x.grad is None and [g.tolist() for g in taken] == [[2.0, 2.0], [2.0, 2.0]]
    assert not taken[0].requires_grad and taken[1].requires_grad


@either
def test_changes_while_hooks_run(torch):
    x = torch.ones(2, requires_grad=True)
    seen = []
    handles = []

    def first(p):
        seen.append("first")
        handles[0].remove()
        p.grad = None

    handles.append(x.register_post_accumulate_grad_hook(first))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad is None))
    x.sum().backward()
    x.sum().backward()
    assert seen == ["first", True, False]


@either
def test_errors(torch):
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="cannot be registered on non-leaf tensors"):
        (2 * x).register_post_accumulate_grad_hook(print)
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        torch.ones(2).register_post_accumulate_grad_hook(print)
    handle = x.register_post_accumulate_grad_hook(lambda p: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        x.sum().backward()
    handle.remove()
    handle = x.register_post_accumulate_grad_hook(lambda p: 3)
    with pytest.raises((RuntimeError, TypeError), match="hook"):
        x.sum().backward()
    handle.remove()
    x.sum().backward()


def test_the_hook_keeps_no_leaf():
    x = arete.ones(2, requires_grad=True)
    gone = weakref.ref(x)
    x.register_post_accumulate_grad_hook(lambda p: None)
    x.sum().backward()
    del x
    gc.collect()
    assert gone() is None
    x = arete.ones(2, requires_grad=True)
    gone = weakref.ref(x)
    x.register_post_accumulate_grad_hook(lambda p, x=x: None)  # a cycle
    x.sum().backward()
    del x
    gc.collect()
    assert gone() is None
    with pytest.raises(TypeError, match="must be callable"):
        arete.ones(2, requires_grad=True).register_post_accumulate_grad_hook(3)


@either
def test_gradients_of_several(torch):
    hook = torch.autograd.graph.register_multi_grad_hook
    a, b = torch.tensor([2.0], requires_grad=True), torch.tensor([3.0], requires_grad=True)
    seen = []

    def numbers(grads):
        return [None if g is None else g.item() for g in grads]

    handle = hook((a, b), lambda grads: seen.append(numbers(grads)))
    (a * b).sum().backward()
    (5 * a).sum().backward()
    assert seen == [[3.0, 2.0], [5.0, None]]
    if torch is arete:  # PyTorch's refuses
        torch.autograd.grad((a * a * b).sum(), (a, b))
        assert seen.pop() == [12.0, 4.0]
    handle.remove()
    (a * b).sum().backward()
    assert len(seen) == 2
    seen.clear()
    with hook([a, b], lambda g: seen.append(g.shape), mode="any"):
        (a * b).sum().backward()
        (a + b).sum().backward()
    assert len(seen) == 2
    with pytest.raises(ValueError, match="Expects mode to be one of"):
        hook((a,), print, mode="some")


@either
def test_a_pass_that_fails_leaves_nothing(torch):
    hook = torch.autograd.graph.register_multi_grad_hook
    a, b = torch.tensor([2.0], requires_grad=True), torch.tensor([3.0], requires_grad=True)
    seen = []
    hook((a, b), seen.append)
    c = a * 1.0
    bad = c.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ((b * b) + c).sum().backward()
    bad.remove()
    seen.clear()
    (a * b).sum().backward()
    assert [g.item() for g in seen[0]] == [3.0, 2.0]


@either
def test_is_pinned_takes_a_device(torch):
    with pytest.warns(DeprecationWarning) if torch is pytorch else __import__("contextlib").nullcontext():
        assert not torch.ones(2).is_pinned("cuda") and not torch.ones(2).is_pinned(device=None)


@either
def test_hooks_of_nodes(torch):
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    seen = []
    after = y.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs[0].tolist(), [g.tolist() for g in outputs])))
    before = y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 5,))
    y.sum().backward(retain_graph=True)
    assert seen == [([10.0, 10.0], [[5.0, 5.0]])] and x.grad.tolist() == [10.0, 10.0]
    after.remove()
    before.remove()
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 3, *inputs[1:]))
    y.sum().backward()
    assert len(seen) == 1 and x.grad.tolist() == [16.0, 16.0]
    z = x * 2
    z.grad_fn.register_prehook(lambda outputs: outputs * 2)
    with pytest.raises(RuntimeError, match="hook.*has returned an incorrect number"):
        z.sum().backward()


@either
def test_a_leafs_node_tells_when_its_gradient_is_there(torch):
    p = torch.nn.Parameter(torch.ones(2))
    seen = []
    sink = p.expand_as(p).grad_fn.next_functions[0][0]
    sink.register_hook(lambda inputs, outputs: seen.append((inputs, outputs[0].tolist(), p.grad.tolist())))
    (p * 2).sum().backward()
    assert seen == [((), [2.0, 2.0], [2.0, 2.0])]


@either
def test_hooks_that_take_themselves_away(torch):
    x = torch.ones(2, requires_grad=True)
    handles = []
    handles.append(x.register_hook(lambda g: handles[0].remove()))
    x.register_hook(lambda g: g * 2)
    y = x * 1
    handles.append(y.grad_fn.register_prehook(lambda outputs: handles[1].remove()))
    for _ in range(2):
        y.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [4.0, 4.0]


def test_a_program_cannot_have_hooks_of_nodes():
    def program(x):
        y = x * 2
        y.grad_fn.register_hook(lambda *gradients: None)
        return y

    with pytest.raises(NotImplementedError, match="a hook on a gradient cannot be part of a program"):
        arete.jit.trace(program, arete.ones(2, requires_grad=True))
