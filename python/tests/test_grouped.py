"""grouped_mm: products of groups beside PyTorch's, and the products of their parts."""
import numpy as np
import pytest
from peer import peer

import arete
from arete.nn import functional as F

torch = peer()
ENDS = [3, 3, 4]  # the second group is empty, and something is behind the last
SHAPES = {"rows": ((6, 8), (3, 8, 4)), "columns": ((3, 4, 8), (8, 8)), "inner": ((4, 8), (8, 4)), "batch": ((3, 4, 8), (3, 8, 4))}
DEVICES = ["cpu"] + ["cuda"] * arete.cuda.is_available()


def operands(case, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES[case]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", SHAPES)
def test_values_and_gradients(case, device):
    a, b = (arete.tensor(x, device=device, requires_grad=True) for x in operands(case))
    ends = None if case == "batch" else arete.tensor(ENDS, dtype=arete.int32, device=device)
    got = F.grouped_mm(a, b, offs=ends)
    (got * arete.arange(got.shape[-1], device=device)).sum().backward()
    p, q = (torch.tensor(x, requires_grad=True) for x in operands(case))
    spans = list(zip([0, *ENDS], ENDS))
    if case == "rows":
        want = torch.cat([p[i:j] @ m for (i, j), m in zip(spans, q)] + [torch.zeros(2, 4)])
    elif case == "columns":
        want = torch.cat([m @ q[:, i:j] for (i, j), m in zip(spans, p)] + [torch.zeros(4, 4)], 1)
    elif case == "inner":
        want = torch.stack([p[:, i:j] @ q[i:j] for i, j in spans])
    else:
        want = p @ q
    (want * torch.arange(want.shape[-1])).sum().backward()
    for mine, theirs in ((got, want), (a.grad, p.grad), (b.grad, q.grad)):
        np.testing.assert_allclose(mine.detach().cpu().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", SHAPES)
def test_as_torchs(case):
    ends = None if case == "batch" else [3, 3, 8 if case != "rows" else 6]
    mine = arete._grouped_mm(*map(arete.tensor, operands(case)), offs=ends and arete.tensor(ends, dtype=arete.int32))
    theirs = torch._grouped_mm(*map(torch.tensor, operands(case)), offs=ends and torch.tensor(ends, dtype=torch.int32))
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-5)


def test_refused():
    a, b = map(arete.tensor, operands("rows"))
    ends = arete.tensor(ENDS, dtype=arete.int32)
    for text, call in {
        "Have to provide offsets": lambda: F.grouped_mm(a, b),
        "no offset if both": lambda: F.grouped_mm(a.expand(3, 6, 8), b, offs=ends),
        "contraction dimension": lambda: F.grouped_mm(a[:, :7], b, offs=ends),
        "Offsets have to be int32": lambda: F.grouped_mm(a, b, offs=ends.long()),
        "batch sizes have to match": lambda: F.grouped_mm(a, b, offs=ends[:2]),
        "both have to be the same": lambda: F.grouped_mm(a, b.half(), offs=ends),
        "must ascend up to 6": lambda: F.grouped_mm(a, b, offs=ends + 3),
        "must ascend": lambda: F.grouped_mm(a, b, offs=ends.flip(0)),
        "bias is not there": lambda: F.grouped_mm(a, b, offs=ends, bias=b),
    }.items():
        with pytest.raises(RuntimeError, match=text):
            call()
    assert F.grouped_mm(a, b, offs=ends, out_dtype=arete.float64).dtype == arete.float64
    assert F.grouped_mm(a, b[:0], offs=ends[:0]).tolist() == [[0.0] * 4] * 6
