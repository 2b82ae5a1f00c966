// Where libraries of CUDA are looked for, with another library in their place.
#include "arete/backend/cuda/runtime/dynamic_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace arete::cuda {
namespace {

namespace fs = std::filesystem;
constexpr const char* kName = "libz.so.1";  // any library that is here

class DynamicLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    // The folders are read once in a process: each case has one of its own.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    std::string name = (fs::temp_directory_path() / "arete-libraries-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  // Ends the process with 0 if a library is then loaded from `path`.
  void load_and_exit(const std::string& path) const {
    setenv("ARETE_CUDA_LIBRARY_PATH", ("/no/such/folder::" + folder_).c_str(), 1);
    const DynamicLibrary library("zlib", {kName});
    const bool right = library.is_open() && library.path() == path;
    fs::remove_all(folder_);  // of the process that ends here
    std::exit(right ? 0 : 1);
  }
  std::string folder_;
};

TEST_F(DynamicLibraryTest, NamedFoldersComeFirst) {
  void* const usual = dlopen(kName, RTLD_NOW);
  ASSERT_NE(usual, nullptr);
  link_map* map = nullptr;
  ASSERT_EQ(dlinfo(usual, RTLD_DI_LINKMAP, &map), 0);
  fs::copy_file(map->l_name, fs::path(folder_) / kName);
  EXPECT_EXIT(load_and_exit(folder_ + "/" + kName), testing::ExitedWithCode(0), "");
}

TEST_F(DynamicLibraryTest, WhatIsNoLibraryIsPassedOver) {
  std::ofstream(fs::path(folder_) / kName) << "no library";
  EXPECT_EXIT(load_and_exit(kName), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace arete::cuda
