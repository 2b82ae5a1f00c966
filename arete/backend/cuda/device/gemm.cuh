// Matrix products of any element type and any strides, in tiles of 64 x 64: for what the vendor
// library does not do. Mirrors GemmArguments in codegen/gemm.h.
#pragma once
#include "dtype.cuh"

struct GemmArguments {
  const void *a, *b, *bias;
  void *out, *aux;
  i64 m, n, k;
  i64 a_row, a_column, b_row, b_column, out_row, out_column, aux_row, aux_column, bias_stride;
  f64 alpha, beta;    // floating and complex types
  i64 ialpha, ibeta;  // integers
  i64 batches;
  i32 loops, activation;  // activation: 0 none, 1 relu, 2 gelu, 3 gelu by tanh
  // Innermost first; strides in elements.
  i64 size[16], a_stride[16], b_stride[16], out_stride[16], aux_stride[16];
};

// ---- the types that sums are kept in; integers wrap around
template <class T>
struct GemmSum {
  typedef f32 type;
};
template <>
struct GemmSum<u8> {
  typedef u32 type;
};
template <>
struct GemmSum<i8> {
  typedef u32 type;
};
template <>
struct GemmSum<i16> {
  typedef u32 type;
};
template <>
struct GemmSum<u16> {
  typedef u32 type;
};
template <>
struct GemmSum<u32> {
  typedef u32 type;
};
template <>
struct GemmSum<u64> {
  typedef u64 type;
};
template <>
struct GemmSum<i32> {
  typedef u32 type;
};
template <>
struct GemmSum<i64> {
  typedef u64 type;
};
template <>
struct GemmSum<f64> {
  typedef f64 type;
};
template <>
struct GemmSum<c64> {
  typedef c64 type;
};
template <>
struct GemmSum<c128> {
  typedef c128 type;
};

DEVICE f32 gemm_add(f32 a, f32 b) { return a + b; }
DEVICE f64 gemm_add(f64 a, f64 b) { return a + b; }
DEVICE u32 gemm_add(u32 a, u32 b) { return a + b; }
DEVICE u64 gemm_add(u64 a, u64 b) { return a + b; }
DEVICE c64 gemm_add(c64 a, c64 b) { return c64{a.re + b.re, a.im + b.im}; }
DEVICE c128 gemm_add(c128 a, c128 b) { return c128{a.re + b.re, a.im + b.im}; }

DEVICE f32 gemm_multiply_add(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
DEVICE f64 gemm_multiply_add(f64 a, f64 b, f64 c) { return fma(a, b, c); }
DEVICE u32 gemm_multiply_add(u32 a, u32 b, u32 c) { return a * b + c; }
DEVICE u64 gemm_multiply_add(u64 a, u64 b, u64 c) { return a * b + c; }
template <class C>
DEVICE C gemm_multiply_add_complex(C a, C b, C c) {
  c.re += a.re * b.re - a.im * b.im;
  c.im += a.re * b.im + a.im * b.re;
  return c;
}
DEVICE c64 gemm_multiply_add(c64 a, c64 b, c64 c) { return gemm_multiply_add_complex(a, b, c); }
DEVICE c128 gemm_multiply_add(c128 a, c128 b, c128 c) { return gemm_multiply_add_complex(a, b, c); }

DEVICE f32 gemm_scale(f32 v, f64 by, i64) { return v * f32(by); }
DEVICE f64 gemm_scale(f64 v, f64 by, i64) { return v * by; }
DEVICE u32 gemm_scale(u32 v, f64, i64 by) { return v * u32(by); }
DEVICE u64 gemm_scale(u64 v, f64, i64 by) { return v * u64(by); }
DEVICE c64 gemm_scale(c64 v, f64 by, i64) { return c64{v.re * f32(by), v.im * f32(by)}; }
DEVICE c128 gemm_scale(c128 v, f64 by, i64) { return c128{v.re * by, v.im * by}; }

// ---- elements to sums and back
template <class S, class T>
DEVICE S gemm_load(const T* p) {
  return S(to_compute(*p));
}
template <class T>
DEVICE f32 gemm_value(f32 v) {
  return v;
}
template <class T>
DEVICE f64 gemm_value(f64 v) {
  return v;
}
template <class T>
DEVICE c64 gemm_value(c64 v) {
  return v;
}
template <class T>
DEVICE c128 gemm_value(c128 v) {
  return v;
}
// The low bits, as the type has them.
template <class T>
DEVICE compute_of<T> gemm_value(u32 v) {
  return T(v);
}
template <class T>
DEVICE compute_of<T> gemm_value(u64 v) {
  return T(v);
}

// Called, not inlined: sixteen copies would take longer to compile than all the rest.
static __device__ __noinline__ f32 gemm_activate(f32 x, i32 kind) {
  if (kind == 1) return x < 0.0f ? 0.0f : x;  // NaN stays
  if (kind == 2) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
  if (kind == 3)
    return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * (x + 0.044715f * (x * x * x))));
  return x;
}
static __device__ __noinline__ f64 gemm_activate(f64 x, i32 kind) {
  if (kind == 1) return x < 0.0 ? 0.0 : x;
  if (kind == 2) return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
  if (kind == 3)
    return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * (x * x * x))));
  return x;
}
DEVICE i32 gemm_activate(i32 x, i32 kind) { return kind == 1 && x < 0 ? 0 : x; }
DEVICE i64 gemm_activate(i64 x, i32 kind) { return kind == 1 && x < 0 ? 0 : x; }
DEVICE u64 gemm_activate(u64 x, i32) { return x; }
DEVICE c64 gemm_activate(c64 x, i32) { return x; }
DEVICE c128 gemm_activate(c128 x, i32) { return x; }

