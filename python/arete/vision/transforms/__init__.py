"""Augmentation of pictures: tensors (C, H, W), uint8 or float32, on the CPU.

Random ones draw from arete's default generator, which in a DataLoader's worker is the worker's own: the same seed gives the
same pictures."""
from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, List, Optional, Sequence, Union

from ... import _operators
from ... import _C
from ..._C import Tensor
from . import functional as functional
from .functional import InterpolationMode as InterpolationMode

__all__ = ["CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "Grayscale", "InterpolationMode", "Lambda", "Normalize", "Pad",
           "RandomApply", "RandomChoice", "RandomCrop", "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip", "RandomOrder",
           "RandomResizedCrop", "RandomVerticalFlip", "Resize", "ToTensor", "functional"]


def _probability(name: str, p: Any) -> float:
    value = functional._number(name, "p", p)
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: p must be in 0..1, got {p!r}")
    return value


def _range(name: str, argument: str, value: Any) -> List[float]:
    """Two positive numbers in order."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise TypeError(f"{name}: {argument} must be two numbers, got {value!r}")
    low, high = (functional._number(name, argument, v) for v in value)
    if not 0 < low <= high:
        raise ValueError(f"{name}: {argument} must be positive and in order, got {value!r}")
    return [low, high]


def _callables(name: str, transforms: Any) -> List[Callable]:
    if isinstance(transforms, (str, bytes)) or not hasattr(transforms, "__iter__"):
        raise TypeError(f"{name}: transforms must be a list of transforms, got {transforms!r}")
    found = list(transforms)
    for t in found:
        if not callable(t):
            raise TypeError(f"{name}: transforms must be callable, got {t!r}")
    return found


def _uniform(low: float = 0.0, high: float = 1.0) -> float:
    return low + (high - low) * _operators.rand((), dtype=_C.float64).item()


class _Native:
    """A transform of the C++ library, after `first` in Python if that is given. `native` None: `first` is all. `inplace`: the result
    replaces the picture."""

    def __init__(self, native: Any, text: str, first: Optional[Callable] = None, inplace: bool = False) -> None:
        self._native = native
        self._inplace = inplace
        self._text = text
        self._first = first

    def __call__(self, img: Tensor) -> Tensor:
        if not isinstance(img, Tensor):
            functional._picture(type(self).__name__, img)  # raises
        if self._first is not None:
            img = self._first(img)
        if self._native is None:
            return img
        made = self._native(img, _C.default_generator)
        if not self._inplace:
            return made
        if img.dtype != made.dtype:
            raise TypeError(f"{self._text}: a picture of {img.dtype} has no room for the result in place, which is of {made.dtype}")
        return img.copy_(made)

    def __repr__(self) -> str:
        return self._text


class Compose:
    """One transform after the other.

    >>> both = arete.vision.transforms.Compose([arete.vision.transforms.Resize((2, 2)), arete.vision.transforms.ToTensor()])
    >>> both(arete.full((1, 4, 4), 255, dtype=arete.uint8))
    tensor([[[1., 1.],
             [1., 1.]]])
    """

    def __init__(self, transforms: List[Callable]) -> None:
        self.transforms = _callables("Compose", transforms)

    def __call__(self, img):
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        return "Compose(\n" + "".join(f"    {t!r}\n" for t in self.transforms) + ")"


def _natives(transform: Callable) -> Optional[list]:
    """The C++ transforms that `transform` stands for, one after the other; None if there is anything else in it."""
    call = getattr(type(transform), "__call__", None)
    if call in (_Native.__call__, ToTensor.__call__):
        return [transform._native] if transform._first is None and not transform._inplace else None  # type: ignore[attr-defined]
    if call is not Compose.__call__:
        return None
    parts = [_natives(t) for t in transform.transforms]  # type: ignore[attr-defined]
    return None if None in parts else [native for part in parts for native in part]  # type: ignore[union-attr]


class Lambda:
    """A function as a transform.

    >>> arete.vision.transforms.Lambda(lambda x: x + 1)(arete.zeros(1, 1, 2))
    tensor([[[1., 1.]]])
    """

    def __init__(self, lambd: Callable) -> None:
        if not callable(lambd):
            raise TypeError(f"Lambda: lambd must be callable, got {lambd!r}")
        self.lambd = lambd

    def __call__(self, img):
        return self.lambd(img)

    def __repr__(self) -> str:
        return "Lambda()"


class RandomApply:
    """All of `transforms`, one after the other, with probability p.

    >>> half = arete.vision.transforms.RandomApply([arete.vision.transforms.Lambda(lambda x: x + 1)], p=1.0)
    >>> half(arete.zeros(1, 1, 2))
    tensor([[[1., 1.]]])
    """

    def __init__(self, transforms: Sequence[Callable], p: float = 0.5) -> None:
        self.transforms = _callables("RandomApply", transforms)
        self.p = _probability("RandomApply", p)

    def __call__(self, img):
        if _uniform() < self.p:
            for t in self.transforms:
                img = t(img)
        return img

    def __repr__(self) -> str:
        return f"RandomApply(p={self.p}, transforms={self.transforms})"


class RandomChoice:
    """One of `transforms`; `p` are weights, by default all the same.

    >>> first = arete.vision.transforms.RandomChoice([lambda x: x + 1, lambda x: x - 1], p=[1, 0])
    >>> first(arete.zeros(1, 1, 2))
    tensor([[[1., 1.]]])
    """

    def __init__(self, transforms: Sequence[Callable], p: Optional[Sequence[float]] = None) -> None:
        self.transforms = _callables("RandomChoice", transforms)
        self.p = [1.0] * len(self.transforms) if p is None else functional._colour("RandomChoice", "p", p)
        if len(self.p) != len(self.transforms) or min(self.p, default=0) < 0 or sum(self.p) <= 0:
            raise ValueError(f"RandomChoice: p must be a weight for each of {len(self.transforms)} transforms, got {p!r}")

    def __call__(self, img):
        left = _uniform(0, sum(self.p))
        for t, weight in zip(self.transforms, self.p):
            left -= weight
            if left < 0:
                return t(img)
        return [t for t, weight in zip(self.transforms, self.p) if weight][-1](img)

    def __repr__(self) -> str:
        return f"RandomChoice(p={self.p}, transforms={self.transforms})"


class RandomOrder:
    """All of `transforms`, in an order drawn anew for each picture.

    >>> both = arete.vision.transforms.RandomOrder([lambda x: x + 1, lambda x: x + 2])
    >>> both(arete.zeros(1, 1, 2))
    tensor([[[3., 3.]]])
    """

    def __init__(self, transforms: Sequence[Callable]) -> None:
        self.transforms = _callables("RandomOrder", transforms)

    def __call__(self, img):
        for i in _operators.randperm(len(self.transforms)).tolist():
            img = self.transforms[i](img)
        return img

    def __repr__(self) -> str:
        return f"RandomOrder(transforms={self.transforms})"


class Pad:
    """Pixels around the picture: see functional.pad.

    >>> arete.vision.transforms.Pad((1, 0), fill=5)(arete.tensor([[[1.0, 2.0]]]))
    tensor([[[5., 1., 2., 5.]]])
    """

    def __init__(self, padding: Union[int, Sequence[int]], fill: Union[float, Sequence[float]] = 0, padding_mode: str = "constant") -> None:
        functional._sides("Pad", padding)
        functional._colour("Pad", "fill", fill)
        self.padding, self.fill = padding, fill
        self.padding_mode = functional._padding_mode("Pad", padding_mode)

    def __call__(self, img: Tensor) -> Tensor:
        return functional.pad(functional._picture("Pad", img), self.padding, self.fill, self.padding_mode)

    def __repr__(self) -> str:
        return f"Pad(padding={self.padding}, fill={self.fill}, padding_mode={self.padding_mode})"


class Grayscale:
    """The luma of the picture in one channel, or three times.

    >>> arete.vision.transforms.Grayscale()(arete.tensor([[[0.0]], [[1.0]], [[0.0]]]))
    tensor([[[0.5870]]])
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise ValueError(f"Grayscale: num_output_channels must be 1 or 3, got {num_output_channels!r}")
        self.num_output_channels = num_output_channels

    def __call__(self, img: Tensor) -> Tensor:
        return functional.rgb_to_grayscale(functional._picture("Grayscale", img), self.num_output_channels)

    def __repr__(self) -> str:
        return f"Grayscale(num_output_channels={self.num_output_channels})"


