"""Pictures: files, folders, augmentation, in a DataLoader; and tokens."""
import colorsys
import subprocess
import sys

import numpy as np
import pytest

import arete
from arete import vision
from arete.utils.data import DataLoader, Dataset, DevicePrefetcher, Subset, TensorDataset, TokenDataset
from arete.utils.data.dataset import rows_of
from arete.vision import transforms as T


def picture(c, h, w, seed=0):
    return arete.tensor(np.random.default_rng(seed).integers(0, 256, (c, h, w)).astype(np.uint8))


@pytest.fixture
def folder(tmp_path):
    for i, name in enumerate(["b/1.png", "b/sub/2.png", "a/3.PNG", "c/4.jpg"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write = vision.io.write_jpeg if name.endswith("jpg") else vision.io.write_png
        write(picture(3, 9 + i, 12, i), str(path))
    (tmp_path / "a/readme.txt").write_text("not a picture")
    return tmp_path


def test_files(tmp_path):
    for c in (1, 3, 4):
        x = picture(c, 5, 7)
        assert (vision.io.decode_image(vision.io.encode_png(x)) == x).all()
    x = picture(3, 5, 7)
    vision.io.write_png(x, str(tmp_path / "x.png"))
    assert (vision.io.read_image(tmp_path / "x.png") == x).all()
    assert vision.io.read_image(tmp_path / "x.png", vision.io.ImageReadMode.GRAY).shape == (1, 5, 7)
    assert vision.io.decode_image(vision.io.encode_jpeg(x, 90), "RGB").shape == (3, 5, 7)
    assert vision.io.decode_image(vision.io.read_file(str(tmp_path / "x.png"))).dtype is arete.uint8


def test_pillow_reads_the_files(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    x = picture(3, 5, 7)
    vision.io.write_png(x, str(tmp_path / "x.png"))
    assert (np.asarray(pillow.open(tmp_path / "x.png")).transpose(2, 0, 1) == x.numpy()).all()


def test_damaged_files(tmp_path):
    data = vision.io.encode_png(picture(3, 30, 30))
    with pytest.raises(OSError, match="damaged"):
        vision.io.decode_image(data[:200])
    with pytest.raises(OSError, match="neither a JPEG nor a PNG"):
        vision.io.decode_image(arete.zeros(10, dtype=arete.uint8))
    with pytest.raises(OSError):
        vision.io.read_image(tmp_path / "none.png")
    with pytest.raises(TypeError, match="tensor of bytes"):
        vision.io.encode_png(arete.zeros(3, 2, 2))
    with pytest.raises(ValueError, match="between 1 and 100"):
        vision.io.encode_jpeg(picture(3, 2, 2), 0)


def test_image_folder(folder):
    data = vision.datasets.ImageFolder(folder)
    assert data.classes == ["a", "b", "c"] and data.class_to_idx == {"a": 0, "b": 1, "c": 2}
    assert len(data) == 4 and data.targets == [0, 1, 1, 2]
    image, label = data[1]
    assert label == 1 and (image == picture(3, 9, 12, 0)).all()
    assert data[-1][1] == 2
    with pytest.raises(IndexError):
        data[4]
    (folder / "empty").mkdir()
    with pytest.raises(OSError, match="Found no valid file for the class empty"):
        vision.datasets.ImageFolder(folder)


def test_resize_is_that_of_torch():
    torch = pytest.importorskip("torch")
    x = picture(3, 20, 31).float() / 255
    for size in [(7, 9), (40, 10)]:
        want = torch.nn.functional.interpolate(torch.tensor(x.numpy())[None], size, mode="bilinear", antialias=True)[0]
        np.testing.assert_allclose(T.Resize(size)(x).numpy(), want.numpy(), atol=1e-5)
    assert T.Resize(10)(x).shape == (3, 10, 15)


def test_transforms():
    x = picture(3, 10, 12)
    before = x.clone()
    assert (T.RandomHorizontalFlip(1)(x) == x.flip(2)).all()
    assert (T.RandomVerticalFlip(1)(x) == x.flip(1)).all()
    assert (T.CenterCrop((4, 6))(x) == x[:, 3:7, 3:9]).all()
    assert T.RandomCrop(8, padding=2)(x).shape == T.RandomResizedCrop(8)(x).shape == (3, 8, 8)
    assert T.ToTensor()(x).dtype is arete.float32 and T.ToTensor()(x).max() <= 1
    arete.testing.assert_close(T.Normalize([0.5, 0.4, 0.3], [0.2])(x),
                               (x.float() / 255 - arete.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / 0.2, rtol=1e-5, atol=1e-5)
    both = T.Compose([T.RandomResizedCrop((6, 5)), T.ColorJitter(0.4, 0.4, 0.4), T.RandomGrayscale(0.2), T.RandomErasing(), T.ToTensor()])
    arete.manual_seed(3)
    first = both(x)
    arete.manual_seed(3)
    assert (both(x) == first).all() and first.shape == (3, 6, 5)
    assert (both(x) != first).any()
    assert (x == before).all()
    assert (T.ConvertImageDtype(arete.uint8)(T.ConvertImageDtype(arete.float32)(x)) == x).all()
    assert "RandomResizedCrop" in repr(both)
    with pytest.raises(ValueError, match="p must be in 0..1"):
        T.RandomHorizontalFlip(2)
    with pytest.raises(ValueError, match="larger than input image size"):
        T.RandomCrop(40)(x)
    with pytest.raises(ValueError, match="begin with a picture"):
        T.ToTensor()(arete.zeros(3, 3))


def test_in_a_loader(folder):
    data = vision.datasets.ImageFolder(folder, T.Compose([T.RandomResizedCrop(8), T.RandomHorizontalFlip(), T.ToTensor()]))

    def walk(workers):
        arete.manual_seed(1)
        g = arete.Generator().manual_seed(5)
        return list(DataLoader(data, batch_size=2, shuffle=True, num_workers=workers, generator=g))

    a, b = walk(2), walk(2)
    assert all((x == y).all() and (s == t).all() for (x, s), (y, t) in zip(a, b))
    assert a[0][0].shape == (2, 3, 8, 8) and sorted(arete.cat([t for _, t in walk(0)]).tolist()) == [0, 1, 1, 2]


def test_tokens(tmp_path):
    tokens = np.arange(100, 131).astype(np.uint16)
    tokens.tofile(tmp_path / "t.bin")
    data = TokenDataset(tmp_path / "t.bin", 8)
    assert len(data) == 3 and data.tokens == 31
    x, y = data[1]
    assert x.tolist() == list(range(108, 116)) and y.tolist() == list(range(109, 117)) and x.dtype is arete.int64
    (batch,) = list(DataLoader(data, batch_size=3))
    assert batch[0].shape == (3, 8)
    with pytest.raises(IndexError):
        data[3]
    with pytest.raises(OSError, match="shorter than one window"):
        TokenDataset(tmp_path / "t.bin", 31)
    with pytest.raises(OSError):
        TokenDataset(tmp_path / "none.bin", 3)


@pytest.mark.parametrize("device", ["cpu"] + ["cuda"] * arete.cuda.is_available())
@pytest.mark.parametrize("workers", [0, 2])
def test_prefetcher(device, workers):
    x = arete.arange(50)
    loader = DataLoader(TensorDataset(x, x * 2), batch_size=8, num_workers=workers)
    fetched = DevicePrefetcher(loader, device)
    assert len(fetched) == 7
    for _ in range(2):
        got = [(a + 0, b + 0) for a, b in fetched]
        assert all(a.device.type == device for a, _ in got)
        assert arete.cat([a for a, _ in got]).tolist() == x.tolist()
        assert arete.cat([b for _, b in got]).tolist() == (x * 2).tolist()
    for a, _ in fetched:  # left early
        break
    assert fetched.consumer_wait >= 0 and fetched.loader_wait >= 0

    class Broken(TensorDataset):
        def __getitem__(self, index):
            if index == 20:
                raise KeyError("broken")
            return super().__getitem__(index)

    seen = 0
    with pytest.raises(KeyError, match="broken"):
        for _ in DevicePrefetcher(DataLoader(Broken(x), batch_size=8), device):
            seen += 1
    assert seen == 2
    with pytest.raises(ValueError, match="ahead must be positive"):
        DevicePrefetcher(loader, device, ahead=0)


def write_pictures(root, count, h=12, w=14):
    for i in range(count):
        path = root / "abc"[i % 3] / f"{i:03d}.jpg"
        path.parent.mkdir(exist_ok=True)
        vision.io.write_jpeg(picture(3, h, w, i), str(path))


class ItemByItem(Dataset):
    """The same items, of which nothing is known."""

    def __init__(self, data):
        self.data = data

    def __getitem__(self, index):
        return self.data[index]

    def __len__(self):
        return len(self.data)


def batches(data, workers, size=5):
    arete.manual_seed(7)
    g = arete.Generator().manual_seed(5)
    return list(DataLoader(data, batch_size=size, shuffle=True, num_workers=workers, generator=g)), arete.rand(3).tolist()


@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("make", [
    lambda: None, lambda: T.RandomCrop(8), lambda: T.Compose([T.RandomCrop((8, 9), padding=2), T.RandomHorizontalFlip()]),
    lambda: T.Compose([T.RandomVerticalFlip(), T.Compose([T.ColorJitter(0.2, 0.2, 0.2, 0.2), T.RandomErasing(), T.ToTensor()])]),
    lambda: T.Compose([T.RandomResizedCrop(6), T.RandomGrayscale(0.5), T.Normalize([0.5], [0.2])])])
def test_whole_batches_are_those_of_items(tmp_path, workers, make):
    write_pictures(tmp_path, 18)
    data = vision.datasets.ImageFolder(tmp_path, make())
    for made, want in [(data, ItemByItem(data)), (Subset(data, list(range(17, -1, -2))),
                                                  ItemByItem(Subset(data, list(range(17, -1, -2)))))]:
        assert rows_of(made, [0, -1]) is not None and rows_of(want, [0, -1]) is None
        (a, after), (b, after_items) = batches(made, workers), batches(want, workers)
        assert after == after_items and len(a) == len(b) == -(-len(made) // 5)
        for (x, y), (s, t) in zip(a, b):
            assert x.dtype is s.dtype and x.stride() == s.stride() and y.dtype is t.dtype is arete.int64
            assert x.numpy().tobytes() == s.numpy().tobytes() and y.tolist() == t.tolist()


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_errors_in_whole_batches_are_those_of_items(tmp_path, workers):
    write_pictures(tmp_path, 18)
    data = vision.datasets.ImageFolder(tmp_path, T.RandomHorizontalFlip())
    damaged = tmp_path / "b/007.jpg"
    damaged.write_bytes(damaged.read_bytes()[:300])

    def error(data, kind):
        with pytest.raises(kind) as e:
            list(DataLoader(data, batch_size=4, num_workers=workers))
        return str(e.value)

    assert str(damaged) in error(data, OSError) and error(data, OSError) == error(ItemByItem(data), OSError)
    vision.io.write_jpeg(picture(3, 12, 13), str(damaged))
    for text in error(data, ValueError), error(ItemByItem(data), ValueError):
        assert text.startswith("stack expects each tensor to be equal size") and "[3, 12, 13]" in text
    with pytest.raises(IndexError, match="index 18 is out of range"):
        rows_of(data, [0, 18])
    data = vision.datasets.ImageFolder(tmp_path, T.RandomCrop(13))
    assert error(data, ValueError) == error(ItemByItem(data), ValueError)


def test_what_is_not_made_at_once(tmp_path):
    write_pictures(tmp_path, 3)

    class Crop(T.RandomCrop):
        def __call__(self, img):
            return super().__call__(img) // 2

    class Reversed(vision.datasets.ImageFolder):
        def __getitem__(self, index):
            return super().__getitem__(len(self) - 1 - index)

    class Named(vision.datasets.ImageFolder):
        pass

    make = vision.datasets.ImageFolder
    for data in (make(tmp_path, Crop(8)), make(tmp_path, T.Compose([T.ToTensor(), T.Lambda(lambda x: x)])),
                 make(tmp_path, target_transform=lambda y: y + 1), Reversed(tmp_path)):
        assert rows_of(data, [0]) is None
        (x, y), = DataLoader(data, batch_size=3)
        assert x.tolist() == [data[i][0].tolist() for i in range(3)] or isinstance(data.transform, Crop)
        assert y.tolist() == [data[i][1] for i in range(3)]
    assert rows_of(Named(tmp_path), [0]) is not None
    data = make(tmp_path)
    data.targets[1] = 9
    assert rows_of(data, [1])[1].tolist() == [data[1][1]] == [9]


def test_tokens_are_made_at_once(tmp_path):
    np.arange(100, 131).astype(np.uint16).tofile(tmp_path / "t.bin")
    data = TokenDataset(tmp_path / "t.bin", 8)
    for made, want in zip(rows_of(data, [2, -3]), zip(data[2], data[0])):
        assert made.tolist() == [t.tolist() for t in want] and made.dtype is arete.int64
    with pytest.raises(IndexError):
        rows_of(data, [3])


def test_hue_is_that_of_colorsys():
    F = T.functional
    x = arete.rand(3, 5, 6)
    x[:, 0] = arete.tensor([[1.0, 0, 0, 1, 0, 0.5], [0, 1.0, 0, 1, 0, 0.5], [0, 0, 1.0, 0, 0, 0.5]])
    for shift in (-0.5, -0.2, 0.0, 0.1, 0.5):
        want = np.empty((3, 5, 6))
        for i in np.ndindex(5, 6):
            h, s, v = colorsys.rgb_to_hsv(*x.numpy()[(slice(None), *i)].tolist())
            want[(slice(None), *i)] = colorsys.hsv_to_rgb((h + shift) % 1, s, v)
        np.testing.assert_allclose(F.adjust_hue(x, shift).numpy(), want, atol=1e-6)
        b = (x * 255).round().to(arete.uint8)
        whole = F.adjust_hue(b.float() / 255, shift) * 255
        assert (F.adjust_hue(b, shift).float() - whole).abs().max() <= 0.5 + 1e-4
    assert (F.adjust_hue(b, 0) == b).all() and (F.adjust_hue(b[:1], 0.3) == b[:1]).all()
    with pytest.raises(ValueError, match=r"hue_factor is not in \[-0.5, 0.5\]"):
        F.adjust_hue(x, 0.6)
    with pytest.raises(ValueError, match=r"hue must be in \[0, 0.5\]"):
        T.ColorJitter(hue=0.6)
    arete.manual_seed(1)
    seen = set()
    for _ in range(20):
        y = T.ColorJitter(hue=0.25)(x)
        arete.testing.assert_close(y.amax(0), x.amax(0), rtol=1e-6, atol=1e-6)  # value and saturation stay
        arete.testing.assert_close(y.amin(0), x.amin(0), rtol=1e-6, atol=1e-6)
        seen.add(round(colorsys.rgb_to_hsv(*y[:, 0, 0].tolist())[0], 4))  # of what was red
    assert len(seen) == 20 and all(h <= 0.25 or h >= 0.75 for h in seen) and min(seen) < 0.25 and max(seen) > 0.75


@pytest.mark.skipif(not arete.cuda.is_available(), reason="needs a GPU")
def test_whole_batches_are_made_in_pinned_memory(tmp_path):
    write_pictures(tmp_path, 12)
    data = vision.datasets.ImageFolder(tmp_path, T.CenterCrop(8))
    assert rows_of(data, [0, 1], True)[0].is_pinned() and not rows_of(data, [0, 1])[0].is_pinned()
    for (x, y), (s, t) in zip(DataLoader(data, batch_size=5, num_workers=2, pin_memory=True), DataLoader(ItemByItem(data), batch_size=5)):
        assert x.is_pinned() and y.is_pinned() and (x == s).all() and (y == t).all()
        assert (x.cuda(non_blocking=True).cpu() == s).all()


def test_pictures_need_no_numpy(tmp_path):
    program = """
import sys
sys.modules["numpy"] = None  # as if it were not installed
import arete
from arete.vision import io
picture = arete.arange(48, dtype=arete.uint8).reshape(3, 4, 4)
io.write_png(picture, "p.png")
io.write_jpeg(picture, "p.jpg")
assert (io.read_image("p.png") == picture).all() and (io.decode_png(io.read_file("p.png")) == picture).all()
assert io.read_image("p.jpg").shape == (3, 4, 4)
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
