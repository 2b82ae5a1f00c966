#include "arete/core/matmul_precision.h"

#include <string>

#include "arete/base/error.h"

namespace arete {

namespace {
constexpr std::string_view kPrecisions[] = {"highest", "high", "medium"};
}

constinit std::atomic<Float32Precision> detail::float32_precisions[] = {
    Float32Precision::none, Float32Precision::none, Float32Precision::none, Float32Precision::tf32,
    Float32Precision::tf32};
constinit std::atomic<bool> detail::float32_products_in_bf16{false};

void set_float32_matmul_precision(std::string_view name) {
  for (int i = 0; i < 3; ++i)
    if (name == kPrecisions[i]) return set_float32_matmul_precision(MatmulPrecision(i));
  throw ValueError("set_float32_matmul_precision", "unknown precision")
      .argument("precision")
      .expected("\"highest\", \"high\" or \"medium\"")
      .got("\"" + std::string(name) + "\"");
}

std::string get_float32_matmul_precision() {
  return std::string(kPrecisions[int(float32_matmul_precision())]);
}

}  // namespace arete
