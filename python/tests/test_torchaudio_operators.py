"""The operators that torchaudio's Python calls, against their definitions step by step."""
import itertools
import math

import numpy as np
import pytest

import arete


@pytest.fixture(scope="module")
def operators():
    arete.ops.load_library("/site-packages/torchaudio/lib/_torchaudio.so")
    return arete.ops.torchaudio


@pytest.mark.parametrize("order, time", [(1, 5), (2, 300), (4, 129), (0, 7)])
@pytest.mark.parametrize("dtype", [arete.float32, arete.float64])
def test_recursive_filters(operators, order, time, dtype):
    numbers = np.random.default_rng(order)
    x = numbers.standard_normal((2, 3, time))
    a = np.concatenate([np.ones((3, 1)), 0.4 * numbers.uniform(-1, 1, (3, order))], 1)
    y = np.zeros((2, 3, time + order))
    y[:, :, :order] = numbers.standard_normal((2, 3, order))
    found = arete.tensor(y, dtype=dtype)
    operators._lfilter_core_loop(arete.tensor(x, dtype=dtype), arete.tensor(a[:, ::-1].copy(), dtype=dtype), found)
    for t in range(time):
        y[:, :, t + order] = x[:, :, t] - sum(a[:, lag] * y[:, :, t + order - lag] for lag in range(1, order + 1))
    np.testing.assert_allclose(found.numpy(), y, atol=1e-5 if dtype == arete.float32 else 1e-12)


def test_filters_of_no_time_leave_what_was_before(operators):
    y, ends = arete.tensor([[[1.0, 2.0]]]), [arete.tensor([0.5]), arete.tensor([0.25])]
    assert operators._lfilter_core_loop(arete.ones(1, 1, 0), arete.tensor([[0.5, 0.5, 1.0]]), y).tolist() == [[[1, 2]]]
    operators._overdrive_core_loop(arete.ones(1, 0), arete.ones(1, 0), *ends, arete.ones(1, 0))
    assert [v.item() for v in ends] == [0.5, 0.25]


def test_overdrive(operators):
    numbers = np.random.default_rng(0)
    waveform, temp = numbers.standard_normal((2, 2, 200)).astype("float32")
    last_in, last_out = arete.tensor([0.5, -0.25]), arete.tensor([0.1, 0.2])
    i, o, found = last_in.numpy().copy(), last_out.numpy().copy(), arete.zeros(2, 200)
    operators._overdrive_core_loop(arete.tensor(waveform), arete.tensor(temp), last_in, last_out, found)
    for t in range(200):
        o, i = temp[:, t] - i + 0.995 * o, temp[:, t]
        np.testing.assert_allclose(found[:, t].numpy(), waveform[:, t] * 0.5 + o * 0.75, atol=1e-5)
    np.testing.assert_allclose(last_out.numpy(), o, atol=1e-5)
    np.testing.assert_allclose(last_in.numpy(), i)


def collapsed(path, blank):
    return [label for label, _ in itertools.groupby(path) if label != blank]


@pytest.mark.parametrize("labels, time", [([1, 2], 4), ([1, 1], 4), ([2], 1), ([1, 2, 1], 6), ([], 3)])
def test_forced_align(operators, labels, time):
    scores = np.log(np.random.default_rng(time).dirichlet(np.ones(3), time))
    paths, given = operators.forced_align(arete.tensor(scores[None]), arete.tensor([labels], dtype=arete.int64), arete.tensor([time]),
                                          arete.tensor([len(labels)]), 0)
    best = max((p for p in itertools.product(range(3), repeat=time) if collapsed(p, 0) == labels),
               key=lambda p: sum(scores[t, s] for t, s in enumerate(p)))
    assert paths.tolist() == [list(best)] and given.shape == (1, time, 3)


def test_forced_align_refuses(operators):
    def align(batch, time, labels):
        return operators.forced_align(arete.zeros(batch, time, 3), arete.tensor(labels), arete.tensor([time] * batch),
                                      arete.tensor([len(labels[0])] * batch), 0)

    with pytest.raises(RuntimeError, match="2 labels with 1 repeats need more than 2 steps"):
        align(1, 2, [[1, 1]])
    with pytest.raises(RuntimeError, match="takes one sequence"):
        align(2, 4, [[1], [2]])


@pytest.mark.parametrize("fused", [True, False])
def test_rnnt_loss(operators, fused):
    """The sum over all ways of steps in time and along the labels, for each sequence of its own lengths."""
    numbers = np.random.default_rng(3)
    logits, targets = numbers.standard_normal((2, 4, 3, 5)), np.array([[1, 3], [2, 0]])
    lengths = [(4, 2), (3, 1)]

    def loss(values):
        values = values - np.log(np.exp(values).sum(-1, keepdims=True)) if fused else values
        found = []
        for b, (steps, labels) in enumerate(lengths):
            total = 0.0
            for times in itertools.combinations_with_replacement(range(steps), labels):  # when each label is said
                at, score = 0, 0.0
                for t in range(steps):
                    while at < labels and times[at] == t:
                        score += values[b, t, at, targets[b, at]]
                        at += 1
                    score += values[b, t, at, 4]
                total += math.exp(score)
            found.append(-math.log(total))
        return np.array(found)

    x = logits if fused else logits - 2.0
    costs, gradient = operators.rnnt_loss_forward(arete.tensor(x), arete.tensor(targets, dtype=arete.int32), arete.tensor([4, 3]),
                                                  arete.tensor([2, 1]), 4, -1.0, fused)
    np.testing.assert_allclose(costs.numpy(), loss(x), rtol=1e-10)
    for at in numbers.integers(0, x.shape, (12, 4)):
        low, high = x.copy(), x.copy()
        low[tuple(at)] -= 1e-5
        high[tuple(at)] += 1e-5
        assert abs((loss(high) - loss(low)).sum() / 2e-5 - gradient[tuple(at)].item()) < 1e-7
    _, clamped = operators.rnnt_loss_forward(arete.tensor(x), arete.tensor(targets), arete.tensor([4, 3]), arete.tensor([2, 1]), 4, 0.05,
                                             fused)
    assert clamped.abs().max().item() == 0.05
    # Labels that cannot be said at some times, and a sequence that cannot be said at all.
    barred = x.copy()
    barred[0, 0, 0, 1] = barred[0, 2, 1, 3] = barred[1, 1, 0, 2] = -math.inf
    costs, gradient = operators.rnnt_loss_forward(arete.tensor(barred), arete.tensor(targets), arete.tensor([4, 3]), arete.tensor([2, 1]),
                                                  4, -1.0, fused)
    np.testing.assert_allclose(costs.numpy(), loss(barred), rtol=1e-10)
    low, high = barred.copy(), barred.copy()
    low[0, 1, 0, 1] -= 1e-5
    high[0, 1, 0, 1] += 1e-5
    assert abs((loss(high) - loss(low)).sum() / 2e-5 - gradient[0, 1, 0, 1].item()) < 1e-7 and bool(gradient.isfinite().all())
    barred[1, :, 0, 2] = -math.inf
    costs, gradient = operators.rnnt_loss_forward(arete.tensor(barred), arete.tensor(targets), arete.tensor([4, 3]), arete.tensor([2, 1]),
                                                  4, -1.0, fused)
    assert costs[1].item() == math.inf and not bool(gradient.isnan().any())
