// Fourier transforms: the dimensions of arrays.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/fft_lines.h"
#include "arete/backend/cpu/kernels/select_table.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

// Note [FFT]
// Lengths whose prime factors are small are transformed by Stockham's method: one pass for each
// factor r splits every sequence of length n into r of length n / r, writing from one buffer to the
// other so that the results come out in order. Other lengths n go through Bluestein's identity jk =
// (j^2 + k^2 - (k - j)^2) / 2, which makes the transform a convolution with a chirp, done by
// transforms of a length >= 2n - 1 of small factors. The inverse is the forward transform with real
// and imaginary parts swapped before and after. 2 n real numbers are n complex ones, whose
// transform tells the first half of theirs (pack_half), and back; an odd number of them goes
// through passes of half spectra (run_real_pass). Where all of the spectrum of real numbers is
// wanted, half of the work is done and mirrored (of odd lengths where these passes do the lines);
// where the real part of a transform is wanted, the spectrum is folded first, as only its symmetric
// part counts: within each line where there is one dimension, by Mirror where there are several.
// Each line of the data takes one element of the vectors (fft_lines): neighbours in memory are
// loaded as they lie, lines without gaps by transposing squares. A long line of n = n1 n2 numbers
// is a matrix: transforms of its n2 columns, factors exp(-2 pi i j2 k1 / n), transforms of its n1
// rows whose results k2 go to k1 + n1 k2. Both are lines side by side, in parallel, and in the
// caches. What else is to be done with a long line is done by the same stages as for a vector of
// lines, one number at a time. Several dimensions are transformed one after the other, in place in
// the output where the shapes on the way fit there; of a large array all of them for a part that
// the caches hold (run_parts).
namespace arete::cpu {
namespace {

// ---- dimensions ----

// An array on its way: sizes without the dimension of parts, strides in real numbers.
template <class T>
struct Array {
  T* data;
  Shape sizes, strides;
  bool real;

  explicit Array(const prim::View& v, bool is_real)
      : data(reinterpret_cast<T*>(v.data)),
        sizes(v.sizes.first(v.sizes.size() - !is_real)),
        strides(v.strides.first(sizes.size())),
        real(is_real) {}
};

// Lines of both arrays along `dim`: all but that one of the sizes of `from`, in the order of their
// strides, neighbours merged where they are one dimension for both.
struct LineDims {
  Shape sizes, in, out;
};
template <class T>
LineDims lines_along(size_t dim, const Array<T>& from, const Array<T>& to) {
  std::vector<size_t> order;
  for (size_t d = 0; d < from.sizes.size(); ++d)
    if (d != dim && from.sizes[d] != 1) order.push_back(d);
  const auto stride = [&](size_t d) { return std::abs(from.strides[d]) + std::abs(to.strides[d]); };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return stride(a) > stride(b); });
  LineDims l;
  for (size_t d : order) {
    const int64_t n = from.sizes[d], in = from.strides[d], out = to.strides[d];
    if (!l.sizes.empty() && l.in.back() == n * in && l.out.back() == n * out) {
      l.sizes.back() *= n, l.in.back() = in, l.out.back() = out;
      continue;
    }
    l.sizes.push_back(n), l.in.push_back(in), l.out.push_back(out);
  }
  if (l.sizes.empty()) l.sizes.push_back(1), l.in.push_back(0), l.out.push_back(0);
  return l;
}

// Real numbers on one side, all of their spectrum on the other.
bool has_whole_spectrum(const prim::FftArgs& a) {
  return a.kind == prim::FftArgs::Kind::complex && a.real_in() != a.real_out();
}

