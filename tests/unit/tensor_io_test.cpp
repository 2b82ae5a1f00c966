// Tensors to files and back: safetensors, .npy and .npz.
#include "arete/io/tensor_io.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "arete/base/file.h"
#include "arete/io/npy_format.h"
#include "arete/io/safetensors_format.h"
#include "arete/io/zip.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/shape.h"
#include "io_test_support.h"

namespace arete::io {
namespace {

using test::expect_error;
using test::read_text;
using test::TempDir;
using test::write_text;

constexpr int kAll = kNumDTypes;

// Every bit pattern, or many of them: copies must keep NaNs and signs of zeros.
Tensor sample(DType t, IntList sizes) {
  const Tensor x = empty(sizes, t);
  auto* p = static_cast<uint8_t*>(x.data_ptr());
  for (size_t i = 0; i < x.nbytes(); ++i) p[i] = uint8_t(t == kBool ? i % 3 == 0 : i * 37 + 11);
  return x;
}

std::string raw(const Tensor& t) {
  const Tensor c = t.contiguous();
  return {static_cast<const char*>(c.data_ptr()), c.nbytes()};
}

void expect_same(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.dtype(), want.dtype());
  EXPECT_EQ(to_string(got.sizes()), to_string(want.sizes()));
  EXPECT_TRUE(got.is_contiguous());
  EXPECT_EQ(raw(got), raw(want));
  EXPECT_FALSE(got.requires_grad());
}

class EachDType : public testing::TestWithParam<int> {
 protected:
  DType dtype() const { return DType(GetParam()); }
  bool numpy_has_it() const { return dtype() != kBFloat16 && !is_float8(dtype()); }
  TempDir folder;
};

TEST_P(EachDType, Safetensors) {
  const Tensor matrix = sample(dtype(), {3, 5});
  if (dtype() == kComplex128) {  // the format has no such type
    EXPECT_THROW(save_safetensors(folder / "f", {{"m", matrix}}), Error);
    EXPECT_EQ(folder.file_count(), 0u);
    return;
  }
  const NamedTensors all{{"matrix", matrix},
                         {"transposed", matrix.t()},
                         {"every second", matrix.slice(1, 0, {}, 2)},
                         {"expanded", matrix.select(0, 1).expand({4, 5})},
                         {"scalar", sample(dtype(), {})},
                         {"empty", sample(dtype(), {0, 3})}};
  save_safetensors(folder / "f", all, {{"epoch", "3"}});
  const SafetensorsFile f = load_safetensors(folder / "f");
  EXPECT_EQ(f.metadata, (std::map<std::string, std::string>{{"epoch", "3"}}));
  ASSERT_EQ(f.tensors.size(), all.size());
  for (const auto& [name, want] : all) {
    SCOPED_TRACE(name);
    expect_same(f.tensors.at(name), want);
  }
}

TEST_P(EachDType, Npy) {
  const Tensor matrix = sample(dtype(), {3, 5});
  if (!numpy_has_it()) {
    expect_error(ErrorKind::type, {"NumPy has no dtype", "safetensors"},
                 [&] { save_npy(folder / "x.npy", matrix); });
    EXPECT_EQ(folder.file_count(), 0u);
    return;
  }
  for (const Tensor& want :
       {matrix, matrix.t(), matrix.slice(1, 0, {}, 2), matrix.select(0, 1).expand({4, 5}),
        sample(dtype(), {}), sample(dtype(), {0, 3})}) {
    save_npy(folder / "x.npy", want);
    expect_same(load_npy(folder / "x.npy"), want);
  }
}

TEST_P(EachDType, NpyInFortranOrder) {
  if (!numpy_has_it()) {
    const int64_t shape[] = {1};
    EXPECT_THROW(write_npy_header(is_float8(dtype()) ? "F8_E4M3" : "BF16", shape), ValueError);
    return;
  }
  const Tensor want = sample(dtype(), {2, 3, 4});
  save_npy(folder / "c.npy", want);
  const std::string c = read_text(folder / "c.npy");
  const NpyHeader h = parse_npy_header(test::bytes_of(c));
  write_text(folder / "f.npy",
             write_npy_header(h.dtype, h.shape, true) + raw(want.permute({2, 1, 0})));
  expect_same(load_npy(folder / "f.npy"), want);
}

TEST_P(EachDType, Npz) {
  if (!numpy_has_it()) {
    EXPECT_THROW(save_npz(folder / "x.npz", {{"x", sample(dtype(), {2})}}), TypeError);
    EXPECT_EQ(folder.file_count(), 0u);
    return;
  }
  const Tensor a = sample(dtype(), {4, 3}), b = sample(dtype(), {7}).slice(0, 1, {}, 3);
  save_npz(folder / "x.npz", {{"a", a}, {"nested/b", b}});
  const auto got = load_npz(folder / "x.npz");
  ASSERT_EQ(got.size(), 2u);
  expect_same(got.at("a"), a);
  expect_same(got.at("nested/b"), b);
}

INSTANTIATE_TEST_SUITE_P(All, EachDType, testing::Range(0, kAll),
                         [](const auto& info) { return std::string(name_of(DType(info.param))); });

TEST(TensorIo, TensorsThatShareMemoryAndRequireGrad) {
  const TempDir folder;
  const Tensor x = rand({2, 3}).requires_grad_();
  save_safetensors(folder / "f", {{"a", x}, {"b", x}, {"view", x.view({6})}});
  const auto f = load_safetensors(folder / "f");
  for (const char* name : {"a", "b"}) expect_same(f.tensors.at(name), x.detach());
  Tensor a = f.tensors.at("a");
  a.zero_();  // the copies are independent
  expect_same(f.tensors.at("b"), x.detach());
}

TEST(TensorIo, EqualTensorsGiveEqualFiles) {
  const TempDir folder;
  const Tensor a = sample(kFloat32, {3}), b = sample(kInt64, {2}), c = sample(kUInt8, {5});
  save_safetensors(folder / "1", {{"a", a}, {"b", b}, {"c", c}});
  save_safetensors(folder / "2", {{"c", c}, {"b", b}, {"a", a}});
  EXPECT_EQ(read_text(folder / "1"), read_text(folder / "2"));
}

TEST(TensorIo, RefusesWhatCannotBeWritten) {
  const TempDir folder;
  const Tensor x = zeros({2});
  expect_error(ErrorKind::value, {"'u'", "undefined"}, [&] {
    save_safetensors(folder / "f", {{"u", Tensor()}});
  });
  EXPECT_THROW(save_safetensors(folder / "f", {{"a", x}, {"a", x}}), ValueError);
  EXPECT_THROW(save_safetensors(folder / "f", {{"m", empty({2}, kMeta)}}), DeviceError);
  EXPECT_THROW(save_npz(folder / "f", {{"a", x}, {"a", x}}), ValueError);
  EXPECT_THROW(save_npz(folder / "f", {{"../a", x}}), ValueError);
  EXPECT_EQ(folder.file_count(), 0u) << "nothing may be left behind";
}

TEST(TensorIo, FailedSaveKeepsTheOldFile) {
  const TempDir folder;
  save_npz(folder / "f", {{"a", ones({3})}});
  const std::string before = read_text(folder / "f");
  EXPECT_THROW(save_npz(folder / "f", {{"a", zeros({3})}, {"b", Tensor()}}), ValueError);
  EXPECT_EQ(read_text(folder / "f"), before);
  EXPECT_EQ(folder.file_count(), 1u);
}

TEST(TensorIo, UnwritableFolder) {
  const TempDir folder;
  const Tensor x = zeros({2});
  const std::string missing = folder / "no/such/folder/f";
  expect_error(ErrorKind::io, {"no/such/folder"}, [&] { save_safetensors(missing, {{"x", x}}); });
  expect_error(ErrorKind::io, {"no/such/folder"}, [&] { save_npy(missing, x); });
  expect_error(ErrorKind::io, {"no/such/folder"}, [&] { save_npz(missing, {{"x", x}}); });
  write_text(folder / "file", "");
  EXPECT_THROW(save_npy(folder / "file/x.npy", x), IoError);
  if (::geteuid() != 0) {  // root may write anywhere
    std::filesystem::permissions(
        folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    EXPECT_THROW(save_npy(folder / "x.npy", x), IoError);
    std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  }
}

TEST(TensorIo, FullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  EXPECT_THROW(save_npy("/dev/full", zeros({2})), IoError);
}

TEST(TensorIo, BadFiles) {
  const TempDir folder;
  expect_error(ErrorKind::io, {"missing.safetensors"},
               [&] { load_safetensors(folder / "missing.safetensors"); });
  EXPECT_THROW(load_npy(folder / "missing"), IoError);
  EXPECT_THROW(load_npz(folder / "missing"), IoError);
  EXPECT_THROW(load_npy(folder.path()), IoError);
  const Tensor x = arange(20, kFloat32);
  save_safetensors(folder / "s", {{"x", x}, {"y", x}});
  save_npy(folder / "n", x);
  save_npz(folder / "z", {{"x", x}, {"y", x}});
  const auto load = [](const std::string& path) {
    switch (path.back()) {
      case 's':
        load_safetensors(path);
        break;
      case 'n':
        load_npy(path);
        break;
      default:
        load_npz(path);
        break;
    }
  };
  for (const char* name : {"s", "n", "z"}) {
    const std::string good = read_text(folder / name), path = folder / name;
    // Any prefix of a file is an error that names the file, as is a longer one.
    for (size_t length = 0; length < good.size(); length += 3) {
      write_text(path, good.substr(0, length));
      expect_error(ErrorKind::io, {path}, [&] { load(path); });
    }
    if (*name != 'z') {  // archives may be followed by a comment, which has its own checks
      write_text(path, good + "x");
      expect_error(ErrorKind::io, {path}, [&] { load(path); });
    }
    write_text(path, "this is no tensor file at all, but it is long enough to look like one");
    expect_error(ErrorKind::io, {path}, [&] { load(path); });
    // One kind of file in place of another.
    for (const char* other : {"s", "n", "z"}) {
      if (other == name) continue;
      write_text(folder / (std::string("as_") + other), good);
      EXPECT_THROW(load(folder / (std::string("as_") + other)), IoError) << name << other;
    }
  }
}

TEST(TensorIo, DamagedNpzIsNoticed) {
  const TempDir folder;
  save_npz(folder / "z", {{"x", zeros({100})}});
  std::string bad = read_text(folder / "z");
  bad[bad.size() / 2] = 1;
  write_text(folder / "z", bad);
  EXPECT_THROW(load_npz(folder / "z"), IoError);
}

TEST(TensorIo, TooManyDimensions) {
  const TempDir folder;
  const std::vector<int64_t> ones(40, 1);
  for (const bool fortran : {false, true}) {
    write_text(folder / "n", write_npy_header("F32", ones, fortran) + std::string(4, '\0'));
    EXPECT_THROW(load_npy(folder / "n"), Error);
  }
}

TEST(TensorIo, BoolBytesAreZeroOrOne) {
  const TempDir folder;
  const int64_t shape[] = {4};
  write_text(folder / "n", write_npy_header("BOOL", shape) + std::string("\0\1\2\xff", 4));
  EXPECT_EQ(load_npy(folder / "n").to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 1, 1}));
}

TEST(TensorIo, NpzNamesThatCollide) {
  const TempDir folder;
  {
    AtomicFile file(folder / "z");
    ZipWriter zip(file);
    const int64_t shape[] = {1};
    const std::string array = write_npy_header("U8", shape) + "x";
    zip.add("a", test::bytes_of(array));
    zip.add("a.npy", test::bytes_of(array));
    zip.finish();
    file.commit();
  }
  expect_error(ErrorKind::io, {"two arrays", "'a'"}, [&] { load_npz(folder / "z"); });
}

}  // namespace
}  // namespace arete::io
