"""Operators of programs' own and the names of those that are there. Run with both libraries."""
import importlib
import itertools
from typing import List, Optional, Tuple

import pytest
from idiom_helpers import on_the_cpu

import arete

numbers = itertools.count()


def fresh(name):
    return f"tests{next(numbers)}::{name}"


def called(torch, name):
    space, op = name.split("::")
    return getattr(getattr(torch.ops, space), op)


@on_the_cpu
def test_custom_op(torch, device):
    library, name, Tensor = importlib.import_module(f"{torch.__name__}.library"), fresh("scaled"), torch.Tensor
    ran = []

    def scaled(x: Tensor, by: float = 2.0, *, plus: int = 0) -> Tensor:
        ran.append("any")
        return x * by + plus

    scaled.__annotations__ = {"x": Tensor, "by": float, "plus": int, "return": Tensor}
    op = library.custom_op(name, scaled, mutates_args=())
    x = torch.ones(2, requires_grad=True)
    assert called(torch, name)(x.detach(), 3.0, plus=1).tolist() == op(x.detach(), 3.0, plus=1).tolist() == [4, 4]
    assert called(torch, name).default(x.detach()).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        op(x).sum().backward()

    def setup(ctx, inputs, output, keyword_only_inputs=None):
        ctx.by = inputs[1]

    op.register_autograd(lambda ctx, g: (g * ctx.by, None), setup_context=setup)
    op(x, 5.0).sum().backward()
    assert x.grad.tolist() == [5, 5]
    op.register_fake(lambda x, by=2.0, *, plus=0: torch.empty_like(x))
    before = len(ran)
    made = op(torch.ones(3, device="meta"))
    assert made.device.type == "meta" and made.shape == (3,) and len(ran) == before
    op.register_kernel("cpu", lambda x, by=2.0, *, plus=0: x * 0)
    assert op(x.detach()).tolist() == [0, 0]
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        called(torch, name.split("::")[0] + "::missing")


@on_the_cpu
def test_operators_that_change_their_arguments(torch, device):
    library, name = importlib.import_module(f"{torch.__name__}.library"), fresh("fill")

    def fill(x, value):
        x.fill_(value)

    fill.__annotations__ = {"x": torch.Tensor, "value": float, "return": None}
    op = library.custom_op(name, fill, mutates_args={"x"})
    x = torch.zeros(2)
    y = (x.requires_grad_() * 1).detach()
    version = y._version
    assert op(y, 3.0) is None and y.tolist() == [3, 3] and y._version > version


@on_the_cpu
def test_tensors_in_lists(torch, device):
    library, name, needs = importlib.import_module(f"{torch.__name__}.library"), fresh("both"), []

    def both(xs, by):
        return [x * by for x in xs]

    both.__annotations__ = {"xs": List[torch.Tensor], "by": float, "return": List[torch.Tensor]}
    op = library.custom_op(name, both, mutates_args=())
    x, y, z = torch.ones(2, requires_grad=True), torch.ones(1), torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        op([x, y], 2.0)[0].sum().backward()

    def backward(ctx, gradients):
        needs.append(ctx.needs_input_grad)
        return [g * ctx.by for g in gradients], None

    op.register_autograd(backward, setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]))
    made = op([x, y, z], 2.0)
    assert isinstance(made, list) and [m.tolist() for m in made] == [[2, 2], [2], [2, 2, 2]]
    (made[0].sum() + 3 * made[2].sum()).backward()
    assert x.grad.tolist() == [2, 2] and z.grad.tolist() == [6, 6, 6] and y.grad is None
    assert [list(needs[0][0]), needs[0][1]] == [[True, False, True], False]


@on_the_cpu
def test_derivatives_that_are_refused(torch, device):
    library = importlib.import_module(f"{torch.__name__}.library")
    for schema, error in (("(Tensor x, *, Tensor y) -> Tensor", "kwarg-only Tensor"),
                          ("(Tensor(a!) x) -> Tensor", "non-functional operator")):
        name = fresh("refused")
        library.define(name, schema)
        with pytest.raises((RuntimeError, NotImplementedError), match=error):
            library.register_autograd(name, lambda ctx, g: g)


