// Fourier transforms.
#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "arete/backend/cuda/codegen/fft.h"
#include "arete/backend/cuda/codegen/index.h"
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/kernel_memo.h"
#include "arete/backend/cuda/lib/cufft.h"
#include "arete/backend/cuda/lib/library_setup.h"
#include "arete/backend/cuda/scale_program.h"
#include "arete/backend/cuda/scratch_memory.h"

// Note [Transforms by cuFFT]
// cuFFT transforms up to three dimensions at once, reads and writes strided numbers, and takes many
// transforms at one distance from each other. What it does not do costs passes over memory, of
// which each does all that is to be done at its place (device/fft.cuh): windows, padding, the scale
// and weights, conjugates, and a change of the order of dimensions.
// - Where complex numbers become real ones, cuFFT destroys what it reads, and does not ignore
//   imaginary parts that a real signal cannot have. So these read a copy, without such parts.
// - A side of real numbers is half the work: real numbers are transformed to the first half of a
//   spectrum, from which a pass makes the other half. The real part of what complex numbers are
//   transformed to comes from the half spectrum of it, which a pass makes of both halves.
// - Lines that are far apart are read well, but written badly where a length takes several kernels.
//   So operators give results in which the transformed dimensions are the innermost ones.
// Batches that are several distances are several runs where those are few, else a copy in between.
namespace arete::cuda {
namespace {

using prim::View;
using Kind = prim::FftArgs::Kind;

// Mirrors device/fft.cuh.
struct FftPassArgs {
  const std::byte* in;
  std::byte* out;
  const std::byte* window;
  double factor, factor_twice;
  std::array<int64_t, 16> in_stride, out_stride, size, in_size, points;
  int64_t last_points, count;
  std::array<indexing::Divisor, 16> divisor;
  uint32_t rank;
  int32_t last;
  uint32_t flags;
};
constexpr uint32_t kConjugate = 1, kFold = 2, kEdges = 4, kSpread = 8, kPairsIn = 16,
                   kPairsOut = 32, kKept = 64;
constexpr int64_t kPassThreads = 256;

// An array on its way. Sizes and strides are those of its numbers, strides in real numbers.
struct FftArray {
  std::byte* data = nullptr;
  DType dtype = kFloat32;
  bool real = false;
  Shape sizes, strides;

  FftArray() = default;
  FftArray(const View& v, bool is_real)
      : data(v.data),
        dtype(v.dtype),
        real(is_real),
        sizes(v.sizes.first(v.sizes.size() - !is_real)),
        strides(v.strides.first(sizes.size())) {}
  int64_t parts() const { return real ? 1 : 2; }
  size_t bytes() const { return size_t(numel_of(sizes)) * size_t(parts()) * size_of(dtype); }
  // The first `count` numbers of a dimension.
  FftArray first(size_t dim, int64_t count) const {
    FftArray a = *this;
    a.sizes[dim] = count;
    return a;
  }
  // Whether complex numbers can be read as such.
  bool is_aligned() const {
    const auto step = [](uint64_t bits, int64_t s) { return bits | uint64_t(s); };
    const uint64_t strides_bits =
        std::accumulate(strides.begin(), strides.end(), uint64_t(0), step);
    return reinterpret_cast<uintptr_t>(data) % (2 * size_of(dtype)) == 0 && strides_bits % 2 == 0;
  }
  // All parts as real numbers.
  FftArray flat() const {
    FftArray a = *this;
    if (real) return a;
    a.sizes.push_back(2);
    a.strides.push_back(1);
    a.real = true;
    return a;
  }
  View view() const {
    ARETE_ASSERT(real);
    return View(data, dtype, sizes, strides);
  }
};

// What a pass does to numbers besides moving them.
struct FftPass {
  double factor = 1, twice = 1;  // `twice`: of numbers of a half spectrum that stand for two
  uint32_t flags = 0;
  bool window = false;
};

class CudaTransform {
 public:
  CudaTransform(CudaBackend& backend, const prim::FftArgs& a, CUstream stream)
      : backend_(backend),
        a_(a),
        stream_(stream),
        dims_(a.dims.begin(), a.dims.end()),
        last_(size_t(a.dims.back())),
        full_(a.kind == Kind::complex),
        to_half_(a.real_in()),
        from_half_(a.real_out()),
        factor_(a.scale) {}

