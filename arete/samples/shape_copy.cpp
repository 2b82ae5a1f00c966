// Samples, references and errors of the records in ops/shape_copy.cpp.
#include <algorithm>

#include "arete/ops/creation.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using Refs = std::vector<Tensor>;

// 1-d tensors without elements are ignored whatever the others look like.
bool ignored(IntList sizes) { return sizes.size() == 1 && sizes[0] == 0; }

const Attached cat_op =
    attach("cat")
        .samples([](SampleMaker& m) {
          using List = std::vector<Tensor>;
          return std::vector<Sample>{
              {{List{m.make({2, 3}), m.make({1, 3})}, 0}, "rows"},
              {{List{m.make_strided({2, 3}), m.make({2, 1}), m.make({2, 0})}, -1}, "columns"},
              {{List{m.make({2, 2}), m.make({0})}, 1}, "ignored"},
              {{List{m.make({0}), m.make({0})}, 0}, "empty"},
              {{List{m.make({3})}, 0}, "one"}};
        })
        .errors([](SampleMaker& m) {
          using List = std::vector<Tensor>;
          return std::vector<ErrorSample>{
              {{List{}, 0}, ErrorKind::value, "expected a non-empty list of Tensors"},
              {{List{m.make({}), m.make({})}, 0},
               ErrorKind::value,
               "zero-dimensional tensor (at position 0) cannot be concatenated"},
              {{List{m.make({2, 3}), m.make({2, 2})}, 0},
               ErrorKind::value,
               "Sizes of tensors must match except in dimension 0. Expected size 3 but got size 2 "
               "for tensor number 1 in the list."},
              {{List{m.make({2, 3}), m.make({3})}, 0},
               ErrorKind::value,
               "Tensors must have same number of dimensions: got 2 and 1"}};
        })
        .reference([](const Call& c) -> Refs {
          const Shape sizes = result_sizes(c);
          const int d = normalize_dim(c.integer(1), int(sizes.size()), "cat");
          return {build_tensor(sizes, [&](Shape i) {
            size_t k = 0;
            while (ignored(c.tensors(0)[k].sizes()) || i[d] >= c.tensors(0)[k].size(d)) {
              if (!ignored(c.tensors(0)[k].sizes())) i[d] -= c.tensors(0)[k].size(d);
              ++k;
            }
            return at(c.tensors(0)[k], i);
          })};
        });
const Attached stack_op =
    attach("stack")
        .samples([](SampleMaker& m) {
          using List = std::vector<Tensor>;
          return std::vector<Sample>{
              {{List{m.make({2, 3}), m.make_strided({2, 3})}, 0}, "front"},
              {{List{m.make({2}), m.make({2})}, -1}, "back"},
              {{List{m.make({17, 16}), m.make_strided({17, 16})}, 2}, "elements that alternate"},
              {{List{m.make({}), m.make({})}, 0}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          using List = std::vector<Tensor>;
          return std::vector<ErrorSample>{
              {{List{}, 0}, ErrorKind::value, "stack expects a non-empty TensorList"},
              {{List{m.make({2}), m.make({3})}, 0},
               ErrorKind::value,
               "stack expects each tensor to be equal size, but got [2] at entry 0 and [3] at "
               "entry 1"}};
        })
        .reference([](const Call& c) -> Refs {
          const int64_t rank = c.tensors(0)[0].dim() + 1;
          const int64_t d = c.integer(1) < 0 ? c.integer(1) + rank : c.integer(1);
          Shape sizes(c.tensors(0)[0].sizes());
          sizes.insert(sizes.begin() + d, int64_t(c.tensors(0).size()));
          return {build_tensor(sizes, [&](Shape i) {
            const Tensor& x = c.tensors(0)[size_t(i[size_t(d)])];
            i.erase(i.begin() + d);
            return at(x, i);
          })};
        });

constexpr const char* kParts = "made of views and cat, which have references of their own";
const Attached hstack_op =
    attach("hstack")
        .samples([](SampleMaker& m) {
          using List = std::vector<Tensor>;
          return std::vector<Sample>{{{List{m.make({2}), m.make({3})}}, "1-d"},
                                     {{List{m.make({2, 1}), m.make({2, 2})}}, "2-d"},
                                     {{List{m.make({}), m.make({})}}, "0-d"}};
        })
        .no_reference(kParts);
const Attached vstack_op =
    attach("vstack")
        .samples([](SampleMaker& m) {
          using List = std::vector<Tensor>;
          return std::vector<Sample>{{{List{m.make({2}), m.make({2})}}, "1-d"},
                                     {{List{m.make({1, 2}), m.make({2, 2})}}, "2-d"}};
        })
        .no_reference(kParts);
const Attached repeat_op =
    attach("repeat")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), {2, 1}}, "usual"},
                                     {{m.make_strided({2, 2}), {2, 1, 2}}, "leading"},
                                     {{m.make({}), {3}}, "0-d"},
                                     {{m.make({2}), {0}}, "none"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({2, 3}), {2}},
                                           ErrorKind::value,
                                           "Number of dimensions of repeat dims can not be smaller "
                                           "than number of dimensions of "
                                           "tensor"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          const size_t lead = c.ints(1).size() - size_t(x.dim());
          Shape sizes(c.ints(1));
          for (size_t d = lead; d < sizes.size(); ++d) sizes[d] *= x.sizes()[d - lead];
          return {build_tensor(sizes, [&](const Shape& i) {
            Shape from;
            for (size_t d = lead; d < sizes.size(); ++d) from.push_back(i[d] % x.sizes()[d - lead]);
            return at(x, from);
          })};
        });
