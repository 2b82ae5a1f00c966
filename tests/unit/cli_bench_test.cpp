// The benchmark of the program, run in this process: the groups that take no time.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "arete/base/error.h"
#include "arete/device/cuda.h"
#include "arete/profile/ceilings.h"
#include "cli/commands.h"

namespace arete::cli {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Bench, writes_figures_and_a_page) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "arete-bench-test";
  std::filesystem::create_directories(folder);
  BenchOptions o;
  o.device = "cpu";
  o.groups = {"transfers", "launch"};
  o.quick = true;
  o.json = folder / "figures.json";
  o.html = folder / "figures.html";
  testing::internal::CaptureStdout();
  EXPECT_EQ(bench(o), 0);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find("host to host"), std::string::npos) << printed;
  const auto j = nlohmann::json::parse(text_of(o.json));
  int transfers = 0, launches = 0;
  for (const auto& row : j["rows"]) {
    EXPECT_GT(row["median_seconds"], 0);
    EXPECT_GE(row["measurements"], 4);
    if (row["group"] == "transfers") {
      ++transfers;
      EXPECT_NEAR(
          row["gb_per_s"].get<double>(),
          row["mebibytes"].get<double>() * (1 << 20) / 1e9 / row["median_seconds"].get<double>(),
          1e-6);
    } else {
      ++launches;
    }
  }
  EXPECT_EQ(transfers, 4);
  EXPECT_EQ(launches, 7);
  const std::string page = text_of(o.html);
  EXPECT_NE(page.find("Copies in host memory"), std::string::npos);
  EXPECT_EQ(page.find("Matrix products"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Bench, looks_at_its_files_before_it_measures) {
  for (const bool json : {true, false}) {
    BenchOptions o;
    o.device = "cpu";
    o.groups = {"launch"};
    o.quick = true;
    (json ? o.json : o.html) =
        std::filesystem::path(testing::TempDir()) / "no such folder" / "file";
    testing::internal::CaptureStdout();
    EXPECT_THROW(bench(o), IoError);
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  }
}

TEST(Bench, tells_caches_from_memory) {
  const std::filesystem::path page = std::filesystem::path(testing::TempDir()) / "bandwidth.html";
  BenchOptions o;
  o.device = "cpu";
  o.groups = {"bandwidth"};
  o.quick = true;
  o.html = page;
  testing::internal::CaptureStdout();
  EXPECT_EQ(bench(o), 0);
  const std::string printed = testing::internal::GetCapturedStdout();
  const bool cached = profile::cache_bytes(kCPU) > 8 << 20;  // of tensors of 16 MiB
  EXPECT_EQ(printed.find("may lie in the caches") != std::string::npos, cached) << printed;
  const std::string text = text_of(page);
  EXPECT_EQ(text.find("memory bandwidth") == std::string::npos, cached);
  EXPECT_EQ(text.find("16 MiB in cache") != std::string::npos, cached);
  std::filesystem::remove(page);
}

TEST(Bench, needs_the_device_it_is_asked_for) {
  if (cuda::is_available()) GTEST_SKIP() << "there is a GPU";
  BenchOptions o;
  o.device = "cuda";
  EXPECT_THROW(bench(o), DeviceError);
}

}  // namespace
}  // namespace arete::cli
