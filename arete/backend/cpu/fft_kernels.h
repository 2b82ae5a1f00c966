// What the plans and the order of the Fourier transforms (fft.cpp, fft_lines.cpp) and their kernels
// (fft.simd.cpp) share.
#pragma once

#include <cstdint>

namespace arete::cpu {

/// A complex number, or several side by side where E is a vector.
template <class E>
struct FftComplex {
  E re, im;
};

/// One pass of Stockham's method (Note [FFT]): sequences of length r * m, s of them interleaved.
template <class T>
struct FftPass {
  int64_t r, m, s;
  const FftComplex<T>* twiddles;  // (m, r - 1): exp(-2 pi i p j / (r m)), j from 1
  const FftComplex<T>* roots;     // exp(-2 pi i k / r), for odd r
};

/// The largest prime factor that has a pass of its own.
inline constexpr int64_t kLargestFftFactor = 61;

/// Passes of real lines of odd length, for the first half of the spectrum or from it: half of the
/// work.
enum class FftReal : uint8_t { none, to_half, from_half };

/// How to transform n numbers: by passes over `work` numbers. With a chirp (Bluestein's method) n
/// of them hold the input, and the passes go there and back.
template <class T>
struct FftSteps {
  int64_t n, work;
  const FftPass<T>* passes;
  int64_t pass_count;
  const FftComplex<T>*chirp, *filter;  // n and `work` numbers, or null
  FftReal real = FftReal::none;
};

/// One side of the lines. Slots are the parts of the complex numbers of a line in turn; `rows` says
/// how many of them are in memory, from the first one on: others come as zeros, or are dropped.
/// Lines of which only the real parts are in memory (`single`) have those only as rows.
template <class T>
struct FftSide {
  T* data;
  const int64_t* strides;  // between lines, for each dimension of FftLines::sizes
  int64_t step, part;      // from one complex number to the next, from real to imaginary part
  int64_t rows;
  bool single;
  bool swapped;  // parts change places on their way: the inverse of a transform between two of them

  /// Where row r is in the buffer, and in memory from the beginning of its line on.
  [[gnu::always_inline]] int64_t slot(int64_t r) const {
    return (single ? 2 * r : r) ^ int64_t(swapped);
  }
  [[gnu::always_inline]] int64_t offset(int64_t r) const {
    return single ? r * step : (r >> 1) * step + (r & 1) * part;
  }
  [[gnu::always_inline]] bool is_gapless() const {
    return single ? step == 1 : part == 1 && step == 2;
  }
};

/// What comes between memory and the transform, on either side:
enum class FftEdge : uint8_t {
  none,
  /// Lines of 2 n real numbers are n complex ones, whose transform tells the first n + 1 of theirs.
  packed,
  /// Of real numbers whose length is odd: in, the second half of the spectrum is the mirrored first
  /// one, if the passes need it (FftReal); out, only the first half counts.
  mirrored,
};

/// Lines, or one line that is too long for the vectors' way.
template <class T>
struct FftLines {
  const FftSteps<T>* steps;
  FftSide<T> in, out;
  const int64_t* sizes;  // of the lines; at least one dimension, the innermost the last one
  int rank;
  FftEdge before = FftEdge::none, after = FftEdge::none;
  bool conjugate = false;  // of the half spectrum, where packed
  /// With an edge, but the other side has all numbers of the spectrum: out, the second half mirrors
  /// the first one; in, what the second half adds to the real results is folded into the first.
  bool whole = false;
  T inner = 1;                            // weight of its numbers that stand for two
  T scale = 1;                            // of the results
  const FftComplex<T>* halves = nullptr;  // exp(-pi i k / n) for k <= n / 2, where packed
  const T *window_in = nullptr, *window_out = nullptr;  // a factor for each element,
  bool window_of_pairs = false;                         // which are complex numbers, else rows
  /// Factors exp(-2 pi i line k / N) of results k of the innermost lines, as the product of that of
  /// the first line of its vector (turns: vector, k) and that of a line within it (lanes: k, part,
  /// line).
  const FftComplex<T>* turns = nullptr;
  const T* lanes = nullptr;

  /// How many complex numbers come from memory.
  [[gnu::always_inline]] int64_t numbers_in() const {
    return before != FftEdge::packed ? steps->n : whole ? 2 * steps->n : steps->n + 1;
  }
  /// How many the buffers hold.
  [[gnu::always_inline]] int64_t numbers() const {
    const bool packed = before == FftEdge::packed || after == FftEdge::packed;
    const int64_t needed = whole && packed ? 2 * steps->n : steps->n + 1;
    return steps->work > needed ? steps->work : needed;
  }
  /// Those that an edge works on, with their partners.
  [[gnu::always_inline]] int64_t pairs() const { return steps->n / 2 + 1; }
};

/// The stages of a line other than its passes. Their ranges count complex numbers.
enum class FftStage : uint8_t { load, before, chirp_in, filter, chirp_out, after, store };

/// Rows of complex numbers, reals apart.
template <class T>
struct FftRows {
  T* data;
  int64_t row, step;  // from one row to the next, from one number to the next
};

// Compiled once per instruction set (fft.simd.cpp).
#define ARETE_FFT_KERNELS(target)                                                      \
  namespace target {                                                                   \
  /* How many lines a vector of 4 or 8 byte numbers has. */                            \
  int fft_width(int bytes);                                                            \
  /* Transforms blocks first to last of lines, as FftBlocks counts them. */            \
  template <class T>                                                                   \
  void fft_lines(const FftLines<T>& l, int64_t first, int64_t last);                   \
  /* A range of a stage of one line, at `memory` and in the buffer x. */               \
  template <class T>                                                                   \
  void fft_stage(const FftLines<T>& l, FftStage stage, T* memory, T* x, int64_t first, \
                 int64_t last);                                                        \
  /* to = conj(from), of numbers 0 to n of each of the rows. */                        \
  template <class T>                                                                   \
  void fft_mirror(FftRows<T> to, FftRows<T> from, int64_t rows, int64_t n);            \
  /* to = (a + conj(b)) / 2. */                                                        \
  template <class T>                                                                   \
  void fft_fold(FftRows<T> to, FftRows<T> a, FftRows<T> b, int64_t rows, int64_t n);   \
  }
ARETE_FFT_KERNELS(base)
ARETE_FFT_KERNELS(avx2)
ARETE_FFT_KERNELS(avx512)
#undef ARETE_FFT_KERNELS

/// Blocks of at most `width` lines: full ones within the innermost dimension, and what is left of
/// its rows, in a block of its own for each row or, where that would be mostly empty, those of all
/// rows together.
struct FftBlocks {
  int64_t width, inner, outer = 1, per_row, rest;
  [[gnu::always_inline]] FftBlocks(const int64_t* sizes, int rank, int64_t w)
      : width(w), inner(sizes[rank - 1]) {
    for (int d = 0; d + 1 < rank; ++d) outer *= sizes[d];
    per_row = inner / width, rest = inner % width;
    if (rest && (outer == 1 || (per_row && 2 * rest > width))) ++per_row, rest = 0;
  }
  /// Those within a row come first.
  [[gnu::always_inline]] int64_t in_rows() const { return outer * per_row; }
  [[gnu::always_inline]] int64_t count() const {
    return in_rows() + (outer * rest + width - 1) / width;
  }
};

}  // namespace arete::cpu
