"""FLOPs, bytes, rates and rooflines of arete.profiler."""
from __future__ import annotations

import re

import pytest
from peer import peer
from profiler_helpers import own_ceilings  # noqa: F401

import arete
from arete.profiler import profile

torch = peer()


def test_rates_and_roofline(tmp_path):
    a = arete.randn(256, 256)
    with profile() as p:
        for _ in range(3):
            arete.mm(a, a)
        b = arete.ones(4_000_000)
        b + 1
        arete.ones(1) + 1
    rates = {(r.name, r.count): r for r in p.operator_rates()}
    product = rates["mm", 3]
    assert product.flops == 3 * 2 * 256**3 and product.dtype == "float32" and product.device == "cpu"
    assert product.flops_per_second == pytest.approx(product.flops / product.seconds)
    assert product.intensity == pytest.approx(2 * 256**3 / (3 * 4 * 256**2))
    assert rates["add", 2].bytes == 2 * 4 * (4_000_000 + 1)
    assert {r.regime for r in rates.values()} <= {"overhead", "memory", "compute"}
    assert rates["add", 2].regime == "memory"
    table = p.rate_table()
    for column in ("TFLOP/s", "GB/s", "FLOP/byte", "Bound by", "Of roof"):
        assert column in table
    p.export_roofline(tmp_path / "roof.svg")
    p.export_roofline(tmp_path / "roof.html")
    import xml.etree.ElementTree as tree

    assert "var(" not in (tmp_path / "roof.svg").read_text()  # which programs other than browsers take for black
    root = tree.parse(tmp_path / "roof.svg").getroot()
    circles = root.findall(".//{http://www.w3.org/2000/svg}circle")
    assert len(circles) >= 3 + 2
    width, height = (float(root.get(k)) for k in ("width", "height"))
    for c in circles:
        assert 0 < float(c.get("cx")) < width and 0 < float(c.get("cy")) < height
    page = (tmp_path / "roof.html").read_text()
    assert "<svg" in page and "<table" in page and "http-equiv" not in page and "<script src" not in page
    ceilings = arete.profiler.ceilings()
    assert ceilings["bandwidth"] > 0 and ceilings["gemm"]["float32"] > 0


def test_rooflines_have_known_names(tmp_path):
    with profile() as p:
        arete.ones(100).exp()
    for name in ("r.svg", "r.html"):
        p.export_roofline(tmp_path / name)
    for name in ("r.png", "r"):
        with pytest.raises(ValueError, match=r"ends in .svg or .html"):
            p.export_roofline(tmp_path / name)
        assert not (tmp_path / name).exists()
    figures = arete.profiler.ceilings("cpu")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", figures["date"]) and figures["spread"] >= 0 and figures["load"] >= 0
    assert figures["cache"] > 0 and (figures["doubts"] == "" or "arete bench --ceilings --again" in figures["doubts"])
    assert (figures["doubts"] in p.rate_table()) if figures["doubts"] else ("may be too low" not in p.rate_table())


def cost(function):
    """FLOPs and bytes of all that a function calls."""
    with profile() as p:
        function()
    return sum(e.flops for e in p.events()), sum(e.bytes for e in p.events())


