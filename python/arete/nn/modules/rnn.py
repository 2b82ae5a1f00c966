"""Recurrent layers and cells."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any, List, Optional, Tuple

import arete
from arete import Tensor, _ops

from .. import init
from ..parameter import Parameter
from ..utils.rnn import PackedSequence
from ._recurrence import GATES, run_direction, step
from .module import Module

__all__ = ["RNNBase", "RNN", "LSTM", "GRU", "RNNCellBase", "RNNCell", "LSTMCell", "GRUCell"]


def _check_options(mode: str, hidden_size: Any, num_layers: int, dropout: Any, proj: int) -> None:
    if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an "
            "element being zeroed"
        )
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
            f"expects num_layers greater than 1, but got dropout={dropout} and "
            f"num_layers={num_layers}",
            stacklevel=4,
        )
    if not isinstance(hidden_size, int):
        raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
    if hidden_size <= 0:
        raise ValueError("hidden_size must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if proj < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if mode not in GATES:
        raise ValueError("Unrecognized RNN mode: " + mode)


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
        _check_options(mode, hidden_size, num_layers, dropout, proj_size)
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
        gates = GATES[mode] * hidden_size
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
                    setattr(self, name, Parameter(arete.empty(shape, device=device, dtype=dtype)))
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

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.batch_first is not False:
            text += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            text += f", bidirectional={self.bidirectional}"
        return text

    # -- running ----------------------------------------------------------------------------

    def _state_sizes(self) -> Tuple[int, ...]:
        """Features of the states: h, and for LSTM c."""
        first = self.proj_size or self.hidden_size
        return (first, self.hidden_size) if self.mode == "LSTM" else (first,)

    def _check_states(self, states: Tuple[Tensor, ...], batch: int) -> None:
        count = self.num_layers * (2 if self.bidirectional else 1)
        words = ("[0]", "[1]") if len(states) == 2 else ("",)
        for state, features, word in zip(states, self._state_sizes(), words):
            expected = (count, batch, features)
            if tuple(state.shape) != expected:
                raise RuntimeError(
                    f"Expected hidden{word} size {expected}, got {list(state.shape)}"
                )

    def _layers(
        self, x: Tensor, states: Tuple[Tensor, ...], sizes: Optional[List[int]]
    ) -> Tuple[Tensor, Tuple[Tensor, ...]]:
        directions = 2 if self.bidirectional else 1
        last: List = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(directions):
                k = layer * directions + direction
                names = self._all_weights[k]
                own = [getattr(self, n) for n in names]
                w_hr = own.pop() if self.proj_size else None
                weights = [*own, *([None] * (4 - len(own))), w_hr]
                state = tuple(s[k] for s in states)
                out, end = run_direction(self.mode, x, state, weights, direction == 1, sizes)
                outputs.append(out)
                last.append(end)
            x = outputs[0] if directions == 1 else arete.cat(outputs, -1)
            if self.dropout and self.training and layer + 1 < self.num_layers:
                x = _ops.dropout(x, self.dropout)
        return x, tuple(arete.stack(parts) for parts in zip(*last))

    def _run(self, input: Any, hx: Any) -> Tuple[Any, Tuple[Tensor, ...]]:
        """The output and the last states, h or (h, c)."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        kind = type(self).__name__
        if input.dim() not in (2, 3):
            raise ValueError(
                f"{kind}: Expected input to be 2D or 3D, got {input.dim()}D tensor instead"
            )
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {input.shape[-1]}"
            )
        batched = input.dim() == 3
        if hx is not None and any(s.dim() != input.dim() for s in hx):
            n, text = (3, "batched 3-D") if batched else (2, "unbatched 2-D")
            dims = [f"{s.dim()}-D" for s in hx]
            got = f"({', '.join(dims)}) tensors" if len(dims) == 2 else f"{dims[0]} tensor"
            names = "hx and cx" if len(dims) == 2 else "hx"
            raise RuntimeError(
                f"For {text} input, {names} should also be {n}-D but got {got}"
            )
        batch_dim = 0 if self.batch_first else 1
        if not batched:
            input = input.unsqueeze(batch_dim)
            hx = None if hx is None else tuple(s.unsqueeze(1) for s in hx)
        x = input.transpose(0, 1) if self.batch_first else input
        if x.shape[0] == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        states = self._start(x, x.shape[1], hx)
        out, last = self._layers(x, states, None)
        if self.batch_first:
            out = out.transpose(0, 1)
        if not batched:
            out, last = out.squeeze(batch_dim), tuple(s.squeeze(1) for s in last)
        return out, last

    def _start(self, x: Tensor, batch: int, hx: Optional[Tuple]) -> Tuple[Tensor, ...]:
        if hx is not None:
            self._check_states(hx, batch)
            return hx
        count = self.num_layers * (2 if self.bidirectional else 1)
        return tuple(
            arete.zeros((count, batch, n), dtype=x.dtype, device=x.device)
            for n in self._state_sizes()
        )

    def _run_packed(self, input: PackedSequence, hx: Any) -> Tuple[Any, Tuple[Tensor, ...]]:
        data, batch_sizes, order, back = input
        if data.shape[-1] != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {data.shape[-1]}"
            )
        sizes = batch_sizes.tolist()
        if hx is not None and order is not None:
            hx = tuple(s.index_select(1, order) for s in hx)
        out, last = self._layers(data, self._start(data, sizes[0], hx), sizes)
        if back is not None:
            last = tuple(s.index_select(1, back) for s in last)
        return PackedSequence(out, batch_sizes, order, back), last


