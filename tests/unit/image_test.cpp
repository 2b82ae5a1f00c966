// JPEG and PNG, pictures in folders, augmentation, tokens, and batches on their way to a device.
#include "arete/io/image.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "arete/data/image_folder.h"
#include "arete/data/loader.h"
#include "arete/data/token_dataset.h"
#include "arete/data/transforms.h"
#include "arete/ops/creation.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "io_test_support.h"
#include "tests/support/test_device.h"

namespace arete::data {
namespace {

using test::expect_error;
using test::TempDir;
using test::write_text;

// A smooth picture, so that JPEG changes it little.
Tensor smooth(int64_t channels, int64_t height, int64_t width) {
  Tensor t = empty({channels, height, width}, TensorOptions(kUInt8));
  uint8_t* p = t.data<uint8_t>();
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x)
        *p++ = uint8_t(128 + 90 * std::sin(double(x) / 7 + double(c)) * std::cos(double(y) / 9));
  return t;
}
int64_t largest_gap(const Tensor& a, const Tensor& b) {
  return a.to(kInt64).sub(b.to(kInt64)).abs().max().item<int64_t>();
}

TEST(Image, PngIsExactForEveryNumberOfChannels) {
  for (int64_t channels : {1, 3, 4}) {
    const Tensor t = randint(0, 256, {channels, 5, 7}, kUInt8);
    const Tensor back = io::decode_image(io::encode_png(t));
    EXPECT_EQ(Shape(back.sizes()), Shape({channels, 5, 7}));
    EXPECT_EQ(largest_gap(back, t), 0) << channels;
  }
}

TEST(Image, JpegIsClose) {
  for (int64_t channels : {1, 3}) {
    const Tensor t = smooth(channels, 40, 33);
    const Tensor back = io::decode_image(io::encode_jpeg(t, 95));
    ASSERT_EQ(Shape(back.sizes()), Shape(t.sizes()));
    EXPECT_LE(largest_gap(back, t), channels == 1 ? 6 : 40) << channels;  // colours at half size
  }
}

TEST(Image, ModesConvert) {
  const Tensor rgb = smooth(3, 9, 8), gray = smooth(1, 9, 8);
  using io::ImageMode;
  const auto as = [](const std::vector<std::byte>& bytes, ImageMode mode) {
    return io::decode_image(bytes, {.mode = mode});
  };
  const Tensor luma = as(io::encode_png(rgb), ImageMode::gray);
  const Tensor want = rgb[0]
                          .to(kFloat64)
                          .mul(0.299)
                          .add(rgb[1].to(kFloat64).mul(0.587))
                          .add(rgb[2].to(kFloat64).mul(0.114))
                          .round();
  EXPECT_LE(largest_gap(luma[0], want), 1);
  const Tensor three = as(io::encode_png(gray), ImageMode::rgb);
  for (int64_t c = 0; c < 3; ++c) EXPECT_EQ(largest_gap(three[c], gray[0]), 0);
  EXPECT_EQ(as(io::encode_png(smooth(4, 3, 3)), ImageMode::rgb).size(0), 3);
  EXPECT_EQ(as(io::encode_jpeg(rgb), ImageMode::gray).size(0), 1);
  EXPECT_EQ(as(io::encode_jpeg(gray), ImageMode::rgb).size(0), 3);
}

TEST(Image, JpegComesOutSmallerWhereThatIsEnough) {
  const auto bytes = io::encode_jpeg(smooth(3, 80, 120));
  EXPECT_EQ(Shape(io::decode_image(bytes, {.at_least = 40}).sizes()), Shape({3, 40, 60}));
  EXPECT_EQ(Shape(io::decode_image(bytes, {.at_least = 41}).sizes()), Shape({3, 80, 120}));
  EXPECT_EQ(Shape(io::decode_image(bytes, {.at_least = 1}).sizes()), Shape({3, 10, 15}));
}

TEST(Image, DamagedFilesAndWrongTensorsAreErrors) {
  expect_error(ErrorKind::io, {"neither a JPEG nor a PNG file"}, [] { io::decode_image({}); });
  for (const auto& whole :
       {io::encode_png(smooth(3, 20, 20)), io::encode_jpeg(smooth(3, 20, 20))}) {
    for (size_t n : {size_t(4), size_t(40), whole.size() / 2})
      expect_error(ErrorKind::io, {"damaged"},
                   [&] { io::decode_image(std::span(whole).first(n), {}, "cut.img"); });
    expect_error(ErrorKind::io, {"larger than allowed"},
                 [&] { io::decode_image(whole, {.max_pixels = 399}); });
  }
  expect_error(ErrorKind::type, {"tensor of bytes"}, [] { io::encode_png(zeros({3, 4, 4})); });
  expect_error(ErrorKind::value, {"1 or 3 channels"}, [] { io::encode_jpeg(smooth(4, 4, 4)); });
  expect_error(ErrorKind::value, {"between 1 and 100"},
               [] { io::encode_jpeg(smooth(3, 4, 4), 101); });
  expect_error(ErrorKind::value, {".png, .jpg or .jpeg"},
               [] { io::write_image("x.gif", smooth(3, 4, 4)); });
}

// root/cat/{a.png, sub/b.JPG}, root/dog/c.jpeg, and files that do not count.
void make_folder(const TempDir& dir) {
  namespace fs = std::filesystem;
  fs::create_directories(dir / "cat/sub");
  fs::create_directories(dir / "dog");
  io::write_image(dir / "cat/a.png", smooth(3, 6, 8));
  io::write_image(dir / "cat/sub/b.jpg", smooth(1, 9, 5));
  fs::rename(dir / "cat/sub/b.jpg", dir / "cat/sub/b.JPG");
  io::write_image(dir / "dog/c.jpeg", smooth(3, 7, 7));
  write_text(dir / "dog/notes.txt", "no picture");
  write_text(dir / "list.txt", "no class");
}

TEST(ImageFolder, FindsClassesAndPictures) {
  const TempDir dir;
  make_folder(dir);
  const ImageFolder folder(dir.path());
  EXPECT_EQ(folder.classes(), (std::vector<std::string>{"cat", "dog"}));
  ASSERT_EQ(folder.size(), 3);
  const std::vector<Shape> sizes{{3, 6, 8}, {3, 9, 5}, {3, 7, 7}};
  for (int64_t i = 0; i < 3; ++i) {
    const Example e = folder.get(i);
    EXPECT_EQ(Shape(e[0].sizes()), sizes[size_t(i)]);
    EXPECT_EQ(e[0].dtype(), kUInt8);
    EXPECT_EQ(e[1].item<int64_t>(), i == 2 ? 1 : 0);
  }
  EXPECT_EQ(largest_gap(folder.get(0)[0], smooth(3, 6, 8)), 0);
  expect_error(ErrorKind::index, {"out of range"}, [&] { folder.get(3); });
}

TEST(ImageFolder, SaysWhatIsWrong) {
  const TempDir dir;
  expect_error(ErrorKind::io, {"cannot be read"}, [&] { ImageFolder(dir / "nowhere"); });
  expect_error(ErrorKind::io, {"Couldn't find any class folder"}, [&] { ImageFolder(dir.path()); });
  make_folder(dir);
  std::filesystem::create_directories(dir / "empty");
  expect_error(ErrorKind::io, {"Found no valid file for the class empty"},
               [&] { ImageFolder(dir.path()); });
  std::filesystem::remove(dir / "empty");
  write_text(dir / "dog/broken.png", "\x89PNG and nothing");
  const ImageFolder folder(dir.path());
  expect_error(ErrorKind::io, {"broken.png"}, [&] { folder.get(2); });
}

Tensor picture_of(const Transform& t, const Tensor& picture, uint64_t seed = 0) {
  Generator g(seed);
  return t({picture}, g)[0];
}

TEST(Transforms, ResizeIsInterpolationWithAntialiasing) {
  const Tensor t = rand({3, 13, 17});
  for (const auto& [h, w] : std::vector<std::pair<int64_t, int64_t>>{{5, 6}, {20, 9}, {13, 30}}) {
    const Tensor got = picture_of(transforms::resize(h, w), t);
    const Tensor want =
        interpolate(t.unsqueeze(0), Extent{h, w}, {}, "bilinear", false, true).squeeze(0);
    EXPECT_LE(got.sub(want).abs().max().item<double>(), 1e-5);
    // Bytes, in any memory order.
    const Tensor bytes = t.mul(255).round().to(kUInt8);
    const Tensor small = picture_of(transforms::resize(h, w), bytes);
    EXPECT_EQ(small.dtype(), kUInt8);
    EXPECT_LE(small.to(kFloat32).div(255).sub(want).abs().max().item<double>(), 1.01 / 255);
    const Tensor other = picture_of(transforms::resize(h, w),
                                    bytes.permute({1, 2, 0}).contiguous().permute({2, 0, 1}));
    EXPECT_EQ(largest_gap(small, other), 0);
  }
  EXPECT_EQ(Shape(picture_of(transforms::resize_shorter(8), smooth(3, 16, 24)).sizes()),
            Shape({3, 8, 12}));
  EXPECT_EQ(Shape(picture_of(transforms::resize_shorter(8, 9), smooth(3, 16, 24)).sizes()),
            Shape({3, 6, 9}));
  expect_error(ErrorKind::value, {"8 and 8"}, [] { transforms::resize_shorter(8, 8); });
}

TEST(Transforms, CropsTakeTheirPart) {
  const Tensor t = smooth(3, 10, 12);
  EXPECT_EQ(
      largest_gap(picture_of(transforms::center_crop(4, 6), t), t.narrow(1, 3, 4).narrow(2, 3, 6)),
      0);
  const Tensor padded = picture_of(transforms::center_crop(14, 12), t);
  EXPECT_EQ(largest_gap(padded.narrow(1, 2, 10), t), 0);
  EXPECT_EQ(padded.narrow(1, 0, 2).to(kInt64).sum().item<int64_t>(), 0);
  // A crop of the same size after padding is the picture, moved.
  int places = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Tensor moved = picture_of(transforms::random_crop(10, 12, 2), t, seed);
    bool found = false;
    const Tensor wide = arete::pad(t, {2, 2, 2, 2});
    for (int64_t y = 0; y < 5; ++y)
      for (int64_t x = 0; x < 5; ++x)
        found = found || largest_gap(moved, wide.narrow(1, y, 10).narrow(2, x, 12)) == 0;
    EXPECT_TRUE(found);
    places += largest_gap(moved, t) != 0;
  }
  EXPECT_GT(places, 30);
  expect_error(ErrorKind::value, {"larger than input image size"},
               [&] { picture_of(transforms::random_crop(11, 12), t); });
  for (uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_EQ(Shape(picture_of(transforms::random_resized_crop(6, 5), t, seed).sizes()),
              Shape({3, 6, 5}));
  // Of everything: the picture itself.
  const Tensor all = picture_of(transforms::random_resized_crop(10, 12, {1, 1}, {1.2, 1.2}), t);
  EXPECT_EQ(largest_gap(all, t), 0);
}

TEST(Transforms, FlipsColoursAndErasing) {
  const Tensor t = smooth(3, 6, 8);
  EXPECT_EQ(largest_gap(picture_of(transforms::random_horizontal_flip(1), t), t.flip({2})), 0);
  EXPECT_EQ(largest_gap(picture_of(transforms::random_vertical_flip(1), t), t.flip({1})), 0);
  EXPECT_EQ(largest_gap(picture_of(transforms::random_horizontal_flip(0), t), t), 0);
  int flips = 0;
  for (uint64_t seed = 0; seed < 200; ++seed)
    flips += largest_gap(picture_of(transforms::random_horizontal_flip(), t, seed), t) != 0;
  EXPECT_NEAR(flips, 100, 40);
  const Tensor before = t.clone();
  EXPECT_EQ(largest_gap(picture_of(transforms::color_jitter(0), t), t), 0);
  const Tensor gray = picture_of(transforms::random_grayscale(1), t);
  EXPECT_EQ(largest_gap(gray[0], gray[2]), 0);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Tensor changed = picture_of(transforms::color_jitter(0.5, 0.5, 0.5), t, seed);
    EXPECT_GT(largest_gap(changed, t), 0);
    const Tensor holes = picture_of(transforms::random_erasing(1), t, seed);
    const int64_t zeros_in = holes.eq(0).all({0}).to(kInt64).sum().item<int64_t>();
    EXPECT_GE(zeros_in, 1);
    EXPECT_LT(zeros_in, 48 / 2);
  }
  EXPECT_EQ(largest_gap(t, before), 0);  // nothing works in place
}

