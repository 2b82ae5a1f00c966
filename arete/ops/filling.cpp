#include "arete/ops/filling.h"

#include <utility>

#include "arete/base/error.h"

namespace arete::ops {

namespace {

// The largest number of an integer dtype, and the smallest that becomes one of its own.
std::pair<int64_t, int64_t> range_of(DType t, bool fraction) {
  if (t == kUInt8) return {fraction ? 0 : -255, 255};
  const int bits = 8 * int(size_of(t)) - 1;
  const int64_t most = int64_t((uint64_t(1) << bits) - 1);
  return {-most - 1, most};
}

}  // namespace

void check_holds(DType dtype, const Scalar& value, const char* op) {
  if (dtype == kBool || is_complex(dtype)) return;
  bool holds = value.to_complex().imag() == 0;
  if (holds && is_integer(dtype)) {
    const auto [least, most] = range_of(dtype, !value.is_integral());
    // The double next to the largest int64 is beyond it; and a NaN is nowhere.
    const double v = value.to_double();
    holds = value.is_integral() ? value.to_int64() >= least && value.to_int64() <= most
                                : v >= double(least) && v <= double(most) && v < 0x1p63;
  }
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
    args.value.i = value.to_int64();
  else
    args.value.f = value.to_double();
  if (is_complex(out.dtype)) args.imag = value.to_complex().imag();
  return args;
}

}  // namespace arete::ops
