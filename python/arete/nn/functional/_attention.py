"""Attention."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ... import _C, _operators
from ..._C import Tensor
from ..._operators import _ops


def _canonical_mask(
    mask: Optional[Tensor],
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> Optional[Tensor]:
    """A mask to be added: booleans (True forbids) become 0 and -inf."""
    if mask is None:
        return None
    if mask.dtype == _C.bool:
        zeros = _operators.zeros(mask.shape, dtype=target_type, device=mask.device)
        return zeros.masked_fill(mask, float("-inf"))
    if not mask.is_floating_point():
        raise AssertionError(
            f"only bool and floating types of {mask_name} are supported"
        )
    return mask


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, padding: Optional[Tensor], mask: Optional[Tensor],
    num_heads: int,
) -> bool:
    """Whether the inputs are batched; AssertionError if their shapes disagree."""
    if query.dim() not in (2, 3):
        raise AssertionError(
            "query should be unbatched 2D or batched 3D tensor but received "
            f"{query.dim()}-D query tensor"
        )
    batched = query.dim() == 3
    kind = "batched (3-D)" if batched else "unbatched (2-D)"
    rest = 3 if batched else 2
    if key.dim() != rest or value.dim() != rest:
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {rest}-D but found "
            f"{key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if padding is not None and padding.dim() != rest - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {rest - 1}-D but "
            f"found {padding.dim()}-D tensor instead"
        )
    if mask is not None:
        if mask.dim() not in (2, 3):
            raise AssertionError(
                f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found "
                f"{mask.dim()}-D tensor instead"
            )
        if not batched and mask.dim() == 3:
            expected = (num_heads, query.shape[0], key.shape[0])
            if tuple(mask.shape) != expected:
                raise AssertionError(
                    f"Expected `attn_mask` shape to be {expected} but got {mask.shape}"
                )
    return batched


def _project(
    query: Tensor, key: Tensor, value: Tensor, weight: Optional[Tensor], bias: Optional[Tensor],
    separate: Optional[Tuple[Tensor, Tensor, Tensor]],
) -> Tuple[Tensor, Tensor, Tensor]:
    """The inputs of all heads, from one packed weight (3 E, E) or three separate ones."""
    linear = _ops.linear
    embed = query.shape[-1]
    if separate is None:
        assert weight is not None
        if key is value and query is key:
            q, k, v = linear(query, weight, bias).chunk(3, -1)
            return q, k, v
        if key is value:
            wq, wkv = weight.split([embed, 2 * embed])
            bq, bkv = (None, None) if bias is None else bias.split([embed, 2 * embed])
            k, v = linear(key, wkv, bkv).chunk(2, -1)
            return linear(query, wq, bq), k, v
        separate = weight.chunk(3)
    bq, bk, bv = (None, None, None) if bias is None else bias.chunk(3)
    return linear(query, separate[0], bq), linear(key, separate[1], bk), linear(value, separate[2], bv)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Optional[Tensor],
    in_proj_bias: Optional[Tensor],
    bias_k: Optional[Tensor],
    bias_v: Optional[Tensor],
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Optional[Tensor],
    training: bool = True,
    key_padding_mask: Optional[Tensor] = None,
    need_weights: bool = True,
    attn_mask: Optional[Tensor] = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Optional[Tensor] = None,
    k_proj_weight: Optional[Tensor] = None,
    v_proj_weight: Optional[Tensor] = None,
    static_k: Optional[Tensor] = None,
    static_v: Optional[Tensor] = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Attention of several heads: query (L, N, E), key (S, N, Ek), value (S, N, Ev), or without N.

    Gives the output (L, N, E) and with need_weights the weights (N, L, S), averaged over the heads
    or (N, heads, L, S). True elements of boolean masks forbid; floating masks are added.

    AssertionError or RuntimeError where shapes disagree; nn.MultiheadAttention keeps the weights.

    >>> x, w, b = arete.ones(3, 1, 4), arete.eye(4).repeat(3, 1), arete.zeros(12)
    >>> out, weights = F.multi_head_attention_forward(
    ...     x, x, x, 4, 2, w, b, None, None, False, 0.0, arete.eye(4), arete.zeros(4))
    >>> out.shape, weights[0, 0]
    (arete.Size([3, 1, 4]), tensor([0.3333, 0.3333, 0.3333]))
    """
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same_kv, same_qk = key is value, query is key
        query = query.unsqueeze(1)
        key = query if same_qk else key.unsqueeze(1)
        value = key if same_kv else value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    length, batch, embed = query.shape
    source = key.shape[0]
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint."
        )
    if embed != embed_dim_to_check:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed}"
        )
    head = embed // num_heads
    if head * num_heads != embed:
        raise AssertionError(f"embed_dim {embed} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {key.shape[:2]} do not match value's "
                f"{value.shape[:2]}"
            )
        separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        if key.shape != value.shape:
            raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
        separate = None
    # A causal hint needs no mask when nothing else forbids.
    causal = is_causal and key_padding_mask is None and not need_weights
    padding = _canonical_mask(key_padding_mask, "key_padding_mask", None, "", query.dtype)
    mask = None if causal else _canonical_mask(attn_mask, "attn_mask", None, "", query.dtype)
    if mask is not None:
        if mask.dim() == 2:
            if tuple(mask.shape) != (length, source):
                raise RuntimeError(
                    f"The shape of the 2D attn_mask is {mask.shape}, but should be "
                    f"{(length, source)}."
                )
            mask = mask.unsqueeze(0)
        elif tuple(mask.shape) != (batch * num_heads, length, source):
            raise RuntimeError(
                f"The shape of the 3D attn_mask is {mask.shape}, but should be "
                f"{(batch * num_heads, length, source)}."
            )

    q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias, separate)
    extra = 0
    if bias_k is not None and bias_v is not None:
        k = _operators.cat([k, bias_k.expand(1, batch, embed)])
        v = _operators.cat([v, bias_v.expand(1, batch, embed)])
        extra += 1
    q = q.reshape(length, batch * num_heads, head).transpose(0, 1)
    k = _heads(k, static_k, batch * num_heads, head)
    v = _heads(v, static_v, batch * num_heads, head)
    if add_zero_attn:
        zeros = _operators.zeros((batch * num_heads, 1, head), dtype=k.dtype, device=k.device)
        k, v = _operators.cat([k, zeros], 1), _operators.cat([v, zeros], 1)
        extra += 1
    source = k.shape[1]
    if extra:
        causal = False
        if mask is None and is_causal:
            mask = _canonical_mask(attn_mask, "attn_mask", None, "", query.dtype).unsqueeze(0)
        mask = None if mask is None else _ops.pad(mask, (0, extra))
        padding = None if padding is None else _ops.pad(padding, (0, extra))
    if padding is not None:
        if tuple(padding.shape) != (batch, source):
            raise AssertionError(
                f"expecting key_padding_mask shape of {(batch, source - extra)}, but got "
                f"{(padding.shape[0], padding.shape[1] - extra)}"
            )
        padding = padding.reshape(batch, 1, 1, source).expand(batch, num_heads, 1, source)
        padding = padding.reshape(batch * num_heads, 1, source)
        mask = padding if mask is None else mask + padding
    if not training:
        dropout_p = 0.0
    weights = None
    if need_weights:
        scores = _operators.bmm(q * head**-0.5, k.transpose(1, 2))
        if mask is not None:
            scores = scores + mask
        weights = _ops.softmax(scores, -1)
        if dropout_p > 0.0:
            weights = _ops.dropout(weights, dropout_p)
        out = _operators.bmm(weights, v)
    else:
        if mask is not None:
            if mask.shape[0] == 1:
                mask = mask.unsqueeze(0)
            else:
                mask = mask.unflatten(0, (batch, num_heads))
        heads = [x.unflatten(0, (batch, num_heads)) for x in (q, k, v)]
        out = _ops.scaled_dot_product_attention(*heads, mask, dropout_p, causal).reshape(batch * num_heads, length, head)
    out = out.transpose(0, 1).reshape(length, batch, embed)
    out = _ops.linear(out, out_proj_weight, out_proj_bias)
    if weights is not None:
        weights = weights.reshape(batch, num_heads, length, source)
        if average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            weights = weights.squeeze(0)
    return (out if batched else out.squeeze(1)), weights


def _heads(x: Tensor, static: Optional[Tensor], count: int, head: int) -> Tensor:
    """(S, N, E) as (N * heads, S, head), unless given as such."""
    if static is None:
        return x.reshape(x.shape[0], count, head).transpose(0, 1)
    if static.shape[0] != count or static.shape[2] != head:
        raise AssertionError(
            f"expecting static keys and values of shape ({count}, S, {head}), but got "
            f"{tuple(static.shape)}"
        )
    return static
