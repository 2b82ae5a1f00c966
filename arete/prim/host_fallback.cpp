// What a backend without a library of its own lets the CPU compute.
#include <deque>
#include <vector>

#include "arete/prim/kept.h"

namespace arete::prim {
namespace {

// Runs a primitive on copies of its operands, which span dense tensors, in host memory.
template <Primitive P, class Args>
void run_on_host(Backend& device, const Args& args) {
  struct Copy {
    std::byte* home;
    Access access;
    std::vector<std::byte> bytes;
  };
  std::deque<Copy> copies;
  Kept<Args> host(args);
  host.for_each_operand([&](View& v, Access access) {
    Copy& copy = copies.emplace_back(
        Copy{v.data, access, std::vector<std::byte>(size_t(v.numel()) * size_of(v.dtype))});
    if (access != Access::write && !copy.bytes.empty())
      device.copy_to_host(copy.bytes.data(), copy.home, copy.bytes.size());
    v.data = copy.bytes.data();
  });
  host.template run<P>(backend_for(kCPU));
  for (const Copy& copy : copies)
    if (copy.access != Access::read && !copy.bytes.empty())
      device.copy_from_host(copy.home, copy.bytes.data(), copy.bytes.size());
}

}  // namespace

void Backend::fft(const FftArgs& args) { run_on_host<Primitive::fft>(*this, args); }
void Backend::linalg(const LinalgArgs& args) { run_on_host<Primitive::linalg>(*this, args); }

}  // namespace arete::prim
