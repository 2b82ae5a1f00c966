#include "arete/core/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "arete/base/error.h"

namespace arete {
namespace {

void check_rank(size_t rank) {
  ARETE_CHECK(rank <= size_t(kMaxRank),
              ValueError("", fmt::format("tensors have at most {} dimensions", kMaxRank))
                  .got(fmt::format("{} dimensions", rank)));
}

void check_not_scalar(const Layout& l, const char* op) {
  ARETE_CHECK(l.rank() > 0,
              IndexError(op, fmt::format("{}() cannot be applied to a 0-dim tensor.", op))
                  .hint("unsqueeze(0) makes it a tensor of one dimension"));
}

// a * b where the true product does not matter once it overflows: strides of layouts so large that
// they are empty.
int64_t wrapping_mul(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }

// Dimensions longer than 1, by growing stride length.
struct SortedDims {
  std::array<int, kMaxRank> dim;
  int count = 0;
};
SortedDims by_stride(const Layout& l) {
  SortedDims s;
  for (int d = l.rank() - 1; d >= 0; --d)
    if (l.sizes[d] != 1) s.dim[s.count++] = d;
  std::stable_sort(s.dim.begin(), s.dim.begin() + s.count,
                   [&](int a, int b) { return std::abs(l.strides[a]) < std::abs(l.strides[b]); });
  return s;
}

}  // namespace

Layout::Layout(IntList sizes_in) : sizes(sizes_in), strides(contiguous_strides(sizes_in)) {
  numel_of(sizes_in);  // overflow and negative sizes
}

Layout::Layout(IntList sizes_in, IntList strides_in, int64_t offset_in)
    : sizes(sizes_in), strides(strides_in), offset(offset_in) {
  check_rank(sizes.size());
  ARETE_ASSERT(sizes.size() == strides.size());
}

int64_t Layout::numel() const {
  int64_t n = 1;
  for (int64_t s : sizes) n = wrapping_mul(n, s);
  return n;
}

bool Layout::is_contiguous() const {
  int64_t expected = 1;
  for (int d = rank() - 1; d >= 0; --d) {
    if (sizes[d] != 1 && strides[d] != expected) return numel() == 0;
    expected = wrapping_mul(expected, sizes[d]);
  }
  return true;
}

bool Layout::is_channels_last() const {
  const int r = rank();
  if (r != 4 && r != 5) return false;
  int64_t expected = 1;
  auto fits = [&](int d) {
    const bool ok = sizes[d] == 1 || strides[d] == expected;
    expected = wrapping_mul(expected, sizes[d]);
    return ok;
  };
  if (numel() == 0) return true;
  if (!fits(1)) return false;
  for (int d = r - 1; d >= 2; --d)
    if (!fits(d)) return false;
  return fits(0);
}

bool Layout::is_dense() const {
  if (is_contiguous()) return true;
  const SortedDims s = by_stride(*this);
  int64_t expected = 1;
  for (int k = 0; k < s.count; ++k) {
    if (strides[s.dim[k]] != expected) return false;
    expected *= sizes[s.dim[k]];
  }
  return true;
}

bool Layout::may_overlap() const {
  if (is_contiguous()) return false;
  const SortedDims s = by_stride(*this);
  int64_t reach = 0;  // distance between the first and last element of the smaller dimensions
  for (int k = 0; k < s.count; ++k) {
    const int64_t stride = std::abs(strides[s.dim[k]]);
    if (stride <= reach) return true;
    reach += (sizes[s.dim[k]] - 1) * stride;
  }
  return false;
}

int64_t Layout::end() const {
  int64_t last = offset;
  for (int d = 0; d < rank(); ++d) {
    if (sizes[d] == 0) return 0;
    if (strides[d] > 0) last += (sizes[d] - 1) * strides[d];
  }
  return last + 1;
}

int64_t numel_of(IntList sizes) {
  int64_t n = 1;
  bool empty = false, overflow = false;
  for (int64_t s : sizes) {
    ARETE_CHECK(s >= 0,
                ValueError("", fmt::format("Trying to create tensor with negative dimension "
                                           "{}: {}",
                                           s, to_string(sizes))));
    empty |= s == 0;
    overflow |= __builtin_mul_overflow(n, s, &n);
  }
  if (empty) return 0;
  ARETE_CHECK(!overflow,
              ValueError("", fmt::format("Storage size calculation overflowed with sizes={}",
                                         to_string(sizes)))
                  .expected("a number of elements that fits in 63 bits"));
  return n;
}

Shape contiguous_strides(IntList sizes) {
  check_rank(sizes.size());
  Shape strides(sizes.size());
  int64_t next = 1;
  for (int d = int(sizes.size()) - 1; d >= 0; --d) {
    strides[d] = next;
    next = wrapping_mul(next, std::max<int64_t>(sizes[d], 1));
  }
  return strides;
}

Shape channels_last_strides(IntList sizes) {
  const int rank = int(sizes.size());
  ARETE_CHECK(rank == 4 || rank == 5,
              ValueError("", fmt::format("required rank {} tensor to use channels_last format",
                                         rank > 4 ? 5 : 4))
                  .got(fmt::format("a tensor of {} dimensions", rank)));
  Shape strides(sizes.size());
  int64_t next = 1;
  auto set = [&](int d) {
    strides[d] = next;
    next = wrapping_mul(next, std::max<int64_t>(sizes[d], 1));
  };
  set(1);
  for (int d = rank - 1; d >= 2; --d) set(d);
  set(0);
  return strides;
}

std::string to_string(IntList sizes) {
  std::string s = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i) s += ", ";
    s += std::to_string(sizes[i]);
  }
  return s + "]";
}

