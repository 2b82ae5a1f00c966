// What programs that users apply to tensors are given.
#pragma once

#include <span>
#include <string>

#include "arete/base/error.h"
#include "arete/base/small_vector.h"
#include "arete/expr/program.h"
#include "arete/ops/call.h"

namespace arete::ops {

/// The parameters as literals; ValueError and TypeError, naming `name`, where inputs or parameters
/// are not those of a program with these dtypes and types.
inline SmallVector<expr::Literal, 4> program_arguments(std::span<const DType> dtypes,
                                                       std::span<const expr::Type> types,
                                                       std::span<const Tensor> inputs,
                                                       std::span<const Scalar> params,
                                                       const char* name) {
  ARETE_CHECK(inputs.size() == dtypes.size() && !inputs.empty(),
              ValueError(name, "the program and the call differ in their number of inputs")
                  .expected(std::to_string(dtypes.size()))
                  .got(std::to_string(inputs.size())));
  ARETE_CHECK(params.size() == types.size(),
              ValueError(name, "the program and the call differ in their number of parameters")
                  .expected(std::to_string(types.size()))
                  .got(std::to_string(params.size())));
  for (size_t i = 0; i < inputs.size(); ++i)
    ARETE_CHECK(inputs[i].dtype() == dtypes[i], TypeError(name, "the program expects another dtype")
                                                    .argument("input " + std::to_string(i))
                                                    .expected(std::string(name_of(dtypes[i])))
                                                    .got(describe(inputs[i])));
  SmallVector<expr::Literal, 4> literals;
  for (size_t i = 0; i < params.size(); ++i) literals.push_back(literal(params[i], types[i]));
  return literals;
}

}  // namespace arete::ops