class Resize(_Native):
    """To (height, width), or the shorter side to a number of pixels, with the longer one at most `max_size`.

    Bilinear with antialias is a triangle filter of C++. The modes nearest, nearest-exact and bicubic, and bilinear without
    antialias, run in Python; the others raise NotImplementedError.

    >>> arete.vision.transforms.Resize(2)(arete.zeros(3, 4, 6)).shape
    arete.Size([3, 2, 3])
    """

    def __init__(self, size: Union[int, Sequence[int]], interpolation: Any = InterpolationMode.BILINEAR, max_size: Optional[int] = None,
                 antialias: Optional[bool] = True) -> None:
        functional._size("Resize", size)
        mode, smooth = functional._interpolation("Resize", interpolation), functional._antialias("Resize", antialias)
        longest = functional._longest("Resize", size, max_size)
        text = f"Resize(size={size}, interpolation={mode}, max_size={max_size}, antialias={smooth})"
        if mode == "bilinear" and smooth:
            super().__init__(functional._native_resize(size, longest), text)
        else:
            super().__init__(None, text, partial(functional.resize, size=size, interpolation=mode, max_size=max_size, antialias=smooth))


class CenterCrop(_Native):
    """The middle pixels; zeros where the picture is smaller.

    >>> arete.vision.transforms.CenterCrop(1)(arete.arange(9.0).reshape(1, 3, 3))
    tensor([[[4.]]])
    """

    def __init__(self, size: Union[int, Sequence[int]]) -> None:
        sides = functional._size("CenterCrop", size)
        super().__init__(_C._center_crop(*sides), f"CenterCrop(size={sides})")


