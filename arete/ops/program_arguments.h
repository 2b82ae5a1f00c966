// What programs that users apply to tensors are given.
#pragma once

#include <span>
#include <string>

#include "arete/base/error.h"
#include "arete/base/small_vector.h"
#include "arete/expr/program.h"
#include "arete/ops/call.h"

namespace arete::ops {

/// ValueError and TypeError, naming `name`, where tensors are not what programs of these dtypes
/// read.
inline void check_program_inputs(std::span<const DType> dtypes, std::span<const Tensor> inputs,
                                 const char* name) {
  ARETE_CHECK(inputs.size() == dtypes.size(),
              ValueError(name, "the program and the call differ in their number of inputs")
                  .expected(std::to_string(dtypes.size()))
                  .got(std::to_string(inputs.size())));
  for (size_t i = 0; i < inputs.size(); ++i)
    ARETE_CHECK(inputs[i].dtype() == dtypes[i], TypeError(name, "the program expects another dtype")
                                                    .argument("input " + std::to_string(i))
                                                    .expected(std::string(name_of(dtypes[i])))
                                                    .got(describe(inputs[i])));
}

/// Parameters of these types as literals; ValueError if there are more or fewer.
inline SmallVector<expr::Literal, 4> program_numbers(std::span<const expr::Type> types,
                                                     std::span<const Scalar> params,
                                                     const char* name) {
  ARETE_CHECK(params.size() == types.size(),
              ValueError(name, "the program and the call differ in their number of parameters")
                  .expected(std::to_string(types.size()))
                  .got(std::to_string(params.size())));
  SmallVector<expr::Literal, 4> literals;
  for (size_t i = 0; i < params.size(); ++i) literals.push_back(literal(params[i], types[i]));
  return literals;
}

/// Both, for a program that is applied to tensors: one at least.
inline SmallVector<expr::Literal, 4> program_arguments(std::span<const DType> dtypes,
                                                       std::span<const expr::Type> types,
                                                       std::span<const Tensor> inputs,
                                                       std::span<const Scalar> params,
                                                       const char* name) {
  ARETE_CHECK(!inputs.empty(), ValueError(name, "a program is applied to one tensor at least"));
  check_program_inputs(dtypes, inputs, name);
  return program_numbers(types, params, name);
}

}  // namespace arete::ops
