// Samples, references and errors of the records in ops/shape.cpp.
#include <algorithm>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using Refs = std::vector<Tensor>;

// Elements of argument 0 at places that depend on the index of the result.
template <class F>
Refs pick(const Call& c, IntList sizes, F&& place) {
  const Tensor& x = c.tensor(0);
  return {build_tensor(sizes, [&](const Shape& i) {
    const Shape from = place(i);
    return at(x, from);
  })};
}

// The same elements in row-major order under other sizes.
Refs same_order(const Call& c, IntList sizes) {
  return {from_values(values_of(c.tensor(0)), sizes)};
}

const Attached view_op =
    attach("view")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 6}), {3, -1}}, "usual"},
                                     {{m.make_strided({4, 3}), {2, 2, 3}}, "strided"},
                                     {{m.make({1}), std::vector<int64_t>{}}, "to 0-d"},
                                     {{m.make({}), {1, 1}}, "from 0-d"},
                                     {{m.make({0, 3}), {3, 0}}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2, 3}), {4, 2}},
               ErrorKind::value,
               "shape '[4, 2]' is invalid for input of size 6"},
              {{m.make({2, 3}), {-1, -1}}, ErrorKind::value, "only one dimension can be inferred"},
              {{m.make_strided({2, 3}), {6}},
               ErrorKind::value,
               "view size is not compatible with input tensor's size and stride"}};
        })
        .reference([](const Call& c) -> Refs {
          return same_order(c, infer_size(c.ints(1), c.tensor(0).numel()));
        });
const Attached view_dtype_op =
    attach("view.dtype")
        .samples([](SampleMaker& m) {
          const Tensor wide = m.make({3, 6}, -1e9, 1e9);
          return std::vector<Sample>{{{m.make({2, 3}, -1e9, 1e9), kUInt8}, "smaller elements"},
                                     {{m.make({2, 6}, -1e9, 1e9), kInt64}, "larger elements"},
                                     {{wide.slice(1, 2, 6), kInt64}, "window"},
                                     {{m.make_strided({2, 3}), kInt32}, "strided"},
                                     {{m.make({}), kInt32}, "0-d"},
                                     {{m.make({2, 0}), kInt16}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2, 3}), kInt64},
               ErrorKind::value,
               "self.size(-1) must be divisible by 2 to view int32 as int64"},
              {{m.make({2, 4}).slice(1, 1, 3), kInt64},
               ErrorKind::value,
               "self.storage_offset() must be divisible by 2"},
              {{m.make({3, 3}).slice(1, 0, 2), kInt64},
               ErrorKind::value,
               "self.stride(0) must be divisible by 2"},
              {{m.make_strided({2, 3}), kUInt8}, ErrorKind::value, "self.stride(-1) must be 1"},
              {{m.make({}), kUInt8}, ErrorKind::value, "self.dim() cannot be 0 to view int32"}};
        })
        .reference([](const Call& c) -> Refs {
          const std::vector<double> v = values_of(c.tensor(0));
          const std::vector<int32_t> memory(v.begin(), v.end());
          Shape sizes = c.tensor(0).sizes();
          if (!sizes.empty()) sizes.back() = sizes.back() * 4 / int64_t(size_of(c[1].dtype()));
          const TensorOptions options(c[1].dtype());
          const Tensor read =
              from_blob(const_cast<int32_t*>(memory.data()), sizes, options).clone();
          return {from_values(read.to_vector<double>(), sizes, kInt64)};
        });
const Attached reshape_op =
    attach("reshape")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 6}), {3, -1}}, "view"},
                                     {{m.make_strided({4, 3}), {6, 2}}, "copy"},
                                     {{m.make({1, 1}), std::vector<int64_t>{}}, "to 0-d"},
                                     {{m.make({0}), {2, 0}}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({2, 3}), {4}},
                                           ErrorKind::value,
                                           "shape '[4]' is invalid for input of size 6"}};
        })
        .reference([](const Call& c) -> Refs {
          return same_order(c, infer_size(c.ints(1), c.tensor(0).numel()));
        });
