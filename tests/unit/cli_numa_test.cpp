// Which processors ranks are bound to, on a machine that the test writes: two sockets with a node
// of four processors each, of which two make a core, and three GPUs.
#include "cli/numa.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "arete/base/error.h"

namespace arete::cli {
namespace {

namespace fs = std::filesystem;
using Lists = std::vector<std::vector<int>>;

class NumaBinding : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    write("sys/devices/system/node/online", "0-1");
    for (int n : {0, 1}) {
      const std::string first = std::to_string(4 * n), last = std::to_string(4 * n + 3);
      write("sys/devices/system/node/node" + std::to_string(n) + "/cpulist", first + "-" + last);
      for (int c = 0; c < 4; ++c) {
        const std::string cpu = "sys/devices/system/cpu/cpu" + std::to_string(4 * n + c) + "/";
        write(cpu + "topology/physical_package_id", std::to_string(n));
        // The threads of a core have numbers two apart.
        const int low = 4 * n + c % 2;
        write(cpu + "topology/thread_siblings_list",
              std::to_string(low) + "," + std::to_string(low + 2));
        write(cpu + "cache/index3/shared_cpu_list", first + "-" + last);
      }
    }
  }
  void TearDown() override { fs::remove_all(root_); }
  void add_gpus() const {
    for (const auto& [place, node] :
         {std::pair("0000:07:00.0", "1"), {"0000:08:00.0", "0"}, {"0000:0a:00.0", "-1"}}) {
      fs::create_directories(root_ / "proc/driver/nvidia/gpus" / place);
      write(std::string("sys/bus/pci/devices/") + place + "/numa_node", node);
    }
  }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  Lists bound(const std::string& binding, int ranks,
              std::vector<int> allowed = {0, 1, 2, 3, 4, 5, 6, 7},
              const std::string& visible = "") const {
    return processors_of_ranks(binding, ranks, allowed, visible, root_);
  }
  fs::path root_ =
      fs::path(testing::TempDir()) /
      ("arete-numa-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(NumaBinding, WithoutGpusRanksAreSpreadOverNodes) {
  EXPECT_EQ(bound("node", 4), (Lists{{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5, 6, 7}}));
  EXPECT_EQ(bound("socket", 2), (Lists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(bound("exclusive", 4), (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(bound("exclusive", 2), (Lists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(bound("core-complex", 2), (Lists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_THROW(bound("exclusive", 5), ValueError);
  EXPECT_THROW(bound("numa", 1), ValueError);
}

TEST_F(NumaBinding, RanksAreNearTheirGpus) {
  add_gpus();
  EXPECT_EQ(bound("node", 2), (Lists{{4, 5, 6, 7}, {0, 1, 2, 3}}));
  EXPECT_EQ(bound("node", 2, {0, 1, 2, 3, 4, 5, 6, 7}, "1,0"), (Lists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  // Nobody says where the third one is.
  EXPECT_EQ(bound("node", 3)[2], (std::vector<int>{4, 5, 6, 7}));
}

TEST_F(NumaBinding, OnlyAllowedProcessorsCount) {
  EXPECT_EQ(bound("node", 2, {5, 6}), (Lists{{5, 6}, {5, 6}}));
  EXPECT_EQ(bound("exclusive", 2, {5, 6}), (Lists{{5}, {6}}));
  EXPECT_THROW(bound("exclusive", 3, {5, 6}), ValueError);
}

TEST_F(NumaBinding, ThisMachineHasProcessors) {
  const auto own = allowed_processors();
  ASSERT_FALSE(own.empty());
  for (const char* binding : {"node", "socket", "core-complex"})
    EXPECT_FALSE(processors_of_ranks(binding, 1, own, "")[0].empty()) << binding;
}

}  // namespace
}  // namespace arete::cli
