// How exactly products of f32 matrices and convolutions of f32 tensors are computed.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace arete {

/// highest: in f32. high: operands may be rounded to tf32 (10 bits of mantissa), sums stay in f32,
/// which is several times faster on GPUs that have it. medium: to bf16 where that is faster still.
enum class MatmulPrecision : uint8_t { highest, high, medium };

namespace detail {
extern constinit std::atomic<MatmulPrecision> float32_matmul_precision;
}

/// For the whole process, at start highest. What no device has a faster way for is computed in f32.
inline MatmulPrecision float32_matmul_precision() noexcept {
  return detail::float32_matmul_precision.load(std::memory_order_relaxed);
}
inline void set_float32_matmul_precision(MatmulPrecision precision) noexcept {
  detail::float32_matmul_precision.store(precision, std::memory_order_relaxed);
}

/// The same by name: "highest", "high" or "medium"; ValueError otherwise.
void set_float32_matmul_precision(std::string_view name);
std::string get_float32_matmul_precision();

}  // namespace arete