const Attached permute_op =
    attach("permute")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3, 2}), {2, 0, 1}}, "usual"},
                                     {{m.make_strided({2, 3}), {-1, 0}}, "negative"},
                                     {{m.make({}), std::vector<int64_t>{}}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2, 3}), {0, 0}},
               ErrorKind::value,
               "permute(): duplicate dims are not allowed."},
              {{m.make({2, 3}), {0}}, ErrorKind::value, "number of dimensions in the tensor input"},
              {{m.make({2, 3}), {0, 2}}, ErrorKind::index, "Dimension out of range"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          Shape order, sizes;
          for (int64_t d : c.ints(1)) order.push_back(d < 0 ? d + x.dim() : d);
          for (int64_t d : order) sizes.push_back(x.sizes()[size_t(d)]);
          return pick(c, sizes, [&](const Shape& i) {
            Shape from(i.size(), 0);
            for (size_t d = 0; d < i.size(); ++d) from[size_t(order[d])] = i[d];
            return from;
          });
        });
const Attached transpose_op =
    attach("transpose")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3, 2}), 0, 2}, "usual"},
                                     {{m.make_strided({2, 3}), -1, -2}, "negative"},
                                     {{m.make({}), 0, -1}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2, 3}), 0, 2},
               ErrorKind::index,
               "Dimension out of range (expected to be in range of [-2, 1], but got 2)"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          if (x.dim() == 0) return same_order(c, {});
          const int a = dim_of(c, 1), b = dim_of(c, 2);
          Shape sizes(x.sizes());
          std::swap(sizes[a], sizes[b]);
          return pick(c, sizes, [&](Shape i) {
            std::swap(i[a], i[b]);
            return i;
          });
        });
const Attached squeeze_op =
    attach("squeeze")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({1, 3, 1}), std::nullopt}, "all"},
                                     {{m.make({1, 3, 1}), {-1}}, "one"},
                                     {{m.make({1, 3, 1}), {0, 1}}, "some"},
                                     {{m.make({}), {0}}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({1, 3}), {2}}, ErrorKind::index, "Dimension out of range"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          Shape sizes;
          for (int64_t d = 0; d < x.dim(); ++d) {
            bool named = !c.has(1);
            if (c.has(1))
              for (int64_t e : c.ints(1)) named = named || (e < 0 ? e + x.dim() : e) == d;
            if (!named || x.sizes()[size_t(d)] != 1) sizes.push_back(x.sizes()[size_t(d)]);
          }
          return same_order(c, sizes);
        });
const Attached unsqueeze_op =
    attach("unsqueeze")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), 1}, "usual"},
                                     {{m.make_strided({2, 3}), -1}, "last"},
                                     {{m.make({}), 0}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2, 3}), 3},
               ErrorKind::index,
               "Dimension out of range (expected to be in range of [-3, 2], but got 3)"}};
        })
        .reference([](const Call& c) -> Refs {
          Shape sizes(c.tensor(0).sizes());
          const int64_t d = c.integer(1);
          sizes.insert(sizes.begin() + (d < 0 ? d + int64_t(sizes.size()) + 1 : d), 1);
          return same_order(c, sizes);
        });
const Attached expand_op =
    attach("expand")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({3, 1}), {3, 2}}, "usual"},
                                     {{m.make({2, 1}), {2, -1, 3}}, "leading, kept"},
                                     {{m.make({}), {2, 2}}, "0-d"},
                                     {{m.make({1, 2}), {0, 2}}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2, 3}), {2, 4}},
               ErrorKind::value,
               "The expanded size of the tensor (4) must match the existing size (3) at "
               "non-singleton dimension 1.  Target sizes: [2, 4].  Tensor sizes: [2, 3]"},
              {{m.make({2, 3}), {3}}, ErrorKind::value, "the number of sizes provided (1)"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          Shape sizes(c.ints(1));
          const size_t lead = sizes.size() - size_t(x.dim());
          for (size_t d = 0; d < sizes.size(); ++d)
            if (sizes[d] == -1) sizes[d] = x.sizes()[d - lead];
          return pick(c, sizes, [](const Shape& i) { return i; });
        });
