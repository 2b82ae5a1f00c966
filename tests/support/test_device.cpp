#include "tests/support/test_device.h"

#include <cstdlib>

#include "tests/support/mirror_backend.h"

namespace arete::test {

Device test_device() {
  static const Device device = [] {
    const char* name = std::getenv("ARETE_TEST_DEVICE");
    return (name && *name ? Device(name) : kCPU).resolved();
  }();
  return device;
}

prim::Backend& backend_under_test() {
  if (test_device().is_cpu()) return prim::backend_for(kCPU);
  static MirrorBackend mirror(prim::backend_for(test_device()));
  return mirror;
}

}  // namespace arete::test
