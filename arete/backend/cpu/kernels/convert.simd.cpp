// Conversions: between computation types, and from and to the narrow storage types.
#include "arete/backend/cpu/kernels/simd.inl.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace arete::cpu::kernels {
namespace {

inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t bits_of(float v) { return __builtin_bit_cast(uint32_t, v); }

// A small floating format; conversions are written without branches so that they vectorize.
// kFinite: no infinity and one NaN pattern; overflow becomes NaN.
template <int E, int M, bool kFinite, class Bits>
struct SmallFloat {
  using Storage = Bits;
  static constexpr int kBias = (1 << (E - 1)) - 1;
  static constexpr uint32_t kMagnitude = (1u << (E + M)) - 1;
  static constexpr uint32_t kInf = ((1u << E) - 1) << M;
  static constexpr uint32_t kNan = kFinite ? (kInf | ((1u << M) - 1)) : (kInf | (1u << (M - 1)));

  static float decode(Bits v) {
    const uint32_t magnitude = v & kMagnitude;
    const uint32_t sign = uint32_t(v >> (E + M)) << 31;
    // As an f32 with this exponent field it is too small by a power of two; multiplying also
    // normalizes subnormals.
    const float scale = float_of(uint32_t(127 + 127 - kBias) << 23);
    const uint32_t scaled = bits_of(float_of(magnitude << (23 - M)) * scale);
    const uint32_t special = kFinite ? 0x7fc00000u : (0x7f800000u | (magnitude << (23 - M)));
    const bool is_special = kFinite ? magnitude == kNan : magnitude >= kInf;
    return float_of(sign | (is_special ? special : scaled));
  }

  static Bits encode(float value) {
    const uint32_t bits = bits_of(value);
    const uint32_t sign = (bits >> 31) << (E + M);
    const uint32_t abs = bits & 0x7fffffffu;
    constexpr uint32_t kShift = 23 - M;
    const uint32_t rebased = abs - (uint32_t(127 - kBias) << 23);
    uint32_t normal = (rebased + ((1u << (kShift - 1)) - 1) + ((rebased >> kShift) & 1)) >> kShift;
    normal = normal > (kFinite ? kNan : kInf) ? (kFinite ? kNan : kInf) : normal;
    // Adding a number whose last place is the smallest subnormal rounds to one.
    constexpr uint32_t kMagic = uint32_t(127 + (1 - kBias - M) + 23) << 23;
    const uint32_t subnormal = bits_of(float_of(abs) + float_of(kMagic)) - kMagic;
    uint32_t result = abs < (uint32_t(127 + 1 - kBias) << 23) ? subnormal : normal;
    result = abs >= 0x7f800000u ? (abs > 0x7f800000u || kFinite ? kNan : kInf) : result;
    return Bits(sign | result);
  }
};
using F16 = SmallFloat<5, 10, false, uint16_t>;
using F8E4M3 = SmallFloat<4, 3, true, uint8_t>;
using F8E5M2 = SmallFloat<5, 2, false, uint8_t>;

struct BF16 {
  using Storage = uint16_t;
  static float decode(uint16_t v) { return float_of(uint32_t(v) << 16); }
  static uint16_t encode(float value) {
    const uint32_t b = bits_of(value);
    const uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1)) >> 16;
    return uint16_t((b & 0x7fffffffu) > 0x7f800000u ? (b >> 16) | 0x40 : rounded);
  }
};

template <class S>
void load_small(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<float*>(out);
  auto* x = static_cast<const typename S::Storage*>(a);
  ARETE_LOOP o[i] = S::decode(x[i]);
}
template <class S>
void store_small(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<typename S::Storage*>(out);
  auto* x = static_cast<const float*>(a);
  ARETE_LOOP o[i] = S::encode(x[i]);
}
template <class S>
void round_small(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<float*>(out);
  auto* x = static_cast<const float*>(a);
  ARETE_LOOP o[i] = S::decode(S::encode(x[i]));
}

#if defined(__AVX512F__)
constexpr int64_t kHalfLanes = 16;
inline void decode_half(float* o, const uint16_t* x) {
  _mm512_storeu_ps(o, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))));
}
inline void encode_half(uint16_t* o, const float* x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(o),
                      _mm512_cvtps_ph(_mm512_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__F16C__)
constexpr int64_t kHalfLanes = 8;
inline void decode_half(float* o, const uint16_t* x) {
  _mm256_storeu_ps(o, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))));
}
inline void encode_half(uint16_t* o, const float* x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(o),
                   _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT));
}
#endif

