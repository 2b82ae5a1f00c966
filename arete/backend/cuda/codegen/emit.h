// Programs as CUDA C++ text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arete/expr/program.h"
#include "arete/prim/args.h"

namespace arete::cuda {

/// The type of stored elements in generated code ("float", "f16", "i64", "boolean", ...; defined in
/// device/dtype.cuh) and that of values in registers ("float", "i64", "bool", ...).
const char* storage_name(DType t);
const char* compute_name(expr::Type t);

/// Appends to `text` one statement a line that computes `program`. `inputs`: expressions of the
/// compute types of its inputs; `params`: expressions of its parameters. Variables are named
/// <prefix>0, <prefix>1, ... Returns for each output an expression of its *storage* type (rounded
/// once: from_compute<T>(value)).
std::vector<std::string> emit_program(std::string& text, const expr::Program& program,
                                      std::span<const std::string> inputs,
                                      std::span<const std::string> params, std::string_view prefix,
                                      std::string_view indent);
/// The same, returning expressions of the compute types, not rounded. `for_sums`: what may be
/// added up, and is not used otherwise: a product may be left as Product<T>{a, b}, which
/// device/monoid.cuh adds without a rounding.
std::vector<std::string> emit_values(std::string& text, const expr::Program& program,
                                     std::span<const std::string> inputs,
                                     std::span<const std::string> params, std::string_view prefix,
                                     std::string_view indent, bool for_sums = false);

/// About how many machine instructions an operation takes in a kernel's text; slow paths count.
int weight_of(const expr::Program& program, const expr::Instruction& instruction);

/// The expression that reads a number as a compute type from `slot`: 8 bytes, a union of f64 `f`
/// and i64 `i`.
std::string number_expression(expr::Type type, const std::string& slot);
/// The same of parameter k, whose address may be what the slot holds.
std::string param_expression(const expr::Program& program, size_t k, const std::string& slot);
/// Those of all parameters, from the slots of `list` from `first` on.
std::vector<std::string> param_expressions(const expr::Program& program, const std::string& list,
                                           size_t first = 0);
/// The C++ text of a constant of a type, exact.
std::string literal_text(expr::Literal value, expr::Type type);

/// "sum" -> the name of the functor in device/monoid.cuh for values of a type, e.g. "Sum<float>".
std::string monoid_name(prim::Monoid m, expr::Type type);

}  // namespace arete::cuda
