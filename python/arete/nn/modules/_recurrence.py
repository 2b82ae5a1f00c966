"""The recurrences of RNN, GRU and LSTM: one step, and a whole direction of a layer.

Steps take the gates' shares of input and state, (N, gates * hidden) each.
"""

from __future__ import annotations

from typing import List, Optional, Tuple

import arete
from arete import Tensor, _ops

from ..functional._common import operator

GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}


def rnn_tanh(from_input: Tensor, from_state: Tensor, state: Tuple) -> Tuple[Tensor, ...]:
    return (_ops.tanh(from_input + from_state),)


def rnn_relu(from_input: Tensor, from_state: Tensor, state: Tuple) -> Tuple[Tensor, ...]:
    return (_ops.relu(from_input + from_state),)


def gru(from_input: Tensor, from_state: Tensor, state: Tuple) -> Tuple[Tensor, ...]:
    fused = operator("gru_step")
    if fused is not None:
        return (fused(from_input, from_state, state[0]),)
    ir, iz, inew = from_input.chunk(3, -1)
    hr, hz, hnew = from_state.chunk(3, -1)
    reset, update = _ops.sigmoid(ir + hr), _ops.sigmoid(iz + hz)
    new = _ops.tanh(inew + reset * hnew)
    return (new + update * (state[0] - new),)


def lstm(from_input: Tensor, from_state: Tensor, state: Tuple) -> Tuple[Tensor, ...]:
    fused = operator("lstm_step")
    if fused is not None:
        return tuple(fused(from_input, from_state, state[1]))
    i, f, g, o = (from_input + from_state).chunk(4, -1)
    c = _ops.sigmoid(f) * state[1] + _ops.sigmoid(i) * _ops.tanh(g)
    return _ops.sigmoid(o) * _ops.tanh(c), c


STEPS = {"RNN_TANH": rnn_tanh, "RNN_RELU": rnn_relu, "GRU": gru, "LSTM": lstm}


def run_direction(
    mode: str,
    x: Tensor,
    state: Tuple[Tensor, ...],
    weights: List[Optional[Tensor]],
    reverse: bool,
    sizes: Optional[List[int]],
) -> Tuple[Tensor, Tuple[Tensor, ...]]:
    """Outputs of one direction, and the last state.

    x is (T, N, features), or with `sizes` packed (sum of sizes, features): step t has the first
    sizes[t] sequences. weights: w_ih, w_hh, b_ih, b_hh, w_hr (None where there is none).
    """
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    step = STEPS[mode]
    shares = _ops.linear(x, w_ih, b_ih)
    steps = list(shares.split(sizes) if sizes is not None else shares.unbind(0))
    order = range(len(steps) - 1, -1, -1) if reverse else range(len(steps))
    outputs: List = [None] * len(steps)
    initial, done = state, []
    if sizes is not None and reverse:
        state = tuple(s[: sizes[-1]] for s in initial)
    for t in order:
        if sizes is not None:
            have, need = state[0].shape[0], sizes[t]
            if need < have:  # these sequences have ended
                done.append(tuple(s[need:] for s in state))
                state = tuple(s[:need] for s in state)
            elif need > have:  # these sequences start here
                state = tuple(arete.cat([s, i[have:need]]) for s, i in zip(state, initial))
        state = step(steps[t], _ops.linear(state[0], w_hh, b_hh), state)
        if w_hr is not None:
            state = (_ops.linear(state[0], w_hr), *state[1:])
        outputs[t] = state[0]
    if done:
        state = tuple(arete.cat(parts) for parts in zip(state, *reversed(done)))
    return (arete.cat(outputs) if sizes is not None else arete.stack(outputs)), state
