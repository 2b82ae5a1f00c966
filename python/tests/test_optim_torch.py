"""Optimizers beside torch's: numbers, states, what programs do to states."""
import copy
import inspect
import io
import pickle

import numpy as np
import pytest
from optim_helpers import (  # noqa: F401
    BASIC, CASES, LIBRARIES, NAMES, TOLERANCE, Trainee, array, double_numbers, expect_close, expect_same_state,
)

import arete


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "bfloat16"])
@pytest.mark.parametrize("name,options", CASES)
def test_twenty_steps(name, options, dtype):
    if dtype == "complex64" and name in ("Adafactor", "Muon") or dtype == "bfloat16" and name in ("Rprop", "Muon"):
        pytest.skip("not for such parameters" if dtype == "complex64" else "rounding decides on whole steps")
    ours, theirs = (Trainee(library, name, options, dtype).step(20) for library in LIBRARIES)
    tolerance = max(TOLERANCE[dtype], 5e-7 if name in ("NAdam", "ASGD") else 0)  # numbers of the state are float32
    if name == "Muon":
        tolerance = 1e-3  # it computes in bfloat16
    if dtype == "bfloat16":  # torch rounds after each part of a step
        expect_close([np.concatenate([v.ravel() for v in t.values()]) for t in (ours,)],
                     [np.concatenate([v.ravel() for v in theirs.values()])], 0.03)
    else:
        expect_close(ours.values(), theirs.values(), tolerance)
        expect_same_state(ours, theirs, tolerance)
    assert repr(ours.optimizer) == repr(theirs.optimizer)
    for mine, other in zip(ours.optimizer.param_groups, theirs.optimizer.param_groups):
        assert {k: v for k, v in mine.items() if k != "params"} == {k: v for k, v in other.items() if k != "params"}


@pytest.mark.parametrize("name", ["NAdam", "ASGD"])
def test_numbers_of_the_state_in_double(name, double_numbers):
    ours, theirs = (Trainee(library, name).step(20) for library in LIBRARIES)
    expect_close(ours.values(), theirs.values(), 1e-12)
    expect_same_state(ours, theirs, 1e-12)


@pytest.mark.parametrize("name", NAMES + ["LBFGS"])
def test_signatures(name):
    mine, theirs = (inspect.signature(getattr(library.optim, name)).parameters for library in LIBRARIES)
    own = [n for n in mine if n not in theirs]
    assert set(own) <= {"master_weights", "capturable"} and [n for n in mine if n not in own] == list(theirs)
    for n, p in theirs.items():
        assert mine[n].kind == p.kind and (mine[n].default == p.default and type(mine[n].default) is type(p.default)), n
    assert {mine[n].kind for n in own} <= {inspect.Parameter.KEYWORD_ONLY}


# What programs do to states. Each is called in the middle of a training.


def forget(t):
    t.optimizer.state = type(t.optimizer.state)(dict)


def clear(t):
    t.optimizer.state.clear()


def clear_one(t):
    t.optimizer.state[t.params[0]].clear()


def replace_one(t):
    t.optimizer.state[t.params[1]] = {}


def pop_one(t):
    t.optimizer.state.pop(t.params[2], None)


def zero_in_place(t):
    for values in t.optimizer.state.values():
        for v in values.values():
            v.zero_()


def replace_tensors(t):
    for values in t.optimizer.state.values():
        for key, v in values.items():
            values[key] = v * 0.5 if v.dim() else v + 3


def copy_over(t):
    t.optimizer.state[t.params[1]] = copy.deepcopy(t.optimizer.state[t.params[1]])


def load_own(t):
    t.optimizer.load_state_dict(t.optimizer.state_dict())


def to_a_new_one(t):
    saved = t.optimizer.state_dict()
    t.optimizer = t.make([{"params": t.params[:2]}, {"params": t.params[2:]}], **t.options)
    t.optimizer.load_state_dict(saved)


def copied(t):
    t.optimizer = copy.deepcopy(t.optimizer)
    if t.library is not arete:
        for group in t.optimizer.param_groups:  # where there is a GPU, steps of a copied Adafactor ask for it, which has none
            group.setdefault("capturable", False)
    t.params = [p for g in t.optimizer.param_groups for p in g["params"]]


def pickled(t):
    if t.library is arete:
        t.optimizer = pickle.loads(pickle.dumps(t.optimizer))
    else:
        copied(t)
    t.params = [p for g in t.optimizer.param_groups for p in g["params"]]


def other_settings(t):
    for group in t.optimizer.param_groups:
        group["lr"] *= 0.1
        group["weight_decay" if "weight_decay" in group else "lr"] = 0.01


def new_data(t):
    for p in t.params:
        p.data = p.data.clone() + 1


