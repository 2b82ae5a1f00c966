#include "tests/support/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "arete/base/error.h"
#include "arete/core/complex.h"
#include "arete/expr/evaluate.h"
#include "arete/prim/decompose/gemm_internal.h"
#include "arete/prim/decompose/scatter_internal.h"
#include "arete/prim/philox.h"
#include "tests/support/index_walk.h"

namespace arete::test {
namespace {

using expr::Literal;
using expr::Op;
using expr::Type;
using prim::Monoid;
using prim::View;

// ---- elements

/// A value as programs compute with it; complex numbers are f64 with an imaginary part.
struct Element {
  Type type;
  Literal value;
  double imag = 0;
};
Element integer(int64_t v) { return {Type::i64, {.i = v}}; }
Element number(double v) { return {Type::f64, {.f = v}}; }
Element as(Type type, const Element& e) {
  return {type, expr::convert(e.value, e.type, type), e.imag};
}
double to_double(const Element& e) { return as(Type::f64, e).value.f; }

/// Where element `index` of a space lies in a view that broadcasts to it.
std::byte* address(const View& v, IntList index) {
  const size_t skip = index.size() - v.sizes.size();
  int64_t offset = 0;
  for (size_t d = 0; d < v.sizes.size(); ++d)
    if (v.sizes[d] != 1) offset += index[skip + d] * v.strides[d];
  return v.data + offset * int64_t(size_of(v.dtype));
}

Element load(const View& v, IntList index) {
  const std::byte* const p = address(v, index);
  if (!is_complex(v.dtype)) return {expr::compute_type(v.dtype), expr::read_element(v.dtype, p)};
  return visit_dtype(v.dtype, [&](auto tag) -> Element {
    using T = typename decltype(tag)::type;
    if constexpr (is_complex(dtype_of<T>)) {
      T x;
      std::memcpy(&x, p, sizeof(T));
      return {Type::f64, {.f = double(x.real())}, double(x.imag())};
    }
    __builtin_unreachable();
  });
}

/// Converted as copy does: complex to real drops the imaginary part, but to boolean asks whether
/// either part is not 0.
void store(const View& v, IntList index, const Element& e) {
  visit_dtype(v.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T x;
    if constexpr (is_complex(dtype_of<T>)) {
      using Part = typename T::value_type;
      x = T(Part(to_double(e)), Part(e.imag));
    } else {
      const Literal l = expr::round_literal(as(expr::compute_type(v.dtype), e).value, v.dtype);
      if constexpr (std::is_same_v<T, bool>)
        x = l.i != 0 || e.imag != 0;
      else if constexpr (is_reduced_float(dtype_of<T>))
        x = T(float(l.f));
      else if constexpr (is_floating(dtype_of<T>))
        x = T(l.f);
      else
        x = T(l.i);
    }
    std::memcpy(address(v, index), &x, sizeof(T));
  });
}

// ---- monoids

Op op_of(Monoid monoid, Type type) {
  const bool logical = type == Type::boolean;
  switch (monoid) {
    case Monoid::sum:
      return logical ? Op::bit_or : Op::add;
    case Monoid::prod:
      return logical ? Op::bit_and : Op::mul;
    case Monoid::min:
      return logical ? Op::bit_and : Op::min;
    case Monoid::max:
      return logical ? Op::bit_or : Op::max;
    case Monoid::all:
      return Op::bit_and;
    case Monoid::any:
      return Op::bit_or;
  }
  __builtin_unreachable();
}

/// Both of one type.
Element combine(Monoid monoid, const Element& a, const Element& b) {
  const Op op = op_of(monoid, a.type);
  if (op == Op::mul && (a.imag != 0 || b.imag != 0)) {
    const auto z = std::complex(a.value.f, a.imag) * std::complex(b.value.f, b.imag);
    return {a.type, {.f = z.real()}, z.imag()};
  }
  return {a.type, expr::apply(op, a.type, a.type, 0, a.value, b.value, {}), a.imag + b.imag};
}

void check_ordered(DType dtype, const char* op) {
  ARETE_CHECK(!is_complex(dtype), NotImplementedError(op, "complex numbers have no order"));
}

/// Sums and products are wide: no result may be less exact.
Type accumulator_of(Monoid monoid, DType dtype) {
  if (monoid == Monoid::all || monoid == Monoid::any) return Type::boolean;
  const bool counts = monoid == Monoid::sum || monoid == Monoid::prod;
  if (!counts) check_ordered(dtype, monoid == Monoid::min ? "min" : "max");
  if (is_complex(dtype) || is_floating(dtype)) return Type::f64;
  if (dtype == kUInt64) return Type::u64;
  return dtype == kBool && !counts ? Type::boolean : Type::i64;
}

Element identity(Monoid monoid, Type accumulator) {
  using Integer = std::numeric_limits<int64_t>;
  if (accumulator == Type::u64 && (monoid == Monoid::min || monoid == Monoid::max))
    return {accumulator, {.i = monoid == Monoid::min ? -1 : 0}};
  switch (monoid) {
    case Monoid::sum:
    case Monoid::any:
      return as(accumulator, integer(0));
    case Monoid::prod:
    case Monoid::all:
      return as(accumulator, integer(1));
    case Monoid::min:
      return as(accumulator, accumulator == Type::i64 ? integer(Integer::max()) : number(INFINITY));
    case Monoid::max:
      if (accumulator == Type::boolean) return as(accumulator, integer(0));
      return as(accumulator,
                accumulator == Type::i64 ? integer(Integer::min()) : number(-INFINITY));
  }
  __builtin_unreachable();
}

// ---- programs

using Numbers = std::vector<Literal>;

/// The parameters of a call whose slots are read.
Numbers read_slots(std::span<const Literal> params, std::span<const prim::Slot> slots) {
  Numbers result(params.begin(), params.end());
  for (const prim::Slot& slot : slots) result[size_t(slot.number)] = load(slot.value, {}).value;
  return result;
}

/// A program's values for one element.
SmallVector<Element, 4> evaluate(const expr::Program& program, std::span<const View> inputs,
                                 const Numbers& params, IntList index) {
  ARETE_ASSERT(inputs.size() == program.inputs().size());
  SmallVector<Literal, 8> values;
  for (size_t k = 0; k < inputs.size(); ++k) {
    ARETE_ASSERT(inputs[k].dtype == program.inputs()[k]);
    values.push_back(program.is_table(k)
                         ? Literal{.i = int64_t(reinterpret_cast<intptr_t>(inputs[k].data))}
                         : load(inputs[k], index).value);
  }
  const Numbers outputs = expr::evaluate(program, {values.data(), values.size()}, params);
  SmallVector<Element, 4> result;
  for (size_t k = 0; k < outputs.size(); ++k)
    result.push_back({expr::compute_type(program.outputs()[k].dtype), outputs[k]});
  return result;
}

// ---- lanes

int64_t length(const View& v, int dim) { return v.rank() == 0 ? 1 : v.sizes[size_t(dim)]; }

/// `index` with another position along `dim` (which a view without dimensions has not).
Shape at(Shape index, int dim, int64_t position) {
  if (!index.empty()) index[size_t(dim)] = position;
  return index;
}

/// Calls f(index of the lane's first element, the lane's elements) for the lanes along `dim`.
template <class F>
void for_each_lane(const View& v, int dim, F&& f) {
  for (IndexWalk head(at(Shape(v.sizes), dim, 1)); head; ++head) {
    std::vector<Element> lane;
    for (int64_t i = 0; i < length(v, dim); ++i) lane.push_back(load(v, at(*head, dim, i)));
    f(*head, lane);
  }
}

bool is_nan(const Element& e) { return expr::is_float(e.type) && std::isnan(e.value.f); }
/// NaN is the largest. Both of one type.
bool is_less(const Element& a, const Element& b) {
  if (is_nan(a) || is_nan(b)) return !is_nan(a);
  return expr::is_float(a.type) ? a.value.f < b.value.f : a.value.i < b.value.i;
}

/// An index along `dim`, counted from the start.
int64_t resolve(const Element& index, const View& v, int dim, const char* op) {
  const int64_t size = length(v, dim), given = index.value.i;
  const int64_t i = given < 0 ? given + size : given;
  ARETE_CHECK(i >= 0 && i < size,
              IndexError(op, "index " + std::to_string(given) + " is out of bounds for dimension " +
                                 std::to_string(dim) + " with size " + std::to_string(size))
                  .argument("index"));
  return i;
}

}  // namespace

