"""The recurrences of RNN, GRU and LSTM: one step, and a whole direction of a layer.

Steps take the gates' shares of input and state, (N, gates * hidden) each.
"""

from __future__ import annotations

from typing import List, Optional, Tuple

import arete
from arete import Tensor, _C, _ops

GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}


def step(mode: str, from_input: Tensor, from_state: Tensor, state: Tuple) -> Tuple[Tensor, ...]:
    """One step as one elementwise kernel."""
    return tuple(_C._rnn_step(mode, from_input, from_state, state))


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
    if sizes is None:
        out, last = _C._rnn_direction(mode, x, state, *weights, reverse)
        return out, tuple(last)
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    steps = _ops.linear(x, w_ih, b_ih).split(sizes)
    order = range(len(steps) - 1, -1, -1) if reverse else range(len(steps))
    outputs: List = [None] * len(steps)
    initial, done = state, []
    if reverse:
        state = tuple(s[: sizes[-1]] for s in initial)
    for t in order:
        have, need = state[0].shape[0], sizes[t]
        if need < have:  # these sequences have ended
            done.append(tuple(s[need:] for s in state))
            state = tuple(s[:need] for s in state)
        elif need > have:  # these sequences start here
            state = tuple(arete.cat([s, i[have:need]]) for s, i in zip(state, initial))
        state = step(mode, steps[t], _ops.linear(state[0], w_hh, b_hh), state)
        if w_hr is not None:
            state = (_ops.linear(state[0], w_hr), *state[1:])
        outputs[t] = state[0]
    if done:
        state = tuple(arete.cat(parts) for parts in zip(state, *reversed(done)))
    return arete.cat(outputs), state
