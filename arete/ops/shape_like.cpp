// Shapes taken from other tensors, reversed orders, and what depends on counts or positions.
#include <algorithm>
#include <functional>

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reference_util.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

using Refs = std::vector<Tensor>;

// ---- the sizes of another tensor: (self, other)

const OpRecord& view_as_op =
    define("view_as(Tensor self, Tensor other) -> Tensor")
        .doc("view with the sizes of other.")
        .compose([](const Call& c) -> Results { return {view(c.tensor(0), c.tensor(1).sizes())}; })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 6}), m.make({3, 4})}, "usual"}, {{m.make({1}), m.make({})}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({4})},
                   ErrorKind::value,
                   "shape '[4]' is invalid for input of size 6"}};
        })
        .reference([](const Call& c) -> Refs {
          return {from_values(values_of(c.tensor(0)), c.tensor(1).sizes())};
        });

const OpRecord& reshape_as_op =
    define("reshape_as(Tensor self, Tensor other) -> Tensor")
        .doc("reshape with the sizes of other.")
        .compose(
            [](const Call& c) -> Results { return {reshape(c.tensor(0), c.tensor(1).sizes())}; })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 6}), m.make({3, 4})}, "view"},
                  {{m.make_strided({4, 3}), m.make({6, 2})}, "copy"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({4})},
                   ErrorKind::value,
                   "shape '[4]' is invalid for input of size 6"}};
        })
        .reference([](const Call& c) -> Refs {
          return {from_values(values_of(c.tensor(0)), c.tensor(1).sizes())};
        });

const OpRecord& expand_as_op =
    define("expand_as(Tensor self, Tensor other) -> Tensor")
        .doc("expand to the sizes of other.")
        .compose(
            [](const Call& c) -> Results { return {expand(c.tensor(0), c.tensor(1).sizes())}; })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 1}), m.make({2, 3, 2})}, "usual"},
                  {{m.make({}), m.make({2})}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), m.make({2})},
                   ErrorKind::value,
                   "The expanded size of the tensor (2) must match the existing size (3)"}};
        })
        .reference([](const Call& c) -> Refs {
          return {build_tensor(c.tensor(1).sizes(),
                               [&](const Shape& i) { return at(c.tensor(0), i); })};
        });

const OpRecord& ravel_op =
    define("ravel(Tensor self) -> Tensor")
        .doc("One dimension, row-major; a copy only where a view is not possible.")
        .compose([](const Call& c) -> Results { return {reshape(c.tensor(0), {-1})}; })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3})}, "view"},
                  {{m.make_strided({2, 3})}, "copy"},
                  {{m.make({})}, "0-d"},
                  {{m.make({0, 2})}, "empty"}};
        })
        .reference([](const Call& c) -> Refs {
          return {from_values(values_of(c.tensor(0)), {c.tensor(0).numel()})};
        });

// ---- reversed

const OpRecord& T_op = define("T(Tensor self) -> Tensor")
                           .doc("All dimensions in reverse order.")
                           .compose([](const Call& c) -> Results {
                             Shape order;
                             for (int64_t d = c.tensor(0).dim(); d-- > 0;) order.push_back(d);
                             return {permute(c.tensor(0), order)};
                           })
                           .samples([](SampleMaker& m) -> std::vector<Sample> {
                             return {{{m.make({2, 3})}, "matrix"},
                                     {{m.make_strided({2, 1, 3})}, "3-d"},
                                     {{m.make({})}, "0-d"}};
                           })
                           .reference([](const Call& c) -> Refs {
                             const Tensor& x = c.tensor(0);
                             Shape sizes(x.sizes());
                             std::reverse(sizes.begin(), sizes.end());
                             return {build_tensor(sizes, [&](Shape i) {
                               std::reverse(i.begin(), i.end());
                               return at(x, i);
                             })};
                           });

Refs flipped(const Call& c, size_t d) {
  const Tensor& x = c.tensor(0);
  return {build_tensor(x.sizes(), [&](Shape i) {
    i[d] = x.sizes()[d] - 1 - i[d];
    return at(x, i);
  })};
}

const OpRecord& fliplr_op =
    define("fliplr(Tensor self) -> Tensor")
        .doc("Columns reversed.")
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(c.tensor(0).dim() >= 2, ValueError(c.name(), "Input must be >= 2-d."));
          return {flip(c.tensor(0), {1})};
        })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3})}, "matrix"}, {{m.make_strided({2, 3, 2})}, "3-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3})}, ErrorKind::value, "Input must be >= 2-d."}};
        })
        .reference([](const Call& c) { return flipped(c, 1); });

