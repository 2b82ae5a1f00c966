// Names, arities and types of instructions.
#include <array>

#include "arete/base/error.h"
#include "arete/expr/program.h"

namespace arete::expr {

namespace {
struct OpInfo {
  Op op;
  const char* name;
  int arity;
};
constexpr OpInfo kOps[] = {
    {Op::input, "input", 0},
    {Op::param, "param", 0},
    {Op::constant, "constant", 0},
    {Op::neg, "neg", 1},
    {Op::abs, "abs", 1},
    {Op::sign, "sign", 1},
    {Op::bit_not, "bit_not", 1},
    {Op::floor, "floor", 1},
    {Op::ceil, "ceil", 1},
    {Op::trunc, "trunc", 1},
    {Op::round, "round", 1},
    {Op::sqrt, "sqrt", 1},
    {Op::rsqrt, "rsqrt", 1},
    {Op::reciprocal, "reciprocal", 1},
    {Op::exp, "exp", 1},
    {Op::exp2, "exp2", 1},
    {Op::expm1, "expm1", 1},
    {Op::log, "log", 1},
    {Op::log2, "log2", 1},
    {Op::log10, "log10", 1},
    {Op::log1p, "log1p", 1},
    {Op::sin, "sin", 1},
    {Op::cos, "cos", 1},
    {Op::tan, "tan", 1},
    {Op::asin, "asin", 1},
    {Op::acos, "acos", 1},
    {Op::atan, "atan", 1},
    {Op::sinh, "sinh", 1},
    {Op::cosh, "cosh", 1},
    {Op::tanh, "tanh", 1},
    {Op::asinh, "asinh", 1},
    {Op::acosh, "acosh", 1},
    {Op::atanh, "atanh", 1},
    {Op::erf, "erf", 1},
    {Op::erfc, "erfc", 1},
    {Op::erfinv, "erfinv", 1},
    {Op::lgamma, "lgamma", 1},
    {Op::digamma, "digamma", 1},
    {Op::sigmoid, "sigmoid", 1},
    {Op::is_nan, "is_nan", 1},
    {Op::is_inf, "is_inf", 1},
    {Op::add, "add", 2},
    {Op::sub, "sub", 2},
    {Op::mul, "mul", 2},
    {Op::div, "div", 2},
    {Op::floor_div, "floor_div", 2},
    {Op::fmod, "fmod", 2},
    {Op::remainder, "remainder", 2},
    {Op::pow, "pow", 2},
    {Op::atan2, "atan2", 2},
    {Op::copysign, "copysign", 2},
    {Op::nextafter, "nextafter", 2},
    {Op::min, "min", 2},
    {Op::max, "max", 2},
    {Op::bit_and, "bit_and", 2},
    {Op::bit_or, "bit_or", 2},
    {Op::bit_xor, "bit_xor", 2},
    {Op::gcd, "gcd", 2},
    {Op::shl, "shl", 2},
    {Op::shr, "shr", 2},
    {Op::eq, "eq", 2},
    {Op::ne, "ne", 2},
    {Op::lt, "lt", 2},
    {Op::le, "le", 2},
    {Op::gt, "gt", 2},
    {Op::ge, "ge", 2},
    {Op::select, "select", 3},
    {Op::mul_add, "mul_add", 3},
    {Op::mul_sub, "mul_sub", 3},
    {Op::sub_mul, "sub_mul", 3},
    {Op::cast, "cast", 1},
    {Op::round_to, "round_to", 1},
    {Op::load, "load", 2},
    {Op::polynomial, "polynomial", 2},
};
constexpr bool in_order() {
  for (int i = 0; i < kNumOps; ++i)
    if (int(kOps[i].op) != i) return false;
  return true;
}
static_assert(std::size(kOps) == kNumOps && in_order(), "one row per Op, in its order");
}  // namespace

const char* name_of(Op op) { return kOps[int(op)].name; }
int arity_of(Op op) { return kOps[int(op)].arity; }

Type compute_type(DType storage) {
  switch (storage) {
    case DType::boolean:
      return Type::boolean;
    case DType::u8:
    case DType::i8:
    case DType::u16:
    case DType::i16:
    case DType::i32:
      return Type::i32;
    case DType::u32:
    case DType::i64:
      return Type::i64;
    case DType::u64:
      return Type::u64;
    case DType::f16:
    case DType::bf16:
    case DType::f8e4m3:
    case DType::f8e5m2:
    case DType::f32:
      return Type::f32;
    case DType::f64:
      return Type::f64;
    case DType::c64:
    case DType::c128:
      break;
  }
  throw TypeError("", "elementwise programs do not compute in complex numbers")
      .got(name_of(storage))
      .hint("split into real and imaginary parts");
}

DType storage_type(Type t) {
  constexpr std::array<DType, kNumTypes> kStorage = {DType::boolean, DType::i32, DType::i64,
                                                     DType::u64,     DType::f32, DType::f64};
  return kStorage[size_t(t)];
}

}  // namespace arete::expr
