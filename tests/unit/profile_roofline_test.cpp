// Which roof bounds an operator, and the roofs of this machine.
#include "arete/profile/roofline.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "arete/base/file.h"
#include "arete/profile/profiler.h"
#include "cli/commands.h"
#include "tests/unit/io_test_support.h"

namespace arete {
namespace {

// The value of the environment variable comes back at the end.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* v = std::getenv(name)) before_ = v;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(Roofline, RegimesFollowTheCeilings) {
  profile::Trace t;
  const auto add = [&](const char* name, double flops, int64_t bytes, int64_t ns) {
    profile::Event e;
    e.name = name;
    e.flops = flops;
    e.bytes = bytes;
    e.begin_ns = int64_t(t.events.size()) * 1000000;
    e.end_ns = e.begin_ns + ns;
    t.events.push_back(e);
  };
  add("product", 1e9, 1000000, 2000000);  // 1 ms of arithmetic, 10 us of memory
  add("sweep", 1e6, 100000000, 2000000);  // 1 us of arithmetic, 1 ms of memory
  add("tiny", 10, 40, 2000);              // next to nothing
  t.finish();
  profile::Ceilings c;
  c.device = "machine";
  c.bandwidth = 1e11;
  c.launch_overhead = 1e-6;
  c.gemm["float32"] = 1e12;
  std::map<std::string, profile::OperatorRate> by_name;
  for (const auto& r : profile::operator_rates(t, c)) by_name[r.name] = r;
  EXPECT_EQ(by_name["product"].regime, profile::Regime::compute);
  EXPECT_NEAR(by_name["product"].attained, 0.5, 1e-9);
  EXPECT_NEAR(by_name["product"].flops_per_second(), 5e11, 1);
  EXPECT_EQ(by_name["sweep"].regime, profile::Regime::memory);
  EXPECT_NEAR(by_name["sweep"].bytes_per_second(), 5e10, 1);
  EXPECT_EQ(by_name["tiny"].regime, profile::Regime::overhead);
  const std::string svg = profile::roofline_svg(profile::operator_rates(t, c), c);
  EXPECT_EQ(svg.rfind("<svg", 0), 0u);
  for (const char* part : {"product", "sweep", "memory-bound", "float32", "</svg>"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(Roofline, SaysWhereTheRoofsAreTooLow) {
  profile::Ceilings c;
  c.bandwidth = 1e10;
  c.launch_overhead = 1e-6;
  c.gemm["float32"] = 1e12;
  c.cache = 32 << 20;
  const auto table_of = [&](double flops, int64_t bytes, int64_t ns) {
    profile::Trace t;
    profile::Event e;
    e.name = "it";
    e.flops = flops;
    e.bytes = bytes;
    e.end_ns = ns;
    t.events.push_back(e);
    t.finish();
    return profile::rate_table(profile::operator_rates(t, c));
  };
  const char* note = "The ceilings look too low";
  EXPECT_EQ(table_of(1, 400'000'000, 40'000'000).find(note), std::string::npos);  // at the roof
  EXPECT_EQ(table_of(1, 20'000'000, 100'000).find(note), std::string::npos);      // in a cache
  EXPECT_EQ(table_of(1, 400'000'000, 30'000'000).find(note), std::string::npos);  // reading alone
  const std::string low = table_of(1, 400'000'000, 15'000'000);
  EXPECT_NE(low.find(note), std::string::npos) << low;
  EXPECT_NE(low.find("it (267 %)"), std::string::npos) << low;
  EXPECT_NE(low.find("arete bench --ceilings --again"), std::string::npos) << low;
  EXPECT_EQ(table_of(1e9, 1000, 1'000'000).find(note), std::string::npos);
  EXPECT_NE(table_of(2e9, 1000, 1'000'000).find(note), std::string::npos);
}

TEST(Ceilings, AreDoubtedAfterABusyMeasurement) {
  profile::Ceilings c;
  c.device = "processor, 2 threads";
  EXPECT_EQ(doubts_about(c), "");
  c.date = "2026-11-22 10:45";
  c.spread = 0.1;
  c.load = 0.3;
  EXPECT_EQ(doubts_about(c), "");
  c.spread = 0.6;
  EXPECT_NE(doubts_about(c).find("differed by 60 %"), std::string::npos) << doubts_about(c);
  EXPECT_NE(doubts_about(c).find(c.date), std::string::npos);
  c.load = 2;
  EXPECT_NE(doubts_about(c).find("load was 200 %"), std::string::npos) << doubts_about(c);
  EXPECT_NE(to_string(c).find("--ceilings --again"), std::string::npos);
  c.spread = 0;
  c.device = "a GPU";  // which does not compete for the host's processors
  EXPECT_EQ(doubts_about(c), "");
}

TEST(Ceilings, AreMeasuredOnceAndKept) {
  const test::TempDir scratch;
  const std::string folder = scratch / "made at need";
  const ScopedVariable cache("ARETE_CACHE_DIR", folder);
  const auto first = profile::ceilings(kCPU, true);
  EXPECT_GT(first.bandwidth, 1e8);
  EXPECT_LT(first.bandwidth, 1e14);
  EXPECT_GT(first.launch_overhead, 1e-9);
  EXPECT_LT(first.launch_overhead, 1e-3);
  EXPECT_GT(first.flops_of(kFloat32), 1e8);
  EXPECT_EQ(first.flops_of(kInt64), first.flops_of(kFloat32));
  EXPECT_EQ(first.roof(kFloat32, 1e-9), 1e-9 * first.bandwidth);
  const auto bytes = io::read_file(folder + "/ceilings.json", 1 << 20);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_NE(text.find("launch_overhead"), std::string::npos);
  const auto second = profile::ceilings(kCPU);
  EXPECT_EQ(second.bandwidth, first.bandwidth);
  EXPECT_NE(to_string(first).find("GB/s"), std::string::npos);
  EXPECT_EQ(second.date, first.date);
  EXPECT_NE(text.find(first.date), std::string::npos);
  EXPECT_GT(first.cache, 0);
  EXPECT_THROW(profile::ceilings(kMeta), DeviceError);
}

TEST(Ceilings, CommandPrintsThem) {
  // There from the start: an earlier measurement of this process is not written anew.
  const test::TempDir scratch;
  const std::string& folder = scratch.path();
  const ScopedVariable cache("ARETE_CACHE_DIR", folder);
  testing::internal::CaptureStdout();
  EXPECT_EQ(cli::ceilings({.device = "cpu", .ceilings = true}), 0);
  const std::string text = testing::internal::GetCapturedStdout();
  for (const char* part : {"GB/s", "smallest call", "gemm float32", "ceilings.json"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  testing::internal::CaptureStdout();
  EXPECT_EQ(cli::ceilings({.device = "cpu", .json = folder + "/figures", .ceilings = true}), 0);
  testing::internal::GetCapturedStdout();
  const auto j = nlohmann::json::parse(std::ifstream(folder + "/figures"));
  EXPECT_EQ(j.at("bandwidth"), profile::ceilings(kCPU).bandwidth);
  EXPECT_EQ(j.at("date"), profile::ceilings(kCPU).date);
  // What cannot be honoured, or written in the end, is refused before anything is measured.
  EXPECT_THROW(cli::ceilings({.device = "cpu", .groups = {"gemm"}, .ceilings = true}), ValueError);
  EXPECT_THROW(cli::ceilings({.device = "cpu", .html = "x.html", .ceilings = true}), ValueError);
  EXPECT_THROW(cli::ceilings({.device = "cpu", .quick = true, .ceilings = true}), ValueError);
  EXPECT_THROW(cli::ceilings({.device = "cpu", .json = folder + "/none/figures", .ceilings = true}),
               IoError);
  // A damaged file is measured and written anew.
  std::ofstream(folder + "/ceilings.json") << "{\"half";
  profile::ceilings(kCPU, true);
  EXPECT_TRUE(nlohmann::json::parse(std::ifstream(folder + "/ceilings.json")).is_object());
}

}  // namespace
}  // namespace arete
