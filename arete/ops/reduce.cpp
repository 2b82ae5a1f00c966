// Sums and what is made of them: sum, mean, any, all, counts.
#include "arete/ops/reduce.h"

#include "arete/ops/autocast.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/fused_builder.h"
#include "arete/ops/index_util.h"
#include "arete/ops/reduce_family.h"
#include "arete/ops/rows.h"
#include "arete/prim/complex_parts.h"

namespace arete {
namespace ops {
namespace {

using expr::Value;
using Values = std::span<const Value>;
using prim::Monoid;

// Converts the elements before they are reduced; null if they have the type already.
const expr::Program* convert_first(DType in, expr::Type to) {
  if (expr::compute_type(in) == to) return nullptr;
  static ProgramCache cache;
  return &cache.get(pack_key({int(in), int(to)}), {in}, {}, {expr::storage_type(to)},
                    [to](Values v) { return std::vector{cast(v[0], to)}; });
}

// The rest of a reduce call.
struct ReduceParts {
  const expr::Program* prologue = nullptr;
  std::span<const expr::Literal> params{};
  const expr::Program* epilogue = nullptr;
  std::span<const expr::Literal> epilogue_params{};
};

// out (a view with reduced dimensions of size 1) = the inputs reduced over `mask` of `space`.
void run_reduce(prim::Primitives& p, Monoid monoid, IntList space, uint32_t mask,
                std::span<const prim::View> inputs, const prim::View& out,
                const ReduceParts& parts = {}) {
  p.reduce({monoid, space, mask, inputs, out, parts.prologue, parts.params, parts.epilogue,
            parts.epilogue_params});
}

// ---- sum: (self, dims, keepdim, dtype)

DType sum_dtype(const Call& call) {
  if (call.has(3)) return call[3].dtype();
  const DType t = call.tensor(0).dtype();
  return is_integral_or_bool(t) ? kInt64 : t;
}

void push_reduced(const Call& call, OutputSpecs& out, DType t) {
  const Tensor& x = call.tensor(0);
  const uint32_t mask = reduced_dims(call, 1);
  out.push_back({reduced_sizes(x.sizes(), mask, call.boolean(2)), t});
}

// Where a tensor's dimensions have to be reduced, and what the result looks like then.
struct Reduced {
  const Tensor& x;
  uint32_t mask;
  Layout out_layout;
  prim::View in, out;
  Reduced(const Call& call, const Tensor& result)
      : x(call.tensor(0)),
        mask(reduced_dims(call, 1)),
        out_layout(keepdim_layout(result, x.sizes(), mask)),
        in(view_of(x)),
        out(view_of(result, out_layout)) {}
  void run(prim::Primitives& p, Monoid monoid, const ReduceParts& parts = {}) const {
    run_reduce(p, monoid, x.sizes(), mask, {&in, 1}, out, parts);
  }
};

void sum_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  const Reduced r(call, out[0]);
  const DType t = out[0].dtype(), given = r.x.dtype();
  if (!is_complex(t) && !is_complex(given)) {
    const expr::Type work =
        is_floating(t) || t == kUInt64 ? expr::compute_type(t) : expr::Type::i64;
    // i32 accumulates in i64 by itself.
    const bool whole = work == expr::Type::i64 && expr::compute_type(given) == expr::Type::i32;
    r.run(p, Monoid::sum, {whole ? nullptr : convert_first(given, work)});
    return;
  }
  const Tensor x = plain(r.x, is_complex(t) ? t : kComplex128);
  const prim::View whole = view_of(x);
  if (!is_complex(t)) {  // as conversion does: the real part
    const prim::PartView in(whole, 0);
    run_reduce(p, Monoid::sum, x.sizes(), r.mask, {&in.view, 1}, r.out);
    return;
  }
  if (x.device().is_cpu()) {  // both parts at once, which lie in one run of memory
    const Layout from = layout_of_parts(x.layout()), to = layout_of_parts(r.out_layout);
    const prim::View in(whole.data, real_of(t), from.sizes, from.strides, whole.storage);
    run_reduce(p, Monoid::sum, from.sizes, r.mask, {&in, 1},
               {r.out.data, real_of(t), to.sizes, to.strides, r.out.storage});
    return;
  }
  for (int part = 0; part < 2; ++part) {
    const prim::PartView in(whole, part), to(r.out, part);
    run_reduce(p, Monoid::sum, x.sizes(), r.mask, {&in.view, 1}, to.view);
  }
}

const OpRecord& sum_op =
    define("sum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Sum over dimensions.")
        .infer([](const Call& c, OutputSpecs& out) { push_reduced(c, out, sum_dtype(c)); })
        .lower(sum_lower)
        .grad([](const GradCall& g) -> TensorList { return {spread(g, g.grad())}; });

// ---- mean: (self, dims, keepdim, dtype)

const char* torch_name(DType t) {
  switch (t) {
    case kUInt8:
      return "Byte";
    case kInt8:
      return "Char";
    case kInt16:
      return "Short";
    case kInt32:
      return "Int";
    case kInt64:
      return "Long";
    case kUInt16:
      return "UInt16";
    case kUInt32:
      return "UInt32";
    case kUInt64:
      return "UInt64";
    default:
      return "Bool";
  }
}

void mean_infer(const Call& c, OutputSpecs& out) {
  const DType t = c.has(3) ? c[3].dtype() : c.tensor(0).dtype();
  ARETE_CHECK(!is_integral_or_bool(t),
              TypeError(c.name(), std::string("mean(): could not infer output dtype. ") +
                                      (c.has(3) ? "Optional dtype" : "Input dtype") +
                                      " must be either a floating point or complex dtype. Got: " +
                                      torch_name(t))
                  .argument(c.has(3) ? "dtype" : "self")
                  .hint("pass dtype=float32 or convert the input"));
  ARETE_CHECK(
      !is_complex(t) && !is_complex(c.tensor(0).dtype()),
      NotImplementedError(c.name(), "mean of complex numbers: divide the sum").got(name_of(t)));
  push_reduced(c, out, t);
}

// A sum divided by a number.
const expr::Program& divide_program(DType t) {
  static ProgramCache cache;
  return cache.get(uint64_t(t), {work_dtype(t)}, {work_type(t)}, {t},
                   [](Values v) { return std::vector{v[0] / v[1]}; });
}

void mean_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  const Reduced r(call, out[0]);
  const DType t = out[0].dtype();
  expr::Literal n;
  n.f = double(reduced_count(r.x.sizes(), r.mask));
  r.run(p, Monoid::sum,
        {convert_first(r.x.dtype(), work_type(t)), {}, &divide_program(t), {&n, 1}});
}

Results complex_mean(const Call& c) {
  const double n = double(reduced_count(c.tensor(0).sizes(), reduced_dims(c, 1)));
  return {call(sum_op, c.args()).div(Scalar(n))};
}

const OpRecord& mean_op =
    define("mean(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
        .doc("Arithmetic mean over dimensions.")
        .infer(mean_infer)
        .lower(mean_lower)
        .complex(complex_mean)
        .grad([](const GradCall& g) -> TensorList {
          const IntList sizes = g.input_sizes(0);
          const uint32_t mask = dims_of_grad(g, 1);
          const double n = double(reduced_count(sizes, mask));
          return {spread(g, g.grad().mul(Scalar(1.0 / n)))};
        });

// ---- any and all: (self, dims, keepdim)

template <bool kAll>
void logical_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  const Reduced r(call, out[0]);
  r.run(p, kAll ? Monoid::all : Monoid::any);
}
void logical_infer(const Call& c, OutputSpecs& out) { push_reduced(c, out, kBool); }
// Of complex numbers: which of them are not zero.
Results logical_complex(const Call& c) { return {again(c, c.tensor(0).ne(Scalar(0)))}; }

const OpRecord& any_op = define("any(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor")
                             .doc("Is some element not zero?")
                             .infer(logical_infer)
                             .lower(logical_lower<false>)
                             .complex(logical_complex)
                             .dtypes({kBool, kInt64, kFloat32});

const OpRecord& all_op = define("all(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor")
                             .doc("Is every element not zero?")
                             .infer(logical_infer)
                             .lower(logical_lower<true>)
                             .complex(logical_complex)
                             .dtypes({kBool, kInt64, kFloat32});

bool is_counted_at_once(const Tensor& x, const Tensor& out) {
  return x.device().is_cpu() && is_mask(x) && x.numel() > 0 && out.numel() == 1 && !modes().capture;
}

const OpRecord& count_nonzero_op =
    define("count_nonzero(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor")
        .doc("How many elements are not zero?")
        .infer([](const Call& c, OutputSpecs& out) {
          logical_infer(c, out);
          out[0].dtype = kInt64;
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          static ProgramCache cache;
          const Reduced r(call, out[0]);
          // On the CPU a whole mask is counted without numbers for its elements.
          if (is_counted_at_once(r.x, out[0])) {
            const int64_t n = p.compact({view_of(r.x), {}});
            return p.fill({.out = view_of(out[0]), .value = {.i = n}, .value_is_integer = true});
          }
          const expr::Program& count =
              cache.get(uint64_t(r.x.dtype()), {r.x.dtype()}, {}, {kInt64}, [](Values v) {
                return std::vector{cast(cast(v[0], expr::Type::boolean), expr::Type::i64)};
              });
          r.run(p, Monoid::sum, {&count});
        })
        .complex(logical_complex)
        .dtypes({kBool, kInt64, kFloat32});

// ---- sums in which NaN is absent: (self, dims, keepdim)

const OpRecord& nansum_op =
    define(
        "nansum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
        .autocast(Autocast::as_is)
        .doc("Sum over dimensions, NaN counting as 0.")
        .infer([](const Call& c, OutputSpecs& out) { push_reduced(c, out, sum_dtype(c)); })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          const DType from = call.tensor(0).dtype(), to = out[0].dtype();
          if (!is_floating(from) || !is_floating(to)) return sum_lower(call, out, p);
          static ProgramCache cache;
          const expr::Program& numbers = cache.get(
              pack_key({int(from), int(to)}), {from}, {}, {work_dtype(to)}, [&](Values v) {
                return std::vector{cast(where(v[0] == v[0], v[0], 0.0), work_type(to))};
              });
          Reduced(call, out[0]).run(p, Monoid::sum, {&numbers});
        })
        .complex([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          return {call(sum_op, {where(x.isnan(), Scalar(0), x), c[1], c[2], c[3]})};
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              return {where(g.input(0).isnan(), Scalar(0), spread(g, g.grad()))};
            },
            1);