int normalize_dim(int64_t dim, int rank, const char* op) {
  const int64_t n = std::max(rank, 1);
  ARETE_CHECK(dim >= -n && dim < n,
              IndexError(op, fmt::format("Dimension out of range (expected to be in range of "
                                         "[{}, {}], but got {})",
                                         -n, n - 1, dim))
                  .argument("dim"));
  return int(dim < 0 ? dim + n : dim);
}

Shape normalize_dims(IntList dims, int rank, const char* op, bool empty_is_all) {
  Shape out;
  if (dims.empty() && empty_is_all) {
    for (int d = 0; d < rank; ++d) out.push_back(d);
    return out;
  }
  for (int64_t dim : dims) out.push_back(normalize_dim(dim, rank, op));
  std::sort(out.begin(), out.end());
  const int64_t* repeat = std::adjacent_find(out.begin(), out.end());
  ARETE_CHECK(
      repeat == out.end(),
      ValueError(op, fmt::format("dim {} appears multiple times in the list of dims", *repeat))
          .argument("dim")
          .got(to_string(dims)));
  if (rank == 0) out.clear();  // a 0-d tensor accepts 0 and -1 but has no dimension to name
  return out;
}

Shape broadcast_shapes(IntList a, IntList b, const char* op) {
  const size_t rank = std::max(a.size(), b.size());
  Shape out(rank);
  for (size_t i = 0; i < rank; ++i) {  // from the right
    const int64_t sa = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t sb = i < b.size() ? b[b.size() - 1 - i] : 1;
    ARETE_CHECK(
        sa == sb || sa == 1 || sb == 1,
        ValueError(op, fmt::format("The size of tensor a ({}) must match the size of tensor b "
                                   "({}) at non-singleton dimension {}",
                                   sa, sb, rank - 1 - i))
            .got(fmt::format("shapes {} and {}", to_string(a), to_string(b)))
            .hint("shapes are aligned at the right; each pair of sizes must be equal or "
                  "contain a 1"));
    out[rank - 1 - i] = sa == 1 ? sb : sa;
  }
  return out;
}

Layout expand(const Layout& l, IntList sizes) {
  const int rank = int(sizes.size()), lead = rank - l.rank();
  check_rank(sizes.size());
  ARETE_CHECK(lead >= 0,
              ValueError("expand", fmt::format("the number of sizes provided ({}) must be "
                                               "greater or equal to the number of "
                                               "dimensions in the tensor ({})",
                                               rank, l.rank()))
                  .argument("sizes")
                  .got(to_string(sizes)));
  Layout out;
  out.sizes.resize(rank);
  out.strides.resize(rank);
  out.offset = l.offset;
  for (int d = 0; d < rank; ++d) {
    if (d < lead) {
      ARETE_CHECK(
          sizes[d] >= 0,
          ValueError("expand", fmt::format("The expanded size of the tensor ({}) isn't allowed "
                                           "in a leading, non-existing dimension {}",
                                           sizes[d], d))
              .argument("sizes"));
      out.sizes[d] = sizes[d];
      out.strides[d] = 0;
      continue;
    }
    const int64_t have = l.sizes[d - lead], want = sizes[d] == -1 ? have : sizes[d];
    ARETE_CHECK(
        want >= 0 && (have == want || have == 1),
        ValueError("expand",
                   fmt::format("The expanded size of the tensor ({}) must match the existing "
                               "size ({}) at non-singleton dimension {}.  Target sizes: {}.  "
                               "Tensor sizes: {}",
                               want, have, d, to_string(sizes), to_string(l.sizes)))
            .argument("sizes"));
    out.sizes[d] = want;
    out.strides[d] = have == want ? l.strides[d - lead] : 0;
  }
  numel_of(out.sizes);
  return out;
}

