#include "tests/support/test_device.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "tests/support/mirror_backend.h"
#include "tests/support/reference_backend.h"

namespace arete::test {

namespace {

std::atomic<int> n_too_large{0};

std::string device_name() {
  const char* const name = std::getenv("ARETE_TEST_DEVICE");
  return name && *name ? name : "cpu";
}
bool is_reference() { return device_name() == "reference"; }

}  // namespace

Device test_device() {
  static const Device device = [] {
    if (!is_reference()) return Device(device_name()).resolved();
    prim::register_backend(reference_device().device(), &reference_device());
    return reference_device().device();
  }();
  return device;
}

bool too_large_for_reference(int64_t elements) {
  const bool too_large = is_reference() && elements > 100000;
  n_too_large += too_large;
  return too_large;
}
int count_too_large_for_reference() { return n_too_large; }

prim::Backend& backend_under_test() {
  if (test_device().is_cpu()) return prim::backend_for(kCPU);
  static MirrorBackend mirror(prim::backend_for(test_device()));
  return mirror;
}

}  // namespace arete::test