// Of the whole spectrum of several dimensions of real numbers one half mirrors the other: which
// dimension is halved, as an index of a.dims: the one of whose points most are spared. None where
// not all of the spectrum is there, or no dimension has more than 2 points.
std::optional<size_t> halved_dim(const prim::FftArgs& a) {
  if (!has_whole_spectrum(a) || a.dims.size() < 2) return {};
  const prim::View& spectrum = a.real_in() ? a.out : a.in;
  std::optional<size_t> best;
  double least = 0;
  for (size_t i = a.dims.size(); i-- > 0;) {
    const int64_t n = a.points[i];
    if (spectrum.sizes[size_t(a.dims[i])] != n) return {};
    if (n <= 2) continue;
    // An odd length with a large factor is transformed as complex numbers along itself.
    const double cost = double(n / 2 + 1) / double(n) + (n % 2 && !has_small_factors(n) ? 1 : 0);
    if (!best || cost < least) best = i, least = cost;
  }
  return best;
}

// The symmetry of the spectrum x of real numbers over `dims`: x[k] = conj(x[-k]). Dimension `half`
// is the one that is halved.
template <class T>
class Mirror {
 public:
  Mirror(const Array<T>& x, IntList dims, size_t half)
      : x_(x), half_(half), mirrored_(x.sizes.size(), 0), order_(x.sizes.size()) {
    for (int64_t d : dims) mirrored_[size_t(d)] = 1;
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::ranges::stable_sort(
        order_, {}, [&](size_t d) { return std::pair(x.sizes[d] == 1, std::abs(x.strides[d])); });
  }

  // The second half from the first one.
  void fill() const {
    static const auto f = ARETE_SELECT(::arete::cpu, fft_mirror<T>);
    const int64_t n = x_.sizes[half_];
    visit(x_, n / 2 + 1, (n - 1) / 2,
          [](FftRows<T>, FftRows<T> to, FftRows<T> from, int64_t rows, int64_t count) {
            f(to, from, rows, count);
          });
  }
  // The first half of the symmetric part to y.
  void fold(const Array<T>& y) const {
    static const auto f = ARETE_SELECT(::arete::cpu, fft_fold<T>);
    visit(y, 0, x_.sizes[half_] / 2 + 1,
          [](FftRows<T> a, FftRows<T> to, FftRows<T> b, int64_t rows, int64_t count) {
            f(to, a, b, rows, count);
          });
  }

 private:
  // Calls f for rows of `count` numbers from `first` on along the halved dimension: rows of x,
  // those of y, those of x that mirror them, how many, how long. The two innermost dimensions of x
  // make rows; a number that mirrors itself along one of them is the first one, and comes by
  // itself.
  template <class F>
  void visit(const Array<T>& y, int64_t first, int64_t count, F f) const {
    Shape sizes = x_.sizes;
    sizes[half_] = count;
    const size_t inner = order_[0], outer = order_[1];
    const int64_t n = sizes[inner], rows = sizes[outer];
    const auto first_of = [&](size_t d) { return d == half_ ? first : 0; };
    const auto partner = [&](size_t d, int64_t i) {
      return mirrored_[d] && i ? x_.sizes[d] - i : i;
    };
    // How many numbers along d from i on have partners one step after the other.
    const auto run = [&](size_t d, int64_t i, int64_t left) {
      return mirrored_[d] && i == 0 ? std::min<int64_t>(1, left) : left;
    };
    const auto step = [&](size_t d) { return mirrored_[d] ? -x_.strides[d] : x_.strides[d]; };
    const int64_t lines = numel_of(sizes) / std::max<int64_t>(1, n);
    parallel_for(0, lines, grain_for(double(n)), [&](int64_t from, int64_t to) {
      for (int64_t line = from, many; line < to; line += many) {
        int64_t a = 0, b = 0, c = 0, rest = line;
        for (size_t k = 1; k < order_.size(); ++k) {
          const size_t d = order_[k];
          const int64_t i = first_of(d) + rest % sizes[d];
          a += i * x_.strides[d], b += i * y.strides[d], c += partner(d, i) * x_.strides[d];
          rest /= sizes[d];
        }
        const int64_t row = line % rows;
        many = run(outer, first_of(outer) + row, std::min(rows - row, to - line));
        for (int64_t at = 0, length; at < n; at += length) {
          const int64_t i = first_of(inner) + at;
          length = run(inner, i, n - at);
          f({x_.data + a + i * x_.strides[inner], x_.strides[outer], x_.strides[inner]},
            {y.data + b + i * y.strides[inner], y.strides[outer], y.strides[inner]},
            {x_.data + c + partner(inner, i) * x_.strides[inner], step(outer), step(inner)}, many,
            length);
        }
      }
    });
  }

