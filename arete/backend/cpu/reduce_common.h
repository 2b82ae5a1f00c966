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

  kernels::KMonoid monoid;
  kernels::ReduceKernel rows, cols;                                        ///< of values
  kernels::ReduceKernel number_rows = nullptr, number_cols = nullptr;      ///< of those not NaN
  kernels::ReduceKernel opposite_rows = nullptr, opposite_cols = nullptr;  ///< of -x or ~x
  kernels::PairKernel product_rows = nullptr, product_cols = nullptr;      ///< of products
  kernels::PairKernel square_rows = nullptr, square_cols = nullptr;  ///< of differences' squares
  kernels::PairKernel deviation_rows = nullptr, deviation_cols = nullptr;  ///< those from a number
  kernels::ReduceKernel combine;  ///< columns of accumulators
  DType dtype;                    ///< of an accumulator
  size_t size;                    ///< of an accumulator, in bytes
  size_t value_size;

  /// What the key of a program must say for its results to be accumulated by add_rows(),
  /// add_cols().
  static CodeKey key(prim::Monoid monoid) {
    CodeKey k;
    k.values = true;
    k.monoid = kernels::KMonoid(monoid);
    return k;
  }
  /// Rows and columns of the frame's result number k, from element `at` on.
  void add_rows(void* acc, const Frame& frame, int k, int64_t n_rows, int64_t n) const {
    if (const void* factors = frame.factor(k))
      pair_rows(frame.code().results[size_t(k)])(acc, frame.result(k), factors, n_rows, n, n);
    else
      rows_of(frame, k)(acc, frame.result(k), n_rows, n, n);
  }
  void add_cols(void* acc, const Frame& frame, int k, int64_t n_rows, int64_t n,
                int64_t at = 0) const {
    const Code::Result& r = frame.code().results[size_t(k)];
    const size_t each = is_half(r.halves) ? 2 : value_size;
    const auto* values = static_cast<const std::byte*>(frame.result(k)) + size_t(at) * each;
    if (const void* factors = frame.factor(k))
      pair_cols(r)(
          acc, values,
          static_cast<const std::byte*>(factors) + (r.from_number ? 0 : size_t(at) * value_size),
          n_rows, n, n);
    else
      cols_of(frame.code(), k)(acc, values, n_rows, n, n);
  }

  /// Of result number k as the code leaves it, if that is no product.
  kernels::ReduceKernel cols_of(const Code& code, int k) const {
    const Code::Result& r = code.results[size_t(k)];
    return is_half(r.halves) ? (r.opposites ? kernels::table().opposite_half_cols
                                            : kernels::table().half_cols[monoid])[int(r.halves)]
           : r.opposites     ? opposite_cols
           : r.numbers_only  ? number_cols
                             : cols;
  }

  /// Sets n accumulators to the monoid's identity.
  void clear(void* acc, int64_t n) const;

 private:
  static bool is_half(DType d) { return d == DType::f16 || d == DType::bf16; }
  kernels::PairKernel pair_rows(const Code::Result& r) const {
    return !r.squares          ? product_rows
           : !r.from_number    ? square_rows
           : is_half(r.halves) ? kernels::table().half_deviation_rows[int(r.halves)]
                               : deviation_rows;
  }
  kernels::PairKernel pair_cols(const Code::Result& r) const {
    return !r.squares          ? product_cols
           : !r.from_number    ? square_cols
           : is_half(r.halves) ? kernels::table().half_deviation_cols[int(r.halves)]
                               : deviation_cols;
  }
  kernels::ReduceKernel rows_of(const Frame& frame, int k) const {
    const Code::Result& r = frame.code().results[size_t(k)];
    return is_half(r.halves) ? (r.opposites ? kernels::table().opposite_half_rows
                                            : kernels::table().half_rows[monoid])[int(r.halves)]
           : r.opposites     ? opposite_rows
           : r.numbers_only  ? number_rows
                             : rows;
  }
  uint64_t identity_;
  kernels::Kernel splat_;
};

}  // namespace arete::cpu