const Attached select_op =
    attach("select")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), 1, 1}, "usual"},
                                     {{m.make_strided({2, 3, 2}), -2, -1}, "negative"},
                                     {{m.make({3}), 0, 2}, "to 0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({2, 3}), 1, 3},
                                           ErrorKind::index,
                                           "index 3 is out of bounds for dimension 1 with size 3"},
                                          {{m.make({}), 0, 0},
                                           ErrorKind::index,
                                           "select() cannot be applied to a 0-dim tensor."}};
        })
        .reference([](const Call& c) -> Refs {
          const int d = dim_of(c, 1);
          Shape sizes(c.tensor(0).sizes());
          const int64_t k = c.integer(2) < 0 ? c.integer(2) + sizes[d] : c.integer(2);
          sizes.erase(sizes.begin() + d);
          return pick(c, sizes, [&](Shape i) {
            i.insert(i.begin() + d, k);
            return i;
          });
        });
const Attached slice_op =
    attach("slice")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({5, 2}), 0, 1, 4, 1}, "usual"},
              {{m.make_strided({2, 5}), -1, -4, std::nullopt, 2}, "negative, step"},
              {{m.make({4}), 0, std::nullopt, 100, 3}, "clamped"},
              {{m.make({4}), 0, 3, 1, 1}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({4}), 0, 0, 2, 0}, ErrorKind::value, "slice step must be positive"},
              {{m.make({4}), 1, 0, 2, 1}, ErrorKind::index, "Dimension out of range"}};
        })
        .reference([](const Call& c) -> Refs {
          const int d = dim_of(c, 1);
          Shape sizes(c.tensor(0).sizes());
          const int64_t n = sizes[d], step = c.integer(4);
          const auto bound = [n](const Arg& a, int64_t otherwise) {
            const int64_t i = a.is_none() ? otherwise : a.integer();
            return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n);
          };
          const int64_t first = bound(c[2], 0), last = bound(c[3], n);
          sizes[d] = 0;
          for (int64_t i = first; i < last; i += step) ++sizes[d];
          return pick(c, sizes, [&](Shape i) {
            i[d] = first + i[d] * step;
            return i;
          });
        });
const Attached narrow_op =
    attach("narrow")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({5, 2}), 0, 1, 3}, "usual"},
                                     {{m.make_strided({2, 5}), -1, -2, 2}, "negative"},
                                     {{m.make({4}), 0, 4, 0}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({4}), 0, 2, 3},
                                           ErrorKind::value,
                                           "start (2) + length (3) exceeds dimension size (4)."},
                                          {{m.make({4}), 0, 0, -1},
                                           ErrorKind::value,
                                           "narrow(): length must be non-negative."}};
        })
        .reference([](const Call& c) -> Refs {
          const int d = dim_of(c, 1);
          Shape sizes(c.tensor(0).sizes());
          const int64_t first = c.integer(2) < 0 ? c.integer(2) + sizes[d] : c.integer(2);
          sizes[d] = c.integer(3);
          return pick(c, sizes, [&](Shape i) {
            i[d] += first;
            return i;
          });
        });
const Attached diagonal_op =
    attach("diagonal")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({3, 4}), 0, 0, 1}, "usual"},
                                     {{m.make_strided({3, 2, 4}), 1, -1, 0}, "batch, above"},
                                     {{m.make({4, 3}), -2, 0, 1}, "below"},
                                     {{m.make({2, 3}), 5, 0, 1}, "outside"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({2, 3}), 0, 1, -1},
                                           ErrorKind::value,
                                           "diagonal dimensions cannot be identical 1, -1"},
                                          {{m.make({2}), 0, 0, 1},
                                           ErrorKind::value,
                                           "diagonal() needs a tensor of at least 2"}};
        })
        .reference([](const Call& c) -> Refs {
          const int a = dim_of(c, 2), b = dim_of(c, 3);
          const Tensor& x = c.tensor(0);
          const int64_t k = c.integer(1);
          const int64_t row = std::max<int64_t>(-k, 0), column = std::max<int64_t>(k, 0);
          Shape sizes;
          for (int d = 0; d < int(x.dim()); ++d)
            if (d != a && d != b) sizes.push_back(x.sizes()[size_t(d)]);
          int64_t n = 0;
          while (row + n < x.size(a) && column + n < x.size(b)) ++n;
          sizes.push_back(n);
          return pick(c, sizes, [&](const Shape& i) {
            Shape from;
            size_t next = 0;
            for (int d = 0; d < int(x.dim()); ++d)
              from.push_back(d == a ? row + i.back() : d == b ? column + i.back() : i[next++]);
            return from;
          });
        });