TEST(Transforms, PaddingRangesAndColours) {
  const Tensor t = smooth(3, 6, 8), whole = zeros({3, 10, 8}, t.options());
  // Too small: it gets what it lacks on both sides, and lies somewhere within.
  bool seen[3] = {};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Tensor got = picture_of(
        transforms::random_crop(8, 8, {.if_needed = true, .fill = {250, 251, 252}}), t, seed);
    for (int64_t y = 0; y < 3; ++y) {
      if (largest_gap(got.narrow(1, y, 6), t) != 0) continue;
      seen[y] = true;
      EXPECT_EQ(got[2][y == 0 ? 7 : 0][0].item<int64_t>(), 252);
    }
  }
  EXPECT_TRUE(seen[0] && seen[1] && seen[2]);
  const Tensor below =
      picture_of(transforms::random_crop(10, 8, {.bottom = 4, .fill = {0}}), t);  // one place only
  whole.narrow(1, 0, 6).copy_(t);
  EXPECT_EQ(largest_gap(below, whole), 0);
  expect_error(ErrorKind::value, {"fill", "2 numbers"}, [&] {
    picture_of(transforms::random_crop(4, 4, {.fill = {1, 2}}), t);
  });
  // The range around one is the number's.
  EXPECT_EQ(largest_gap(picture_of(transforms::color_jitter(0.4, 0.3, 0.2, 0.1), t, 5),
                        picture_of(transforms::color_jitter({0.6, 1.4}, {0.7, 1.3}, {0.8, 1.2},
                                                            {-0.1, 0.1}),
                                   t, 5)),
            0);
  expect_error(ErrorKind::value, {"in order"}, [] {
    transforms::color_jitter({2, 1}, {1, 1}, {1, 1}, {0, 0});
  });
  expect_error(ErrorKind::value, {"hue", "0.6"}, [] {
    transforms::color_jitter({1, 1}, {1, 1}, {1, 1}, {0, 0.6});
  });
  const Tensor painted =
      picture_of(transforms::random_erasing(1, {0.3, 0.3}, {1, 1}, {255, 0, 255}), t.clamp(1, 254));
  EXPECT_GE(painted[0].eq(255).to(kInt64).sum().item<int64_t>(), 9);
  EXPECT_EQ(largest_gap(painted[0].eq(255).to(kUInt8), painted[1].eq(0).to(kUInt8)), 0);
  const Tensor noise =
      picture_of(transforms::random_erasing(1, {0.5, 0.5}, {1, 1}, {}), zeros({1, 40, 40}));
  const Tensor drawn = noise.masked_select(noise.ne(0));
  EXPECT_NEAR(double(drawn.numel()), 784, 1);
  EXPECT_NEAR(drawn.mean().item<double>(), 0, 6 / 28.0);
}

