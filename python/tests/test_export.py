"""torch.export as programs use it: signatures, arguments of classes, sizes that are said by tensors. Run with both libraries."""
import dataclasses
import importlib
import io

import pytest
from idiom_helpers import on_the_cpu

import arete


def export_of(torch):
    return importlib.import_module(f"{torch.__name__}.export")


@on_the_cpu
def test_signatures(torch, device):
    export = export_of(torch)
    signatures = importlib.import_module(f"{torch.__name__}.export.graph_signature")
    programs = importlib.import_module(f"{torch.__name__}.export.exported_program")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.held = torch.nn.Linear(4, 2), torch.ones(2)
            self.register_buffer("b", torch.ones(2))
            self.register_buffer("passing", torch.ones(2), persistent=False)

        def forward(self, x, y):
            return torch.relu(self.layer(x)) + self.b * self.passing + self.held, y

    ep = export.export(Net(), (torch.randn(3, 4), torch.randn(2)))
    signature = ep.graph_signature
    assert isinstance(ep, programs.ExportedProgram) and isinstance(signature, export.ExportGraphSignature)
    Kind, Spec, Tensor = signatures.InputKind, signatures.InputSpec, signatures.TensorArgument
    assert signature.input_specs == [
        Spec(Kind.PARAMETER, Tensor("p_layer_weight"), "layer.weight"), Spec(Kind.PARAMETER, Tensor("p_layer_bias"), "layer.bias"),
        Spec(Kind.BUFFER, Tensor("b_b"), "b", True), Spec(Kind.BUFFER, Tensor("b_passing"), "passing", False),
        *[s for s in signature.input_specs if s.kind is Kind.CONSTANT_TENSOR], Spec(Kind.USER_INPUT, Tensor("x"), None),
        Spec(Kind.USER_INPUT, Tensor("y"), None)]
    assert [s.kind for s in signature.output_specs] == [signatures.OutputKind.USER_OUTPUT] * 2
    assert signature.user_inputs == ("x", "y") and signature.user_outputs == ("add_1", "y")
    assert signature.inputs_to_parameters == {"p_layer_weight": "layer.weight", "p_layer_bias": "layer.bias"}
    assert signature.inputs_to_buffers == {"b_b": "b", "b_passing": "passing"} and signature.buffers == ("b", "passing")
    assert list(signature.non_persistent_buffers) == ["passing"] and len(signature.lifted_tensor_constants) == 1
    assert list(signature.inputs_to_lifted_tensor_constants.values()) == list(signature.lifted_tensor_constants)
    placeholders = [n.name for n in ep.graph.nodes if n.op == "placeholder"]
    assert placeholders == [s.arg.name for s in signature.input_specs] and ep.dialect == "TRAINING"
    ep.validate()


@on_the_cpu
def test_arguments_of_classes(torch, device):
    export = export_of(torch)
    In = dataclasses.make_dataclass("In", ["f", "b", ("n", int, 2)])
    Out = dataclasses.make_dataclass("Out", ["r", "rest"])
    export.register_dataclass(In)
    export.register_dataclass(Out)

    class Net(torch.nn.Module):
        def forward(self, x):
            return Out(r=x.f + x.b * x.n, rest=[x.f.shape[1]])

    n = export.Dim("n")
    ep = export.export(Net(), (In(torch.ones(4, 2), torch.ones(4, 2)),), dynamic_shapes={"x": [{0: n}, {0: n}, None]})
    found = ep.module()(In(torch.ones(3, 2), torch.zeros(3, 2)))
    assert isinstance(found, Out) and torch.equal(found.r, torch.ones(3, 2)) and found.rest == [2]
    assert [node.name for node in ep.graph.nodes if node.op == "placeholder"][:2] == ["x_f", "x_b"]
    with pytest.raises(Exception, match="n"):
        ep.module()(In(torch.ones(3, 2), torch.zeros(3, 2), 5))
    with pytest.raises(ValueError):
        export.register_dataclass(int)
    with pytest.warns(UserWarning, match="already registered"):
        export.register_dataclass(In)


def test_registered_classes_in_files():
    """What a program was saved with is a named tuple where its class is not known."""
    Pair = dataclasses.make_dataclass("Pair", ["a", "b"])
    arete.export.register_dataclass(Pair)

    class Box:
        def __init__(self, a, k):
            self.a, self.k = a, k

    arete.utils._pytree.register_pytree_node(Box, lambda b: ([b.a], b.k), lambda c, k: Box(c[0], k))
    traced = arete.jit.trace(lambda p: (Pair(p.b, p.a * 2), Box(p.a, "x")), (Pair(arete.ones(2), arete.zeros(2)),))
    pair, box = traced(Pair(arete.ones(2) * 3, arete.ones(2)))
    assert type(pair) is Pair and pair.b.tolist() == [6.0, 6.0] and type(box) is Box and box.k == "x"
    file = io.BytesIO()
    arete.jit.save(traced, file)
    file.seek(0)
    pair, box = arete.jit.load(file)(Pair(arete.ones(2) * 3, arete.ones(2)))
    assert pair.b.tolist() == [6.0, 6.0] and pair._fields == ("a", "b") and box.item_0.tolist() == [3.0, 3.0]
    of_box = arete.jit.trace(lambda b: b.a * b.k, (Box(arete.ones(2), 3),))
    assert of_box(Box(arete.ones(2), 3)).tolist() == [3.0, 3.0]
    with pytest.raises(TypeError, match="another one than when the program was recorded"):
        of_box(Box(arete.ones(2), 4))
    Rest = dataclasses.make_dataclass("Rest", ["a", ("b", int, 7)])
    arete.utils._pytree.register_dataclass(Rest, drop_field_names=["b"])
    assert arete.utils._pytree.tree_map(lambda x: x + 1, Rest(1, 2)) == Rest(2, 7)
    with pytest.raises(ValueError, match="left out without a default"):
        arete.utils._pytree.register_dataclass(dataclasses.make_dataclass("C", ["a", "b"]), field_names=["a"])


