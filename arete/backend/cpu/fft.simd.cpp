// Fourier transforms of many lines at once: each element of a vector belongs to a line of its own.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "arete/backend/cpu/arena.h"
#include "arete/backend/cpu/fft_kernels.h"
#include "arete/backend/cpu/kernels/simd.inl.h"

namespace arete::cpu::ARETE_SIMD_TARGET {
namespace {

using kernels::kVectorBytes;

template <class T>
struct VectorOf {
  static constexpr int width = kVectorBytes / int(sizeof(T));
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

// Exchanges the off-diagonal blocks of size h of two rows, h apart, of a matrix of blocks 2 h.
template <int h, class V, int... lane>
[[gnu::always_inline]] inline void exchange(V& a, V& b, std::integer_sequence<int, lane...>) {
  constexpr int width = sizeof...(lane);
  const V first = __builtin_shufflevector(a, b, (lane & h ? width + lane - h : lane)...);
  b = __builtin_shufflevector(a, b, (lane & h ? width + lane : lane + h)...);
  a = first;
}
// The transpose of a square of vectors, halving the blocks that change places.
template <int width, int h = width / 2, class V>
[[gnu::always_inline]] inline void transpose(V* rows) {
#pragma GCC unroll 16
  for (int i = 0; i < width; ++i)
    if (!(i & h)) exchange<h>(rows[i], rows[i + h], std::make_integer_sequence<int, width>{});
  if constexpr (h > 1) transpose<width, h / 2>(rows);
}

// One vector's worth of lines, `count` of which exist.
template <class T>
void run_block(const FftLines<T>& l, const T* in, T* out, int count, FftComplex<Vector<T>>* a,
               FftComplex<Vector<T>>* b) {
  using V = Vector<T>;
  constexpr int width = VectorOf<T>::width;
  // The inverse is the forward transform with the parts exchanged before and after.
  const int64_t swap = l.forward ? 0 : 1, length = 2 * l.n;
  V rows[width];
  V* const from = reinterpret_cast<V*>(a);
  for (int64_t j = 0; j < length; j += width) {
    const int64_t have = std::min<int64_t>(width, length - j);
    for (int v = 0; v < width; ++v) {
      rows[v] = V{};
      const T* const at = in + std::min(v, count - 1) * length + j;
      if (have == width)
        std::memcpy(&rows[v], at, sizeof(V));
      else
        std::memcpy(&rows[v], at, size_t(have) * sizeof(T));
    }
    transpose<width>(rows);
    for (int64_t i = 0; i < have; ++i) from[(j + i) ^ swap] = rows[i];
  }
  const V* const result = reinterpret_cast<const V*>(run_passes(l.passes, l.pass_count, a, b));
  for (int64_t j = 0; j < length; j += width) {
    const int64_t have = std::min<int64_t>(width, length - j);
    for (int64_t i = 0; i < width; ++i) rows[i] = i < have ? result[(j + i) ^ swap] * l.scale : V{};
    transpose<width>(rows);
    for (int v = 0; v < count; ++v) {
      if (have == width)
        std::memcpy(out + v * length + j, &rows[v], sizeof(V));
      else
        std::memcpy(out + v * length + j, &rows[v], size_t(have) * sizeof(T));
    }
  }
}

template <class T>
void run(const FftLines<T>& l) {
  constexpr int width = VectorOf<T>::width;
  ArenaScope scope;
  auto* const a = scope.take_array<FftComplex<Vector<T>>>(l.n);
  auto* const b = scope.take_array<FftComplex<Vector<T>>>(l.n);
  for (int64_t first = 0; first < l.lines; first += width)
    run_block(l, l.in + first * 2 * l.n, l.out + first * 2 * l.n,
              int(std::min<int64_t>(width, l.lines - first)), a, b);
}

}  // namespace

void fft_f32(const FftLines<float>& l) { run(l); }
void fft_f64(const FftLines<double>& l) { run(l); }

}  // namespace arete::cpu::ARETE_SIMD_TARGET