void ReferencePrimitives::fill(const prim::FillArgs& a) {
  Element value = a.value_is_integer ? integer(a.value.i) : number(a.value.f);
  if (is_complex(a.out.dtype)) value.imag = a.imag;
  for (IndexWalk i(a.out.sizes); i; ++i) store(a.out, *i, value);
}

void ReferencePrimitives::copy(const prim::CopyArgs& a) {
  for (IndexWalk i(a.out.sizes); i; ++i) store(a.out, *i, load(a.in, *i));
}

void ReferencePrimitives::iota(const prim::IotaArgs& a) {
  for (int64_t i = 0; i < a.out.sizes[0]; ++i)
    store(a.out, {i},
          is_integral_or_bool(a.out.dtype)
              ? integer(int64_t(uint64_t(a.istart) + uint64_t(i) * uint64_t(a.istep)))
              : number(a.start + double(i) * a.step));
}

void ReferencePrimitives::pointwise(const prim::PointwiseArgs& a) {
  const Numbers params = read_slots(a.params, a.slots);
  for (IndexWalk i(a.outputs[0].sizes); i; ++i) {
    const auto values = evaluate(*a.program, a.inputs, params, *i);
    for (size_t k = 0; k < values.size(); ++k) store(a.outputs[k], *i, values[k]);
  }
}

