// The disk cache of compiled kernels.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "arete/backend/cuda/runtime/kernel_store.h"

namespace arete::cuda {
namespace {

namespace fs = std::filesystem;

class KernelStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "arete-kernels-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path file() const { return fs::path(folder_) / "store" / key_.hex(); }

  std::string folder_;
  Hash128 key_{1, 2};
};

TEST_F(KernelStoreTest, GivesBackWhatWasSaved) {
  const KernelStore store(folder_ + "/store");
  EXPECT_FALSE(store.load(key_));
  const std::string code("machine\0code", 12);
  store.save(key_, code);
  EXPECT_EQ(store.load(key_), code);
  EXPECT_FALSE(store.load(Hash128{1, 3}));
  for (const auto& entry : fs::directory_iterator(folder_ + "/store"))
    EXPECT_EQ(entry.path(), file()) << "a temporary file was left behind";
}

TEST_F(KernelStoreTest, DamageCountsAsAbsent) {
  const KernelStore store(folder_ + "/store");
  const std::string code(1000, 'x');
  for (const int kind : {0, 1, 2, 3}) {
    store.save(key_, code);
    ASSERT_TRUE(store.load(key_));
    const auto size = fs::file_size(file());
    if (kind == 0) fs::resize_file(file(), size - 1);
    if (kind == 1) fs::resize_file(file(), 3);
    if (kind == 2) fs::resize_file(file(), 0);
    if (kind == 3) {
      std::fstream f(file(), std::ios::binary | std::ios::in | std::ios::out);
      f.seekp(int64_t(size) - 10);
      f.put('y');
    }
    EXPECT_FALSE(store.load(key_)) << kind;
  }
  store.save(key_, code);
  EXPECT_TRUE(store.load(key_)) << "a damaged file is replaced";
}

TEST_F(KernelStoreTest, WithoutAFolderThereIsNoCache) {
  const KernelStore off("");
  off.save(key_, "x");
  EXPECT_FALSE(off.load(key_));
  std::ofstream(folder_ + "/file") << "in the way";
  const KernelStore blocked(folder_ + "/file/store");
  blocked.save(key_, "x");
  EXPECT_FALSE(blocked.load(key_));
}

// As on a full disk: a file may be made, and not be written.
TEST_F(KernelStoreTest, WhatDoesNotFitIsNotThere) {
  const KernelStore store(folder_ + "/store");
  store.save(key_, "small");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit little{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  const Hash128 large{1, 3};
  store.save(large, std::string(100'000, 'x'));
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(store.load(large));
  EXPECT_EQ(store.load(key_), "small");
  for (const auto& entry : fs::directory_iterator(folder_ + "/store"))
    EXPECT_EQ(entry.path(), file()) << "a part was left behind";
}

// No lock is held: whoever comes later puts the same in its place.
TEST_F(KernelStoreTest, ManyMaySaveAndLoadOneKernel) {
  const std::string code(200'000, 'x');
  std::atomic<int> found = 0, wrong = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const KernelStore store(folder_ + "/store");
      for (int k = 0; k < 50; ++k) {
        if (const auto its = store.load(key_)) ++(*its == code ? found : wrong);
        store.save(key_, code);
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(found, 4 * 49);
  for (const auto& entry : fs::directory_iterator(folder_ + "/store"))
    EXPECT_EQ(entry.path(), file()) << "a temporary file was left behind";
}

}  // namespace
}  // namespace arete::cuda
