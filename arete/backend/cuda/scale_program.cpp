#include "arete/backend/cuda/scale_program.h"

#include "arete/expr/program_cache.h"

namespace arete::cuda {

const expr::Program& scale_program(DType dtype) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(pack_key({int(dtype)}), {dtype}, {expr::compute_type(dtype)}, {dtype},
                   [](std::span<const expr::Value> v) { return std::vector{v[0] * v[1]}; });
}

}  // namespace arete::cuda