  const Array<T>& x_;
  const size_t half_;
  Shape mirrored_;
  std::vector<size_t> order_;  // of the dimensions, from the innermost on
};

template <class T>
class Transform {
 public:
  /// `in_place`: the input, as large as what comes between, may be overwritten.
  explicit Transform(const prim::FftArgs& a, prim::Primitives& p, bool in_place = false)
      : a_(a),
        now_(a.in, a.real_in()),
        out_(a.out, a.real_out()),
        primitives_(p),
        in_place_(in_place) {}

  void run() {
    const size_t count = a_.dims.size();
    bool fits = a_.kind != prim::FftArgs::Kind::from_half && !out_.real;
    for (size_t i = 0; i < count; ++i) {
      const size_t d = size_t(a_.dims[i]);
      const bool half = i + 1 == count && a_.kind == prim::FftArgs::Kind::from_half;
      now_.sizes[d] = std::min(now_.sizes[d], half ? a_.points[i] / 2 + 1 : a_.points[i]);
      fits = fits && now_.sizes[d] <= out_.sizes[d];
    }
    // Dimensions in order of their last one first, but half spectra where the numbers are real.
    for (size_t i = 0; i < count; ++i) {
      const bool last = i + 1 == count;
      size_t which = count - 1 - i;
      if (a_.kind == prim::FftArgs::Kind::from_half) which = last ? count - 1 : count - 2 - i;
      const size_t d = size_t(a_.dims[which]);
      Array<T> to = out_;
      if (!last && !fits) to = between();
      to.sizes = now_.sizes;
      to.sizes[d] = out_.sizes[d];
      step(which, last, to);
      now_ = to;
    }
  }

 private:
  // The array for what comes between, with room for what it is now and what it becomes.
  Array<T> between() {
    if (scratch_ || in_place_) return now_;
    Shape sizes = now_.sizes;
    for (size_t i = 0; i < a_.dims.size(); ++i) {
      const size_t d = size_t(a_.dims[i]);
      const bool half = i + 1 == a_.dims.size() && a_.kind == prim::FftArgs::Kind::from_half;
      if (!half) sizes[d] = std::max(sizes[d], out_.sizes[d]);
    }
    sizes.push_back(2);
    scratch_ = std::make_unique<prim::ScratchView>(primitives_, a_.out.dtype, sizes);
    return Array<T>(scratch_->view(), false);
  }

