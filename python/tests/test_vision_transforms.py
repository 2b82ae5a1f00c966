"""The transforms' arguments as torchvision has them, and what is said about wrong ones."""
from __future__ import annotations

import inspect

import numpy as np
import pytest

import arete
from arete import vision
from arete.utils.data import DataLoader
from arete.vision import transforms as T
from arete.vision.transforms import functional as F


def picture(c, h, w, seed=0):
    return arete.tensor(np.random.default_rng(seed).integers(1, 256, (c, h, w)).astype(np.uint8))


@pytest.mark.parametrize("mode, antialias", [("nearest", True), ("nearest-exact", True), ("bilinear", False), ("bicubic", False),
                                             ("bicubic", True)])
@pytest.mark.parametrize("size", [(7, 9), (40, 10), 12])
def test_resize_modes_are_those_of_torch(mode, antialias, size):
    torch = pytest.importorskip("torch")
    x = picture(3, 20, 31)
    got = T.Resize(size, T.InterpolationMode(mode), antialias=antialias)(x)
    options = {} if "nearest" in mode else {"antialias": antialias}
    want = torch.nn.functional.interpolate(torch.tensor(x.numpy())[None].float(), tuple(got.shape[1:]), mode=mode, **options)[0]
    assert got.dtype is arete.uint8 and got.shape[1:] == ((12, 18) if size == 12 else size)
    assert (np.abs(got.numpy() - want.clamp(0, 255).numpy()) <= 0.51).all()
    assert (T.Resize(size, mode, antialias=antialias)(x) == got).all()  # the mode's name does too
    np.testing.assert_allclose(F.resize(x.float(), size, mode, antialias=antialias).numpy(), want.numpy(), atol=1e-3)


@pytest.mark.parametrize("height, width, size, most, want", [
    (20, 40, 10, None, (10, 20)), (20, 40, 10, 15, (7, 15)), (40, 20, 10, 15, (15, 7)), (20, 40, [10], 20, (10, 20)),
    (30, 31, 10, 11, (10, 10))])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_resize_with_a_longest_side(height, width, size, most, want, mode):
    x = picture(3, height, width)
    assert T.Resize(size, mode, max_size=most)(x).shape[1:] == want
    assert F.resize(x, size, mode, max_size=most).shape[1:] == want
    assert F.resize(arete.stack([x, x]), size, mode, most).shape == (2, 3, *want)


def test_crop_with_padding_of_each_kind():
    x = picture(3, 6, 8)

    def places(transform, around):
        """The crops are parts of `around`; where they lay."""
        arete.manual_seed(0)
        seen = set()
        for _ in range(60):
            part = transform(x)
            height, width = part.shape[1:]
            at = [(i, j) for i in range(around.shape[1] - height + 1) for j in range(around.shape[2] - width + 1)
                  if (around[:, i:i + height, j:j + width] == part).all()]
            assert at
            seen.add(at[0])
        return seen

    assert len(places(T.RandomCrop(5, padding=(2, 1)), F.pad(x, (2, 1)))) > 10
    assert len(places(T.RandomCrop((6, 8), padding=(4, 0, 1, 2), fill=(9, 8, 7)), F.pad(x, (4, 0, 1, 2), fill=(9, 8, 7)))) > 8
    assert len(places(T.RandomCrop(9, pad_if_needed=True, fill=3), F.pad(x, (1, 3), fill=3))) > 4
    assert len(places(T.RandomCrop((10, 4), padding=1, pad_if_needed=True), F.pad(F.pad(x, 1), (0, 2)))) > 4
    for mode in ("edge", "reflect", "symmetric"):
        assert len(places(T.RandomCrop(6, padding=(3, 2), padding_mode=mode), F.pad(x, (3, 2), padding_mode=mode))) > 4
    arete.manual_seed(2)
    a = [T.RandomCrop(8, padding=2)(x) for _ in range(5)]
    arete.manual_seed(2)
    assert all((T.RandomCrop(8, padding=(2, 2, 2, 2), padding_mode="constant")(x) == y).all() for y in a)
    with pytest.raises(ValueError, match="a colour is one number or one for each channel"):
        T.RandomCrop(4, fill=(1, 2))(x)