class RandomCrop(_Native):
    """A part of (height, width) pixels at a random place of the picture with `padding` pixels of colour `fill` around it.

    `padding` is one int, (left and right, top and bottom) or (left, top, right, bottom). With `pad_if_needed` pictures that are too small
    even so are padded by what they lack; otherwise they are a ValueError. Modes other than constant: see functional.pad; they pad in
    Python.

    >>> arete.vision.transforms.RandomCrop(4, padding=1)(arete.zeros(3, 4, 4)).shape
    arete.Size([3, 4, 4])
    """

    def __init__(self, size: Union[int, Sequence[int]], padding: Union[int, Sequence[int], None] = None, pad_if_needed: bool = False,
                 fill: Union[float, Sequence[float]] = 0, padding_mode: str = "constant") -> None:
        height, width = functional._size("RandomCrop", size)
        sides = [0] * 4 if padding is None else functional._sides("RandomCrop", padding)
        if min(sides) < 0:
            raise ValueError(f"RandomCrop: padding must not be negative, got {padding!r}")
        colour, mode = functional._colour("RandomCrop", "fill", fill), functional._padding_mode("RandomCrop", padding_mode)

        def padded(img: Tensor) -> Tensor:
            img = functional.pad(img, sides, padding_mode=mode)
            down, across = (max(part - n, 0) if pad_if_needed else 0 for n, part in zip(img.shape[-2:], (height, width)))
            return functional.pad(img, (across, down), padding_mode=mode)

        plain = mode == "constant"
        native = _C._random_crop(height, width, sides if plain else [0] * 4, bool(pad_if_needed) and plain, colour)
        super().__init__(native, f"RandomCrop(size={(height, width)}, padding={padding})", None if plain else padded)


