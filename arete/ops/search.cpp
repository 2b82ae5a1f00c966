#include "arete/ops/search.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/sort.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/work.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
Results search_rule(const Rewriting& r) {
  if (rank_of(r.at(0)) == 1 && !r.is_mapped(0)) {
    Changed call(r);
    return call.run();
  }
  if (rank_of(r.at(0)) == 1) {
    Changed call(r);
    call.set(0, r.whole(0));
    call.set(1, r.whole(1).reshape({r.batch, -1}));
    return call.run();
  }
  return leading_of_rows(r);
}
}  // namespace
}  // namespace vmaps
namespace {

// The binary search of one value: each step looks at the middle of what is left of its row.
const expr::Program& search_program(DType sorted, DType values, DType out, int64_t n, bool right,
                                    bool has_rows) {
  using expr::Type;
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;
  const int steps = std::bit_width(uint64_t(n));
  std::vector<DType> inputs{values, sorted};
  if (has_rows) inputs.push_back(kInt64);
  return cache.get(
      pack_key({int(sorted), int(values), int(out), steps / 32, steps % 32, right, has_rows}),
      inputs, {Type::i64}, {out},
      [&](std::span<const Value> v) {
        expr::Builder& b = *v[0].builder();
        const DType common = promote_types(sorted, values);
        const auto in_common = [&](Value x) {
          return b.round_to(expr::cast(x, expr::compute_type(common)), common);
        };
        const Value value = in_common(v[0]), size = v.back();
        const Value row = has_rows ? v[2] * size : b.constant(Type::i64, 0);
        // Positions of 32 bits where they do: half the instructions of a GPU.
        const Type position = steps < 31 ? Type::i32 : Type::i64;
        Value low = b.constant(position, 0), high = expr::cast(size, position);
        const Value last = high + -1.0;
        for (int k = 0; k < steps; ++k) {
          const Value middle = (low + high) >> b.constant(position, 1);
          const Value place = expr::cast(expr::min(middle, last), Type::i64);
          const Value at = in_common(expr::load(v[1], row + place));
          // Negated, so that NaN on either side goes on to the right, as in PyTorch.
          const Value over = right ? at > value : at >= value;
          const Value before = (!over) & (middle < high);
          low = expr::where(before, middle + 1.0, low);
          high = expr::where(before, high, middle);
        }
        return std::vector{low};
      },
      0b10);
}

const OpRecord& insertion_points_op =
    define("insertion_points(Tensor sorted, Tensor values, bool right, bool int32) -> Tensor")
        .doc("Where values belong in the last dimension of sorted, which is 1-d or has their rows.")
        .surface(Surface::internal)
        .batched(vmaps::search_rule)
        .infer([](const Call& c, OutputSpecs& out) {
          for (const Tensor* t : {&c.tensor(0), &c.tensor(1)})
            ARETE_CHECK(
                !is_complex(t->dtype()),
                NotImplementedError(c.name(), "complex numbers have no order").got(describe(*t)));
          out.push_back({Shape(c.tensor(1).sizes()), c.boolean(3) ? kInt32 : kInt64});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor &sorted = c.tensor(0), &values = c.tensor(1);
          const int64_t n = sorted.size(-1);
          if (n == 0 || values.numel() == 0) {
            p.fill(filling(view_of(out[0]), 0, c.name()));
            return;
          }
          std::optional<prim::ScratchView> copied;
          std::optional<prim::Positions> rows;
          prim::View table = view_of(sorted);
          if (!sorted.is_contiguous()) {
            copied.emplace(p, sorted.dtype(), sorted.sizes());
            p.copy({*copied, table});
            table = copied->view();
          }
          SmallVector<prim::View, 3> inputs{view_of(values), table};
          Shape row_sizes, row_strides;
          if (sorted.dim() > 1) {
            const int64_t count = sorted.numel() / n;
            rows.emplace(p, kInt64, count);
            prim::View view = rows->all();
            row_sizes = Shape(sorted.sizes());
            row_sizes.back() = 1;
            row_strides = contiguous_strides(row_sizes);
            view.sizes = row_sizes;
            view.strides = row_strides;
            inputs.push_back(view);
          }
          const expr::Literal params[] = {{.i = n}};
          const prim::View result = view_of(out[0]);
          p.pointwise({&search_program(sorted.dtype(), values.dtype(), out[0].dtype(), n,
                                       c.boolean(2), rows.has_value()),
                       inputs,
                       {&result, 1},
                       params});
        });

Tensor insertion_points(const Tensor& sorted, const Tensor& values, bool right,
                        bool int32 = false) {
  return call(insertion_points_op, {sorted, values, right, int32});
}

const OpRecord& places_of_numbers_op =
    define("places_of_numbers(Tensor sorted, int count, bool int32) -> Tensor")
        .indexed({0})
        .doc("How many elements of sorted, 1-d, are at most each of the numbers 0 to count - 1.")
        .flops(no_flops)
        .surface(Surface::internal)
        .one_by_one("the numbers are counted in one sorted list")
        .infer([](const Call& c, OutputSpecs& out) {
          ARETE_CHECK(c.tensor(0).dim() == 1 && c.integer(1) >= 0,
                      ValueError(c.name(), "expected one dimension and a number of elements")
                          .got(describe(c.tensor(0))));
          out.push_back({Shape{c.integer(1)}, c.boolean(2) ? kInt32 : kInt64});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const int64_t n = c.tensor(0).numel(), count = c.integer(1);
          const prim::View result = view_of(out[0]);
          if (n == 0 || count == 0) {
            p.fill(filling(result, 0, c.name()));
            return;
          }
          const Tensor sorted = plain(c.tensor(0), c.tensor(0).dtype());
          const prim::Positions numbers(p, kInt64, count);
          const prim::View inputs[] = {numbers.all(), view_of(sorted)};
          const expr::Literal params[] = {{.i = n}};
          p.pointwise({&search_program(sorted.dtype(), kInt64, out[0].dtype(), n, true, false),
                       inputs,
                       {&result, 1},
                       params});
        });

// A value that may be a number.
Tensor value_tensor(const Arg& a, const Tensor& beside) {
  if (a.kind() == Arg::Kind::tensor) return a.tensor().detach();
  const Scalar s = a.scalar();
  return full({}, s, TensorOptions(result_type({&beside, 1}, {&s, 1}), beside.device()));
}

const OpRecord& searchsorted_op =
    define(
        "searchsorted(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool "
        "right=False, str? side=None, Tensor? sorter=None) -> Tensor")
        .face(
            "searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, "
            "bool right=False, str? side=None, Tensor? sorter=None)")
        .doc("Positions at which values would be inserted in a sorted sequence.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          Tensor sorted = c.tensor(0).detach();
          const Tensor values = value_tensor(c[1], sorted);
          bool right = c.boolean(3);
          if (c.has(4)) {
            const std::string_view side = c[4].string();
            ARETE_CHECK(side == "left" || side == "right",
                        ValueError(c.name(),
                                   "torch.searchsorted(): side can only be 'left' or 'right' but "
                                   "got " +
                                       std::string(side))
                            .argument("side"));
            ARETE_CHECK(!right || side == "right",
                        ValueError(c.name(),
                                   "torch.searchsorted(): side and right can't be set to "
                                   "opposites, got side of left while right was True"));
            right = side == "right";
          }
          bool fits = sorted.dim() == 1 || (sorted.dim() > 1 && sorted.dim() == values.dim());
          for (int64_t d = 0; fits && sorted.dim() > 1 && d + 1 < sorted.dim(); ++d)
            fits = sorted.size(d) == values.size(d);
          ARETE_CHECK(
              fits, ValueError(c.name(),
                               "boundaries tensor should be 1 dimension or the first N-1 "
                               "dimensions of boundaries tensor and input value tensor must match")
                        .got(to_string(sorted.sizes()) + " and " + to_string(values.sizes())));
          if (c.has(5)) {
            const Tensor& sorter = c.tensor(5);
            ARETE_CHECK(sorter.layout().sizes == sorted.layout().sizes && sorter.dtype() == kInt64,
                        ValueError(c.name(),
                                   "torch.searchsorted(): boundary and sorter must have the same "
                                   "size, and sorter must be a tensor of long dtype")
                            .argument("sorter")
                            .got(describe(sorter)));
            sorted = gather(sorted, -1, sorter);
          }
          return {insertion_points(sorted, values, right, c.boolean(2))};
        });