  void run() {
    FftArray in(a_.in, to_half_), out(a_.out, from_half_);
    // The sizes that the input is cut or filled up to, those between which the transforms are, and
    // those of all that comes of them.
    Shape given = in.sizes, from = in.sizes, to = out.sizes, made = out.sizes;
    for (size_t i = 0; i < dims_.size(); ++i) {
      const size_t d = dims_[i];
      const int64_t n = a_.points[i], half = d == last_ ? n / 2 + 1 : n;
      given[d] = from_half_ && !full_ ? half : n;
      from[d] = from_half_ ? half : n;
      to[d] = to_half_ ? half : n;
      made[d] = to_half_ && !full_ ? half : n;
      if (in.sizes[d] > given[d]) in = in.first(d, given[d]);
    }
    const std::vector<size_t> inner = groups().back();
    const std::vector<size_t> order = order_of(out, inner);
    const bool window = a_.window && !a_.window_after,
               aligned = reinterpret_cast<uintptr_t>(in.data) % (2 * size_of(in.dtype)) == 0;
    if (window || (!from_half_ && (in.sizes != given || !aligned))) {
      const FftArray copy = scratch(given, to_half_, in.dtype, order);
      pass(in, copy, {.factor = take_factor(), .window = window});
      in = copy;
    }
    if (from_half_) {
      const FftArray copy = scratch(from, false, in.dtype, order);
      pass(in, copy,
           {take_factor(), a_.weighted ? 0.5 : 1,
            (full_ ? kFold : kEdges) | (a_.forward ? kConjugate : 0u)});
      in = copy;
    }
    const bool fits = made == out.sizes, after = a_.window && a_.window_after;
    const FftArray all = fits ? out : scratch(made, from_half_, out.dtype, order);
    const FftArray result = all.first(last_, to[last_]);
    transform(in, result);
    FftPass rest{take_factor(), a_.weighted && to_half_ ? 2.0 : 1,
                 to_half_ && !a_.forward ? kConjugate : 0u};
    if (full_ && to_half_ && a_.points.back() > 2) {  // of two numbers the half is all
      rest.flags |= kSpread;
      pass(result, result, rest);
      rest = {};
    }
    rest.window = after;
    pass(all, out, rest);
  }

 private:
  double take_factor() { return std::exchange(factor_, 1.0); }

  // The order of an array's dimensions, the outermost first: `inner` are the last ones, and of
  // these a half spectrum's dimension.
  std::vector<size_t> order_of(const FftArray& a, const std::vector<size_t>& inner) const {
    std::vector<size_t> order(a.sizes.size());
    std::iota(order.begin(), order.end(), size_t(0));
    const auto place = [&](size_t d) {
      const bool is_inner = std::find(inner.begin(), inner.end(), d) != inner.end();
      return !is_inner ? 0 : d == last_ && (to_half_ || from_half_) ? 2 : 1;
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t d, size_t e) {
      return place(d) != place(e) ? place(d) < place(e) : a.strides[d] > a.strides[e];
    });
    return order;
  }
  static FftArray laid_out(const Shape& sizes, bool real, DType dtype,
                           const std::vector<size_t>& order) {
    FftArray a;
    a.dtype = dtype;
    a.real = real;
    a.sizes = sizes;
    a.strides = Shape(sizes.size(), 0);
    int64_t stride = a.parts();
    for (size_t k = order.size(); k-- > 0;) {
      a.strides[order[k]] = stride;
      stride *= std::max<int64_t>(sizes[order[k]], 1);
    }
    return a;
  }
  FftArray with_memory(FftArray a) {
    a.data = memory_.emplace_back(std::make_unique<Scratch>(backend_, a.bytes()))->data();
    return a;
  }
  FftArray scratch(const Shape& sizes, bool real, DType dtype, const std::vector<size_t>& order) {
    return with_memory(laid_out(sizes, real, dtype, order));
  }