def test_what_objects_have_besides_their_parts():
    class Box:
        def __init__(self, a, k):
            self.a, self.k = a, k

    arete.utils._pytree.register_pytree_node(Box, lambda b: ([b.a], b.k), lambda c, k: Box(c[0], k))
    half = list(range(1000))

    class Long(list):
        def __repr__(self):
            return "Long"

    class Net(arete.nn.Module):
        def forward(self, b):
            return b.a * len(b.k)

    ep = arete.export.export(Net(), (Box(arete.ones(2), half),))
    file = io.BytesIO()
    arete.export.save(ep, file)
    file.seek(0)
    loaded = arete.export.load(file)
    assert loaded.module()(Box(arete.ones(2), list(half))).tolist() == [1000.0] * 2
    assert loaded.module()(*loaded.example_inputs[0]).tolist() == [1000.0] * 2
    for program in (ep, loaded):
        with pytest.raises(TypeError, match="another one than when the program was recorded"):
            program.module()(Box(arete.ones(2), half[:-1]))
    traced = arete.jit.trace(lambda b: b.a * b.k[0], (Box(arete.ones(2), Long([2])),))
    with pytest.raises(TypeError, match="another one than when the program was recorded"):
        traced(Box(arete.ones(2), Long([3])))
    several = arete.ones(2)
    traced = arete.jit.trace(lambda b: b.a * 2, (Box(arete.ones(2), several),))
    assert traced(Box(arete.ones(2), several)).tolist() == [2.0, 2.0]
    with pytest.raises(TypeError, match="cannot be compared"):
        traced(Box(arete.ones(2), several.clone()))
    with pytest.raises(NotImplementedError, match="to_dumpable_context"):
        arete.jit.save(traced, io.BytesIO())


@on_the_cpu
def test_sizes_that_are_said_by_tensors(torch, device):
    export = export_of(torch)

    class Net(torch.nn.Module):
        def forward(self, x, parts):
            return x.sum(0) + parts[0].sum(0)

    x, y = torch.ones(4, 3), torch.ones(5, 3)
    shapes = export.ShapesCollection()
    shapes[x] = {0: export.Dim("n")}
    shapes[y] = (export.Dim.DYNAMIC, None)
    assert len(shapes) == 2
    net = export.export(Net(), (x, [y]), dynamic_shapes=shapes).module()
    assert net(torch.ones(7, 3), [torch.ones(2, 3)]).tolist() == [9.0] * 3
    more = export.AdditionalInputs()
    more.add((torch.ones(9, 3), [torch.ones(5, 3)]))
    ep = export.export(Net(), (x, [y]), dynamic_shapes=more)
    more.verify(ep)
    assert ep.module()(torch.ones(2, 3), [torch.ones(5, 3)]).tolist() == [7.0] * 3
    with pytest.raises(Exception, match="5"):
        ep.module()(torch.ones(2, 3), [torch.ones(6, 3)])
    shapes[torch.ones(2)] = {0: export.Dim("m")}
    with pytest.raises(ValueError):
        export.export(Net(), (x, [y]), dynamic_shapes=shapes)


def test_sizes_of_arguments_by_name():

    class Net(arete.nn.Module):
        def forward(self, x, k=2, **more):
            return x.sum(0) * k + more["y"].sum(0)

    x, y = arete.ones(4, 3), arete.ones(5, 3)
    shapes = arete.export.ShapesCollection()
    shapes[y] = {0: arete.export.Dim("n")}
    net = arete.export.export(Net(), (x, 3), {"y": y}, dynamic_shapes=shapes).module()
    assert net(x, 3, y=arete.ones(7, 3)).tolist() == [19.0] * 3


def test_other_inputs_by_name_and_with_defaults():
    class Net(arete.nn.Module):
        def forward(self, x, k=2, **more):
            return x.sum(0) * k + more["y"].sum(0)

    x, y, more = arete.ones(4, 3), arete.ones(5, 3), arete.export.AdditionalInputs()
    more.add((x,), {"y": arete.ones(6, 3)})
    for given in ((x,), (x, 2)):
        assert arete.export.export(Net(), given, {"y": y}, dynamic_shapes=more).module()(*given, y=arete.ones(7, 3)).tolist() == [15.0] * 3
    with pytest.raises(ValueError, match="3 is no tensor, and is another value elsewhere"):
        arete.export.export(Net(), (x, 3), {"y": y}, dynamic_shapes=more)
    more.add((x,), {})
    with pytest.raises(ValueError, match=r"only some inputs have \['y'\]"):
        arete.export.export(Net(), (x,), {"y": y}, dynamic_shapes=more)


@on_the_cpu
def test_draft_export(torch, device):
    ep = export_of(torch).draft_export(torch.nn.ReLU(), (torch.ones(2),))
    assert ep.module()(torch.tensor([-1.0, 1.0])).tolist() == [0.0, 1.0]