const OpRecord& bucketize_op =
    define(
        "bucketize(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> "
        "Tensor")
        .face(
            "bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool "
            "right=False)")
        .doc("The interval between sorted boundaries in which each value lies.")
        .compose([](const Call& c) -> Results {
          const Tensor sorted = c.tensor(1).detach();
          ARETE_CHECK(sorted.dim() == 1,
                      ValueError(c.name(), "boundaries tensor must be 1 dimension, but got dim(" +
                                               std::to_string(sorted.dim()) + ")")
                          .argument("boundaries"));
          const Tensor values = value_tensor(c[0], sorted);
          return {insertion_points(sorted, values, c.boolean(3), c.boolean(2))};
        });

// Found: a value that stands where it would be inserted.
const OpRecord& isin_op =
    define(
        "isin(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool "
        "invert=False) -> Tensor")
        .face(
            "isin.Scalar_Tensor(Scalar elements, Tensor test_elements, *, bool "
            "assume_unique=False, bool invert=False)")
        .face(
            "isin.Tensor_Scalar(Tensor elements, Scalar test_elements, *, bool "
            "assume_unique=False, bool invert=False)")
        .doc("Whether each element is among the test elements.")
        .compose([](const Call& c) -> Results {
          const bool first = c[0].kind() == Arg::Kind::tensor;
          ARETE_CHECK(first || c[1].kind() == Arg::Kind::tensor,
                      TypeError(c.name(), "isin: at least one argument must be a Tensor"));
          const Tensor& beside = first ? c.tensor(0) : c.tensor(1);
          if (first && c[1].kind() != Arg::Kind::tensor && !is_complex(beside.dtype()) &&
              !c.scalar(1).is_complex())
            return {c.boolean(3) ? ne(beside, c.scalar(1)) : eq(beside, c.scalar(1))};
          Tensor elements = value_tensor(c[0], beside);
          Tensor test = value_tensor(c[1], beside).reshape({-1});
          const DType t = promote_types(elements.dtype(), test.dtype());
          ARETE_CHECK(!is_complex(t), TypeError(c.name(),
                                                "Unsupported input type encountered for "
                                                "isin(): complex numbers have no order"));
          if (t == kBool) {
            elements = elements.to(kUInt8);
            test = test.to(kUInt8);
          } else {
            elements = elements.to(t);
            test = test.to(t);
          }
          const int64_t n = test.numel();
          constexpr int64_t kFew = 3;  // comparisons that cost less than a search
          Tensor found;
          if (n == 0) found = zeros(elements.sizes(), TensorOptions(kBool, elements.device()));
          for (int64_t k = 0; k < n && n <= kFew; ++k) {
            const Tensor equal = elements.eq(test.select(0, k));
            found = k == 0 ? equal : found.logical_or(equal);
          }
          if (n > kFew) {
            const Tensor sorted = std::get<0>(sort(test, 0));
            const Tensor at = insertion_points(sorted, elements, false);
            found = take(sorted, at.clamp(std::nullopt, Scalar(n - 1))).eq(elements);
          }
          return {c.boolean(3) ? found.logical_not() : found};
        })
        .dtypes({kFloat32, kFloat64, kInt64, kInt32});

