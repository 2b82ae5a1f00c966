// The disk cache of compiled kernels.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

}  // namespace
}  // namespace arete::cuda
