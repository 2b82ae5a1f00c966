// The reference device's memory, and what it asks of every call.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "arete/base/error.h"
#include "arete/prim/forward.h"
#include "tests/support/byte_range.h"
#include "tests/support/index_walk.h"
#include "tests/support/reference_backend.h"

namespace arete::test {
namespace {

using prim::Access;
using prim::Primitive;
using prim::View;

constexpr int kPoison = 0xFF;  // NaN in all floating formats, -1 in integers

/// Calls f(address) for every element.
template <class F>
void for_each_element(const View& v, F&& f) {
  for (IndexWalk i(v.sizes); i; ++i) {
    int64_t offset = 0;
    for (size_t d = 0; d < v.sizes.size(); ++d) offset += (*i)[d] * v.strides[d];
    f(v.data + offset * int64_t(size_of(v.dtype)));
  }
}

/// Which bytes within a view's range are elements; whether one belongs to two.
struct Footprint {
  explicit Footprint(const View& v)
      : range(range_of(v)), bytes(size_t(range.end - range.begin), false) {
    for_each_element(v, [&](const std::byte* p) {
      for (size_t b = 0; b < size_of(v.dtype); ++b) {
        overlaps_itself |= bytes[size_t(p - range.begin) + b];
        bytes[size_t(p - range.begin) + b] = true;
      }
    });
  }
  ByteRange range;
  std::vector<bool> bytes;
  bool overlaps_itself = false;
};

bool share_an_element(const View& a, const View& b) {
  const ByteRange ra = range_of(a), rb = range_of(b);
  if (ra.end <= rb.begin || rb.end <= ra.begin) return false;
  const Footprint fa(a), fb(b);
  const std::byte *begin = std::max(ra.begin, rb.begin), *end = std::min(ra.end, rb.end);
  for (const std::byte* p = begin; p < end; ++p)
    if (fa.bytes[size_t(p - ra.begin)] && fb.bytes[size_t(p - rb.begin)]) return true;
  return false;
}

bool is_same_view(const View& out, const View& in) {
  if (out.data != in.data || out.dtype != in.dtype || out.rank() != in.rank()) return false;
  for (size_t d = 0; d < out.sizes.size(); ++d) {
    // Inputs of fused calls are broadcast to the space, of which such an output has a row's number.
    const bool is_broadcast = out.sizes[d] == 1 && in.strides[d] == 0;
    if (!is_broadcast &&
        (out.sizes[d] != in.sizes[d] || (out.sizes[d] != 1 && out.strides[d] != in.strides[d])))
      return false;
  }
  return true;
}

/// Whether the comment on the primitive's arguments lets an output be exactly one of the inputs.
constexpr bool works_in_place(Primitive p) {
  return p == Primitive::pointwise || p == Primitive::multi_pointwise || p == Primitive::random ||
         p == Primitive::fused || p == Primitive::scan || p == Primitive::fft ||
         p == Primitive::dropout;
}

class ReferenceDevice final : public prim::Forwarding<ReferencePrimitives, ReferenceDevice> {
 public:
  Device device() const override { return Device(DeviceType::cuda, 0); }
  std::string description() const override { return "reference: one element at a time"; }

  /// Decompositions come here again with each of their calls.
  template <Primitive P, class Args>
  prim::ResultOf<P> pass(const Args& args) {
    check<P>(args);
#define ARETE_RUN_OWN(name, Its) \
  if constexpr (P == Primitive::name) return ReferencePrimitives::name(args);
    ARETE_PRIMITIVES(ARETE_RUN_OWN)
#undef ARETE_RUN_OWN
  }

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    auto* const p = static_cast<std::byte*>(::operator new(bytes, std::align_val_t(64)));
    std::memset(p, kPoison, bytes);
    const std::lock_guard lock(mutex_);
    memory_[p] = bytes;
    stats_.allocated += bytes;
    stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
    return p;
  }
  void deallocate(void* p, size_t) noexcept override {
    if (!p) return;
    {
      const std::lock_guard lock(mutex_);
      const auto block = memory_.find(static_cast<std::byte*>(p));
      stats_.allocated -= block->second;
      memory_.erase(block);
    }
    ::operator delete(p, std::align_val_t(64));
  }
  void* scratch(size_t bytes) override { return allocate(bytes); }
  void release_scratch(void* p, size_t bytes) noexcept override { deallocate(p, bytes); }
  MemoryStats memory_stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak_memory_stats() override {
    const std::lock_guard lock(mutex_);
    stats_.peak_allocated = stats_.allocated;
  }
  void synchronize() override {}
  void copy_to_host(void* dst, const void* src, size_t bytes) override {
    if (bytes) std::memcpy(dst, src, bytes);
  }
  void copy_from_host(void* dst, const void* src, size_t bytes) override {
    copy_to_host(dst, src, bytes);
  }

 private:
  template <Primitive P, class Args>
  void check(const Args& args) {
    struct Operand {
      View view;
      Access access;
    };
    std::vector<Operand> operands;
    prim::for_each_operand(args, [&](const View& v, Access access) {
      if (v.numel() > 0) operands.push_back({v, access});
    });
    const auto fail = [](const std::string& what) {
      throw BugError(prim::name_of(P), "the reference device refuses a call: " + what);
    };
    for (const Operand& o : operands)
      if (!lies_in_memory(o.view)) fail("an operand is not in the device's memory");
    for (size_t k = 0; k < operands.size(); ++k) {
      const View& out = operands[k].view;
      if (operands[k].access == Access::read) continue;
      if (!out.is_contiguous() && Footprint(out).overlaps_itself)
        fail("what is written has an element twice");
      bool is_read = operands[k].access == Access::update;
      for (size_t j = 0; j < operands.size(); ++j) {
        if (j == k || !share_an_element(out, operands[j].view)) continue;
        if (operands[j].access != Access::read) fail("two outputs overlap");
        if (!works_in_place(P) || !is_same_view(out, operands[j].view))
          fail("an output overlaps an input: " + layout_of(out) + " and " +
               layout_of(operands[j].view));
        is_read = true;
      }
      if (!is_read)
        for_each_element(out, [&](std::byte* p) { std::memset(p, kPoison, size_of(out.dtype)); });
    }
  }

  static std::string layout_of(const View& v) {
    return std::string(name_of(v.dtype)) + to_string(v.sizes) + " by " + to_string(v.strides);
  }

  bool lies_in_memory(const View& v) {
    const ByteRange range = range_of(v);
    if (v.storage &&
        (range.begin < v.storage->data() || range.end > v.storage->data() + v.storage->bytes()))
      return false;
    const std::lock_guard lock(mutex_);
    auto block = memory_.upper_bound(range.begin);
    if (block == memory_.begin()) return false;
    --block;
    return range.end <= block->first + block->second;
  }

  mutable std::mutex mutex_;
  std::map<std::byte*, size_t> memory_;  // what is allocated
  MemoryStats stats_;                    // of that, as far as tests ask
};

}  // namespace

prim::Backend& reference_device() {
  static auto* const device = new ReferenceDevice;  // outlives static tensors
  return *device;
}

}  // namespace arete::test