@on_the_cpu
def test_schemas(torch, device):
    library, T = importlib.import_module(f"{torch.__name__}.library"), torch.Tensor

    def function(a, b, c=None, d=1.5, *, e=True, f="x"):
        pass

    function.__annotations__ = {"a": T, "b": List[int], "c": Optional[T], "d": float, "e": bool, "f": str, "return": Tuple[T, T]}
    assert library.infer_schema(function, mutates_args={"a"}) == \
        '(Tensor(a0!) a, SymInt[] b, Tensor? c=None, float d=1.5, *, bool e=True, str f="x") -> (Tensor, Tensor)'
    with pytest.raises(ValueError, match="must have a type annotation"):
        library.infer_schema(lambda x: x, mutates_args=())


@on_the_cpu
def test_library_objects(torch, device):
    library, space = importlib.import_module(f"{torch.__name__}.library"), fresh("").removesuffix("::")
    lib = library.Library(space, "FRAGMENT")
    lib.define("twice(Tensor x, int n=2) -> Tensor")
    lib.impl("twice", lambda x, n=2: x * n, "CompositeExplicitAutograd")
    op = called(torch, f"{space}::twice")
    assert op(torch.ones(1)).item() == 2 and op(torch.ones(1), n=3).item() == 3
    library.define(f"{space}::other", "(Tensor x) -> Tensor")
    library.impl(f"{space}::other", "cpu", lambda x: x + 1)
    assert called(torch, f"{space}::other")(torch.ones(1)).item() == 2
    other = library.Library(space, "FRAGMENT")
    other.define("third(Tensor x) -> Tensor")
    other.impl("third", lambda x: x, "CompositeExplicitAutograd")
    other._destroy()
    assert op(torch.ones(1)).item() == 2  # of the other object
    with pytest.raises(ValueError, match="kind"):
        library.Library(space, "NONE")
    with pytest.raises(ValueError, match="reserved namespace"):
        arete.library.Library("aten", "FRAGMENT")


@on_the_cpu
def test_operators_by_name(torch, device):
    aten, x = torch.ops.aten, torch.arange(6.0).view(2, 3)
    for result, expected in ((aten.add.Tensor(x, x), x + x), (aten.sum.dim_IntList(x, [1]), x.sum(1)),
                             (aten.slice.Tensor(x, 1, 0, 2), x[:, :2]),
                             (aten.view.default(x, [3, 2]), x.view(3, 2)), (aten.relu(x), x), (aten.unsqueeze.default(x, 0), x[None]),
                             (aten.cat.default([x, x], 1), torch.cat([x, x], 1)),
                             (aten.index_put.default(x, [None, torch.tensor([0])], torch.zeros(2, 1)), x * torch.tensor([0.0, 1, 1])),
                             (aten._to_copy.default(x, dtype=torch.float64), x.double()),
                             (aten.slice_copy.Tensor(x, dim=1, start=1, end=3), x[:, 1:]),
                             (aten.masked_fill.Scalar(x, x > 2, 0.0), x * (x <= 2)),
                             (aten.mm.default(x, x.T), x @ x.T),
                             (aten.convolution.default(x.view(1, 2, 3), torch.ones(1, 2, 1), None, [1], [0], [1], False, [0], 1),
                              x.sum(0).view(1, 1, 3))):
        assert torch.equal(result, expected)
    turned = x.view(1, 2, 3, 1)
    assert aten.clone.default(turned, memory_format=torch.channels_last).stride() == (6, 1, 2, 2)
    assert aten.sym_size.int(x, 1) == 3 and aten.add.Tensor is aten.add.Tensor and aten.add.Tensor is not aten.add.Scalar
    assert str(aten.add.Tensor) == "aten.add.Tensor" and aten.add.Tensor.overloadpacket is aten.add and aten.add.Tensor.namespace == "aten"
    with pytest.raises(AttributeError, match="no_such_operator"):
        aten.no_such_operator
    with pytest.raises(OSError):
        torch.ops.load_library("no_such_library.so")


@on_the_cpu
def test_function_modes(torch, device):
    seen = []

    class Names(torch.overrides.TorchFunctionMode):
        def __init__(self, mark=""):
            self.mark = mark

        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(self.mark + func.__name__.strip("_"))
            return func(*args, **(kwargs or {}))

    class Zeros(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {})) if func is not torch.ones else torch.zeros(*args)

    x = torch.ones(2)
    with Names():
        y = torch.ones(2).exp()
        y = x + y
        with Names("inner "):
            torch.relu(y)
    torch.relu(y)
    assert seen == ["ones", "exp", "add", "inner relu", "relu"]
    with Zeros():
        assert torch.ones(2).tolist() == [0, 0]
        with pytest.raises((ValueError, RuntimeError)):
            torch.relu(x.view(3))
    assert torch.ones(1).item() == 1
