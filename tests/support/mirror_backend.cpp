#include "tests/support/mirror_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>

#include "arete/prim/kept.h"
#include "tests/support/byte_range.h"

namespace arete::test {
namespace {

using prim::View;

constexpr size_t kGuard = 512;
constexpr std::byte kPattern{0x5B};

// The host memory of some operands and its copy on the device.
struct Piece {
  std::byte *begin, *end;  // host
  std::byte* device = nullptr;
  std::byte* allocation = nullptr;
  size_t allocated = 0;
};

/// The operands of one call on the device.
class Mirror {
 public:
  template <class Args>
  Mirror(prim::Backend& device, const Args& args) : device_(device) {
    prim::for_each_operand(args, [&](const View& v, prim::Access) {
      const ByteRange range = range_of(v);
      pieces_.push_back({range.begin, range.end});
    });
    place();
  }
  ~Mirror() {
    for (Piece& p : pieces_) device_.deallocate(p.allocation, p.allocated);
  }
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  // Where an operand lies on the device.
  std::byte* operator()(const View& v) const {
    for (const Piece& p : pieces_)
      if (v.data >= p.begin && (v.data < p.end || v.data == p.begin))
        return p.device + (v.data - p.begin);
    // A view with negative strides may start at the last byte of its piece only if it is empty.
    ADD_FAILURE() << "an operand outside of all pieces";
    return v.data;
  }

  void fetch() {
    device_.synchronize();
    for (Piece& p : pieces_) {
      std::vector<std::byte> image(p.allocated);
      device_.copy_to_host(image.data(), p.allocation, p.allocated);
      const size_t at = size_t(p.device - p.allocation), bytes = size_t(p.end - p.begin);
      for (size_t i = 0; i < p.allocated; ++i)
        if ((i < at || i >= at + bytes) && image[i] != kPattern) {
          ADD_FAILURE() << "byte " << int64_t(i) - int64_t(at) << " of " << bytes
                        << " was written on the device";
          break;
        }
      if (bytes) std::memcpy(p.begin, image.data() + at, bytes);
    }
  }

 private:
  // Copies the memory to the device, neighbours together.
  void place() {
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    size_t kept = 0;
    for (size_t i = 1; i < pieces_.size(); ++i) {
      if (pieces_[i].begin < pieces_[kept].end || pieces_[i].begin == pieces_[kept].begin)
        pieces_[kept].end = std::max(pieces_[kept].end, pieces_[i].end);
      else
        pieces_[++kept] = pieces_[i];
    }
    if (!pieces_.empty()) pieces_.resize(kept + 1);
    for (Piece& p : pieces_) {
      const size_t bytes = size_t(p.end - p.begin),
                   shift = reinterpret_cast<uintptr_t>(p.begin) % 64;
      p.allocated = bytes + 2 * kGuard + 64;
      p.allocation = static_cast<std::byte*>(device_.allocate(p.allocated));
      p.device = p.allocation + kGuard + shift;
      std::vector<std::byte> image(p.allocated, kPattern);
      if (bytes) std::memcpy(image.data() + (p.device - p.allocation), p.begin, bytes);
      device_.copy_from_host(p.allocation, image.data(), p.allocated);
    }
  }

  prim::Backend& device_;
  std::vector<Piece> pieces_;
};

}  // namespace

// The operands are fetched even if the call throws at the synchronization.
template <prim::Primitive P, class Args>
prim::ResultOf<P> MirrorBackend::pass(const Args& args) {
  prim::Kept<Args> on_device(args);
  Mirror mirror(device_, args);
  on_device.for_each_operand([&](View& v, prim::Access) { v.data = mirror(v); });
  if constexpr (std::is_void_v<prim::ResultOf<P>>) {
    on_device.template run<P>(device_);
    mirror.fetch();
  } else {
    const auto result = on_device.template run<P>(device_);
    mirror.fetch();
    return result;
  }
}

void* MirrorBackend::scratch(size_t bytes) { return ::operator new(bytes, std::align_val_t(64)); }
void MirrorBackend::release_scratch(void* p, size_t) noexcept {
  ::operator delete(p, std::align_val_t(64));
}
void MirrorBackend::copy_to_host(void* dst, const void* src, size_t bytes) {
  if (bytes) std::memcpy(dst, src, bytes);
}
void MirrorBackend::copy_from_host(void* dst, const void* src, size_t bytes) {
  copy_to_host(dst, src, bytes);
}

// The overrides that Forwarding makes call these.
#define ARETE_MIRROR(name, Args)                                                             \
  template prim::ResultOf<prim::Primitive::name> MirrorBackend::pass<prim::Primitive::name>( \
      const prim::Args&);
ARETE_PRIMITIVES(ARETE_MIRROR)

}  // namespace arete::test