const OpRecord& number_counts_op =
    define("number_counts(Tensor self, int count) -> Tensor")
        .doc("How often each of the numbers 0 to count - 1 occurs; self has no others.")
        .surface(Surface::internal)
        .one_by_one("all values count in one table")
        .infer([](const Call& c, OutputSpecs& out) {
          out.push_back({Shape{c.integer(1)}, kInt64});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const prim::View to = view_of(out[0]), x = view_of(c.tensor(0));
          p.fill({.out = to, .value = {.i = 0}, .value_is_integer = true});
          const NumberView one(p, kInt64, x.sizes, Scalar(1), c.name());
          p.scatter({.out = to,
                     .src = one.view(),
                     .dim = 0,
                     .mode = prim::ScatterMode::add,
                     .op = "bincount",
                     .places = expr::conversion(x.dtype, kInt64).get(),
                     .inputs = {&x, 1}});
        })
        .dtypes({kInt64, kInt32, kInt16, kInt8, kUInt8});

const OpRecord& bincount_op =
    define("bincount(Tensor self, Tensor? weights=None, int minlength=0) -> Tensor")
        .doc("How often each number from 0 on occurs.")
        .compose([](const Call& c) -> Results {
          const Tensor& self = c.tensor(0);
          ARETE_CHECK(
              self.dim() == 1 && is_integer(self.dtype()),
              ValueError(c.name(), "bincount only supports 1-d non-negative integral inputs.")
                  .got(describe(self)));
          ARETE_CHECK(!self.is_meta(),
                      DeviceError(c.name(), "the size of the result depends on the data"));
          ARETE_CHECK(c.integer(2) >= 0,
                      ValueError(c.name(), "minlength should be >= 0").argument("minlength"));
          const bool weighted = c.has(1);
          if (weighted)
            ARETE_CHECK(
                c.tensor(1).dim() == 1 && c.tensor(1).numel() == self.numel(),
                ValueError(c.name(), "weights should be 1-d and have the same length as input")
                    .argument("weights"));
          int64_t n = c.integer(2);
          if (self.numel() > 0) {
            // A number that is negative, or else the largest, by a single read of a device; of a
            // batch, those of all elements, which have as many counts.
            const auto [low, high] = aminmax(self);
            std::vector<int64_t> largest;
            if (self.device().is_cpu() && !is_batched(self))
              largest = {(low.item<int64_t>() < 0 ? low : high).item<int64_t>()};
            else
              largest = all_values(where(low.lt(Scalar(0)), low, high)).to_vector<int64_t>();
            for (const int64_t number : largest) {
              ARETE_CHECK(
                  number >= 0,
                  ValueError(c.name(), "bincount only supports 1-d non-negative integral inputs."));
              n = std::max(n, number + 1);
            }
            for (const int64_t number : largest)
              ARETE_CHECK(n == std::max(c.integer(2), number + 1),
                          ValueError(c.name(),
                                     "the elements of a batch have different numbers of "
                                     "counts")
                              .hint("give the number of counts as minlength"));
          }
          if (!weighted && self.dtype() != kInt64) return {call(number_counts_op, {self, n})};
          // As PyTorch: weights of other types than float32 are added up in float64.
          const DType t = !weighted                         ? kInt64
                          : c.tensor(1).dtype() == kFloat32 ? kFloat32
                                                            : kFloat64;
          const TensorOptions o(t, self.device());
          const Tensor add = weighted ? c.tensor(1).to(t) : ones({}, o).expand(self.sizes());
          return {scatter_add(zeros_to_copy({n}, o), 0, self.to(kInt64), add)};
        });

}  // namespace