#if defined(__F16C__)
void load_half(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<float*>(out);
  auto* x = static_cast<const uint16_t*>(a);
  int64_t i = 0;
  for (; i + kHalfLanes <= n; i += kHalfLanes) decode_half(o + i, x + i);
  for (; i < n; ++i) o[i] = _cvtsh_ss(x[i]);
}
void store_half(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<uint16_t*>(out);
  auto* x = static_cast<const float*>(a);
  int64_t i = 0;
  for (; i + kHalfLanes <= n; i += kHalfLanes) encode_half(o + i, x + i);
  for (; i < n; ++i) o[i] = _cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
}
void round_half(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<float*>(out);
  auto* x = static_cast<const float*>(a);
  int64_t i = 0;
  for (; i + kHalfLanes <= n; i += kHalfLanes) {
    uint16_t bits[kHalfLanes];
    encode_half(bits, x + i);
    decode_half(o + i, bits);
  }
  for (; i < n; ++i) o[i] = _cvtsh_ss(_cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT));
}
#endif

// Plain conversions by C++'s rules.
template <class To, class From>
void convert(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<To*>(out);
  auto* x = static_cast<const From*>(a);
  ARETE_LOOP o[i] = To(x[i]);
}
template <class From>
void to_bool(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<uint8_t*>(out);
  auto* x = static_cast<const From*>(a);
  ARETE_LOOP o[i] = x[i] != 0;
}
// Truncates; values out of the range of I saturate, NaN gives 0; then wraps to O.
template <class I, class F, class O = I>
void to_int(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<O*>(out);
  auto* x = static_cast<const F*>(a);
  constexpr F kLimit = F(Unsigned<I>(1) << (sizeof(I) * 8 - 1));
  constexpr I kMax = I(~(Unsigned<I>(1) << (sizeof(I) * 8 - 1)));
  ARETE_LOOP {
    const F v = x[i];
    const bool inside = v >= -kLimit && v < kLimit;
    const I whole = I(inside ? v : F(0));
    const I outside = v >= kLimit ? kMax : (v < -kLimit ? I(-kMax - 1) : I(0));
    o[i] = O(inside ? whole : outside);
  }
}
// Negative numbers by way of the signed integers, as the narrow dtypes wrap.
template <class F>
void to_unsigned(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<uint64_t*>(out);
  auto* x = static_cast<const F*>(a);
  constexpr F kHalf = F(uint64_t(1) << 63);
  ARETE_LOOP {
    const F v = x[i];
    const bool below = v < kHalf, inside = v >= -kHalf && below, upper = !below && v < 2 * kHalf;
    const uint64_t low = uint64_t(int64_t(inside ? v : F(0)));
    const uint64_t high = uint64_t(int64_t(upper ? v - kHalf : F(0))) + (uint64_t(1) << 63);
    const uint64_t outside = v >= 2 * kHalf ? ~uint64_t(0) : v < -kHalf ? uint64_t(1) << 63 : 0;
    o[i] = inside ? low : upper ? high : outside;
  }
}
template <class Narrow, class Wide>
void wrap(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<Wide*>(out);
  auto* x = static_cast<const Wide*>(a);
  ARETE_LOOP o[i] = Narrow(x[i]);
}

// Positions. Four elements are read before the first is stored, which might change the others.
template <class To, class F>
inline void look_up_each(void* out, const void* positions, int64_t n, F&& element) {
  auto* o = static_cast<To*>(out);
  auto* at = static_cast<const int64_t*>(positions);
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const To v[] = {element(at[i]), element(at[i + 1]), element(at[i + 2]), element(at[i + 3])};
    for (int k = 0; k < 4; ++k) o[i + k] = v[k];
  }
  for (; i < n; ++i) o[i] = element(at[i]);
}
template <class To, class From>
void look_up(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* x = static_cast<const From*>(a);
  look_up_each<To>(out, b, n, [x](int64_t at) { return To(x[at]); });
}
template <class S>
void look_up_small(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* x = static_cast<const typename S::Storage*>(a);
  look_up_each<float>(out, b, n, [x](int64_t at) { return S::decode(x[at]); });
}

inline int32_t wrapped_sum(int32_t a, int32_t b) { return int32_t(uint32_t(a) + uint32_t(b)); }