  // The numbers of `out` from those of `in` at the same place, which are zeros beyond its sizes.
  void pass(FftArray in, FftArray out, const FftPass& p) {
    if (numel_of(out.sizes) == 0) return;
    const bool mirrors = p.flags & (kFold | kEdges | kSpread);
    if (!mirrors) {
      FftArray there = out;
      for (size_t d = 0; d < there.sizes.size(); ++d)
        in.sizes[d] = there.sizes[d] = std::min(in.sizes[d], out.sizes[d]);
      // Where most of it are zeros they are faster by themselves.
      constexpr int64_t kMostAreZeros = 8;
      if (numel_of(there.sizes) <= numel_of(out.sizes) / kMostAreZeros) {
        backend_.fill({.out = out.flat().view(), .value = {.f = 0}});
        if (numel_of(there.sizes) == 0) return;
        out = there;
      }
    }
    const bool plain = !p.flags && !p.window && p.twice == 1 && in.sizes == out.sizes;
    if (plain && p.factor == 1) {
      const FftArray from = in.flat(), to = out.flat();
      if (in.data != out.data) backend_.copy({to.view(), from.view()});
      return;
    }
    FftPassArgs a{};
    a.in = in.data;
    a.out = out.data;
    if (p.window) a.window = a_.window.data;
    a.factor = p.factor;
    a.factor_twice = p.factor * p.twice;
    a.flags = p.flags | (in.is_aligned() ? kPairsIn : 0) | (out.is_aligned() ? kPairsOut : 0);
    if (in.data == out.data && p.flags == kSpread && !p.window && p.factor == 1 && p.twice == 1)
      a.flags |= kKept;
    a.last = -1;
    a.last_points = a_.points.back();
    const bool uses_last = p.window || p.twice != 1 || p.flags & (kEdges | kSpread);
    std::vector<size_t> order = order_of(out, {});
    for (size_t k = order.size(); k-- > 0;) {
      const size_t d = order[k];
      if (out.sizes[d] == 1 && in.sizes[d] >= 1) continue;
      const auto which = std::find(dims_.begin(), dims_.end(), d);
      const bool is_last = uses_last && d == last_, mirrored = mirrors && which != dims_.end();
      // One with the dimension before, if nothing is to be known of either.
      if (a.rank > 0 && !is_last && !mirrored) {
        const size_t e = a.rank - 1;
        if (a.last != int32_t(e) && a.points[e] == 0 && a.in_size[e] == a.size[e] &&
            in.strides[d] == a.in_stride[e] * a.size[e] &&
            out.strides[d] == a.out_stride[e] * a.size[e]) {
          a.in_size[e] = in.sizes[d] * a.size[e];
          a.size[e] *= out.sizes[d];
          continue;
        }
      }
      if (is_last) a.last = int32_t(a.rank);
      a.size[a.rank] = out.sizes[d];
      a.in_size[a.rank] = in.sizes[d];
      a.in_stride[a.rank] = in.strides[d];
      a.out_stride[a.rank] = out.strides[d];
      if (mirrored) a.points[a.rank] = a_.points[size_t(which - dims_.begin())];
      ++a.rank;
    }
    // Through tiles if the innermost dimension of `in` is another one and both are long.
    constexpr int64_t kShort = 16;
    uint32_t column = 0;
    for (uint32_t d = 1; d < a.rank; ++d)
      if (a.size[d] > 1 && std::abs(a.in_stride[d]) < std::abs(a.in_stride[column])) column = d;
    const bool tiles = column > 0 && a.size[0] >= kShort && a.size[column] >= kShort;
    if (plain && !tiles) {
      const FftArray from = in.flat(), to = out.flat();
      const View source = from.view(), target = to.view();
      const expr::Literal number{.f = p.factor};
      backend_.pointwise({&scale_program(in.dtype), {&source, 1}, {&target, 1}, {&number, 1}});
      return;
    }
    if (tiles && column > 1) {
      for (auto* list : {&a.size, &a.in_size, &a.in_stride, &a.out_stride, &a.points})
        std::swap((*list)[1], (*list)[column]);
      if (a.last == 1 || a.last == int32_t(column)) a.last = a.last == 1 ? int32_t(column) : 1;
    }
    // Positions of 32 bits where they suffice.
    a.count = numel_of(out.sizes);
    int64_t most[] = {a.count, a.last_points, 0, 0};
    for (uint32_t d = 0; d < a.rank; ++d) {
      const int64_t end = std::max({a.size[d], a.in_size[d], a.points[d]});
      most[2] += end * std::abs(a.in_stride[d]);
      most[3] += end * std::abs(a.out_stride[d]);
    }
    constexpr int64_t kTile = 32, kRowBytes = kPassThreads * 32;
    const bool wide = *std::max_element(std::begin(most), std::end(most)) > INT32_MAX - kRowBytes;
    const int64_t per_block = kRowBytes / (in.parts() * int64_t(size_of(in.dtype)));
    const auto tiles_along = [&](uint32_t d) {
      return d < 2 ? (a.size[d] + kTile - 1) / kTile : a.size[d];
    };
    int64_t blocks = tiles ? 1 : (a.count + per_block - 1) / per_block;
    for (uint32_t d = 0; tiles && d < a.rank; ++d) blocks *= tiles_along(d);
    ARETE_CHECK(blocks <= INT32_MAX, NotImplementedError("fft", "a transform of so many numbers"));
    for (uint32_t d = 0; (tiles || !wide) && d < a.rank; ++d)
      a.divisor[d] = indexing::make_divisor(tiles ? tiles_along(d) : a.size[d]);
    static KernelTable<16> kernels;
    const bool complex = !in.real;
    const auto number =
        size_t((in.dtype == kFloat64 ? 8 : 0) + (complex ? 4 : 0) + (tiles ? 2 : 0) + wide);
    const Kernel& kernel = kernels.get(
        backend_, number, [&] { return fft_pass_source(in.dtype, complex, tiles, wide); });
    backend_.launch(kernel, Dim3{unsigned(blocks)}, Dim3{unsigned(kPassThreads)}, 0, stream_, a);
  }

