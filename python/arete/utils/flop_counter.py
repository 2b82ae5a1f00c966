"""Counts the arithmetic of products, convolutions and attention, forwards and backwards."""
from __future__ import annotations

from typing import Any

from ..profiler import profile

__all__ = ["FlopCounterMode"]

_COUNTED = frozenset("""
addbmm addmm addmv baddbmm bilinear bmm chain_matmul conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
convolution convolution_dgrad convolution_wgrad convolution_wgrad_bias dot einsum fused_attention fused_attention_backward linalg_matmul
linalg_multi_dot linalg_vecdot linear linear_weight_grad matmul matmul_scaled mm mm_activation_grad mv row_dots scaled_dot_product_attention
scaled_mm tap_products tensordot vdot
""".split())


class FlopCounterMode:
    """Within a block counts floating-point operations of products, convolutions and attention, an addition as one; the profiler does it.

    They are told by operator under "Global"; parts of modules are not told apart. With `display` a table is printed at the end.

    >>> with arete.utils.flop_counter.FlopCounterMode(display=False) as counter:
    ...     _ = arete.ones(2, 3) @ arete.ones(3, 4)
    >>> counter.get_total_flops()
    48
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: Any = None) -> None:
        if custom_mapping:
            raise NotImplementedError("FlopCounterMode(custom_mapping): operators have their counts in their records")
        self.display = display
        self._counts: dict[str, int] = {}

    def __enter__(self) -> FlopCounterMode:
        self._counts = {}
        self._profile = profile(with_flops=True)
        self._profile.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._profile.__exit__(*error)
        for row in self._profile.key_averages():
            if row.flops and row.key.rstrip("_") in _COUNTED:
                self._counts[row.key] = self._counts.get(row.key, 0) + int(row.flops)
        if self.display:
            print(self.get_table())

    def get_total_flops(self) -> int:
        return sum(self._counts.values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        return {"Global": dict(self._counts)}

    def get_table(self, depth: Any = None) -> str:
        rows = [("Global", self.get_total_flops()), *sorted(self._counts.items(), key=lambda r: -r[1])]
        return "\n".join(f"{name:32}{count:>20,}" for name, count in rows)
