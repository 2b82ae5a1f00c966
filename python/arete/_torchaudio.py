"""The operators that torchaudio's Python calls and has in a library for PyTorch's C++: recursive filters, overdrive, alignment to
labels and the loss of transducers, made of operators here, so that all devices have them. Decoding with CUDA (torchaudio.models.decoder)
is not there."""
from __future__ import annotations

from typing import Any

from . import _C
from ._grad_mode import enable_grad
from ._library import DEFINITIONS, define
from ._operators import _ops
from .signal._recursion import recursion


def _lfilter_core_loop(input_signal_windows: Any, a_coeff_flipped: Any, padded_output_waveform: Any) -> Any:
    """signal's recursion, into an output that begins with the values before time 0."""
    order = a_coeff_flipped.shape[1] - 1
    y = padded_output_waveform
    y[:, :, order:] = recursion(input_signal_windows, a_coeff_flipped, y[:, :, :order])
    return y


def _overdrive_core_loop(waveform: Any, temp: Any, last_in: Any, last_out: Any, output_waveform: Any) -> Any:
    """Half the waveform (channel, time) and three quarters of `temp` without its constant part, by the filter
    y[t] = temp[t] - temp[t - 1] + 0.995 y[t - 1]; the last values are those before time 0."""
    rise = temp - _ops.cat([last_in[:, None], temp[:, :-1]], 1)
    filtered = _ops.cat([last_out[:, None], _ops.zeros_like(temp)], 1)[:, None]
    _lfilter_core_loop(rise[:, None], _C.tensor([[-0.995, 1.0]], dtype=temp.dtype).to(temp.device), filtered)
    output_waveform.copy_(waveform * 0.5 + filtered[:, 0, 1:] * 0.75)
    last_out.copy_(filtered[:, 0, -1])
    if temp.shape[1]:
        last_in.copy_(temp[:, -1])
    return last_in, last_out, output_waveform


