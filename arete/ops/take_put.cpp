// Positions in the flattened tensor (take, put), and gather with broadcasting.
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {
namespace {

void check_long(const Call& c, const Tensor& index) {
  ARETE_CHECK(
      is_integer(index.dtype()),
      TypeError(c.name(), std::string(c.name()) + "(): Expected a long tensor for index, but got " +
                              std::string(name_of(index.dtype())))
          .argument("index"));
}

const OpRecord& take_op =
    define("take(Tensor self, Tensor index) -> Tensor")
        .doc("The elements at positions in the flattened self, in the shape of index.")
        .compose([](const Call& c) -> Results {
          const Tensor &self = c.tensor(0), &index = c.tensor(1);
          check_long(c, index);
          ARETE_CHECK(self.numel() > 0 || index.numel() == 0,
                      IndexError(c.name(), "take(): tried to take from an empty tensor"));
          return {index_select(self.reshape({-1}), 0, index.reshape({-1})).reshape(index.sizes())};
        })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}), m.make_index({2, 3}, 12)}, "matrix"},
                  {{m.make_strided({2, 3}), m.make_index({4}, 6).sub(Scalar(6))}, "from the end"},
                  {{m.make({3}), m.make_index({}, 3)}, "0-d index"},
                  {{m.make({}), m.make_index({2}, 1)}, "0-d"},
                  {{m.make({0}), m.make_index({0, 2}, 1)}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), m.make_mask({2})},
                   ErrorKind::type,
                   "take(): Expected a long tensor for index"},
                  {{m.make({0}), m.make_index({2}, 1)},
                   ErrorKind::index,
                   "take(): tried to take from an empty tensor"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> x = values_of(c.tensor(0));
          return {build_tensor(c.tensor(1).sizes(), [&](const Shape& i) {
            return x[size_t(wrapped(at(c.tensor(1), i), int64_t(x.size())))];
          })};
        });

const OpRecord& put_op =
    define("put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor")
        .doc(
            "self with the elements at positions in the flattened self replaced by those of source "
            "in order, or with accumulate added to.")
        .compose([](const Call& c) -> Results {
          const Tensor &self = c.tensor(0), &index = c.tensor(1), &source = c.tensor(2);
          check_long(c, index);
          check_same_dtype(c, self, source);
          ARETE_CHECK(
              index.numel() == source.numel(),
              ValueError(c.name(),
                         "put_(): Expected source and index to have the same number of elements, "
                         "but got source.numel() = " +
                             std::to_string(source.numel()) +
                             ", index.numel() = " + std::to_string(index.numel())));
          ARETE_CHECK(self.numel() > 0 || index.numel() == 0,
                      IndexError(c.name(), "put_(): tried to put elements into an empty tensor"));
          const Tensor flat = self.reshape({-1}), to = index.reshape({-1}),
                       from = source.reshape({-1});
          const Tensor done =
              c.boolean(3) ? index_add(flat, 0, to, from) : index_copy(flat, 0, to, from);
          return {ordered_like(self, done.reshape(self.sizes()))};
        })
        .in_place()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor distinct = tensor({{3, 0}, {-1, 4}}, TensorOptions(kInt64, m.device));
          return {{{m.make({2, 3}), distinct, m.make({2, 2}), false}, "matrix"},
                  {{m.make_strided({2, 3}), distinct, m.make({4}), false}, "strided"},
                  {{m.make({2, 3}), m.make_index({5}, 6), m.make({5}), true}, "accumulate"},
                  {{m.make({}), m.make_index({1}, 1), m.make({}), true}, "0-d"},
                  {{m.make({2}), m.make_index({0}, 1), m.make({0}), false}, "nothing"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), m.make_index({2}, 3), m.make({3}), false},
                   ErrorKind::value,
                   "Expected source and index to have the same number of elements, but got "
                   "source.numel() = 3, index.numel() = 2"},
                  {{m.make({3}), m.make_mask({2}), m.make({2}), false},
                   ErrorKind::type,
                   "put(): Expected a long tensor for index"},
                  {{m.make({3}), m.make_index({2}, 3), m.make_mask({2}), false},
                   ErrorKind::type,
                   "Expected self.dtype to be equal to src.dtype"},
                  {{m.make({0}), m.make_index({1}, 3), m.make({1}), false},
                   ErrorKind::index,
                   "tried to put elements into an empty tensor"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          std::vector<double> v = values_of(c.tensor(0));
          const std::vector<double> k = values_of(c.tensor(1)), s = values_of(c.tensor(2));
          for (size_t i = 0; i < k.size(); ++i) {
            double& old = v[size_t(wrapped(k[i], int64_t(v.size())))];
            old = c.boolean(3) ? old + s[i] : s[i];
          }
          return {from_values(v, c.tensor(0).sizes())};
        });

