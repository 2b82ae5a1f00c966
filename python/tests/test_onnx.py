"""ONNX models of recorded programs, run by onnxruntime beside the modules they came from."""
import io

import numpy as np
import pytest
from peer import peer

import arete
import arete.nn.functional as F
from arete import nn
from arete._higher_order_ops import while_loop

onnxruntime = peer("onnxruntime")
onnx = peer("onnx")


def runs(net, *args, tolerance=2e-5, others=(), **options):
    """Exports, runs both on the arguments and on others."""
    onnx.helper.make_opsetid("", 18)  # skips where it is missing
    file = io.BytesIO()
    arete.onnx.export(net, args, file, **options)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    net.eval()
    for given in (args, *others):
        feed = {i.name: x.numpy() for i, x in zip(session.get_inputs(), given)}
        got = session.run(None, feed)
        with arete.no_grad():
            wanted = net(*given)
        wanted = arete.utils._pytree.tree_leaves(wanted)
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted):
            assert tuple(a.shape) == tuple(b.shape)
            arete.testing.assert_close(arete.from_numpy(a.copy()), b, rtol=tolerance, atol=tolerance)
    return session


class Function(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


@pytest.mark.parametrize("name", ["exp", "sin", "tanh", "sigmoid", "erf", "reciprocal", "abs", "neg", "floor", "ceil", "sign", "relu",
                                  "rsqrt", "log1p", "expm1", "log2"])
def test_functions_of_one_tensor(name):
    runs(Function(lambda x: getattr(x, name)()), arete.rand(3, 4) + 0.1)


@pytest.mark.parametrize("layer", [nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.ELU(0.7), nn.SELU(), nn.CELU(1.2),
                                   nn.LeakyReLU(0.2), nn.Hardtanh(-0.5, 0.7), nn.Hardsigmoid(), nn.Hardswish(), nn.Softplus(),
                                   nn.Softsign(), nn.Mish(),
                                   nn.LogSigmoid(), nn.PReLU(4), nn.ReLU6(), nn.Softmax(1), nn.LogSoftmax(-1), nn.Dropout(0.5), nn.Tanh()],
                         ids=repr)
def test_activations(layer):
    runs(layer, 3 * arete.randn(2, 4, 5))


FUNCTIONS = {
    "arithmetic": lambda x, y: (x + y * 2 - 3, x / (y.abs() + 1), x.sub(y, alpha=0.5), 1 - x, x ** 2, -x % 3),
    "comparisons": lambda x, y: (x > y, (x <= 0) & (y != x), ~(x == y), arete.where(x > 0, x, y), x.clamp(-1, 0.5), arete.maximum(x, y)),
    "reductions": lambda x, y: (x.sum(), x.mean(1), x.amax((0, 2), keepdim=True), x.argmax(1), x.logsumexp(-1), x.var(1), x.std(2),
                                x.max(1)[0], x.cumsum(1), x.prod(2)),
    "shapes": lambda x, y: (x.view(4, -1), x.transpose(0, 2), x.permute(2, 0, 1), x[:, 1], x[..., 1:3], x.unsqueeze(1).squeeze(1),
                            arete.cat((x, y), 1), arete.stack((x, y)), x.flatten(1), x[0].expand(3, 3, 4), x.repeat(1, 2, 1)),
    "parts": lambda x, y: (*x.split(2, 2), *x.chunk(3, 1), *x.unbind(0), x.narrow(2, 1, 2), x.topk(2)[0], x.tril(),
                           F.pad(x, (1, 2), value=0.5)),
    "products": lambda x, y: (x @ y.mT, arete.addmm(arete.ones(3), x[0], y[0].t()), x[0].mv(y[0, 0]),
                              arete.baddbmm(x @ y.mT, x, y.mT, alpha=0.5)),
    "masks": lambda x, y: (x.masked_fill(y > 0, -1.0), x.masked_fill(arete.triu(arete.ones(3, 4), 1) == 1, float("-inf"))),
    "dtypes": lambda x, y: (x.double() + 1, x.to(arete.int64), (x > 0).float() * y, arete.full((2,), 3.0), arete.arange(4) * 2),
    "writes": lambda x, y: (x.clone().add_(1).relu_().mul_(2),),
    "positions": lambda x, y: (x.index_select(1, arete.tensor([2, 0])), x.gather(1, arete.zeros(2, 1, 4, dtype=arete.int64)),
                               x[:, arete.tensor([0, 2, 2])]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    runs(Function(FUNCTIONS[name]), arete.randn(2, 3, 4), arete.randn(2, 3, 4))


def test_convolutions_pools_and_norms():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding="same", groups=2),
                        nn.GroupNorm(2, 8), nn.MaxPool2d(2), nn.ConvTranspose2d(8, 4, 2, 2), nn.AvgPool2d(2, 1, 1), nn.AdaptiveAvgPool2d(1),
                        nn.Flatten(), nn.LayerNorm(4), nn.Linear(4, 2))
    net(arete.randn(8, 3, 16, 16))  # running statistics
    runs(net, arete.randn(2, 3, 16, 16), others=[(arete.randn(5, 3, 16, 16),)], input_names=["image"], output_names=["scores"],
         dynamic_axes={"image": {0: "batch"}, "scores": {0: "batch"}})


@pytest.mark.parametrize("layer", [nn.LSTM(3, 4, 2, bidirectional=True), nn.GRU(3, 4, batch_first=True), nn.RNN(3, 4, nonlinearity="relu")],
                         ids=["lstm", "gru", "rnn"])
def test_recurrences_of_any_length(layer):
    runs(layer, arete.randn(5, 2, 3), others=[(arete.randn(7, 4, 3),)], dynamic_axes={"input": {0: "a", 1: "b"}})


def test_a_transformer_of_any_length():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.position = nn.Embedding(20, 8), nn.Embedding(64, 8)
            self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False)

        def forward(self, tokens):
            batch, time = tokens.shape
            x = self.embed(tokens) + self.position(arete.arange(time))
            y = self.layers(x, mask=nn.Transformer.generate_square_subsequent_mask(time))
            return y.view(batch * time, 8).sum(-1)

    tokens = lambda *shape: (arete.randint(0, 20, shape),)  # noqa: E731
    session = runs(Encoder(), *tokens(2, 5), others=[tokens(3, 9), tokens(1, 1)],
                   dynamic_shapes={"tokens": {0: arete.export.Dim("batch"), 1: arete.export.Dim("time")}})
    assert session.get_inputs()[0].shape == ["batch", "time"]


