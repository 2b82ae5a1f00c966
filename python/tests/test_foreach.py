"""`_foreach_*` beside PyTorch's: values, dtypes, gradients, writes in place, errors."""
import math

import numpy as np
import pytest

import arete
from arete._operators._foreach import _TABLE, _UNARY
from peer import peer

torch = peer()

SIZES = ((3,), (2, 4), (), (0, 2))
DTYPES = ("float32", "float64", "bfloat16", "int64", "bool")


def lists(dtype="float32", seed=0, low=0.1, high=0.9, sizes=SIZES):
    """The same tensors for both libraries."""
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(low, high, s) * (4 if dtype == "int64" else 1) for s in sizes]
    if dtype == "bool":
        arrays = [a > 0.5 for a in arrays]
    return tuple([lib.tensor(a.tolist(), dtype=getattr(lib, dtype)).reshape(a.shape) for a in arrays] for lib in (arete, torch))


def numbers(t):
    return t.detach().double().numpy()


def same(ours, theirs, rtol=None):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert str(a.dtype).rpartition(".")[2] == str(b.dtype).rpartition(".")[2]
        assert tuple(a.shape) == tuple(b.shape)
        eps = {"float64": 1e-12, "float32": 3e-6, "bfloat16": 1e-2}.get(str(b.dtype).rpartition(".")[2], 0)
        np.testing.assert_allclose(numbers(a), numbers(b), rtol=rtol or eps, atol=eps, equal_nan=True)


def outcome(f):
    try:
        return f(), None
    except (RuntimeError, TypeError, ValueError, IndexError) as e:
        return None, e


def both(name, build):
    """What `name` gives of the arguments that build(library, first list, second list, ...) makes: equal results, or an error in both."""
    ours, error = outcome(lambda: getattr(arete, name)(*build(arete)[0], **build(arete)[1]))
    theirs, expected = outcome(lambda: getattr(torch, name)(*build(torch)[0], **build(torch)[1]))
    # A dtype that torch has no kernel for, and differences of booleans and numbers, are no matter of lists.
    if isinstance(expected, NotImplementedError) or "with a bool tensor is not supported" in str(expected):
        return error, expected
    assert (error is None) == (expected is None), (name, error, expected)
    if expected is None:
        assert type(ours) is type(theirs)
        same(ours, theirs)
    return error, expected


def chosen(lib, pair):
    return [t.clone() for t in pair[0 if lib is arete else 1]]