@pytest.mark.parametrize("mode, theirs", [("edge", "edge"), ("reflect", "reflect"), ("symmetric", "symmetric"), ("constant", "constant")])
@pytest.mark.parametrize("padding", [2, (1, 3), (0, 1, 2, 3), (4, 0)])
def test_pad_is_that_of_numpy(mode, theirs, padding):
    x = picture(3, 5, 6)
    left, top, right, bottom = F._sides("pad", padding)
    want = np.pad(x.numpy(), [(0, 0), (top, bottom), (left, right)], theirs)
    for img in (x, x.float()):
        assert (F.pad(img, padding, padding_mode=mode).numpy() == want).all()
        assert (T.Pad(padding, padding_mode=mode)(img).numpy() == want).all()
    assert (F.pad(arete.stack([x, x]), padding, padding_mode=mode)[1].numpy() == want).all()


def test_functional():
    x = picture(3, 6, 7)
    floats = x.float() / 255
    assert (F.hflip(x) == x.flip(2)).all() and (F.vflip(x) == x.flip(1)).all()
    assert (F.crop(x, 1, 2, 3, 4) == x[:, 1:4, 2:6]).all()
    beyond = F.crop(x, -2, 5, 4, 4)
    assert beyond.shape == (3, 4, 4) and (beyond[:, 2:, :2] == x[:, :2, 5:]).all() and beyond[:, :2].sum() == 0 == beyond[:, :, 2:].sum()
    assert (F.pad(x, (-1, -2)) == x[:, 2:4, 1:6]).all()
    for size in (3, (4, 5), (9, 2), [11]):
        assert (F.center_crop(x, size) == T.CenterCrop(size)(x)).all()
    arete.testing.assert_close(F.normalize(floats, [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]),
                               T.Normalize((0.5, 0.4, 0.3), np.array([0.2, 0.3, 0.4]))(floats))
    copy = floats.clone()
    assert F.normalize(copy, [0.5], [0.5], inplace=True) is copy and (copy != floats).any()
    grey = F.rgb_to_grayscale(floats)
    arete.testing.assert_close(grey[0], 0.299 * floats[0] + 0.587 * floats[1] + 0.114 * floats[2])
    assert (F.rgb_to_grayscale(x, 3) == T.RandomGrayscale(1.0)(x)).all() and (T.Grayscale(3)(x)[1:2] == T.Grayscale()(x)).all()
    assert F.rgb_to_grayscale(grey, 3).shape == (3, 6, 7)


def test_arrays_become_tensors():
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    for f in (T.ToTensor(), F.to_tensor, T.Compose([T.ToTensor()])):
        got = f(array)
        assert got.dtype is arete.float32 and got.shape == (3, 2, 4)
        np.testing.assert_allclose(got.numpy(), array.transpose(2, 0, 1) / 255, rtol=1e-6)
        assert f(array[..., 0]).shape == (1, 2, 4)
        doubles = f(array.astype(np.float64))
        assert doubles.dtype is arete.float64 and doubles.max() == 23
    assert array.flags.writeable and (T.ToTensor()(arete.full((1, 1, 1), 255, dtype=arete.uint8)) == 1).all()


def test_pillow_becomes_tensors():
    pillow = pytest.importorskip("PIL.Image")
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert (T.ToTensor()(pillow.fromarray(array)) == T.ToTensor()(array)).all()
    assert T.ToTensor()(pillow.fromarray(array[..., 0])).shape == (1, 2, 4)


def test_jitter_with_ranges():
    x = arete.full((3, 2, 2), 0.25)
    arete.manual_seed(0)
    light = [T.ColorJitter(brightness=(2, 3))(x)[0, 0, 0].item() for _ in range(40)]
    assert 0.5 <= min(light) < 0.56 and 0.69 < max(light) <= 0.75
    assert (T.ColorJitter((1.5, 1.5))(x) == 0.375).all()
    red = arete.tensor([1.0, 0.0, 0.0]).view(3, 1, 1)
    arete.testing.assert_close(T.ColorJitter(hue=(1 / 3, 1 / 3))(red).flatten(), arete.tensor([0.0, 1.0, 0.0]), rtol=0, atol=1e-5)
    y = picture(3, 5, 5)
    arete.manual_seed(1)
    a = T.ColorJitter(0.4, 0.3, 0.2, 0.1)(y)
    arete.manual_seed(1)
    assert (T.ColorJitter((0.6, 1.4), (0.7, 1.3), (0.8, 1.2), (-0.1, 0.1))(y) == a).all()


@pytest.mark.parametrize("make", [lambda inplace: T.Normalize([0.5], [0.25], inplace),
                                  lambda inplace: T.RandomErasing(1.0, value=2, inplace=inplace)])
