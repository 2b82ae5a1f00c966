// Arithmetic on numbers stored as f16 or bf16, in f32: converted in registers on the way in and
// out, with the bits that conversions before and after it give. Instruction sets without
// conversions have none of it.
#include "arete/backend/cpu/kernels/simd.inl.h"

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#endif

namespace arete::cpu::kernels {

#if defined(__AVX2__) && defined(__F16C__)
namespace {

constexpr int64_t kLanes = 8;

struct F16 {
  static __m256 decode(__m128i bits) { return _mm256_cvtph_ps(bits); }
  static __m128i encode(__m256 v) { return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }
};
struct BF16 {
  static __m256 decode(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static __m128i encode(__m256 v) {
    const __m256i bits = _mm256_castps_si256(v), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i wide = _mm256_blendv_epi8(rounded, quiet, nan);
    const __m256i packed = _mm256_packus_epi32(wide, wide);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
  }
};

struct Add {
  static __m256 run(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
};
struct Sub {
  static __m256 run(__m256 a, __m256 b) { return _mm256_sub_ps(a, b); }
};
struct Mul {
  static __m256 run(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
};
struct Div {
  static __m256 run(__m256 a, __m256 b) { return _mm256_div_ps(a, b); }
};
// NaN if either is: the instructions give b then.
inline __m256 nan_of(__m256 a, __m256 result) {
  return _mm256_blendv_ps(result, a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
struct Min {
  static __m256 run(__m256 a, __m256 b) { return nan_of(a, _mm256_min_ps(a, b)); }
};
struct Max {
  static __m256 run(__m256 a, __m256 b) { return nan_of(a, _mm256_max_ps(a, b)); }
};

inline __m128i load(const uint16_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

/// Vectors are as stored, scalars f32.
template <class F, class H, int kVariant>
void half_binary(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* o = static_cast<uint16_t*>(out);
  auto *x = static_cast<const uint16_t*>(a), *y = static_cast<const uint16_t*>(b);
  const __m256 one_x = kVariant == sv ? _mm256_set1_ps(*static_cast<const float*>(a)) : __m256{},
               one_y = kVariant == vs ? _mm256_set1_ps(*static_cast<const float*>(b)) : __m256{};
  const auto step = [&](const uint16_t* p, const uint16_t* q) {
    return H::encode(F::run(kVariant == sv ? one_x : H::decode(load(p)),
                            kVariant == vs ? one_y : H::decode(load(q))));
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(o + i), step(x + i, y + i));
  if (i == n) return;
  uint16_t p[kLanes] = {}, q[kLanes] = {}, r[kLanes];
  const size_t rest = size_t(n - i) * sizeof(uint16_t);
  if (kVariant != sv) __builtin_memcpy(p, x + i, rest);
  if (kVariant != vs) __builtin_memcpy(q, y + i, rest);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(r), step(p, q));
  __builtin_memcpy(o + i, r, rest);
}

template <class H>
void add_three(void* out, const void* a, const void* b, const void* c, int64_t n) {
  auto* o = static_cast<float*>(out);
  auto *x = static_cast<const uint16_t*>(a), *y = static_cast<const uint16_t*>(b),
       *z = static_cast<const uint16_t*>(c);
  const auto step = [](float* to, const uint16_t* p, const uint16_t* q, const uint16_t* r) {
    const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(to), H::decode(load(p)));
    _mm256_storeu_ps(to, _mm256_add_ps(_mm256_add_ps(sum, H::decode(load(q))), H::decode(load(r))));
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(o + i, x + i, y + i, z + i);
  if (i == n) return;
  uint16_t p[kLanes] = {}, q[kLanes] = {}, r[kLanes] = {};
  float to[kLanes] = {};
  const size_t rest = size_t(n - i);
  __builtin_memcpy(to, o + i, rest * sizeof(float));
  __builtin_memcpy(p, x + i, rest * sizeof(uint16_t));
  __builtin_memcpy(q, y + i, rest * sizeof(uint16_t));
  __builtin_memcpy(r, z + i, rest * sizeof(uint16_t));
  step(to, p, q, r);
  __builtin_memcpy(o + i, to, rest * sizeof(float));
}

template <class F, class H>
void put(KernelTable& t, KOp op, KDType d) {
  t.half_binary[op][d][vv] = half_binary<F, H, vv>;
  t.half_binary[op][d][vs] = half_binary<F, H, vs>;
  t.half_binary[op][d][sv] = half_binary<F, H, sv>;
}
template <class H>
void put_all(KernelTable& t, KDType d) {
  put<Add, H>(t, op_add, d);
  put<Sub, H>(t, op_sub, d);
  put<Mul, H>(t, op_mul, d);
  put<Div, H>(t, op_div, d);
  put<Min, H>(t, op_min, d);
  put<Max, H>(t, op_max, d);
  t.half_add_three[d] = add_three<H>;
}

}  // namespace

void ARETE_FILL(halves)(KernelTable& t) {
  put_all<F16>(t, d_f16);
  put_all<BF16>(t, d_bf16);
}
#else
void ARETE_FILL(halves)(KernelTable&) {}
#endif

}  // namespace arete::cpu::kernels
