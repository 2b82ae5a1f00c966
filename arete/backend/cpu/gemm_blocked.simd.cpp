// Compiled once per instruction set; see Note [Blocked product].
#include <algorithm>
#include <memory>
#include <new>
#include <type_traits>

#include "arete/backend/cpu/gemm_blocked.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

// Note [Blocked product]
// The scheme of Goto and van de Geijn: B is packed in panels of kNr columns, A in panels of kMr
// rows, so that the innermost kernel reads both with stride 1 and keeps a kMr x kNr tile of the
// result in registers. A kKc x kNr panel of B stays in the first cache, a kMc x kKc block of A in
// the second. Packing reads any strides and converts narrow integers to 32 bits, in which they
// multiply and add: modulo 2^8 or 2^16 the result is the same.
// Lines of the result are asked for before the tile that they take is computed. Several kKc of B
// are packed at once, so that a product of middling size wakes the other threads twice and not
// twice for each kKc. OpenBLAS 0.3.21 does not know CPUs newer than itself and falls back to SSE3
// code there, which prepare_blas() mends.

namespace arete::cpu::ARETE_SIMD_TARGET {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kMr = 8;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32, kMr = 4;
#else
constexpr int kVectorBytes = 16, kMr = 4;
#endif
constexpr int kVectors = 3;  // per row of a tile: kMr * kVectors accumulators
constexpr int64_t kKc = 192, kMc = 96, kNc = 1536;
constexpr int64_t kPackedBytes = 4 << 20;  // of B at a time

template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef T loose __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
};
template <class T>
constexpr int kLanes = kVectorBytes / int(sizeof(T));
template <class T>
constexpr int kNr = kVectors* kLanes<T>;

// One tile: out (kMr, kNr) row-major in `tile`, from packed panels.
template <class T>
void micro_kernel(int64_t k, const T* a, const T* b, T* tile) {
  using V = typename Vector<T>::type;
  V acc[kMr][kVectors] = {};
  for (int64_t p = 0; p < k; ++p) {
    V bv[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j)
      bv[j] = *reinterpret_cast<const V*>(b + p * kNr<T> + j * kLanes<T>);
#pragma GCC unroll 8
    for (int i = 0; i < kMr; ++i) {
      const V av = a[p * kMr + i] - V{};
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) acc[i][j] += av * bv[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kMr; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j)
      *reinterpret_cast<V*>(tile + i * kNr<T> + j * kLanes<T>) = acc[i][j];
}

template <class T>
struct AlignedBuffer {
  T* data;
  explicit AlignedBuffer(int64_t n)
      : data(static_cast<T*>(::operator new(size_t(n) * sizeof(T), std::align_val_t(64)))) {}
  ~AlignedBuffer() { ::operator delete(data, std::align_val_t(64)); }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
};

// Packs `count` rows (A) or columns (B) in groups of kGroup, k-major, padding with zeros.
// `across`: stride between them; `along`: stride in k.
template <int kGroup, class S, class T>
void pack(const S* in, int64_t across, int64_t along, int64_t count, int64_t k, T* out) {
  for (int64_t first = 0; first < count; first += kGroup, out += kGroup * k) {
    const int64_t n = std::min<int64_t>(kGroup, count - first);
    const S* source = in + first * across;
    if (sizeof(S) == sizeof(T) && n == kGroup && along == 1) {
      kernels::table().transpose[sizeof(T)](out, source, kGroup, k, kGroup, across);
    } else if (n == kGroup && across == 1) {
      for (int64_t p = 0; p < k; ++p)
        for (int i = 0; i < kGroup; ++i) out[p * kGroup + i] = T(source[p * along + i]);
    } else if (n == kGroup) {
      for (int64_t p = 0; p < k; ++p)
        for (int i = 0; i < kGroup; ++i) out[p * kGroup + i] = T(source[p * along + i * across]);
    } else {
      for (int64_t p = 0; p < k; ++p)
        for (int i = 0; i < kGroup; ++i)
          out[p * kGroup + i] = i < n ? T(source[p * along + i * across]) : T(0);
    }
  }
}

template <class T>
struct Scale {
  T alpha, beta;
  bool read_out;
};

// Writes a tile's valid part to the result.
template <class S, class T>
void store_tile(const T* tile, S* out, int64_t rs, int64_t cs, int64_t rows, int64_t cols,
                const Scale<T>& scale) {
  for (int64_t i = 0; i < rows; ++i) {
    S* row = out + i * rs;
    const T* from = tile + i * kNr<T>;
    if (!scale.read_out) {
      if (cs == 1) {
        for (int64_t j = 0; j < cols; ++j) row[j] = S(scale.alpha * from[j]);
      } else {
        for (int64_t j = 0; j < cols; ++j) row[j * cs] = S(scale.alpha * from[j]);
      }
    } else if (cs == 1) {
      for (int64_t j = 0; j < cols; ++j) row[j] = S(scale.alpha * from[j] + scale.beta * T(row[j]));
    } else {
      for (int64_t j = 0; j < cols; ++j)
        row[j * cs] = S(scale.alpha * from[j] + scale.beta * T(row[j * cs]));
    }
  }
}

// Asks for the lines of a tile's valid rows.
template <class S>
void fetch_tile(const S* out, int64_t rs, int64_t cs, int64_t rows) {
  if (cs != 1) return;
  constexpr int64_t kLine = 64 / sizeof(S);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < kNr<S>; j += kLine) __builtin_prefetch(out + i * rs + j, 1);
}

