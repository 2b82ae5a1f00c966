// Norms of vectors, of differences of vectors, and of those of all pairs of rows.
#include <algorithm>
#include <cmath>
#include <optional>

#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/creation.h"
#include "arete/ops/fused_builder.h"
#include "arete/ops/index.h"
#include "arete/ops/matmul.h"
#include "arete/ops/reduce_family.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"
#include "arete/ops/work.h"
#include "arete/prim/positions.h"

namespace arete::ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
// The gradient and the norms have a dimension less than the vectors.
Results norm_slopes_rule(const Rewriting& r) {
  const int64_t rank = std::max(rank_of(r.at(1)), rank_of(r.at(2)));
  Changed call(r);
  for (size_t i : {1, 2}) call.set(i, whole_of_rank(r, r.at(i), rank));
  for (size_t i : {0, 3}) call.set(i, whole_of_rank(r, r.at(i), rank - 1));
  return call.run();
}
}  // namespace
}  // namespace vmaps

namespace {

using expr::Value;
using prim::Monoid;

// Programs of the general norm, by dtype: |x|^p in the type sums are kept in, and the root. Of a
// difference x is one input minus another, plus a second parameter if it is shifted.
enum class NormOf : uint8_t { number, difference, shifted };
struct NormPrograms {
  expr::ProgramPtr power, root;
};

// Powers whose exponents are small multiples of a half are products and a root.
bool is_simple(double p) { return p > 0 && p <= 4 && 2 * p == std::floor(2 * p); }
// The power of a number that is not negative; `exponent` is p as a parameter.
Value power(const Value& a, double p, const Value& exponent) {
  if (!is_simple(p)) return pow(a, exponent);
  const int whole = int(p);
  Value y = p == whole ? a : sqrt(a);
  for (int k = p == whole ? 1 : 0; k < whole; ++k) y = y * a;
  return y;
}

// What is summed up (of infinite p: compared), and what is made of the sum; `exponent` is p and
// `inverse` its inverse, where they are not known.
Value power_of(const Value& x, double p, const Value& exponent) {
  if (p == 2) return x * x;
  if (p == 0) return where(x == 0.0, 0.0, expr::constant_like(x, 1));
  const Value a = abs(x);
  if (p == 1 || std::isinf(p)) return a;
  return power(a, p, exponent);
}
Value root_of(const Value& sum, double p, const Value& inverse) {
  return p == 2 ? sqrt(sum) : p == 1 || p == 0 || std::isinf(p) ? sum : pow(sum, inverse);
}
Monoid norm_monoid(double p) {
  return std::isinf(p) ? (p > 0 ? Monoid::max : Monoid::min) : Monoid::sum;
}
// Which programs p asks for: those of 0, infinity and small multiples of a half are their own.
int norm_kind(double p) {
  if (p == 0 || std::isinf(p)) return p == 0 ? 0 : p > 0 ? 1 : 2;
  return is_simple(p) ? 4 + int(2 * p) : 3 + (p < 1);
}

const NormPrograms& norm_programs(DType t, double p, NormOf of) {
  static auto& cache = *new KeyedCache<NormPrograms>;
  return cache.get(pack_key({int(t), norm_kind(p), int(of)}), [&] {
    const expr::Type compute = expr::compute_type(t);
    const DType wide = expr::storage_type(compute);
    expr::Builder in, out;
    Value x = in.cast(in.input(t), compute);
    if (of != NormOf::number) x = x - in.cast(in.input(t), compute);
    const Value exponent = in.param(compute);
    if (of == NormOf::shifted) x = x + in.param(compute);
    const Value power = power_of(x, p, exponent);
    const Value root = root_of(out.input(wide), p, out.param(compute));
    return std::make_unique<NormPrograms>(
        NormPrograms{in.build({&power, 1}, {&wide, 1}), out.build({&root, 1}, {&t, 1})});
  });
}

void reduce_norm(prim::Primitives& prims, IntList space, uint32_t dims,
                 std::span<const prim::View> inputs, const Tensor& out, double p,
                 std::span<const expr::Literal> params) {
  const NormOf of = inputs.size() == 1   ? NormOf::number
                    : params.size() == 1 ? NormOf::difference
                                         : NormOf::shifted;
  const NormPrograms& programs = norm_programs(out.dtype(), p, of);
  const expr::Literal root{.f = 1 / p};
  prims.reduce({norm_monoid(p),
                space,
                dims,
                inputs,
                view_of(out, keepdim_layout(out, space, dims)),
                programs.power.get(),
                params,
                programs.root.get(),
                {&root, 1}});
}

// What programs keep in memory between each other.
DType wide_dtype(DType t) { return expr::storage_type(work_type(t)); }

// Note [Slopes of norms]
// The gradient of norms of elements d (of differences: self - other + eps) is a factor of each norm
// y times something of each element: d for p = 2, its sign for p = 1, and for infinite p its sign
// where |d| = y. The factors take as much memory as the norms, the rest is made in one pass, which
// also sums up what was broadcast.

// Inputs: norms and their gradients. Parameter: p.
const expr::Program& slope_factors_program(DType t, double p) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(
      pack_key({int(t), norm_kind(p)}), {t, t}, {work_type(t)}, {wide_dtype(t)},
      [&](std::span<const Value> v) {
        const Value zero = v[0] == 0.0, y = where(zero, 1.0, v[0]);
        // At the origin the subgradient 0 is chosen.
        return std::vector{where(zero, 0.0, p == 2 ? v[1] / y : v[1] * pow(y, 1.0 - v[2]))};
      });
}
// What each element has of its factor, for finite p.
Value slope_of(const Value& d, double p, const Value& exponent) {
  if (p == 2) return d;
  if (p == 1) return sign(d);
  // Elements that are zero have none; below p = 1 they are infinite.
  const Value zero = d == 0.0, size = p < 1 ? where(zero, 1.0, abs(d)) : abs(d);
  // Roots have no slope at zero, where powers above 1 have: second derivatives need it.
  const bool is_whole = p == std::floor(p);
  return sign(d) *
         (is_whole && is_simple(p - 1) ? power(size, p - 1, exponent) : pow(size, exponent - 1.0));
}
// Inputs: elements and factors. Parameter: p.
const expr::Program& element_slopes_program(DType t, DType factor, double p) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(
      pack_key({int(t), int(factor), norm_kind(p)}), {t, factor}, {work_type(t)}, {t},
      [&](std::span<const Value> v) { return std::vector{slope_of(v[0], p, v[2]) * v[1]}; });
}

