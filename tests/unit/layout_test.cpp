// Property tests of the layout algebra: every view against the enumeration of its elements.
#include "arete/core/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "arete/base/error.h"
#include "tests/support/errors.h"

namespace arete {
namespace {

using Elements = std::vector<int64_t>;

// Storage positions in row-major order of indices.
Elements elements(const Layout& l) {
  Elements out;
  const auto walk = [&](auto&& self, int d, int64_t at) -> void {
    if (d == l.rank()) {
      out.push_back(at);
      return;
    }
    for (int64_t i = 0; i < l.sizes[d]; ++i) self(self, d + 1, at + i * l.strides[d]);
  };
  walk(walk, 0, l.offset);
  return out;
}

int64_t element(const Layout& l, const std::vector<int64_t>& index) {
  int64_t at = l.offset;
  for (size_t d = 0; d < index.size(); ++d) at += index[d] * l.strides[d];
  return at;
}

// Calls f(index) for all indices.
template <class F>
void for_each_index(const Layout& l, F&& f) {
  std::vector<int64_t> index(l.sizes.size(), 0);
  if (l.numel() == 0) return;
  while (true) {
    f(index);
    int d = l.rank() - 1;
    while (d >= 0 && ++index[size_t(d)] == l.sizes[size_t(d)]) index[size_t(d--)] = 0;
    if (d < 0) return;
  }
}

// Uniform in [low, high) from the first case on: rapidcheck's sizes would keep early ones tiny.
int64_t pick(int64_t low, int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(low, high));
}

Shape arbitrary_sizes(int min_rank = 0, int64_t min_size = 0) {
  Shape sizes;
  const int rank = int(pick(min_rank, 5));
  for (int d = 0; d < rank; ++d) sizes.push_back(pick(min_size, 5));
  return sizes;
}

// Layouts as programs make them: permuted, with gaps, expanded, offset.
Layout arbitrary_layout(int min_rank = 0, int64_t min_size = 0) {
  const Shape sizes = arbitrary_sizes(min_rank, min_size);
  const int rank = int(sizes.size());
  Layout l(sizes);
  std::vector<int> order;
  for (int d = 0; d < rank; ++d) order.push_back(d);
  for (int d = rank - 1; d > 0; --d) std::swap(order[size_t(d)], order[size_t(pick(0, d + 1))]);
  const bool gaps = pick(0, 3) == 0;
  int64_t step = 1;
  for (int d = rank - 1; d >= 0; --d) {
    const int k = order[size_t(d)];
    if (pick(0, 8) == 0) {
      l.strides[size_t(k)] = 0;
      continue;
    }
    if (gaps) step *= pick(1, 3);
    l.strides[size_t(k)] = step;
    step *= std::max<int64_t>(sizes[size_t(k)], 1);
  }
  l.offset = pick(0, 4);
  return l;
}

int64_t arbitrary_dim(int rank) { return pick(-rank, rank); }
int positive(int64_t dim, int rank) { return int(dim < 0 ? dim + rank : dim); }

RC_GTEST_PROP(Layout, Predicates, ()) {
  const Layout l = arbitrary_layout();
  const Elements e = elements(l);
  RC_ASSERT(l.numel() == int64_t(e.size()));
  RC_ASSERT(l.end() == (e.empty() ? 0 : *std::max_element(e.begin(), e.end()) + 1));
  Elements row_major(e.size());
  for (size_t i = 0; i < e.size(); ++i) row_major[i] = l.offset + int64_t(i);
  RC_ASSERT(l.is_contiguous() == (e == row_major));
  Elements sorted = e;
  std::sort(sorted.begin(), sorted.end());
  RC_ASSERT(l.is_dense() == (sorted == row_major));
  const bool repeats = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (repeats) RC_ASSERT(l.may_overlap());
  if (l.is_dense()) RC_ASSERT(!l.may_overlap());
}

RC_GTEST_PROP(Layout, ChannelsLast, ()) {
  Shape sizes;
  const int rank = int(pick(4, 6));
  for (int d = 0; d < rank; ++d) sizes.push_back(pick(1, 4));
  const Layout l(sizes, channels_last_strides(sizes));
  RC_ASSERT(l.is_channels_last());
  RC_ASSERT(l.is_dense());
  Shape order{0};
  for (int d = 2; d < rank; ++d) order.push_back(d);
  order.push_back(1);
  RC_ASSERT(permute(l, order).is_contiguous());
  const Layout row_major(sizes);
  RC_ASSERT(row_major.is_channels_last() == permute(row_major, order).is_contiguous());
}

void check_some_view() {
  const Layout l = arbitrary_layout();
  Shape sizes;
  if (pick(0, 2)) {
    // Neighbouring dimensions joined.
    for (int64_t n : l.sizes)
      if (!sizes.empty() && pick(0, 2))
        sizes.back() *= n;
      else
        sizes.push_back(n);
  } else {
    // Any factorization of the number of elements, with some ones.
    int64_t rest = l.numel();
    while (sizes.size() <= 6 && (rest > 1 || pick(0, 3) == 0)) {
      std::vector<int64_t> divisors;
      for (int64_t k = 1; k <= std::max<int64_t>(rest, 1); ++k)
        if (rest % k == 0) divisors.push_back(k);
      sizes.push_back(*rc::gen::elementOf(divisors));
      rest /= sizes.back();
    }
    if (rest != 1) sizes.push_back(rest);
  }
  const std::optional<Layout> v = view(l, sizes);
  const Elements e = elements(l);
  if (v) {
    RC_ASSERT(v->sizes == sizes);
    RC_ASSERT(elements(*v) == e);
    return;
  }
  // Nothing: then no strides exist. Those of a dimension longer than 1 can only be the distance
  // between its first two elements; check that these do not give the elements.
  Layout only(sizes, Shape(sizes.size(), 0), l.offset);
  int64_t below = 1;
  for (int d = int(sizes.size()) - 1; d >= 0; --d) {
    if (sizes[size_t(d)] > 1) only.strides[size_t(d)] = e[size_t(below)] - e[0];
    below *= sizes[size_t(d)];
  }
  RC_ASSERT(elements(only) != e);
}
RC_GTEST_PROP(LayoutView, ShowsTheSameElements, ()) {
  for (int attempt = 0; attempt < 10; ++attempt) check_some_view();
}

RC_GTEST_PROP(LayoutView, InfersOneSize, ()) {
  const Layout l(arbitrary_sizes(1, 1));
  Shape sizes = l.sizes;
  const size_t d = size_t(pick(0, l.rank()));
  sizes[d] = -1;
  RC_ASSERT(infer_size(sizes, l.numel()) == l.sizes);
}

RC_GTEST_PROP(LayoutView, Expand, ()) {
  const Layout l = arbitrary_layout();
  Shape sizes;
  const int lead = int(pick(0, 3));
  for (int d = 0; d < lead; ++d) sizes.push_back(pick(0, 4));
  for (int64_t s : l.sizes) sizes.push_back(s == 1 ? pick(0, 4) : pick(0, 2) ? s : -1);
  const Layout v = expand(l, sizes);
  RC_ASSERT(v.rank() == l.rank() + lead);
  for (int d = 0; d < v.rank(); ++d)
    RC_ASSERT(v.sizes[size_t(d)] ==
              (sizes[size_t(d)] == -1 ? l.sizes[size_t(d - lead)] : sizes[size_t(d)]));
  for_each_index(v, [&](const std::vector<int64_t>& index) {
    std::vector<int64_t> from(index.begin() + lead, index.end());
    for (size_t d = 0; d < from.size(); ++d)
      if (l.sizes[d] == 1) from[d] = 0;
    RC_ASSERT(element(v, index) == element(l, from));
  });
}

RC_GTEST_PROP(LayoutView, PermuteAndTranspose, ()) {
  const Layout l = arbitrary_layout(1);
  Shape dims;
  for (int d = 0; d < l.rank(); ++d) dims.push_back(d);
  for (int d = l.rank() - 1; d > 0; --d) std::swap(dims[size_t(d)], dims[size_t(pick(0, d + 1))]);
  Shape signed_dims = dims;
  for (int64_t& d : signed_dims)
    if (pick(0, 2)) d -= l.rank();
  const Layout v = permute(l, signed_dims);
  for_each_index(v, [&](const std::vector<int64_t>& index) {
    std::vector<int64_t> from(index.size());
    for (size_t d = 0; d < index.size(); ++d) from[size_t(dims[d])] = index[d];
    RC_ASSERT(element(v, index) == element(l, from));
  });
  const int64_t a = arbitrary_dim(l.rank()), b = arbitrary_dim(l.rank());
  const Layout t = transpose(l, a, b);
  for_each_index(t, [&](std::vector<int64_t> index) {
    const int64_t at = element(t, index);
    std::swap(index[size_t(positive(a, l.rank()))], index[size_t(positive(b, l.rank()))]);
    RC_ASSERT(at == element(l, index));
  });
}

RC_GTEST_PROP(LayoutView, Slice, ()) {
  const Layout l = arbitrary_layout(1);
  const int64_t dim = arbitrary_dim(l.rank());
  const size_t d = size_t(positive(dim, l.rank()));
  const int64_t size = l.sizes[d];
  const auto bound = [&]() -> std::optional<int64_t> {
    if (pick(0, 4) == 0) return std::nullopt;
    return pick(-7, 8);
  };
  const auto start = bound(), stop = bound();
  const int64_t step = pick(1, 4);
  // Python's rule, one index at a time.
  std::vector<int64_t> picked;
  const int64_t first = !start ? 0 : *start < 0 ? std::max<int64_t>(*start + size, 0) : *start;
  const int64_t last = !stop ? size : *stop < 0 ? *stop + size : std::min(*stop, size);
  for (int64_t i = first; i < last; i += step) picked.push_back(i);
  const Layout v = slice(l, dim, start, stop, step);
  RC_ASSERT(v.sizes[d] == int64_t(picked.size()));
  for_each_index(v, [&](std::vector<int64_t> index) {
    const int64_t at = element(v, index);
    index[d] = picked[size_t(index[d])];
    RC_ASSERT(at == element(l, index));
  });
}

RC_GTEST_PROP(LayoutView, SelectAndNarrow, ()) {
  const Layout l = arbitrary_layout(1, 1);
  const int64_t dim = arbitrary_dim(l.rank());
  const size_t d = size_t(positive(dim, l.rank()));
  const int64_t size = l.sizes[d], index = pick(-size, size);
  const Layout v = select(l, dim, index);
  RC_ASSERT(v.rank() == l.rank() - 1);
  for_each_index(v, [&](std::vector<int64_t> i) {
    const int64_t at = element(v, i);
    i.insert(i.begin() + int64_t(d), positive(index, int(size)));
    RC_ASSERT(at == element(l, i));
  });
  const int64_t start = pick(0, size + 1);
  const int64_t length = pick(0, size - start + 1);
  const Layout n = narrow(l, dim, start, length);
  RC_ASSERT(n.sizes[d] == length);
  for_each_index(n, [&](std::vector<int64_t> i) {
    const int64_t at = element(n, i);
    i[d] += start;
    RC_ASSERT(at == element(l, i));
  });
}

RC_GTEST_PROP(LayoutView, SqueezeAndUnsqueeze, ()) {
  const Layout l = arbitrary_layout();
  const int64_t dim = pick(-l.rank() - 1, l.rank() + 1);
  const Layout u = unsqueeze(l, dim);
  RC_ASSERT(u.rank() == l.rank() + 1);
  RC_ASSERT(u.sizes[size_t(positive(dim, u.rank()))] == 1);
  RC_ASSERT(elements(u) == elements(l));
  if (l.is_contiguous()) RC_ASSERT(u.is_contiguous());
  const Layout one = squeeze(u, Shape{dim});
  RC_ASSERT(one.sizes == l.sizes);
  const Layout all = squeeze(u);
  RC_ASSERT(elements(all) == elements(l));
  for (int64_t s : all.sizes) RC_ASSERT(s != 1);
}

RC_GTEST_PROP(LayoutView, DiagonalAndUnfold, ()) {
  const Layout l = arbitrary_layout(2);
  const int a = int(pick(0, l.rank())), b = int(a + pick(1, l.rank())) % l.rank();
  const int64_t offset = pick(-6, 7);
  const Layout v = diagonal(l, offset, a, b - l.rank());
  int64_t length = 0;
  for (int64_t i = 0; i < l.sizes[size_t(a)]; ++i)
    length += i + offset >= 0 && i + offset < l.sizes[size_t(b)];
  RC_ASSERT(v.sizes.back() == length);
  for_each_index(v, [&](const std::vector<int64_t>& index) {
    std::vector<int64_t> from;
    size_t next = 0;
    for (int d = 0; d < l.rank(); ++d)
      from.push_back(d == a   ? index.back() + std::max<int64_t>(-offset, 0)
                     : d == b ? index.back() + std::max<int64_t>(offset, 0)
                              : index[next++]);
    RC_ASSERT(element(v, index) == element(l, from));
  });

  const int64_t size = pick(0, l.sizes[size_t(a)] + 1);
  const int64_t step = pick(1, 4);
  const Layout u = unfold(l, a, size, step);
  RC_ASSERT(u.sizes[size_t(a)] == (l.sizes[size_t(a)] - size) / step + 1);
  for_each_index(u, [&](const std::vector<int64_t>& index) {
    std::vector<int64_t> from(index.begin(), index.end() - 1);
    from[size_t(a)] = index[size_t(a)] * step + index.back();
    RC_ASSERT(element(u, index) == element(l, from));
  });
}

RC_GTEST_PROP(LayoutView, AsStridedStaysInside, ()) {
  const Shape sizes = arbitrary_sizes();
  Shape strides;
  for (size_t d = 0; d < sizes.size(); ++d) strides.push_back(pick(0, 5));
  const int64_t offset = pick(0, 4), numel = pick(0, 40);
  const Layout plain(sizes, strides, offset);
  const bool fits = plain.end() <= numel;
  try {
    RC_ASSERT(as_strided(sizes, strides, offset, numel) == plain);
    RC_ASSERT(fits);
  } catch (const ValueError&) {
    RC_ASSERT(!fits);
  }
}

RC_GTEST_PROP(Broadcast, EveryPairOfSizes, ()) {
  const Shape a = arbitrary_sizes(), b = arbitrary_sizes();
  const size_t rank = std::max(a.size(), b.size());
  Shape expected(rank);
  bool fits = true;
  for (size_t i = 1; i <= rank; ++i) {
    const int64_t sa = i <= a.size() ? a[a.size() - i] : 1,
                  sb = i <= b.size() ? b[b.size() - i] : 1;
    fits &= sa == sb || sa == 1 || sb == 1;
    expected[rank - i] = sa == 1 ? sb : sa;
  }
  try {
    RC_ASSERT(broadcast_shapes(a, b, "add") == expected);
    RC_ASSERT(fits);
  } catch (const ValueError& e) {
    RC_ASSERT(!fits);
    RC_ASSERT(e.op() == "add");
  }
}

RC_GTEST_PROP(Dims, Normalize, ()) {
  const int rank = int(pick(0, 6));
  const int64_t dim = pick(-8, 8);
  const int n = std::max(rank, 1);
  try {
    const int d = normalize_dim(dim, rank, "sum");
    RC_ASSERT(dim >= -n && dim < n);
    RC_ASSERT(d == (dim + n) % n);
  } catch (const IndexError&) {
    RC_ASSERT(dim < -n || dim >= n);
  }
}

TEST(Dims, Lists) {
  EXPECT_EQ(normalize_dims(Shape{2, -3}, 3, "sum", true), (Shape{0, 2}));
  EXPECT_EQ(normalize_dims(Shape{}, 3, "sum", true), (Shape{0, 1, 2}));
  EXPECT_EQ(normalize_dims(Shape{}, 3, "squeeze", false), Shape{});
  EXPECT_EQ(normalize_dims(Shape{-1}, 0, "sum", true), Shape{});
}

TEST(LayoutErrors, BeginLikePyTorch) {
  const Layout l(Shape{2, 3});
  EXPECT_ERROR(select(l, 2, 0),
               "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
  EXPECT_ERROR(select(l, 1, 3), "index 3 is out of bounds for dimension 1 with size 3");
  EXPECT_ERROR(normalize_dims(Shape{0, -2}, 2, "sum", true),
               "dim 0 appears multiple times in the list of dims");
  EXPECT_ERROR(broadcast_shapes(Shape{2, 3}, Shape{2, 4}, "add"),
               "The size of tensor a (3) must match the size of tensor b (4) at non-singleton "
               "dimension 1");
  EXPECT_ERROR(expand(l, Shape{2, 4}),
               "The expanded size of the tensor (4) must match the existing size (3) at "
               "non-singleton dimension 1.  Target sizes: [2, 4].  Tensor sizes: [2, 3]");
  EXPECT_ERROR(expand(l, Shape{3}),
               "the number of sizes provided (1) must be greater or equal to the number of "
               "dimensions in the tensor (2)");
  EXPECT_ERROR(view(l, Shape{4, 2}), "shape '[4, 2]' is invalid for input of size 6");
  EXPECT_ERROR(view(l, Shape{-1, 4}), "shape '[-1, 4]' is invalid for input of size 6");
  EXPECT_ERROR(view(l, Shape{-1, -1}), "only one dimension can be inferred");
  EXPECT_ERROR(view(Layout(Shape{0}), Shape{-1, 0}),
               "cannot reshape tensor of 0 elements into shape [-1, 0]");
  EXPECT_ERROR(slice(l, 0, 0, 1, 0), "slice step must be positive");
  EXPECT_ERROR(narrow(l, 1, 2, 2), "start (2) + length (2) exceeds dimension size (3).");
  EXPECT_ERROR(permute(l, Shape{0, 0}), "permute(): duplicate dims are not allowed.");
  EXPECT_ERROR(diagonal(l, 0, 1, -1), "diagonal dimensions cannot be identical 1, -1");
  EXPECT_ERROR(unfold(l, 1, 4, 1), "maximum size for tensor at dimension 1 is 3 but size is 4");
  EXPECT_ERROR(as_strided(Shape{4, 4}, Shape{4, 1}, 0, 15), "are out of bounds for storage");
  EXPECT_ERROR(as_strided(Shape{2}, Shape{-1}, 1, 15), "Negative strides are not supported");
  EXPECT_ERROR(Layout(Shape{2, -1}), "Trying to create tensor with negative dimension -1: [2, -1]");
  EXPECT_ERROR(Layout(Shape(17, 1)), "at most 16 dimensions");
}

TEST(LayoutErrors, OverflowIsAnErrorAndNeverWraps) {
  const int64_t big = int64_t(1) << 40;
  EXPECT_ERROR(numel_of(Shape{big, big}), "Storage size calculation overflowed");
  EXPECT_EQ(numel_of(Shape{big, big, 0}), 0);
  EXPECT_EQ(Layout(Shape{big, big, 0}).numel(), 0);
  EXPECT_ERROR(as_strided(Shape{2, 3}, Shape{INT64_MAX, INT64_MAX}, 0, 100), "out of bounds");
  EXPECT_ERROR(infer_size(Shape{big, big}, 6), "is invalid for input of size 6");
  const Layout l(Shape{5});
  EXPECT_EQ(slice(l, 0, INT64_MIN, INT64_MAX, INT64_MAX).sizes, Shape{1});
  EXPECT_EQ(diagonal(Layout(Shape{2, 3}), INT64_MAX, 0, 1).sizes, Shape{0});
  EXPECT_EQ(diagonal(Layout(Shape{2, 3}), INT64_MIN, 0, 1).sizes, Shape{0});
}

}  // namespace
}  // namespace arete
