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
        .in_place();

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
