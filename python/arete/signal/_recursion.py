"""Linear recursions in time: step by step on the CPU, in chunks side by side on GPUs, in blocks one after the other elsewhere."""
from __future__ import annotations

import functools
import math
from typing import Any

from .. import _C
from .._C import Tensor
from .._kernels import ElementwiseKernel
from .._operators import _ops
from ..autograd import Function

_BLOCK = 128  # outputs that one triangular system gives; a system of more costs more than the calls that it saves
_ORDERS = 32  # most outputs before that a thread keeps: more of them would not be in registers
_THREADS = 1 << 16  # of a large GPU; what has as many rows needs no chunks

# Note [Chunks of a recursion]
# The n outputs before a chunk are its state. That after the chunk is linear in it: M * state + what the chunk gives from zeros. So all
# chunks run from zeros side by side, a short loop carries the states over them, and the chunks run once more, from their own states:
# what comes out of a chunk is substitution, and only states go another way. Of T steps a thread waits for sqrt(T) * n / 2 in each chunk,
# and the loop has 2 * sqrt(T) / n products with M, of n * n multiplications: the two take times that are alike.
# Numbers of M may be large and cancel each other in a product with a state (the last outputs of a slow filter nearly lie on a polynomial):
# roundings of M and of the products would be multiplied by such numbers once more than those of substitution. So M and its products are
# of pairs of doubles (Dekker 1971, Knuth's sum), and the error of a state is that of its last rounding, as in substitution.
# Where M grows, products with it may be infinite or cancel where outputs do not: a row then goes through its time in one thread, which
# the kernel of the states decides by itself, and the host waits for nothing.
_STEP = """#define EACH(j) for (int j = 0; j < ORDER; ++j)
__device__ double next(const double* a, double* state, double v) {
  EACH(j) v -= a[j] * state[j];
  EACH(j) if (j) state[j - 1] = state[j];
  state[ORDER - 1] = v;
  return v;
}
__device__ void add(double* sum, double m, double m_rest, double v, double v_rest) {
  const double p = m * v, s = sum[0] + p, b = s - sum[0];
  sum[1] += (sum[0] - (s - b)) + (p - b) + (fma(m, v, -p) + m * v_rest + m_rest * v);
  sum[0] = s;
}
"""
_BEGIN = """double a[ORDER], state[ORDER];
EACH(j) a[j] = coefficients[row % channels * (ORDER + 1) + j];
"""
_ENDS = """if (i < rows * (chunks - 1)) {
  const ptrdiff_t row = i / (chunks - 1), chunk = i % (chunks - 1), first = row * time + chunk * length;
  """ + _BEGIN + """
  EACH(j) state[j] = chunk ? 0.0 : (double)before[row * ORDER + j];
  if (!chunk) EACH(j) states[row * chunks * ORDER + j] = state[j];
  for (ptrdiff_t t = first; t < first + length; ++t) next(a, state, x[t]);
  EACH(j) states[(row * chunks + chunk + 1) * ORDER + j] = state[j];
} else {
  const ptrdiff_t row = (i - rows * (chunks - 1)) / ORDER, column = (i - rows * (chunks - 1)) % ORDER;
  """ + _BEGIN + """
  double rest[ORDER];
  EACH(j) { state[j] = j == column; rest[j] = 0; }
  for (ptrdiff_t t = 0; t < length; ++t) {
    double sum[2] = {0, 0};
    EACH(j) add(sum, -a[j], 0, state[j], rest[j]);
    EACH(j) if (j) { state[j - 1] = state[j]; rest[j - 1] = rest[j]; }
    state[ORDER - 1] = sum[0] + sum[1];
    rest[ORDER - 1] = sum[1] - (state[ORDER - 1] - sum[0]);
  }
  EACH(j) {
    responses[(row * ORDER + j) * ORDER + column] = state[j];
    responses[((channels + row) * ORDER + j) * ORDER + column] = rest[j];
  }
}"""
_CARRY = """const ptrdiff_t row = i, place = row * chunks * ORDER;
""" + _BEGIN + """
double m[ORDER * ORDER], m_rest[ORDER * ORDER];
bool grows = false;
for (int k = 0; k < ORDER * ORDER; ++k) {
  m[k] = responses[row % channels * ORDER * ORDER + k];
  m_rest[k] = responses[(channels + row % channels) * ORDER * ORDER + k];
  grows = grows || !(fabs(m[k]) <= 1e8);
}
EACH(j) state[j] = states[place + ORDER + j];
for (ptrdiff_t chunk = 2; chunk < chunks; ++chunk) {
  if (grows) {
    for (ptrdiff_t t = (chunk - 1) * length; t < chunk * length; ++t) next(a, state, x[row * time + t]);
  } else {
    double after[ORDER];
    EACH(j) {
      double sum[2] = {states[place + chunk * ORDER + j], 0};
      EACH(k) add(sum, m[j * ORDER + k], m_rest[j * ORDER + k], state[k], 0);
      after[j] = sum[0] + sum[1];
    }
    EACH(j) state[j] = after[j];
  }
  EACH(j) states[place + chunk * ORDER + j] = state[j];
}"""
_RUN = """const ptrdiff_t row = i / chunks, chunk = i % chunks, first = chunk * length;
""" + _BEGIN + """
EACH(j) state[j] = chunks > 1 ? states[i * ORDER + j] : (double)before[row * ORDER + j];
for (ptrdiff_t t = first; t < first + length && t < time; ++t) y[row * time + t] = next(a, state, x[row * time + t]);"""


