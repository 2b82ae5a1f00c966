"""MultiheadAttention (torch's home for it is `activation`)."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ... import _operators
from ..._C import Tensor
from .. import functional as F
from .. import init
from ..parameter import Parameter
from ._records import check
from .linear import NonDynamicallyQuantizableLinear
from .module import Module

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of num_heads heads: query (L, N, E), key (S, N, kdim), value (S, N, vdim).

    batch_first puts the batch in front; a missing batch is allowed. The result is the output and,
    with need_weights, the weights (N, L, S), averaged over the heads, else None. True elements of
    boolean masks forbid; floating masks are added.

    >>> attention = nn.MultiheadAttention(16, 4, batch_first=True)
    >>> x = arete.randn(2, 5, 16)
    >>> output, weights = attention(x, x, x)
    >>> output.shape, weights.shape
    (arete.Size([2, 5, 16]), arete.Size([2, 5, 5]))
    """

    __constants__ = ["batch_first"]
    bias_k: Optional[Tensor]
    bias_v: Optional[Tensor]

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: Optional[int] = None,
        vdim: Optional[int] = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        flags = (dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first)
        check("MultiheadAttention", embed_dim, num_heads, *flags)
        options: dict = {"device": device, "dtype": dtype}
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = kdim if kdim is not None else embed_dim
        self.vdim = vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self._qkv_same_embed_dim:
            self.in_proj_weight = Parameter(_operators.empty((3 * embed_dim, embed_dim), **options))
            self.register_parameter("q_proj_weight", None)
            self.register_parameter("k_proj_weight", None)
            self.register_parameter("v_proj_weight", None)
        else:
            self.q_proj_weight = Parameter(_operators.empty((embed_dim, embed_dim), **options))
            self.k_proj_weight = Parameter(_operators.empty((embed_dim, self.kdim), **options))
            self.v_proj_weight = Parameter(_operators.empty((embed_dim, self.vdim), **options))
            self.register_parameter("in_proj_weight", None)
        if bias:
            self.in_proj_bias = Parameter(_operators.empty(3 * embed_dim, **options))
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **options)
        if add_bias_kv:
            self.bias_k = Parameter(_operators.empty((1, 1, embed_dim), **options))
            self.bias_v = Parameter(_operators.empty((1, 1, embed_dim), **options))
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        for name in ("in_proj_weight",) if self._qkv_same_embed_dim else names:
            init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
        if self.bias_v is not None:
            init.xavier_normal_(self.bias_v)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Optional[Tensor] = None,
        need_weights: bool = True,
        attn_mask: Optional[Tensor] = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        swap = self.batch_first and query.dim() == 3
        if swap:
            same_kv, same_qk = key is value, query is key
            query = query.transpose(1, 0)
            key = query if same_qk else key.transpose(1, 0)
            value = key if same_kv else value.transpose(1, 0)
        separate = not self._qkv_same_embed_dim
        output, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=separate,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (output.transpose(1, 0) if swap else output), weights

    def merge_masks(
        self,
        attn_mask: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        query: Tensor,
    ) -> Tuple[Optional[Tensor], Optional[int]]:
        """One mask (N, heads, L, S) and its kind: 0 attention, 1 padding, 2 both, None neither."""
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length = query.shape[:2]
        if attn_mask.dim() == 3:
            merged = attn_mask.reshape(batch, -1, length, length)
        else:
            merged = attn_mask.reshape(1, 1, length, length)
            merged = merged.expand(batch, self.num_heads, length, length)
        if key_padding_mask is None:
            return (attn_mask if attn_mask.dim() == 2 else merged), 0
        return merged + key_padding_mask.reshape(batch, 1, 1, length), 2
