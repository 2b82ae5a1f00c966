// Which device the tests of operators, gradients and primitives run on.
#pragma once

#include "arete/prim/backend.h"

namespace arete::test {

/// The device named by ARETE_TEST_DEVICE: cpu (unless set), cuda, or reference, which is the one of
/// reference_backend.h. CTest runs each program once for each kind of device; where there is no
/// such device, main() says how many tests that skips and exits with kSkipped.
Device test_device();
inline constexpr int kSkipped = 77;

/// Skips a test that is about the CPU backend itself.
#define ARETE_CPU_ONLY() \
  if (!::arete::test::test_device().is_cpu()) GTEST_SKIP() << "about the CPU backend"

/// Whether a case of so many elements would take the reference device too long; main() says how
/// many cases were left out for that.
bool too_large_for_reference(int64_t elements);
int count_too_large_for_reference();

/// The primitives of test_device() for operands in host memory: the CPU's own, or another
/// device's behind copies of the operands (see MirrorBackend).
prim::Backend& backend_under_test();

}  // namespace arete::test