void ReferencePrimitives::reduce(const prim::ReduceArgs& a) {
  const Numbers params = read_slots(a.params, a.slots),
                epilogue_params = read_slots(a.epilogue_params, a.epilogue_slots);
  const Type accumulator =
      accumulator_of(a.monoid, a.prologue ? a.prologue->outputs()[0].dtype : a.inputs[0].dtype);
  Shape reduced;
  for (size_t d = 0; d < a.space.size(); ++d)
    reduced.push_back(a.reduced >> d & 1 ? a.space[d] : 1);

  for (IndexWalk out(a.out.sizes); out; ++out) {
    Element result = identity(a.monoid, accumulator);
    for (IndexWalk in(reduced); in; ++in) {
      Shape index = *out;
      for (size_t d = 0; d < index.size(); ++d) index[d] += (*in)[d];
      const Element value =
          a.prologue ? evaluate(*a.prologue, a.inputs, params, index)[0] : load(a.inputs[0], index);
      result = combine(a.monoid, result, as(accumulator, value));
    }
    if (a.epilogue) {
      const DType between = a.epilogue->inputs()[0];
      const Literal value =
          expr::round_literal(as(expr::compute_type(between), result).value, between);
      result = {expr::compute_type(a.epilogue->outputs()[0].dtype),
                expr::evaluate(*a.epilogue, {&value, 1}, epilogue_params)[0]};
    }
    store(a.out, *out, result);
  }
}

void ReferencePrimitives::arg_reduce(const prim::ArgReduceArgs& a) {
  check_ordered(a.in.dtype, a.largest ? "argmax" : "argmin");
  for_each_lane(a.in, a.dim, [&](const Shape& head, const std::vector<Element>& lane) {
    const auto wins = [&](const Element& v, const Element& best) {
      if (is_nan(v) || is_nan(best)) return !is_nan(best);
      return a.largest ? is_less(best, v) : is_less(v, best);
    };
    size_t best = 0;
    for (size_t i = 1; i < lane.size(); ++i)
      if (wins(lane[i], lane[best])) best = i;
    store(a.out, head, integer(int64_t(best)));
    if (a.values) store(a.values, head, lane[best]);
  });
}

