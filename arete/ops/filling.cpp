#include "arete/ops/filling.h"

#include <cmath>

#include "arete/base/error.h"

namespace arete::ops {

namespace {

// Whether a number becomes one of an integer dtype's own. Negative whole numbers of no more digits
// wrap around to unsigned ones.
bool holds_integer(DType t, const Scalar& value) {
  const double v = value.to_double(), end = std::ldexp(1.0, 8 * int(size_of(t)) - !is_unsigned(t));
  if (!value.is_integral())
    // The double next to the largest number of 64 bits is beyond it; and a NaN is nowhere.
    return v >= lowest_of(t) && (size_of(t) == 8 ? v < end : v <= end - 1);
  if (size_of(t) == 8) return t == kUInt64 || !value.is_large();
  return v >= (is_unsigned(t) ? 1 - end : -end) && v < end;
}

}  // namespace

void check_holds(DType dtype, const Scalar& value, const char* op) {
  if (dtype == kBool || is_complex(dtype)) return;
  bool holds = value.imag() == 0;
  if (holds && is_integer(dtype)) holds = holds_integer(dtype, value);
  ARETE_CHECK(holds, ValueError(op, "value cannot be converted to type " +
                                        std::string(name_of(dtype)) + " without overflow")
                         .got(value.to_string()));
}

prim::FillArgs filling(const prim::View& out, const Scalar& value, const char* op) {
  check_holds(out.dtype, value, op);
  prim::FillArgs args{out, {}, is_integral_or_bool(out.dtype), 0};
  if (out.dtype == kBool)
    args.value.i = value.to_bool();
  else if (args.value_is_integer)
    args.value.i = out.dtype == kUInt64 && !value.is_integral()
                       ? int64_t(uint64_t(value.to_double()))
                       : int64_t(value.to_bits());
  else
    args.value.f = value.to_double();
  if (is_complex(out.dtype)) args.imag = value.imag();
  return args;
}

}  // namespace arete::ops
