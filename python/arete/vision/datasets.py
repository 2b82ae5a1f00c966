"""Datasets of pictures."""
from __future__ import annotations

import os
from functools import partial
from typing import Any, Callable, Optional, Sequence

from .. import _C
from ..utils.data import Dataset, default_collate
from ..utils.data.dataset import made_by as _made_by
from .io import read_image
from .transforms import _natives

__all__ = ["ImageFolder"]


def _listed(root: str, is_valid: Callable[[str], bool], allow_empty: bool) -> tuple:
    """The classes, and the pictures with their labels, in the order in which C++ lists them."""
    with os.scandir(root) as entries:
        classes = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    if not classes:
        raise FileNotFoundError(f"ImageFolder: couldn't find any class folder in {root}")
    samples = []
    for label, name in enumerate(classes):
        paths = (os.path.join(folder, file) for folder, _, files in os.walk(os.path.join(root, name)) for file in files)
        found = sorted(path for path in paths if is_valid(path))
        if not found and not allow_empty:
            raise FileNotFoundError(f"ImageFolder: found no valid file for the class {name} in {root}")
        samples += [(path, label) for path in found]
    return classes, samples


class ImageFolder(Dataset):
    """root/class/**/picture.jpg: items are (picture, label), the picture uint8 (3, H, W), the label the class's place in the
    sorted list of folders.

    `transform` and `target_transform` change them. A DataLoader with the default collation makes whole batches in one call of C++,
    with the same results, if `transform` is one of arete.vision.transforms or a Compose of them and there is no
    `target_transform`, `loader` or `is_valid_file`.

    `loader(path)` reads a picture instead of arete.vision.io.read_image, and `is_valid_file(path)` says what is a picture instead of
    `extensions`. With `allow_empty` a class may have no pictures. `at_least`: see arete.vision.io.decode_image. OSError if there are no
    class folders, a class without pictures, or (when asked for) a damaged file.

    >>> data = arete.vision.datasets.ImageFolder("photos", transform=arete.vision.transforms.Resize(64))  # doctest: +SKIP
    >>> picture, label = data[0]  # doctest: +SKIP
    """

    def __init__(self, root: Any, transform: Optional[Callable] = None, target_transform: Optional[Callable] = None,
                 loader: Optional[Callable[[str], Any]] = None, is_valid_file: Optional[Callable[[str], bool]] = None,
                 allow_empty: bool = False, *, mode: str = "rgb", at_least: int = 0, extensions: Optional[Sequence[str]] = None) -> None:
        for name, function in (("transform", transform), ("target_transform", target_transform), ("loader", loader),
                               ("is_valid_file", is_valid_file)):
            if function is not None and not callable(function):
                raise TypeError(f"ImageFolder: {name} must be callable, got {function!r}")
        if is_valid_file is not None and extensions is not None:
            raise ValueError("ImageFolder: give extensions or is_valid_file, not both")
        if loader is not None and (mode != "rgb" or at_least):
            raise ValueError("ImageFolder: mode and at_least are for pictures that are read without a loader")
        self.root = str(root)
        self.transform = transform
        self.target_transform = target_transform
        self.loader = loader or partial(read_image, mode=mode, at_least=at_least)
        ends = [".jpg", ".jpeg", ".png"] if extensions is None else [e.lower() for e in extensions]
        # What C++ finds and reads by itself.
        self._files = None
        if loader is None and is_valid_file is None and not allow_empty:
            self._files = _C._ImageFolder(self.root, mode, at_least, ends)
            self.classes, self.samples = self._files.classes, self._files.samples
        else:
            self.classes, self.samples = _listed(self.root, is_valid_file or (lambda path: path.lower().endswith(tuple(ends))), allow_empty)
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.imgs = self.samples
        self.targets = [label for _, label in self.samples]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int):
        if self._files is not None:
            picture = self._files.get(index)[0]
        else:
            picture = self.loader(self.samples[index][0])
        label = self.targets[index]
        if self.transform is not None:
            picture = self.transform(picture)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return picture, label

    def _pictures(self, labels: Optional[list], pin: bool) -> Optional[Any]:
        """A maker of batches of pictures, with labels if they are given."""
        transforms = [] if self.transform is None else _natives(self.transform)
        if transforms is None or self.target_transform is not None or self._files is None:
            return None
        return self._files.maker(transforms, labels, pin)

    def _rows(self, indices: list, pin: bool) -> Optional[list]:
        maker = self._pictures(None, pin)
        return maker and [*_made_by(maker, indices), default_collate([self.targets[i] for i in indices])]

    def _maker(self, pin: bool) -> Optional[Any]:
        return self._pictures(self.targets, pin) if type(self.targets) is list else None

    def __repr__(self) -> str:
        return f"Dataset ImageFolder\n    Number of datapoints: {len(self)}\n    Root location: {self.root}"
