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
  typedef i32 Step;
  Step at[3];
};
template <>
struct Offsets<u64> {
  typedef i64 Step;
  Step at[3];
};

DEVICE u32 quotient(u32 i, const WalkDim& d) { return divide(i, d.divisor); }
DEVICE u64 quotient(u64 i, const WalkDim& d) { return i / u64(d.size); }

/// Of elements i[0] to i[n - 1] at once: what is known of a dimension is fetched once for all of
/// them. `i` is used up.
template <class I, int n>
DEVICE void offsets_of(const Walk& w, I (&i)[n], Offsets<I> (&o)[n]) {
  typedef typename Offsets<I>::Step Step;
#pragma unroll
  for (int j = 0; j < n; ++j) o[j] = {{0, 0, 0}};
  const int last = i32(w.rank) - 1;
#pragma unroll 1
  for (int d = 0; d < last; ++d) {
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const I rest = quotient(i[j], w.dims[d]);
      const Step digit = Step(i[j] - rest * I(w.dims[d].size));
#pragma unroll
      for (int k = 0; k < 3; ++k) o[j].at[k] += digit * Step(w.dims[d].strides[k]);
      i[j] = rest;
    }
  }
#pragma unroll
  for (int j = 0; j < n; ++j) {
#pragma unroll
    for (int k = 0; k < 3; ++k) o[j].at[k] += Step(i[j]) * Step(w.dims[last].strides[k]);
  }
}
template <class I>
DEVICE Offsets<I> offsets_of(const Walk& w, I i) {
  I all[1] = {i};
  Offsets<I> o[1];
  offsets_of(w, all, o);
  return o[0];
}

/// The address of a kernel's argument becomes a pointer before anything is added: then the compiler
/// knows that it is of global memory.
template <class T>
DEVICE T* at_byte(u64 base, i64 offset) {
  return reinterpret_cast<T*>(reinterpret_cast<char*>(base) + offset);
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

/// Of a thread's elements, the first of which is `first`. Beyond the last one they mean nothing.
template <class I>
DEVICE void own_offsets(const Walk& w, I first, Offsets<I> (&offsets)[kGatherItems]) {
  I i[kGatherItems];
#pragma unroll
  for (int k = 0; k < kGatherItems; ++k) i[k] = first + k * kGatherThreads;
  offsets_of(w, i, offsets);
}

/// T: a type of the elements' size; I: u32 where offsets fit in 32 bits, else u64. What an index
/// out of range would have read is 0, as is what is left out.
template <class T, class I>
DEVICE void gather(const GatherArgs& a) {
  const I first = I(blockIdx.x) * (kGatherThreads * kGatherItems) + threadIdx.x;
  Offsets<I> offsets[kGatherItems];
  own_offsets(a.walk, first, offsets);
  i64 index[kGatherItems];
#pragma unroll
  for (int k = 0; k < kGatherItems; ++k)
    if (first + k * kGatherThreads < I(a.walk.count))
      index[k] = *at_byte<const i64>(a.index, offsets[k].at[1]);
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