def test_flops_of_products():
    t = arete
    a, b, bias = t.ones(64, 128), t.ones(128, 32), t.ones(32)
    batch, other, square = t.ones(4, 8, 16), t.ones(4, 16, 24), t.ones(8, 24)
    v, w = t.ones(128), t.ones(64)
    image, kernel = t.ones(2, 6, 10, 12), t.ones(9, 2, 3, 3)
    product, batches = 2 * 64 * 128 * 32, 2 * 4 * 8 * 16 * 24
    for function, flops in (
        (lambda: t.mm(a, b), product), (lambda: t.addmm(bias, a, b), product),
        (lambda: t.ones(64, 32).addmm_(a, b, beta=2, alpha=0.5), product),
        (lambda: t.baddbmm(square, batch, other), batches), (lambda: t.bmm(batch, other), batches),
        (lambda: t.einsum("bij,bjk->bik", batch, other), batches), (lambda: t.mv(a, v), 2 * 64 * 128), (lambda: t.dot(v, v), 256),
        (lambda: t.outer(v, w), 128 * 64), (lambda: t.nn.functional.linear(a, b.t().contiguous(), bias), product),
        (lambda: t.nn.functional.conv2d(image, kernel, groups=3), 2 * (2 * 9 * 8 * 10) * 2 * 9),
        (lambda: t.nn.functional.conv_transpose2d(t.ones(2, 9, 8, 10), kernel, groups=3), 2 * (2 * 9 * 8 * 10) * 2 * 9),
        (lambda: t.nn.functional.conv1d(t.ones(2, 3, 10), t.ones(4, 3, 3), t.ones(4)), 2 * (2 * 4 * 8) * 9),
        (lambda: t.nn.functional.conv3d(t.ones(1, 2, 4, 5, 6), t.ones(3, 2, 2, 2, 2), t.ones(3)), 2 * (3 * 3 * 4 * 5) * 16),
    ):
        assert cost(function)[0] == flops
    # Beside the product something is added up.
    for function, least, most in ((lambda: t.addbmm(square, batch, other), batches, 1.1 * batches),
                                  (lambda: t.addmv(w, a, v), 2 * 64 * 128, 2.1 * 64 * 128),
                                  (lambda: t.addr(a, w, v), 2 * 64 * 128, 4 * 64 * 128)):
        assert least <= cost(function)[0] <= most


def test_flops_are_torchs():
    torch_cost = {}
    for t in (torch, arete):
        a, b, bias = t.ones(64, 128), t.ones(128, 32), t.ones(32)
        batch, other = t.ones(4, 8, 16), t.ones(4, 16, 24)
        with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], with_flops=True) as p:
            t.mm(a, b)
            t.addmm(bias, a, b)
            t.bmm(batch, other)
            t.baddbmm(t.ones(8, 24), batch, other)
        flops = {e.key.removeprefix("aten::"): e.flops for e in p.key_averages()}
        torch_cost[t.__name__] = [flops[name] for name in ("mm", "addmm", "bmm", "baddbmm")]
    assert torch_cost["arete"] == torch_cost["torch"]


def test_what_is_touched_at_indices_counts_alone():
    t = arete
    table, index = t.ones(50257, 768), t.arange(64)
    rows, slices, indices = t.ones(64, 768), 64 * 768 * 4, 64 * 8
    wide = index.unsqueeze(1).expand(64, 768)  # what expand() repeats is in memory once
    read = 2 * slices + indices
    for function in (lambda: t.nn.functional.embedding(index, table), lambda: table[index], lambda: table.index_select(0, index),
                     lambda: table.gather(0, wide)):
        assert cost(function) == (0, read)
    assert cost(lambda: t.take(table, index)) == (0, 2 * 64 * 4 + indices)
    assert cost(lambda: t.take_along_dim(table, index.unsqueeze(1), 0)) == (0, read)
    # In place only what is written moves, and what is computed with the old values is read, too.
    for function in (lambda: table.index_copy_(0, index, rows), lambda: table.index_put_((index,), rows),
                     lambda: table.scatter_(0, wide, rows), lambda: table.__setitem__(index, rows)):
        assert cost(function) == (0, read)
    assert cost(lambda: table.index_fill_(0, index, 3.0)) == (0, slices + indices)
    for function in (lambda: table.index_add_(0, index, rows), lambda: table.scatter_add_(0, wide, rows)):
        assert cost(function) == (64 * 768, 3 * slices + indices)
    # The other forms copy the table.
    flops, moved = cost(lambda: table.index_copy(0, index, rows))
    assert flops == 0 and moved >= 2 * table.nbytes + slices


def test_empty_tensors_move_nothing():
    x = arete.ones(10)
    assert cost(lambda: (arete.empty(1000, 1000), arete.empty_like(x), x.new_empty(50))) == (0, 0)
    assert cost(lambda: arete.zeros(1000)) == (0, 4000)