@functools.cache
def _kernels(order: int) -> list[ElementwiseKernel]:
    def kernel(given: str, made: str, text: str, name: str) -> ElementwiseKernel:
        sizes = "int64 channels, int64 rows, int64 time, int64 chunks, int64 length"
        return ElementwiseKernel(f"raw T x, raw T coefficients, {given}, {sizes}", made, text, name, preamble=_STEP,
                                 options=(f"-DORDER={order}",))

    return [kernel("raw T before", "raw float64 states, raw float64 responses", _ENDS, "recursion_from_zeros"),
            kernel("raw float64 responses", "raw float64 states", _CARRY, "recursion_of_states"),
            kernel("raw T before, raw float64 states", "raw T y", _RUN, "recursion_of_outputs")]


def _in_chunks(x: Tensor, coefficients: Tensor, before: Tensor) -> Tensor:
    """As Note [Chunks of a recursion] says; sums are of float64."""
    (batch, channels, time), order = x.shape, coefficients.shape[1] - 1
    x, coefficients, before = (t.contiguous() for t in (x, coefficients, before))
    rows = batch * channels
    length = -(-time // max(1, min(2 * math.isqrt(time) // order, _THREADS // rows)))
    chunks = -(-time // length)
    sizes = channels, rows, time, chunks, length
    ends, carry, run = _kernels(order)
    states = _ops.empty(rows, chunks, order, dtype=_C.float64, device=x.device)
    if chunks > 1:
        responses = _ops.empty(2, channels, order, order, dtype=_C.float64, device=x.device)
        ends(x, coefficients, before, *sizes, states, responses, size=rows * (chunks - 1) + channels * order, block_size=32)
        carry(x, coefficients, responses, *sizes, states, size=rows, block_size=32)
    y = _ops.empty_like(x)
    run(x, coefficients, before, states, *sizes, y, size=rows * chunks, block_size=32)
    return y


def _in_steps(x: Tensor, coefficients: Tensor, before: Tensor) -> Tensor:
    """Sums are of float64 numbers."""
    order, time = before.shape[2], x.shape[2]
    one = 1 / coefficients[:, order:]  # for its gradient
    x, coefficients = x * one, coefficients * one
    # What outputs before time 0 add to the first ones.
    outputs = _ops.pad(before.to(_C.complex128 if x.dtype.is_complex else _C.float64), [0, order])
    added = sum(coefficients[:, k:k + 1] * outputs[:, :, k:k + order] for k in range(order))
    first = x[:, :, :order]
    first.copy_(first - added[:, :, :time])
    factors = -coefficients[:, :order].flip([1])
    return _ops.linear_scan(x, factors[:, None].expand(*x.shape, order), 2, False)


def _in_blocks(x: Tensor, coefficients: Tensor, before: Tensor) -> Tensor:
    """Each block of outputs solves a system whose matrix has the coefficients on its diagonals: substitution is the recursion itself."""
    order, time = coefficients.shape[1] - 1, x.shape[2]
    size = min(_BLOCK, time)
    # Row i has the coefficients in columns i ... i + n: those of outputs before the block, and those of the block.
    rows = _ops.zeros(x.shape[1], size, size + order, dtype=x.dtype, device=x.device)
    for lag in range(order + 1):
        rows.diagonal(lag, 1, 2).copy_(coefficients[:, lag:lag + 1].expand(-1, size))
    x, past, blocks = x.permute(1, 2, 0), before.permute(1, 2, 0), []  # (channel, time, batch)
    for start in range(0, time, size):
        count = min(size, time - start)
        right = x[:, start:start + count] - rows[:, :count, :order] @ past
        block = _ops.linalg_solve_triangular(rows[:, :count, order:order + count], right, upper=False)
        past = block[:, count - order:] if count >= order else _ops.cat([past[:, count:], block], 1)
        blocks.append(block)
    return _ops.cat(blocks, 1).permute(2, 0, 1)


def _in_operators(x: Tensor, coefficients: Tensor, before: Tensor) -> Tensor:
    in_steps = x.device.type == "cpu" and coefficients.shape[1] <= _ORDERS + 1
    return (_in_steps if in_steps else _in_blocks)(x, coefficients, before)


class _Recursion(Function):
    @staticmethod
    def forward(x: Tensor, coefficients: Tensor, before: Tensor) -> Tensor:
        in_chunks = x.device.type == "cuda" and x.dtype in (_C.float32, _C.float64) and coefficients.shape[1] <= _ORDERS + 1
        return (_in_chunks if in_chunks else _in_operators)(x, coefficients, before)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:], output)
        ctx.save_for_forward(*inputs[1:], output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        # The same recursion from the end, of the gradient.
        coefficients, before, y = ctx.saved_tensors
        order, time = before.shape[2], y.shape[2]
        back = recursion(gradient.flip([2]), coefficients.conj(), _ops.zeros_like(before)).flip([2])
        of_coefficients = of_before = None
        if ctx.needs_input_grad[1]:
            outputs = _ops.cat([before, y], 2).conj()
            of_coefficients = -_ops.stack([(back * outputs[:, :, k:k + time]).sum([0, 2]) for k in range(order + 1)], 1)
        if ctx.needs_input_grad[2]:
            # before[k] is in the first k + 1 outputs.
            first = _ops.pad(back[:, :, :order], [order, max(order - time, 0)])
            of_before = -sum(coefficients[:, k:k + 1].conj() * first[:, :, order - k:2 * order - k] for k in range(order))
        return back, of_coefficients, of_before

    @staticmethod
    def jvp(ctx: Any, x: Tensor, coefficients: Tensor, before: Tensor) -> Tensor:
        known, past, y = ctx.saved_tensors
        outputs, time = _ops.cat([past, y], 2), y.shape[2]
        of_coefficients = sum(coefficients[:, k:k + 1] * outputs[:, :, k:k + time] for k in range(known.shape[1]))
        return recursion(x - of_coefficients, known, before)

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Tensor) -> tuple[Tensor, int]:
        # More channels.
        x, coefficients, before = (t[None].expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0)
                                   for t, d in zip(args, in_dims))
        y = recursion(x.transpose(0, 1).flatten(1, 2), coefficients.flatten(0, 1), before.transpose(0, 1).flatten(1, 2))
        return y.unflatten(1, (info.batch_size, -1)), 1


def recursion(x: Tensor, coefficients: Tensor, before: Tensor) -> Tensor:
    """y[t] = x[t] - a[1] y[t - 1] - ... - a[n] y[t - n] for x (batch, channel, time): a[n], ..., a[1], 1 are the channel's row of
    `coefficients` (channel, n + 1), and `before` (batch, channel, n) has the outputs before time 0. All are of one dtype. Outputs that grow
    are those of substitution, too, as powers of coefficients are not multiplied; after a NaN all outputs are NaN, by coefficients of 0
    too. Gradients are of any order."""
    if coefficients.shape[1] == 1 or not x.numel():
        return x
    if _C._is_recording_program():  # which has operators alone, and gradients of them
        return _in_operators(x, coefficients, before)
    return _Recursion.apply(x, coefficients, before)