const Attached tile_op = attach("tile")
                             .samples([](SampleMaker& m) {
                               return std::vector<Sample>{{{m.make({2, 3}), {2}}, "fewer counts"},
                                                          {{m.make({2}), {2, 2}}, "more counts"}};
                             })
                             .no_reference("repeat with padded counts");
const Attached repeat_interleave_op =
    attach("repeat_interleave")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), 2, 1}, "usual"},
                                     {{m.make_strided({2, 3}), 2, std::nullopt}, "flattened"},
                                     {{m.make({2}), 0, 0}, "none"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2}), -1, 0}, ErrorKind::value, "repeats can not be negative"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          if (!c.has(2)) {
            const std::vector<double> v = values_of(x);
            return {build_tensor({x.numel() * c.integer(1)},
                                 [&](const Shape& i) { return v[size_t(i[0] / c.integer(1))]; })};
          }
          const int d = normalize_dim(c.integer(2), int(x.dim()), c.name());
          Shape sizes(x.sizes());
          sizes[d] *= c.integer(1);
          return {build_tensor(sizes, [&](Shape i) {
            i[d] /= c.integer(1);
            return at(x, i);
          })};
        });
const Attached flip_op =
    attach("flip")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), {1}}, "usual"},
                                     {{m.make_strided({2, 3, 2}), {0, -1}}, "two"},
                                     {{m.make({2, 3}), std::vector<int64_t>{}}, "none"},
                                     {{m.make({}), std::vector<int64_t>{0}}, "0-d"},
                                     {{m.make({2, 0}), {0}}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2, 3}), {0, -2}},
               ErrorKind::value,
               "dim 0 appears multiple times in the list of dims"},
              {{m.make({2, 3}), {2}}, ErrorKind::index, "Dimension out of range"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          return {build_tensor(x.sizes(), [&](Shape i) {
            for (int64_t d : c.ints(1)) {
              if (i.empty()) break;
              const size_t e = size_t(d < 0 ? d + x.dim() : d);
              i[e] = x.sizes()[e] - 1 - i[e];
            }
            return at(x, i);
          })};
        });
const Attached roll_dims_op =
    attach("_roll_dims")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), {0, 1}}, "one dimension"},
                                     {{m.make_strided({2, 3, 4}), {1, 0, 3}}, "strided"},
                                     {{m.make({2, 3, 4}), {1, 2, 1}}, "all dimensions"},
                                     {{m.make({5}), {0}}, "not at all"},
                                     {{m.make({0, 2}), {0, 1}}, "empty"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          return {build_tensor(x.sizes(), [&](Shape i) {
            for (size_t d = 0; d < i.size(); ++d)
              i[d] = (i[d] - c.ints(1)[d] + x.sizes()[d]) % x.sizes()[d];
            return at(x, i);
          })};
        });
const Attached roll_op =
    attach("roll")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), {1}, {1}}, "usual"},
                                     {{m.make_strided({2, 3}), {-1, 4}, {0, -1}}, "two"},
                                     {{m.make({2, 3}), {2}, std::vector<int64_t>{}}, "row-major"},
                                     {{m.make({2, 3}), {3}, {1}}, "whole turn"},
                                     {{m.make({0}), {1}, {0}}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({2, 3}), {1, 2}, {0}},
                                           ErrorKind::value,
                                           "shifts and dimensions must align. shifts: 2, dims:1"},
                                          {{m.make({2, 3}), std::vector<int64_t>{}, {0}},
                                           ErrorKind::value,
                                           "`shifts` required"}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          if (c.ints(2).empty()) {
            const std::vector<double> v = values_of(x);
            const int64_t n = x.numel();
            std::vector<double> out(v.size());
            for (int64_t i = 0; i < n; ++i)
              out[size_t(((i + c.ints(1)[0]) % n + n) % n)] = v[size_t(i)];
            return {from_values(out, x.sizes())};
          }
          return {build_tensor(x.sizes(), [&](Shape i) {
            for (size_t k = 0; k < c.ints(2).size(); ++k) {
              const size_t d = size_t(c.ints(2)[k] < 0 ? c.ints(2)[k] + x.dim() : c.ints(2)[k]);
              const int64_t n = x.sizes()[d];
              i[d] = ((i[d] - c.ints(1)[k]) % n + n) % n;
            }
            return at(x, i);
          })};
        });
const Attached rot90_op =
    attach("rot90")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), 1, {0, 1}}, "once"},
                                     {{m.make({2, 3}), 2, {1, 0}}, "twice"},
                                     {{m.make_strided({2, 3, 2}), -1, {-1, 0}}, "back"},
                                     {{m.make({2, 2}), 4, {0, 1}}, "whole turn"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2, 3}), 1, {0, -2}},
               ErrorKind::value,
               "expected rotation dims to be different, but got dim0 = 0 and dim1 = -2"},
              {{m.make({2, 3}), 1, {0}}, ErrorKind::value, "expected total rotation dims == 2"}};
        })
        .reference([](const Call& c) -> Refs {
          Tensor x = c.tensor(0);
          const size_t a = size_t((c.ints(2)[0] + x.dim()) % x.dim()),
                       b = size_t((c.ints(2)[1] + x.dim()) % x.dim());
          for (int64_t k = (c.integer(1) % 4 + 4) % 4; k > 0; --k) {
            Shape sizes(x.sizes());
            std::swap(sizes[a], sizes[b]);
            x = build_tensor(sizes, [&](Shape i) {
              std::swap(i[a], i[b]);
              i[b] = x.sizes()[b] - 1 - i[b];
              return at(x, i);
            });
          }
          return {x};
        });

}  // namespace
}  // namespace arete::ops
