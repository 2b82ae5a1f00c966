#include "arete/backend/cpu/kernels/kernel_table.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "arete/backend/cpu/kernels/scalar_kernels.h"
#include "arete/base/error.h"
#include "arete/core/dtype.h"
#include "arete/expr/program.h"
#include "arete/prim/args.h"

namespace arete::cpu::kernels {

#define ARETE_SAME(name) static_assert(int(expr::Op::name) == int(op_##name))
// clang-format off
ARETE_SAME(input); ARETE_SAME(param); ARETE_SAME(constant); ARETE_SAME(neg); ARETE_SAME(abs);
ARETE_SAME(sign); ARETE_SAME(bit_not); ARETE_SAME(floor); ARETE_SAME(ceil); ARETE_SAME(trunc);
ARETE_SAME(round); ARETE_SAME(sqrt); ARETE_SAME(rsqrt); ARETE_SAME(reciprocal); ARETE_SAME(exp);
ARETE_SAME(exp2); ARETE_SAME(expm1); ARETE_SAME(log); ARETE_SAME(log2); ARETE_SAME(log10);
ARETE_SAME(log1p); ARETE_SAME(sin); ARETE_SAME(cos); ARETE_SAME(tan); ARETE_SAME(asin);
ARETE_SAME(acos); ARETE_SAME(atan); ARETE_SAME(sinh); ARETE_SAME(cosh); ARETE_SAME(tanh);
ARETE_SAME(asinh); ARETE_SAME(acosh); ARETE_SAME(atanh); ARETE_SAME(erf); ARETE_SAME(erfc);
ARETE_SAME(erfinv); ARETE_SAME(lgamma); ARETE_SAME(digamma); ARETE_SAME(sigmoid); ARETE_SAME(is_nan);
ARETE_SAME(is_inf); ARETE_SAME(add); ARETE_SAME(sub); ARETE_SAME(mul); ARETE_SAME(div);
ARETE_SAME(floor_div); ARETE_SAME(fmod); ARETE_SAME(remainder); ARETE_SAME(pow); ARETE_SAME(atan2);
ARETE_SAME(copysign); ARETE_SAME(nextafter); ARETE_SAME(min); ARETE_SAME(max); ARETE_SAME(bit_and);
ARETE_SAME(bit_or); ARETE_SAME(bit_xor); ARETE_SAME(gcd); ARETE_SAME(shl); ARETE_SAME(shr); ARETE_SAME(eq);
ARETE_SAME(ne); ARETE_SAME(lt); ARETE_SAME(le); ARETE_SAME(gt); ARETE_SAME(ge); ARETE_SAME(select);
ARETE_SAME(mul_add); ARETE_SAME(mul_sub); ARETE_SAME(sub_mul);
ARETE_SAME(cast); ARETE_SAME(round_to); ARETE_SAME(load); ARETE_SAME(polynomial);
// clang-format on
#undef ARETE_SAME
static_assert(kNumKOps == expr::kNumOps && kNumKDTypes == kNumDTypes);
static_assert(int(expr::Type::boolean) == t_bool && int(expr::Type::i32) == t_i32 &&
              int(expr::Type::i64) == t_i64 && int(expr::Type::u64) == t_u64 &&
              int(expr::Type::f32) == t_f32 && int(expr::Type::f64) == t_f64 &&
              expr::kNumTypes == t_u8);
static_assert(int(DType::u8) == d_u8 && int(DType::i8) == d_i8 && int(DType::i16) == d_i16 &&
              int(DType::i32) == d_i32 && int(DType::i64) == d_i64 && int(DType::f16) == d_f16 &&
              int(DType::f32) == d_f32 && int(DType::f64) == d_f64 && int(DType::c64) == d_c64 &&
              int(DType::c128) == d_c128 && int(DType::boolean) == d_bool &&
              int(DType::bf16) == d_bf16 && int(DType::f8e4m3) == d_f8e4m3 &&
              int(DType::f8e5m2) == d_f8e5m2 && int(DType::u16) == d_u16 &&
              int(DType::u32) == d_u32 && int(DType::u64) == d_u64);
static_assert(int(prim::Monoid::sum) == m_sum && int(prim::Monoid::prod) == m_prod &&
              int(prim::Monoid::min) == m_min && int(prim::Monoid::max) == m_max &&
              int(prim::Monoid::all) == m_all && int(prim::Monoid::any) == m_any);

#define ARETE_DECLARE_FILLS(target)          \
  void fill_arith_##target(KernelTable&);    \
  void fill_convert_##target(KernelTable&);  \
  void fill_division_##target(KernelTable&); \
  void fill_halves_##target(KernelTable&);   \
  void fill_joined_##target(KernelTable&);   \
  void fill_math_##target(KernelTable&);     \
  void fill_reduce_##target(KernelTable&);   \
  void fill_move_##target(KernelTable&);
ARETE_DECLARE_FILLS(base)
#if defined(__x86_64__)
ARETE_DECLARE_FILLS(avx2)
ARETE_DECLARE_FILLS(avx512)
#endif

namespace {

#define ARETE_MAKE_TABLE(target) \
  KernelTable make_##target() {  \
    KernelTable t{};             \
    t.name = #target;            \
    fill_scalar(t);              \
    fill_arith_##target(t);      \
    fill_convert_##target(t);    \
    fill_division_##target(t);   \
    fill_halves_##target(t);     \
    fill_joined_##target(t);     \
    fill_math_##target(t);       \
    fill_reduce_##target(t);     \
    fill_move_##target(t);       \
    return t;                    \
  }
ARETE_MAKE_TABLE(base)
#if defined(__x86_64__)
ARETE_MAKE_TABLE(avx2)
ARETE_MAKE_TABLE(avx512)

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

const KernelTable* choose() {
  if (const char* wanted = std::getenv("ARETE_SIMD"); wanted && *wanted) {
    const KernelTable* t = table_named(wanted);
    ARETE_CHECK(t, ValueError("", "ARETE_SIMD names an instruction set that is not available")
                       .expected("base, avx2 or avx512, as far as this processor has them")
                       .got(wanted));
    return t;
  }
  for (const char* name : {"avx512", "avx2"})
    if (const KernelTable* t = table_named(name)) return t;
  return table_named("base");
}

}  // namespace

const KernelTable* table_named(const char* name) {
#if defined(__x86_64__)
  if (!std::strcmp(name, "avx512")) {
    if (!has_avx512()) return nullptr;
    static const KernelTable t = make_avx512();
    return &t;
  }
  if (!std::strcmp(name, "avx2")) {
    if (!has_avx2()) return nullptr;
    static const KernelTable t = make_avx2();
    return &t;
  }
#endif
  if (std::strcmp(name, "base")) return nullptr;
  static const KernelTable t = make_base();
  return &t;
}

const KernelTable& table() {
  static const KernelTable* const t = choose();
  return *t;
}

}  // namespace arete::cpu::kernels