// No packing: the result is too small to pay for it.
template <class S, class T>
void small(const BlockedGemm& g, const Scale<T>& scale) {
  const S *a = static_cast<const S*>(g.a.data), *b = static_cast<const S*>(g.b.data);
  S* out = static_cast<S*>(g.out.data);
  constexpr int64_t kChunk = 32;
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j0 = 0; j0 < g.n; j0 += kChunk) {
      const int64_t cols = std::min(kChunk, g.n - j0);
      T acc[kChunk] = {};
      for (int64_t p = 0; p < g.k; ++p) {
        const T x = T(a[i * g.a.row_stride + p * g.a.col_stride]);
        const S* row = b + p * g.b.row_stride + j0 * g.b.col_stride;
        if (g.b.col_stride == 1) {
          for (int64_t j = 0; j < cols; ++j) acc[j] += x * T(row[j]);
        } else {
          for (int64_t j = 0; j < cols; ++j) acc[j] += x * T(row[j * g.b.col_stride]);
        }
      }
      store_tile(acc, out + i * g.out.row_stride + j0 * g.out.col_stride, 0, g.out.col_stride, 1,
                 cols, scale);
    }
}

// ---- one row or one column: each element of the matrix is read once, so packing is lost time

// sums[i] = row i of (count, k) times x; rows lie `across` apart, their elements side by side.
template <class T>
void dot_rows(const T* rows, int64_t across, const T* x, int64_t count, int64_t k, T* sums) {
  using V = typename Vector<T>::type;
  using L = typename Vector<T>::loose;
  constexpr int kAtOnce = 4;
  for (int64_t first = 0; first < count; first += kAtOnce) {
    // What is not there is the last row once more.
    const T* row[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) row[i] = rows + std::min(first + i, count - 1) * across;
    V acc[kAtOnce][2] = {};
    int64_t p = 0;
    for (; p + 2 * kLanes<T> <= k; p += 2 * kLanes<T>)
#pragma GCC unroll 8
      for (int half = 0; half < 2; ++half) {
        const V xv = *reinterpret_cast<const L*>(x + p + half * kLanes<T>);
#pragma GCC unroll 8
        for (int i = 0; i < kAtOnce; ++i)
          acc[i][half] += *reinterpret_cast<const L*>(row[i] + p + half * kLanes<T>) * xv;
      }
    for (int i = 0; i < kAtOnce && first + i < count; ++i) {
      const V both = acc[i][0] + acc[i][1];
      T sum = 0;
      for (int lane = 0; lane < kLanes<T>; ++lane) sum += both[lane];
      for (int64_t q = p; q < k; ++q) sum += row[i][q] * x[q];
      sums[first + i] = sum;
    }
  }
}

// sums[j] = x times column j of (k, count); rows lie `along` apart, their elements side by side.
template <class T>
void add_rows(const T* rows, int64_t along, const T* x, int64_t count, int64_t k, T* sums) {
  std::fill_n(sums, count, T(0));
  int64_t p = 0;
  for (; p + 4 <= k; p += 4) {
    const T* const r = rows + p * along;
    const T x0 = x[p], x1 = x[p + 1], x2 = x[p + 2], x3 = x[p + 3];
    for (int64_t j = 0; j < count; ++j)
      sums[j] += (x0 * r[j] + x1 * r[j + along]) + (x2 * r[j + 2 * along] + x3 * r[j + 3 * along]);
  }
  for (; p < k; ++p)
    for (int64_t j = 0; j < count; ++j) sums[j] += x[p] * rows[p * along + j];
}

