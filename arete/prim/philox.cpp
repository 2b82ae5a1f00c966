#include "arete/prim/philox.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "arete/base/error.h"
#include "arete/base/small_vector.h"
#include "arete/prim/backend.h"
#include "arete/prim/view.h"

namespace arete::prim {
namespace {

// The neighbour of `v`, a value of the storage type T, in the direction of `to`.
template <class T>
double neighbour(double v, double to) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::nextafter(T(v), T(to));
  } else {
    // Small formats order like sign and magnitude integers.
    T x{float(v)};
    using Bits = decltype(x.bits);
    constexpr Bits kSign = Bits(Bits(1) << (8 * sizeof(Bits) - 1));
    const bool up = to > v;
    if ((x.bits & Bits(~kSign)) == 0)
      x.bits = Bits(up ? 1 : kSign | 1);
    else
      x.bits = Bits(((x.bits & kSign) != 0) == up ? x.bits - 1 : x.bits + 1);
    return float(x);
  }
}

template <class T>
UniformLimits limits(double a, double b) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto round = [](double v) {
    if constexpr (std::is_floating_point_v<T>)
      return double(T(v));
    else
      return double(float(T{float(v)}));
  };
  double low = round(a), high = round(b);
  if (low < a) low = neighbour<T>(low, kInf);
  // An f64 bound may lie above the value it rounds to.
  if (high >= b) high = neighbour<T>(high, -kInf);
  if (!(low <= high)) low = high = round(a);
  return {low, high};
}

}  // namespace

UniformLimits uniform_limits(DType dtype, double a, double b) {
  switch (dtype) {
    case kFloat64:
      return limits<double>(a, b);
    case kFloat32:
      return limits<float>(a, b);
    case kFloat16:
      return limits<Half>(a, b);
    case kBFloat16:
      return limits<BFloat16>(a, b);
    case kFloat8E4M3:
      return limits<Float8E4M3>(a, b);
    case kFloat8E5M2:
      return limits<Float8E5M2>(a, b);
    default:
      throw TypeError("uniform", "uniform random numbers need a floating dtype")
          .got(name_of(dtype));
  }
}

void apply_random_state(const View& state, uint64_t& seed, uint64_t& offset) {
  ARETE_ASSERT(state.dtype == kInt64 && state.numel() == 2);
  const uint64_t* const numbers = state.as<uint64_t>();
  seed ^= numbers[0];
  offset += numbers[state.strides[0]];
}

DType random_dtype(const RandomArgs& args) {
  return args.program ? args.program->inputs()[0] : args.out.dtype;
}

int random_elements_per_block(const RandomArgs& args) {
  switch (args.distribution) {
    case RandomArgs::Distribution::uniform:
    case RandomArgs::Distribution::normal:
      return random_dtype(args) == kFloat64 ? 2 : 4;
    case RandomArgs::Distribution::integers:
      return uint64_t(args.ib) - uint64_t(args.ia) > (uint64_t(1) << 32) ? 2 : 4;
    case RandomArgs::Distribution::bernoulli:
      break;
  }
  return 4;
}

uint64_t random_blocks(const RandomArgs& args) {
  const uint64_t per = uint64_t(random_elements_per_block(args));
  return (uint64_t(args.out.numel()) + per - 1) / per;
}

void random_in_two(Primitives& on, const RandomArgs& args) {
  RandomArgs drawn = args;
  drawn.program = nullptr;
  drawn.inputs = {};
  drawn.params = {};
  drawn.slots = {};
  const DType dtype = random_dtype(args);
  std::optional<ScratchView> numbers;
  const auto is_out = [&](const View& v) { return v.data == args.out.data; };
  if (dtype != args.out.dtype || std::ranges::any_of(args.inputs, is_out))
    drawn.out = numbers.emplace(on, dtype, args.out.sizes);
  on.random(drawn);
  SmallVector<View, 4> inputs{drawn.out};
  inputs.append(args.inputs.begin(), args.inputs.end());
  on.pointwise({args.program,
                {inputs.data(), inputs.size()},
                {&args.out, 1},
                args.params,
                args.slots,
                args.context});
}

}  // namespace arete::prim
