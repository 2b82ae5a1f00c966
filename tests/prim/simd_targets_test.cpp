// The tests of interpreted primitives once more for every instruction set of this processor: the
// choice is made once per process, so each has its own.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/support/test_device.h"

namespace {

class SimdTarget : public testing::TestWithParam<const char*> {};

TEST_P(SimdTarget, passes_all_tests) {
  ARETE_CPU_ONLY();
#ifdef ARETE_SANITIZED
  // The run of the whole program has covered the widest set, and three more would take minutes.
  GTEST_SKIP() << "not under a sanitizer";
#endif
  if (std::getenv("ARETE_SIMD")) GTEST_SKIP() << "already inside of one";
  const std::string name = GetParam();
#if defined(__x86_64__)
  if (name == "avx2" && !__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
  if (name == "avx512" && !__builtin_cpu_supports("avx512bw")) GTEST_SKIP() << "no AVX-512 here";
#else
  if (name != "base") GTEST_SKIP() << "not for this processor";
#endif
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
  ASSERT_GT(n, 0);
  self[n] = 0;
  const std::string command = "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX ARETE_SIMD=" + name +
                              " '" + self +
                              "' --gtest_brief=1 "
                              "--gtest_filter='Pointwise.*:Reduce.*:Fused.*:Copy.*:Fft.*:*"
                              "Recurrence*:Scan.*:AddRows.*:ArgReduce.*:Pool.*:*PoolOfType*'";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

INSTANTIATE_TEST_SUITE_P(All, SimdTarget, testing::Values("base", "avx2", "avx512"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
