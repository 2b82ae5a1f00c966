#include "arete/backend/cpu/narrow_integers.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace arete::cpu {
namespace {

using expr::Instruction;
using expr::Op;
using expr::Program;
using expr::Type;

/// Numbers from `low` to `high`.
struct Range {
  int64_t low, high;
  bool holds(const Range& r) const { return low <= r.low && r.high <= high; }
};
constexpr Range kAllOfI32{INT32_MIN, INT32_MAX};

Range range_of(DType d) {
  switch (d) {
    case DType::u8:
      return {0, UINT8_MAX};
    case DType::i8:
      return {INT8_MIN, INT8_MAX};
    case DType::i16:
      return {INT16_MIN, INT16_MAX};
    default:
      return kAllOfI32;
  }
}

/// The narrow storage type that all of the program's integers of type i32 come from and go to; i32
/// if there is another or none. What an accumulator takes (`values`) goes nowhere.
DType narrow_storage(const Program& program, bool values) {
  std::optional<DType> found;
  const auto meets = [&](DType d) {
    if (expr::compute_type(d) == Type::i32) found = !found || *found == d ? d : DType::i32;
  };
  for (const Instruction& in : program.code()) {
    if (in.op == Op::input) meets(program.inputs()[size_t(in.index)]);
    if (in.op == Op::round_to) meets(DType(in.index));
  }
  for (const Program::Output& o : program.outputs())
    if (!values || o.dtype != DType::i32) meets(o.dtype);
  return found.value_or(DType::i32);
}

/// The range of an i32 that is made of such operands; nothing if what it is of them depends on more
/// than their last bits, which only operands in `held` are known by.
std::optional<Range> range_of_result(const Instruction& in, const Range& held, const Range& a,
                                     const Range& b, const Range& c) {
  const auto within = [](int64_t low, int64_t high) {
    const Range r{low, high};
    return kAllOfI32.holds(r) ? r : kAllOfI32;
  };
  const bool both_held = held.holds(a) && held.holds(b);
  switch (in.op) {
    case Op::add:
      return within(a.low + b.low, a.high + b.high);
    case Op::sub:
      return within(a.low - b.high, a.high - b.low);
    case Op::mul: {
      const auto [low, high] =
          std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
      return within(low, high);
    }
    case Op::neg:
      return within(-a.high, -a.low);
    case Op::bit_not:
      return Range{~a.high, ~a.low};
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor:
      return both_held ? held : kAllOfI32;
    case Op::select:
      return Range{std::min(b.low, c.low), std::max(b.high, c.high)};
    case Op::shl:
      if (held.holds(b)) return kAllOfI32;
      break;
    case Op::shr:
      if (both_held) return held;
      break;
    case Op::abs:
      if (held.holds(a)) return Range{0, std::max(-a.low, a.high)};
      break;
    case Op::sign:
      if (held.holds(a)) return Range{a.low < 0 ? -1 : 0, 1};
      break;
    case Op::min:
      if (both_held) return Range{std::min(a.low, b.low), std::min(a.high, b.high)};
      break;
    case Op::max:
      if (both_held) return Range{std::max(a.low, b.low), std::max(a.high, b.high)};
      break;
    default:
      break;
  }
  return std::nullopt;
}

}  // namespace

kernels::KType type_of_integers(const Program& program, const CodeKey& key) {
  const DType storage = narrow_storage(program, key.values);
  // There are no kernels of u16.
  if (storage == DType::i32 || storage == DType::u16) return kernels::t_i32;
  const Range held = range_of(storage);
  const auto code = program.code();
  std::vector<Range> ranges(code.size(), kAllOfI32);  // of those of type i32
  const auto is_held = [&](int i) {
    return code[size_t(i)].type != Type::i32 || held.holds(ranges[size_t(i)]);
  };
  for (size_t i = 0; i < code.size(); ++i) {
    const Instruction& in = code[i];
    if (in.type != Type::i32) {
      for (int o : in.operand)
        if (o >= 0 && !is_held(o)) return kernels::t_i32;
      continue;
    }
    const auto of_operand = [&](int k) {
      return in.operand[size_t(k)] < 0 ? Range{0, 0} : ranges[size_t(in.operand[size_t(k)])];
    };
    switch (in.op) {
      case Op::input:
      case Op::round_to:
        ranges[i] = held;
        break;
      case Op::param:
        if (key.narrow_params) ranges[i] = held;
        break;
      case Op::constant:
        ranges[i] = {in.value.i, in.value.i};
        break;
      case Op::cast:
        if (code[size_t(in.operand[0])].type == Type::boolean) ranges[i] = {0, 1};
        break;
      default: {
        const auto range = range_of_result(in, held, of_operand(0), of_operand(1), of_operand(2));
        if (!range) return kernels::t_i32;
        ranges[i] = *range;
      }
    }
  }
  for (const Program::Output& o : program.outputs())
    if (o.dtype != storage && !is_held(o.value)) return kernels::t_i32;
  return storage == DType::u8   ? kernels::t_u8
         : storage == DType::i8 ? kernels::t_i8
                                : kernels::t_i16;
}

bool has_narrow_params(const Program& program, std::span<const expr::Literal> params) {
  bool any = false;
  for (Type t : program.params()) any |= t == Type::i32;
  if (!any) return false;
  const DType storage = narrow_storage(program, false);
  if (storage == DType::i32) return false;
  const Range held = range_of(storage);
  for (size_t k = 0; k < params.size(); ++k)
    if (program.params()[k] == Type::i32 &&
        (program.has_in_memory(k) || !held.holds({params[k].i, params[k].i})))
      return false;
  return true;
}

}  // namespace arete::cpu