class RandomResizedCrop(_Native):
    """A random part of the picture, resized: its area and the ratio of its sides are drawn from these ranges. `interpolation` and
    `antialias`: see Resize.

    >>> arete.vision.transforms.RandomResizedCrop((4, 6))(arete.zeros(3, 20, 30)).shape
    arete.Size([3, 4, 6])
    """

    def __init__(self, size: Union[int, Sequence[int]], scale: Sequence[float] = (0.08, 1.0),
                 ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0), interpolation: Any = InterpolationMode.BILINEAR,
                 antialias: Optional[bool] = True) -> None:
        sides = functional._size("RandomResizedCrop", size)
        area, aspect = _range("RandomResizedCrop", "scale", scale), _range("RandomResizedCrop", "ratio", ratio)
        mode = functional._interpolation("RandomResizedCrop", interpolation)
        smooth = functional._antialias("RandomResizedCrop", antialias)
        text = f"RandomResizedCrop(size={sides}, scale={tuple(area)}, ratio={tuple(round(r, 4) for r in aspect)}, interpolation={mode})"

        def resized(img: Tensor) -> Tensor:
            part = functional.crop(img, *_random_box(*img.shape[-2:], area, aspect))
            return functional.resize(part, sides, mode, antialias=smooth)

        if mode == "bilinear" and smooth:
            super().__init__(_C._random_resized_crop(*sides, area, aspect), text)
        else:
            super().__init__(None, text, resized)