Layout permute(const Layout& l, IntList dims) {
  ARETE_CHECK(
      int(dims.size()) == l.rank(),
      ValueError("permute", fmt::format("permute(): number of dimensions in the tensor input "
                                        "does not match the length of the desired ordering of "
                                        "dimensions i.e. input.dim() = {} is not equal to "
                                        "len(dims) = {}",
                                        l.rank(), dims.size()))
          .argument("dims"));
  Layout out;
  out.offset = l.offset;
  uint32_t seen = 0;
  for (int64_t dim : dims) {
    const int d = normalize_dim(dim, l.rank(), "permute");
    ARETE_CHECK(!(seen >> d & 1),
                ValueError("permute", "permute(): duplicate dims are not allowed.")
                    .argument("dims")
                    .got(to_string(dims)));
    seen |= 1u << d;
    out.sizes.push_back(l.sizes[d]);
    out.strides.push_back(l.strides[d]);
  }
  return out;
}

Layout transpose(const Layout& l, int64_t a, int64_t b) {
  const int da = normalize_dim(a, l.rank(), "transpose"),
            db = normalize_dim(b, l.rank(), "transpose");
  Layout out = l;
  if (l.rank() == 0) return out;
  std::swap(out.sizes[da], out.sizes[db]);
  std::swap(out.strides[da], out.strides[db]);
  return out;
}

Layout slice(const Layout& l, int64_t dim, std::optional<int64_t> start,
             std::optional<int64_t> stop, int64_t step) {
  check_not_scalar(l, "slice");
  const int d = normalize_dim(dim, l.rank(), "slice");
  ARETE_CHECK(step > 0, ValueError("slice", "slice step must be positive")
                            .argument("step")
                            .got(std::to_string(step))
                            .hint("flip() reverses a dimension"));
  const int64_t size = l.sizes[d];
  auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t first = clamp(start.value_or(0));
  const int64_t last = std::max(first, clamp(stop.value_or(size)));
  const int64_t span = last - first;
  Layout out = l;
  out.sizes[d] = span / step + (span % step != 0);
  if (out.sizes[d] > 0) out.offset += first * l.strides[d];
  // One element or none: the stride is never used, and step may be too large to multiply.
  out.strides[d] = out.sizes[d] > 1 ? l.strides[d] * step : wrapping_mul(l.strides[d], step);
  return out;
}

Layout select(const Layout& l, int64_t dim, int64_t index) {
  check_not_scalar(l, "select");
  const int d = normalize_dim(dim, l.rank(), "select");
  const int64_t size = l.sizes[d];
  ARETE_CHECK(
      index >= -size && index < size,
      IndexError("select", fmt::format("index {} is out of bounds for dimension {} with size {}",
                                       index, d, size))
          .argument("index"));
  Layout out = l;
  out.offset += (index < 0 ? index + size : index) * l.strides[d];
  out.sizes.erase(out.sizes.begin() + d);
  out.strides.erase(out.strides.begin() + d);
  return out;
}

Layout narrow(const Layout& l, int64_t dim, int64_t start, int64_t length) {
  check_not_scalar(l, "narrow");
  const int d = normalize_dim(dim, l.rank(), "narrow");
  const int64_t size = l.sizes[d];
  ARETE_CHECK(length >= 0, ValueError("narrow", "narrow(): length must be non-negative.")
                               .argument("length")
                               .got(std::to_string(length)));
  ARETE_CHECK(start >= -size && start <= size,
              IndexError("narrow", fmt::format("start out of range (expected to be in range of "
                                               "[{}, {}], but got {})",
                                               -size, size, start))
                  .argument("start"));
  if (start < 0) start += size;
  ARETE_CHECK(
      length <= size - start,
      ValueError("narrow", fmt::format("start ({}) + length ({}) exceeds dimension size ({}).",
                                       start, length, size))
          .argument("length"));
  Layout out = l;
  out.sizes[d] = length;
  if (length > 0) out.offset += start * l.strides[d];
  return out;
}

