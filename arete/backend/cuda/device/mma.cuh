// Products of matrices by the tensor cores of a warp, from Ampere on.
//
// Note [Fragments]
// A warp multiplies A (16 x k) by B (k x 8) and adds to C (16 x 8): 32 bytes of k at a time, 8
// elements of f32 or 16 of a half type. Lane t has, with g = t / 4 and i = t % 4,
//   C  (g, 2i) (g, 2i + 1) (g + 8, 2i) (g + 8, 2i + 1)
//   A  four words: row g, row g + 8, each from the first 16 bytes of k and then from the second: i
//      is the word within the 16 bytes
//   B  two words: column g, from the first and from the second 16 bytes of k
// ldmatrix reads such words of a matrix whose lines run along k. Where they run across, it
// transposes half types; of f32 the lanes read their words one by one.
// What one product gives is what another takes: C of half types, two neighbours packed, is A. For
// f32 the order of k is changed, in A and B alike, so that a lane has its words already: word i of
// the first 16 bytes is element 2i, that of the second 2i + 1.
//
// f32 is split in two parts of 11 bits each, and their three larger products are added, the small
// ones first: the errors are those of f32, 2^-22 of each product. An infinite element gives NaN.
#pragma once
#include "async_copy.cuh"
#include "dtype.cuh"

#ifndef ARETE_EMULATED  // a test that runs kernels on the host has its own
DEVICE void mma(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2], f32) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void mma(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2], f16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void mma(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2], bf16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Four matrices of 8 lines of 16 bytes, whose addresses the lanes give in turn.
DEVICE void ldmatrix(u32 (&r)[4], const char* line) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(u32(__cvta_generic_to_shared(line))));
}
DEVICE void ldmatrix_transposed(u32 (&r)[4], const char* line) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(u32(__cvta_generic_to_shared(line))));
}
// Of four numbers each one by itself, in any order with those of others.
DEVICE void add_atomically(Vec<f32, 4>* to, const Vec<f32, 4>& v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v.v[0]),
               "f"(v.v[1]), "f"(v.v[2]), "f"(v.v[3])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) atomicAdd(&to->v[i], v.v[i]);
#endif
}
DEVICE u32 round_to_tf32(f32 v) {
  u32 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
  return r;
}
DEVICE u32 pack_pair(f32 low, f32 high, f16) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
DEVICE u32 pack_pair(f32 low, f32 high, bf16) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// 2^x, 0 for -inf.
DEVICE f32 fast_exp2(f32 x) {
  f32 r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
#endif

/// N words of an operand; kSplit: in two parts.
template <int N, bool kSplit>
struct Fragment {
  u32 v[N], rest[N];
  DEVICE void set(Fragment& f, const u32* words, f32) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      // To the nearest, in two instructions where cvt.rna takes four. What this makes of a NaN the
      // rest makes up for.
      f.v[i] = (words[i] + 0x1000u) & 0xffffe000u;
      f.rest[i] = __float_as_uint(__uint_as_float(words[i]) - __uint_as_float(f.v[i]));
    }
  }
};
template <int N>
struct Fragment<N, false> {
  u32 v[N];
  DEVICE void set(Fragment& f, const u32* words, f32) {
#pragma unroll
    for (int i = 0; i < N; ++i) f.v[i] = round_to_tf32(__uint_as_float(words[i]));
  }
  template <class T>
  DEVICE void set(Fragment& f, const u32* words, T) {
#pragma unroll
    for (int i = 0; i < N; ++i) f.v[i] = words[i];
  }
};

/// Tiles of products of elements T in shared memory whose lines are kPitch bytes apart: an odd
/// multiple of 16, so that neither way of reading meets a bank twice.
template <class T, bool kSplit>
struct Tiles {
  typedef Fragment<4, kSplit> A;
  typedef Fragment<2, kSplit> B;
  static const int kStep = 32 / sizeof(T);  // elements of k
  static const int kTiles = kStep / 8;      // tiles of C that give an A

  /// A: 16 lines from `at` on, along k.
  template <int kPitch>
  DEVICE void load(A& a, const char* at, i32 lane) {
    u32 words[4];
    ldmatrix(words, at + lane % 16 * kPitch + lane / 16 * 16);
    A::set(a, words, T());
  }
  /// A of a half type: 16 lines from `at` on that run across k.
  template <int kPitch>
  DEVICE void load_transposed(A& a, const char* at, i32 lane) {
    u32 words[4];
    ldmatrix_transposed(words, at + (lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 16);
    A::set(a, words, T());
  }
  /// B, two of them: 16 lines, along k, each of which is a column.
  template <int kPitch>
  DEVICE void load_columns(B (&b)[2], const char* at, i32 lane) {
    u32 words[4];
    ldmatrix(words, at + (lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 16);
    B::set(b[0], words, T());
    B::set(b[1], words + 2, T());
  }
  /// B, two of them: kStep lines, each of which is a row, in the order of k that set_rows() has.
  template <int kPitch>
  DEVICE void load_rows(B (&b)[2], const char* at, i32 lane) {
    u32 words[4];
    if constexpr (sizeof(T) == 4) {
      const char* const p = at + lane % 4 * (2 * kPitch) + lane / 4 * 4;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = *reinterpret_cast<const u32*>(p + i % 2 * kPitch + i / 2 * 32);
    } else {
      ldmatrix_transposed(words, at + lane % 16 * kPitch + lane / 16 * 16);
    }
    B::set(b[0], words, T());
    B::set(b[1], words + 2, T());
  }
  /// A from kTiles neighbouring tiles of C.
  DEVICE void set_rows(A& a, const f32 (*c)[4]) {
    u32 words[4];
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = __float_as_uint(c[0][i % 2 * 2 + i / 2]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = pack_pair(c[i / 2][i % 2 * 2], c[i / 2][i % 2 * 2 + 1], T());
    }
    A::set(a, words, T());
  }
  /// c[m][first + n] += a[m] b[n]; neighbouring instructions do not wait for each other.
  template <int kM, int kAll, int kN>
  DEVICE void multiply(f32 (&c)[kM][kAll][4], int first, const A (&a)[kM], const B (&b)[kN]) {
#pragma unroll
    for (int part = kSplit ? 0 : 2; part < 3; ++part)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          if constexpr (kSplit) {
            if (part == 0) mma(c[m][first + n], a[m].rest, b[n].v, T());
            if (part == 1) mma(c[m][first + n], a[m].v, b[n].rest, T());
          }
          if (part == 2) mma(c[m][first + n], a[m].v, b[n].v, T());
        }
  }
};
