// Shapes taken from other tensors, reversed orders, and what depends on counts or positions.
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

// ---- the sizes of another tensor: (self, other)

const OpRecord& view_as_op =
    define("view_as(Tensor self, Tensor other) -> Tensor")
        .doc("view with the sizes of other.")
        .compose([](const Call& c) -> Results { return {view(c.tensor(0), c.tensor(1).sizes())}; });

const OpRecord& reshape_as_op = define("reshape_as(Tensor self, Tensor other) -> Tensor")
                                    .doc("reshape with the sizes of other.")
                                    .compose([](const Call& c) -> Results {
                                      return {reshape(c.tensor(0), c.tensor(1).sizes())};
                                    });

const OpRecord& expand_as_op = define("expand_as(Tensor self, Tensor other) -> Tensor")
                                   .doc("expand to the sizes of other.")
                                   .compose([](const Call& c) -> Results {
                                     return {expand(c.tensor(0), c.tensor(1).sizes())};
                                   });

const OpRecord& ravel_op =
    define("ravel(Tensor self) -> Tensor")
        .doc("One dimension, row-major; a copy only where a view is not possible.")
        .compose([](const Call& c) -> Results { return {reshape(c.tensor(0), {-1})}; });

// ---- reversed

const OpRecord& T_op = define("T(Tensor self) -> Tensor")
                           .doc("All dimensions in reverse order.")
                           .compose([](const Call& c) -> Results {
                             Shape order;
                             for (int64_t d = c.tensor(0).dim(); d-- > 0;) order.push_back(d);
                             return {permute(c.tensor(0), order)};
                           });

const OpRecord& fliplr_op =
    define("fliplr(Tensor self) -> Tensor")
        .doc("Columns reversed.")
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(c.tensor(0).dim() >= 2, ValueError(c.name(), "Input must be >= 2-d."));
          return {flip(c.tensor(0), {1})};
        });

const OpRecord& flipud_op =
    define("flipud(Tensor self) -> Tensor")
        .doc("Rows reversed.")
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(c.tensor(0).dim() >= 1, ValueError(c.name(), "Input must be >= 1-d."));
          return {flip(c.tensor(0), {0})};
        });

// ---- counts and positions

const OpRecord& repeat_interleave_tensor_op =
    define(
        "repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, int? "
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
        });

const OpRecord& narrow_tensor_op =
    define("narrow.Tensor(Tensor self, int dim, Tensor start, int length) -> Tensor")
        .doc("narrow with a start that is a 0-d tensor, read on the host.")
        .compose([](const Call& c) -> Results {
          const Tensor& start = c.tensor(2);
          ARETE_CHECK(start.dim() == 0 && is_integer(start.dtype()),
                      ValueError(c.name(), "start must be an 0-dim integral Tensor.")
                          .argument("start")
                          .got(describe(start)));
          return {narrow(c.tensor(0), c.integer(1), start.item<int64_t>(), c.integer(3))};
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
        .dtypes({kInt64, kInt32});

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
