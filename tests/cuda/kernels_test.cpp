// Every kernel that the generators make compiles for the oldest architecture, and for later ones
// where its text differs. Needs NVRTC, but no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/backend/cuda/runtime/nvrtc.h"
#include "arete/base/error.h"
#include "arete/base/hash.h"

namespace arete::cuda {
namespace {

constexpr int kOldest = 80;

// Whether a text is another one for architectures after the oldest. What does not ask compiles for
// later architectures as it does for the oldest one, whose PTX they take.
bool asks_for_later(std::string_view text) {
  static const std::regex asks("__CUDA_ARCH__\\s*[<>=!]+\\s*([0-9]+)");
  return std::any_of(std::cregex_iterator(text.data(), text.data() + text.size(), asks), {},
                     [](const std::cmatch& m) { return std::stoi(m[1]) > kOldest * 10; });
}

// Kernels include our own files only.
bool is_same_for_all(const KernelSource& s) {
  static const bool files_ask = std::ranges::any_of(
      kEmbeddedFiles, [](const EmbeddedFile& f) { return asks_for_later(f.text); });
  return !files_ask && !asks_for_later(s.text);
}

class KernelSources : public testing::TestWithParam<std::tuple<SampleFamily, int>> {};

TEST_P(KernelSources, Compile) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << nvrtc_problem();
  const auto [family, arch] = GetParam();
  const std::vector<KernelSource> sources = family.make();
  ASSERT_FALSE(sources.empty());
  std::set<Hash128> seen;
  for (const KernelSource& s : sources) {
    // Samples may come to the same source where a plan ignores what they differ in.
    if (!seen.insert(hash_bytes(s.text)).second) continue;
    if (arch != kOldest && seen.size() > 1 && is_same_for_all(s)) continue;
    try {
      const std::string code = compile_to_cubin(s, arch);
      EXPECT_GT(code.size(), 500u);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

TEST(Kernels, ThatAskForAnArchitectureAreCompiledForAll) {
  EXPECT_FALSE(asks_for_later("#if __CUDA_ARCH__ >= 800\n#ifdef __CUDA_ARCH__\n"));
  EXPECT_TRUE(asks_for_later("#if __CUDA_ARCH__ >= 800\n#if __CUDA_ARCH__ >= 900\n"));
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
