// Shapes taken from other tensors, reversed orders, and what depends on counts or positions.
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/search.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap.h"

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

// The numbers 0, 1, ... as often as the counts (1-d, int64) say. Without `size`, their sum, it is
// read on the host.
Tensor numbers_by_count(const Call& c, const Tensor& counts, std::optional<int64_t> size) {
  const bool captures = modes().word & Modes::kCapture;
  const bool looks = !size || (counts.device().is_cpu() && !captures);
  if (looks && counts.numel() > 0) {
    // Of a batch, those of all elements.
    const std::vector<int64_t> seen =
        all_values(stack({counts.min(), counts.sum()})).to_vector<int64_t>();
    for (size_t i = 0; i < seen.size(); i += 2) {
      ARETE_CHECK(seen[i] >= 0,
                  ValueError(c.name(), "repeats can not be negative").argument("repeats"));
      const int64_t sum = seen[i + 1];
      ARETE_CHECK(!size || *size == sum,
                  ValueError(c.name(), "allocated size does not match required size")
                      .argument("output_size")
                      .expected(std::to_string(sum)));
      size = sum;
    }
  }
  const Tensor row = RaggedRows(counts, size.value_or(0)).row;
  if (looks || *size == 0) return row;
  // Nobody has looked: what is false is a position out of range here.
  const Tensor excess = counts.sum().sub(Scalar(*size)).abs().add(counts.lt(Scalar(0)).sum());
  return row.add(zeros({1}, counts.options()).index_select(0, excess.reshape({1})));
}

const OpRecord& repeat_interleave_tensor_op =
    define(
        "repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, int? "
        "output_size=None) -> Tensor")
        .doc(
            "Every element as often as its count says; without output_size their sum is read on "
            "the "
            "host.")
        .compose([](const Call& c) -> Results {
          const Tensor &self = c.tensor(0), &repeats = c.tensor(1);
          const bool along = c.has(2) && self.dim() > 0;
          const Tensor x = along ? self : ravel(self);
          const int d = normalize_dim(along ? c.integer(2) : 0, int(x.dim()), c.name());
          ARETE_CHECK(is_integer(repeats.dtype()) && repeats.dim() <= 1,
                      ValueError(c.name(), "repeats must be 0-dim or 1-dim tensor of integers")
                          .got(describe(repeats)));
          ARETE_CHECK(repeats.numel() == 1 || repeats.numel() == x.size(d),
                      ValueError(c.name(), "repeats must have the same size as input along dim")
                          .got(std::to_string(repeats.numel()) + " counts for size " +
                               std::to_string(x.size(d))));
          const Tensor counts = repeats.to(kInt64).reshape({-1}).expand({x.size(d)}).contiguous();
          const std::optional<int64_t> size = c.has(3) ? std::optional(c.integer(3)) : std::nullopt;
          return {index_select(x, d, numbers_by_count(c, counts, size))};
        });

const OpRecord& repeat_interleave_counts_op =
    define("repeat_interleave.Tensor(Tensor repeats, *, int? output_size=None) -> Tensor")
        .doc("The numbers 0, 1, ... as often as the counts say.")
        .compose([](const Call& c) -> Results {
          const Tensor& repeats = c.tensor(0);
          ARETE_CHECK(repeats.dim() == 1,
                      ValueError(c.name(), "repeat_interleave only accept 1D vector as repeat")
                          .got(describe(repeats)));
          ARETE_CHECK(
              repeats.dtype() == kInt64 || repeats.dtype() == kInt32,
              TypeError(c.name(), "repeats has to be Long or Int tensor").got(describe(repeats)));
          const std::optional<int64_t> size = c.has(1) ? std::optional(c.integer(1)) : std::nullopt;
          return {numbers_by_count(c, repeats.to(kInt64).contiguous(), size).to(repeats.dtype())};
        })
        .dtypes({kInt64});

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
