// Accumulators: what reductions and fused kernels share.
#pragma once

#include <cstdint>

#include "arete/backend/cpu/interpreter.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/prim/args.h"

namespace arete::cpu {

/// One kind of accumulation: a monoid over the values of a program's result.
struct Accumulation {
  Accumulation(prim::Monoid monoid, const expr::Program& program, size_t result = 0)
      : Accumulation(monoid, code_for(program, key(monoid)).results[result].type) {}
  Accumulation(prim::Monoid monoid, kernels::KType value_type);

  kernels::ReduceKernel rows, cols;                                       ///< of values
  kernels::ReduceKernel number_rows = nullptr, number_cols = nullptr;     ///< of those not NaN
  kernels::ProductKernel product_rows = nullptr, product_cols = nullptr;  ///< of products
  kernels::ReduceKernel combine;  ///< columns of accumulators
  DType dtype;                    ///< of an accumulator
  size_t size;                    ///< of an accumulator, in bytes
  size_t value_size;

  /// What the key of a program must say for its results to be accumulated by add_rows(),
  /// add_cols().
  static CodeKey key(prim::Monoid monoid) {
    CodeKey k;
    k.values = true;
    k.sums = monoid == prim::Monoid::sum;
    return k;
  }
  /// Rows and columns of the frame's result number k, from element `at` on.
  void add_rows(void* acc, const Frame& frame, int k, int64_t n_rows, int64_t n) const {
    if (const void* factors = frame.factor(k))
      product_rows(acc, frame.result(k), factors, n_rows, n, n);
    else
      (frame.numbers_only(k) ? number_rows : rows)(acc, frame.result(k), n_rows, n, n);
  }
  void add_cols(void* acc, const Frame& frame, int k, int64_t n_rows, int64_t n,
                int64_t at = 0) const {
    const auto* values = static_cast<const std::byte*>(frame.result(k)) + size_t(at) * value_size;
    if (const void* factors = frame.factor(k))
      product_cols(acc, values, static_cast<const std::byte*>(factors) + size_t(at) * value_size,
                   n_rows, n, n);
    else
      (frame.numbers_only(k) ? number_cols : cols)(acc, values, n_rows, n, n);
  }

  /// Sets n accumulators to the monoid's identity.
  void clear(void* acc, int64_t n) const;

 private:
  uint64_t identity_;
  kernels::Kernel splat_;
};

}  // namespace arete::cpu