Tensor places_of_numbers(const Tensor& sorted, int64_t count) {
  return call(places_of_numbers_op, {sorted, count, false});
}

RaggedRows::RaggedRows(const Tensor& counts, int64_t total) {
  const Tensor ends = counts.cumsum(0), starts = ends.sub(counts);
  if (counts.device().is_cpu() && !(modes().word & Modes::kCapture) && !is_batched(counts)) {
    row = empty({total}, counts.options());
    const Tensor dense = counts.contiguous();
    const int64_t* count = dense.data<int64_t>();
    int64_t* to = row.data<int64_t>();
    for (int64_t r = 0; r < counts.numel(); to += count[r++]) std::fill_n(to, count[r], r);
    within = arange(Scalar(total), counts.options()).sub(starts.index_select(0, row));
    return;
  }
  const Tensor place = arange(Scalar(total), counts.options());
  row = searchsorted(ends, place, true);
  within = place.sub(starts.index_select(0, row));
}
}  // namespace ops

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right) {
  return ops::call(ops::searchsorted_op,
                   {sorted, values, false, right, std::nullopt, std::nullopt});
}
Tensor bucketize(const Tensor& values, const Tensor& boundaries, bool right) {
  return ops::call(ops::bucketize_op, {values, boundaries, false, right});
}
Tensor isin(const Tensor& elements, const Tensor& test_elements, bool invert) {
  return ops::call(ops::isin_op, {elements, test_elements, false, invert});
}
Tensor bincount(const Tensor& self, const Tensor& weights, int64_t minlength) {
  return ops::call(ops::bincount_op, {self, weights, minlength});
}

}  // namespace arete

ARETE_FAMILY(search)