// The gradient of x, given that of its norm y over `dims`, which both have with size 1.
Tensor norm_gradient(const Tensor& x, const Tensor& y, const Tensor& dy, double p, uint32_t dims) {
  if (p == 0) return zeros(x.sizes(), x.options());
  if (std::isinf(p)) {
    Shape list;
    for (int d = 0; d < int(x.dim()); ++d)
      if (dims >> d & 1) list.push_back(d);
    const Tensor hit = x.abs() == y;  // none where the norm is NaN
    const Tensor hits = hit.to(x.dtype());
    const Tensor count = list.empty() ? hits : hits.sum(list, true);
    return arete::where(hit, x.sign() * (dy / count), 0);
  }
  const Scalar number(p);
  const auto run = [&](const expr::Program& program, std::initializer_list<Tensor> inputs) {
    return apply_program(program.shared_from_this(), {inputs.begin(), inputs.size()}, {&number, 1},
                         "norm_backward")[0];
  };
  const Tensor factor = p == 1 ? dy : run(slope_factors_program(y.dtype(), p), {y, dy});
  return run(element_slopes_program(x.dtype(), factor.dtype(), p), {x, factor});
}

const OpRecord& norm_op =
    define("norm(Tensor self, float p=2, int[]? dim=None, bool keepdim=False) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("(sum |x|^p)^(1/p).")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(
              is_floating(x.dtype()),
              TypeError("norm", "norm: Expected a floating point or complex tensor as input. Got " +
                                    std::string(name_of(x.dtype()))));
          const uint32_t dims = reduced_dims(c, 2);
          if (std::isinf(c.real(1)) || c.real(1) < 0) check_not_empty(c, x.sizes(), dims, false);
          out.push_back({reduced_sizes(x.sizes(), dims, c.boolean(3)), x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& prims) {
          const Tensor& x = c.tensor(0);
          const uint32_t dims = reduced_dims(c, 2);
          const double p = c.real(1);
          const prim::View in = view_of(x);
          const expr::Literal power{.f = p};
          reduce_norm(prims, x.sizes(), dims, {&in, 1}, out[0], p, {&power, 1});
        })
        .complex([](const Call& c) -> Results { return {again(c, c.tensor(0).abs())}; })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor x = g.input(0);
              const uint32_t dims = dims_of_grad(g, 2);
              const Tensor y = with_dims(g.output(), x.sizes(), dims);
              const Tensor dy = with_dims(g.grad(), x.sizes(), dims);
              return {norm_gradient(x, y, dy, g.real(1), dims)};
            },
            1, 1);