def test_what_is_exported_and_what_is_not(tmp_path):
    net = nn.Linear(2, 2).eval()
    x = arete.ones(1, 2)
    with pytest.raises(TypeError, match="not function"):
        arete.onnx.export(lambda x: x, x)
    onnx.helper.make_opsetid("", 18)  # skips where it is missing
    for model in (arete.export.export(net, (x,)), arete.jit.trace(net.eval(), x)):
        program = arete.onnx.export(model, (), tmp_path / "net.onnx", input_names=["x"], output_names=["y"], opset_version=20)
        assert [o.version for o in program.model_proto.opset_import] == [20]
        onnx.checker.check_model(str(tmp_path / "net.onnx"))
    with pytest.raises(NotImplementedError, match=r"no counterpart of the operator 'special_i1 \(.*test_onnx.py"):
        arete.onnx.export(Function(lambda x: arete.special.i1(x)), x)
    with pytest.raises(ValueError, match="gives no tensors"):
        arete.onnx.export(Function(lambda x: ()), x)
    with pytest.raises(ValueError, match="opset_version is 18"):
        arete.onnx.export(net, x, opset_version=9)
    with pytest.raises(ValueError, match="names are given"):
        arete.onnx.export(net, x, input_names=["a", "b"])
    with pytest.raises(ValueError, match="different from each other"):
        arete.onnx.export(net, x, input_names=["a"], output_names=["a"])
    with pytest.raises(ValueError, match="dynamic_axes names 'z'"):
        arete.onnx.export(net, x, dynamic_axes={"z": [0]})
    with pytest.raises(ValueError, match="2 input_names are given for 1 inputs"):
        arete.onnx.export(net, x, input_names=["a", "b"], dynamic_axes={"a": [0]})
    training = arete.jit.trace(nn.BatchNorm1d(2), arete.ones(3, 2))
    with pytest.raises(RuntimeError, match="training mode"):
        arete.onnx.export(training)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self._1, self.output = nn.Parameter(arete.rand(3)), nn.Parameter(arete.rand(3))

    def forward(self, x, *, scale, mask=None):
        y = x * scale * self._1 + self.output
        return y if mask is None else y.masked_fill(mask, 0.0)


def test_arguments_by_name():
    file, net, x = io.BytesIO(), Scaled(), arete.rand(2, 3)
    given = {"scale": arete.rand(3), "mask": arete.tensor([[True, False, True], [False] * 3])}
    onnx.helper.make_opsetid("", 18)  # skips where it is missing
    arete.onnx.export(net, x, file, kwargs=given, dynamic_axes={"x": {0: "n"}, "mask": {-2: "n"}})
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    # Parameters and nodes have names, too, which are not in the way.
    assert [(i.name, i.shape) for i in session.get_inputs()] == [("x", ["n", 3]), ("scale", [3]), ("mask", ["n", 3])]
    given = {"scale": given["scale"], "mask": arete.rand(4, 3) > 0.5}
    x = arete.rand(4, 3)
    got, = session.run(None, {"x": x.numpy(), **{k: v.numpy() for k, v in given.items()}})
    arete.testing.assert_close(arete.from_numpy(got), net(x, **given).detach())


def test_names_that_parameters_have():
    names = {"input_names": ["weight"], "output_names": ["bias"], "dynamic_axes": {"weight": [0], "bias": [0]}}
    session = runs(nn.Linear(3, 2), arete.rand(2, 3), others=[(arete.rand(5, 3),)], **names)
    assert [(x.name, x.shape) for x in session.get_inputs() + session.get_outputs()] == [
        ("weight", ["weight_dim_0", 3]), ("bias", ["weight_dim_0", 2])]
    runs(nn.Linear(3, 2), arete.rand(2, 3), input_names=["_1"], output_names=["_2"])  # as nodes may be called