// Loads a tile of `extent` (from `first` on) times 16 steps of k into shared[k][i], zeros outside.
// Neighbouring threads read along the dimension whose elements lie side by side.
template <class S, class T>
DEVICE void gemm_load_tile(S (*shared)[65], const T* from, i64 first, i64 extent, i64 stride,
                           i64 first_k, i64 k, i64 k_stride) {
  const bool along_k = k_stride == 1 && stride != 1;
  const i32 t = i32(threadIdx.x);
  const i32 i0 = along_k ? t >> 4 : t & 63, kk0 = along_k ? t & 15 : t >> 6;
  const i32 i_step = along_k ? 16 : 0, kk_step = along_k ? 0 : 4;
  const T* p = from + (first + i0) * stride + (first_k + kk0) * k_stride;
  const i64 step = i_step * stride + kk_step * k_stride;
#pragma unroll
  for (i32 s = 0; s < 4; ++s) {
    const i32 i = i0 + s * i_step, kk = kk0 + s * kk_step;
    const bool inside = first + i < extent && first_k + kk < k;
    shared[kk][i] = inside ? gemm_load<S>(p + s * step) : S{};
  }
}

/// out = activation(alpha * a @ b + beta * out + bias), aux = the value before the activation.
/// Blocks of 256 threads; each computes whole tiles, so sums have one order.
template <class TIn, class TOut>
DEVICE void gemm_tiles(const GemmArguments& g) {
  typedef typename GemmSum<TIn>::type S;
  __shared__ S as[16][65];
  __shared__ S bs[16][65];
  const i32 tx = i32(threadIdx.x) & 15, ty = i32(threadIdx.x) >> 4;
  const i64 tiles_n = (g.n + 63) / 64, tiles_m = (g.m + 63) / 64;
  const i64 tiles = tiles_m * tiles_n * g.batches;
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const i64 col0 = tile % tiles_n * 64, row0 = tile / tiles_n % tiles_m * 64;
    i64 rest = tile / (tiles_n * tiles_m);
    i64 a_offset = 0, b_offset = 0, out_offset = 0, aux_offset = 0;
    for (i32 d = 0; d < g.loops; ++d) {
      const i64 at = rest % g.size[d];
      rest /= g.size[d];
      a_offset += at * g.a_stride[d];
      b_offset += at * g.b_stride[d];
      out_offset += at * g.out_stride[d];
      aux_offset += at * g.aux_stride[d];
    }
    const TIn* a = static_cast<const TIn*>(g.a) + a_offset;
    const TIn* b = static_cast<const TIn*>(g.b) + b_offset;

    S sum[4][4];
#pragma unroll
    for (i32 i = 0; i < 4; ++i)
#pragma unroll
      for (i32 j = 0; j < 4; ++j) sum[i][j] = S{};
    for (i64 k0 = 0; k0 < g.k; k0 += 16) {
      gemm_load_tile(as, a, row0, g.m, g.a_row, k0, g.k, g.a_column);
      gemm_load_tile(bs, b, col0, g.n, g.b_column, k0, g.k, g.b_row);
      __syncthreads();
#pragma unroll 4
      for (i32 kk = 0; kk < 16; ++kk) {
        S x[4], y[4];
#pragma unroll
        for (i32 i = 0; i < 4; ++i) x[i] = as[kk][ty + 16 * i], y[i] = bs[kk][tx + 16 * i];
#pragma unroll
        for (i32 i = 0; i < 4; ++i)
#pragma unroll
          for (i32 j = 0; j < 4; ++j) sum[i][j] = gemm_multiply_add(x[i], y[j], sum[i][j]);
      }
      __syncthreads();
    }

    TOut* out = static_cast<TOut*>(g.out) + out_offset;
    TOut* aux = g.aux ? static_cast<TOut*>(g.aux) + aux_offset : nullptr;
    const TOut* bias = static_cast<const TOut*>(g.bias);
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
      // Through shared memory (each thread its own elements), so that this code is there four
      // times, not sixteen.
#pragma unroll
      for (i32 j = 0; j < 4; ++j) as[ty][tx + 16 * j] = sum[i][j];
      const i64 row = row0 + ty + 16 * i;
      if (row >= g.m) break;
#pragma unroll 1
      for (i32 j = 0; j < 4; ++j) {
        const i64 column = col0 + tx + 16 * j;
        if (column >= g.n) break;
        TOut* to = out + row * g.out_row + column * g.out_column;
        S v = gemm_scale(as[ty][tx + 16 * j], g.alpha, g.ialpha);
        if (g.beta != 0.0) v = gemm_add(v, gemm_scale(gemm_load<S>(to), g.beta, g.ibeta));
        if (bias) v = gemm_add(v, gemm_load<S>(bias + column * g.bias_stride));
        const auto value = gemm_value<TOut>(v);
        if (aux) aux[row * g.aux_row + column * g.aux_column] = from_compute<TOut>(value);
        *to = from_compute<TOut>(g.activation ? gemm_activate(value, g.activation) : value);
      }
    }
    __syncthreads();  // the next tile's elements take the place
  }
}