const OpRecord& nanmean_op =
    define(
        "nanmean(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
        .doc("Mean over dimensions of what is not NaN.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(!is_integral_or_bool(x.dtype()),
                      TypeError(c.name(),
                                "nanmean(): expected input to have floating point or complex "
                                "dtype but got " +
                                    std::string(name_of(x.dtype()))));
          if (!is_complex(x.dtype()) && x.numel() > 0 && (!c.has(3) || c[3].dtype() == x.dtype())) {
            static auto* const cache = new RowProgramCache;
            const RowProgramPtr& program = cache->get(
                pack_key({int(x.dtype())}), {x.dtype()}, {}, {x.dtype()}, [](Rows& rows, Values v) {
                  const expr::Value number = v[0] == v[0];
                  const expr::Value one = expr::constant_like(to_float(v[0]), 1);
                  return std::vector{rows.sum(where(number, to_float(v[0]), 0.0)) /
                                     rows.sum(where(number, one, 0.0))};
                });
            const uint32_t dims = reduced_dims(c, 1);
            Shape list;
            for (int d = 0; d < int(x.dim()); ++d)
              if (dims >> d & 1) list.push_back(d);
            const Tensor y = apply_rows(program, {&x, 1}, {}, list, c.name())[0];
            return {c.boolean(2) ? y : y.view(reduced_sizes(x.sizes(), dims, false))};
          }
          const Tensor n = call(sum_op, {x.isnan().logical_not(), c[1], c[2], std::nullopt});
          return {call(nansum_op, {x, c[1], c[2], c[3]}).div(n)};
        });

}  // namespace
}  // namespace ops