Layout unsqueeze(const Layout& l, int64_t dim) {
  const int d = normalize_dim(dim, l.rank() + 1, "unsqueeze");
  check_rank(l.sizes.size() + 1);
  Layout out = l;
  // The stride that keeps a contiguous layout's strides row-major.
  const int64_t stride = d < l.rank() ? wrapping_mul(l.sizes[d], l.strides[d]) : 1;
  out.sizes.insert(out.sizes.begin() + d, 1);
  out.strides.insert(out.strides.begin() + d, stride);
  return out;
}

Layout squeeze(const Layout& l) {
  Layout out;
  out.offset = l.offset;
  for (int d = 0; d < l.rank(); ++d) {
    if (l.sizes[d] == 1) continue;
    out.sizes.push_back(l.sizes[d]);
    out.strides.push_back(l.strides[d]);
  }
  return out;
}

Layout squeeze(const Layout& l, IntList dims) {
  const Shape drop = normalize_dims(dims, l.rank(), "squeeze", false);
  Layout out;
  out.offset = l.offset;
  for (int d = 0; d < l.rank(); ++d) {
    if (l.sizes[d] == 1 && std::find(drop.begin(), drop.end(), d) != drop.end()) continue;
    out.sizes.push_back(l.sizes[d]);
    out.strides.push_back(l.strides[d]);
  }
  return out;
}

Layout as_strided(IntList sizes, IntList strides, int64_t offset, int64_t storage_numel) {
  check_rank(sizes.size());
  ARETE_CHECK(
      sizes.size() == strides.size(),
      ValueError("as_strided", "mismatch in length of strides and shape")
          .got(fmt::format("sizes {} and strides {}", to_string(sizes), to_string(strides))));
  ARETE_CHECK(offset >= 0,
              ValueError("as_strided", fmt::format("Tensor: invalid storage offset {}", offset))
                  .argument("storage_offset"));
  const int64_t numel = numel_of(sizes);
  bool overflow = false;
  int64_t last = offset;
  for (size_t d = 0; d < sizes.size(); ++d) {
    ARETE_CHECK(
        strides[d] >= 0,
        ValueError("as_strided", fmt::format("as_strided: Negative strides are not supported "
                                             "at the moment, got strides: {}",
                                             to_string(strides)))
            .argument("stride"));
    int64_t reach;
    overflow |= __builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) ||
                __builtin_add_overflow(last, reach, &last);
  }
  ARETE_CHECK(
      numel == 0 || (!overflow && last < storage_numel),
      ValueError("as_strided",
                 fmt::format("setStorage: sizes {}, strides {}, storage offset {} requiring a "
                             "storage of {} elements are out of bounds for storage of {} "
                             "elements",
                             to_string(sizes), to_string(strides), offset,
                             overflow ? std::string("more than 2^63") : std::to_string(last + 1),
                             storage_numel)));
  return Layout(sizes, strides, offset);
}

Layout diagonal(const Layout& l, int64_t offset, int64_t dim1, int64_t dim2) {
  ARETE_CHECK(l.rank() >= 2,
              ValueError("diagonal", "diagonal() needs a tensor of at least 2 dimensions")
                  .got(fmt::format("shape {}", to_string(l.sizes))));
  const int d1 = normalize_dim(dim1, l.rank(), "diagonal"),
            d2 = normalize_dim(dim2, l.rank(), "diagonal");
  ARETE_CHECK(d1 != d2,
              ValueError("diagonal", fmt::format("diagonal dimensions cannot be identical "
                                                 "{}, {}",
                                                 dim1, dim2)));
  // Clamped so that the subtractions below cannot overflow; beyond the sizes all are empty.
  const int64_t k = std::clamp(offset, -l.sizes[d1], l.sizes[d2]);
  const int64_t length = std::max<int64_t>(
      k >= 0 ? std::min(l.sizes[d1], l.sizes[d2] - k) : std::min(l.sizes[d1] + k, l.sizes[d2]), 0);
  Layout out;
  out.offset = l.offset;
  if (length > 0) out.offset += k >= 0 ? k * l.strides[d2] : -k * l.strides[d1];
  for (int d = 0; d < l.rank(); ++d) {
    if (d == d1 || d == d2) continue;
    out.sizes.push_back(l.sizes[d]);
    out.strides.push_back(l.strides[d]);
  }
  out.sizes.push_back(length);
  out.strides.push_back(l.strides[d1] + l.strides[d2]);
  return out;
}

