// Recorded calls by what they read and write.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arete/prim/recorder.h"

namespace arete::compile {

/// The addresses of a view's elements, from the first to behind the last.
inline std::pair<int64_t, int64_t> extent_of(const prim::View& view) {
  const int64_t size = int64_t(size_of(view.dtype));
  int64_t first = reinterpret_cast<intptr_t>(view.data), last = first + size;
  for (int d = 0; d < view.rank(); ++d) {
    const int64_t reach = (view.sizes[size_t(d)] - 1) * view.strides[size_t(d)] * size;
    (reach < 0 ? first : last) += reach;
  }
  return {first, last};
}

/// Addresses [first, last) of a buffer, as a call uses them.
struct Use {
  int buffer;
  int64_t first, last;
  prim::Access access;
  bool is_whole = true;  // all bytes, without gaps
  int64_t bytes = 0;     // of its elements, if they are known
};
/// By address: two storages may share memory (from_blob).
inline bool overlap(const Use& a, const Use& b) { return a.first < b.last && b.first < a.last; }
/// Whether one of them has to come before the other.
inline bool collide(const Use& a, const Use& b) {
  return overlap(a, b) && (a.access != prim::Access::read || b.access != prim::Access::read);
}
bool collide(const std::vector<Use>& a, const std::vector<Use>& b);

/// Whether others rely on when a call is made among others of its kind (Note [Effects]).
inline bool is_effect(const prim::RecordedCall& call) { return call.primitive() == prim::kEffect; }
/// Whether a call may be an error because of values: it stays, even if nobody reads its results.
bool refuses_values(prim::Primitive p);
/// Whether it may be one when it is made: on GPUs such errors come later.
bool may_refuse(const prim::RecordedCall& call);

/// Whether two calls ask for the same besides their results: one may be made of both.
inline bool same_context(const prim::Context& a, const prim::Context& b) {
  return a.stream == b.stream && a.deterministic == b.deterministic &&
         a.library_deterministic == b.library_deterministic && a.precision == b.precision &&
         a.convolution_tf32 == b.convolution_tf32;
}

/// Whether a product is only that, with alpha and a bias perhaps.
bool is_bare(const prim::GemmArgs& product);

/// Whether a call fills memory with zeros.
inline bool is_zero(const prim::FillArgs& fill) { return fill.value.i == 0 && fill.imag == 0; }
/// Which calls do, with the numbers that they have.
std::vector<bool> zero_fills(const std::vector<std::unique_ptr<prim::RecordedCall>>& calls);

/// Of the elements that are there: what is broadcast counts once.
size_t bytes_of(const prim::View& view);
/// Each operand counted once.
size_t bytes_of(const prim::RecordedCall& call);

inline bool is_half(DType t) { return t == kFloat16 || t == kBFloat16; }

class Buffers;
/// What a call uses, operand by operand.
std::vector<Use> uses_of(prim::RecordedCall& call, Buffers& buffers);

/// Memory that calls use.
struct Buffer {
  StoragePtr storage;  // null: memory that no recorder knew
  // Nobody else has it, and nothing is read that no call wrote.
  bool temporary = false;
};

/// Memory that recorded calls use.
struct UsedMemory {
  StoragePtr storage;
  bool temporary = false;  // nobody else has it
};

/// The buffers of recorded calls. Views name them by their storage or, without one, by address.
class Buffers {
 public:
  explicit Buffers(std::vector<UsedMemory> memory);

  /// A temporary that steps were given meanwhile: its memory is not there yet.
  StoragePtr add_temporary(Device device, size_t bytes);
  /// -1 if the view has no elements.
  int of(const prim::View& view);
  /// Nothing if the view has no elements.
  void add_use(std::vector<Use>& uses, const prim::View& view, prim::Access access);

  /// Goes through the uses of all calls, in order: memory of which something is read that was not
  /// written before is no temporary. (The host may have filled it.)
  void look_for_host_writes(const std::vector<std::vector<Use>>& calls);

  Buffer& operator[](int buffer) { return buffers_[size_t(buffer)]; }
  int size() const { return int(buffers_.size()); }

 private:
  std::vector<Buffer> buffers_;
  std::unordered_map<const Storage*, int> by_storage_;
  std::vector<std::pair<const std::byte*, int>> by_address_;  // sorted
  int unknown_ = -1;
};

/// When calls use a buffer, and how much of it from its beginning.
struct Life {
  size_t first = SIZE_MAX, last = 0, bytes = 0;
  bool is_used() const { return first != SIZE_MAX; }
};
using Steps = std::vector<prim::RecordedCall*>;
/// By buffer, of those whose memory is known.
std::vector<Life> lives_of(const Steps& steps, Buffers& buffers);
/// How many bytes of temporaries there are at each step.
std::vector<size_t> live_bytes(const Steps& steps, const std::vector<Life>& lives,
                               Buffers& buffers);
/// The most of them at any one time.
size_t peak_of(const Steps& steps, Buffers& buffers);

}  // namespace arete::compile