// False where the matrix has no elements side by side.
template <class T>
bool matrix_times_vector(const BlockedGemm& g, const Scale<T>& scale) {
  const bool is_row = g.m == 1;
  if (!is_row && g.n != 1) return false;
  const MatrixRef &matrix = is_row ? g.b : g.a, &vector = is_row ? g.a : g.b;
  const int64_t count = is_row ? g.n : g.m;
  const int64_t along = is_row ? matrix.row_stride : matrix.col_stride;
  const int64_t across = is_row ? matrix.col_stride : matrix.row_stride;
  const int64_t step = is_row ? vector.col_stride : vector.row_stride;
  if (along != 1 && across != 1) return false;
  const T* const elements = static_cast<const T*>(matrix.data);
  const T* x = static_cast<const T*>(vector.data);
  AlignedBuffer<T> dense(step == 1 ? 0 : g.k);
  if (step != 1) {
    for (int64_t p = 0; p < g.k; ++p) dense.data[p] = x[p * step];
    x = dense.data;
  }
  // Parts of the sum, and which elements are computed side by side, depend on the sizes alone.
  // add_rows adds a quarter of a part up in one number, and rounds more in long ones; dot_rows has
  // as many numbers as lanes, and short parts would interrupt the rows that it reads.
  const int64_t whole_part = along == 1 ? 8192 : 512, width = along == 1 ? 4 : 512;
  const int64_t parts = (g.k + whole_part - 1) / whole_part, blocks = (count + width - 1) / width;
  AlignedBuffer<T> sums(parts * count);
  parallel_for(0, parts * blocks, grain_for(2 * double(std::min(g.k, whole_part) * width)),
               [&](int64_t first, int64_t last) {
                 for (int64_t item = first; item < last; ++item) {
                   const int64_t p = item / blocks * whole_part, i = item % blocks * width;
                   const int64_t depth = std::min(whole_part, g.k - p),
                                 n = std::min(width, count - i);
                   T* const to = sums.data + item / blocks * count + i;
                   const T* const from = elements + i * across + p * along;
                   if (along == 1)
                     dot_rows(from, across, x + p, n, depth, to);
                   else
                     add_rows(from, along, x + p, n, depth, to);
                 }
               });
  for (int64_t part = 1; part < parts; ++part)
    for (int64_t i = 0; i < count; ++i) sums.data[i] += sums.data[part * count + i];
  store_tile(sums.data, static_cast<T*>(g.out.data), 0,
             is_row ? g.out.col_stride : g.out.row_stride, 1, count, scale);
  return true;
}

