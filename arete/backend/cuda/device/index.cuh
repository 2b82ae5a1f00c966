// What kernels that read or write at computed positions share, and gather and take_rows. The
// structs mirror codegen/index.h.
#pragma once
#include "device_error.cuh"

struct alignas(16) Word16 {
  u64 low, high;
};

/// Quotients by a number known to the host, for dividends below 2^31.
struct Divisor {
  u32 value, magic, shift, unused;
};
DEVICE u32 divide(u32 n, const Divisor& d) { return (__umulhi(n, d.magic) + n) >> d.shift; }

/// A loop nest over three operands, innermost dimension first; strides in bytes.
struct WalkDim {
  i64 size;
  i64 strides[3];
  Divisor divisor;  // of the size, where everything fits in 32 bits
};
struct Walk {
  i64 count;
  i64 rank;
  WalkDim dims[16];
};
template <class I>
struct Offsets;
template <>
struct Offsets<u32> {
  i32 at[3];
};
template <>
struct Offsets<u64> {
  i64 at[3];
};

DEVICE Offsets<u32> offsets_of(const Walk& w, u32 i) {
  Offsets<u32> o = {{0, 0, 0}};
  const int last = i32(w.rank) - 1;
  for (int d = 0; d < last; ++d) {
    const u32 rest = divide(i, w.dims[d].divisor);
    const i32 digit = i32(i - rest * w.dims[d].divisor.value);
    for (int k = 0; k < 3; ++k) o.at[k] += digit * i32(w.dims[d].strides[k]);
    i = rest;
  }
  for (int k = 0; k < 3; ++k) o.at[k] += i32(i) * i32(w.dims[last].strides[k]);
  return o;
}
DEVICE Offsets<u64> offsets_of(const Walk& w, u64 i) {
  Offsets<u64> o = {{0, 0, 0}};
  const int last = i32(w.rank) - 1;
  for (int d = 0; d < last; ++d) {
    const u64 size = u64(w.dims[d].size), rest = i / size;
    const i64 digit = i64(i - rest * size);
    for (int k = 0; k < 3; ++k) o.at[k] += digit * w.dims[d].strides[k];
    i = rest;
  }
  for (int k = 0; k < 3; ++k) o.at[k] += i64(i) * w.dims[last].strides[k];
  return o;
}

template <class T>
DEVICE T* at_byte(u64 base, i64 offset) {
  return reinterpret_cast<T*>(base + u64(offset));
}

/// Where an index that is out of range goes.
struct ErrorSink {
  DeviceErrorRecord* record;
  u64 op;
  i64 dim;
};
/// `index` in [-size, size), or without `wraps` in [0, size), as [0, size) in *position; anything
/// else is recorded and gives false.
DEVICE bool resolve_index(i64 index, i64 size, const ErrorSink& error, i64* position,
                          bool wraps = true) {
  const i64 wrapped = index < 0 && wraps ? index + size : index;
  *position = wrapped;
  if (u64(wrapped) < u64(size)) return true;
  record_device_error(error.record, 1u, error.op, index, size, error.dim);
  return false;
}

// ---- additions to few destinations in shared memory
/// How many copies of so many sums have room in so many slots: a power of two, as its logarithm.
/// With one for each lane of a warp no two of its additions meet in a bank.
DEVICE int log_of_copies(int slots, int size) {
  int log = 0;
  while (log < 5 && size << (log + 1) <= slots) ++log;
  return log;
}
/// The slot of a thread's copy of sum `k`; the copies lie side by side.
DEVICE int own_copy(int k, int log_copies) {
  return (k << log_copies) + int(threadIdx.x & ((1u << log_copies) - 1));
}

// ---- gather: out[.., i, ..] = in[.., index[.., i, ..], ..]
struct GatherArgs {
  Walk walk;  // out, index, in without the dimension that the index supplies
  u64 out, index, in;
  i64 size, step;  // of that dimension; step in bytes
  i64 leaves_out, left_out;
  ErrorSink error;
};

constexpr int kGatherThreads = 256, kGatherItems = 4;

/// T: a type of the elements' size; I: u32 where offsets fit in 32 bits, else u64. What an index
/// out of range would have read is 0, as is what is left out.
template <class T, class I>
DEVICE void gather(const GatherArgs& a) {
  const I first = I(blockIdx.x) * (kGatherThreads * kGatherItems) + threadIdx.x;
  Offsets<I> offsets[kGatherItems];
  i64 index[kGatherItems];
#pragma unroll
  for (int k = 0; k < kGatherItems; ++k) {
    const I i = first + k * kGatherThreads;
    if (i < I(a.walk.count)) {
      offsets[k] = offsets_of(a.walk, i);
      index[k] = *at_byte<const i64>(a.index, offsets[k].at[1]);
    }
  }
  T values[kGatherItems];
#pragma unroll
  for (int k = 0; k < kGatherItems; ++k) {
    values[k] = T{};
    if (first + k * kGatherThreads < I(a.walk.count)) {
      i64 position;
      if (a.leaves_out && index[k] == a.left_out) continue;
      if (resolve_index(index[k], a.size, a.error, &position, !a.leaves_out))
        values[k] = *at_byte<const T>(a.in, offsets[k].at[2] + position * a.step);
    }
  }
#pragma unroll
  for (int k = 0; k < kGatherItems; ++k)
    if (first + k * kGatherThreads < I(a.walk.count))
      *at_byte<T>(a.out, offsets[k].at[0]) = values[k];
}

// ---- take_rows: out[i, :] = table[index[i], :]
struct TakeRowsArgs {
  u64 table, out;
  const i64* index;
  i64 count;                     // of pieces: rows times pieces in a row
  i64 pieces;                    // in a row
  i64 rows;                      // of the table
  i64 table_stride, out_stride;  // between rows, in pieces
  Divisor divisor;               // of the pieces in a row
  ErrorSink error;
};

/// T: a piece, as large as widths and alignments allow. Threads take pieces one after another
/// through all rows, so narrow rows share a warp.
template <class T, class I>
DEVICE void take_rows(const TakeRowsArgs& a) {
  const I first = I(blockIdx.x) * (kGatherThreads * kGatherItems) + threadIdx.x;
  I row[kGatherItems], column[kGatherItems];
  i64 index[kGatherItems];
#pragma unroll
  for (int k = 0; k < kGatherItems; ++k) {
    const I i = first + k * kGatherThreads;
    if (i < I(a.count)) {
      if (sizeof(I) == 4)
        row[k] = I(divide(u32(i), a.divisor));
      else
        row[k] = i / I(a.pieces);
      column[k] = i - row[k] * I(a.pieces);
      index[k] = a.index[row[k]];
    }
  }
  T values[kGatherItems];
#pragma unroll
  for (int k = 0; k < kGatherItems; ++k) {
    values[k] = T{};
    if (first + k * kGatherThreads < I(a.count)) {
      i64 position;
      if (resolve_index(index[k], a.rows, a.error, &position))
        values[k] = reinterpret_cast<const T*>(a.table)[position * a.table_stride + i64(column[k])];
    }
  }
#pragma unroll
  for (int k = 0; k < kGatherItems; ++k)
    if (first + k * kGatherThreads < I(a.count))
      reinterpret_cast<T*>(a.out)[i64(row[k]) * a.out_stride + i64(column[k])] = values[k];
}
