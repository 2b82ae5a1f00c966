"""The layers of C++ beside those of Python: what there is, texts, states, initial values, results, gradients and refusals."""

from __future__ import annotations

import inspect
import re

import pytest
from nn_cases import LAYERS, LOSSES
from nn_helpers import assert_same, ours, values

import arete
from arete import _C, nn

pytestmark = pytest.mark.filterwarnings("ignore")

TABLE = _C._layers()
KINDS = {name: {option: kind.rstrip("?") for option, kind, _ in line[1]} for name, line in TABLE.items()}
CPP = set(_C._cpp_layers())
PYTHON_ONLY = {
    "CrossMapLRN2d": "torch's older name of LocalResponseNorm",
}
# Options that C++ has not: positions of maxima are results of operators there, and only torch has older words for reduction.
NOT_IN_CPP = {"return_indices", "size_average", "reduce"}
# Values that Python's layers take in a way of their own, as torch's do.
PYTHONS_OWN = {("Unflatten", "unflattened_size"), ("Upsample", "scale_factor"), ("RNN", "proj_size"), ("GRU", "proj_size")}

MORE = [
    ("AdaptiveAvgPool2d((5, 3))", [(2, 3, 9, 8)]),
    ("AdaptiveMaxPool2d((4, 3))", [(2, 3, 9, 8)]),
    ("FractionalMaxPool2d(2, output_size=3)", [(2, 3, 8, 8)]),
    ("FractionalMaxPool3d((2, 2, 2), output_ratio=0.5)", [(1, 2, 6, 6, 6)]),
]


def recorded(name, *args, **kwargs):
    """The options of a call of Python's layer by their names, of the types of the table."""
    options = dict(inspect.signature(getattr(nn, name)).bind(*args, **kwargs).arguments)
    return {k: float(v) if KINDS[name][k] == "float" and v is not None else v for k, v in options.items()}


def cases():
    for text, inputs in [*LAYERS, *MORE]:
        name = text.partition("(")[0]
        if name not in TABLE or name in PYTHON_ONLY or "return_indices" in text or "(None" in text or "None))" in text:
            continue
        options = {} if name == "Identity" else eval(f"recorded({name!r}, {text.partition('(')[2]}", {"recorded": recorded})
        yield pytest.param(name, options, inputs, id=text)
    for i, (name, options, inputs) in enumerate(LOSSES):
        if name in TABLE:
            yield pytest.param(name, options, inputs, id=f"{name}{i}")


CASES = [*cases(), pytest.param("CTCLoss", {}, None, id="CTCLoss")]


def pair(name, options):
    options = {k: ours(values(v, 9)) if isinstance(v, str) and v[1:2] == ":" else v for k, v in options.items()}
    arete.manual_seed(3)
    python = getattr(nn, name)(**options)
    arete.manual_seed(3)
    return python, _C._cpp_layer(name, **options)


def test_both_have_all_layers():
    assert set(TABLE) - CPP == set(PYTHON_ONLY)
    assert CPP <= set(TABLE)
    assert all(hasattr(nn, name) for name in TABLE)
    assert CPP == {case.values[0] for case in CASES}


@pytest.mark.parametrize("name,options,inputs", CASES)
def test_same_layer(name, options, inputs):
    python, cpp = pair(name, options)
    assert text_of(cpp) == text_of(python)
    state, other = python.state_dict(), cpp.state_dict()
    assert set(cpp.parameters()) == dict(python.named_parameters()).keys()
    assert other.keys() == state.keys()
    for key, value in state.items():
        assert other[key].dtype == value.dtype and arete.equal(value, other[key]), f"initial value of {key}"
    for training in (False, True) if inputs else ():
        python.train(training), cpp.train(training)
        expected = run(python, dict(python.named_parameters()), inputs, "inplace" in options)
        for key, value in run(cpp, cpp.parameters(), inputs, "inplace" in options).items():
            assert_same(value, expected.pop(key))
        assert not expected


def run(layer, parameters, inputs, inplace):
    """Results, gradients and state after a call and its backward pass."""
    leaves = [ours(values(s, i + 1)).requires_grad_(not inplace and not s.startswith("i") if isinstance(s, str) else not inplace)
              for i, s in enumerate(inputs)]
    for p in parameters.values():
        p.grad = None
    arete.manual_seed(5)
    y = tensors(layer(*leaves))
    differentiable = [t for t in y if t.requires_grad]
    if differentiable:
        sum((t * t).sum() for t in differentiable).backward()
    named = {**{f"input {i}": t for i, t in enumerate(leaves)}, **parameters}
    return {"results": y, **{f"gradient of {k}": t.grad for k, t in named.items() if t.grad is not None},
            **{f"state {k}": t for k, t in layer.state_dict().items()}}


def tensors(x):
    return [t for part in x for t in tensors(part)] if isinstance(x, (tuple, list)) else [x] if x is not None else []


BAD = {"int": (-1, 0, 3), "float": (-1.0, 0.0, 2.0), "str": ("x",), "bool": (True, False)}


@pytest.mark.parametrize("name", sorted(CPP))
def test_same_refusals(name):
    options = next(case.values[1] for case in CASES if case.values[0] == name)
    options = {k: v for k, v in options.items() if KINDS[name][k] != "Tensor"}
    for option, kind in KINDS[name].items():
        if option in NOT_IN_CPP or (name, option) in PYTHONS_OWN:
            continue
        for value in BAD.get(kind.partition("[")[0], ()):
            given = {**options, option: value}
            cpp = outcome(lambda: _C._cpp_layer(name, **given))
            assert cpp == outcome(lambda: getattr(nn, name)(**given)), f"{option}={value!r}"


def outcome(build):
    """What a layer prints, or the error of its construction."""
    try:
        return text_of(build())
    except (RuntimeError, ValueError) as e:
        return re.split(r"\.* Operator: ", str(e))[0].rstrip(".")


def text_of(layer):
    return repr(layer).replace("NonDynamicallyQuantizableLinear", "Linear")  # torch's name of the same


# Classes of arete.nn and arete.optim without a twin of their name in C++, and why.
NO_TWIN = {
    "TripletMarginWithDistanceLoss": "takes a Python function: triplet_margin_loss and distances are functions there",
    "CrossMapLRN2d": "see PYTHON_ONLY", "NLLLoss2d": "torch's older name of NLLLoss",
    "Container": "torch's older base class", "ParameterDict": "register_parameter", "ParameterList": "register_parameter",
    "RNNCellBase": "CellBase there", "UpsamplingBilinear2d": "torch's older name of Upsample",
    "UpsamplingNearest2d": "torch's older name of Upsample",
}


def test_every_class_has_a_twin_in_cpp():
    import pathlib

    from arete import optim

    sources = pathlib.Path(__file__).resolve().parents[2] / "arete"
    if not sources.is_dir():
        pytest.skip("the sources are not here")
    text = "\n".join(h.read_text() for room in ("nn", "optim", "distributed") for h in (sources / room).glob("*.h"))
    there = CPP | set(re.findall(r"^(?:class|struct|using) (\w+)", text, re.MULTILINE))
    wanted = {name for home in (nn, optim, optim.lr_scheduler, optim.swa_utils) for name, value in vars(home).items()
              if inspect.isclass(value) and not name.startswith("_") and value.__module__.startswith(("arete.nn", "arete.optim"))}
    # Sizes are arguments in C++, so nothing is left for the first call to find out.
    missing = {name for name in wanted - there if not name.startswith(("Lazy", "Uninitialized"))}
    assert missing == set(NO_TWIN)
