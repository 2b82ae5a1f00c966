// The vector kernels of one instruction set, as tables of functions. *.simd.cpp files are compiled
// once per instruction set; to keep one definition of every inline function in the program, they
// include this header and nothing of the standard library that has inline functions.
#pragma once

#include <cstdint>

namespace arete::cpu::kernels {

// The order of expr::Op, expr::Type, DType and prim::Monoid; kernel_table.cpp checks it. Types that
// expr::Type has not got come last: Note [Narrow integers].
enum KOp : int {
  op_input,
  op_param,
  op_constant,
  op_neg,
  op_abs,
  op_sign,
  op_bit_not,
  op_floor,
  op_ceil,
  op_trunc,
  op_round,
  op_sqrt,
  op_rsqrt,
  op_reciprocal,
  op_exp,
  op_exp2,
  op_expm1,
  op_log,
  op_log2,
  op_log10,
  op_log1p,
  op_sin,
  op_cos,
  op_tan,
  op_asin,
  op_acos,
  op_atan,
  op_sinh,
  op_cosh,
  op_tanh,
  op_asinh,
  op_acosh,
  op_atanh,
  op_erf,
  op_erfc,
  op_erfinv,
  op_lgamma,
  op_digamma,
  op_sigmoid,
  op_is_nan,
  op_is_inf,
  op_add,
  op_sub,
  op_mul,
  op_div,
  op_floor_div,
  op_fmod,
  op_remainder,
  op_pow,
  op_atan2,
  op_copysign,
  op_nextafter,
  op_min,
  op_max,
  op_bit_and,
  op_bit_or,
  op_bit_xor,
  op_gcd,
  op_shl,
  op_shr,
  op_eq,
  op_ne,
  op_lt,
  op_le,
  op_gt,
  op_ge,
  op_select,
  op_mul_add,
  op_mul_sub,
  op_sub_mul,
  op_cast,
  op_round_to,
  op_load,
  op_polynomial,
  kNumKOps
};
enum KType : int { t_bool, t_i32, t_i64, t_u64, t_f32, t_f64, t_u8, t_i8, t_i16, kNumKTypes };
enum KDType : int {
  d_u8,
  d_i8,
  d_i16,
  d_i32,
  d_i64,
  d_f16,
  d_f32,
  d_f64,
  d_c64,
  d_c128,
  d_bool,
  d_bf16,
  d_f8e4m3,
  d_f8e5m2,
  d_u16,
  d_u32,
  d_u64,
  kNumKDTypes
};
enum KMonoid : int { m_sum, m_prod, m_min, m_max, m_all, m_any, kNumKMonoids };

/// out[i] = f(a[i], b[i], c[i]) for i < n. A scalar operand (see the variants) is read at [0].
/// out may be exactly one of the operands if the element sizes are equal.
using Kernel = void (*)(void* out, const void* a, const void* b, const void* c, int64_t n);

/// Variants of binary kernels: which operands are vectors and which scalars.
enum Variant : int { vv, vs, sv, kNumVariants };

/// Arithmetic on floats, of an operand and another one.
enum KArithmetic : int {
  a_add,
  a_sub,
  a_sub_from,  ///< b - a
  a_mul,
  a_div,     ///< as the second of two only
  a_square,  ///< as the second of two only, without a third operand: a * a
  a_abs,     ///< the same: |a|
  kNumArithmetics
};

/// Reductions over a block of `rows` x `cols`, rows `stride` elements apart, into accumulators:
/// per row or per column. The accumulator's type is accumulator_type().
using ReduceKernel = void (*)(void* acc, const void* in, int64_t rows, int64_t cols,
                              int64_t stride);

/// Sums of what is made of two blocks' elements, which lie alike.
using PairKernel = void (*)(void* acc, const void* in, const void* other, int64_t rows,
                            int64_t cols, int64_t stride);

/// dst[c * dst_stride + r] = src[r * src_stride + c]; strides in elements.
using TransposeKernel = void (*)(void* dst, const void* src, int64_t rows, int64_t cols,
                                 int64_t dst_stride, int64_t src_stride);

/// Of three operands: products with a sum, rounded once, on f32 and f64; pairs of limits on numbers
/// where b and c are scalars.
enum Triple : int {
  triple_mul_add,  ///< a * b + c
  triple_mul_sub,  ///< a * b - c
  triple_sub_mul,  ///< c - a * b
  triple_min_max,  ///< max(min(a, b), c)
  triple_max_min,  ///< min(max(a, b), c)
  kNumTriples
};

/// out[i] = a[i] < b[i] ? c[i] : d[i], or by another comparison, for operands of one size.
using ChooseKernel = void (*)(void* out, const void* a, const void* b, const void* c, const void* d,
                              int64_t n);
/// The number of elements that are not 0.
using CountKernel = int64_t (*)(const void* a, int64_t n);
enum Comparison : int { compare_eq, compare_ne, compare_lt, compare_le, kNumComparisons };

/// out[i] = *start + (first + i) * *step for i < n, where those are of f64 for floating types, with
/// each operation rounded, and else i64 that wrap.
using ProgressionKernel = void (*)(void* out, const void* start, const void* step, int64_t first,
                                   int64_t n);
/// evens[i] = a[2 * i], odds[i] = a[2 * i + 1].
using SeparateKernel = void (*)(void* evens, void* odds, const void* a, int64_t n);
/// ranks[i]: how many of n keys are less than the i-th or equal and before it; n <= kMostRanked.
/// Both arrays have room for kMostRanked elements.
using RankKernel = void (*)(const uint32_t* keys, int32_t* ranks, int64_t n);
constexpr int64_t kMostRanked = 256;

struct KernelTable {
  const char* name;
  Kernel unary[kNumKOps][kNumKTypes];                 // by operand type
  Kernel binary[kNumKOps][kNumKTypes][kNumVariants];  // by operand type
  // Of f16 and bf16 as they are stored, with scalars in f32; null where there is none.
  Kernel half_binary[kNumKOps][kNumKDTypes][kNumVariants];
  // Of f32 and f64: second(first(a, b), c), each rounded. Bit 0: b is a scalar, bit 1: c.
  Kernel joined[kNumArithmetics][kNumArithmetics][kNumKTypes][4];
  Kernel triple[kNumTriples][kNumKTypes][8];  // bit k: operand k is a scalar
  // By type compared; bit k: operand k is a scalar, of which a and b are not both.
  ChooseKernel choose[kNumComparisons][kNumKTypes][16];
  Kernel select[9][8];  // by element size; bit k: scalar
  CountKernel count;
  // By element size and whether b[i] is true for the elements meant: those of a one after the
  // other, and back to their places, with anything in the others.
  Kernel compress[9][2];
  Kernel expand[9][2];
  Kernel cast[kNumKTypes][kNumKTypes];  // from, to
  Kernel load[kNumKDTypes];             // storage to computation type
  Kernel store[kNumKDTypes];            // computation to storage type
  Kernel round_to[kNumKDTypes];
  Kernel look_up[kNumKDTypes];  // out[i] = the element b[i] of a, as computation type
  // Of floating types, with positions of i32: out[i] = the element b[i] + c[i] + d[i] of a, or 0
  // where c[i] + d[i] is negative. Bit k: operand k + 1 is a scalar.
  ChooseKernel look_up_if[kNumKDTypes][8];
  Kernel splat[17];              // by element size: out[i] = a[0]
  Kernel add_three[kNumKTypes];  // of f32 and f64: out[i] = out[i] + a[i] + b[i] + c[i]
  // The same of f16 and bf16 as they are stored, to f32; null where there is none.
  Kernel half_add_three[kNumKDTypes];
  // Of f32 and f64, on complex numbers, whose parts lie side by side: a * b, which are x y - z w,
  // its first product rounded with the difference, and x w + y z, its second one with the sum.
  Kernel complex_product[kNumKTypes][kNumVariants];
  Kernel conjugate[kNumKTypes];
  ReduceKernel reduce_rows[kNumKMonoids][kNumKTypes];
  ReduceKernel reduce_cols[kNumKMonoids][kNumKTypes];
  ReduceKernel number_rows[kNumKTypes];  // sums, without NaN, of floating types
  ReduceKernel number_cols[kNumKTypes];
  PairKernel product_rows[kNumKTypes];  // of floating types
  PairKernel product_cols[kNumKTypes];
  PairKernel square_rows[kNumKTypes];  // of differences, of floating types
  PairKernel square_cols[kNumKTypes];
  PairKernel deviation_rows[kNumKTypes];  // squares of differences from one number
  PairKernel deviation_cols[kNumKTypes];
  ReduceKernel opposite_rows[kNumKTypes];  // least -x of floats, ~x of integers
  ReduceKernel opposite_cols[kNumKTypes];
  // Of f16 and bf16 as f32: sums, extremes, the least -x; null where there is none.
  ReduceKernel half_rows[kNumKMonoids][kNumKDTypes];
  ReduceKernel half_cols[kNumKMonoids][kNumKDTypes];
  ReduceKernel opposite_half_rows[kNumKDTypes];
  ReduceKernel opposite_half_cols[kNumKDTypes];
  PairKernel half_deviation_rows[kNumKDTypes];  // the number is an f32
  PairKernel half_deviation_cols[kNumKDTypes];
  TransposeKernel transpose[17];              // by element size
  Kernel reverse[17];                         // by element size: out[i] = a[n - 1 - i]
  Kernel every_other[9];                      // by element size: out[i] = a[2 * i]
  ProgressionKernel progression[kNumKTypes];  // by type, but for t_bool
  SeparateKernel separate[9];                 // by element size
  Kernel interleave[9];  // by element size: out[2 * i] = a[i], out[2 * i + 1] = b[i]
  RankKernel rank;
};

/// Sums and products of f32 accumulate in f64 (sums of a few elements, that are added as f32
/// before: Note [Sums of floats]) and those of integers in i64 or u64; other monoids in the type
/// itself.
constexpr KType accumulator_type(KMonoid m, KType t) {
  if (m == m_all || m == m_any) return t_bool;
  if (m == m_min || m == m_max) return t;
  return t == t_f32 || t == t_f64 ? t_f64 : t == t_u64 ? t_u64 : t_i64;
}

/// The best table for this processor, or the one that ARETE_SIMD (base, avx2, avx512) names.
const KernelTable& table();
/// The table of an instruction set by name; null if this build or processor has not got it.
const KernelTable* table_named(const char* name);

}  // namespace arete::cpu::kernels
