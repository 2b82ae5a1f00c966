// Views with one result. The joining and splitting ones are in shape_split.cpp.
#include "arete/ops/shape.h"

#include <algorithm>

#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/reference_util.h"

namespace arete {
namespace ops {
namespace {

const Layout& layout_of(const Call& c) { return c.tensor(0).layout(); }
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
int dim_of(const Call& c, size_t arg) {
  return normalize_dim(c.integer(arg), int(c.tensor(0).dim()), c.name());
}

// Gradient of a view that shows no element twice: back into zeros of the input's sizes. `l` is the
// view of a row-major input.
TensorList into_zeros(const GradCall& g, const Layout& l) {
  return {embed_window(g.grad(), g.input_sizes(0), l.strides, l.offset)};
}
TensorList reshape_grad(const GradCall& g) { return {reshape(g.grad(), g.input_sizes(0))}; }

const OpRecord& view_op =
    define("view(Tensor self, int[] size) -> Tensor")
        .doc("Other sizes for the same memory.")
        .view([](const Call& c) {
          const std::optional<Layout> l = arete::view(layout_of(c), c.ints(1));
          ARETE_CHECK(l, ValueError(c.name(),
                                    "view size is not compatible with input tensor's size "
                                    "and stride (at least one dimension spans across two "
                                    "contiguous subspaces). Use .reshape(...) instead.")
                             .got("size " + to_string(c.ints(1)) + " for " + describe(c.tensor(0)) +
                                  " with strides " + to_string(c.tensor(0).strides())));
          return *l;
        })
        .grad(reshape_grad)
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

const OpRecord& reshape_op =
    define("reshape(Tensor self, int[] shape) -> Tensor")
        .doc("Other sizes: a view if possible, else a copy.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          if (arete::view(x.layout(), c.ints(1))) return {arete::view(x, c.ints(1))};
          return {arete::view(x.contiguous(), c.ints(1))};
        })
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

const OpRecord& permute_op =
    define("permute(Tensor self, int[] dims) -> Tensor")
        .doc("Dimensions in another order.")
        .view([](const Call& c) { return arete::permute(layout_of(c), c.ints(1)); })
        .grad([](const GradCall& g) -> TensorList {
          const int rank = int(g.ints(1).size());
          Shape inverse(size_t(rank), 0);
          for (int d = 0; d < rank; ++d) inverse[normalize_dim(g.ints(1)[d], rank, "permute")] = d;
          return {permute(g.grad(), inverse)};
        })
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

const OpRecord& transpose_op =
    define("transpose(Tensor self, int dim0, int dim1) -> Tensor")
        .doc("Two dimensions swapped.")
        .view([](const Call& c) {
          return arete::transpose(layout_of(c), c.integer(1), c.integer(2));
        })
        .grad([](const GradCall& g) -> TensorList {
          return {transpose(g.grad(), g.integer(1), g.integer(2))};
        })
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

const OpRecord& squeeze_op =
    define("squeeze(Tensor self, int[]? dim=None) -> Tensor")
        .doc("Without dimensions of size 1.")
        .view([](const Call& c) {
          return c.has(1) ? arete::squeeze(layout_of(c), c.ints(1)) : arete::squeeze(layout_of(c));
        })
        .grad(reshape_grad)
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

const OpRecord& unsqueeze_op =
    define("unsqueeze(Tensor self, int dim) -> Tensor")
        .doc("A new dimension of size 1.")
        .view([](const Call& c) { return arete::unsqueeze(layout_of(c), c.integer(1)); })
        .grad(reshape_grad)
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

const OpRecord& expand_op =
    define("expand(Tensor self, int[] size) -> Tensor")
        .doc("Dimensions of size 1 repeated without copying.")
        .view([](const Call& c) { return arete::expand(layout_of(c), c.ints(1)); })
        .grad([](const GradCall& g) -> TensorList {
          return {sum_to_size(g.grad(), g.input_sizes(0))};
        })
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

const OpRecord& select_op =
    define("select(Tensor self, int dim, int index) -> Tensor")
        .doc("One index of a dimension.")
        .view([](const Call& c) { return arete::select(layout_of(c), c.integer(1), c.integer(2)); })
        .grad([](const GradCall& g) {
          return into_zeros(g, arete::select(Layout(g.input_sizes(0)), g.integer(1), g.integer(2)));
        })
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

std::optional<int64_t> optional_int(const Arg& a) {
  if (a.is_none()) return std::nullopt;
  return a.integer();
}

const OpRecord& slice_op =
    define("slice(Tensor self, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor")
        .doc("Python's start:end:step along a dimension.")
        .view([](const Call& c) {
          return arete::slice(layout_of(c), c.integer(1), optional_int(c[2]), optional_int(c[3]),
                              c.integer(4));
        })
        .grad([](const GradCall& g) {
          return into_zeros(
              g, arete::slice(Layout(g.input_sizes(0)), g.integer(1), optional_int(g.arg(2)),
                              optional_int(g.arg(3)), g.integer(4)));
        })
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

const OpRecord& narrow_op =
    define("narrow(Tensor self, int dim, int start, int length) -> Tensor")
        .doc("Elements start to start + length of a dimension.")
        .view([](const Call& c) {
          return arete::narrow(layout_of(c), c.integer(1), c.integer(2), c.integer(3));
        })
        .grad([](const GradCall& g) {
          return into_zeros(
              g, arete::narrow(Layout(g.input_sizes(0)), g.integer(1), g.integer(2), g.integer(3)));
        })
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

const OpRecord& diagonal_op =
    define("diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor")
        .doc("The diagonal of two dimensions as the last one.")
        .view([](const Call& c) {
          return arete::diagonal(layout_of(c), c.integer(1), c.integer(2), c.integer(3));
        })
        .grad([](const GradCall& g) {
          return into_zeros(g, arete::diagonal(Layout(g.input_sizes(0)), g.integer(1), g.integer(2),
                                               g.integer(3)));
        })
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

const OpRecord& unfold_op =
    define("unfold(Tensor self, int dimension, int size, int step) -> Tensor")
        .doc("Windows along a dimension, their elements in a new last one.")
        .view([](const Call& c) {
          return arete::unfold(layout_of(c), c.integer(1), c.integer(2), c.integer(3));
        })
        .grad([](const GradCall& g) {
          return into_zeros(
              g, arete::unfold(Layout(g.input_sizes(0)), g.integer(1), g.integer(2), g.integer(3)));
        })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({6}), 0, 3, 1}, "overlapping"},
                                     {{m.make_strided({2, 5}), -1, 2, 2}, "apart"},
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

