// Filling with a value that is a 0-d tensor, which gets a gradient.
#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

// Argument `i` as a value of self's dtype on self's device. `checks`: that an integer holds it.
Tensor value_of(const Call& c, size_t i, const std::string& text, bool checks = true) {
  const Tensor &self = c.tensor(0), &value = c.tensor(i);
  ARETE_CHECK(value.dim() == 0,
              ValueError(c.name(), text + " but got tensor with " + std::to_string(value.dim()) +
                                       " dimension(s).")
                  .argument("value"));
  ARETE_CHECK(!is_complex(value.dtype()) || is_complex(self.dtype()),
              TypeError(c.name(), "value cannot be converted to type " +
                                      std::string(name_of(self.dtype())) + " without overflow")
                  .argument("value")
                  .got(describe(value)));
  // As of a number the fraction is cut off. A GPU is not waited for to look at it, and a program
  // that is recorded has no value yet.
  if (checks && value.device().is_cpu() && !(modes().word & Modes::kCapture) &&
      is_floating(value.dtype()) && is_integer(self.dtype()))
    check_holds(self.dtype(), value.item(), c.name());
  return value.to(self.device(), self.dtype());
}

const OpRecord& fill_tensor_op =
    define("fill.Tensor(Tensor self, Tensor value) -> Tensor")
        .doc("Every element set to a 0-d tensor's value.")
        .compose([](const Call& c) -> Results {
          const Tensor v = value_of(c, 1, "fill only supports 0-dimension value tensor", false);
          return {v.expand(c.tensor(0).sizes()).clone(MemoryFormat::contiguous)};
        })
        .in_place();

const OpRecord& masked_fill_tensor_op =
    define("masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor")
        .doc("self with a 0-d tensor's value where mask holds.")
        .compose([](const Call& c) -> Results {
          const Tensor& mask = c.tensor(1);
          ARETE_CHECK(mask.dtype() == kBool,
                      TypeError(c.name(),
                                "masked_fill_ only supports boolean masks, but got mask "
                                "with dtype " +
                                    std::string(name_of(mask.dtype())))
                          .argument("mask"));
          const Tensor v =
              value_of(c, 2, "masked_fill_ only supports a 0-dimensional value tensor,");
          return {where(mask, v, c.tensor(0))};
        })
        .in_place();

const OpRecord& index_fill_tensor_op =
    define("index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor")
        .doc("self with slices at given positions of a dimension set to a 0-d tensor's value.")
        .compose([](const Call& c) -> Results {
          const Tensor& self = c.tensor(0);
          const Tensor v =
              value_of(c, 3, "index_fill_ only supports a 0-dimensional value tensor,");
          const int d = dim_argument(c);
          // A mask along the dimension; one error text for all index_* operators.
          const int64_t n = self.dim() ? self.size(d) : 1;
          const Tensor named = index_fill(zeros_to_copy({n}, TensorOptions(kBool, self.device())),
                                          0, c.tensor(2), Scalar(true));
          Shape shape(size_t(self.dim()), 1);
          if (self.dim()) shape[size_t(d)] = n;
          return {where(named.reshape(shape), v, self)};
        })
        .in_place();

}  // namespace
}  // namespace ops

Tensor fill(const Tensor& self, const Tensor& value) {
  return ops::call(ops::fill_tensor_op, {self, value});
}
Tensor masked_fill(const Tensor& self, const Tensor& mask, const Tensor& value) {
  return ops::call(ops::masked_fill_tensor_op, {self, mask, value});
}
Tensor index_fill(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  return ops::call(ops::index_fill_tensor_op, {self, dim, index, value});
}

}  // namespace arete

ARETE_FAMILY(fill)
