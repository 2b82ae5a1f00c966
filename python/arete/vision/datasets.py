"""Datasets of pictures."""
from __future__ import annotations

from typing import Any, Callable, Optional

from .. import _C
from ..utils.data import Dataset, default_collate
from .transforms import _natives

__all__ = ["ImageFolder"]


class ImageFolder(Dataset):
    """root/class/**/picture.jpg: items are (picture, label), the picture uint8 (3, H, W), the label the class's place in the
    sorted list of folders.

    `transform` and `target_transform` change them. A DataLoader with the default collation makes whole batches in one call of C++,
    with the same results, if `transform` is one of arete.vision.transforms or a Compose of them and there is no
    `target_transform`. `at_least`: see arete.vision.io.decode_image. OSError if there are no class
    folders, a class without pictures, or (when asked for) a damaged file.

    >>> data = arete.vision.datasets.ImageFolder("photos", transform=arete.vision.transforms.Resize(64))  # doctest: +SKIP
    >>> picture, label = data[0]  # doctest: +SKIP
    """

    def __init__(self, root: Any, transform: Optional[Callable] = None, target_transform: Optional[Callable] = None, *,
                 mode: str = "rgb", at_least: int = 0, extensions: Optional[list] = None) -> None:
        self.root = str(root)
        self.transform = transform
        self.target_transform = target_transform
        self._files = _C._ImageFolder(self.root, mode, at_least, extensions)
        self.classes = self._files.classes
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = self.imgs = self._files.samples
        self.targets = [label for _, label in self.samples]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int):
        picture, label = self._files.get(index)[0], self.targets[index]
        if self.transform is not None:
            picture = self.transform(picture)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return picture, label

    def _rows(self, indices: list, pin: bool) -> Optional[list]:
        transforms = [] if self.transform is None else _natives(self.transform)
        if transforms is None or self.target_transform is not None:
            return None
        pictures = self._files.get_batch(indices, transforms, _C.default_generator, pin)
        return [pictures, default_collate([self.targets[i] for i in indices])]

    def _maker(self, pin: bool) -> Optional[Any]:
        transforms = [] if self.transform is None else _natives(self.transform)
        if transforms is None or self.target_transform is not None or type(self.targets) is not list:
            return None
        return self._files.maker(transforms, self.targets, pin)

    def __repr__(self) -> str:
        return f"Dataset ImageFolder\n    Number of datapoints: {len(self)}\n    Root location: {self.root}"