// Of infinite p: the gradient is shared among equal elements. Inputs: self, other, norms, their
// gradients. Parameters as below.
const prim::FusedSpec& shared_slopes_spec(DType t) {
  static auto& cache = *new SpecCache;  // used until exit
  return cache.get(uint64_t(t), [&] {
    FusedBuilder b({t, t, t, t}, {t}, {work_type(t), work_type(t)});
    const int count = b.reduce(Monoid::sum, {0, 1, 2}, [](FusedBuilder::Values v) {
      const Value hit = abs(v[0] - v[1] + v[4]) == v[2];
      return std::vector{where(hit, expr::constant_like(v[2], 1), 0.0)};
    });
    b.store_row({3, count}, 0, 1, [](FusedBuilder::Values v) { return std::vector{v[0] / v[1]}; });
    return b.finish();
  });
}
// Inputs: self, other, factors, and for infinite p norms. Parameters: p and eps.
const expr::Program& slopes_program(DType t, double p) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  std::vector<DType> inputs(std::isinf(p) ? 4 : 3, t);
  return cache.get(pack_key({int(t), norm_kind(p)}), inputs, {work_type(t), work_type(t)}, {t},
                   [&](std::span<const Value> v) {
                     const Value exponent = v[inputs.size()];
                     const Value d = v[0] - v[1] + v[inputs.size() + 1];
                     if (std::isinf(p))
                       return std::vector{where(abs(d) == v[3], sign(d) * v[2], 0.0)};
                     return std::vector{slope_of(d, p, exponent) * v[2]};
                   });
}

const OpRecord& norm_slopes_op =
    define(
        "norm_slopes(Tensor grad, Tensor self, Tensor other, Tensor norms, float p, float eps) -> "
        "Tensor")
        .doc("The gradient in self of the p-norms of self - other + eps.")
        .surface(Surface::internal)
        .batched(vmaps::norm_slopes_rule)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(1);
          out.push_back({Shape(a.sizes()), a.dtype(), strides_like(a)});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& prims) {
          const Tensor &dy = c.tensor(0), &a = c.tensor(1), &b = c.tensor(2), &y = c.tensor(3);
          const double p = c.real(4);
          const DType t = a.dtype();
          const Shape full = broadcast_shapes(a.sizes(), b.sizes(), c.name());
          if (p == 0 || numel_of(full) == 0) {
            prims.fill({.out = view_of(out[0]), .value = {.f = 0}});
            return;
          }
          const auto of_norms = [&](const Layout& l) { return expand(unsqueeze(l, -1), full); };
          const Layout of_a = expand(a.layout(), full), of_b = expand(b.layout(), full),
                       of_y = of_norms(y.layout()), of_dy = of_norms(dy.layout());
          const expr::Literal params[] = {{.f = p}, {.f = c.real(5)}};
          Shape norms(full), row(full);
          norms.pop_back();
          row.back() = 1;
          std::optional<prim::ScratchView> made;
          Layout of_factors = of_dy;
          if (p != 1) {
            made.emplace(prims, t, norms);
            of_factors = of_norms(Layout(norms));
          }
          if (std::isinf(p)) {
            const prim::View in[] = {view_of(a, of_a), view_of(b, of_b), view_of(y, of_y),
                                     view_of(dy, of_dy)};
            const Layout rows(row);
            prim::View to = made->view();
            to.sizes = rows.sizes, to.strides = rows.strides;
            prims.fused({.spec = &shared_slopes_spec(t),
                         .space = full,
                         .outer_rank = int(full.size()) - 1,
                         .inputs = in,
                         .outputs = {&to, 1},
                         .params = params});
          } else if (p != 1) {
            const prim::View in[] = {view_of(y), view_of(dy)}, to = made->view();
            prims.pointwise({&slope_factors_program(t, p), in, {&to, 1}, {params, 1}});
          }
          prim::View factors = view_of(dy, of_factors);
          if (made) {
            factors = made->view();
            factors.sizes = of_factors.sizes, factors.strides = of_factors.strides;
          }
          const prim::View in[] = {view_of(a, of_a), view_of(b, of_b), factors, view_of(y, of_y)};
          const std::span<const prim::View> inputs(in, std::isinf(p) ? 4 : 3);
          Layout of_out = out[0].layout();
          while (of_out.rank() < int(full.size())) of_out = unsqueeze(of_out, 0);
          uint32_t summed = 0;
          for (size_t d = 0; d < full.size(); ++d)
            if (of_out.sizes[d] != full[d]) summed |= 1u << d;
          const prim::View to = view_of(out[0], of_out);
          if (summed == 0)
            prims.pointwise({&slopes_program(t, p), inputs, {&to, 1}, params});
          else
            prims.reduce({.monoid = Monoid::sum,
                          .space = full,
                          .reduced = summed,
                          .inputs = inputs,
                          .out = to,
                          .prologue = &slopes_program(t, p),
                          .params = params});
        })
        .dtypes({kFloat32, kFloat64});