void ReferencePrimitives::scan(const prim::ScanArgs& a) {
  const Type accumulator = accumulator_of(a.monoid, a.in.dtype);
  for_each_lane(a.in, a.dim, [&](const Shape& head, const std::vector<Element>& lane) {
    Element running = identity(a.monoid, accumulator);
    const int64_t n = int64_t(lane.size());
    double top = -HUGE_VAL, sum = 0, best = 0;  // what is summed is sum * exp(top)
    int64_t place = -1;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t position = a.reverse ? n - 1 - i : i;
      const Shape to = at(head, a.dim, position);
      const double v = to_double(lane[size_t(position)]);
      if (a.logarithmic) {
        const double higher = v > top || v != v ? v : top;
        const auto weight = [&](double x) { return x == higher ? 1 : std::exp(x - higher); };
        sum = sum * weight(top) + weight(v);
        top = higher;
        store(a.out, to, number(top + std::log(sum)));
        continue;
      }
      if (a.factors) {
        running = combine(Monoid::sum, running, as(accumulator, lane[size_t(position)]));
        store(a.out, to, running);
        running = combine(Monoid::prod, running, as(accumulator, load(a.factors, to)));
        continue;
      }
      if (a.indices) {
        if (place < 0 || v != v || (a.monoid == Monoid::max ? v >= best : v <= best)) {
          place = i;
          best = v;
        }
        store(a.indices, to, integer(place));
        store(a.out, to, lane[size_t(a.reverse ? n - 1 - place : place)]);
        continue;
      }
      running = combine(a.monoid, running, as(accumulator, lane[size_t(position)]));
      store(a.out, at(head, a.dim, position), running);
    }
  });
}

void ReferencePrimitives::sort(const prim::SortArgs& a) {
  check_ordered(a.in.dtype, "sort");
  for_each_lane(a.in, a.dim, [&](const Shape& head, const std::vector<Element>& lane) {
    std::vector<size_t> order(lane.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
      return a.descending ? is_less(lane[j], lane[i]) : is_less(lane[i], lane[j]);
    });
    for (size_t i = 0; i < order.size(); ++i) {
      const Shape index = at(head, a.dim, int64_t(i));
      if (a.values) store(a.values, index, lane[order[i]]);
      if (a.indices) store(a.indices, index, integer(int64_t(order[i])));
    }
  });
}

void ReferencePrimitives::gather(const prim::GatherArgs& a) {
  for (IndexWalk i(a.out.sizes); i; ++i) {
    const Element index = load(a.index, *i);
    if (a.leaves_out && index.value.i == a.left_out) {
      store(a.out, *i, integer(0));
      continue;
    }
    // Where something is left out nothing counts from the end.
    if (a.leaves_out && index.value.i < 0)
      throw IndexError(a.op, "index " + std::to_string(index.value.i) +
                                 " is out of bounds for dimension " + std::to_string(a.dim) +
                                 " with size " + std::to_string(a.in.sizes[size_t(a.dim)]));
    const int64_t from = resolve(index, a.in, a.dim, a.op);
    store(a.out, *i, load(a.in, at(*i, a.dim, from)));
  }
}

void ReferencePrimitives::scatter(const prim::ScatterArgs& a) {
  using prim::ScatterMode;
  if (a.places) return prim::scatter_to_stored_places(*this, a);
  const bool ordered = a.mode == ScatterMode::min || a.mode == ScatterMode::max;
  if (ordered) check_ordered(a.out.dtype, a.op);
  for (IndexWalk i(a.index.sizes); i; ++i) {
    const Shape to = at(*i, a.dim, resolve(load(a.index, *i), a.out, a.dim, a.op));
    Element value = load(a.src, *i);
    const Element old = load(a.out, to);
    if (a.factors) {
      const Element factor = load(a.factors, *i);
      if (factor.value.f == 0) continue;
      value = combine(Monoid::prod, value, factor);
    }
    switch (a.mode) {
      case ScatterMode::set:
        store(a.out, to, value);
        break;
      case ScatterMode::add:
        store(a.out, to, combine(Monoid::sum, old, value));
        break;
      case ScatterMode::mul:
        store(a.out, to, combine(Monoid::prod, old, value));
        break;
      case ScatterMode::min:
        store(a.out, to, combine(Monoid::min, old, value));
        break;
      case ScatterMode::max:
        store(a.out, to, combine(Monoid::max, old, value));
        break;
    }
  }
}

