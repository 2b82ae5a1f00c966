// Copies of many pieces at once.
#pragma once
#include "dtype.cuh"

// One of the copies of a launch: `total` elements of `width` bytes in up to three dimensions, the
// innermost first, or with `row_bytes` rows of so many bytes side by side, whose elements are the
// 16-byte words of the result that a row may touch. Mirrors the struct in copy.cpp.
struct CopyPiece {
  const char* in;
  char* out;
  i64 in_stride[3], out_stride[3];     // in bytes
  u32 size[2], magic[2], shift[2];     // see find_offsets
  u32 total, width, first, row_bytes;  // `first`: of its blocks
};
struct CopyPieces {
  CopyPiece pieces[36];
  u32 used;
};

template <class T>
DEVICE void copy_piece(const CopyPiece& p, u32 first) {
  T values[4];
  i64 to[4];
#pragma unroll
  for (u32 u = 0; u < 4; ++u) {
    const u32 at = first + u * 256;
    if (at >= p.total) continue;
    const u32 above = (__umulhi(at, p.magic[0]) + at) >> p.shift[0];
    const u32 i2 = (__umulhi(above, p.magic[1]) + above) >> p.shift[1];
    const u32 i0 = at - above * p.size[0], i1 = above - i2 * p.size[1];
    to[u] = i0 * p.out_stride[0] + i1 * p.out_stride[1] + i2 * p.out_stride[2];
    values[u] = *reinterpret_cast<const T*>(p.in + i0 * p.in_stride[0] + i1 * p.in_stride[1] +
                                            i2 * p.in_stride[2]);
  }
#pragma unroll
  for (u32 u = 0; u < 4; ++u)
    if (first + u * 256 < p.total) *reinterpret_cast<T*>(p.out + to[u]) = values[u];
}

/// Words `at` and `at` + 1, of which those are fetched that hold bytes from `begin` to before
/// `end`.
DEVICE void fetch_words(const char* at, const char* begin, const char* end, u32 (&words)[8]) {
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (at + 16 > begin && at < end) v = *reinterpret_cast<const uint4*>(at);
    words[4 * w] = v.x;
    words[4 * w + 1] = v.y;
    words[4 * w + 2] = v.z;
    words[4 * w + 3] = v.w;
    at += 16;
  }
}
/// Four words from byte `offset` < 16 of eight on.
DEVICE void shift_words(u32 (&words)[8], u32 offset) {
#pragma unroll
  for (int k = 0; k < 6; ++k) words[k] = offset & 8 ? words[k + 2] : words[k];
#pragma unroll
  for (int k = 0; k < 5; ++k) words[k] = offset & 4 ? words[k + 1] : words[k];
#pragma unroll
  for (int k = 0; k < 4; ++k) words[k] = __funnelshift_r(words[k], words[k + 1], (offset & 3) * 8);
}

// Note [Copies of rows at any address]
// Where the rows of a copy begin at odd places on either side, single elements would be moved. A
// thread makes a 16-byte word of the result instead: of the source it reads the two words that lie
// over it and shifts them. Of the first and the last word of a row only the bytes that belong to it
// are stored, in parts of T. Words are read whole if one byte of them is the row's.
template <class T>
DEVICE void copy_rows(const CopyPiece& p, u32 first) {
  u32 words[4][8];
  char* to[4];
  int begin[4], end[4];  // of the bytes of the word that are the row's
#pragma unroll
  for (u32 u = 0; u < 4; ++u) {
    const u32 at = first + u * 256;
    begin[u] = end[u] = 0;
    if (at >= p.total) continue;
    const u32 above = (__umulhi(at, p.magic[0]) + at) >> p.shift[0];
    const u32 i2 = (__umulhi(above, p.magic[1]) + above) >> p.shift[1];
    const u32 i0 = at - above * p.size[0], i1 = above - i2 * p.size[1];
    const char* const in = p.in + i1 * p.in_stride[1] + i2 * p.in_stride[2];
    char* const out = p.out + i1 * p.out_stride[1] + i2 * p.out_stride[2];
    const int before = int(u64(out) & 15),
              offset = int(i0 * 16) - before;  // of the word in the row
    to[u] = out + offset;
    begin[u] = max(-offset, 0);
    end[u] = min(int(p.row_bytes) - offset, 16);
    if (end[u] <= 0) continue;
    const char* const from = in + offset;
    const u32 shift = u32(u64(from) & 15);
    fetch_words(from - shift, in, in + p.row_bytes, words[u]);
    shift_words(words[u], shift);
  }
#pragma unroll
  for (u32 u = 0; u < 4; ++u) {
    if (begin[u] >= end[u]) continue;
    if (begin[u] == 0 && end[u] == 16) {
      *reinterpret_cast<uint4*>(to[u]) =
          make_uint4(words[u][0], words[u][1], words[u][2], words[u][3]);
      continue;
    }
#pragma unroll
    for (int k = 0; k < 16 / int(sizeof(T)); ++k) {
      const int byte = k * int(sizeof(T));
      if (byte >= begin[u] && byte < end[u])
        reinterpret_cast<T*>(to[u])[k] = T(words[u][byte / 4] >> byte % 4 * 8);
    }
  }
}

// Blocks have 256 threads and copy 1024 elements of a piece. kRows: some have row_bytes.
template <bool kRows>
DEVICE void copy_by_blocks(const CopyPieces& a) {
  u32 t = 0, above = a.used;
  while (above - t > 1) {
    const u32 middle = (t + above) / 2;
    if (a.pieces[middle].first <= blockIdx.x)
      t = middle;
    else
      above = middle;
  }
  const CopyPiece& p = a.pieces[t];
  const u32 first = (blockIdx.x - p.first) * 1024 + threadIdx.x;
  if (kRows && p.row_bytes)
    return p.width == 1   ? copy_rows<u8>(p, first)
           : p.width == 2 ? copy_rows<u16>(p, first)
                          : copy_rows<u32>(p, first);
  switch (p.width) {
    case 1:
      return copy_piece<u8>(p, first);
    case 2:
      return copy_piece<u16>(p, first);
    case 4:
      return copy_piece<u32>(p, first);
    case 8:
      return copy_piece<uint2>(p, first);
    default:
      return copy_piece<uint4>(p, first);
  }
}