  void step(size_t which, bool last, const Array<T>& to) {
    using Kind = prim::FftArgs::Kind;
    const size_t d = size_t(a_.dims[which]);
    const bool half = which + 1 == a_.dims.size() && a_.kind != Kind::complex;
    const int64_t points = a_.points[which];
    // Of several dimensions the last step alone would know all of them.
    const bool whole = has_whole_spectrum(a_) && a_.dims.size() == 1;
    const bool packed = (half || whole) && points % 2 == 0;
    const LineDims dims = lines_along(d, now_, to);
    const auto side = [&](const Array<T>& x, const Shape& strides) {
      const int64_t stride = x.strides[d], rows = x.sizes[d];
      FftSide<T> s{x.data, strides.data(), stride, 1, 2 * rows, false, false};
      if (x.real) {
        s.rows = rows;
        s.single = !packed;
        if (packed) s.step = 2 * stride, s.part = stride;
      }
      return s;
    };
    FftLines<T> l{nullptr, side(now_, dims.in), side(to, dims.out), dims.sizes.data(),
                  int(dims.sizes.size())};
    l.in.swapped = l.out.swapped = !packed && !a_.forward;
    l.in.rows = std::min(l.in.rows, l.in.single || packed ? points : 2 * points);
    if (half || whole) {
      const bool out = a_.kind == Kind::to_half || a_.real_in();
      (out ? l.after : l.before) = packed ? FftEdge::packed : FftEdge::mirrored;
      l.conjugate = packed && out != a_.forward;
      l.whole = whole;
      if (packed) {
        l.out.swapped = !out;
        if (!out) l.in.rows = std::min(2 * now_.sizes[d], whole ? 2 * points : points + 2);
      }
      if (a_.weighted) l.inner = out ? T(2) : T(0.5);
    }
    if (last) l.scale = T(a_.scale);
    const int64_t made = half && a_.kind == Kind::to_half ? points / 2 + 1 : points;
    if (made < to.sizes[d]) {
      fill_zeros(to, d, made);
      l.out.rows = to.real ? made : 2 * made;
    }
    if (a_.window) {
      const T* const w = reinterpret_cast<const T*>(a_.window.data);
      (a_.window_after ? l.window_out : l.window_in) = w;
      l.window_of_pairs = !(a_.window_after ? to.real : now_.real);
    }
    transform_lines(l, packed ? points / 2 : points);
  }

  // Rows of `to` from `first` on, along d.
  void fill_zeros(const Array<T>& to, size_t d, int64_t first) {
    Shape sizes = to.sizes, strides = to.strides;
    sizes[d] -= first;
    if (!to.real) sizes.push_back(2), strides.push_back(1);
    std::byte* const data = reinterpret_cast<std::byte*>(to.data + first * to.strides[d]);
    primitives_.fill({{data, a_.out.dtype, sizes, strides}, expr::Literal{.f = 0}});
  }

  const prim::FftArgs& a_;
  Array<T> now_, out_;
  prim::Primitives& primitives_;
  const bool in_place_;
  std::unique_ptr<prim::ScratchView> scratch_;
};

// A transform with a whole spectrum (halved_dim) by that with half of it, which is halved along
// a.dims[which].
template <class T>
void run_halved(const prim::FftArgs& a, size_t which, CpuBackend& on) {
  Shape dims(a.dims), points(a.points);
  std::swap(dims[which], dims.back());
  std::swap(points[which], points.back());
  const size_t d = size_t(dims.back());
  prim::FftArgs half = a;
  half.dims = dims, half.points = points;
  const Array<T> spectrum(a.real_in() ? a.out : a.in, false);
  const Mirror<T> mirror(spectrum, a.dims, d);
  Shape sizes((a.real_in() ? a.out : a.in).sizes);
  sizes[d] = points.back() / 2 + 1;
  if (a.real_in()) {
    half.kind = prim::FftArgs::Kind::to_half;
    half.out.sizes = sizes;
    on.fft(half);
    mirror.fill();
  } else {
    const prim::ScratchView folded(on, a.in.dtype, sizes);
    mirror.fold(Array<T>(folded, false));
    half.kind = prim::FftArgs::Kind::from_half;
    half.in = folded;
    bool has_room = true;
    for (size_t i = 0; i + 1 < dims.size(); ++i)
      has_room = has_room && a.out.sizes[size_t(dims[i])] <= points[i];
    Transform<T>(half, on, has_room).run();
  }
}

