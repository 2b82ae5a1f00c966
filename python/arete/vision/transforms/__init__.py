"""Augmentation of pictures: tensors (C, H, W), uint8 or float32, on the CPU.

Random ones draw from arete's default generator, which in a DataLoader's worker is the worker's own: the same seed gives the
same pictures."""
from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Union

from ... import _C
from ..._C import Tensor
from . import functional as functional

__all__ = ["CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "Lambda", "Normalize", "RandomCrop", "RandomErasing",
           "RandomGrayscale", "RandomHorizontalFlip", "RandomResizedCrop", "RandomVerticalFlip", "Resize", "ToTensor", "functional"]  # fmt: skip


def _pair(size: Union[int, Sequence[int]]) -> tuple:
    if isinstance(size, int):
        return size, size
    height, width = size
    return int(height), int(width)


class _Native:
    """A transform of the C++ library."""

    def __init__(self, native, text: str) -> None:
        self._native = native
        self._text = text

    def __call__(self, img: Tensor) -> Tensor:
        return self._native(img, _C.default_generator)

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
        self.transforms = list(transforms)

    def __call__(self, img):
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        return "Compose(\n" + "".join(f"    {t!r}\n" for t in self.transforms) + ")"


def _natives(transform: Callable) -> Optional[list]:
    """The C++ transforms that `transform` stands for, one after the other; None if there is anything else in it."""
    call = getattr(type(transform), "__call__", None)
    if call is _Native.__call__:
        return [transform._native]  # type: ignore[attr-defined]
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
        self.lambd = lambd

    def __call__(self, img):
        return self.lambd(img)

    def __repr__(self) -> str:
        return "Lambda()"


class Resize(_Native):
    """To (height, width), or the shorter side to a number of pixels, by a triangle filter (bilinear with antialias).

    >>> arete.vision.transforms.Resize(2)(arete.zeros(3, 4, 6)).shape
    arete.Size([3, 2, 3])
    """

    def __init__(self, size: Union[int, Sequence[int]], antialias: bool = True) -> None:
        if not antialias:
            raise NotImplementedError("Resize always uses antialias; arete.nn.functional.interpolate can do without")
        one = isinstance(size, int) or len(size) == 1
        native = _C._resize_shorter(size if isinstance(size, int) else size[0]) if one else _C._resize(*_pair(size))
        super().__init__(native, f"Resize(size={size}, interpolation=bilinear, antialias=True)")


class CenterCrop(_Native):
    """The middle pixels; zeros where the picture is smaller.

    >>> arete.vision.transforms.CenterCrop(1)(arete.arange(9.0).reshape(1, 3, 3))
    tensor([[[4.]]])
    """

    def __init__(self, size: Union[int, Sequence[int]]) -> None:
        super().__init__(_C._center_crop(*_pair(size)), f"CenterCrop(size={_pair(size)})")


class RandomCrop(_Native):
    """A part of (height, width) pixels at a random place of the picture with `padding` zeros around it.

    >>> arete.vision.transforms.RandomCrop(4, padding=1)(arete.zeros(3, 4, 4)).shape
    arete.Size([3, 4, 4])
    """

    def __init__(self, size: Union[int, Sequence[int]], padding: int = 0) -> None:
        super().__init__(_C._random_crop(*_pair(size), padding or 0), f"RandomCrop(size={_pair(size)}, padding={padding})")


class RandomResizedCrop(_Native):
    """A random part of the picture, resized: its area and the ratio of its sides are drawn from these ranges.

    >>> arete.vision.transforms.RandomResizedCrop((4, 6))(arete.zeros(3, 20, 30)).shape
    arete.Size([3, 4, 6])
    """

    def __init__(self, size: Union[int, Sequence[int]], scale: Sequence[float] = (0.08, 1.0),
                 ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0)) -> None:
        super().__init__(_C._random_resized_crop(*_pair(size), list(scale), list(ratio)),
                         f"RandomResizedCrop(size={_pair(size)}, scale={tuple(scale)}, ratio={tuple(round(r, 4) for r in ratio)})")


class RandomHorizontalFlip(_Native):
    """Mirrored left to right with probability p.

    >>> arete.vision.transforms.RandomHorizontalFlip(1.0)(arete.tensor([[[1.0, 2.0]]]))
    tensor([[[2., 1.]]])
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(_C._random_horizontal_flip(p), f"RandomHorizontalFlip(p={p})")


class RandomVerticalFlip(_Native):
    """Mirrored upside down with probability p.

    >>> arete.vision.transforms.RandomVerticalFlip(1.0)(arete.tensor([[[1.0], [2.0]]]))
    tensor([[[2.],
             [1.]]])
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(_C._random_vertical_flip(p), f"RandomVerticalFlip(p={p})")


class ColorJitter(_Native):
    """Random factors from [1 - x, 1 + x] on brightness, contrast and saturation, and a random shift from [-hue, hue] of the hue
    (see functional.adjust_hue), in this order.

    >>> arete.vision.transforms.ColorJitter(brightness=0.5)(arete.ones(3, 2, 2)).shape
    arete.Size([3, 2, 2])
    """

    def __init__(self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0) -> None:
        super().__init__(_C._color_jitter(brightness, contrast, saturation, hue),
                         f"ColorJitter(brightness={brightness}, contrast={contrast}, saturation={saturation}, hue={hue})")


class RandomGrayscale(_Native):
    """Grey (three equal channels) with probability p.

    >>> arete.vision.transforms.RandomGrayscale(1.0)(arete.tensor([[[0.0]], [[1.0]], [[0.0]]])).flatten()
    tensor([0.5870, 0.5870, 0.5870])
    """

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(_C._random_grayscale(p), f"RandomGrayscale(p={p})")


class RandomErasing(_Native):
    """A random rectangle becomes zero with probability p.

    >>> arete.vision.transforms.RandomErasing(p=1.0)(arete.ones(3, 8, 8)).min()
    tensor(0.)
    """

    def __init__(self, p: float = 0.5, scale: Sequence[float] = (0.02, 0.33), ratio: Sequence[float] = (0.3, 3.3)) -> None:
        super().__init__(_C._random_erasing(p, list(scale), list(ratio)), f"RandomErasing(p={p}, scale={scale}, ratio={ratio})")


class ToTensor(_Native):
    """Bytes become float32 in [0, 1].

    >>> arete.vision.transforms.ToTensor()(arete.tensor([[[255, 51]]], dtype=arete.uint8))
    tensor([[[1.0000, 0.2000]]])
    """

    def __init__(self) -> None:
        super().__init__(_C._to_float(), "ToTensor()")


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
    """(x - mean) / std for each channel, of float32; bytes are brought to [0, 1] first.

    >>> arete.vision.transforms.Normalize([0.5], [0.5])(arete.ones(1, 1, 2))
    tensor([[[1., 1.]]])
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__(_C._normalize([float(m) for m in mean], [float(s) for s in std]), f"Normalize(mean={mean}, std={std})")
