"""The operators that torchvision's Python calls and has in a library for PyTorch's C++: suppression of overlapping boxes, and regions
with interpolation, which its own Python computes. The others say that they are not there."""
from __future__ import annotations

from typing import Any

from . import _C
from ._library import DEFINITIONS, define
from ._operators import _ops

_ABSENT = {
    "roi_pool": "(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width) -> (Tensor, Tensor)",
    "ps_roi_align": "(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, int sampling_ratio) "
                    "-> (Tensor, Tensor)",
    "ps_roi_pool": "(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width) -> (Tensor, Tensor)",
    "deform_conv2d": "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, int stride_h, int stride_w, int pad_h, "
                     "int pad_w, int dilation_h, int dilation_w, int groups, int offset_groups, bool use_mask) -> Tensor",
    # Gradients, of which its Python registers sizes; nothing calls them.
    **dict.fromkeys(("_roi_align_backward", "_ps_roi_align_backward", "_roi_pool_backward", "_ps_roi_pool_backward",
                     "_deform_conv2d_backward"), "(Tensor grad) -> Tensor"),
}


def _nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """Positions of the boxes (n, 4) that overlap no better one by more than the threshold, the best first."""
    if dets.dim() != 2 or dets.shape[1] != 4:
        raise RuntimeError(f"boxes should be a 2d tensor of shape (n, 4), got {tuple(dets.shape)}")
    if scores.dim() != 1 or scores.shape[0] != dets.shape[0]:
        raise RuntimeError(f"boxes and scores should have same number of elements in dimension 0, got {dets.shape[0]} and "
                           f"{tuple(scores.shape)}")
    order = scores.argsort(descending=True, stable=True)
    boxes = dets.detach()[order]
    boxes = boxes if boxes.dtype in (_C.float32, _C.float64) else boxes.to(_C.float32)
    low, high = boxes[:, :2], boxes[:, 2:]
    area = (high - low).prod(1)
    alive = [True] * len(boxes)
    kept = []
    for first in range(0, len(boxes), 512):  # not all pairs at once: their number is the square
        block = slice(first, first + 512)
        size = (_ops.minimum(high[block, None], high[None]) - _ops.maximum(low[block, None], low[None])).clamp(min=0)
        both = size.prod(-1)
        over = (both / (area[block, None] + area[None] - both) > iou_threshold).cpu()
        for i in range(len(over)):
            if not alive[first + i]:
                continue
            kept.append(first + i)
            for j in over[i].nonzero()[:, 0].tolist():
                if j > first + i:
                    alive[j] = False
    return order[_C.tensor(kept, dtype=_C.int64).to(order.device)]


def _roi_align(input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int,  # noqa: A002
               sampling_ratio: int, aligned: bool) -> Any:
    from torchvision.ops import roi_align  # type: ignore[import-not-found]  # the function, of which the module is behind

    written = roi_align.__globals__["_roi_align"]
    return written(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned)


def _absent(name: str) -> Any:
    def function(*args: Any) -> Any:
        raise NotImplementedError(f"torchvision::{name}: there are nms and roi_align of torchvision's operators")

    return function


def install() -> None:
    """Defines them, once."""
    if "torchvision::nms" in DEFINITIONS:
        return
    define("torchvision::nms", "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor").kernels["any"] = _nms
    define("torchvision::_cuda_version", "_cuda_version() -> int").kernels["any"] = lambda: -1  # built without CUDA
    define("torchvision::roi_align", "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
                                     "int sampling_ratio, bool aligned) -> Tensor").kernels["implicit"] = _roi_align
    for name, schema in _ABSENT.items():
        define(f"torchvision::{name}", name + schema).kernels["implicit"] = _absent(name)