def _forced_align(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> Any:
    """The likeliest path through labels with blanks between them (CTC, Graves et al. 2006), by Viterbi's algorithm: labels (1, time)
    and the log probabilities."""
    if log_probs.dim() != 3 or targets.dim() != 2 or log_probs.shape[0] != 1 or targets.shape[0] != 1:
        raise RuntimeError("forced_align takes one sequence: log_probs of shape (1, time, classes) and targets of shape (1, length), got "
                           f"{tuple(log_probs.shape)} and {tuple(targets.shape)}")
    time, length = int(input_lengths[0]), int(target_lengths[0])
    if time != log_probs.shape[1] or length != targets.shape[1]:
        raise RuntimeError(f"input length mismatch: lengths ({time}, {length}) are not those of log_probs ({log_probs.shape[1]}) and "
                           f"targets ({targets.shape[1]})")
    labels = targets[0].tolist()
    repeats = sum(a == b for a, b in zip(labels, labels[1:]))
    if time < length + repeats:
        raise RuntimeError(f"targets length is too long for CTC: {length} labels with {repeats} repeats need more than {time} steps")
    states = [blank]
    for label in labels:
        states += [label, blank]
    device = log_probs.device
    scores = log_probs[0][:, _C.tensor(states).to(device)]
    skips = [s >= 2 and states[s] != blank and states[s] != states[s - 2] for s in range(len(states))]
    none = -float("inf")
    barred = _ops.where(_C.tensor(skips).to(device), 0.0, none).to(scores.dtype)
    walls = _ops.full((2,), none, dtype=scores.dtype, device=device)
    best = _ops.where(_C.tensor([s < 2 for s in range(len(states))]).to(device), scores[0], none)
    steps = []
    for t in range(1, time):
        past = _ops.cat([walls, best])
        best, step = _ops.stack([past[2:], past[1:-1], past[:-2] + barred]).max(0)
        best = best + scores[t]
        steps.append(step)
    steps = _ops.stack(steps).tolist() if steps else []
    ends = best[-2:].tolist()
    state = len(states) - (1 if len(ends) == 1 or ends[1] > ends[0] else 2)
    path = [state]
    for step in reversed(steps):
        state -= step[state]
        path.append(state)
    return _C.tensor([[states[s] for s in reversed(path)]], dtype=targets.dtype).to(device), log_probs


def _rnnt_loss_forward(logits: Any, targets: Any, logit_lengths: Any, target_lengths: Any, blank: int, clamp: float,
                       fused_log_softmax: bool) -> Any:
    """The losses (batch) of transducers (Graves 2012) and their gradients for logits (batch, time, length + 1, classes)."""
    if logits.dim() != 4 or targets.dim() != 2 or logits.shape[2] != targets.shape[1] + 1:
        raise RuntimeError("rnnt_loss takes logits of shape (batch, time, length + 1, classes) and targets of shape (batch, length), got "
                           f"{tuple(logits.shape)} and {tuple(targets.shape)}")
    batch = _ops.arange(logits.shape[0], device=logits.device)
    with enable_grad():
        leaf = logits.detach().requires_grad_()
        known = leaf.float() if leaf.dtype in (_C.float16, _C.bfloat16) else leaf
        known = known.log_softmax(-1) if fused_log_softmax else known
        blanks = known[..., blank]
        index = targets.long()[:, None, :, None].expand(-1, logits.shape[1], -1, 1)
        labels = known[:, :, :-1].gather(3, index)[..., 0]
        # exp(alpha[t, u]) = exp(alpha[t - 1, u] + blank[t - 1, u]) + exp(alpha[t, u - 1] + label[t, u - 1]): diagonals t + u, one after
        # the other, with u as their index. Any log probability may be -inf.
        none, labels = -float("inf"), _ops.cat([labels, _ops.zeros_like(blanks[:, :, :1])], 2)
        steps, u = logits.shape[1], _ops.arange(logits.shape[2], device=logits.device)
        t = _ops.arange(steps + logits.shape[2] - 1, device=logits.device)[:, None] - u
        inside, t = (t >= 0) & (t < steps), t.clamp(0, steps - 1)
        down, right = (_ops.where(inside, v[:, t, u], none) for v in (blanks, labels))  # (batch, diagonal, u)
        wall = _ops.full_like(blanks[:, 0, :1], none)
        alphas = [_ops.where(u == 0, _ops.zeros_like(blanks[:, 0]), none)]
        for d in range(1, t.shape[0]):
            a, b = alphas[-1] + down[:, d - 1], _ops.cat([wall, (alphas[-1] + right[:, d - 1])[:, :-1]], 1)
            never = (a == none) & (b == none)  # where logaddexp has no gradient
            alphas.append(_ops.where(never, none, _ops.logaddexp(_ops.where(never, 0.0, a), _ops.where(never, 0.0, b))))
        last, length = logit_lengths.long() - 1, target_lengths.long()
        costs = -(_ops.stack(alphas, 1)[batch, last + length, length] + blanks[batch, last, length])
        costs.sum().backward()
    gradient = leaf.grad
    if clamp > 0:
        gradient = gradient.clamp(-clamp, clamp)
    return costs.detach().to(logits.dtype), gradient


def install() -> None:
    """Defines them, once."""
    if "torchaudio::forced_align" in DEFINITIONS:
        return
    for name, schema, function in (
            ("_lfilter_core_loop", "(Tensor input_signal_windows, Tensor a_coeff_flipped, Tensor(a!) padded_output_waveform) -> Tensor(a!)",
             _lfilter_core_loop),
            ("_overdrive_core_loop", "(Tensor waveform, Tensor temp, Tensor(a!) last_in, Tensor(b!) last_out, Tensor(c!) output_waveform) "
                                     "-> (Tensor(a!), Tensor(b!), Tensor(c!))", _overdrive_core_loop),
            ("forced_align", "(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank) "
                             "-> (Tensor, Tensor)", _forced_align),
            ("rnnt_loss_forward", "(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, float clamp, "
                                  "bool fused_log_softmax) -> (Tensor, Tensor)", _rnnt_loss_forward)):
        define(f"torchaudio::{name}", name + schema).kernels["any"] = function
    define("_torchaudio::is_align_available", "is_align_available() -> bool").kernels["any"] = lambda: True
    define("_torchaudio::cuda_version", "cuda_version() -> int?").kernels["any"] = lambda: None  # built without CUDA