def test_results_in_place(make):
    picture = arete.rand(3, 8, 8)
    before = picture.clone()
    arete.manual_seed(1)
    want = make(False)(picture)
    assert arete.equal(picture, before) and not arete.equal(want, before)
    arete.manual_seed(1)
    assert T.Compose([make(True)])(picture) is picture and arete.equal(picture, want)
    if isinstance(make(True), T.Normalize):
        with pytest.raises(TypeError, match="no room for the result in place"):
            make(True)(arete.zeros(3, 8, 8, dtype=arete.uint8))


def test_erasing_with_a_value():
    x, floats = picture(3, 20, 20), arete.zeros(3, 20, 20)
    arete.manual_seed(0)
    out = T.RandomErasing(1.0, value=(7, 8, 9))(x)
    changed = (out != x).any(0)
    assert changed.any() and (out[:, changed] == arete.tensor([7, 8, 9], dtype=arete.uint8).view(3, 1)).all()
    noise = T.RandomErasing(1.0, (0.3, 0.3), value="random")(floats)
    drawn = noise[noise != 0]
    assert drawn.numel() > 200 and abs(drawn.mean().item()) < 0.3 and 0.7 < drawn.std().item() < 1.3
    bytes_ = T.RandomErasing(1.0, (0.3, 0.3), value="random")(arete.zeros(3, 20, 20, dtype=arete.uint8))
    assert bytes_.max() > 200 and 90 < bytes_[bytes_ != 0].float().mean() < 165


def test_resized_crop_with_another_filter():
    x = picture(3, 30, 20)
    arete.manual_seed(0)
    got = [T.RandomResizedCrop(9, interpolation=T.InterpolationMode.NEAREST)(x) for _ in range(5)]
    assert all(g.shape == (3, 9, 9) and set(g[0].flatten().tolist()) <= set(x[0].flatten().tolist()) for g in got)
    assert any((g != got[0]).any() for g in got)
    fallback = T.RandomResizedCrop(20, (1, 1), (1 / 10, 1 / 5), "nearest")(x)  # nothing of that shape fits
    assert (fallback == F.resize(x[:, :, 7:13], (20, 20), "nearest")).all()
    assert T.RandomResizedCrop(8, antialias=True, interpolation=T.InterpolationMode.BILINEAR)._first is None


def test_choices():
    arete.manual_seed(0)
    plus, minus = T.Lambda(lambda v: v + 1), T.Lambda(lambda v: v - 1)
    zero = arete.zeros(1, 1, 1)
    applied = [T.RandomApply([plus, plus], p=0.3)(zero).item() for _ in range(200)]
    assert set(applied) == {0, 2} and 30 < applied.count(2) < 90
    chosen = [T.RandomChoice([plus, minus], p=[3, 1])(zero).item() for _ in range(200)]
    assert set(chosen) == {1, -1} and 120 < chosen.count(1) < 180
    assert {T.RandomChoice([plus, minus])(zero).item() for _ in range(30)} == {1, -1}
    assert {T.RandomOrder([plus, lambda v: v * 2])(zero).item() for _ in range(30)} == {1, 2}