TEST(Transforms, HueMovesOnTheCircleOfColours) {
  const auto pixel = [](std::vector<float> v) { return tensor(v).view({3, 1, 1}); };
  const double third = 1.0 / 3;
  const std::vector<float> red{1, 0, 0}, green{0, 1, 0}, blue{0, 0, 1}, cyan{0, 1, 1};
  const std::vector<float> dull{0.5f, 0.25f, 0.25f}, dull_cyan{0.25f, 0.5f, 0.5f};
  const auto gap = [&](const std::vector<float>& from, double shift, const std::vector<float>& to) {
    return transforms::adjust_hue(pixel(from), shift).sub(pixel(to)).abs().max().item<double>();
  };
  EXPECT_LT(gap(red, third, green), 1e-6);
  EXPECT_LT(gap(green, third, blue), 1e-6);
  EXPECT_LT(gap(red, -third, blue), 1e-6);
  EXPECT_LT(gap(red, 0.5, cyan), 1e-6);
  EXPECT_LT(gap(red, -0.5, cyan), 1e-6);
  EXPECT_LT(gap(dull, 0.5, dull_cyan), 1e-6);
  const Tensor bytes = smooth(4, 5, 6), before = bytes.clone();
  EXPECT_EQ(largest_gap(transforms::adjust_hue(bytes, 0), bytes), 0);
  const Tensor moved = transforms::adjust_hue(bytes, 0.4);
  EXPECT_GT(largest_gap(moved, bytes), 0);
  EXPECT_EQ(largest_gap(moved[3], bytes[3]), 0);  // not the transparency
  EXPECT_EQ(largest_gap(bytes, before), 0);
  EXPECT_EQ(largest_gap(transforms::adjust_hue(bytes.narrow(0, 0, 1), 0.4), bytes.narrow(0, 0, 1)),
            0);
  expect_error(ErrorKind::value, {"hue_factor", "0.6"},
               [&] { transforms::adjust_hue(bytes, 0.6); });
  expect_error(ErrorKind::value, {"hue must be in"},
               [] { transforms::color_jitter(0, 0, 0, 0.6); });
  expect_error(ErrorKind::value, {"begin with a picture"},
               [] { transforms::adjust_hue(zeros({2}), 0.1); });
}