// self_stride and self_offset repeat where self lies in its storage, because the gradient is found
// there; empty means row-major.
const OpRecord& as_strided_window_op =
    define(
        "as_strided_window(Tensor self, int[] size, int[] stride, int storage_offset=0, int[] "
        "self_stride=[], int self_offset=0) -> Tensor")
        .doc("as_strided with where self lies in its storage, which its gradient needs.")
        .view([](const Call& c) {
          const Tensor& x = c.tensor(0);
          return arete::as_strided(c.ints(1), c.ints(2), c.integer(3),
                                   int64_t(x.storage()->bytes() / x.element_size()));
        })
        .grad([](const GradCall& g) -> TensorList {
          Layout in(g.input_sizes(0));
          if (!g.ints(4).empty()) in = Layout(g.input_sizes(0), g.ints(4), g.integer(5));
          const Layout out(g.ints(1), g.ints(2), g.integer(3));
          // Through the storage: gradients meet where elements are shared.
          const int64_t total = std::max(in.end(), out.end());
          Tensor flat = embed_window(g.grad(), {total}, out.strides, out.offset);
          if (in.may_overlap()) {
            const Tensor shown = ones(in.sizes, g.grad().options());
            flat = flat.div(embed_window(shown, {total}, in.strides, in.offset).clamp(Scalar(1)));
          }
          return {as_strided(flat, in.sizes, in.strides, in.offset)};
        })
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

const OpRecord& as_strided_op =
    define("as_strided(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor")
        .doc("Any window on self's storage; without an offset it begins where self does.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int64_t offset = c.has(3) ? c.integer(3) : x.storage_offset();
          return {call(as_strided_window_op,
                       {x, c.ints(1), c.ints(2), offset, x.strides(), x.storage_offset()})};
        })
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

Tensor& become(Tensor& self, const Tensor& view) {
  ARETE_CHECK(!(self.requires_grad() && self.is_leaf()) || !is_grad_enabled(),
              AutogradError("",
                            "a leaf Variable that requires grad is being used in an in-place "
                            "operation.")
                  .hint("use the form without the underscore"));
  if (const IntrusivePtr<Node> node = view.grad_fn()) {
    const uint32_t slot = gradient_edge(view).slot;
    set_history(self, node, slot);
  }
  self.impl()->layout = view.layout();
  return self;
}
}  // namespace ops