  // The dimensions that one plan transforms, at most three; two where there is an odd number of
  // real ones: in three cuFFT transforms these as complex numbers, in four times a half spectrum's
  // memory.
  std::vector<std::vector<size_t>> groups() const {
    const size_t most = (to_half_ || from_half_) && a_.points.back() % 2 ? 2 : 3;
    std::vector<std::vector<size_t>> groups;
    for (size_t end = dims_.size(); end > 0;) {
      const size_t begin = end - std::min(most, end);
      groups.insert(groups.begin(),
                    std::vector<size_t>(&dims_[begin], &dims_[begin] + (end - begin)));
      end = begin;
    }
    return groups;
  }

  // Half spectra are made first, with the last dimensions, and used last.
  void transform(FftArray now, const FftArray& to) {
    std::vector<std::vector<size_t>> all = groups();
    if (!from_half_) std::reverse(all.begin(), all.end());
    for (size_t k = 0; k < all.size(); ++k) {
      const bool real = to_half_ ? k == 0 : from_half_ && k + 1 == all.size();
      const FftArray target = from_half_ && !real ? now : to;
      transform_group(all[k], real, to_half_ || (!from_half_ && a_.forward), now, target);
      now = target;
    }
  }

  // The strides of the dimensions and distances of the others, as cuFFT wants them.
  static bool layout_of(const FftArray& a, const std::vector<size_t>& dims, FftLayout& l) {
    const int64_t parts = a.parts();
    l = {};
    for (size_t i = dims.size(); i-- > 0;) {
      const int64_t stride = a.strides[dims[i]];
      if (stride <= 0 || stride % parts) return false;
      if (i + 1 == dims.size()) {
        l.stride = stride / parts;
        l.embed[0] = a.sizes[dims[0]];
        continue;
      }
      const int64_t next = a.strides[dims[i + 1]];
      if (stride % next || stride / next < a.sizes[dims[i + 1]]) return false;
      l.embed[i + 1] = stride / next;
    }
    return true;
  }