TEST(Transforms, NormalizeAndFloat) {
  const Tensor t = smooth(3, 4, 5);
  const Tensor x = picture_of(transforms::to_float(), t);
  EXPECT_EQ(x.dtype(), kFloat32);
  EXPECT_LE(x.sub(t.to(kFloat32).div(255)).abs().max().item<double>(), 1e-7);
  const Tensor mean = tensor({0.4, 0.5, 0.6}).view({3, 1, 1}),
               std = tensor({0.2, 0.3, 0.4}).view({3, 1, 1});
  const Transform normalize = transforms::normalize({0.4, 0.5, 0.6}, {0.2, 0.3, 0.4});
  for (const Tensor& in : {t, x})
    EXPECT_LE(picture_of(normalize, in).sub(x.sub(mean).div(std)).abs().max().item<double>(), 1e-5);
  expect_error(ErrorKind::value, {"std must be positive"}, [] { transforms::normalize({0}, {0}); });
  expect_error(ErrorKind::value, {"one number or one for each channel"}, [&] {
    picture_of(transforms::normalize({0, 1}, {1}), t);
  });
  expect_error(ErrorKind::value, {"an example must begin with a picture"}, [&] {
    picture_of(transforms::to_float(), zeros({4, 5}));
  });
}

TEST(Transforms, InALoaderDoNotDependOnWorkers) {
  const TempDir dir;
  make_folder(dir);
  const auto folder = std::make_shared<ImageFolder>(dir.path());
  const Transform augment = transforms::compose({transforms::random_resized_crop(4, 4),
                                                 transforms::random_horizontal_flip(),
                                                 transforms::normalize({0.5}, {0.5})});
  std::vector<Tensor> seen[2];
  for (int workers : {0, 2}) {
    DataLoader loader(folder,
                      {.batch_size = 2, .num_workers = workers, .seed = 0, .transform = augment});
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const Batch& b : loader) seen[workers / 2].push_back(b.input());
  }
  ASSERT_EQ(seen[0].size(), 4u);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(seen[0][i].sub(seen[1][i]).abs().max().item<double>(), 0);
  EXPECT_GT(seen[0][0].sub(seen[0][2]).abs().max().item<double>(), 0);  // another epoch
}