Tensor view(const Tensor& self, IntList sizes) { return ops::call(ops::view_op, {self, sizes}); }
Tensor reshape(const Tensor& self, IntList sizes) {
  return ops::call(ops::reshape_op, {self, sizes});
}
Tensor permute(const Tensor& self, IntList dims) {
  return ops::call(ops::permute_op, {self, dims});
}
Tensor transpose(const Tensor& self, int64_t a, int64_t b) {
  return ops::call(ops::transpose_op, {self, a, b});
}
Tensor squeeze(const Tensor& self) { return ops::call(ops::squeeze_op, {self, std::nullopt}); }
Tensor squeeze(const Tensor& self, int64_t dim) { return squeeze(self, IntList(&dim, 1)); }
Tensor squeeze(const Tensor& self, IntList dims) {
  return ops::call(ops::squeeze_op, {self, dims});
}
Tensor unsqueeze(const Tensor& self, int64_t dim) {
  return ops::call(ops::unsqueeze_op, {self, dim});
}
Tensor expand(const Tensor& self, IntList sizes) {
  return ops::call(ops::expand_op, {self, sizes});
}
Tensor narrow(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  return ops::call(ops::narrow_op, {self, dim, start, length});
}
Tensor select(const Tensor& self, int64_t dim, int64_t index) {
  return ops::call(ops::select_op, {self, dim, index});
}
Tensor slice(const Tensor& self, int64_t dim, std::optional<int64_t> start,
             std::optional<int64_t> stop, int64_t step) {
  return ops::call(ops::slice_op, {self, dim, start, stop, step});
}
Tensor as_strided(const Tensor& self, IntList sizes, IntList strides, int64_t offset) {
  return ops::call(ops::as_strided_op, {self, sizes, strides, offset});
}
Tensor diagonal(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  return ops::call(ops::diagonal_op, {self, offset, dim1, dim2});
}
Tensor unfold(const Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return ops::call(ops::unfold_op, {self, dim, size, step});
}

Tensor Tensor::view(IntList sizes) const { return arete::view(*this, sizes); }
Tensor Tensor::reshape(IntList sizes) const { return arete::reshape(*this, sizes); }
Tensor Tensor::permute(IntList dims) const { return arete::permute(*this, dims); }
Tensor Tensor::transpose(int64_t a, int64_t b) const { return arete::transpose(*this, a, b); }
Tensor Tensor::squeeze() const { return arete::squeeze(*this); }
Tensor Tensor::squeeze(int64_t dim) const { return arete::squeeze(*this, dim); }
Tensor Tensor::squeeze(IntList dims) const { return arete::squeeze(*this, dims); }
Tensor Tensor::unsqueeze(int64_t dim) const { return arete::unsqueeze(*this, dim); }
Tensor Tensor::expand(IntList sizes) const { return arete::expand(*this, sizes); }
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  return arete::narrow(*this, dim, start, length);
}
Tensor Tensor::select(int64_t dim, int64_t index) const { return arete::select(*this, dim, index); }
Tensor Tensor::slice(int64_t dim, std::optional<int64_t> start, std::optional<int64_t> stop,
                     int64_t step) const {
  return arete::slice(*this, dim, start, stop, step);
}
Tensor Tensor::as_strided(IntList sizes, IntList strides, int64_t offset) const {
  return arete::as_strided(*this, sizes, strides, offset);
}
Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2) const {
  return arete::diagonal(*this, offset, dim1, dim2);
}
Tensor Tensor::unfold(int64_t dim, int64_t size, int64_t step) const {
  return arete::unfold(*this, dim, size, step);
}
Tensor& Tensor::squeeze_(int64_t dim) { return ops::become(*this, squeeze(dim)); }
Tensor& Tensor::unsqueeze_(int64_t dim) { return ops::become(*this, unsqueeze(dim)); }
Tensor& Tensor::transpose_(int64_t a, int64_t b) { return ops::become(*this, transpose(a, b)); }
Tensor& Tensor::t_() { return ops::become(*this, t()); }

}  // namespace arete

ARETE_FAMILY(shape)
