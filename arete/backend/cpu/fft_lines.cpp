// Lines of Fourier transforms: what their lengths need (factors, chirps), and how they are done.
#include "arete/backend/cpu/fft_lines.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numbers>
#include <utility>
#include <vector>

#include "arete/backend/cpu/kernels/select_table.h"
#include "arete/backend/cpu/memory.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

namespace arete::cpu {
namespace {

template <class T>
using Complex = FftComplex<T>;

// exp(-2 pi i k / n), exact to the last digits: the angle is brought into the first octant by
// whole numbers.
Complex<double> root(int64_t k, int64_t n) {
  k %= n;
  if (8 * k > 4 * n) {  // the lower half mirrors the upper one
    const Complex<double> r = root(n - k, n);
    return {r.re, -r.im};
  }
  if (4 * k > n) {               // second quadrant
    const int64_t rest = 2 * k;  // the angle is pi - 2 pi (n / 2 - k) / n
    const double a = std::numbers::pi * double(n - rest) / double(n);
    return {-std::cos(a), -std::sin(a)};
  }
  if (8 * k > n) {  // second octant
    const double a = std::numbers::pi * double(n - 4 * k) / (2 * double(n));
    return {std::sin(a), -std::cos(a)};
  }
  const double a = 2 * std::numbers::pi * double(k) / double(n);
  return {std::cos(a), -std::sin(a)};
}
template <class T>
Complex<T> root_as(int64_t k, int64_t n) {
  const Complex<double> r = root(k, n);
  return {T(r.re), T(r.im)};
}

// The factors of n, odd ones first, then as many eights as two and four leave; empty if one is too
// large.
std::vector<int64_t> small_factors(int64_t n) {
  std::vector<int64_t> f;
  int twos = 0;
  while (n % 2 == 0) ++twos, n /= 2;
  for (int64_t p = 3; p <= kLargestFftFactor && n > 1; p += 2)
    while (n % p == 0) f.push_back(p), n /= p;
  if (n > 1) return {};
  if (twos == 1) f.push_back(2), twos = 0;
  while (twos % 3) f.push_back(4), twos -= 2;
  for (; twos > 0; twos -= 3) f.push_back(8);
  return f;
}
// ---- tables, kept for the lengths used last ----

template <class P>
std::shared_ptr<const P> cached(int64_t n) {
  constexpr size_t kMost = 64;
  static std::mutex mutex;
  static std::map<int64_t, std::shared_ptr<const P>> all;
  {
    const std::lock_guard lock(mutex);
    if (const auto it = all.find(n); it != all.end()) return it->second;
  }
  auto made = std::make_shared<const P>(n);
  const std::lock_guard lock(mutex);
  if (all.size() >= kMost) all.clear();
  return all.emplace(n, std::move(made)).first->second;
}

template <class T>
struct Passes {
  explicit Passes(int64_t n) {
    int64_t length = n, s = 1;
    for (int64_t r : small_factors(n)) {
      const int64_t m = length / r;
      std::vector<Complex<T>>& twiddles = numbers.emplace_back();
      for (int64_t p = 0; p < m; ++p)
        for (int64_t j = 1; j < r; ++j) twiddles.push_back(root_as<T>(p * j, length));
      std::vector<Complex<T>>& roots = numbers.emplace_back();
      for (int64_t k = 0; k < r; ++k) roots.push_back(root_as<T>(k, r));
      passes.push_back({r, m, s, twiddles.data(), roots.data()});
      length = m;
      s *= r;
    }
  }
  std::deque<std::vector<Complex<T>>> numbers;  // what the passes point to
  std::vector<FftPass<T>> passes;
};

template <class T>
struct Halves {
  explicit Halves(int64_t n) {
    for (int64_t k = 0; k <= n / 2; ++k) roots.push_back(root_as<T>(k, 2 * n));
  }
  std::vector<Complex<T>> roots;
};

// A line of n = columns * rows numbers as a matrix.
struct Shape2 {
  int64_t rows = 1, columns = 1;
};
Shape2 matrix_of(int64_t n, int64_t width) {
  Shape2 best;
  double least = 0;
  for (int64_t rows = 2; rows * rows <= 4 * n; ++rows) {
    const int64_t columns = n / rows;
    if (rows * columns != n || columns < 2) continue;
    // What unfilled vectors cost, and unequal sides, whose buffers are larger.
    const auto full = [&](int64_t k) {
      return double((k + width - 1) / width * width) / double(k);
    };
    const double cost =
        (full(rows) + full(columns)) * (8 + std::fabs(std::log2(double(rows) / double(columns))));
    if (best.rows == 1 || cost < least) best = {rows, columns}, least = cost;
  }
  return best;
}
template <class T>
struct TransformMatrix {
  explicit TransformMatrix(int64_t n) {
    const int64_t width = width_of<T>();
    shape = matrix_of(n, width);
    columns = cached<Passes<T>>(shape.rows);
    rows = cached<Passes<T>>(shape.columns);
    for (int64_t j = 0; j < shape.columns; j += width)
      for (int64_t k = 0; k < shape.rows; ++k) turns.push_back(root_as<T>(j * k, n));
    for (int64_t k = 0; k < shape.rows; ++k) {
      for (int64_t j = 0; j < width; ++j) lanes.push_back(root_as<T>(j * k, n).re);
      for (int64_t j = 0; j < width; ++j) lanes.push_back(root_as<T>(j * k, n).im);
    }
  }
  Shape2 shape;
  std::shared_ptr<const Passes<T>> columns, rows;  // of their lengths
  std::vector<Complex<T>> turns;
  std::vector<T> lanes;
};

template <class T>
void transform_line(const T* in, T* out, int64_t n);

// For n with a large factor.
int64_t chirp_work(int64_t n) {
  int64_t best = 0;
  for (int64_t odd : {1, 3, 5, 9, 15, 25, 27, 45, 75, 81}) {
    int64_t m = odd;
    while (m < 2 * n - 1 || m % 8) m *= 2;
    if (!best || m < best) best = m;
  }
  return best;
}
template <class T>
struct Chirp {
  explicit Chirp(int64_t n) : work(chirp_work(n)) {
    std::vector<Complex<double>> a(static_cast<size_t>(work));
    // exp(-pi i j^2 / n); j^2 is kept modulo 2 n.
    for (int64_t j = 0, square = 0; j < n; ++j) {
      const Complex<double> c = root(square, 2 * n);
      chirp.push_back({T(c.re), T(c.im)});
      a[size_t(j)] = {c.re, -c.im};
      if (j) a[size_t(work - j)] = a[size_t(j)];
      square = (square + 2 * j + 1) % (2 * n);
    }
    transform_line(&a[0].re, &a[0].re, work);
    for (const Complex<double>& c : a)
      filter.push_back({T(c.re / double(work)), T(c.im / double(work))});
  }
  int64_t work;
  std::vector<Complex<T>> chirp, filter;
};

// ---- lines ----

template <class T>
void run_lines(const FftLines<T>& l) {
  static const auto f = ARETE_SELECT(::arete::cpu, fft_lines<T>);
  const int64_t width = width_of<T>();
  parallel_for(0, FftBlocks(l.sizes, l.rank, width).count(),
               grain_for(8 * double(l.steps->work * width)),
               [&](int64_t first, int64_t last) { f(l, first, last); });
}
template <class T>
void run_stage(const FftLines<T>& l, FftStage stage, T* memory, T* x, int64_t count) {
  static const auto f = ARETE_SELECT(::arete::cpu, fft_stage<T>);
  // Whole vectors for each thread: what is left of them rounds otherwise, and has to be the same
  // numbers whatever the number of threads.
  constexpr int64_t kTogether = 64;
  parallel_for(0, (count + kTogether - 1) / kTogether, grain_for(8 * kTogether),
               [&](int64_t first, int64_t last) {
                 f(l, stage, memory, x, first * kTogether, std::min(last * kTogether, count));
               });
}

// Numbers without gaps, from `in` through `between` to `out`, which may be `in`.
template <class T>
void run_matrix(const TransformMatrix<T>& m, const T* in, bool swap_in, T* between, T* out,
                bool swap_out, T scale) {
  const int64_t near = 2, n1 = m.shape.rows, n2 = m.shape.columns;
  const auto side = [&](const T* data, int64_t stride, int64_t count, bool swap) {
    return FftSide<T>{const_cast<T*>(data), &near, 2 * stride, 1, 2 * count, false, swap};
  };
  const auto steps = [](const Passes<T>& p, int64_t n) {
    return FftSteps<T>{n, n, p.passes.data(), int64_t(p.passes.size()), nullptr, nullptr};
  };
  const FftSteps<T> columns = steps(*m.columns, n1), rows = steps(*m.rows, n2);
  FftLines<T> l{&columns, side(in, n2, n1, swap_in), side(between, n2, n1, false), &n2, 1};
  l.turns = m.turns.data();
  l.lanes = m.lanes.data();
  run_lines(l);
  const int64_t row = 2 * n2;
  l = FftLines<T>{&rows, side(between, 1, n2, false), side(out, n1, n2, swap_out), &n1, 1};
  l.in.strides = &row;
  l.scale = scale;
  run_lines(l);
}

// Memory for buffers.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t numbers) : bytes_(size_t(numbers) * 2 * sizeof(T)) {}
  ~Buffer() { release_cached(data_, bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  // Allocates it at the first call.
  T* get() {
    if (!data_) data_ = static_cast<T*>(allocate_cached(bytes_));
    return data_;
  }

 private:
  size_t bytes_;
  T* data_ = nullptr;
};

template <class T>
void run_long_line(const FftLines<T>& l, const TransformMatrix<T>& matrix, T* in, T* out,
                   Buffer<T>& x, Buffer<T>& y) {
  const FftSteps<T>& steps = *l.steps;
  const auto is_plain = [&](const FftSide<T>& s, FftEdge edge, const T* window) {
    return !steps.chirp && edge == FftEdge::none && !window && !s.single && s.step == 2 &&
           s.part == 1 && s.rows == 2 * steps.n;
  };
  const bool plain_in = is_plain(l.in, l.before, l.window_in),
             plain_out = is_plain(l.out, l.after, l.window_out);
  const auto stage = [&](FftStage s, T* memory, int64_t count) {
    run_stage(l, s, memory, x.get(), count);
  };
  if (!plain_in) {
    stage(FftStage::load, in, l.numbers_in());
    if (l.before != FftEdge::none) stage(FftStage::before, in, l.pairs());
  }
  if (steps.chirp) {
    stage(FftStage::chirp_in, in, steps.work);
    run_matrix(matrix, x.get(), false, y.get(), x.get(), false, T(1));
    stage(FftStage::filter, in, steps.work);
    run_matrix(matrix, x.get(), false, y.get(), x.get(), false, T(1));
    stage(FftStage::chirp_out, in, steps.n);
  } else {
    run_matrix(matrix, plain_in ? in : x.get(), plain_in && l.in.swapped, y.get(),
               plain_out ? out : x.get(), plain_out && l.out.swapped, plain_out ? l.scale : T(1));
  }
  if (plain_out) return;
  if (l.after != FftEdge::none) stage(FftStage::after, out, l.pairs());
  stage(FftStage::store, out, l.out.single ? l.out.rows : (l.out.rows + 1) / 2);
}

template <class T>
void run_long_lines(const FftLines<T>& l) {
  const std::shared_ptr<const TransformMatrix<T>> matrix =
      cached<TransformMatrix<T>>(l.steps->work);
  int64_t lines = 1;
  for (int d = 0; d < l.rank; ++d) lines *= l.sizes[d];
  const auto run = [&](int64_t first, int64_t last) {
    Buffer<T> x(l.numbers()), y(l.steps->work);
    for (int64_t line = first; line < last; ++line) {
      int64_t in = 0, out = 0, rest = line;
      for (int d = l.rank - 1; d >= 0; --d) {
        in += rest % l.sizes[d] * l.in.strides[d];
        out += rest % l.sizes[d] * l.out.strides[d];
        rest /= l.sizes[d];
      }
      run_long_line(l, *matrix, l.in.data + in, l.out.data + out, x, y);
    }
  };
  // In parallel over the lines where there are enough of them, else within each.
  if (lines >= 2 * num_threads())
    parallel_for(0, lines, 1, run);
  else
    run(0, lines);
}

// Whether lines of `work` numbers are better done one after the other, which rounds otherwise: in
// parts (run_parts) as in the whole.
template <class T>
bool is_long(const FftLines<T>& l) {
  const int64_t work = l.steps->work, width = width_of<T>();
  constexpr int64_t kShort = 128, kMiddle = 8192, kColumns = 16384;  // as measured
  if (work <= kShort || matrix_of(work, width).rows == 1) return false;
  int64_t lines = 1;
  for (int d = 0; d < l.rank; ++d) lines *= l.sizes[d];
  if (2 * lines < width) return true;
  // The buffers of lines in a vector leave the caches, but those side by side are read together.
  const bool columns =
      l.in.step > 2 && std::any_of(l.in.strides, l.in.strides + l.rank, are_neighbours);
  return work > (columns ? kColumns : kMiddle);
}

}  // namespace

bool has_small_factors(int64_t n) { return n == 1 || !small_factors(n).empty(); }

template <class T>
int64_t width_of() {
  static const auto f = ARETE_SELECT(::arete::cpu, fft_width);
  return f(sizeof(T));
}

template <class T>
void transform_lines(FftLines<T>& l, int64_t n) {
  FftSteps<T> steps{n, n, nullptr, 0, nullptr, nullptr};
  l.steps = &steps;
  std::shared_ptr<const Chirp<T>> chirp;
  if (!has_small_factors(n)) {
    chirp = cached<Chirp<T>>(n);
    steps.work = chirp->work;
    steps.chirp = chirp->chirp.data();
    steps.filter = chirp->filter.data();
  }
  std::shared_ptr<const Halves<T>> halves;
  if (l.before == FftEdge::packed || l.after == FftEdge::packed) {
    halves = cached<Halves<T>>(n);
    l.halves = halves->roots.data();
  }
  const bool out = l.after == FftEdge::mirrored, mirrored = out || l.before == FftEdge::mirrored,
             long_lines = is_long(l);
  // Transforms of complex numbers give and take whole spectra as they are.
  if (mirrored && l.whole && (steps.chirp || long_lines)) l.before = l.after = FftEdge::none;
  if (long_lines) return run_long_lines(l);
  if (mirrored && !steps.chirp) {
    const bool forward = !l.in.swapped;
    steps.real = out ? FftReal::to_half : FftReal::from_half;
    l.in.swapped = l.out.swapped = false;
    l.conjugate = out != forward;
  }
  const std::shared_ptr<const Passes<T>> passes = cached<Passes<T>>(steps.work);
  steps.passes = passes->passes.data();
  steps.pass_count = int64_t(passes->passes.size());
  run_lines(l);
}
template int64_t width_of<float>();
template int64_t width_of<double>();
template void transform_lines<float>(FftLines<float>&, int64_t);
template void transform_lines<double>(FftLines<double>&, int64_t);

namespace {

template <class T>
void transform_line(const T* in, T* out, int64_t n) {
  const int64_t one = 1, zero = 0;
  FftLines<T> l{nullptr,
                {const_cast<T*>(in), &zero, 2, 1, 2 * n, false, false},
                {out, &zero, 2, 1, 2 * n, false, false},
                &one,
                1};
  transform_lines(l, n);
}

}  // namespace
}  // namespace arete::cpu