Tensor norm_slopes(const Tensor& dy, const Tensor& a, const Tensor& b, const Tensor& y, double p,
                   double eps) {
  return call(norm_slopes_op, {dy, a, b, y, p, eps});
}

// In one pass, without the differences in memory.
const OpRecord& norm_of_difference_op =
    define("norm_of_difference(Tensor self, Tensor other, float p, float eps) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("p-norm of self - other + eps along the last dimension; the two broadcast.")
        .surface(Surface::internal)
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          ARETE_CHECK(is_floating(a.dtype()) && a.dtype() == b.dtype(),
                      TypeError(c.name(), "expected floating point tensors of one dtype")
                          .got(describe(a) + " and " + describe(b)));
          const Shape full = broadcast_shapes(a.sizes(), b.sizes(), c.name());
          const uint32_t last = 1u << (full.size() - 1);
          if (std::isinf(c.real(2))) check_not_empty(c, full, last, false);
          out.push_back({reduced_sizes(full, last, false), a.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& prims) {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          const Shape full = broadcast_shapes(a.sizes(), b.sizes(), c.name());
          const Layout of_a = expand(a.layout(), full), of_b = expand(b.layout(), full);
          const prim::View in[] = {view_of(a, of_a), view_of(b, of_b)};
          const expr::Literal params[] = {{.f = c.real(2)}, {.f = c.real(3)}};
          reduce_norm(prims, full, 1u << (full.size() - 1), in, out[0], c.real(2),
                      {params, size_t(c.real(3) == 0 ? 1 : 2)});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor a = g.input(0), b = g.input(1);
              const double p = g.real(2), eps = g.real(3);
              TensorList out(2);
              if (!is_grad_enabled() && !is_reduced_float(a.dtype())) {
                if (g.needs(0)) out[0] = norm_slopes(g.grad(), a, b, g.output(), p, eps);
                if (g.needs(1)) out[1] = norm_slopes(g.grad(), b, a, g.output(), p, -eps);
                return out;
              }
              const Tensor d = eps == 0 ? a.sub(b) : a.sub(b).add(Scalar(eps));
              const Tensor slope = norm_gradient(d, g.output().unsqueeze(-1),
                                                 g.grad().unsqueeze(-1), p, 1u << (d.dim() - 1));
              if (g.needs(0)) out[0] = sum_to_size(slope, a.sizes());
              if (g.needs(1)) out[1] = sum_to_size(slope, b.sizes()).neg();
              return out;
            },
            0b11, 1);

// ---- norms of the differences of all pairs of rows

// The two of n rows that a pair consists of, by its number.
std::pair<Value, Value> rows_of_pair(const Value& pair, const Value& n) {
  using expr::Type;
  const Value one = expr::constant_like(n, 1);
  // Pairs of row i begin at i (2 n - i - 1) / 2; the root may be off by its rounding.
  const auto begin = [&](const Value& i) { return (i * (n * 2.0 - i - 1.0)) >> one; };
  const Value half = cast(n, Type::f64) - 0.5;
  const Value square = half * half - cast(pair, Type::f64) * 2.0;
  Value i = cast(half - sqrt(max(square, expr::constant_like(square, 0))), Type::i64);
  i = where(begin(i) > pair, i - 1.0, i);
  i = where(begin(i + 1.0) > pair, i, i + 1.0);
  return {i, pair - begin(i) + i + 1.0};
}

// Parameters: rows, their width, the numbers in a row of `space`, p and 1 / p. Inputs: the matrix
// (a table), the number of an element in its row, and of a pair as two digits, of which the second
// counts to the third parameter.
const prim::FusedSpec& pairs_spec(DType t, double p) {
  static auto& cache = *new SpecCache;  // used until exit
  return cache.get(pack_key({int(t), norm_kind(p)}), [&] {
    using expr::Type;
    const Type compute = work_type(t);
    FusedBuilder b({t, kInt64, kInt64, kInt64}, {t},
                   {Type::i64, Type::i64, Type::i64, compute, compute}, 0b1);
    const int rows = b.row({2, 3}, [](FusedBuilder::Values v) {
      const auto [i, j] = rows_of_pair(v[0] * v[4] + v[1], v[2]);
      return std::vector{i * v[3], j * v[3]};
    });
    const int sum = b.reduce(norm_monoid(p), {0, 1, rows, rows - 1}, [&](FusedBuilder::Values v) {
      const auto element = [&](const Value& row) {
        return cast(expr::load(v[0], row + v[1]), compute);
      };
      return std::vector{power_of(element(v[2]) - element(v[3]), p, v[4 + 3])};
    });
    b.store_row({sum}, 0, 1,
                [&](FusedBuilder::Values v) { return std::vector{root_of(v[0], p, v[1 + 4])}; });
    return b.finish();
  });
}

// Inputs: values of a few rows with all later ones (a table), and the number of a pair as two
// digits. Parameters: how many the second counts, and the later rows.
const expr::Program& packed_pairs_program(DType t) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(
      uint64_t(t), {t, kInt64, kInt64}, {expr::Type::i64, expr::Type::i64}, {t},
      [](std::span<const Value> v) {
        const auto [i, j] = rows_of_pair(v[1] * v[3] + v[2], v[4] + 1.0);
        return std::vector{expr::load(v[0], i * v[4] + j - 1.0)};
      },
      0b1);
}