  // A plan's geometry and the runs of it.
  struct Runs {
    struct Batch {
      int64_t size, in, out;
    };
    FftGeometry geometry;
    std::vector<Batch> batches;  // the plan's own last
    int64_t count = 1;
  };

  // False if no plan does it, or if it would take many runs.
  bool find_runs(std::vector<size_t> dims, bool real, const FftArray& in, const FftArray& out,
                 Runs& r) const {
    // The order of strides, but that a half spectrum's dimension is the innermost one. (One of size
    // 1 may have the stride of another one, and is inside of it.)
    std::stable_sort(dims.begin(), dims.end() - (real ? 1 : 0), [&](size_t a, size_t b) {
      return std::pair(in.strides[a], in.sizes[a]) > std::pair(in.strides[b], in.sizes[b]);
    });
    r = {};
    FftGeometry& g = r.geometry;
    g.rank = int32_t(dims.size());
    for (size_t i = 0; i < dims.size(); ++i)
      g.n[i] = std::max(in.sizes[dims[i]], out.sizes[dims[i]]);
    if (real) g.n[dims.size() - 1] = a_.points.back();
    const bool doubles = in.dtype == kFloat64;
    g.type = !real      ? (doubles ? CUFFT_Z2Z : CUFFT_C2C)
             : to_half_ ? (doubles ? CUFFT_D2Z : CUFFT_R2C)
                        : (doubles ? CUFFT_Z2D : CUFFT_C2R);
    // The other dimensions, merged where they are one for both sides, the largest one last.
    std::vector<size_t> others;
    for (size_t d = 0; d < in.sizes.size(); ++d)
      if (in.sizes[d] != 1 && std::find(dims.begin(), dims.end(), d) == dims.end())
        others.push_back(d);
    std::stable_sort(others.begin(), others.end(),
                     [&](size_t a, size_t b) { return in.strides[a] > in.strides[b]; });
    std::vector<Runs::Batch>& batches = r.batches;
    for (size_t d : others) {
      const Runs::Batch b{in.sizes[d], in.strides[d], out.strides[d]};
      if (!batches.empty() && batches.back().in == b.size * b.in &&
          batches.back().out == b.size * b.out)
        batches.back() = {batches.back().size * b.size, b.in, b.out};
      else
        batches.push_back(b);
    }
    std::stable_sort(batches.begin(), batches.end(),
                     [](const auto& a, const auto& b) { return a.size < b.size; });
    for (size_t i = 0; i + 1 < batches.size(); ++i) r.count *= batches[i].size;
    constexpr int64_t kMostRuns = 8;
    if (r.count > kMostRuns || !layout_of(in, dims, g.in) || !layout_of(out, dims, g.out))
      return false;
    g.in.distance = g.out.distance = 2 * std::max(numel_of(in.sizes), numel_of(out.sizes));
    if (!batches.empty()) {
      const Runs::Batch& b = batches.back();
      if (b.in <= 0 || b.out <= 0 || b.in % in.parts() || b.out % out.parts()) return false;
      g.batch = b.size;
      g.in.distance = b.in / in.parts();
      g.out.distance = b.out / out.parts();
      // Real numbers of a run must start where a complex one could.
      for (size_t i = 0; i + 1 < batches.size(); ++i)
        if (batches[i].in % 2 || batches[i].out % 2) return false;
    }
    // An even number of real ones side by side is read in pairs, which want to be aligned, and
    // written in pairs.
    if (real && a_.points.back() % 2 == 0) {
      const FftLayout& reals = to_half_ ? g.in : g.out;
      const bool apart = to_half_ && dims.size() == 1 && reals.stride > 1;
      if (!apart && (reals.distance % 2 || (dims.size() > 1 && reals.embed[dims.size() - 1] % 2)))
        return false;
    }
    return true;
  }

