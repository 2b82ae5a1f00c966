"""Every public function and class says what it does and shows an example, and the examples print what they say."""
import doctest
import importlib
import inspect
import warnings

import pytest

import arete
from arete import _C

MODULES = [
    "arete.compiler", "arete.distributed", "arete.export", "arete.func", "arete.futures", "arete.jit", "arete.onnx", "arete.overrides",
    "arete.utils._pytree", "arete", "arete.nn", "arete.nn.functional", "arete.nn.init", "arete.nn.utils", "arete.nn.utils.rnn",
    "arete.nn.utils.parametrize", "arete.nn.utils.prune", "arete.nn.parallel", "arete.linalg", "arete.fft", "arete.special", "arete.optim",
    "arete.optim.lr_scheduler", "arete.optim.swa_utils", "arete.utils.data", "arete.utils.checkpoint",
    "arete.utils.dlpack", "arete.autograd", "arete.autograd.forward_ad", "arete.nested", "arete.random", "arete.distributions",
    "arete.metrics", "arete.training",
    "arete.distributions.constraints", "arete.distributions.location_scale", "arete.distributions.relaxed", "arete.masked",
    "arete.signal.windows", "arete.testing",
    "arete.vision.io", "arete.vision.datasets", "arete.vision.transforms", "arete.vision.transforms.functional",
]

# Without an example, and why.
NO_EXAMPLE = {
    "arete.utils.checkpoint.noop_context_fn": "a default argument",
    "arete.nn.parallel.data_parallel": "needs GPUs",
    # They need a group: docs/distributed.md has examples.
    **dict.fromkeys(["arete.distributed." + name for name in (
        "FileStore", "GradBucket", "GroupMember", "HashStore", "P2POp", "PrefixStore", "ProcessGroup", "ReduceOp", "Store",
        "TCPStore", "Work", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
        "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "destroy_process_group", "gather",
        "gather_object", "get_backend", "get_global_rank", "get_group_rank", "get_process_group_ranks", "get_rank", "get_world_size",
        "irecv", "isend", "monitored_barrier", "new_group", "recv", "recv_object_list", "reduce", "reduce_scatter",
        "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "send_object_list")], "needs a group of processes"),
    # Each calls the function of the same name with an underscore, with a warning.
    **dict.fromkeys(["arete.nn.init." + name for name in (
        "uniform", "normal", "constant", "eye", "dirac", "xavier_uniform", "xavier_normal", "kaiming_uniform",
        "kaiming_normal", "orthogonal", "sparse")], "an older name"),
}


def _is_ours(value):
    if isinstance(value, (_C.Operator, type(arete.tensor))):  # of records, and made in C++
        return True
    home = getattr(value, "__module__", None) or ""
    return (inspect.isclass(value) or inspect.isroutine(value)) and home.split(".")[0] == "arete"


def _public():
    """The functions and classes of each module, each one where it comes first."""
    found, seen = {}, set()
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        found[module_name] = own = {}
        for name in dir(module):
            value = getattr(module, name, None)  # some submodules are listed that this machine lacks
            if not name.startswith("_") and _is_ours(value) and id(value) not in seen:
                seen.add(id(value))
                own[f"{module_name}.{name}"] = value
    return found


PUBLIC = _public()


def _failures(name, text):
    """What the examples in a text printed wrongly, and how many there are."""
    scope = {"arete": arete, "nn": importlib.import_module("arete.nn"),
             "F": importlib.import_module("arete.nn.functional")}
    test = doctest.DocTestParser().get_doctest(text, scope, name, name, 0)
    report = []
    arete.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The ellipsis stands for the ends of long messages.
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    return "".join(report), len(test.examples)


def _check(name, value):
    """What is wrong with the documentation of one thing, or nothing."""
    text = value.__doc__
    if not text or not text.strip():
        return f"{name} has no docstring"
    report, count = _failures(name, text)
    is_error = inspect.isclass(value) and issubclass(value, BaseException)
    if count == 0 and name not in NO_EXAMPLE and not is_error:
        return f"{name} has no example"
    if count and name in NO_EXAMPLE:
        return f"{name} has an example: take it off the list of those without"
    return report


@pytest.mark.parametrize("module", MODULES)
def test_examples(module):
    assert PUBLIC[module]
    wrong = [report for name, value in PUBLIC[module].items() if (report := _check(name, value))]
    assert not wrong, "\n".join(wrong)


def test_methods_of_tensors():
    """Those made from records, and the methods and properties written in Python."""
    ours = (_C.OperatorMethod, type(_check), property)
    methods = {f"arete.Tensor.{name}": value for name, value in vars(arete.Tensor).items()
               if not name.startswith("_") and isinstance(value, ours)}
    assert {type(value) for value in methods.values()} == set(ours)
    # The first needs a GPU; the others are mere names.
    no_example = {"arete.Tensor." + name for name in ("cuda", "grad_fn", "names", "layout")}
    wrong = [r for name, value in methods.items() if (r := _check(name, value)) and name not in no_example]
    assert not wrong, "\n".join(wrong)


def test_public_names_are_those_of_the_library():
    assert not {"install", "_ops", "Any"} & {name.rsplit(".", 1)[1] for own in PUBLIC.values() for name in own}
    assert NO_EXAMPLE.keys() <= {name for own in PUBLIC.values() for name in own}


def test_wrong_examples_are_found():
    assert "Expected" in _failures("wrong", "Adds.\n\n>>> 1 + 1\n3\n")[0]
    assert "Exception raised" in _failures("raising", ">>> arete.ones(2) @ arete.ones(3)\n")[0]
    assert _failures("right", ">>> F.relu(arete.tensor([-1.0]))\ntensor([0.])\n") == ("", 1)


def test_documentation_of_operators():
    text = arete.matmul.__doc__
    for part in ("matmul(", "Shapes", "Dtypes: float32", "Gradient:", "Errors:", ">>> "):
        assert part in text, part