WRONG = [
    (lambda: T.Resize("a"), TypeError, r"Resize: size must be an int or \(height, width\), got 'a'"),
    (lambda: T.Resize((1, 2, 3)), TypeError, "Resize: size"),
    (lambda: T.Resize(0), ValueError, "Resize: size must be positive"),
    (lambda: T.Resize(4, T.InterpolationMode.LANCZOS), NotImplementedError, "Resize: interpolation lanczos is not supported; nearest"),
    (lambda: T.Resize(4, "cubic"), ValueError, "Resize: interpolation must be an InterpolationMode"),
    (lambda: T.Resize(4, antialias="warn"), TypeError, "Resize: antialias must be a bool"),
    (lambda: T.Resize((4, 5), max_size=9), ValueError, "Resize: max_size is for a size that is one int"),
    (lambda: T.Resize(4, max_size=4), ValueError, "Resize: max_size = 4 must be greater"),
    (lambda: T.CenterCrop(2.5), TypeError, "CenterCrop: size"),
    (lambda: T.RandomCrop(None), TypeError, "RandomCrop: size"),
    (lambda: T.RandomCrop(4, padding=(1, 2, 3)), TypeError, "RandomCrop: padding must be an int, "),
    (lambda: T.RandomCrop(4, padding=-1), ValueError, "RandomCrop: padding must not be negative"),
    (lambda: T.RandomCrop(4, fill="red"), TypeError, "RandomCrop: fill must be a number"),
    (lambda: T.RandomCrop(4, padding_mode="wrap"), ValueError, "RandomCrop: padding_mode must be constant, edge, reflect or symmetric"),
    (lambda: T.RandomResizedCrop(4, scale=0.5), TypeError, "RandomResizedCrop: scale must be two numbers"),
    (lambda: T.RandomResizedCrop(4, ratio=(2, 1)), ValueError, "RandomResizedCrop: ratio must be positive and in order"),
    (lambda: T.RandomHorizontalFlip("x"), TypeError, "RandomHorizontalFlip: p must be a number"),
    (lambda: T.RandomVerticalFlip(2), ValueError, "RandomVerticalFlip: p must be in 0..1"),
    (lambda: T.RandomGrayscale(None), TypeError, "RandomGrayscale: p"),
    (lambda: T.RandomErasing(value="noise"), ValueError, "RandomErasing: value"),
    (lambda: T.RandomErasing(value=[None]), TypeError, "RandomErasing: value must be a number"),
    (lambda: T.ColorJitter((1, 2, 3)), TypeError, "ColorJitter: brightness must be a number or two of them"),
    (lambda: T.ColorJitter(contrast=(2, 1)), ValueError, "ColorJitter: the range contrast must be in order"),
    (lambda: T.ColorJitter(saturation=-1), ValueError, "ColorJitter: saturation must be in"),
    (lambda: T.ColorJitter(hue=(-0.6, 0)), ValueError, "ColorJitter: the range hue"),
    (lambda: T.ColorJitter(hue=0.6), ValueError, "ColorJitter: hue must be in"),
    (lambda: T.Normalize("a", [1]), TypeError, "Normalize: mean must be a number"),
    (lambda: T.Normalize([0], [0]), ValueError, "Normalize: std must be positive"),
    (lambda: T.Compose(T.Resize(3)), TypeError, "Compose: transforms must be a list"),
    (lambda: T.RandomApply([3]), TypeError, "RandomApply: transforms must be callable, got 3"),
    (lambda: T.RandomChoice([abs], p=[1, 2]), ValueError, "RandomChoice: p must be a weight for each of 1"),
    (lambda: T.Lambda(3), TypeError, "Lambda: lambd must be callable"),
    (lambda: T.Pad("a"), TypeError, "Pad: padding must be an int"),
    (lambda: T.Grayscale(2), ValueError, "Grayscale: num_output_channels must be 1 or 3"),
    (lambda: T.Resize(4)(np.zeros((3, 4, 4))), TypeError, r"Resize takes a picture as a tensor \(C, H, W\), got ndarray; ToTensor"),
    (lambda: T.Pad(4)("x"), TypeError, "Pad takes a picture as a tensor"),
    (lambda: T.ToTensor()([1, 2]), TypeError, "to_tensor takes a NumPy array or a picture of Pillow, got list"),
    (lambda: F.to_tensor(np.zeros(3)), ValueError, r"to_tensor takes an array \(H, W\) or \(H, W, C\)"),
    (lambda: F.normalize(picture(3, 2, 2), [0.5], [0.5]), TypeError, "normalize takes a picture of floats"),
    (lambda: F.normalize(arete.ones(3, 2, 2), [0.5, 1], [0.5]), ValueError, "normalize: mean has 2 numbers"),
    (lambda: F.pad(picture(3, 2, 2), 2, padding_mode="reflect"), ValueError, "pad: padding_mode reflect takes at most 1 pixels"),
    (lambda: F.crop(picture(3, 2, 2), 0.5, 0, 1, 1), TypeError, "crop: top must be an int"),
    (lambda: F.hflip(arete.zeros(2, 2)), ValueError, r"hflip takes a picture \(C, H, W\), got a tensor of shape \(2, 2\)"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_arguments_name_the_transform(number):
    call, kind, text = WRONG[number]
    with pytest.raises(kind, match=text) as info:
        call()
    assert "incompatible function arguments" not in str(info.value)


@pytest.fixture
def folder(tmp_path):
    for i in range(12):
        path = tmp_path / "ab"[i % 2] / f"{i:02d}.{'png' if i < 8 else 'bin'}"
        path.parent.mkdir(exist_ok=True)
        vision.io.write_png(picture(3, 6, 7, i), str(path))
    return tmp_path


def test_folder_with_a_loader(folder):
    plain = vision.datasets.ImageFolder(folder)
    seen = []

    def read(path):
        seen.append(path)
        return arete.tensor(vision.io.read_image(path).numpy()[:1])

    own = vision.datasets.ImageFolder(str(folder), None, None, read)
    assert own.samples == plain.samples and own.classes == plain.classes and len(own) == 8
    got, label = own[3]
    assert (got == plain[3][0][:1]).all() and label == plain[3][1] and seen == [plain.samples[3][0]]
    loader = DataLoader(own, 4, num_workers=2)
    assert not iter(loader)._pool.native
    assert [x.shape for x, _ in loader] == [(4, 1, 6, 7)] * 2
    for mode in ({"mode": "gray"}, {"at_least": 3}):
        with pytest.raises(ValueError, match="without a loader"):
            vision.datasets.ImageFolder(folder, loader=read, **mode)


def test_folder_with_a_choice_of_files(folder):
    data = vision.datasets.ImageFolder(folder, T.CenterCrop(4), is_valid_file=lambda path: path.endswith(("02.png", "09.bin")))
    assert [path[-6:] for path, _ in data.samples] == ["02.png", "09.bin"] and data.targets == [0, 1]
    assert (data[1][0] == picture(3, 6, 7, 9)[:, 1:5, 2:6]).all()
    [(x, labels)] = DataLoader(data, 2, num_workers=1)
    assert x.shape == (2, 3, 4, 4) and labels.tolist() == [0, 1]
    with pytest.raises(FileNotFoundError, match="no valid file for the class b"):
        vision.datasets.ImageFolder(folder, is_valid_file=lambda path: path.endswith("02.png"))
    some = vision.datasets.ImageFolder(folder, is_valid_file=lambda path: path.endswith("02.png"), allow_empty=True)
    assert some.classes == ["a", "b"] and len(some) == 1
    with pytest.raises(ValueError, match="extensions or is_valid_file"):
        vision.datasets.ImageFolder(folder, is_valid_file=bool, extensions=[".png"])
    with pytest.raises(TypeError, match="loader must be callable"):
        vision.datasets.ImageFolder(folder, loader="pil")
    (folder / "c").mkdir()
    assert vision.datasets.ImageFolder(folder, allow_empty=True).classes == ["a", "b", "c"]


def test_new_arguments_leave_the_workers_native(folder):
    """Also with the arguments that C++ knows, whole batches are made without Python, and are those of single items."""
    augment = T.Compose([T.Resize(8, max_size=9), T.RandomCrop(8, (1, 2), True, (1, 2, 3)), T.ColorJitter((0.5, 1.5), hue=(0, 0.2)),
                         T.RandomErasing(0.5, value="random"), T.ToTensor()])
    data = vision.datasets.ImageFolder(folder, augment)

    def walk(native):
        arete.manual_seed(3)
        loader = DataLoader(data, 3, shuffle=True, num_workers=2)
        if not native:
            loader._native_maker = lambda pin: None
        it = iter(loader)
        assert it._pool.native == native
        return [x.tolist() for x, _ in it]

    assert walk(True) == walk(False)
    python = vision.datasets.ImageFolder(folder, T.RandomCrop(4, padding=1, padding_mode="edge"))
    it = iter(DataLoader(python, 4, num_workers=1))
    assert not it._pool.native and [x.shape for x, _ in it] == [(4, 3, 4, 4)] * 2


def test_names_and_arguments():
    """As torchvision's documentation gives them."""
    signatures = {
        T.Resize: "size interpolation max_size antialias", T.RandomCrop: "size padding pad_if_needed fill padding_mode",
        T.RandomResizedCrop: "size scale ratio interpolation antialias", T.RandomErasing: "p scale ratio value inplace",
        T.ColorJitter: "brightness contrast saturation hue", T.Pad: "padding fill padding_mode", T.RandomApply: "transforms p",
        T.RandomChoice: "transforms p", T.Grayscale: "num_output_channels", T.Normalize: "mean std inplace",
        F.resize: "img size interpolation max_size antialias", F.pad: "img padding fill padding_mode", F.crop: "img top left height width",
        F.center_crop: "img output_size", F.normalize: "tensor mean std inplace", F.to_tensor: "pic",
        F.rgb_to_grayscale: "img num_output_channels",
    }
    for f, names in signatures.items():
        assert list(inspect.signature(f).parameters) == names.split(), f
