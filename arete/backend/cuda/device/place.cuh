// Which element of a row's order is wanted (prim::SelectArgs).
#pragma once
#include "index.cuh"

enum PlaceKind : i32 { kPlaceRank, kPlaceRanks, kPlaceMedian, kPlaceNanmedian };

struct Place {
  i32 kind, unused;
  i64 rank;
  // Of kPlaceRanks: where they are, by the number of the row.
  Walk walk;
  u64 ranks;
  ErrorSink error;

  /// Whether it depends on how many elements are not NaN.
  __device__ __forceinline__ bool asks_for_nans() const { return kind >= kPlaceMedian; }
  /// Counted from 0, of a row of `length` >= 1 elements, of which `nans` are NaN.
  __device__ __forceinline__ u32 of(u64 row, i64 length, i64 nans) const {
    if (kind == kPlaceRank) return u32(rank);
    if (kind == kPlaceRanks)
      return u32(checked_index(*at_byte<const i64>(ranks, offsets_of(walk, row).at[0]), length,
                               error.record, error.op, i32(error.dim)));
    const i64 numbers = length - nans;
    // The first NaN stands right behind the others.
    if (kind == kPlaceMedian && nans > 0) return u32(numbers);
    return u32(numbers > 0 ? (numbers - 1) / 2 : 0);
  }
};
