"""Exceptions that leave modules say where: a note with the path, the line and what the module was given."""
import pickle
import sys

import pytest

import arete
from arete import nn

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="before notes the text has it")


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x):
        return self.qkv(x)


class Net(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleDict({"attn": Attention(w)}) for w in widths])
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x):
        for layer in self.layers:
            x = layer["attn"](x)[..., :4].relu()
        return self.head(x)


def notes_of(call, kind=RuntimeError):
    with pytest.raises(kind) as caught:
        call()
    return getattr(caught.value, "__notes__", [])


def test_path_line_and_inputs():
    (text,) = notes_of(lambda: Net([4, 4, 5, 4])(arete.ones(2, 3, 4)))
    line = Attention.forward.__code__.co_firstlineno + 1
    assert text == (f"In module 'layers.2.attn.qkv' of class Linear, part of Net, line {line} of {__file__}, "
                    "given float32[2, 3, 4] from <relu>")
    net = Net([4])
    net.head[1] = nn.Linear(7, 2)
    (text,) = notes_of(lambda: net(arete.ones(2, 4)))
    assert text.startswith("In module 'head.1' of class Linear, part of Net, line")
    net.head.register_forward_hook(lambda module, args, result: result)  # the longer way of a call
    assert notes_of(lambda: net(arete.ones(2, 4)))[0] == text


def test_errors_of_the_programs_own():
    class Failing(nn.Module):
        def forward(self, x, *, scale):
            raise KeyError("mine")

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.other = Failing(), [Failing()]  # a module in a plain list has no name

        def forward(self, which):
            return (self.own if which else self.other[0])(arete.ones(2), scale=arete.ones(3, dtype=arete.float64))

    line = Failing.forward.__code__.co_firstlineno + 1
    for which, name in ((True, "own"), (False, "<Failing>")):
        (text,) = notes_of(lambda: Outer()(which), KeyError)
        assert text == f"In module '{name}' of class Failing, part of Outer, line {line} of {__file__}, given float32[2], float64[3]"
    assert notes_of(lambda: Failing()(arete.ones(1), scale=1), KeyError) == []  # its traceback says it all


def test_an_error_that_was_caught_and_raised_again():
    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(2, 2))

        def forward(self, x):
            try:
                return self.inner(x)
            except RuntimeError as error:
                raise ValueError("of the caller") from error

    with pytest.raises(ValueError) as caught:
        Careful()(arete.ones(1, 3))
    assert not hasattr(caught.value, "__notes__")
    assert [n.partition(" of class ")[0] for n in caught.value.__cause__.__notes__] == ["In module 'inner.0'"]
    assert pickle.loads(pickle.dumps(caught.value.__cause__)).__notes__ == caught.value.__cause__.__notes__


def test_what_no_module_raised_has_no_note():
    assert notes_of(lambda: arete.ones(2, 3) @ arete.ones(2, 3)) == []