const OpRecord& flipud_op =
    define("flipud(Tensor self) -> Tensor")
        .doc("Rows reversed.")
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(c.tensor(0).dim() >= 1, ValueError(c.name(), "Input must be >= 1-d."));
          return {flip(c.tensor(0), {0})};
        })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3})}, "matrix"}, {{m.make_strided({3})}, "vector"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({})}, ErrorKind::value, "Input must be >= 1-d."}};
        })
        .reference([](const Call& c) { return flipped(c, 0); });

// ---- counts and positions

const OpRecord& repeat_interleave_tensor_op =
    define(
        "repeat_interleave_tensor(Tensor self, Tensor repeats, int? dim=None, *, int? "
        "output_size=None) -> Tensor")
        .doc("Every element as often as its count says; the counts are read on the host.")
        .compose([](const Call& c) -> Results {
          const Tensor &self = c.tensor(0), &repeats = c.tensor(1);
          const bool along = c.has(2) && self.dim() > 0;
          const Tensor x = along ? self : ravel(self);
          const int d = normalize_dim(along ? c.integer(2) : 0, int(x.dim()), c.name());
          ARETE_CHECK(is_integer(repeats.dtype()) && repeats.dim() <= 1,
                      ValueError(c.name(), "repeats must be 0-dim or 1-dim tensor of integers")
                          .got(describe(repeats)));
          std::vector<int64_t> counts = repeats.to_vector<int64_t>();
          if (counts.size() == 1) counts.resize(size_t(x.size(d)), counts[0]);
          ARETE_CHECK(int64_t(counts.size()) == x.size(d),
                      ValueError(c.name(), "repeats must have the same size as input along dim")
                          .got(std::to_string(counts.size()) + " counts for size " +
                               std::to_string(x.size(d))));
          std::vector<int64_t> index;
          for (size_t i = 0; i < counts.size(); ++i) {
            ARETE_CHECK(counts[i] >= 0,
                        ValueError(c.name(), "repeats can not be negative").argument("repeats"));
            index.insert(index.end(), size_t(counts[i]), int64_t(i));
          }
          ARETE_CHECK(!c.has(3) || c.integer(3) == int64_t(index.size()),
                      ValueError(c.name(), "allocated size does not match required size")
                          .argument("output_size")
                          .expected(std::to_string(index.size())));
          return {index_select(x, d, tensor(index, TensorOptions(kInt64, x.device())))};
        })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const TensorOptions o(kInt64, m.device);
          return {{{m.make({2, 3}), tensor({2, 0, 1}, o), 1, std::nullopt}, "columns"},
                  {{m.make_strided({2, 2}), tensor({1, 2, 0, 3}, o), std::nullopt, 6}, "flattened"},
                  {{m.make({3}), tensor({2}, o), -1, std::nullopt}, "one count"},
                  {{m.make({}), tensor({2}, o), 0, std::nullopt}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const TensorOptions o(kInt64, m.device);
          return {{{m.make({3}), tensor({1, 2}, o), 0, std::nullopt},
                   ErrorKind::value,
                   "repeats must have the same size as input along dim"},
                  {{m.make({2}), tensor({1, -2}, o), 0, std::nullopt},
                   ErrorKind::value,
                   "repeats can not be negative"},
                  {{m.make({2}), m.make({2}), 0, std::nullopt},
                   ErrorKind::value,
                   "repeats must be 0-dim or 1-dim tensor of integers"}};
        })
        .reference([](const Call& c) -> Refs {
          Tensor x = c.tensor(0);
          if (!c.has(2) || x.dim() == 0) x = from_values(values_of(x), {x.numel()});
          const int d = c.has(2) ? normalize_dim(c.integer(2), int(x.dim()), "") : 0;
          const std::vector<double> counts = values_of(c.tensor(1));
          std::vector<int64_t> from;
          for (int64_t i = 0; i < x.size(d); ++i)
            from.insert(from.end(), size_t(counts[counts.size() == 1 ? 0 : size_t(i)]), i);
          Shape sizes(x.sizes());
          sizes[size_t(d)] = int64_t(from.size());
          return {build_tensor(sizes, [&](Shape i) {
            i[size_t(d)] = from[size_t(i[size_t(d)])];
            return at(x, i);
          })};
        });