TEST(TokenDataset, WindowsAreShiftedByOne) {
  const TempDir dir;
  std::string text16, text32;
  for (uint32_t i = 0; i < 11; ++i) {
    const uint32_t v = 60000 + i;
    text16 += {char(v & 255), char(v >> 8 & 255)};
    text32 += {char(v & 255), char(v >> 8 & 255), char(1), char(0)};
  }
  write_text(dir / "a.bin", text16);
  write_text(dir / "b.bin", text32);
  for (int bytes : {2, 4}) {
    const TokenDataset tokens(dir / (bytes == 2 ? "a.bin" : "b.bin"), 4, bytes, 3);
    EXPECT_EQ(tokens.tokens(), 11);
    ASSERT_EQ(tokens.size(), 3);  // at 0, 3 and 6
    const Batch b = tokens.get_batch(Shape{2, 0});
    const int64_t high = bytes == 4 ? 1 << 16 : 0;
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(b.input()[0][i].item<int64_t>(), 60006 + i + high);
      EXPECT_EQ(b.target()[1][i].item<int64_t>(), 60001 + i + high);
    }
    EXPECT_EQ(Shape(tokens.get(1)[0].sizes()), Shape({4}));
    expect_error(ErrorKind::index, {"out of range"}, [&] { tokens.get(3); });
  }
  EXPECT_EQ(TokenDataset(dir / "a.bin", 5).size(), 2);
  expect_error(ErrorKind::io, {"shorter than one window"},
               [&] { TokenDataset(dir / "a.bin", 11); });
  expect_error(ErrorKind::io, {"ends inside a token"}, [&] { TokenDataset(dir / "a.bin", 2, 4); });
  expect_error(ErrorKind::value, {"2 or 4 bytes"}, [&] { TokenDataset(dir / "a.bin", 2, 3); });
}

