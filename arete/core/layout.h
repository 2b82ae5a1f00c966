// Layout algebra: sizes, strides and offset of a view, and every way to make one from another.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "arete/base/small_vector.h"

namespace arete {

/// Sizes, strides or dimension lists; inline to rank 6.
using Shape = SmallVector<int64_t, 6>;

/// A list of integers as an argument: from an initializer list, a Shape, a vector or a span. Does
/// not own them, so it lives no longer than the call.
struct IntList : std::span<const int64_t> {
  using Base = std::span<const int64_t>;
  using Base::Base;
  IntList(Base s) : Base(s) {}
  IntList(std::initializer_list<int64_t> l) : Base(l.begin(), l.size()) {}
};

/// The highest rank Arete supports; more is a ValueError where layouts are made.
inline constexpr int kMaxRank = 16;

/// Element (i0, i1, ...) of a view is at storage element offset + sum(i_k * strides[k]).
/// All in elements, not bytes. Invariant: sizes and strides have equal length, sizes >= 0.
struct Layout {
  Shape sizes;
  Shape strides;
  int64_t offset = 0;

  Layout() = default;
  /// Row-major.
  explicit Layout(IntList sizes_in);
  Layout(IntList sizes_in, IntList strides_in, int64_t offset_in = 0);

  int rank() const { return int(sizes.size()); }
  int64_t numel() const;
  /// Row-major without gaps (dimensions of size 1 and empty layouts do not matter).
  bool is_contiguous() const;
  /// NHWC (rank 4) or NDHWC (rank 5) order without gaps.
  bool is_channels_last() const;
  /// Some order of the dimensions is contiguous: all elements in one run, none twice.
  bool is_dense() const;
  /// Two different indices may reach one element (e.g. after expand); writing there is an error.
  bool may_overlap() const;
  /// One past the highest storage element reached, relative to storage start; 0 if empty.
  int64_t end() const;
  bool operator==(const Layout&) const = default;
};

/// Product of sizes; ValueError on overflow of int64.
int64_t numel_of(IntList sizes);
/// Row-major strides.
Shape contiguous_strides(IntList sizes);
/// NHWC / NDHWC strides for rank 4 / 5.
Shape channels_last_strides(IntList sizes);
/// "[2, 3]".
std::string to_string(IntList sizes);

/// `dim` in [-rank, rank) to [0, rank); IndexError "Dimension out of range ..." otherwise.
/// Rank 0 accepts -1 and 0.
int normalize_dim(int64_t dim, int rank, const char* op);
/// As a sorted list without repeats (ValueError on repeats); an empty list means all dims when
/// `empty_is_all`.
Shape normalize_dims(IntList dims, int rank, const char* op, bool empty_is_all);

/// Right-aligned broadcasting of two shapes; ValueError beginning "The size of tensor a (...) must
/// match the size of tensor b (...) at non-singleton dimension ..." naming `op`.
Shape broadcast_shapes(IntList a, IntList b, const char* op);

// Views. Each checks its arguments (IndexError, ValueError with the names of op and argument).
Layout expand(const Layout& l, IntList sizes);  ///< -1 keeps a size
Layout permute(const Layout& l, IntList dims);
Layout transpose(const Layout& l, int64_t a, int64_t b);
Layout slice(const Layout& l, int64_t dim, std::optional<int64_t> start,
             std::optional<int64_t> stop, int64_t step);  ///< Python's slices; step >= 1
Layout select(const Layout& l, int64_t dim, int64_t index);
Layout narrow(const Layout& l, int64_t dim, int64_t start, int64_t length);
Layout unsqueeze(const Layout& l, int64_t dim);
Layout squeeze(const Layout& l);                ///< all dims of size 1
Layout squeeze(const Layout& l, IntList dims);  ///< those of them that have size 1
Layout as_strided(IntList sizes, IntList strides, int64_t offset,
                  int64_t storage_numel);  ///< checks that it stays inside
Layout diagonal(const Layout& l, int64_t offset, int64_t dim1, int64_t dim2);
Layout unfold(const Layout& l, int64_t dim, int64_t size, int64_t step);

/// Resolves one -1 in `sizes` for `numel` elements; ValueError "shape '[...]' is invalid for input
/// of size N".
Shape infer_size(IntList sizes, int64_t numel);
/// The strides that show `l` as `sizes` without copying, or nothing if there are none.
std::optional<Layout> view(const Layout& l, IntList sizes);

}  // namespace arete