@pytest.mark.parametrize("name", _UNARY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_one_list(name, dtype):
    x = lists(dtype)
    both(f"_foreach_{name}", lambda lib: ((chosen(lib, x),), {}))
    both(f"_foreach_{name}_", lambda lib: ((chosen(lib, x),), {}))


BINARY = [n for n, row in _TABLE.items() if row.last is not None and not row.lists]


@pytest.mark.parametrize("ending", ("", "_"))
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_two_operands(name, dtype, ending):
    x, y = lists(dtype), lists(dtype, seed=1)
    name = f"_foreach_{name}{ending}"
    operands = [
        lambda lib: chosen(lib, y),
        lambda lib: 2,
        lambda lib: 1.5,
        lambda lib: [1, 2, 3, 2],
        lambda lib: [0.5, 2.0, 1, 2],
        lambda lib: lib.tensor(2.0),
        lambda lib: lib.tensor(3.0, dtype=lib.float64),
        lambda lib: lib.ones(2),
        lambda lib: True,
        lambda lib: "x",
        lambda lib: None,
        lambda lib: [1.0],
        lambda lib: chosen(lib, y)[:2],
    ]
    for operand in operands:
        both(name, lambda lib: ((chosen(lib, x), operand(lib)), {}))


@pytest.mark.parametrize("name", ("add", "sub"))
def test_alpha_goes_with_tensors(name):
    x, y = lists(), lists(seed=1)
    for ending in ("", "_"):
        both(f"_foreach_{name}{ending}", lambda lib: ((chosen(lib, x), chosen(lib, y)), {"alpha": 2.5}))
        both(f"_foreach_{name}{ending}", lambda lib: ((chosen(lib, x), lib.tensor(2.0)), {"alpha": 3}))
        both(f"_foreach_{name}{ending}", lambda lib: ((chosen(lib, x), 1), {"alpha": 3}))
        both(f"_foreach_{name}{ending}", lambda lib: ((chosen(lib, x), chosen(lib, y), 3), {}))


@pytest.mark.parametrize("ending", ("", "_"))
@pytest.mark.parametrize("dtype", ("float32", "float64", "bfloat16"))
def test_functions_of_three_lists(dtype, ending):
    x, y, z = lists(dtype), lists(dtype, seed=1), lists(dtype, seed=2)
    for name in ("addcmul", "addcdiv"):
        for last in ((), (2,), (0.5,), ([1, 2, 3.0, 4],), ([1.0],)):
            both(f"_foreach_{name}{ending}", lambda lib: ((chosen(lib, x), chosen(lib, y), chosen(lib, z), *last), {}))
        for scalars in ([1.0, 2.0, 3.0, 4.0], [1.0], [[1.0, 2.0, 3.0, 4.0]]):
            both(f"_foreach_{name}{ending}",
                 lambda lib: ((chosen(lib, x), chosen(lib, y), chosen(lib, z), lib.tensor(scalars)), {}))
        both(f"_foreach_{name}{ending}", lambda lib: ((chosen(lib, x), chosen(lib, y), chosen(lib, z)), {"value": 3}))
        both(f"_foreach_{name}{ending}", lambda lib: ((chosen(lib, x), chosen(lib, y)[:1], chosen(lib, z)), {}))
    for weight in (lambda lib: 0.25, lambda lib: chosen(lib, z), lambda lib: [0.1, 0.2, 0.3, 0.4], lambda lib: [0.5]):
        both(f"_foreach_lerp{ending}", lambda lib: ((chosen(lib, x), chosen(lib, y), weight(lib)), {}))


def test_keywords():
    x = lists()
    for name, key, value in (("add", "scalar", 2), ("add", "scalars", [1, 2, 3, 4]), ("pow", "exponent", 2), ("mul", "scalar", 2.0),
                             ("add", "other", 2), ("add", "nothing", 2)):
        both(f"_foreach_{name}", lambda lib: ((chosen(lib, x),), {key: value}))
    both("_foreach_add", lambda lib: ((), {"self": chosen(lib, x), "other": chosen(lib, x)}))
    both("_foreach_lerp", lambda lib: ((chosen(lib, x), chosen(lib, x)), {"weight": 0.5}))


def test_numbers_to_the_power_of_tensors():
    x = lists()
    both("_foreach_pow", lambda lib: ((2.0, chosen(lib, x)), {}))
    both("_foreach_pow", lambda lib: ((2, chosen(lib, lists("int64"))), {}))
    both("_foreach_pow", lambda lib: ((2, 2), {}))
    both("_foreach_pow_", lambda lib: ((2.0, chosen(lib, x)), {}))


def test_dtypes_meet_as_in_single_calls():
    x, y = lists("bfloat16"), lists("float32", seed=1)
    both("_foreach_add", lambda lib: ((chosen(lib, x), chosen(lib, y)), {}))
    both("_foreach_add_", lambda lib: ((chosen(lib, x), chosen(lib, y)), {}))
    mixed = tuple([a[0], b[1], *c[2:]] for a, b, c in zip(lists("int64"), lists("float64"), lists("bfloat16")))
    both("_foreach_mul", lambda lib: ((chosen(lib, mixed), 1.5), {}))
    both("_foreach_div", lambda lib: ((chosen(lib, mixed), 2), {}))


def test_shapes_broadcast_as_in_single_calls():
    wide, narrow, other = lists(sizes=((3, 2), (4,))), lists(seed=1, sizes=((2,), ())), lists(sizes=((3,), (5,)))
    for name in ("_foreach_add", "_foreach_add_"):
        both(name, lambda lib: ((chosen(lib, wide), chosen(lib, narrow)), {}))
        both(name, lambda lib: ((chosen(lib, narrow), chosen(lib, wide)), {}))
        both(name, lambda lib: ((chosen(lib, wide), chosen(lib, other)), {}))
    strided = tuple([t.t() if t.dim() == 2 else t[::2] for t in side] for side in wide)
    both("_foreach_mul", lambda lib: ((strided[0 if lib is arete else 1], 3.0), {}))


@pytest.mark.parametrize("order", (0, 1, 2, 3, 2.5, -1, math.inf, -math.inf))
@pytest.mark.parametrize("dtype", ("float32", "float64", "bfloat16"))
def test_norms(order, dtype):
    for low, sizes in ((0.1, SIZES[:3]), (-0.9, SIZES)):
        x = lists(dtype, low=low, sizes=sizes)
        both("_foreach_norm", lambda lib: ((chosen(lib, x), order), {}))
        both("_foreach_norm", lambda lib: ((chosen(lib, x),), {"ord": order, "dtype": lib.float64}))
        both("_foreach_powsum", lambda lib: ((chosen(lib, x), order), {}))


def test_reductions_refuse_what_torch_refuses():
    both("_foreach_norm", lambda lib: ((chosen(lib, lists("int64")),), {}))
    both("_foreach_norm", lambda lib: ((chosen(lib, lists()), "inf"), {}))
    both("_foreach_max", lambda lib: ((chosen(lib, lists()),), {}))
    for dtype in DTYPES:
        both("_foreach_max", lambda lib: ((chosen(lib, lists(dtype, sizes=SIZES[:3])),), {}))


def test_zero_and_copy():
    x, y = lists(), lists("float64", seed=1)
    for dtype in (*DTYPES, "complex64"):
        both("_foreach_zero_", lambda lib: ((chosen(lib, lists(dtype)) + chosen(lib, lists()),), {}))
    for src in (y, lists("int64"), lists(), lists(sizes=((1,), (4,), (), (2,))), lists(sizes=((5,), (2, 4), (), (0, 2)))):
        both("_foreach_copy_", lambda lib: ((chosen(lib, x), chosen(lib, src)), {}))
    both("_foreach_copy_", lambda lib: ((chosen(lib, x), chosen(lib, y)[:2]), {}))


def test_empty_lists_are_refused():
    for name, args in (("add", ([], 1)), ("add", ([], [])), ("add_", ([], 1)), ("sqrt", ([],)), ("zero_", ([],)), ("norm", ([],)),
                       ("max", ([],)), ("copy_", ([], [])), ("lerp", ([], [], 1)), ("pow", (2, [])), ("addcmul", ([], [], []))):
        error, expected = both(f"_foreach_{name}", lambda lib: (args, {}))
        assert str(error).startswith(str(expected)), name


def test_lists_with_none_are_refused():
    x = arete.ones(2)
    for name, args in (("zero_", ([x, None],)), ("copy_", ([x], [None])), ("copy_", ([None], [x])), ("norm", ([None],)), ("max", ([None],)),
                       ("add", ([None], 1)), ("lerp", ([x], [None], 1.0))):
        with pytest.raises(TypeError):
            getattr(arete, f"_foreach_{name}")(*args)
    with pytest.raises(TypeError):
        arete.nn.utils.get_total_norm([None])
    with pytest.raises(TypeError):
        arete.nn.utils.clip_grad_value_([None], 1.0)


def test_texts_of_errors():
    x = lists()
    for name, build in (
        ("add", lambda lib: (chosen(lib, x), chosen(lib, x)[:1])),
        ("add", lambda lib: (chosen(lib, x), [1.0])),
        ("add", lambda lib: (chosen(lib, x), lib.ones(2))),
        ("addcmul", lambda lib: (chosen(lib, x),) * 3 + (lib.ones(3),)),
        ("addcmul", lambda lib: (chosen(lib, x),) * 3 + (lib.tensor(1.0),)),
        ("add", lambda lib: ([None], 1)),
        ("norm", lambda lib: (chosen(lib, x), math.inf)),
        ("add_", lambda lib: ([lib.ones(2, requires_grad=True)], 1)),
    ):
        error, expected = both(f"_foreach_{name}", lambda lib: (build(lib), {}))
        assert str(error).startswith(str(expected)), (name, str(error), str(expected))


STEPS = ("ceil", "floor", "round", "sign", "trunc")  # their gradients are 0


@pytest.mark.parametrize("name", [n for n in (*_UNARY, *BINARY, "lerp", "addcmul", "addcdiv") if n not in STEPS])
def test_gradients(name):
    row = _TABLE[name]
    sides = []
    for lib, side in zip((arete, torch), zip(*(lists("float64", seed=s, sizes=((3,), (2, 2))) for s in range(4)))):
        given = [[t.requires_grad_() for t in side[k]] for k in range(1 + len(row.lists) + (row.last is not None))]
        if row.packed:
            given = given[:3]
        results = getattr(lib, f"_foreach_{name}")(*given)
        leaves = [t for part in given for t in part]
        first = lib.autograd.grad(sum((r * r).sum() for r in results), leaves, create_graph=True)
        second = lib.autograd.grad(sum(g.sum() for g in first), leaves, allow_unused=True)
        sides.append((first, [s for s in second if s is not None]))
    same(sides[0][0], sides[1][0], rtol=1e-8)
    same(sides[0][1], sides[1][1], rtol=1e-8)


def test_gradients_of_norms_and_of_writes():
    sides = []
    for lib, side in zip((arete, torch), lists("float64", sizes=((3,), (2, 2)))):
        leaves = [t.requires_grad_() for t in side]
        copies = [t * 2 for t in leaves]
        assert getattr(lib, "_foreach_mul_")(copies, copies[::-1][:0] or [3.0, 4.0]) is not None
        norms = lib._foreach_norm(copies, 3) + lib._foreach_max(copies)
        sides.append(lib.autograd.grad(sum(norms), leaves))
    same(*sides)


def test_writes_reach_the_tensors_that_were_given():
    x = [arete.ones(3), arete.zeros(2)]
    versions = [t._version for t in x]
    assert arete._foreach_add_(x, 1) is x
    assert x[0].tolist() == [2, 2, 2] and x[1].tolist() == [1, 1]
    assert all(t._version > v for t, v in zip(x, versions))


def test_writes_that_depend_on_each_other():
    x, y = lists(sizes=((3,),)), lists(seed=1, sizes=((3,),))
    for make in (lambda a, b: ([a, b], [b, a]), lambda a, b: ([a, a], [b, b]), lambda a, b: ([a[:2], a[1:]], [b[:2], b[1:]])):
        results = []
        for lib in (arete, torch):
            a, b = chosen(lib, x)[0], chosen(lib, y)[0]
            lib._foreach_add_(*make(a, b))
            results.append([a, b])
        same(*results)


def test_complex_numbers():
    for lib in (arete, torch):
        z = [lib.tensor([3 + 4j, 1j]), lib.tensor([2.0])]
        assert [t.tolist() for t in lib._foreach_mul(z, 2)] == [[6 + 8j, 2j], [4.0]]
        assert lib._foreach_abs(z)[0].tolist() == [5.0, 1.0]
        assert lib._foreach_add(z, 1j)[1].tolist() == [2 + 1j]
        assert abs(float(lib._foreach_norm(z)[0]) - math.sqrt(26)) < 1e-6


def test_autocast_leaves_them_alone():
    x = [arete.ones(3)]
    with arete.autocast("cpu", dtype=arete.bfloat16):
        assert arete._foreach_pow(x, 2)[0].dtype == arete.float32


def test_names_are_torchs():
    here = {n for n in dir(arete) if n.startswith("_foreach_")}
    assert here == {n for n in dir(torch) if n.startswith("_foreach_")}
