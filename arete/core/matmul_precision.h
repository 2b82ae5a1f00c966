// How exactly products of f32 matrices and convolutions of f32 tensors are computed.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace arete {

/// highest: in f32. high: operands may be rounded to tf32 (10 bits of mantissa), sums stay in f32,
/// which is several times faster on GPUs that have it. medium: to bf16 where that is faster still.
enum class MatmulPrecision : uint8_t { highest, high, medium };

namespace detail {
extern constinit std::atomic<MatmulPrecision> float32_matmul_precision;
extern constinit std::atomic<int8_t> float32_convolution_tf32;  // -1: follows the above
}  // namespace detail

/// For the whole process, at start highest. What no device has a faster way for is computed in f32.
inline MatmulPrecision float32_matmul_precision() noexcept {
  return detail::float32_matmul_precision.load(std::memory_order_relaxed);
}
inline void set_float32_matmul_precision(MatmulPrecision precision) noexcept {
  detail::float32_matmul_precision.store(precision, std::memory_order_relaxed);
}

/// Whether convolutions of f32 tensors may round their operands to tf32: as set here, or if it was
/// not, with any precision but highest.
inline bool float32_convolution_tf32() noexcept {
  const int8_t set = detail::float32_convolution_tf32.load(std::memory_order_relaxed);
  return set < 0 ? float32_matmul_precision() != MatmulPrecision::highest : set != 0;
}
/// The same, or nothing if it was not set.
inline std::optional<bool> float32_convolution_tf32_setting() noexcept {
  const int8_t set = detail::float32_convolution_tf32.load(std::memory_order_relaxed);
  return set < 0 ? std::nullopt : std::optional(set != 0);
}
/// Nothing: it follows products again.
inline void set_float32_convolution_tf32(std::optional<bool> allowed) noexcept {
  detail::float32_convolution_tf32.store(allowed ? int8_t(*allowed) : int8_t(-1),
                                         std::memory_order_relaxed);
}

/// The precision by name: "highest", "high" or "medium"; ValueError otherwise.
void set_float32_matmul_precision(std::string_view name);
std::string get_float32_matmul_precision();

}  // namespace arete