const Attached unfold_op =
    attach("unfold")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({6}), 0, 3, 1}, "overlapping"},
                                     {{m.make_strided({2, 5}), -1, 2, 2}, "apart"},
                                     {{m.make({2, 6, 3}), 1, 3, 2}, "middle"},
                                     {{m.make({8, 1}), 0, 2, 3}, "between others"},
                                     {{m.make({0, 4}), 1, 3, 1}, "empty"},
                                     {{m.make({}), 0, 1, 1}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({3}), 0, 4, 1},
               ErrorKind::value,
               "maximum size for tensor at dimension 0 is 3 but size is 4"},
              {{m.make({3}), 0, 2, 0}, ErrorKind::value, "step is 0 but must be > 0"}};
        })
        .reference([](const Call& c) -> Refs {
          if (c.tensor(0).dim() == 0) return same_order(c, {c.integer(2)});
          const int d = dim_of(c, 1);
          Shape sizes(c.tensor(0).sizes());
          sizes[d] = (sizes[d] - c.integer(2)) / c.integer(3) + 1;
          sizes.push_back(c.integer(2));
          return pick(c, sizes, [&](Shape i) {
            i[d] = i[d] * c.integer(3) + i.back();
            i.pop_back();
            return i;
          });
        });
const Attached as_strided_window_op =
    attach("as_strided_window")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({3, 4}), {2, 3}, {1, 2}, 1, std::vector<int64_t>{}, 0}, "overlapping"},
              {{m.make({6}), {2, 2}, {3, 1}, 1, {1}, 0}, "window"},
              {{m.make({3}), std::vector<int64_t>{}, std::vector<int64_t>{}, 2, {1}, 0}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({3}), {2, 2}, {2, 1}, 0, std::vector<int64_t>{}, 0},
               ErrorKind::value,
               "setStorage: sizes [2, 2], strides [2, 1], storage offset 0"},
              {{m.make({3}), {2, 2}, {1}, 0, std::vector<int64_t>{}, 0},
               ErrorKind::value,
               "mismatch in length of strides and shape"},
              {{m.make({3}), {1}, {1}, -1, std::vector<int64_t>{}, 0},
               ErrorKind::value,
               "Tensor: invalid storage offset -1"}};
        })
        .reference([](const Call& c) -> Refs {
          const std::vector<double> x = values_of(c.tensor(0));
          return {build_tensor(c.ints(1), [&](const Shape& i) {
            int64_t from = c.integer(3);
            for (size_t d = 0; d < i.size(); ++d) from += i[d] * c.ints(2)[d];
            return x[size_t(from)];
          })};
        });
const Attached as_strided_op =
    attach("as_strided")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({3, 4}), {2, 3}, {1, 2}, 1}, "overlapping"},
              {{m.make({6}), {2, 2}, {3, 1}, std::nullopt}, "from its offset"},
              {{m.make({3}), std::vector<int64_t>{}, std::vector<int64_t>{}, 2}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({3}), {2, 2}, {2, 1}, 0},
                                           ErrorKind::value,
                                           "setStorage: sizes [2, 2], strides [2, 1], storage "
                                           "offset 0"}};
        })
        .reference([](const Call& c) -> Refs {
          const std::vector<double> x = values_of(c.tensor(0));
          return {build_tensor(c.ints(1), [&](const Shape& i) {
            int64_t from = c.has(3) ? c.integer(3) : 0;
            for (size_t d = 0; d < i.size(); ++d) from += i[d] * c.ints(2)[d];
            return x[size_t(from)];
          })};
        });

}  // namespace
}  // namespace arete::ops
