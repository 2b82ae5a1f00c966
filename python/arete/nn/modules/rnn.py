"""Recurrent layers and cells."""

from __future__ import annotations

import math
import numbers
from typing import Any, List, Optional, Tuple

from ... import _C, _operators
from ..._C import Tensor
from .. import init
from ..parameter import Parameter
from .._packed import PackedSequence
from ._records import check, layer
from .module import Module

__all__ = ["RNNBase", "RNN", "LSTM", "GRU", "RNNCellBase", "RNNCell", "LSTMCell", "GRUCell"]


_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}
_KINDS = {"RNN_TANH": "RNN", "RNN_RELU": "RNN"}


def _check_types(**options: Any) -> None:
    dropout = options["dropout"]
    if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool):
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an "
            "element being zeroed"
        )
    for name, kind in (("bias", bool), ("batch_first", bool), ("input_size", int), ("hidden_size", int)):
        if not isinstance(options[name], kind):
            got = type(options[name]).__name__
            raise TypeError(f"{name} should be of type {kind.__name__}, got: {got}")


def _refuse_options(layer: str, options: Any) -> None:
    """Options that RNN and GRU do not have."""
    if "proj_size" in options:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
    if options:
        raise TypeError(f"{layer}.__init__() got an unexpected keyword argument '{next(iter(options))}'")


def _check_whole(module: Module, *tensors: Any) -> None:
    """NotImplementedError for DTensors, of which this process has a part."""
    if any(getattr(t, "_spec", None) is not None for t in tensors):
        raise NotImplementedError(f"{type(module).__name__}: recurrent layers do not compute with tensors that are spread over processes; "
                                  "take to_local() or full_tensor()")