const OpRecord& narrow_tensor_op =
    define("narrow_tensor(Tensor self, int dim, Tensor start, int length) -> Tensor")
        .doc("narrow with a start that is a 0-d tensor, read on the host.")
        .compose([](const Call& c) -> Results {
          const Tensor& start = c.tensor(2);
          ARETE_CHECK(start.dim() == 0 && is_integer(start.dtype()),
                      ValueError(c.name(), "start must be an 0-dim integral Tensor.")
                          .argument("start")
                          .got(describe(start)));
          return {narrow(c.tensor(0), c.integer(1), start.item<int64_t>(), c.integer(3))};
        })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const TensorOptions o(kInt64, m.device);
          return {{{m.make({5, 2}), 0, tensor(1, o), 3}, "usual"},
                  {{m.make_strided({2, 5}), -1, tensor(-2, o), 2}, "negative"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), 0, m.make({}), 1},
                   ErrorKind::value,
                   "start must be an 0-dim integral Tensor."}};
        })
        .reference([](const Call& c) -> Refs {
          const Tensor& x = c.tensor(0);
          const size_t d = size_t(normalize_dim(c.integer(1), int(x.dim()), ""));
          Shape sizes(x.sizes());
          double start = values_of(c.tensor(2))[0];
          if (start < 0) start += double(sizes[d]);
          sizes[d] = c.integer(3);
          return {build_tensor(sizes, [&](Shape i) {
            i[d] += int64_t(start);
            return at(x, i);
          })};
        });

const OpRecord& unravel_index_op =
    define("unravel_index(Tensor indices, int[] shape) -> Tensor[]")
        .doc("The coordinates in `shape` of flat row-major positions.")
        .compose([](const Call& c) -> Results {
          const Tensor& flat = c.tensor(0);
          ARETE_CHECK(is_integer(flat.dtype()),
                      ValueError(c.name(), "expected 'indices' to be integer dtype, but got " +
                                               std::string(name_of(flat.dtype())))
                          .argument("indices"));
          for (int64_t s : c.ints(1))
            ARETE_CHECK(s >= 0,
                        ValueError(c.name(), "'shape' cannot have negative values, but got " +
                                                 to_string(c.ints(1)))
                            .argument("shape"));
          Results out(c.ints(1).size());
          const Tensor wide = flat.to(kInt64);
          int64_t stride = 1;
          for (size_t d = out.size(); d-- > 0;) {
            const Tensor t = stride == 1 ? wide : wide.floor_divide(Scalar(stride));
            out[d] = t.remainder(Scalar(c.ints(1)[d]));
            stride *= c.ints(1)[d];
          }
          return out;
        })
        .dtypes({kInt64, kInt32})
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}, 0, 24), {2, 3, 4}}, "3-d"},
                  {{m.make_strided({4}, 0, 5), {5}}, "1-d"},
                  {{m.make({}, 0, 6), {2, 3}}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make_mask({2}), {2}}, ErrorKind::value, "expected 'indices' to be integer"},
                  {{m.make({2}), {-2}},
                   ErrorKind::value,
                   "'shape' cannot have negative values, but got [-2]"}};
        })
        .reference([](const Call& c) {
          Refs out;
          for (size_t d = 0; d < c.ints(1).size(); ++d)
            out.push_back(build_tensor(
                c.tensor(0).sizes(),
                [&](const Shape& i) {
                  int64_t k = int64_t(at(c.tensor(0), i));
                  for (size_t e = c.ints(1).size(); e-- > d + 1;) k /= c.ints(1)[e];
                  return k % c.ints(1)[d];
                },
                kInt64));
          return out;
        });

}  // namespace
}  // namespace ops

Tensor view_as(const Tensor& self, const Tensor& other) {
  return ops::call(ops::view_as_op, {self, other});
}
Tensor reshape_as(const Tensor& self, const Tensor& other) {
  return ops::call(ops::reshape_as_op, {self, other});
}
Tensor expand_as(const Tensor& self, const Tensor& other) {
  return ops::call(ops::expand_as_op, {self, other});
}
Tensor ravel(const Tensor& self) { return ops::call(ops::ravel_op, {self}); }
Tensor numpy_T(const Tensor& self) { return ops::call(ops::T_op, {self}); }
Tensor fliplr(const Tensor& self) { return ops::call(ops::fliplr_op, {self}); }
Tensor flipud(const Tensor& self) { return ops::call(ops::flipud_op, {self}); }
Tensor repeat_interleave(const Tensor& self, const Tensor& repeats, std::optional<int64_t> dim) {
  return ops::call(ops::repeat_interleave_tensor_op, {self, repeats, dim, std::nullopt});
}
std::vector<Tensor> unravel_index(const Tensor& indices, IntList shape) {
  const ops::Results r = ops::call_all(ops::unravel_index_op, {indices, shape});
  return {r.begin(), r.end()};
}

}  // namespace arete

ARETE_FAMILY(shape_like)