// The staging of batches ahead of the loop, also where no copy is needed (a CPU).
TEST(DataLoader, OnADeviceIsTheSameAndResumes) {
  const Tensor x = arange(23);
  const auto dataset = std::make_shared<TensorDataset>(std::vector<Tensor>{x, x * 10});
  const DataLoaderOptions plain{.batch_size = 4, .shuffle = true, .seed = 3};
  const auto values = [](const Batch& b) { return b.input().to(kCPU).to_vector<int64_t>(); };
  std::vector<std::vector<int64_t>> want;
  DataLoader reference(dataset, plain);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const Batch& b : reference) want.push_back(values(b));
  for (int workers : {0, 2}) {
    DataLoaderOptions options = plain;
    options.num_workers = workers;
    options.device = test::test_device();
    std::vector<std::vector<int64_t>> got;
    DataLoader loader(dataset, options);
    for (const Batch& b : loader) {
      EXPECT_EQ(b.input().device(), *options.device);
      got.push_back(values(b));
      // Time for workers to have the next one ready, so that it is staged.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (got.size() == 4) {
        // Another loader goes on after this batch.
        const LoaderState state = loader.state();
        EXPECT_EQ(state, (LoaderState{0, 4, Generator::State{3, 0}}));
        DataLoader other(dataset, options);
        other.load_state(state);
        for (const Batch& c : other) {
          EXPECT_EQ(values(c), want[4]);
          break;
        }
      }
    }
    EXPECT_EQ(loader.state(), (LoaderState{1, 0, Generator::State{3, 2}}));
    for (const Batch& b : loader) {
      got.push_back(values(b));
      if (got.size() == 8) break;
    }
    EXPECT_EQ(loader.state(), (LoaderState{1, 2, Generator::State{3, 2}}));
    for (const Batch& b : loader) {  // left early: the epoch after it
      EXPECT_EQ(loader.state(), (LoaderState{2, 1, Generator::State{3, 4}}));
      EXPECT_NE(values(b), want[6]);
      break;
    }
    want.resize(8);
    EXPECT_EQ(got, want);
    want.clear();
    DataLoader again(dataset, plain);
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const Batch& b : again) want.push_back(values(b));
  }
}

}  // namespace
}  // namespace arete::data