// Inputs: values of pairs (a table), and the numbers of two rows. Parameter: how many there are.
const expr::Program& pairs_square_program(DType t) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(
      uint64_t(t), {t, kInt64, kInt64}, {expr::Type::i64}, {t},
      [](std::span<const Value> v) {
        const Value low = min(v[1], v[2]), high = max(v[1], v[2]), n = v[3];
        const Value pair =
            ((low * (n * 2.0 - low - 1.0)) >> expr::constant_like(n, 1)) + high - low - 1.0;
        const Value same = low == high;
        return std::vector{where(same, 0.0, expr::load(v[0], where(same, 0.0, pair)))};
      },
      0b1);
}

const OpRecord& pairs_square_op =
    define("pairs_square(Tensor pairs, int rows) -> Tensor")
        .doc("What pairs of rows have as a symmetric matrix, with zeros in its diagonal.")
        .flops(no_flops)
        .surface(Surface::internal)
        .one_by_one("the pairs are those of the rows of one matrix")
        .infer([](const Call& c, OutputSpecs& out) {
          const int64_t n = c.integer(1);
          out.push_back({Shape{n, n}, c.tensor(0).dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const int64_t n = c.integer(1);
          if (n < 2) {
            p.fill({.out = view_of(out[0]), .value = {.f = 0}});
            return;
          }
          const Tensor pairs = plain(c.tensor(0), out[0].dtype());
          prim::Positions numbers(p, kInt64, n);
          const Shape square{n, n};
          const prim::View in[] = {view_of(pairs), numbers.along(square, 0, 0),
                                   numbers.along(square, 1, 1)},
                           to = view_of(out[0]);
          const expr::Literal params[] = {{.i = n}};
          p.pointwise({&pairs_square_program(out[0].dtype()), in, {&to, 1}, params});
        })
        .dtypes({kFloat32, kFloat64});

const OpRecord& pair_norms_op =
    define("pair_norms(Tensor self, float p) -> Tensor")
        .indexed({0})
        .doc("p-norms of the differences of all pairs of rows, of which each comes once.")
        .flops([](const Call& c) {
          return 2 * double(c.tensor(0).numel()) * double(c.tensor(0).size(0) - 1);
        })
        .surface(Surface::internal)
        .one_by_one("the pairs are those of the rows of one matrix")
        .infer([](const Call& c, OutputSpecs& out) {
          const int64_t n = c.tensor(0).size(0);
          out.push_back({Shape{n * (n - 1) / 2}, c.tensor(0).dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& prims) {
          const double p = c.real(1);
          const Tensor x = plain(c.tensor(0), out[0].dtype());
          const int64_t n = x.size(0), width = x.size(1), pairs = out[0].numel();
          if (pairs == 0) return;
          if (width == 0) {
            prims.fill({.out = view_of(out[0]), .value = {.f = 0}});
            return;
          }
          const bool cpu = out[0].device().is_cpu();
          constexpr int64_t kManyRows = 256, kWide = 32;
          if (cpu || (n >= kManyRows && width >= kWide)) {
            // A few rows with all later ones: rows that follow each other are read without looking
            // for them, and a GPU reads them once for many pairs.
            const NormPrograms& programs = norm_programs(out[0].dtype(), p, NormOf::difference);
            const expr::Literal power{.f = p}, root{.f = 1 / p};
            // On the CPU, where a call costs little, as many as the caches hold; elsewhere sides of
            // tiles, and less than a tenth of a large result beside it.
            constexpr int64_t kElements = 1 << 17, kSide = 64, kCalls = 32;
            const int64_t most = cpu ? 16 : (n + kCalls * kSide - 1) / (kCalls * kSide) * kSide;
            const prim::ScratchView several(prims, x.dtype(), {std::min(most, n - 1), n - 1});
            for (int64_t i = 0, at = 0; i + 1 < n;) {
              const int64_t later = n - 1 - i;
              const int64_t rows = std::clamp<int64_t>(cpu ? kElements / (later * width) : most, 1,
                                                       std::min(most, later));
              const Shape space{rows, later, width};
              const Layout left = expand(unsqueeze(narrow(x.layout(), 0, i, rows), 1), space),
                           right = expand(unsqueeze(narrow(x.layout(), 0, i + 1, later), 0), space);
              const Layout of_several(IntList{rows, later, 1}),
                  of_out(IntList{1, later, 1}, IntList{later, 1, 1}, out[0].storage_offset() + at);
              prim::View made = several.view();
              made.sizes = of_several.sizes, made.strides = of_several.strides;
              const prim::View in[] = {view_of(x, left), view_of(x, right)};
              prims.reduce({norm_monoid(p),
                            space,
                            0b100,
                            in,
                            rows == 1 ? view_of(out[0], of_out) : made,
                            programs.power.get(),
                            {&power, 1},
                            programs.root.get(),
                            {&root, 1}});
              if (rows == 1) {
                at += later;
              } else if (cpu) {
                for (int64_t k = 0; k < rows; ++k) {
                  const Layout own(IntList{later - k}, IntList{1}, out[0].storage_offset() + at);
                  prim::View row = made;
                  row.data += (k * later + k) * int64_t(size_of(row.dtype));
                  row.sizes = own.sizes, row.strides = own.strides;
                  prims.copy({view_of(out[0], own), row});
                  at += later - k;
                }
              } else {
                // Half as many rows of twice the average length, or as many of the average one.
                const int64_t twice = 2 * later - rows + 1, halved = rows % 2 == 0 ? 2 : 1,
                              second = halved * twice / 2;
                const Shape pairs_of{rows / halved, second};
                prim::Positions numbers(prims, kInt64, std::max(pairs_of[0], second));
                const Layout dense(pairs_of, IntList{second, 1}, out[0].storage_offset() + at),
                    table(IntList{rows * later});
                prim::View values = made;
                values.sizes = table.sizes, values.strides = table.strides;
                const prim::View from[] = {values, numbers.along(pairs_of, 0, 0),
                                           numbers.along(pairs_of, 1, 1)},
                                 to = view_of(out[0], dense);
                const expr::Literal counts[] = {{.i = second}, {.i = later}};
                prims.pointwise({&packed_pairs_program(x.dtype()), from, {&to, 1}, counts});
                at += pairs_of[0] * second;
              }
              i += rows;
            }
            return;
          }
          // Pairs in two digits, so that nothing as long as the result is needed to number them.
          const int64_t second = n / 2, first = pairs / second;
          prim::Positions numbers(prims, kInt64, std::max({first, second, width}));
          const Shape space{first, second, width};
          const prim::View in[] = {view_of(x), numbers.along(space, 2, 2),
                                   numbers.along(space, 0, 0), numbers.along(space, 1, 1)};
          const Layout of_pairs(IntList{first, second, 1}, IntList{second, 1, 1},
                                out[0].storage_offset());
          const prim::View to = view_of(out[0], of_pairs);
          const expr::Literal params[] = {
              {.i = n}, {.i = width}, {.i = second}, {.f = p}, {.f = 1 / p}};
          prims.fused({.spec = &pairs_spec(out[0].dtype(), p),
                       .space = space,
                       .outer_rank = 2,
                       .inputs = in,
                       .outputs = {&to, 1},
                       .params = params});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor x = g.input(0);
              const double p = g.real(1);
              const int64_t n = x.size(0);
              if (!is_grad_enabled()) {
                const auto square = [&](const Tensor& t) { return call(pairs_square_op, {t, n}); };
                if (p == 2 && n > 1 && x.device().is_cpu() && x.dtype() == kFloat32) {
                  // Sums of (x_i - x_j) f_ij taken apart, as products in float64: of differences to
                  // the first row, so that what all rows have in common loses nothing.
                  const Tensor norms = g.output().to(kFloat64), zero = norms == 0;
                  const Tensor factors = square(
                      arete::where(zero, 0, g.grad().to(kFloat64) / arete::where(zero, 1, norms)));
                  const Tensor wide = x.to(kFloat64) - x.narrow(0, 0, 1).to(kFloat64);
                  return {(wide * factors.sum(1, true) - mm(factors, wide)).to(kFloat32)};
                }
                return {norm_slopes(square(g.grad()), x.unsqueeze(1), x.unsqueeze(0),
                                    square(g.output()), p, 0)
                            .squeeze(1)};
              }
              const Tensor numbers = triu_indices(n, n, 1, TensorOptions(kInt64, x.device()));
              const Tensor i = numbers.select(0, 0), j = numbers.select(0, 1);
              const Tensor d = x.index_select(0, i).sub(x.index_select(0, j));
              const Tensor slope =
                  norm_gradient(d, g.output().unsqueeze(-1), g.grad().unsqueeze(-1), p, 0b10);
              return {zeros(x.sizes(), slope.options())
                          .index_add(0, i, slope)
                          .index_add(0, j, slope.neg())};
            },
            1, 1)
        .dtypes({kFloat32, kFloat64});

}  // namespace

Tensor pair_norms(const Tensor& x, double p) { return call(pair_norms_op, {x, p}); }

Tensor norm_of_difference(const Tensor& a, const Tensor& b, double p, double eps) {
  const DType common = promote_types(a.dtype(), b.dtype());
  const DType t = is_floating(common) || is_complex(common) || eps == 0 ? common : default_dtype();
  // Half types round the difference, of which the gradient at an infinite p must find the largest.
  if (!is_floating(t) || is_reduced_float(t) || a.dim() == 0 || b.dim() == 0)
    return a.sub(b).add(Scalar(eps)).norm(p, {-1});
  return call(norm_of_difference_op, {a.to(t), b.to(t), p, eps});
}

}  // namespace arete::ops

namespace arete {

Tensor norm(const Tensor& self, double p, IntList dims, bool keepdim) {
  return ops::call(ops::norm_op, {self, p, dims, keepdim});
}
Tensor Tensor::norm(double p, IntList dims, bool keepdim) const {
  return arete::norm(*this, p, dims, keepdim);
}

}  // namespace arete

ARETE_FAMILY(vector_norm)
