#include "arete/backend/cuda/codegen/emit.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "arete/base/error.h"

namespace arete::cuda {

using expr::Instruction;
using expr::Op;
using expr::Type;

const char* storage_name(DType t) {
  static constexpr const char* kNames[kNumDTypes] = {"u8",      "i8",   "i16",    "i32",   "i64",
                                                     "f16",     "f32",  "f64",    "c64",   "c128",
                                                     "boolean", "bf16", "f8e4m3", "f8e5m2"};
  return kNames[int(t)];
}

const char* compute_name(Type t) {
  static constexpr const char* kNames[] = {"bool", "i32", "i64", "f32", "f64"};
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

namespace {

// For an addition that makes 1 + erf(x) or 1 + tanh(x): the position of the erf or tanh, if nothing
// else reads it; else -1. The sum has a cheaper form than its parts (device/math.cuh).
int one_plus_operand(const expr::Program& program, std::span<const int> uses, size_t at) {
  const auto code = program.code();
  if (code[at].op != Op::add || !expr::is_float(code[at].type)) return -1;
  for (int k = 0; k < 2; ++k) {
    const Instruction& one = code[size_t(code[at].operand[size_t(k)])];
    const int other = code[at].operand[size_t(1 - k)];
    const Op op = code[size_t(other)].op;
    if (one.op == Op::constant && one.value.f == 1 && (op == Op::erf || op == Op::tanh) &&
        uses[size_t(other)] == 1)
      return other;
  }
  return -1;
}

}  // namespace

std::vector<std::string> emit_values(std::string& text, const expr::Program& program,
                                     std::span<const std::string> inputs,
                                     std::span<const std::string> params, std::string_view prefix,
                                     std::string_view indent, const char* product) {
  const auto code = program.code();
  std::vector<int> uses(code.size());
  for (const Instruction& c : code)
    for (const int32_t o : c.operand)
      if (o >= 0) ++uses[size_t(o)];
  for (const auto& o : program.outputs()) ++uses[size_t(o.value)];
  std::vector<int> part_of_sum(code.size());
  for (size_t i = 0; i < code.size(); ++i)
    if (const int part = one_plus_operand(program, uses, i); part >= 0)
      part_of_sum[size_t(part)] = 1;

  std::vector<std::string> names(code.size());
  for (size_t i = 0; i < code.size(); ++i) {
    const Instruction& c = code[i];
    const auto operand = [&](int k) -> const std::string& {
      return names[size_t(c.operand[size_t(k)])];
    };
    if (part_of_sum[i]) {
      names[i] = operand(0);  // the argument; the sum computes the function
      continue;
    }
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
      case Op::cast:
        value = std::string("op_cast<") + compute_name(c.type) + ">(" + operand(0) + ")";
        break;
      case Op::load:
        value = "to_compute(" + operand(0) + "[" + operand(1) + "])";
        break;
      case Op::round_to:
        value = std::string("to_compute(from_compute<") + storage_name(DType(c.index)) + ">(" +
                operand(0) + "))";
        break;
      default: {
        if (const int part = one_plus_operand(program, uses, i); part >= 0) {
          value = std::string("op_one_plus_") + expr::name_of(code[size_t(part)].op) + "(" +
                  names[size_t(part)] + ")";
          break;
        }
        value = c.op == Op::mul && expr::is_float(c.type)
                    ? product
                    : std::string("op_") + expr::name_of(c.op);
        value += "(";
        for (int k = 0; k < expr::arity_of(c.op); ++k) value += (k ? ", " : "") + operand(k);
        value += ")";
      }
    }
    names[i] = std::string(prefix) + std::to_string(i);
    text += std::string(indent) + "const " + compute_name(c.type) + " " + names[i] + " = " + value +
            ";\n";
  }
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