Tensor sum(const Tensor& self, std::optional<DType> dtype) {
  return ops::call(ops::sum_op, {self, IntList(), false, dtype});
}
Tensor sum(const Tensor& self, IntList dims, bool keepdim, std::optional<DType> dtype) {
  return ops::call(ops::sum_op, {self, dims, keepdim, dtype});
}
Tensor sum(const Tensor& self, int64_t dim, bool keepdim) {
  return ops::call(ops::sum_op, {self, IntList(&dim, 1), keepdim, std::nullopt});
}
Tensor Tensor::sum(std::optional<DType> dtype) const { return arete::sum(*this, dtype); }
Tensor Tensor::sum(IntList dims, bool keepdim, std::optional<DType> dtype) const {
  return arete::sum(*this, dims, keepdim, dtype);
}
Tensor Tensor::sum(int64_t dim, bool keepdim) const { return arete::sum(*this, dim, keepdim); }

Tensor mean(const Tensor& self, std::optional<DType> dtype) {
  return ops::call(ops::mean_op, {self, IntList(), false, dtype});
}
Tensor mean(const Tensor& self, IntList dims, bool keepdim, std::optional<DType> dtype) {
  return ops::call(ops::mean_op, {self, dims, keepdim, dtype});
}
Tensor mean(const Tensor& self, int64_t dim, bool keepdim) {
  return ops::call(ops::mean_op, {self, IntList(&dim, 1), keepdim, std::nullopt});
}
Tensor Tensor::mean(std::optional<DType> dtype) const { return arete::mean(*this, dtype); }
Tensor Tensor::mean(IntList dims, bool keepdim, std::optional<DType> dtype) const {
  return arete::mean(*this, dims, keepdim, dtype);
}
Tensor Tensor::mean(int64_t dim, bool keepdim) const { return arete::mean(*this, dim, keepdim); }