class RNN(RNNBase):
    """h = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh), or relu, over (T, N, input) or packed input.

    Gives all outputs (T, N, directions * hidden) and the last state (layers * directions, N,
    hidden).

    >>> output, h = nn.RNN(10, 20)(arete.randn(7, 3, 10))
    >>> output.shape, h.shape
    (arete.Size([7, 3, 20]), arete.Size([1, 3, 20]))
    >>> nn.RNN(10, 20)(arete.randn(7, 3, 11))
    Traceback (most recent call last):
    RuntimeError: input.size(-1) must be equal to input_size. Expected 10, got 11
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
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
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
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
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

    def forward(self, input: Any, hx: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        output, states = self._run(input, None if hx is None else (hx,))
        return output, states[0]


class RNNCellBase(Module):
    """One step of a recurrence: weight_ih, weight_hh, bias_ih, bias_hh.

    >>> nn.RNNCellBase(3, 4, bias=True, num_chunks=1).weight_ih.shape
    arete.Size([4, 3])
    """

    __constants__ = ["input_size", "hidden_size", "bias"]
    _mode = ""

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
        self.weight_ih = Parameter(arete.empty((rows, input_size), **options))
        self.weight_hh = Parameter(arete.empty((rows, hidden_size), **options))
        if bias:
            self.bias_ih = Parameter(arete.empty(rows, **options))
            self.bias_hh = Parameter(arete.empty(rows, **options))
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        if nonlinearity != "tanh":
            text += f", nonlinearity={nonlinearity}"
        return text

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, mode: str, input: Tensor, states: Optional[Tuple]) -> Tuple[Tensor, ...]:
        kind = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(
                f"{kind}: Expected input to be 1D or 2D, got {input.dim()}D instead"
            )
        if states is not None:
            for i, s in enumerate(states):
                if s.dim() not in (1, 2):
                    where = f"hx[{i}]" if len(states) == 2 else "hidden"
                    raise ValueError(
                        f"{kind}: Expected {where} to be 1D or 2D, got {s.dim()}D instead"
                    )
        batched = input.dim() == 2
        x = input if batched else input.unsqueeze(0)
        if states is None:
            zeros = arete.zeros((x.shape[0], self.hidden_size), dtype=x.dtype, device=x.device)
            states = (zeros, zeros) if mode == "LSTM" else (zeros,)
        elif not batched:
            states = tuple(s.unsqueeze(0) for s in states)
        result = step(
            mode,
            _ops.linear(x, self.weight_ih, self.bias_ih),
            _ops.linear(states[0], self.weight_hh, self.bias_hh),
            states,
        )
        return result if batched else tuple(s.squeeze(0) for s in result)


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