// How many lines each dimension has at least, on the way too, with `size` numbers along `along`.
int64_t fewest_lines(const prim::FftArgs& a, size_t along, int64_t size) {
  const std::optional<size_t> halved =
      a.kind == prim::FftArgs::Kind::complex ? halved_dim(a) : std::optional(a.dims.size() - 1);
  int64_t numbers = size, longest = 1;
  for (size_t d = 0, rank = a.out.sizes.size() - !a.real_out(); d < rank; ++d) {
    if (d == along) continue;
    int64_t least = std::min(a.in.sizes[d], a.out.sizes[d]);
    if (const auto it = std::ranges::find(a.dims, int64_t(d)); it != a.dims.end()) {
      const auto i = size_t(it - a.dims.begin());
      least = std::min(least, halved == i ? a.points[i] / 2 + 1 : a.points[i]);
      longest = std::max(longest, least);
    }
    numbers *= least;
  }
  return numbers / longest;
}

// Transforms of several dimensions in parts along another one (not one of neighbours in memory,
// where parts would be short pieces of rows), or all dimensions but the first before that one,
// where that spares passes over memory; false: neither does.
bool run_parts(const prim::FftArgs& a, CpuBackend& on) {
  constexpr int64_t kInCaches = 512 << 10;  // bytes
  const int64_t bytes = std::max(a.in.numel(), a.out.numel()) * int64_t(size_of(a.out.dtype));
  if (a.dims.size() < 2 || bytes <= 2 * kInCaches) return false;
  size_t along = 0;
  int64_t n = 1;
  for (size_t d = 0, rank = a.out.sizes.size() - !a.real_out(); d < rank; ++d)
    if (std::ranges::find(a.dims, int64_t(d)) == a.dims.end() && a.out.sizes[d] > n &&
        !are_neighbours(a.in.strides[d]) && !are_neighbours(a.out.strides[d]))
      along = d, n = a.out.sizes[d];
  if (n == 1) {
    const size_t d = size_t(a.dims[0]);
    if (halved_dim(a) || a.kind == prim::FftArgs::Kind::from_half || a.real_out() ||
        a.in.sizes[d] != a.points[0] || a.out.sizes[d] != a.points[0])
      return false;
    prim::FftArgs rest = a;
    rest.dims = a.dims.subspan(1), rest.points = a.points.subspan(1), rest.scale = 1;
    on.fft(rest);
    on.fft({.kind = prim::FftArgs::Kind::complex,
            .in = a.out,
            .out = a.out,
            .dims = a.dims.first(1),
            .points = a.points.first(1),
            .forward = a.forward,
            .scale = a.scale,
            .context = a.context});
    return true;
  }
  const int64_t step = std::max<int64_t>(1, kInCaches * n / bytes), parts = (n + step - 1) / step;
  // A single part would be cut in parts again.
  if (step * bytes / n > 4 * kInCaches || parts < std::max(2, num_threads())) return false;
  // Parts with so few lines that those are long ones (is_long) would round otherwise than the
  // whole, which is not cut for more threads.
  const int64_t width = a.out.dtype == kFloat64 ? width_of<double>() : width_of<float>();
  if (2 * fewest_lines(a, along, n / parts) < width) return false;
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      prim::FftArgs part = a;
      Shape in(a.in.sizes), out(a.out.sizes);
      const int64_t begin = i * n / parts;
      in[along] = out[along] = (i + 1) * n / parts - begin;
      part.in.sizes = in, part.out.sizes = out;
      for (prim::View* v : {&part.in, &part.out})
        v->data += begin * v->strides[along] * int64_t(size_of(v->dtype));
      on.fft(part);
    }
  });
  return true;
}

}  // namespace

void CpuBackend::fft(const prim::FftArgs& a) {
  ARETE_ASSERT(a.in.dtype == a.out.dtype && (!a.window || a.dims.size() == 1));
  if (a.out.numel() == 0 || run_parts(a, *this)) return;
  if (const std::optional<size_t> which = halved_dim(a))
    return a.in.dtype == kFloat64 ? run_halved<double>(a, *which, *this)
                                  : run_halved<float>(a, *which, *this);
  if (a.in.dtype == kFloat64)
    Transform<double>(a, *this).run();
  else
    Transform<float>(a, *this).run();
}

}  // namespace arete::cpu