int64_t ReferencePrimitives::compact(const prim::CompactArgs& a) {
  int64_t position = 0, count = 0;
  for (IndexWalk i(a.mask.sizes); i; ++i, ++position) {
    if (load(a.mask, *i).value.i == 0) continue;
    if (a.out.rank() == 2)
      for (int d = 0; d < a.mask.rank(); ++d) store(a.out, {d, count}, integer((*i)[size_t(d)]));
    else
      store(a.out, {count}, integer(position));
    ++count;
  }
  return count;
}

// Note [Random numbers] in prim/philox.h.
void ReferencePrimitives::random(const prim::RandomArgs& a) {
  if (a.program) return prim::random_in_two(*this, a);
  using Distribution = prim::RandomArgs::Distribution;
  uint64_t seed = a.seed, offset = a.offset;
  if (a.state) {
    seed ^= uint64_t(load(a.state, {0}).value.i);
    offset += uint64_t(load(a.state, {1}).value.i);
  }
  const uint64_t per_block = uint64_t(prim::random_elements_per_block(a));
  const bool wide = per_block == 2;
  uint64_t position = 0;
  for (IndexWalk i(a.out.sizes); i; ++i, ++position) {
    const prim::PhiloxBlock block = prim::philox_block(seed, offset + position / per_block);
    const auto& lane = block.lane;
    const uint64_t k = position % per_block;
    const uint32_t low = lane[wide ? 2 * k : k], high = wide ? lane[2 * k + 1] : 0;
    switch (a.distribution) {
      case Distribution::uniform: {
        const prim::UniformLimits limits = prim::uniform_limits(a.out.dtype, a.a, a.b);
        const double v = wide ? a.a + prim::random_unit_f64(low, high) * (a.b - a.a)
                              : float(a.a) + prim::random_unit_f32(low) * float(a.b - a.a);
        store(a.out, *i, number(std::min(std::max(v, limits.low), limits.high)));
        break;
      }
      case Distribution::normal: {
        if (wide) {
          const auto z = prim::random_normal_f64(lane[0], lane[1], lane[2], lane[3]);
          store(a.out, *i, number(a.a + a.b * (k == 0 ? z.even : z.odd)));
        } else {
          const auto z = prim::random_normal_f32(lane[k & ~1u], lane[k | 1u]);
          store(a.out, *i, number(float(a.a) + float(a.b) * (k % 2 == 0 ? z.even : z.odd)));
        }
        break;
      }
      case Distribution::integers: {
        const uint64_t range = uint64_t(a.ib) - uint64_t(a.ia);
        const uint64_t below = wide ? prim::random_mul_high(uint64_t(high) << 32 | low, range)
                                    : uint64_t(low) * range >> 32;
        store(a.out, *i, integer(int64_t(uint64_t(a.ia) + below)));
        break;
      }
      case Distribution::bernoulli:
        store(a.out, *i, integer(double(low) * 0x1p-32 < a.a));
        break;
    }
  }
}