def test_layers_that_write_in_place():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(2), nn.Flatten(),
                        nn.ReLU(True), nn.Dropout(0.2, True), nn.Hardtanh(0, 0.5, True), nn.Linear(128, 5))
    runs(net, arete.randn(2, 3, 8, 8), others=[(arete.randn(5, 3, 8, 8),)], dynamic_axes={"input": {0: "batch"}})


def test_masks_of_any_length():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.layer = nn.Embedding(10, 8, padding_idx=0), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, ids):
            return self.layer(self.embed(ids), src_key_padding_mask=ids == 0)

    runs(Masked(), arete.tensor([[1, 2, 0], [3, 4, 5]]), others=[(arete.tensor([[1, 2, 0, 0], [3, 4, 5, 0], [1, 1, 1, 1]]),)],
         dynamic_axes={"ids": {0: "b", 1: "t"}})
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True, activation="gelu")
    runs(layer, arete.rand(2, 5, 8), arete.rand(2, 4, 8), others=[(arete.rand(3, 9, 8), arete.rand(3, 6, 8))],
         dynamic_axes={"tgt": {0: "b", 1: "t"}, "memory": {0: "b", 1: "s"}})


def test_what_is_not_carried_is_refused():
    """An argument that a handler does not look at is one the model would not heed."""
    from arete.onnx._graph import Call

    call = Call("pool", {"self": 1, "size": [2, 2], "padding": [0, 0], "divisor": 3, "device": "cpu", "mode": None}, [])
    assert call.first == 1 and call["size"] == [2, 2]
    with pytest.raises(NotImplementedError, match=r"heeds the argument 'divisor' \(3\)"):
        call.finish({"padding": 0, "mode": None})
    call.leave("divisor")
    call.finish({"padding": 0})


def test_without_the_package(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match="pip install onnx"):
        arete.onnx.export(nn.Linear(2, 2), arete.ones(1, 2))


class Choice(nn.Module):
    """Branches and loops in each other, which take what is outside of them."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(arete.eye(3) * 1.5)

    def forward(self, x):
        scale = x.mean()

        def loop(x):
            return while_loop(lambda i, y: (i < 4) & (y.sum() < 40), lambda i, y: (i + 1, arete.cond(y.max() > 3, lambda: y + scale,
                                                                                                     lambda: y @ self.w)),
                              (arete.tensor(0), x))

        return arete.cond(x.sum() > 0, loop, lambda x: (arete.tensor(7), x * scale), (x,))


def test_branches_and_loops():
    onnx.helper.make_opsetid("", 18)  # skips where it is missing
    net = Choice()
    file = io.BytesIO()
    arete.onnx.export(net, (arete.ones(2, 3),), file, dynamic_axes={"x": {0: "n"}})
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    for x in (arete.ones(2, 3), arete.full((4, 3), 9.0), -arete.ones(3, 3), arete.eye(3)):
        found = session.run(None, {"x": x.numpy()})
        for got, wanted in zip(found, net(x)):
            assert got.dtype == wanted.detach().numpy().dtype
            np.testing.assert_allclose(got, wanted.detach().numpy(), rtol=1e-6)

    def writes(x):
        y = x + 1
        return arete.cond(x.sum() > 0, lambda: y.mul_(2), lambda: y * 3)

    class Writes(nn.Module):
        def forward(self, x):
            return writes(x)

    with pytest.raises(NotImplementedError, match="into what it did not make"):
        arete.onnx.export(Writes(), (arete.ones(2),), io.BytesIO())


class Arm(nn.Module):
    """Writes into what an arm gives, or a loop carries, or (read=False) in what it may have been."""

    def __init__(self, control, read):
        super().__init__()
        self.control, self.read = control, read

    def forward(self, x):
        z = x + 1
        y = self.control(x, z)
        z.add_(1)
        return y if self.read else z


@pytest.mark.parametrize("control", [
    lambda x, z: arete.cond(x.sum() > 0, lambda: z, lambda: z * 2),
    lambda x, z: arete.cond(x.sum() > 0, lambda: z * 2, lambda: arete.cond(x.max() > 0, lambda: z.view(-1), lambda: z * 3)),
    lambda x, z: while_loop(lambda y: y.sum() < 1, lambda y: (y * 2,), (z,))[0],
    lambda x, z: while_loop(lambda a, b: a.sum() < 1, lambda a, b: (a + b, a), (x * 3, z))[0],
    lambda x, z: while_loop(lambda a: a.sum() < 1, lambda a: (z,), (x * 3,))[0]])
def test_what_arms_give_shows_the_memory_that_they_took(control):
    onnx.helper.make_opsetid("", 18)  # skips where it is missing
    with pytest.raises(NotImplementedError, match="other values show"):
        arete.onnx.export(Arm(control, True), (arete.ones(2),), io.BytesIO())
    file = io.BytesIO()
    arete.onnx.export(Arm(control, False), (arete.ones(2),), file)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": np.ones(2, np.float32)})[0], Arm(control, False)(arete.ones(2)).numpy())