// Places, and whether there are any, are found by vectors; elements are read one by one, as fast as
// by the processor's own look-ups in vectors.
template <int kScalars, class To, class F>
inline void look_up_if_each(void* out, const void* b, const void* c, const void* d, int64_t n,
                            F&& element) {
  constexpr int64_t kChunk = 64;
  auto* o = static_cast<To*>(out);
  auto *begin = static_cast<const int32_t*>(b), *x = static_cast<const int32_t*>(c),
       *y = static_cast<const int32_t*>(d);
  int32_t at[kChunk], there[kChunk];
  To v[kChunk];
  const auto run = [&](int64_t from, int64_t count) __attribute__((always_inline)) {
    for (int64_t i = 0; i < count; ++i) {
      const int32_t place =
          wrapped_sum(x[kScalars & 2 ? 0 : from + i], y[kScalars & 4 ? 0 : from + i]);
      there[i] = place >= 0;
      at[i] = wrapped_sum(begin[kScalars & 1 ? 0 : from + i], place >= 0 ? place : 0);
    }
    for (int64_t i = 0; i < count; ++i) v[i] = element(at[i]);
    for (int64_t i = 0; i < count; ++i) o[from + i] = there[i] ? v[i] : To(0);
  };
  int64_t i = 0;
  for (; i + kChunk <= n; i += kChunk) run(i, kChunk);  // a number that the compiler knows
  run(i, n - i);
}
template <class To, class From, int kScalars>
void look_up_if(void* out, const void* a, const void* b, const void* c, const void* d, int64_t n) {
  auto* x = static_cast<const From*>(a);
  look_up_if_each<kScalars, To>(out, b, c, d, n, [x](int32_t at) { return To(x[at]); });
}
template <class S, int kScalars>
void look_up_small_if(void* out, const void* a, const void* b, const void* c, const void* d,
                      int64_t n) {
  auto* x = static_cast<const typename S::Storage*>(a);
  look_up_if_each<kScalars, float>(out, b, c, d, n, [x](int32_t at) { return S::decode(x[at]); });
}
template <class T, int kScalars = 7>
void put_look_up_if(ChooseKernel* kernels) {
  if constexpr (kIsFloat<T>)
    kernels[kScalars] = look_up_if<T, T, kScalars>;
  else
    kernels[kScalars] = look_up_small_if<T, kScalars>;
  if constexpr (kScalars > 0) put_look_up_if<T, kScalars - 1>(kernels);
}

template <class T>
void put_casts_from(KernelTable& t) {
  Kernel* to = t.cast[kTypeOf<T>];
  to[t_bool] = to_bool<T>;
  if constexpr (kIsFloat<T>) {
    to[t_i32] = to_int<int32_t, T>;
    to[t_i64] = to_int<int64_t, T>;
    to[t_u64] = to_unsigned<T>;
    to[t_u8] = to_int<int32_t, T, char8_t>;
    to[t_i8] = to_int<int32_t, T, int8_t>;
    to[t_i16] = to_int<int32_t, T, int16_t>;
  } else {
    to[t_i32] = convert<int32_t, T>;
    to[t_i64] = convert<int64_t, T>;
    to[t_u64] = convert<uint64_t, T>;
    to[t_u8] = convert<char8_t, T>;
    to[t_i8] = convert<int8_t, T>;
    to[t_i16] = convert<int16_t, T>;
  }
  to[t_f32] = convert<float, T>;
  to[t_f64] = convert<double, T>;
}
template <class S>
void put_small(KernelTable& t, KDType d) {
  t.load[d] = load_small<S>;
  t.store[d] = store_small<S>;
  t.round_to[d] = round_small<S>;
  t.look_up[d] = look_up_small<S>;
  put_look_up_if<S>(t.look_up_if[d]);
}
template <class I, class Wide = int32_t>
void put_narrow(KernelTable& t, KDType d) {
  t.load[d] = convert<Wide, I>;
  t.store[d] = convert<I, Wide>;
  t.round_to[d] = wrap<I, Wide>;
  t.look_up[d] = look_up<Wide, I>;
}

}  // namespace

void ARETE_FILL(convert)(KernelTable& t) {
  put_casts_from<uint8_t>(t);
  put_casts_from<int32_t>(t);
  put_casts_from<int64_t>(t);
  put_casts_from<uint64_t>(t);
  put_casts_from<char8_t>(t);
  put_casts_from<int8_t>(t);
  put_casts_from<int16_t>(t);
  put_casts_from<float>(t);
  put_casts_from<double>(t);
  put_narrow<uint8_t>(t, d_u8);
  put_narrow<int8_t>(t, d_i8);
  put_narrow<int16_t>(t, d_i16);
  put_narrow<uint16_t>(t, d_u16);
  put_narrow<uint32_t, int64_t>(t, d_u32);
  put_small<BF16>(t, d_bf16);
  put_small<F8E4M3>(t, d_f8e4m3);
  put_small<F8E5M2>(t, d_f8e5m2);
#if defined(__F16C__)
  t.load[d_f16] = load_half;
  t.store[d_f16] = store_half;
  t.round_to[d_f16] = round_half;
  t.look_up[d_f16] = look_up_small<F16>;
  put_look_up_if<F16>(t.look_up_if[d_f16]);
#else
  put_small<F16>(t, d_f16);
#endif
  t.look_up[d_bool] = look_up<uint8_t, uint8_t>;
  t.look_up[d_i32] = look_up<int32_t, int32_t>;
  t.look_up[d_i64] = look_up<int64_t, int64_t>;
  t.look_up[d_u64] = look_up<uint64_t, uint64_t>;
  t.look_up[d_f32] = look_up<float, float>;
  t.look_up[d_f64] = look_up<double, double>;
  put_look_up_if<float>(t.look_up_if[d_f32]);
  put_look_up_if<double>(t.look_up_if[d_f64]);
}

}  // namespace arete::cpu::kernels