namespace {

// ---- products. Sums are of A: f64, complex f64, or unsigned integers, which wrap.

template <class A>
A to(const Element& e) {
  if constexpr (std::is_same_v<A, uint64_t>)
    return uint64_t(as(Type::i64, e).value.i);
  else if constexpr (std::is_same_v<A, double>)
    return to_double(e);
  else
    return A(to_double(e), e.imag);
}
Element from(uint64_t v) { return integer(int64_t(v)); }
Element from(double v) { return number(v); }
Element from(std::complex<double> v) { return {Type::f64, {.f = v.real()}, v.imag()}; }

double activated(prim::Activation activation, double x) {
  switch (activation) {
    case prim::Activation::none:
      return x;
    case prim::Activation::relu:
      return x < 0 ? 0 : x;
    case prim::Activation::gelu:
      return 0.5 * x * std::erfc(-x * M_SQRT1_2);
    case prim::Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(M_2_PI) * (x + 0.044715 * x * x * x)));
  }
  __builtin_unreachable();
}

double slope(prim::Activation activation, double x) {
  switch (activation) {
    case prim::Activation::none:
      return 1;
    case prim::Activation::relu:
      return x <= 0 ? 0 : 1;
    case prim::Activation::gelu:
      return 0.5 * std::erfc(-x * M_SQRT1_2) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
    case prim::Activation::gelu_tanh: {
      const double t = std::tanh(std::sqrt(M_2_PI) * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(M_2_PI) * (1 + 3 * 0.044715 * x * x);
    }
  }
  __builtin_unreachable();
}

/// The matrix of a batch, row by row.
template <class A>
std::vector<A> matrix(const View& v, Shape index) {
  const int row = v.rank() - 2, column = row + 1;
  std::vector<A> values;
  for (index[row] = 0; index[row] < v.sizes[row]; ++index[row])
    for (index[column] = 0; index[column] < v.sizes[column]; ++index[column])
      values.push_back(to<A>(load(v, index)));
  return values;
}

template <class A>
void multiply(const prim::GemmArgs& g) {
  const A alpha = to<A>(number(g.alpha)), beta = to<A>(number(g.beta));
  const int row = g.out.rank() - 2, column = row + 1;
  const int64_t rows = g.out.sizes[row], columns = g.out.sizes[column], inner = g.a.sizes[column];

  for (IndexWalk batch(at(at(Shape(g.out.sizes), row, 1), column, 1)); batch; ++batch) {
    const std::vector<A> a = matrix<A>(g.a, *batch), b = matrix<A>(g.b, *batch);
    for (IndexWalk i({rows, columns}); i; ++i) {
      A x{};
      for (int64_t k = 0; k < inner; ++k)
        x += a[size_t((*i)[0] * inner + k)] * b[size_t(k * columns + (*i)[1])];
      x *= alpha;
      const Shape to_out = at(at(*batch, row, (*i)[0]), column, (*i)[1]);
      if (beta != A(0)) x += beta * to<A>(load(g.out, to_out));
      for (const View* factor : {&g.a_scale, &g.b_scale})
        if (*factor) x *= to<A>(load(*factor, to_out));
      if (g.bias) x += to<A>(load(g.bias, to_out));
      if (g.aux && !g.differentiate) store(g.aux, to_out, from(x));
      if constexpr (std::is_same_v<A, double>) {
        if (g.differentiate)
          x *= slope(g.activation, to_double(load(g.aux, to_out)));
        else
          x = activated(g.activation, x);
      }
      store(g.out, to_out, from(x));
    }
  }
  if (g.a_sum)
    for (int64_t i = 0; i < g.a_sum.sizes[0]; ++i) {
      A sum{};
      for (int64_t k = 0; k < inner; ++k) sum += to<A>(load(g.a, {i, k}));
      store(g.a_sum, {i}, from(sum));
    }
}

}  // namespace

void ReferencePrimitives::gemm(const prim::GemmArgs& g) {
  if (g.has_programs()) return prim::gemm_with_programs(*this, g);
  ARETE_CHECK(g.product_dtype() != kBool,
              TypeError("matmul", "\"addmm_impl_cpu_\" not implemented for 'Bool'").got("bool"));
  if (is_complex(g.out.dtype))
    multiply<std::complex<double>>(g);
  else if (is_floating(g.out.dtype))
    multiply<double>(g);
  else
    multiply<uint64_t>(g);
}

}  // namespace arete::test
