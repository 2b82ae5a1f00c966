// Every kernel that the generators make compiles, for every architecture. Needs NVRTC, but no GPU.
#include <gtest/gtest.h>

#include <set>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/backend/cuda/runtime/nvrtc.h"
#include "arete/base/error.h"
#include "arete/base/hash.h"

namespace arete::cuda {
namespace {

constexpr char kHaste[] = "--Ofast-compile=max";

// Optimizing takes half of the time and finds no fault; the tests that need a GPU compile as users
// do.
std::vector<std::string> hasty_options() {
  static const bool known = [] {
    try {
      compile_to_cubin({"empty", "extern \"C\" __global__ void empty() {}"}, 90, {kHaste});
      return true;
    } catch (const Error&) {  // NVRTC before 12.9
      return false;
    }
  }();
  if (known) return {kHaste};
  return {};
}

// Sources do not ask for the architecture, and what the oldest one can do the others can: of those
// a part of the sources shows that they are known to the compiler and to the libraries' headers.
constexpr int kOldest = 80;
constexpr uint64_t kPart = 8;

class KernelSources : public testing::TestWithParam<std::tuple<SampleFamily, int>> {};

TEST_P(KernelSources, Compile) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << nvrtc_problem();
  const auto [family, arch] = GetParam();
  const std::vector<KernelSource> sources = family.make();
  ASSERT_FALSE(sources.empty());
  std::set<Hash128> seen;
  for (const KernelSource& s : sources) {
    // Samples may come to the same source where a plan ignores what they differ in.
    const Hash128 hash = hash_bytes(s.text);
    if (!seen.insert(hash).second) continue;
    if (arch != kOldest && (hash.low + uint64_t(arch / 10)) % kPart != 0) continue;
    try {
      const std::string code = compile_to_cubin(s, arch, hasty_options());
      EXPECT_GT(code.size(), 500u);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

TEST(Kernels, ABadOneIsAnErrorWithLogAndSource) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << nvrtc_problem();
  try {
    compile_to_cubin({"bad", "extern \"C\" __global__ void bad() { undeclared = 1; }"}, 90);
    FAIL() << "no error";
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("undeclared"), std::string::npos) << text;
    EXPECT_NE(text.find("sm_90"), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelSources,
                         testing::Combine(testing::ValuesIn(sample_families()),
                                          testing::Values(kOldest, 90, 100)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_sm_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace arete::cuda
