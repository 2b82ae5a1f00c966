"""Subclasses of Tensor with __torch_function__, beside PyTorch's where it is installed."""
import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
from idiom_helpers import LIBRARIES, pytorch

import arete

both = pytest.mark.parametrize("torch", LIBRARIES, ids=lambda library: library.__name__)


class Plain(arete.Tensor):
    """At the module's top, where pickle finds it."""


def logged(torch):
    class Logged(torch.Tensor):
        calls = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    return Logged


@both
def test_results_are_of_the_class(torch):
    cls = logged(torch)
    x = torch.from_numpy(np.arange(9.0).reshape(3, 3)).as_subclass(cls)
    for y in (x + 1, 1 - x, torch.ones(3, 3) + x, x.relu(), torch.exp(x), x.T, x[0], x.sum(), x @ x, torch.cat([x, x]), x.clone(),
              x.detach(), x.to(torch.float32), x.unbind()[0], x.max(0).values, torch.topk(x, 2)[1], torch.nn.functional.softmax(x, 0),
              x.view(9), x.data, next(iter(x)), -x, x > 0):
        assert type(y) is cls
    for y in (x.shape, x.tolist(), x.numpy(), x.dim(), float(x[0, 0]), len(x), bool((x == x).all())):
        assert not isinstance(y, torch.Tensor)
    assert type(torch.topk(x, 2)).__name__.endswith("topk") and isinstance(x, torch.Tensor)
    before = x.clone()
    x += 1
    x[0] = 5
    assert type(x) is cls and x[0].tolist() == [5, 5, 5] and x[1].tolist() == (before[1] + 1).tolist()
    assert type(torch.nn.Parameter(torch.ones(2)) * 2) is torch.Tensor  # parameters are no such class
    plain = torch.zeros(3, 3, dtype=torch.float64)
    for y in (plain.add_(x), torch.exp(x, out=plain)):  # which stays what it is
        assert type(y) is cls and type(plain) is torch.Tensor and y.data_ptr() == plain.data_ptr()
    leaf = torch.zeros(3, requires_grad=True)
    product = leaf * 2
    product.add_(x[0].float())
    product.sum().backward()
    assert leaf.grad.tolist() == [2, 2, 2]
    with torch._C.DisableTorchFunctionSubclass():
        assert type(x + 1) is torch.Tensor


@both
def test_what_is_asked(torch):
    cls = logged(torch)
    x = torch.ones(2, 2).as_subclass(cls)
    cls.calls.clear()
    torch.exp(x), x.add(x), x.sum(dim=0), torch.stack((x, x)), x.T, x[0], x + 1
    assert cls.calls[:4] == ["exp", "add", "sum", "stack"] and len(cls.calls) == 7


@both
def test_gradients_go_through(torch):
    cls = logged(torch)
    leaf = torch.ones(3, requires_grad=True)
    y = (leaf.as_subclass(cls) * 2).exp()
    assert type(y) is cls and y.requires_grad
    y.sum().backward()
    assert leaf.grad.tolist() == pytest.approx([2 * np.exp(2)] * 3)
    x = torch.ones(2).as_subclass(cls).requires_grad_()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 2]


@both
def test_what_they_carry(torch):
    class Boxes(torch.Tensor):
        def __new__(cls, data, form):
            boxes = torch.as_tensor(data).as_subclass(cls)
            boxes.form = form
            return boxes

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            result = super().__torch_function__(func, types, args, kwargs or {})
            if isinstance(result, cls):
                result.form = next(a.form for a in args if isinstance(a, cls))
            return result

        def area(self):
            return (self[..., 2] - self[..., 0]) * (self[..., 3] - self[..., 1])

    boxes = Boxes([[0.0, 0.0, 2.0, 3.0], [1.0, 1.0, 4.0, 4.0]], "xyxy")
    assert boxes.area().tolist() == [6, 9] and (boxes * 2).form == boxes.clamp(min=1).form == boxes[:, :2].form == "xyxy"
    if torch is arete:  # torch's needs a new_empty() for it
        assert copy.deepcopy(boxes).form == "xyxy"


@both
def test_classes_beside_tensors(torch):
    class Constant:
        def __init__(self, value):
            self.value = value

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is not torch.mean or not all(issubclass(t, (torch.Tensor, cls)) for t in types):
                return NotImplemented
            return torch.tensor(args[0].value)

    assert torch.mean(Constant(3.0)).item() == 3
    with pytest.raises(TypeError, match="Multiple dispatch failed for .*add"):
        torch.add(Constant(3.0), 2)


def test_functions_of_overrides():
    import arete.overrides

    x = arete.ones(2).as_subclass(Plain)
    assert arete.overrides.has_torch_function((1, x)) and not arete.overrides.has_torch_function((arete.ones(1),))
    assert type(pickle.loads(pickle.dumps(x))) is Plain and type(copy.copy(x)) is Plain
    with pytest.raises(TypeError, match="inherits from Tensor"):
        arete.ones(1).as_subclass(int)


@pytest.mark.skipif(pytorch is None, reason="PyTorch is not installed")
def test_subclasses_of_subclasses_are_asked_first():
    for torch in LIBRARIES:
        asked = []

        class Base(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                asked.append(cls.__name__)
                return super().__torch_function__(func, types, args, kwargs or {})

        class Derived(Base):
            pass

        result = torch.add(torch.ones(1).as_subclass(Base), torch.ones(1).as_subclass(Derived))
        assert type(result) is Derived and asked == ["Derived"]


def test_classes_are_made_without_docstrings_of_operators():
    # Those come from samples, a library that programs need not have and that takes its time to load.
    code = ("import inspect, arete, arete.nn; maps = lambda: 'libarete_samples' in open('/proc/self/maps').read(); loaded = maps(); "
            "kind = arete.nn.parameter.UninitializedParameter; print(loaded, 'exponential' in inspect.getdoc(arete.Tensor.exp) or maps(), "
            "kind.exp.__name__)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "exp"]
