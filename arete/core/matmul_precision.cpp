#include "arete/core/matmul_precision.h"

#include <string>

#include "arete/base/error.h"

namespace arete {

namespace {
constexpr std::string_view kNames[] = {"highest", "high", "medium"};
}

constinit std::atomic<MatmulPrecision> detail::float32_matmul_precision{MatmulPrecision::highest};
constinit std::atomic<int8_t> detail::float32_convolution_tf32{-1};

void set_float32_matmul_precision(std::string_view name) {
  for (int i = 0; i < 3; ++i)
    if (name == kNames[i]) return set_float32_matmul_precision(MatmulPrecision(i));
  throw ValueError("set_float32_matmul_precision", "unknown precision")
      .argument("precision")
      .expected("\"highest\", \"high\" or \"medium\"")
      .got("\"" + std::string(name) + "\"");
}

std::string get_float32_matmul_precision() {
  return std::string(kNames[int(float32_matmul_precision())]);
}

}  // namespace arete