def _random_box(height: int, width: int, scale: Sequence[float], ratio: Sequence[float]) -> tuple:
    """Top, left, height and width of a part with an area and a ratio from these ranges; after ten attempts that do not fit, of the
    largest one in the middle with a ratio that is allowed."""
    for _ in range(10):
        area, aspect = height * width * _uniform(*scale), math.exp(_uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(_uniform(0, height - h + 1)), int(_uniform(0, width - w + 1)), h, w
    w = min(width, round(height * ratio[1]))
    h = min(height, round(width / ratio[0]))
    return (height - h) // 2, (width - w) // 2, h, w


class RandomHorizontalFlip(_Native):
    """Mirrored left to right with probability p.

    >>> arete.vision.transforms.RandomHorizontalFlip(1.0)(arete.tensor([[[1.0, 2.0]]]))
    tensor([[[2., 1.]]])
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(_C._random_horizontal_flip(_probability("RandomHorizontalFlip", p)), f"RandomHorizontalFlip(p={p})")


class RandomVerticalFlip(_Native):
    """Mirrored upside down with probability p.

    >>> arete.vision.transforms.RandomVerticalFlip(1.0)(arete.tensor([[[1.0], [2.0]]]))
    tensor([[[2.],
             [1.]]])
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(_C._random_vertical_flip(_probability("RandomVerticalFlip", p)), f"RandomVerticalFlip(p={p})")


def _factors(argument: str, value: Any, centre: float = 1.0) -> List[float]:
    """The range that a number x means, [centre - x, centre + x], or a given one."""
    least, most = (0.0, math.inf) if centre else (-0.5, 0.5)
    if isinstance(value, (list, tuple)) and len(value) == 2:
        low, high = (functional._number("ColorJitter", argument, v) for v in value)
        if not least <= low <= high <= most:
            raise ValueError(f"ColorJitter: the range {argument} must be in order and within [{least}, {most}], got {value!r}")
        return [low, high]
    if isinstance(value, (list, tuple)):
        raise TypeError(f"ColorJitter: {argument} must be a number or two of them, got {value!r}")
    x = functional._number("ColorJitter", argument, value)
    if not 0 <= x <= most:
        raise ValueError(f"ColorJitter: {argument} must be in [0, {most}], got {value!r}")
    return [max(centre - x, least), centre + x]


class ColorJitter(_Native):
    """Random factors from [1 - x, 1 + x] on brightness, contrast and saturation, and a random shift from [-hue, hue] of the hue
    (see functional.adjust_hue), in this order. Two numbers instead of one are the range itself.

    >>> arete.vision.transforms.ColorJitter(brightness=0.5, contrast=(0.8, 1.5))(arete.ones(3, 2, 2)).shape
    arete.Size([3, 2, 2])
    """

    def __init__(self, brightness: Union[float, Sequence[float]] = 0, contrast: Union[float, Sequence[float]] = 0,
                 saturation: Union[float, Sequence[float]] = 0, hue: Union[float, Sequence[float]] = 0) -> None:
        native = _C._color_jitter(_factors("brightness", brightness), _factors("contrast", contrast), _factors("saturation", saturation),
                                  _factors("hue", hue, 0.0))
        super().__init__(native, f"ColorJitter(brightness={brightness}, contrast={contrast}, saturation={saturation}, hue={hue})")


class RandomGrayscale(_Native):
    """Grey (three equal channels) with probability p.

    >>> arete.vision.transforms.RandomGrayscale(1.0)(arete.tensor([[[0.0]], [[1.0]], [[0.0]]])).flatten()
    tensor([0.5870, 0.5870, 0.5870])
    """

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(_C._random_grayscale(_probability("RandomGrayscale", p)), f"RandomGrayscale(p={p})")


class RandomErasing(_Native):
    """A random rectangle becomes `value` with probability p: a number, one for each channel, or "random" for noise of its own (normal;
    for bytes uniform). inplace: of the picture itself.

    >>> arete.vision.transforms.RandomErasing(p=1.0)(arete.ones(3, 8, 8)).min()
    tensor(0.)
    """

    def __init__(self, p: float = 0.5, scale: Sequence[float] = (0.02, 0.33), ratio: Sequence[float] = (0.3, 3.3),
                 value: Union[float, Sequence[float], str] = 0, inplace: bool = False) -> None:
        if isinstance(value, str) and value != "random":
            raise ValueError(f'RandomErasing: value must be a number, one for each channel or "random", got {value!r}')
        colour = [] if isinstance(value, str) else functional._colour("RandomErasing", "value", value)
        native = _C._random_erasing(_probability("RandomErasing", p), _range("RandomErasing", "scale", scale),
                                    _range("RandomErasing", "ratio", ratio), colour)
        super().__init__(native, f"RandomErasing(p={p}, scale={scale}, ratio={ratio}, value={value})", inplace=inplace)


class ToTensor(_Native):
    """Bytes become float32 in [0, 1]; also arrays (H, W, C) of NumPy and pictures of Pillow, see functional.to_tensor.

    >>> arete.vision.transforms.ToTensor()(arete.tensor([[[255, 51]]], dtype=arete.uint8))
    tensor([[[1.0000, 0.2000]]])
    """

    def __init__(self) -> None:
        super().__init__(_C._to_float(), "ToTensor()")

    def __call__(self, img: Any) -> Tensor:
        return super().__call__(img) if isinstance(img, Tensor) else functional.to_tensor(img)


class ConvertImageDtype:
    """To another dtype, with the range of that dtype's pictures: 0..1 or 0..255.

    >>> arete.vision.transforms.ConvertImageDtype(arete.uint8)(arete.tensor([[[1.0, 0.5]]]))
    tensor([[[255, 127]]], dtype=arete.uint8)
    """

    def __init__(self, dtype) -> None:
        self.dtype = dtype

    def __call__(self, img: Tensor) -> Tensor:
        if img.dtype == self.dtype:
            return img
        if img.dtype is _C.uint8 and self.dtype.is_floating_point:
            return img.to(self.dtype) / 255
        if img.is_floating_point() and self.dtype is _C.uint8:
            return (img * 255.999).to(_C.uint8)
        return img.to(self.dtype)

    def __repr__(self) -> str:
        return "ConvertImageDtype()"


class Normalize(_Native):
    """(x - mean) / std for each channel, of float32; bytes are brought to [0, 1] first. inplace: the result replaces the picture, which is
    of float32.

    >>> arete.vision.transforms.Normalize([0.5], [0.5])(arete.ones(1, 1, 2))
    tensor([[[1., 1.]]])
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        centre, spread = functional._colour("Normalize", "mean", mean), functional._colour("Normalize", "std", std)
        if min(spread) <= 0:
            raise ValueError(f"Normalize: std must be positive, got {std!r}")
        super().__init__(_C._normalize(centre, spread), f"Normalize(mean={mean}, std={std})", inplace=inplace)
