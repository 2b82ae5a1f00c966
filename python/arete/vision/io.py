"""JPEG and PNG files to tensors of bytes (C, H, W) and back."""
from __future__ import annotations

import enum
import os
from typing import Union

from .. import _C
from .._C import Tensor

__all__ = ["ImageReadMode", "decode_image", "decode_jpeg", "decode_png", "encode_jpeg", "encode_png", "read_file", "read_image",
           "write_file", "write_jpeg", "write_png"]


class ImageReadMode(enum.Enum):
    """Which channels a decoded picture has.

    >>> arete.vision.io.ImageReadMode("gray")
    <ImageReadMode.GRAY: 'gray'>
    """

    UNCHANGED = "unchanged"
    GRAY = "gray"
    RGB = "rgb"


def _mode(mode: Union[ImageReadMode, str]) -> str:
    return ImageReadMode(mode.lower() if isinstance(mode, str) else mode).value


def decode_image(input: Tensor, mode: Union[ImageReadMode, str] = ImageReadMode.UNCHANGED, *, at_least: int = 0) -> Tensor:  # noqa: A002
    """The picture in a 1-d tensor of bytes (or bytes): uint8 (C, H, W).

    `at_least`: a JPEG file may come out smaller by 2, 4 or 8 as long as its shorter side keeps so many pixels, which is much
    faster. OSError for what is neither JPEG nor PNG, or damaged.

    >>> picture = arete.arange(12, dtype=arete.uint8).reshape(1, 3, 4)
    >>> bool((arete.vision.io.decode_image(arete.vision.io.encode_png(picture)) == picture).all())
    True
    """
    data = input if isinstance(input, (bytes, bytearray)) else input.tobytes()
    return _C._decode_image(bytes(data), _mode(mode), at_least)


decode_jpeg = decode_image
decode_png = decode_image


def read_image(path, mode: Union[ImageReadMode, str] = ImageReadMode.UNCHANGED, *, at_least: int = 0) -> Tensor:
    """decode_image of a file.

    >>> arete.vision.io.write_png(arete.zeros(1, 2, 3, dtype=arete.uint8), "/tmp/arete-example.png")
    >>> arete.vision.io.read_image("/tmp/arete-example.png").shape
    arete.Size([1, 2, 3])
    """
    return _C._read_image(str(path), _mode(mode), at_least)


def _frombuffer(data: bytes) -> Tensor:
    return _C.frombuffer(bytearray(data), dtype=_C.uint8)


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:  # noqa: A002
    """The PNG file of uint8 (C, H, W) with 1, 3 or 4 channels, as a 1-d tensor of bytes. The level is not used.

    >>> bytes(arete.vision.io.encode_png(arete.zeros(1, 2, 3, dtype=arete.uint8))[1:4].tolist())
    b'PNG'
    """
    return _frombuffer(_C._encode_png(input))


def encode_jpeg(input: Tensor, quality: int = 75) -> Tensor:  # noqa: A002
    """The JPEG file of uint8 (C, H, W) with 1 or 3 channels, of a quality from 1 to 100.

    >>> arete.vision.io.encode_jpeg(arete.zeros(1, 2, 3, dtype=arete.uint8), quality=90)[:2]
    tensor([255, 216], dtype=arete.uint8)
    """
    return _frombuffer(_C._encode_jpeg(input, quality))


def write_png(input: Tensor, filename: str, compression_level: int = 6) -> None:  # noqa: A002
    """encode_png into a file.

    >>> arete.vision.io.write_png(arete.zeros(1, 2, 3, dtype=arete.uint8), "/tmp/arete-example.png")
    """
    write_file(filename, encode_png(input))


def write_jpeg(input: Tensor, filename: str, quality: int = 75) -> None:  # noqa: A002
    """encode_jpeg into a file.

    >>> arete.vision.io.write_jpeg(arete.zeros(1, 2, 3, dtype=arete.uint8), "/tmp/arete-example.jpg")
    """
    write_file(filename, encode_jpeg(input, quality))


def read_file(path: str) -> Tensor:
    """The bytes of a file, uint8 (n).

    >>> arete.vision.io.write_file("/tmp/arete-example.bin", arete.tensor([1, 2], dtype=arete.uint8))
    >>> arete.vision.io.read_file("/tmp/arete-example.bin")
    tensor([1, 2], dtype=arete.uint8)
    """
    with open(os.fspath(path), "rb") as f:
        return _frombuffer(f.read())


def write_file(filename: str, data: Tensor) -> None:
    """Writes uint8 (n) into a file.

    >>> arete.vision.io.write_file("/tmp/arete-example.bin", arete.tensor([1, 2], dtype=arete.uint8))
    """
    with open(os.fspath(filename), "wb") as f:
        f.write(data.tobytes())