  // Some lengths take as much work memory as all numbers have, real ones twice as much. Then equal
  // parts of a batch take turns in it, unless neighbours in memory belong to several of its lines,
  // which parts would read in short pieces. Whether there is a change.
  bool split(Runs& r, bool real, size_t work_bytes) const {
    constexpr size_t kMostWork = 32 << 20;
    constexpr int64_t kMostParts = 16;
    if (work_bytes <= kMostWork || r.batches.empty()) return false;
    const Runs::Batch all = r.batches.back();
    if (r.geometry.in.distance < r.geometry.in.stride ||
        r.geometry.out.distance < r.geometry.out.stride)
      return false;
    const auto least = int64_t((work_bytes + kMostWork - 1) / kMostWork);
    for (int64_t parts = least; parts <= kMostParts; ++parts) {
      const Runs::Batch part{all.size / parts, all.in, all.out};
      const Runs::Batch of_parts{parts, part.size * all.in, part.size * all.out};
      if (all.size % parts || (real && (of_parts.in % 2 || of_parts.out % 2))) continue;
      r.batches.back() = of_parts;
      r.batches.push_back(part);
      r.geometry.batch = part.size;
      r.count *= parts;
      return true;
    }
    return false;
  }

  std::shared_ptr<FftPlan> find_plan(const FftGeometry& g) const {
    try {
      return find_fft_plan(backend_.context(), g);
    } catch (const OutOfMemoryError&) {
      backend_.empty_cache();  // a plan's tables are not memory of our allocator
      return find_fft_plan(backend_.context(), g);
    }
  }

  void transform_group(const std::vector<size_t>& dims, bool real, bool forward, FftArray in,
                       const FftArray& out) {
    // What lies as no plan takes it is copied, the input if that is enough.
    FftArray to = out;
    Runs runs;
    if (!find_runs(dims, real, in, out, runs)) {
      const auto copy_in = [&](const std::vector<size_t>& order) {
        const FftArray copy = scratch(in.sizes, in.real, in.dtype, order);
        pass(in, copy, {.factor = take_factor()});
        in = copy;
      };
      const std::vector<size_t> order = order_of(out, dims), order_in = order_of(in, dims);
      const FftArray copied = laid_out(in.sizes, in.real, in.dtype, order),
                     made = laid_out(out.sizes, out.real, out.dtype, order_in);
      if (find_runs(dims, real, copied, out, runs)) {
        copy_in(order);
      } else {
        if (!find_runs(dims, real, in, made, runs)) copy_in(order_in);
        to = with_memory(made);
        const bool possible = find_runs(dims, real, in, to, runs);
        ARETE_ASSERT(possible);
      }
    }
    std::shared_ptr<FftPlan> plan = find_plan(runs.geometry);
    if (split(runs, real, plan->work_bytes())) plan = find_plan(runs.geometry);
    {
      const std::lock_guard lock(plan->mutex);
      const Scratch work(backend_, plan->work_bytes());
      for (int64_t run = 0; run < runs.count; ++run) {
        int64_t from = 0, target = 0, rest = run;
        for (size_t i = 0; i + 1 < runs.batches.size(); ++i) {
          from += rest % runs.batches[i].size * runs.batches[i].in;
          target += rest % runs.batches[i].size * runs.batches[i].out;
          rest /= runs.batches[i].size;
        }
        const auto size = int64_t(size_of(in.dtype));
        plan->run(in.data + from * size, to.data + target * size, forward, work.data(), stream_);
      }
      if (!plan->is_kept) plan->is_kept = keep_if_captured(plan, stream_);
    }
    if (to.data != out.data) pass(to, out, {.factor = take_factor()});
  }

  CudaBackend& backend_;
  const prim::FftArgs& a_;
  const CUstream stream_;
  std::vector<size_t> dims_;
  const size_t last_;
  // Whether all numbers of complex sides are wanted, and which side is real.
  const bool full_, to_half_, from_half_;
  double factor_;  // which the next pass takes
  std::vector<std::unique_ptr<Scratch>> memory_;
};

}  // namespace

void CudaBackend::fft(const prim::FftArgs& a) {
  if (a.out.numel() == 0) return;
  if (!has_cufft()) return prim::Backend::fft(a);
  CudaTransform(*this, a, enter(a)).run();
}

}  // namespace arete::cuda
