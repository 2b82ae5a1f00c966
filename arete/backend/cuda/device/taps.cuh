// Additions to planes of elements around points, where a program computes which of them and with
// what factors: the parts that codegen/pointwise.cpp writes no text for.
//
// Note [Taps]
// `find(image, point, place, factor)` computes the taps of a point, which serve all channels.
//
//   add_at_taps    a thread has a point, and adds its values by atomics: to planes of any size. The
//                  threads of a warp have neighbouring points, whose taps mostly are neighbours,
//                  too.
//   sum_at_taps    a block has an image whose planes are small, or several of few points: it puts
//                  the taps in order by place (counts, their sums, lists) in shared memory, once
//                  for all channels, and a thread adds up the list of an element. What would be an
//                  atomic for every tap and channel is one addition in memory for an element.
//
// In both the order of additions depends on chance.
#pragma once
#include "index.cuh"
#include "lanes.cuh"
#ifndef ARETE_EMULATED  // programs
#include "pointwise.cuh"
#endif

/// Mirrors codegen/index.h.
struct TapTarget {
  u64 src, out;  // addresses: (images, channels, points) and (images, channels, plane)
  i64 images, channels, points, plane;
  i64 share;          // channels of blockIdx.y
  i64 group;          // images of a block of sum_at_taps; several only if it has all channels
  Divisor of_points;  // where all points are less than 2^31; else its value is 0
  Divisor of_plane, of_channels;  // of sum_at_taps
};

constexpr int kTapThreads = 256, kTapChannels = 4;

template <class T, int kTaps, class Find>
DEVICE void add_at_taps(const TapTarget& a, const Find& find) {
  const u64 i = u64(blockIdx.x) * kTapThreads + threadIdx.x;
  if (i >= u64(a.images) * u64(a.points)) return;
  const i64 image = i64(a.of_points.value ? u64(divide(u32(i), a.of_points)) : i / u64(a.points));
  const i64 point = i64(i) - image * a.points;
  i64 c = i64(blockIdx.y) * a.share;
  const i64 last = min(c + a.share, a.channels), first = image * a.channels + c;
  const T* src = reinterpret_cast<const T*>(a.src) + first * a.points + point;
  T* out = reinterpret_cast<T*>(a.out) + first * a.plane;
  T values[kTapChannels];
  // The first values are on their way while the taps are computed.
  const auto load = [&] {
#pragma unroll
    for (int k = 0; k < kTapChannels; ++k) values[k] = c + k < last ? src[k * a.points] : T(0);
  };
  load();
  i64 place[kTaps];
  T factor[kTaps];
  find(image, point, place, factor);
  for (;;) {
#pragma unroll
    for (int k = 0; k < kTapChannels; ++k)
#pragma unroll
      for (int t = 0; t < kTaps; ++t)
        if (c + k < last && factor[t] != T(0))
          atomicAdd(out + k * a.plane + place[t], values[k] * factor[t]);
    c += kTapChannels;
    if (c >= last) return;
    src += kTapChannels * a.points;
    out += kTapChannels * a.plane;
    load();
  }
}

template <class T>
struct Tap {
  T factor;
  u32 value;  // of the first channel, from the first image's on
};

/// counts[k] = the sum of those before k, for `n` of them. `sums`: 32 words. All threads take part.
DEVICE void sums_before(u32* counts, i32 n, u32* sums) {
  const i32 thread = i32(threadIdx.x), threads = i32(blockDim.x), lane = thread % 32;
  const i32 each = (n + threads - 1) / threads, begin = min(thread * each, n),
            end = min(begin + each, n);
  u32 own = 0;
  for (i32 k = begin; k < end; ++k) own += counts[k];
  u32 before = own;  // of the warp up to this lane
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const u32 other = shuffle_up(before, d);
    if (lane >= d) before += other;
  }
  if (lane == 31) sums[thread / 32] = before;
  __syncthreads();
  before -= own;
  for (i32 w = 0; w < thread / 32; ++w) before += sums[w];
  for (i32 k = begin; k < end; ++k) {
    const u32 count = counts[k];
    counts[k] = before;
    before += count;
  }
}

/// `shared`: for each image of the group a word of every element of a plane; 32 words; from the
/// next multiple of 16 bytes on a Tap<T> of every tap.
template <class T, int kTaps, class Find>
DEVICE void sum_at_taps(const TapTarget& a, const Find& find, char* shared) {
  const i32 thread = i32(threadIdx.x), threads = i32(blockDim.x);
  const i64 first_image = i64(blockIdx.x) * a.group;
  const i32 images = i32(min(a.group, a.images - first_image));
  const i32 plane = i32(a.plane), points = i32(a.points);
  const i32 all_places = images * plane, all_points = images * points;
  u32* const ends = reinterpret_cast<u32*>(shared);
  Tap<T>* const taps = reinterpret_cast<Tap<T>*>(shared + ((all_places + 32) * 4 + 15) / 16 * 16);
  for (i32 k = thread; k < all_places; k += threads) ends[k] = 0;
  __syncthreads();
  i64 place[kTaps];
  T factor[kTaps];
  for (i32 p = thread; p < all_points; p += threads) {
    const i32 image = i32(divide(u32(p), a.of_points));
    find(first_image + image, i64(p - image * points), place, factor);
#pragma unroll
    for (int t = 0; t < kTaps; ++t)
      if (factor[t] != T(0)) atomicAdd(ends + image * plane + place[t], 1u);
  }
  __syncthreads();
  sums_before(ends, all_places, ends + all_places);
  __syncthreads();
  // Where a list begins becomes where it ends.
  const u32 image_values = u32(a.channels) * u32(points);
  for (i32 p = thread; p < all_points; p += threads) {
    const i32 image = i32(divide(u32(p), a.of_points)), point = p - image * points;
    find(first_image + image, i64(point), place, factor);
#pragma unroll
    for (int t = 0; t < kTaps; ++t)
      if (factor[t] != T(0)) {
        Tap<T>& tap = taps[atomicAdd(ends + image * plane + place[t], 1u)];
        tap.factor = factor[t];
        tap.value = u32(image) * image_values + u32(point);
      }
  }
  __syncthreads();
  const i64 c = i64(blockIdx.y) * a.share, first = first_image * a.channels + c;
  const T* const src = reinterpret_cast<const T*>(a.src) + first * a.points;
  T* const out = reinterpret_cast<T*>(a.out) + first * a.plane;
  const u32 elements = u32(min(a.share, a.channels - c)) * u32(all_places);
  for (u32 e = u32(thread); e < elements; e += u32(threads)) {
    const u32 row = divide(e, a.of_plane), image = divide(row, a.of_channels);
    const u32 channel = row - image * u32(a.channels);
    const u32 k = image * u32(plane) + (e - row * u32(plane));
    const u32 begin = k ? ends[k - 1] : 0u, end = ends[k];
    if (begin == end) continue;
    const T* const values = src + i64(channel) * points;
    T sum = 0;
    for (u32 i = begin; i < end; ++i) sum += values[taps[i].value] * taps[i].factor;
    out[e] += sum;
  }
}
