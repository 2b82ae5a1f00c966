// Images of the MNIST family.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "data_test_support.h"

namespace arete::data {
namespace {

using test::gzip;
using test::TempDir;
using test::write_text;

std::string big_endian(uint32_t v) {
  return {char(v >> 24), char(v >> 16 & 255), char(v >> 8 & 255), char(v & 255)};
}

std::string images_file(uint32_t n) {
  std::string s = big_endian(0x00000803) + big_endian(n) + big_endian(28) + big_endian(28);
  for (uint32_t i = 0; i < n * 784; ++i) s += char(i % 256);
  return s;
}

std::string labels_file(const std::vector<int>& labels) {
  std::string s = big_endian(0x00000801) + big_endian(uint32_t(labels.size()));
  for (const int l : labels) s += char(l);
  return s;
}

class MnistFiles : public testing::Test {
 protected:
  MnistFiles() { write(images_file(3), labels_file({7, 0, 9})); }
  void write(const std::string& images, const std::string& labels) {
    write_text(folder / "train-images-idx3-ubyte.gz", gzip(images));
    write_text(folder / "train-labels-idx1-ubyte.gz", gzip(labels));
  }
  void expect_bad(std::initializer_list<std::string_view> parts) {
    expect_error(ErrorKind::io, parts, [&] { MNIST(folder.path(), true); });
  }
  TempDir folder;
};

TEST_F(MnistFiles, GivesImagesAndLabels) {
  const MNIST d(folder.path(), true);
  EXPECT_EQ(d.size(), 3);
  EXPECT_EQ(d.images().dtype(), kUInt8);
  EXPECT_EQ(d.labels().to_vector<int64_t>(), (std::vector<int64_t>{7, 0, 9}));
  const Batch b = d.get_batch({2, 0});
  EXPECT_EQ(to_string(b.input().sizes()), "[2, 1, 28, 28]");
  EXPECT_EQ(b.input().dtype(), kFloat32);
  EXPECT_EQ(b.target().to_vector<int64_t>(), (std::vector<int64_t>{9, 7}));
  const float* x = b.input().data<float>();
  for (int p = 0; p < 784; ++p) {
    EXPECT_EQ(x[p], float((2 * 784 + p) % 256 / 255.0));
    EXPECT_EQ(x[784 + p], float(p % 256 / 255.0));
  }
  const Example e = d.get(1);
  EXPECT_EQ(to_string(e[0].sizes()), "[1, 28, 28]");
  EXPECT_EQ(e[1].item<int64_t>(), 0);
  EXPECT_THROW(d.get(3), IndexError);
  EXPECT_THROW(d.get_batch({0, -1}), IndexError);
}

TEST_F(MnistFiles, Normalises) {
  const MNIST d(folder.path(), true, 0.25, 0.5);
  EXPECT_EQ(d.get(0)[0].data<float>()[255], float((1.0 - 0.25) / 0.5));
  EXPECT_THROW(MNIST(folder.path(), true, 0, 0), ValueError);
}

TEST_F(MnistFiles, IsFloat32WhateverTheDefault) {
  set_default_dtype(kFloat64);
  const MNIST d(folder.path(), true);
  Batch b;
  EXPECT_NO_THROW(b = d.get_batch({0}));
  set_default_dtype(kFloat32);
  ASSERT_EQ(b.size(), 2u);
  EXPECT_EQ(b.input().dtype(), kFloat32);
}

TEST_F(MnistFiles, ReadsPlainFilesToo) {
  std::filesystem::remove(folder / "train-images-idx3-ubyte.gz");
  write_text(folder / "train-images-idx3-ubyte", images_file(3));
  EXPECT_EQ(MNIST(folder.path(), true).size(), 3);
}

TEST_F(MnistFiles, MissingFiles) {
  expect_error(ErrorKind::io, {"t10k-images-idx3-ubyte[.gz] is missing", folder.path()},
               [&] { MNIST(folder.path(), false); });
  std::filesystem::remove(folder / "train-labels-idx1-ubyte.gz");
  expect_bad({"train-labels-idx1-ubyte[.gz] is missing", folder.path()});
}

TEST_F(MnistFiles, TruncatedFiles) {
  const std::string good = gzip(images_file(3));
  write_text(folder / "train-images-idx3-ubyte.gz", good.substr(0, good.size() / 2));
  expect_bad({"train-images-idx3-ubyte.gz"});
  write_text(folder / "train-images-idx3-ubyte.gz", "");
  expect_bad({"train-images-idx3-ubyte.gz"});
  // Truncated before it was packed.
  write(images_file(3).substr(0, 2000), labels_file({7, 0, 9}));
  expect_bad({"train-images-idx3-ubyte.gz"});
  write(images_file(3), labels_file({7, 0, 9}).substr(0, 10));
  expect_bad({"train-labels-idx1-ubyte.gz"});
}

TEST_F(MnistFiles, CorruptGzip) {
  std::string bad = gzip(images_file(3));
  bad[bad.size() - 6] = char(bad[bad.size() - 6] ^ 1);  // the checksum
  write_text(folder / "train-images-idx3-ubyte.gz", bad);
  expect_bad({"train-images-idx3-ubyte.gz"});
  bad = gzip(images_file(3));
  for (size_t i = 20; i < 40; ++i) bad[i] = char(~bad[i]);
  write_text(folder / "train-images-idx3-ubyte.gz", bad);
  expect_bad({"train-images-idx3-ubyte.gz"});
}

TEST_F(MnistFiles, MislabelledFiles) {
  write(images_file(3), images_file(3));
  expect_bad({"train-labels-idx1-ubyte.gz", "one label byte per image"});
  write(labels_file({1, 2, 3}), labels_file({1, 2, 3}));
  expect_bad({"train-images-idx3-ubyte.gz", "images of 28 x 28 bytes"});
  write("<html>not found</html>", labels_file({1}));
  expect_bad({"train-images-idx3-ubyte.gz", "not an IDX file"});
}

TEST_F(MnistFiles, LabelsThatDoNotFit) {
  write(images_file(3), labels_file({7, 10, 9}));
  expect_bad({"label 10 of image 1 is not in 0..9", "train-labels-idx1-ubyte.gz"});
  write(images_file(3), labels_file({7, 1}));
  expect_bad({"numbers of images and labels differ", "3 labels", "2"});
}

TEST_F(MnistFiles, NoImagesAtAll) {
  write(images_file(0), labels_file({}));
  EXPECT_EQ(MNIST(folder.path(), true).size(), 0);
}

TEST_F(MnistFiles, FolderIsFoundOrTheErrorSaysWhere) {
  EXPECT_EQ(FashionMNIST::find_folder(folder.path()), folder.path());
  expect_error(ErrorKind::io, {"the data folder does not exist", "/nowhere"},
               [] { FashionMNIST::find_folder("/nowhere"); });
  const TempDir root;
  std::filesystem::create_directory(root / "fashion-mnist");
  const char* before = std::getenv("ARETE_DATA");
  const std::string saved = before ? before : "";
  setenv("ARETE_DATA", root.path().c_str(), 1);
  EXPECT_EQ(FashionMNIST::find_folder(), root / "fashion-mnist");
  before ? setenv("ARETE_DATA", saved.c_str(), 1) : unsetenv("ARETE_DATA");
  EXPECT_EQ(FashionMNIST::class_names().size(), 10u);
  EXPECT_EQ(FashionMNIST::class_names()[9], "Ankle boot");
}

}  // namespace
}  // namespace arete::data