Tensor nansum(const Tensor& self, IntList dims, bool keepdim) {
  return ops::call(ops::nansum_op, {self, dims, keepdim, std::nullopt});
}
Tensor nanmean(const Tensor& self, IntList dims, bool keepdim) {
  return ops::call(ops::nanmean_op, {self, dims, keepdim, std::nullopt});
}

Tensor any(const Tensor& self) { return ops::call(ops::any_op, {self, IntList(), false}); }
Tensor any(const Tensor& self, IntList dims, bool keepdim) {
  return ops::call(ops::any_op, {self, dims, keepdim});
}
Tensor all(const Tensor& self) { return ops::call(ops::all_op, {self, IntList(), false}); }
Tensor all(const Tensor& self, IntList dims, bool keepdim) {
  return ops::call(ops::all_op, {self, dims, keepdim});
}
Tensor Tensor::any() const { return arete::any(*this); }
Tensor Tensor::any(IntList dims, bool keepdim) const { return arete::any(*this, dims, keepdim); }
Tensor Tensor::all() const { return arete::all(*this); }
Tensor Tensor::all(IntList dims, bool keepdim) const { return arete::all(*this, dims, keepdim); }
Tensor count_nonzero(const Tensor& self, IntList dims) {
  return ops::call(ops::count_nonzero_op, {self, dims, false});
}
Tensor Tensor::count_nonzero(IntList dims) const { return arete::count_nonzero(*this, dims); }

}  // namespace arete

ARETE_FAMILY(reduce)
