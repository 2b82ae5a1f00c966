#include "arete/backend/cuda/codegen/emit.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "arete/base/error.h"
#include "arete/expr/orthogonal.h"

namespace arete::cuda {

using expr::Instruction;
using expr::Op;
using expr::Type;

const char* storage_name(DType t) {
  static constexpr const char* kNames[kNumDTypes] = {
      "u8",   "i8",      "i16",  "i32",    "i64",    "f16", "f32", "f64", "c64",
      "c128", "boolean", "bf16", "f8e4m3", "f8e5m2", "u16", "u32", "u64"};
  return kNames[int(t)];
}

const char* compute_name(Type t) {
  static constexpr const char* kNames[] = {"bool", "i32", "i64", "u64", "f32", "f64"};
  return kNames[int(t)];
}

std::string literal_text(expr::Literal value, Type type) {
  char buffer[64];
  switch (type) {
    case Type::boolean:
      return value.i ? "true" : "false";
    case Type::i32:
      // The lowest number has no literal of its own.
      std::snprintf(buffer, sizeof buffer, "i32(0x%08xu)", uint32_t(int32_t(value.i)));
      return buffer;
    case Type::i64:
      std::snprintf(buffer, sizeof buffer, "i64(0x%llxull)", (unsigned long long)value.i);
      return buffer;
    case Type::u64:
      std::snprintf(buffer, sizeof buffer, "0x%llxull", (unsigned long long)value.i);
      return buffer;
    case Type::f32: {
      const float f = float(value.f);
      uint32_t bits;
      std::memcpy(&bits, &f, sizeof bits);
      if (!std::isfinite(f) || std::fabs(f) < 1e-30f)
        std::snprintf(buffer, sizeof buffer, "__uint_as_float(0x%08xu)", bits);
      else
        std::snprintf(buffer, sizeof buffer, "f32(%.9ef)", double(f));
      return buffer;
    }
    case Type::f64:
      break;
  }
  long long bits;
  std::memcpy(&bits, &value.f, sizeof bits);
  if (!std::isfinite(value.f) || std::fabs(value.f) < 1e-290)
    std::snprintf(buffer, sizeof buffer, "__longlong_as_double(0x%llxll)", bits);
  else
    std::snprintf(buffer, sizeof buffer, "f64(%.17e)", value.f);
  return buffer;
}

std::string number_expression(Type type, const std::string& slot) {
  if (expr::is_float(type)) return std::string(compute_name(type)) + "(" + slot + ".f)";
  return type == Type::boolean ? "(" + slot + ".i != 0)"
                               : std::string(compute_name(type)) + "(" + slot + ".i)";
}

std::string param_expression(const expr::Program& program, size_t k, const std::string& slot) {
  const Type type = program.params()[k];
  if (!program.has_in_memory(k)) return number_expression(type, slot);
  // No kernel writes the numbers that it reads.
  const bool is_float = expr::is_float(type);
  const std::string number = std::string("__ldg(reinterpret_cast<const ") +
                             (is_float ? "f64" : "i64") + "*>(" + slot + ".i))";
  return type == Type::boolean ? "(" + number + " != 0)"
                               : std::string(compute_name(type)) + "(" + number + ")";
}

std::vector<std::string> param_expressions(const expr::Program& program, const std::string& list,
                                           size_t first) {
  std::vector<std::string> all;
  for (size_t k = 0; k < program.params().size(); ++k)
    all.push_back(param_expression(program, k, list + "[" + std::to_string(first + k) + "]"));
  return all;
}

std::string monoid_name(prim::Monoid m, Type type) {
  static constexpr const char* kNames[] = {"Sum", "Prod", "Min", "Max", "All", "Any"};
  return std::string(kNames[int(m)]) + "<" + compute_name(type) + ">";
}

int weight_of(const expr::Program& program, const Instruction& c) {
  const int typed = c.operand[c.op == Op::select ? 1 : 0];
  const Type operand = typed >= 0 ? program.code()[size_t(typed)].type : c.type;
  const bool wide = operand == Type::f64 || operand == Type::i64 || operand == Type::u64;
  const bool integer = expr::is_int(operand);
  switch (c.op) {
    case Op::input:
    case Op::param:
    case Op::constant:
      return 0;
    case Op::div:
    case Op::reciprocal:
    case Op::sqrt:
      return integer ? (wide ? 130 : 40) : (wide ? 60 : 25);
    case Op::fmod:
    case Op::remainder:
      return wide ? (integer ? 130 : 260) : (integer ? 45 : 80);
    case Op::floor_div:
      return wide ? 300 : (integer ? 80 : 230);
    case Op::pow:
      return wide ? 250 : 90;
    case Op::lgamma:
    case Op::digamma:
      return 700;
    case Op::polynomial:
      return wide ? 400 : 200;
    case Op::sin:
    case Op::cos:
    case Op::tan:
      return wide ? 200 : 140;
    case Op::atan2:
      return wide ? 220 : 150;
    case Op::exp:
    case Op::exp2:
    case Op::tanh:
    case Op::erf:
    case Op::sigmoid:
    case Op::rsqrt:
      return wide ? 120 : 18;
    case Op::expm1:
    case Op::log:
    case Op::log2:
    case Op::log10:
    case Op::log1p:
    case Op::asin:
    case Op::acos:
    case Op::atan:
    case Op::sinh:
    case Op::cosh:
    case Op::asinh:
    case Op::acosh:
    case Op::atanh:
    case Op::erfc:
    case Op::erfinv:
    case Op::nextafter:
    case Op::gcd:
      return wide ? 180 : 40;
    default:
      return wide ? 2 : 1;
  }
}

namespace {

// For an addition that makes 1 + erf(x) or 1 + tanh(x): the position of the erf or tanh; else -1.
// The sum has a cheaper form than its parts (device/math.cuh), even where others read these: what
// else is in a program must not change its bits.
int one_plus_operand(const expr::Program& program, size_t at) {
  const auto code = program.code();
  if (code[at].op != Op::add || !expr::is_float(code[at].type)) return -1;
  for (int k = 0; k < 2; ++k) {
    const Instruction& one = code[size_t(code[at].operand[size_t(k)])];
    const int other = code[at].operand[size_t(1 - k)];
    const Op op = code[size_t(other)].op;
    if (one.op == Op::constant && one.value.f == 1 && (op == Op::erf || op == Op::tanh))
      return other;
  }
  return -1;
}

// Note [Branches of a program]
// What only one arm of a select reads, directly or not, need not be computed where the other arm is
// chosen. A region is the whole program or an arm of a select; a value lies in the innermost region
// that has all of its uses. Arms that take many instructions become branches, which a warp skips
// if none of its threads goes there; others are computed and chosen from.
class Regions {
 public:
  explicit Regions(const expr::Program& program) : code_(program.code()) {
    parent_.assign(1 + 2 * code_.size(), -1);
    of_.assign(code_.size(), -1);
    for (const auto& o : program.outputs()) of_[size_t(o.value)] = 0;
    std::vector<int64_t> weight(parent_.size());
    for (size_t i = code_.size(); i-- > 0;) {
      if (of_[i] < 0) of_[i] = 0;  // nothing reads it
      const bool chooses = code_[i].op == Op::select;
      for (int k = 0; k < 3; ++k) {
        const int32_t o = code_[i].operand[size_t(k)];
        if (o < 0) continue;
        int region = of_[i];
        if (chooses && k > 0) {
          region = arm(i, k);
          parent_[size_t(region)] = of_[i];
        }
        int& where = of_[size_t(o)];
        where = where < 0 ? region : common(where, region);
      }
    }
    // A select comes after all that lies in its arms.
    for (size_t i = 0; i < code_.size(); ++i)
      weight[size_t(of_[i])] += code_[i].op == Op::load ? kLoad : weight_of(program, code_[i]);
    for (size_t i = 0; i < code_.size(); ++i)
      if (code_[i].op == Op::select)
        for (int k = 1; k < 3; ++k) weight[size_t(of_[i])] += weight[size_t(arm(i, k))];
    branches_.assign(code_.size(), 0);
    std::vector<int> merged(parent_.size());
    for (size_t i = code_.size(); i-- > 0;) {
      of_[i] = merged[size_t(of_[i])];
      if (code_[i].op != Op::select) continue;
      const int first = arm(i, 1), second = arm(i, 2);
      branches_[i] = weight[size_t(first)] >= kCostly || weight[size_t(second)] >= kCostly;
      merged[size_t(first)] = branches_[i] ? first : of_[i];
      merged[size_t(second)] = branches_[i] ? second : of_[i];
    }
  }
  /// Operand k, 1 or 2, of the select at position i.
  static int arm(size_t i, int k) { return int(2 * i) + k; }
  int of(size_t i) const { return of_[i]; }
  bool branches(size_t i) const { return branches_[i]; }