const OpRecord& take_along_dim_op =
    define("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor")
        .doc("gather with broadcasting of self and indices; without dim over the flattened self.")
        .compose([](const Call& c) -> Results {
          const Tensor &self = c.tensor(0), &index = c.tensor(1);
          ARETE_CHECK(is_integer(index.dtype()),
                      TypeError(c.name(),
                                "torch.take_along_dim(): dtype of indices should be Long but got " +
                                    std::string(name_of(index.dtype())))
                          .argument("indices"));
          if (!c.has(2)) return {gather(self.reshape({-1}), 0, index.reshape({-1}))};
          ARETE_CHECK(
              self.dim() == index.dim(),
              ValueError(c.name(),
                         "torch.take_along_dim(): input and indices should have the same number of "
                         "dimensions, but got " +
                             std::to_string(self.dim()) + " dimensions for input, and " +
                             std::to_string(index.dim()) + " dimensions for indices"));
          const int d = normalize_dim(c.integer(2), int(self.dim()), c.name());
          Shape a(self.sizes()), b(index.sizes());
          if (a.empty()) return {gather(self, 0, index)};
          const int64_t n = a[size_t(d)], k = b[size_t(d)];
          a[size_t(d)] = b[size_t(d)] = 1;
          Shape from = broadcast_shapes(a, b, c.name()), to = from;
          from[size_t(d)] = n;
          to[size_t(d)] = k;
          return {gather(self.expand(from), d, index.expand(to))};
        })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}), m.make_index({2, 1}, 3), 0}, "index broadcast"},
                  {{m.make_strided({1, 3}), m.make_index({2, 5}, 3), -1}, "self broadcast"},
                  {{m.make({2, 3}), m.make_index({2, 2}, 6), std::nullopt}, "flattened"},
                  {{m.make({}), m.make_index({}, 1), 0}, "0-d"},
                  {{m.make({2, 3}), m.make_index({2, 0}, 3), 1}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make_index({2}, 3), 0},
                   ErrorKind::value,
                   "torch.take_along_dim(): input and indices should have the same number of "
                   "dimensions, but got 2 dimensions for input, and 1 dimensions for indices"},
                  {{m.make({2}), m.make_mask({2}), 0},
                   ErrorKind::type,
                   "torch.take_along_dim(): dtype of indices should be Long"},
                  {{m.make({2, 3}), m.make_index({3, 2}, 3), 1},
                   ErrorKind::value,
                   "The size of tensor a (2) must match the size of tensor b (3)"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x = c.tensor(0), &index = c.tensor(1);
          if (!c.has(2)) {
            const std::vector<double> v = values_of(x);
            return {build_tensor({index.numel()}, [&](const Shape& i) {
              return v[size_t(wrapped(values_of(index)[size_t(i[0])], int64_t(v.size())))];
            })};
          }
          if (x.dim() == 0) return {from_values(values_of(x), {})};
          const int d = normalize_dim(c.integer(2), int(x.dim()), "take_along_dim");
          Shape sizes;
          for (int e = 0; e < int(x.dim()); ++e)
            sizes.push_back(e == d               ? index.size(e)
                            : index.size(e) == 1 ? x.size(e)
                                                 : index.size(e));
          return {build_tensor(sizes, [&](const Shape& i) {
            Shape from = i;
            from[size_t(d)] = wrapped(at(index, i), x.size(d));
            return at(x, from);
          })};
        });

}  // namespace
}  // namespace ops

Tensor take(const Tensor& self, const Tensor& index) {
  return ops::call(ops::take_op, {self, index});
}
Tensor put(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  return ops::call(ops::put_op, {self, index, source, accumulate});
}
Tensor take_along_dim(const Tensor& self, const Tensor& index, std::optional<int64_t> dim) {
  return ops::call(ops::take_along_dim_op, {self, index, dim});
}
Tensor Tensor::take_along_dim(const Tensor& index, std::optional<int64_t> dim) const {
  return arete::take_along_dim(*this, index, dim);
}

}  // namespace arete

ARETE_FAMILY(take_put)
