"""Attention with functions of scores and masks of blocks. Run with both libraries."""
import importlib
import math

import pytest
from idiom_helpers import anywhere, on_the_cpu

import arete


def flex_of(torch):
    return importlib.import_module(f"{torch.__name__}.nn.attention.flex_attention")


def causal(b, h, q, k):
    return q >= k


def by_hand(torch, q, k, v, change, seen, scale=None):
    scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    b, h, i, j = (torch.arange(n, device=q.device).view([-1 if d == place else 1 for d in range(4)]) for place,
                  n in enumerate(scores.shape))
    scores = torch.where(seen(b, h, i, j), change(scores, b, h, i, j), torch.tensor(-math.inf, device=q.device))
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@anywhere
def test_scores_and_masks(torch, device):
    flex, slopes = flex_of(torch), torch.tensor([0.5, 0.25], device=device)
    backwards = torch is arete or device == "cuda"  # which PyTorch has not on CPUs
    q, k, v = (torch.randn(2, 2, 40, 16, device=device, requires_grad=backwards) for _ in range(3))

    def alibi(score, b, h, i, j):
        return score + slopes[h] * (j - i)

    def window(b, h, i, j):
        return (i - j).abs() < 9 + b

    seen = flex.and_masks(causal, window)
    mask = flex.create_block_mask(seen, 2, None, 40, 40, device=device, BLOCK_SIZE=16)
    expected, lse = by_hand(torch, q, k, v, alibi, lambda *places: causal(*places) & window(*places))
    for result in (flex.flex_attention(q, k, v, alibi, mask), flex.flex_attention(q, k, v, alibi, mask, return_lse=True)[0]):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(flex.flex_attention(q, k, v, alibi, mask, return_lse=True)[1], lse, rtol=1e-4, atol=1e-4)
    if backwards:
        gradients = torch.autograd.grad(flex.flex_attention(q, k, v, alibi, mask).square().sum(), (q, k, v))
        for g, e in zip(gradients, torch.autograd.grad(expected.square().sum(), (q, k, v))):
            torch.testing.assert_close(g, e, rtol=1e-3, atol=1e-4)
    plain = flex.flex_attention(q, k, v, block_mask=mask)
    torch.testing.assert_close(plain, by_hand(torch, q, k, v, lambda s, *places: s, lambda *places: causal(*places) & window(*places))[0],
                               rtol=1e-4, atol=1e-5)


@on_the_cpu
def test_shared_heads_and_blind_queries(torch, device):
    flex = flex_of(torch)
    q, k, v = torch.randn(1, 4, 8, 16), torch.randn(1, 2, 8, 16), torch.randn(1, 2, 8, 16)
    mask = flex.create_block_mask(lambda b, h, i, j: (i > 2) & (i >= j), None, None, 8, 8, device="cpu", BLOCK_SIZE=8)
    result = flex.flex_attention(q, k, v, lambda s, b, h, i, j: s * 1, mask, enable_gqa=True)
    assert (result[:, :, :3] == 0).all() and not result.isnan().any()
    wide = [t.repeat_interleave(2, 1) for t in (k, v)]
    torch.testing.assert_close(result[:, :, 3:], by_hand(torch, q, *wide, lambda s, *p: s, causal)[0][:, :, 3:], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="enable_gqa"):
        flex.flex_attention(q, k, v)


@on_the_cpu
def test_block_masks(torch, device):
    flex = flex_of(torch)
    mask = flex.create_block_mask(causal, None, None, 48, 48, device="cpu", BLOCK_SIZE=16)
    assert mask.shape == (1, 1, 48, 48) and mask.kv_num_blocks.tolist() == [[[1, 1, 1]]] and mask.full_kv_num_blocks.tolist() == [[[0, 1,
                                                                                                                                    2]]]
    assert mask.to_dense().tolist() == [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
    part = mask[0, -1]
    assert part.kv_num_blocks.shape == (1, 1, 3) and mask[:, :, 1].kv_indices.shape == (1, 1, 1, 3)
    with pytest.raises(RuntimeError, match="Cannot use mask_mod from a sliced BlockMask"):
        part.mask_mod(0, 0, 0, 0)
    assert mask.q_num_blocks.tolist() == [[[1, 1, 1]]] and mask.full_q_num_blocks.tolist() == [[[2, 1, 0]]]
    assert mask.BLOCK_SIZE == (16, 16) and round(mask.sparsity(), 2) == 33.33 and mask.numel() == 48 * 48
    either = flex.create_mask(flex.or_masks(causal, lambda b, h, i, j: j == 3), None, None, 4, 4, device="cpu")
    assert either[0, 0].tolist() == [[True, False, False, True], [True, True, False, True], [True, True, True, True], [True] * 4]
    made = flex.BlockMask.from_kv_blocks(mask.kv_num_blocks, mask.kv_indices, BLOCK_SIZE=16, mask_mod=causal)
    assert made.to_dense().tolist() == [[[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]]


def test_functions_that_do_not_broadcast():
    flex, table = arete.nn.attention.flex_attention, arete.randn(2, 8)
    q = arete.randn(1, 2, 4, 8)

    def chained(score, b, h, i, j):
        return score + table[h][i - j + 3]

    def together(score, b, h, i, j):
        return score + table[h, i - j + 3]

    arete.testing.assert_close(flex.flex_attention(q, q, q, chained), flex.flex_attention(q, q, q, together))
    with pytest.raises(RuntimeError, match="calls are too many"):
        wide = arete.randn(1, 2, 200, 8)
        flex.flex_attention(wide, wide, wide, lambda score, b, h, i, j: score + arete.randn(2, 500)[h][i - j + 200])