 private:
  // A load at a place of its own may take a warp 32 turns; one alone is no reason to branch.
  static constexpr int kCostly = 60, kLoad = 30;

  int common(int a, int b) const {
    // The region around an arm belongs to a later select, or is the program.
    while (a != b) {
      int& inner = a == 0 ? b : b == 0 ? a : a < b ? a : b;
      inner = parent_[size_t(inner)];
    }
    return a;
  }

  std::span<const Instruction> code_;
  std::vector<int> parent_, of_;
  std::vector<char> branches_;
};

}  // namespace

std::vector<std::string> emit_values(std::string& text, const expr::Program& program,
                                     std::span<const std::string> inputs,
                                     std::span<const std::string> params, std::string_view prefix,
                                     std::string_view indent, bool for_sums) {
  const auto code = program.code();
  std::vector<int> uses(code.size());
  for (const Instruction& c : code)
    for (const int32_t o : c.operand)
      if (o >= 0) ++uses[size_t(o)];
  std::vector<int> stored(code.size());
  for (const auto& o : program.outputs()) ++stored[size_t(o.value)];
  std::vector<int> sums(code.size());  // that have a form without it
  for (size_t i = 0; i < code.size(); ++i)
    if (const int part = one_plus_operand(program, i); part >= 0) ++sums[size_t(part)];

  const Regions regions(program);
  std::vector<std::vector<size_t>> members(1 + 2 * code.size());
  for (size_t i = 0; i < code.size(); ++i) members[size_t(regions.of(i))].push_back(i);
  std::vector<std::string> names(code.size());
  const auto emit = [&](auto& self, int region, const std::string& space) -> void {
    for (const size_t i : members[size_t(region)]) {
      const Instruction& c = code[i];
      const auto operand = [&](int k) -> const std::string& {
        return names[size_t(c.operand[size_t(k)])];
      };
      if (sums[i] > 0 && sums[i] == uses[i] + stored[i]) continue;  // the sum computes the function
      std::string value;
      switch (c.op) {
        case Op::input:
          names[i] = inputs[size_t(c.index)];
          continue;
        case Op::param:
          names[i] = params[size_t(c.index)];
          continue;
        case Op::constant:
          names[i] = literal_text(c.value, c.type);
          continue;
        case Op::select:
          if (regions.branches(i)) {
            names[i] = std::string(prefix) + std::to_string(i);
            text += space + compute_name(c.type) + " " + names[i] + ";\n";
            for (int k = 1; k < 3; ++k) {
              text += space + (k == 1 ? "if (" + operand(0) + ") {\n" : "} else {\n");
              self(self, Regions::arm(i, k), space + "  ");
              text += space + "  " + names[i] + " = " + operand(k) + ";\n";
            }
            text += space + "}\n";
            continue;
          }
          value = "op_select(" + operand(0) + ", " + operand(1) + ", " + operand(2) + ")";
          break;
        case Op::cast:
          value = std::string("op_cast<") + compute_name(c.type) + ">(" + operand(0) + ")";
          break;
        case Op::load:
          value = "to_compute(" + operand(0) + "[" + operand(1) + "])";
          break;
        case Op::polynomial: {
          const expr::OrthogonalFamily& f = expr::kOrthogonal[expr::family_of(c.index)];
          value = "op_polynomial<" + std::to_string(expr::order_of(c.index));
          for (double v : {f.f1, f.f0, f.a0, f.a1, f.b0, f.b1, f.c0, f.c1, f.d1})
            value += ", " + std::to_string(int(v));
          value += ">(" + operand(0) + ", " + operand(1) + ")";
          break;
        }
        case Op::round_to:
          value = std::string("to_compute(from_compute<") + storage_name(DType(c.index)) + ">(" +
                  operand(0) + "))";
          break;
        default: {
          if (const int part = one_plus_operand(program, i); part >= 0) {
            const Instruction& function = code[size_t(part)];
            value = std::string("op_one_plus_") + expr::name_of(function.op) + "(" +
                    names[size_t(function.operand[0])] + ")";
            break;
          }
          if (for_sums && c.op == Op::mul && expr::is_float(c.type) && uses[i] == 0 &&
              stored[i] == 1) {
            names[i] = std::string("Product<") + compute_name(c.type) + ">{" + operand(0) + ", " +
                       operand(1) + "}";
            continue;
          }
          value = std::string("op_") + expr::name_of(c.op) + "(";
          for (int k = 0; k < expr::arity_of(c.op); ++k) value += (k ? ", " : "") + operand(k);
          value += ")";
        }
      }
      names[i] = std::string(prefix) + std::to_string(i);
      text += space + "const " + compute_name(c.type) + " " + names[i] + " = " + value + ";\n";
    }
  };
  emit(emit, 0, std::string(indent));
  std::vector<std::string> results;
  for (const auto& o : program.outputs()) results.push_back(names[size_t(o.value)]);
  return results;
}

std::vector<std::string> emit_program(std::string& text, const expr::Program& program,
                                      std::span<const std::string> inputs,
                                      std::span<const std::string> params, std::string_view prefix,
                                      std::string_view indent) {
  std::vector<std::string> results = emit_values(text, program, inputs, params, prefix, indent);
  for (size_t k = 0; k < results.size(); ++k) {
    const auto& o = program.outputs()[k];
    // A value may be stored wider or narrower than it was computed.
    const Type computed = program.code()[size_t(o.value)].type,
               wanted = expr::compute_type(o.dtype);
    if (computed != wanted)
      results[k] = std::string("op_cast<") + compute_name(wanted) + ">(" + results[k] + ")";
    results[k] = std::string("from_compute<") + storage_name(o.dtype) + ">(" + results[k] + ")";
  }
  return results;
}

}  // namespace arete::cuda