@layer("LSTM")
class RNNBase(Module):
    """What the recurrent layers share.

    Parameters of layer k: weight_ih_l<k> (gates * hidden, input), weight_hh_l<k>, bias_ih_l<k>,
    bias_hh_l<k>, with a projection weight_hr_l<k>; those of the backward direction end in
    "_reverse". All start uniform in +-1 / sqrt(hidden).

    >>> nn.RNNBase("GRU", 3, 4).weight_ih_l0.shape
    arete.Size([12, 3])
    >>> nn.RNNBase("XYZ", 3, 4)
    Traceback (most recent call last):
    ValueError: Unrecognized RNN mode: XYZ
    """

    __constants__ = [
        "mode",
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ]

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_types(
            dropout=dropout,
            bias=bias,
            batch_first=batch_first,
            input_size=input_size,
            hidden_size=hidden_size,
        )
        kind = _KINDS.get(mode, mode)
        f = ("relu" if mode == "RNN_RELU" else "tanh",) if kind == "RNN" else ()
        flags = (bias, batch_first, dropout, bidirectional, proj_size)
        if mode in _GATES:
            check(kind, input_size, hidden_size, num_layers, *f, *flags)
        else:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._all_weights: List[List[str]] = []
        gates = _GATES[mode] * hidden_size
        state = proj_size or hidden_size
        directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            features = input_size if layer == 0 else state * directions
            for suffix in ("", "_reverse")[:directions]:
                end = f"_l{layer}{suffix}"
                shapes: dict = {
                    "weight_ih" + end: (gates, features),
                    "weight_hh" + end: (gates, state),
                }
                if bias:
                    shapes["bias_ih" + end] = shapes["bias_hh" + end] = (gates,)
                if proj_size:
                    shapes["weight_hr" + end] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    setattr(self, name, Parameter(_operators.empty(shape, device=device, dtype=dtype)))
                self._all_weights.append(list(shapes))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Does nothing: the weights need not be in one block."""

    @property
    def all_weights(self) -> List[List[Tensor]]:
        """The parameters by layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> List[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> List[Tensor]:
        return [getattr(self, name) for name in self._flat_weights_names]

    def _run(self, input: Any, hx: Any) -> Tuple[Any, Tuple[Tensor, ...]]:
        """The output and the last states, h or (h, c)."""
        sizes, packed = [], isinstance(input, PackedSequence)
        data, order, back = input, None, None
        if packed:
            data, batch_sizes, order, back = input
            sizes = batch_sizes.tolist()
            if hx is not None and order is not None:
                hx = tuple(s.index_select(1, order) for s in hx)
        _check_whole(self, data, *(hx or ()))
        weights = []
        for names in self._all_weights:
            own = [getattr(self, name) for name in names]
            w_hr = own.pop() if self.proj_size else None
            weights.append([*own, *([None] * (4 - len(own))), w_hr])
        out, last = _C._rnn(
            self.mode,
            type(self).__name__,
            self.input_size,
            self.hidden_size,
            self.num_layers,
            self.bidirectional,
            self.proj_size,
            self.batch_first,
            self.dropout if self.training else 0.0,
            weights,
            data,
            hx or (),
            sizes,
        )
        if back is not None:
            last = [s.index_select(1, back) for s in last]
        return PackedSequence(out, batch_sizes, order, back) if packed else out, tuple(last)


class RNN(RNNBase):
    """h = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh), or relu, over (T, N, input) or packed input.

    Gives all outputs (T, N, directions * hidden) and the last state (layers * directions, N,
    hidden).

    >>> output, h = nn.RNN(10, 20)(arete.randn(7, 3, 10))
    >>> output.shape, h.shape
    (arete.Size([7, 3, 20]), arete.Size([1, 3, 20]))
    >>> nn.RNN(10, 20)(arete.randn(7, 3, 11))
    Traceback (most recent call last):
    arete.ArgumentError: input.size(-1) must be equal to input_size. Expected 10, got 11...
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        _refuse_options("RNN", kwargs)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(
            "RNN_" + nonlinearity.upper(),
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        output, states = self._run(input, None if hx is None else (hx,))
        return output, states[0]


class LSTM(RNNBase):
    """Gates i, f, g, o: c = f c + i g, h = o tanh(c), over (T, N, input) or packed input.

    Gives all outputs and the last states (h, c). proj_size projects h to that many features.

    >>> lstm = nn.LSTM(10, 20, num_layers=2, batch_first=True)
    >>> output, (h, c) = lstm(arete.randn(3, 7, 10))
    >>> output.shape, h.shape, c.shape
    (arete.Size([3, 7, 20]), arete.Size([2, 3, 20]), arete.Size([2, 3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )

    def forward(
        self, input: Any, hx: Optional[Tuple[Tensor, Tensor]] = None
    ) -> Tuple[Any, Tuple[Tensor, Tensor]]:
        output, states = self._run(input, None if hx is None else tuple(hx))
        return output, (states[0], states[1])


class GRU(RNNBase):
    """Gates r, z, n: n = tanh(x W_in + b_in + r (h W_hn + b_hn)), h = (1 - z) n + z h.

    >>> output, h = nn.GRU(10, 20, num_layers=2, bidirectional=True)(arete.randn(7, 3, 10))
    >>> output.shape, h.shape
    (arete.Size([7, 3, 40]), arete.Size([4, 3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        _refuse_options("GRU", kwargs)
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )

    forward = RNN.forward


@layer("GRUCell")
class RNNCellBase(Module):
    """One step of a recurrence: weight_ih, weight_hh, bias_ih, bias_hh.

    >>> nn.RNNCellBase(3, 4, bias=True, num_chunks=1).weight_ih.shape
    arete.Size([4, 3])
    """

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        options: dict = {"device": device, "dtype": dtype}
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(_operators.empty((rows, input_size), **options))
        self.weight_hh = Parameter(_operators.empty((rows, hidden_size), **options))
        if bias:
            self.bias_ih = Parameter(_operators.empty(rows, **options))
            self.bias_hh = Parameter(_operators.empty(rows, **options))
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    reset_parameters = RNNBase.reset_parameters

    def _step(self, mode: str, input: Tensor, states: Optional[Tuple]) -> List[Tensor]:
        _check_whole(self, input, *(states or ()))
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return _C._rnn_cell(mode, type(self).__name__, weights, input, states or ())


@layer
class RNNCell(RNNCellBase):
    """One step: input (N, input) and h (N, hidden), or without N, -> the new h.

    >>> nn.RNNCell(10, 20)(arete.randn(3, 10), arete.zeros(3, 20)).shape
    arete.Size([3, 20])
    """

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]
    nonlinearity: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        states = None if hx is None else (hx,)
        return self._step("RNN_" + self.nonlinearity.upper(), input, states)[0]


class LSTMCell(RNNCellBase):
    """One step: input (N, input) and (h, c) of (N, hidden) each -> the new (h, c).

    >>> h, c = nn.LSTMCell(10, 20)(arete.randn(3, 10))
    >>> h.shape, c.shape
    (arete.Size([3, 20]), arete.Size([3, 20]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None
    ) -> Tuple[Tensor, Tensor]:
        h, c = self._step("LSTM", input, None if hx is None else tuple(hx))
        return h, c


class GRUCell(RNNCellBase):
    """One step: input (N, input) and h (N, hidden) -> the new h.

    >>> nn.GRUCell(10, 20)(arete.randn(3, 10)).shape
    arete.Size([3, 20])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        return self._step("GRU", input, None if hx is None else (hx,))[0]
