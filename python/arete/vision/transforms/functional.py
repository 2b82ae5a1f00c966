"""Changes of pictures without random choices. Pictures are tensors (C, H, W) with any sizes before them, unless said otherwise."""
from __future__ import annotations

from enum import Enum
from numbers import Integral, Real
from typing import Any, List, Optional, Sequence, Tuple, Union

from ... import _operators
from ... import _C
from ..._C import Tensor

__all__ = ["InterpolationMode", "adjust_hue", "center_crop", "crop", "hflip", "normalize", "pad", "resize", "rgb_to_grayscale",
           "to_tensor", "vflip"]


class InterpolationMode(Enum):
    """How pixels are made from those around them when a picture is resized.

    >>> arete.vision.transforms.InterpolationMode.BILINEAR.value
    'bilinear'
    """

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_OF_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def _picture(name: str, img: Any) -> Tensor:
    if not isinstance(img, Tensor):
        raise TypeError(f"{name} takes a picture as a tensor (C, H, W), got {type(img).__name__}; ToTensor() makes one of an array")
    if img.dim() < 3:
        raise ValueError(f"{name} takes a picture (C, H, W), got a tensor of shape {tuple(img.shape)}")
    return img


def _is_int(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _number(name: str, argument: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: {argument} must be a number, got {value!r}")
    return float(value)


def _size(name: str, size: Any) -> Tuple[int, int]:
    """(height, width)."""
    sides = (size,) if _is_int(size) else tuple(size) if isinstance(size, (list, tuple)) else ()
    if len(sides) not in (1, 2) or not all(map(_is_int, sides)):
        raise TypeError(f"{name}: size must be an int or (height, width), got {size!r}")
    if min(sides) < 1:
        raise ValueError(f"{name}: size must be positive, got {size!r}")
    return int(sides[0]), int(sides[-1])


def _one_side(size: Any) -> bool:
    return _is_int(size) or len(size) == 1


def _sides(name: str, padding: Any) -> List[int]:
    """Left, top, right, bottom."""
    sides = [padding] if _is_int(padding) else list(padding) if isinstance(padding, (list, tuple)) else []
    if len(sides) not in (1, 2, 4) or not all(map(_is_int, sides)):
        raise TypeError(f"{name}: padding must be an int, (left and right, top and bottom) or (left, top, right, bottom), got {padding!r}")
    return [int(n) for n in sides] * (4 // len(sides))


def _colour(name: str, argument: str, value: Any) -> List[float]:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)) and value:
        return [_number(name, argument, v) for v in value]
    return [_number(name, argument, value)]


def _padding_mode(name: str, mode: Any) -> str:
    if mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError(f"{name}: padding_mode must be constant, edge, reflect or symmetric, got {mode!r}")
    return mode


def _interpolation(name: str, mode: Any) -> str:
    text = mode.value if isinstance(mode, InterpolationMode) else _OF_PILLOW.get(mode) if _is_int(mode) else mode
    if text in ("box", "hamming", "lanczos"):
        raise NotImplementedError(f"{name}: interpolation {text} is not supported; nearest, nearest-exact, bilinear and bicubic are")
    if text not in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        raise ValueError(f"{name}: interpolation must be an InterpolationMode (nearest, nearest-exact, bilinear or bicubic), got {mode!r}")
    return text


def _antialias(name: str, antialias: Any) -> bool:
    if antialias is None:
        return True
    if not isinstance(antialias, bool):
        raise TypeError(f"{name}: antialias must be a bool, got {antialias!r}")
    return antialias


def _longest(name: str, size: Any, max_size: Any) -> int:
    """The longest side that is allowed, 0: any."""
    if max_size is None:
        return 0
    if not _one_side(size):
        raise ValueError(f"{name}: max_size is for a size that is one int, the shorter side, got size {size!r}")
    if not _is_int(max_size):
        raise TypeError(f"{name}: max_size must be an int, got {max_size!r}")
    if max_size <= _size(name, size)[0]:
        raise ValueError(f"{name}: max_size = {max_size} must be greater than the size of the shorter side, {size!r}")
    return int(max_size)


def _each(img: Tensor, native: Any) -> Tensor:
    """A C++ transform without random choices of each picture."""
    if img.dim() == 3:
        return native(img, _C.default_generator)
    rows = [native(x, _C.default_generator) for x in img.reshape(-1, *img.shape[-3:])]
    return _operators.stack(rows).reshape(*img.shape[:-3], *rows[0].shape)


def _native_resize(size: Any, longest: int) -> Any:
    return _C._resize_shorter(_size("resize", size)[0], longest) if _one_side(size) else _C._resize(*_size("resize", size))


def resize(img: Tensor, size: Union[int, Sequence[int]], interpolation: Any = InterpolationMode.BILINEAR,
           max_size: Optional[int] = None, antialias: Optional[bool] = True) -> Tensor:
    """To (height, width), or the shorter side to an int, with the longer one at most `max_size`.

    Bilinear with antialias is a triangle filter; nearest, nearest-exact and bicubic, and bilinear without antialias, are
    those of arete.nn.functional.interpolate. NotImplementedError for the other modes.

    >>> arete.vision.transforms.functional.resize(arete.zeros(3, 4, 6), 2).shape
    arete.Size([3, 2, 3])
    """
    from ...nn.functional import interpolate

    _size("resize", size)
    mode, antialias, longest = _interpolation("resize", interpolation), _antialias("resize", antialias), _longest("resize", size, max_size)
    img = _picture("resize", img)
    if mode == "bilinear" and antialias and img.dtype in (_C.uint8, _C.float32):
        return _each(img, _native_resize(size, longest))
    height, width = _size("resize", size)
    if _one_side(size):
        shorter, longer = height, max(height * max(img.shape[-2:]) // max(min(img.shape[-2:]), 1), 1)
        if longest and longer > longest:
            shorter, longer = max(longest * shorter // longer, 1), longest
        height, width = (shorter, longer) if img.shape[-2] < img.shape[-1] else (longer, shorter)
    smooth = {} if mode.startswith("nearest") else {"antialias": antialias, "align_corners": False}
    values = img if img.is_floating_point() else img.to(_C.float32)
    values = interpolate(values.reshape(-1, *img.shape[-3:]), (height, width), mode=mode, **smooth)
    if img.dtype is _C.uint8:
        values = values.round().clamp(0, 255)
    return values.to(img.dtype).reshape(*img.shape[:-2], height, width)


def _places(n: int, before: int, after: int, mode: str) -> List[int]:
    """Which of n elements stands at each position from `before` ahead of them to `after` behind them."""
    if mode == "edge":
        return [min(max(i, 0), n - 1) for i in range(-before, n + after)]
    again = 1 if mode == "symmetric" else 0  # whether the element at the border comes twice
    if max(before, after) > n - 1 + again:
        raise ValueError(f"pad: padding_mode {mode} takes at most {n - 1 + again} pixels at a side of {n}, got {max(before, after)}")
    period = max(2 * (n - 1 + again), 1)
    places = (i % period for i in range(-before, n + after))
    return [i if i < n else period - again - i for i in places]


def pad(img: Tensor, padding: Union[int, Sequence[int]], fill: Union[float, Sequence[float]] = 0, padding_mode: str = "constant") -> Tensor:
    """With pixels around it: `padding` is one int, (left and right, top and bottom) or (left, top, right, bottom); negative ones cut off.

    `fill` is one number or one for each channel. The modes edge, reflect and symmetric repeat the picture's own pixels.

    >>> arete.vision.transforms.functional.pad(arete.tensor([[[1.0, 2.0]]]), [1, 0], fill=5)
    tensor([[[5., 1., 2., 5.]]])
    """
    left, top, right, bottom = _sides("pad", padding)
    mode, colour = _padding_mode("pad", padding_mode), _colour("pad", "fill", fill)
    img = _picture("pad", img)
    height, width = img.shape[-2:]
    if mode == "constant":
        return _cut("pad", img, -top, -left, height + top + bottom, width + left + right, colour)
    if min(left, top, right, bottom) < 0:
        raise ValueError(f"pad: negative padding needs padding_mode constant, got {padding!r}")
    rows = _C.tensor(_places(height, top, bottom, mode))
    return img.index_select(-2, rows).index_select(-1, _C.tensor(_places(width, left, right, mode)))


def _cut(name: str, img: Tensor, top: int, left: int, height: int, width: int, colour: Sequence[float] = (0.0,)) -> Tensor:
    """A part that may reach beyond the picture."""
    if min(height, width) < 0:
        raise ValueError(f"{name}: nothing is left of a picture of shape {tuple(img.shape)}")
    y, x = max(top, 0), max(left, 0)
    bottom, right = min(top + height, img.shape[-2]), min(left + width, img.shape[-1])
    inside = img[..., y:max(bottom, y), x:max(right, x)]
    if tuple(inside.shape[-2:]) == (height, width):
        return inside
    if len(colour) not in (1, img.shape[-3]):
        raise ValueError(f"{name}: a colour of {len(colour)} numbers for a picture of {img.shape[-3]} channels")
    out = _C.tensor(list(colour)).to(img.dtype).view(-1, 1, 1).expand(*img.shape[:-2], height, width).clone()
    if inside.numel():
        out[..., y - top:bottom - top, x - left:right - left] = inside
    return out


def crop(img: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """The part of height x width pixels from row `top` and column `left` on; zeros beyond the picture.

    >>> arete.vision.transforms.functional.crop(arete.arange(9.0).reshape(1, 3, 3), 1, 2, 2, 2)
    tensor([[[5., 0.],
             [8., 0.]]])
    """
    for argument, value in (("top", top), ("left", left), ("height", height), ("width", width)):
        if not _is_int(value):
            raise TypeError(f"crop: {argument} must be an int, got {value!r}")
    return _cut("crop", _picture("crop", img), top, left, height, width)


def center_crop(img: Tensor, output_size: Union[int, Sequence[int]]) -> Tensor:
    """The middle pixels; zeros where the picture is smaller.

    >>> arete.vision.transforms.functional.center_crop(arete.arange(9.0).reshape(1, 3, 3), 1)
    tensor([[[4.]]])
    """
    height, width = _size("center_crop", output_size)
    img = _picture("center_crop", img)
    top, left = ((n - part + 1) // 2 for n, part in zip(img.shape[-2:], (height, width)))
    return _cut("center_crop", img, top, left, height, width)


def hflip(img: Tensor) -> Tensor:
    """Mirrored left to right.

    >>> arete.vision.transforms.functional.hflip(arete.tensor([[[1.0, 2.0]]]))
    tensor([[[2., 1.]]])
    """
    return _picture("hflip", img).flip(-1)


def vflip(img: Tensor) -> Tensor:
    """Mirrored upside down.

    >>> arete.vision.transforms.functional.vflip(arete.tensor([[[1.0], [2.0]]]))
    tensor([[[2.],
             [1.]]])
    """
    return _picture("vflip", img).flip(-2)


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """(x - mean) / std for each channel of a picture of floats. ValueError for a std of zero.

    >>> arete.vision.transforms.functional.normalize(arete.ones(1, 1, 2), [0.5], [0.25])
    tensor([[[2., 2.]]])
    """
    tensor = _picture("normalize", tensor)
    if not tensor.is_floating_point():
        raise TypeError(f"normalize takes a picture of floats, got {tensor.dtype}; to_tensor or ConvertImageDtype makes one")
    shift, scale = _colour("normalize", "mean", mean), _colour("normalize", "std", std)
    for argument, values in (("mean", shift), ("std", scale)):
        if len(values) not in (1, tensor.shape[-3]):
            raise ValueError(f"normalize: {argument} has {len(values)} numbers for a picture of {tensor.shape[-3]} channels")
    if 0 in scale:
        raise ValueError(f"normalize: std must not be zero, got {std!r}")
    where = {"dtype": tensor.dtype, "device": tensor.device}
    out = tensor if inplace else tensor.clone()
    return out.sub_(_C.tensor(shift, **where).view(-1, 1, 1)).div_(_C.tensor(scale, **where).view(-1, 1, 1))


def rgb_to_grayscale(img: Tensor, num_output_channels: int = 1) -> Tensor:
    """The luma (ITU-R BT.601) of a picture of three channels, once or three times; one channel stays.

    >>> arete.vision.transforms.functional.rgb_to_grayscale(arete.tensor([[[0.0]], [[1.0]], [[0.0]]]))
    tensor([[[0.5870]]])
    """
    if num_output_channels not in (1, 3):
        raise ValueError(f"rgb_to_grayscale: num_output_channels must be 1 or 3, got {num_output_channels!r}")
    img = _picture("rgb_to_grayscale", img)
    if img.shape[-3] not in (1, 3):
        raise ValueError(f"rgb_to_grayscale takes a picture of 1 or 3 channels, got shape {tuple(img.shape)}")
    if img.shape[-3] == 3:
        values = img if img.is_floating_point() else img.to(_C.float32)
        red, green, blue = values.unbind(-3)
        luma = 0.299 * red + 0.587 * green + 0.114 * blue
        img = (luma if img.is_floating_point() else luma.add(0.5)).to(img.dtype).unsqueeze(-3)
    return img.expand(*img.shape[:-3], num_output_channels, *img.shape[-2:]).contiguous() if num_output_channels == 3 else img


def to_tensor(pic: Any) -> Tensor:
    """An array (H, W, C) or (H, W), or a picture of Pillow, as a tensor (C, H, W): bytes become float32 in [0, 1], other numbers stay.

    >>> import numpy
    >>> arete.vision.transforms.functional.to_tensor(numpy.full((1, 2, 1), 255, numpy.uint8))
    tensor([[[1., 1.]]])
    """
    if isinstance(pic, Tensor):
        raise TypeError("to_tensor takes a NumPy array or a picture of Pillow, got a Tensor; ToTensor() takes those too")
    if not type(pic).__module__.startswith(("numpy", "PIL.")):
        raise TypeError(f"to_tensor takes a NumPy array or a picture of Pillow, got {type(pic).__name__}")
    import numpy

    array = numpy.asarray(pic)
    if array.ndim not in (2, 3):
        raise ValueError(f"to_tensor takes an array (H, W) or (H, W, C), got shape {array.shape}")
    if array.dtype == bool and not isinstance(pic, numpy.ndarray):  # Pillow's mode "1"
        array = array.astype(numpy.uint8) * 255
    array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    tensor = _C.tensor(numpy.ascontiguousarray(array))
    return tensor.to(_C.float32).div(255) if tensor.dtype is _C.uint8 else tensor


def adjust_hue(img: Tensor, hue_factor: float) -> Tensor:
    """The picture (C, H, W) with its hue moved by a part of the circle of colours, from -0.5 to 0.5; saturation and value stay.

    Pictures of one channel stay as they are.

    >>> red = arete.tensor([255, 0, 0], dtype=arete.uint8).view(3, 1, 1)
    >>> arete.vision.transforms.functional.adjust_hue(red, 1 / 3).flatten()
    tensor([  0, 255,   0], dtype=arete.uint8)
    """
    return _C._adjust_hue(_picture("adjust_hue", img), _number("adjust_hue", "hue_factor", hue_factor))
