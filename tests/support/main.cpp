// main() of the test programs: GoogleTest's, on the device that ARETE_TEST_DEVICE names.
#include <gtest/gtest.h>

#include <cstdio>

#include "arete/base/error.h"
#include "arete/base/hash.h"
#include "arete/core/generator.h"
#include "arete/core/matmul_precision.h"
#include "tests/support/test_device.h"

namespace {

// Each test draws the same numbers, whichever others run before it.
class Seeds final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    const std::string name = std::string(test.test_suite_name()) + "." + test.name();
    arete::manual_seed(arete::hash_bytes(name).low);
  }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new Seeds);
  // References are of f32, not of the tf32 that convolutions and recurrent layers on GPUs have by
  // default.
  for (const auto scope : {arete::Float32Scope::convolutions, arete::Float32Scope::recurrences})
    arete::set_float32_precision(scope, arete::Float32Precision::ieee);
  try {
    const arete::Device device = arete::test::test_device();
    if (!arete::prim::find_backend(device) && !testing::GTEST_FLAG(list_tests)) {
      std::printf("[  SKIPPED ] %d tests on %s: %s\n",
                  testing::UnitTest::GetInstance()->total_test_count(), device.to_string().c_str(),
                  arete::prim::unavailable_reason(device.type).c_str());
      return arete::test::kSkipped;
    }
  } catch (const arete::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  const int result = RUN_ALL_TESTS();
  if (const int n = arete::test::count_too_large_for_reference())
    std::printf("[  SKIPPED ] %d cases that are too large for the reference device\n", n);
  return result;
}
