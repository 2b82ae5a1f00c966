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

/// What f32 operands may be rounded to; none: as what is wider says.
enum class Float32Precision : uint8_t { none, ieee, tf32 };
/// What a precision is set for. Products, convolutions and recurrent layers that have none of their
/// own take that of GPUs, which takes that of everything; where none is set nothing is rounded.
enum class Float32Scope : uint8_t { all, gpu, products, convolutions, recurrences };
inline constexpr int kNumFloat32Scopes = 5;

namespace detail {
extern constinit std::atomic<Float32Precision> float32_precisions[kNumFloat32Scopes];
extern constinit std::atomic<bool> float32_products_in_bf16;
}  // namespace detail

/// As it was set for the scope alone, for the whole process. At start convolutions and recurrent
/// layers have tf32 and everything else none, as in PyTorch: other products round nothing.
inline Float32Precision float32_precision_setting(Float32Scope scope) noexcept {
  return detail::float32_precisions[int(scope)].load(std::memory_order_relaxed);
}
inline void set_float32_precision(Float32Scope scope, Float32Precision precision) noexcept {
  detail::float32_precisions[int(scope)].store(precision, std::memory_order_relaxed);
  if (scope == Float32Scope::products)
    detail::float32_products_in_bf16.store(false, std::memory_order_relaxed);
}
/// As it is in force.
inline Float32Precision float32_precision(Float32Scope scope) noexcept {
  Float32Precision p = float32_precision_setting(scope);
  if (p == Float32Precision::none && scope > Float32Scope::gpu)
    p = float32_precision_setting(Float32Scope::gpu);
  return p == Float32Precision::none ? float32_precision_setting(Float32Scope::all) : p;
}

/// That of products. What no device has a faster way for is computed in f32.
inline MatmulPrecision float32_matmul_precision() noexcept {
  if (float32_precision(Float32Scope::products) != Float32Precision::tf32)
    return MatmulPrecision::highest;
  return detail::float32_products_in_bf16.load(std::memory_order_relaxed) ? MatmulPrecision::medium
                                                                          : MatmulPrecision::high;
}
inline void set_float32_matmul_precision(MatmulPrecision precision) noexcept {
  const bool exact = precision == MatmulPrecision::highest;
  set_float32_precision(Float32Scope::products,
                        exact ? Float32Precision::ieee : Float32Precision::tf32);
  detail::float32_products_in_bf16.store(precision == MatmulPrecision::medium,
                                         std::memory_order_relaxed);
}

/// Whether products inside recurrent layers of f32 tensors may round their operands to tf32.
inline bool float32_recurrence_tf32() noexcept {
  return float32_precision(Float32Scope::recurrences) == Float32Precision::tf32;
}
/// Whether convolutions of f32 tensors may round their operands to tf32.
inline bool float32_convolution_tf32() noexcept {
  return float32_precision(Float32Scope::convolutions) == Float32Precision::tf32;
}
inline void set_float32_convolution_tf32(bool allowed) noexcept {
  set_float32_precision(Float32Scope::convolutions,
                        allowed ? Float32Precision::tf32 : Float32Precision::ieee);
}

/// The precision by name: "highest", "high" or "medium"; ValueError otherwise.
void set_float32_matmul_precision(std::string_view name);
std::string get_float32_matmul_precision();

}  // namespace arete