def fewer_parameters(t):
    del t.optimizer.param_groups[0]["params"][1]


def another_group(t):
    extra = t.library.ones((2, 2), dtype=t.dtype).requires_grad_()
    t.params = [*t.params, extra]
    t.optimizer.add_param_group({"params": extra, "lr": 0.02})
    if "Adagrad" in type(t.optimizer).__name__:  # where torch has made the state of the first groups only
        t.optimizer.state[extra] = {"step": t.library.tensor(0.0), "sum": t.library.zeros_like(extra)}


EDITS = [forget, clear, clear_one, replace_one, pop_one, zero_in_place, replace_tensors, copy_over, load_own, to_a_new_one, copied, pickled,
         other_settings, new_data, fewer_parameters, another_group]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("name", NAMES)
def test_edits_count(name, edit, double_numbers):
    if name == "Adagrad" and edit in (forget, clear, clear_one, replace_one, pop_one):
        pytest.skip("torch makes its state at construction alone")
    trainees = [Trainee(library, name).step(4) for library in LIBRARIES]
    for t in trainees:
        edit(t)
        t.step(3)
    tolerance = 1e-6 if name == "Muon" else 1e-11  # Muon computes in bfloat16
    expect_close(*(t.values() for t in trainees), tolerance)
    if edit is not fewer_parameters:
        expect_same_state(*trainees, tolerance)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", [to_a_new_one, copied, pickled, load_own, "file"])
def test_resumed_training_is_the_same_bit_for_bit(name, way):
    whole, parts = Trainee(arete, name, dtype="float32").step(9), Trainee(arete, name, dtype="float32").step(4)
    if way == "file":
        file = io.BytesIO()
        arete.save(parts.optimizer.state_dict(), file)
        file.seek(0)
        parts.optimizer = parts.make([{"params": parts.params[:2]}, {"params": parts.params[2:]}], **parts.options)
        parts.optimizer.load_state_dict(arete.load(file))
    else:
        way(parts)
    parts.step(5)
    for a, b in zip(whole.values(), parts.values()):
        np.testing.assert_array_equal(a, b)


def test_a_copy_goes_its_own_way():
    t = Trainee(arete, "Adam").step(2)
    twin = copy.deepcopy(t)
    twin.step(1)
    assert [g is h for g, h in zip(t.optimizer.param_groups, twin.optimizer.param_groups)] == [False, False]
    assert t.optimizer.state[t.params[0]]["step"].item() == 2 and twin.optimizer.state[twin.params[0]]["step"].item() == 3
    t.step(1)
    expect_close(t.values(), twin.values(), 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_fresh_state(name):
    for library in LIBRARIES:
        t = Trainee(library, name)
        made = {p: dict(s) for p, s in t.optimizer.state.items()}
        assert type(t.optimizer.state).__name__ == "defaultdict"
        if name == "Adagrad":
            assert [sorted(made[p]) for p in t.params] == [["step", "sum"]] * 3
        else:
            assert made == {} and t.optimizer.state[t.params[0]] == {}
        assert set(t.optimizer.state_dict()) == {"state", "param_groups"}
        t.step()  # also after an empty dict has been looked at


def test_state_that_does_not_fit():
    t = Trainee(arete, "Adam").step()
    state = t.optimizer.state[t.params[0]]
    del state["exp_avg"]
    t.step()  # what is not there is made
    assert state["exp_avg"].shape == (3, 4)
    for key, value, text in [("exp_avg", arete.zeros(3, 4), "'exp_avg' does not fit"),
                             ("exp_avg", arete.zeros(2, dtype=arete.float64), "does not fit"),
                             ("step", 3.0, "must contain a list of singleton tensors"), ("step", None, "has no 'step'")]:
        before = state[key]
        state[key] = value
        with pytest.raises((RuntimeError, ValueError, TypeError), match=text):
            t.step()
        state[key] = before
    t.step()
    t.optimizer.state = []
    with pytest.raises(TypeError, match="must be a dict"):
        t.step()


def test_old_states():
    """Counts were numbers once."""
    results = []
    for library in LIBRARIES:
        t = Trainee(library, "Adam").step(3)
        saved = copy.deepcopy(t.optimizer.state_dict())
        for values in saved["state"].values():
            values["step"] = int(values["step"])
        for group in saved["param_groups"]:
            for key in ("capturable", "differentiable", "fused", "foreach", "decoupled_weight_decay"):
                del group[key]
        t.optimizer.load_state_dict(saved)
        t.step(2)
        results.append([*t.values(), array(t.optimizer.state[t.params[0]]["step"])])
        assert t.optimizer.param_groups[0]["capturable"] is False
    expect_close(*results, 1e-12)
