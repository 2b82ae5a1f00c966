// Every kernel that the generators make compiles, for every architecture. Needs NVRTC, but no GPU.
#include <gtest/gtest.h>

#include <set>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/backend/cuda/runtime/nvrtc.h"
#include "arete/base/error.h"
#include "arete/base/hash.h"
#include "tests/cuda/compile_hastily.h"

namespace arete::cuda {
namespace {

// Templates are instantiated and types checked, but no code is made.
const std::vector<std::string>& check_options() {
  static const std::vector<std::string> options = if_known("-fdevice-syntax-only");
  return options.empty() ? hasty_options() : options;
}

// Nearly all faults of a source show when it is checked, which takes a third of the time: all are
// checked once, and a part of them is compiled. Sources do not ask for the architecture, and what
// the oldest one can do the others can: of each of those another part shows that they are known to
// the compiler and to the libraries' headers.
constexpr int kOldest = 80;
constexpr uint64_t kPart = 8;

class KernelSources : public testing::TestWithParam<std::tuple<SampleFamily, int>> {};

TEST_P(KernelSources, Compile) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << nvrtc_problem();
  const auto [family, arch] = GetParam();
  const std::vector<KernelSource> sources = family.make();
  ASSERT_FALSE(sources.empty());
  std::set<Hash128> seen;
  std::vector<KernelSource> whole, checked;
  for (const KernelSource& s : sources) {
    // Samples may come to the same source where a plan ignores what they differ in.
    const Hash128 hash = hash_bytes(s.text);
    if (!seen.insert(hash).second) continue;
    const bool is_whole = (hash.low + uint64_t(arch / 10)) % kPart == 0;
    if (!is_whole && arch != kOldest) continue;
    (is_whole ? whole : checked).push_back(with_early_start(s));
  }
  expect_to_compile(whole, arch, hasty_options(), 500);
  expect_to_compile(checked, arch, check_options(), 0);
}

TEST(Kernels, BeginEarlyAndWaitBeforeTheyTouchMemory) {
  const KernelSource source{
      "k",
      "struct S { int v; };\n"
      "extern \"C\" __global__ void __launch_bounds__(32) k(S s, int* x) { x[0] = s.v; }"};
  const KernelSource early = with_early_start(source);
  const size_t head = early.text.find("k(S s, int* x) {"),
               lets = early.text.find("launch_dependents"),
               waits = early.text.find("griddepcontrol.wait"), body = early.text.find("x[0] = s.v");
  ASSERT_TRUE(body != std::string::npos && waits != std::string::npos);
  EXPECT_TRUE(head < lets && lets < waits && waits < body) << early.text;
  if (!nvrtc_problem().empty()) GTEST_SKIP() << nvrtc_problem();
  EXPECT_NE(compile_to_cubin(source, 90, {}), compile_to_cubin(early, 90, {}));
}

TEST(Kernels, AnInstanceOfATemplateHasAnotherNameInItsCode) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << nvrtc_problem();
  const KernelSource source{"scale<float, 3>",
                            "template <class T, int N> __global__ void scale(T* x) { x[0] *= N; }"};
  std::string name;
  const std::string code = compile_to_cubin(source, 90, {}, &name);
  EXPECT_NE(name.find("scale"), std::string::npos) << name;
  EXPECT_NE(code.find(name), std::string::npos);
}

TEST(Kernels, ABadOneIsAnErrorWithLogAndSource) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << nvrtc_problem();
  const KernelSource bad{"bad",
                         "template <class T> __device__ void f(T x) { x.undeclared = 1; }\n"
                         "extern \"C\" __global__ void bad() { f(1); }"};
  for (const auto& options : {std::vector<std::string>(), check_options()}) {
    try {
      compile_to_cubin(bad, 90, options);
      FAIL() << "no error";
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("undeclared"), std::string::npos) << text;
      EXPECT_NE(text.find("sm_90"), std::string::npos) << text;
    }
  }
}

TEST(Kernels, MayUseWhatTheShortCompilationLeavesOut) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << nvrtc_problem();
  const KernelSource textures{
      "look",
      "extern \"C\" __global__ void look(cudaTextureObject_t t, float* y) {\n"
      "  y[0] = tex1Dfetch<float>(t, 0);\n}"};
  EXPECT_THROW(compile_to_cubin(textures, 90, {"--minimal"}), Error);  // else nothing is left out
  EXPECT_GT(compile_to_cubin(textures, 90).size(), 500u);
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