template <class S, class T>
void run(const BlockedGemm& g) {
  Scale<T> scale;
  if constexpr (std::is_floating_point_v<T>) {
    scale = {T(g.alpha), T(g.beta), g.beta != 0};
  } else {
    scale = {T(int64_t(g.alpha)), T(int64_t(g.beta)), int64_t(g.beta) != 0};
  }
  const double work = double(g.m) * double(g.n) * double(g.k);
  if constexpr (sizeof(S) == sizeof(T))
    if (work > 128 && matrix_times_vector<T>(g, scale)) return;
  if (work <= 4096) return small<S, T>(g, scale);
  const S *a = static_cast<const S*>(g.a.data), *b = static_cast<const S*>(g.b.data);
  S* out = static_cast<S*>(g.out.data);
  constexpr int64_t nr = kNr<T>;
  // Which part of the sum is added up at once does not depend on the threads: nor do results.
  const auto round_up = [](int64_t x, int64_t to) { return (x + to - 1) / to * to; };
  const int64_t kc = std::min(kKc, g.k), nc = std::min(kNc / nr * nr, round_up(g.n, nr));
  const int64_t deep =
      std::min(g.k, std::max<int64_t>(1, kPackedBytes / int64_t(sizeof(T)) / (nc * kc)) * kc);
  AlignedBuffer<T> packed_b(deep * nc);
  for (int64_t j0 = 0; j0 < g.n; j0 += nc) {
    const int64_t cols = std::min(nc, g.n - j0), panels = (cols + nr - 1) / nr;
    for (int64_t k0 = 0; k0 < g.k; k0 += deep) {
      const int64_t k1 = std::min(g.k, k0 + deep), steps = (k1 - k0 + kc - 1) / kc;
      const auto depth_from = [=](int64_t p0) { return std::min(kc, k1 - p0); };
      parallel_for(
          0, steps * panels, grain_for(4 * double(nr * kc)), [&](int64_t first, int64_t last) {
            for (int64_t item = first; item < last; ++item) {
              const int64_t p0 = k0 + item / panels * kc, jp = item % panels;
              pack<nr>(b + p0 * g.b.row_stride + (j0 + jp * nr) * g.b.col_stride, g.b.col_stride,
                       g.b.row_stride, std::min(nr, cols - jp * nr), depth_from(p0),
                       packed_b.data + ((p0 - k0) * panels + jp * depth_from(p0)) * nr);
            }
          });
      // Work items: blocks of rows alike, times groups of panels where there are few blocks.
      int64_t mc = kMc;
      while (mc > kMr && g.m <= mc * 3) mc = round_up(mc / 2, kMr);
      mc = round_up((g.m - 1) / ((g.m + mc - 1) / mc) + 1, kMr);
      const int64_t blocks = (g.m + mc - 1) / mc;
      const int64_t groups = std::clamp<int64_t>((4 * num_threads() - 1) / blocks + 1, 1, panels);
      const double flops = 2.0 * double(g.m) * double(cols) * double(k1 - k0);
      parallel_for(
          0, blocks * groups, grain_for(flops / double(blocks * groups)),
          [&](int64_t first, int64_t last) {
            AlignedBuffer<T> packed_a(round_up(mc, kMr) * kc);
            alignas(64) T tile[kMr * nr];
            for (int64_t p0 = k0; p0 < k1; p0 += kc) {
              const int64_t depth = depth_from(p0);
              Scale<T> now = scale;
              if (p0 > 0) now.beta = T(1), now.read_out = true;
              int64_t block_in_buffer = -1;
              for (int64_t item = first; item < last; ++item) {
                const int64_t block = item / groups, group = item % groups;
                const int64_t i0 = block * mc, rows = std::min(mc, g.m - i0);
                if (block != block_in_buffer)
                  pack<kMr>(a + i0 * g.a.row_stride + p0 * g.a.col_stride, g.a.row_stride,
                            g.a.col_stride, rows, depth, packed_a.data);
                block_in_buffer = block;
                const int64_t jp_end = (group + 1) * panels / groups;
                for (int64_t jp = group * panels / groups; jp < jp_end; ++jp)
                  for (int64_t i = 0; i < rows; i += kMr) {
                    const int64_t tile_rows = std::min<int64_t>(kMr, rows - i);
                    S* to = out + (i0 + i) * g.out.row_stride + (j0 + jp * nr) * g.out.col_stride;
                    fetch_tile(to, g.out.row_stride, g.out.col_stride, tile_rows);
                    micro_kernel(depth, packed_a.data + i * depth,
                                 packed_b.data + ((p0 - k0) * panels + jp * depth) * nr, tile);
                    store_tile(tile, to, g.out.row_stride, g.out.col_stride, tile_rows,
                               std::min(nr, cols - jp * nr), now);
                  }
              }
            }
          });
    }
  }
}

template <class T>
void finish(const FinishRow& r) {
  T* out = static_cast<T*>(r.out);
  const T* bias = static_cast<const T*>(r.bias);
  T* aux = static_cast<T*>(r.aux);
  // Written as one loop per case, so that each is vectorized.
  const auto relu = [](T v) { return v < T(0) ? T(0) : v; };
  if (aux != nullptr) {
    for (int64_t j = 0; j < r.n; ++j) {
      const T v = bias == nullptr ? out[j] : out[j] + bias[j];
      aux[j] = v;
      out[j] = r.relu ? relu(v) : v;
    }
  } else if (bias != nullptr && r.relu) {
    for (int64_t j = 0; j < r.n; ++j) out[j] = relu(out[j] + bias[j]);
  } else if (bias != nullptr) {
    for (int64_t j = 0; j < r.n; ++j) out[j] += bias[j];
  } else if (r.relu) {
    for (int64_t j = 0; j < r.n; ++j) out[j] = relu(out[j]);
  }
}

}  // namespace

void finish_row(const FinishRow& r) {
  return r.dtype == kFloat64 ? finish<double>(r) : finish<float>(r);
}

void gemm_blocked(const BlockedGemm& g) {
  switch (g.dtype) {
    case DType::f64:
      return run<double, double>(g);
    case DType::u8:
      return run<uint8_t, uint32_t>(g);
    case DType::i8:
      return run<int8_t, uint32_t>(g);
    case DType::i16:
      return run<int16_t, uint32_t>(g);
    case DType::u16:
      return run<uint16_t, uint32_t>(g);
    case DType::i32:
      return run<int32_t, uint32_t>(g);
    case DType::u32:
      return run<uint32_t, uint32_t>(g);
    case DType::i64:
      return run<int64_t, uint64_t>(g);
    case DType::u64:
      return run<uint64_t, uint64_t>(g);
    default:
      ARETE_BUG("dtype without a blocked product");
  }
}

}  // namespace arete::cpu::ARETE_SIMD_TARGET
