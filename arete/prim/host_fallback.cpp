// What a backend without a library of its own lets the CPU compute.
#include <deque>
#include <utility>
#include <vector>

#include "arete/prim/kept.h"

namespace arete::prim {
namespace {

// Where the elements of a view lie: bytes from its address on, the first one and how many.
std::pair<int64_t, int64_t> bytes_of(const View& v) {
  int64_t first = 0, last = 0;
  for (size_t d = 0; d < v.sizes.size(); ++d) {
    if (v.sizes[d] == 0) return {0, 0};
    (v.strides[d] < 0 ? first : last) += (v.sizes[d] - 1) * v.strides[d];
  }
  const auto size = int64_t(size_of(v.dtype));
  return {first * size, (last - first + 1) * size};
}

// Runs a primitive on copies of its operands in host memory.
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
    const auto [first, count] = bytes_of(v);
    Copy& copy =
        copies.emplace_back(Copy{v.data + first, access, std::vector<std::byte>(size_t(count))});
    // Where there are gaps, what is in them comes along.
    const bool dense = count == v.numel() * int64_t(size_of(v.dtype));
    if ((access != Access::write || !dense) && count > 0)
      device.copy_to_host(copy.bytes.data(), copy.home, copy.bytes.size());
    v.data = copy.bytes.data() - first;
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