Layout unfold(const Layout& l, int64_t dim, int64_t size, int64_t step) {
  const int d = normalize_dim(dim, l.rank(), "unfold");
  const int64_t have = l.rank() == 0 ? 1 : l.sizes[d];
  ARETE_CHECK(
      size >= 0,
      ValueError("unfold", fmt::format("size is {} but must be >= 0", size)).argument("size"));
  ARETE_CHECK(
      size <= have,
      ValueError("unfold", fmt::format("maximum size for tensor at dimension {} is {} but size "
                                       "is {}",
                                       d, have, size))
          .argument("size"));
  ARETE_CHECK(
      step > 0,
      ValueError("unfold", fmt::format("step is {} but must be > 0", step)).argument("step"));
  check_rank(l.sizes.size() + 1);
  Layout out = l;
  out.sizes.push_back(size);
  out.strides.push_back(l.rank() == 0 ? 1 : l.strides[d]);
  if (l.rank() > 0) {
    out.sizes[d] = (have - size) / step + 1;
    out.strides[d] = wrapping_mul(l.strides[d], step);
  }
  return out;
}

Shape infer_size(IntList sizes, int64_t numel) {
  Shape out(sizes);
  int unknown = -1;
  int64_t known = 1;
  bool overflow = false, zero = false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == -1) {
      ARETE_CHECK(unknown < 0, ValueError("view", "only one dimension can be inferred")
                                   .argument("shape")
                                   .got(to_string(sizes)));
      unknown = int(d);
      continue;
    }
    ARETE_CHECK(sizes[d] >= 0,
                ValueError("view", fmt::format("invalid shape dimension {}", sizes[d]))
                    .argument("shape")
                    .got(to_string(sizes)));
    zero |= sizes[d] == 0;
    overflow |= __builtin_mul_overflow(known, sizes[d], &known);
  }
  if (zero) known = 0, overflow = false;
  const auto invalid = [&] {
    return ValueError(
        "view", fmt::format("shape '{}' is invalid for input of size {}", to_string(sizes), numel));
  };
  ARETE_CHECK(!overflow, invalid());
  if (unknown >= 0) {
    ARETE_CHECK(
        known != 0 || numel != 0,
        ValueError("view", fmt::format("cannot reshape tensor of 0 elements into shape {} "
                                       "because the unspecified dimension size -1 can be any "
                                       "value and is ambiguous",
                                       to_string(sizes))));
    ARETE_CHECK(known != 0 && numel % known == 0, invalid());
    out[unknown] = numel / known;
  } else {
    ARETE_CHECK(known == numel, invalid());
  }
  return out;
}

std::optional<Layout> view(const Layout& l, IntList sizes) {
  Layout out;
  const int64_t numel = l.numel();
  out.sizes = infer_size(sizes, numel);
  out.offset = l.offset;
  check_rank(out.sizes.size());
  if (out.sizes == l.sizes) {
    out.strides = l.strides;
    return out;
  }
  if (numel == 0 || l.is_contiguous()) {
    out.strides = contiguous_strides(out.sizes);
    return out;
  }
  // The old dimensions as runs of elements one stride apart, from the right; the new dimensions
  // must fill each run exactly.
  struct Run {
    int64_t size, stride;
  };
  std::array<Run, kMaxRank> runs;
  int count = 0;
  for (int d = l.rank() - 1; d >= 0; --d) {
    if (l.sizes[d] == 1) continue;
    if (count > 0 && l.strides[d] == runs[count - 1].size * runs[count - 1].stride)
      runs[count - 1].size *= l.sizes[d];
    else
      runs[count++] = {l.sizes[d], l.strides[d]};
  }
  out.strides.resize(out.sizes.size(), 1);
  int to = out.rank() - 1;
  for (int k = 0; k < count; ++k) {
    int64_t filled = 1;
    while (to >= 0 && (filled < runs[k].size || out.sizes[to] == 1)) {
      out.strides[to] = filled * runs[k].stride;
      filled *= out.sizes[to--];
    }
    if (filled != runs[k].size) return std::nullopt;
  }
  return out;
}

}  // namespace arete
