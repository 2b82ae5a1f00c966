// Fourier transforms.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/lib/cufft.h"
#include "arete/backend/cuda/scale_program.h"
#include "arete/backend/cuda/scratch_memory.h"
#include "arete/expr/program_cache.h"

// Note [Transforms by cuFFT]
// cuFFT transforms up to three dimensions at once, reads and writes strided numbers, and takes many
// transforms at one distance from each other. What it does not do costs passes of ours, which are
// joined: windows, padding, real numbers that become complex, and, where complex numbers become
// real, which may destroy what they come from, also the scale and the weights, in one copy of the
// input; the scale and weights of other transforms in place of the output; what is cut off or
// filled up, or loses its imaginary parts, in one copy to the output. Batches that are several
// distances are several runs where those are few, else a copy in between.
namespace arete::cuda {
namespace {

using prim::View;
using Kind = prim::FftArgs::Kind;

const expr::Program& product_program(DType dtype) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(pack_key({int(dtype)}), {dtype, dtype}, {}, {dtype},
                   [](std::span<const expr::Value> v) { return std::vector{v[0] * v[1]}; });
}

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
  // From number `first` of a dimension on every step-th, `count` of them.
  FftArray part(size_t dim, int64_t first, int64_t count, int64_t step = 1) const {
    FftArray a = *this;
    a.data += first * strides[dim] * int64_t(size_of(dtype));
    a.sizes[dim] = count;
    a.strides[dim] *= step;
    return a;
  }
  // Real or imaginary parts as real numbers.
  FftArray reals(int which) const {
    FftArray a = *this;
    a.data += which * int64_t(size_of(dtype));
    a.real = true;
    return a;
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

class CudaTransform {
 public:
  CudaTransform(CudaBackend& backend, const prim::FftArgs& a, CUstream stream)
      : backend_(backend),
        a_(a),
        stream_(stream),
        last_(size_t(a.dims.back())),
        half_in_(a.kind == Kind::from_half),
        half_out_(a.kind == Kind::to_half) {}

  void run() {
    FftArray in(a_.in, a_.real_in()), out(a_.out, a_.real_out());
    // The sizes between which the transforms are.
    Shape from = in.sizes, to = out.sizes;
    for (size_t i = 0; i < a_.dims.size(); ++i) {
      const auto d = size_t(a_.dims[i]);
      const int64_t half = a_.points[i] / 2 + 1;
      from[d] = half_in_ && d == last_ ? half : a_.points[i];
      to[d] = half_out_ && d == last_ ? half : a_.points[i];
      if (in.sizes[d] > from[d]) in = in.part(d, 0, from[d]);
    }
    FftArray now = prepared(in, from);
    const bool drops = !half_in_ && out.real, fits = to == out.sizes && !drops;
    FftArray result = fits ? out : scratch(to, out.real && !drops, out.dtype);
    transform(now, result);
    if (!half_in_) scale(result, result, a_.scale, a_.weighted ? 2 : 1, half_out_ && !a_.forward);
    if (!fits) {
      FftArray target = out;
      bool fills = false;
      for (int64_t dim : a_.dims) {
        const auto d = size_t(dim);
        fills |= target.sizes[d] > to[d];
        const int64_t n = std::min(target.sizes[d], to[d]);
        target = target.part(d, 0, n), result = result.part(d, 0, n);
      }
      const FftArray all = out.flat(), target_reals = target.flat(),
                     result_reals = drops ? result.reals(0) : result.flat();
      if (fills) backend_.fill({all.view(), {.f = 0}});
      backend_.copy({target_reals.view(), result_reals.view()});
    }
    if (a_.window && a_.window_after) multiply_by_window(out, out);
  }

 private:
  FftArray scratch(const Shape& sizes, bool real, DType dtype) {
    FftArray a;
    a.dtype = dtype;
    a.real = real;
    a.sizes = sizes;
    a.strides = Shape(sizes.size(), 0);
    int64_t stride = a.parts();
    for (size_t d = sizes.size(); d-- > 0;) {
      a.strides[d] = stride;
      stride *= std::max<int64_t>(sizes[d], 1);
    }
    a.data = memory_.emplace_back(std::make_unique<Scratch>(backend_, a.bytes()))->data();
    return a;
  }

  // The input with the sizes `from`, its window, and as the transforms take it.
  FftArray prepared(const FftArray& in, const Shape& from) {
    const bool window = a_.window && !a_.window_after, pads = in.sizes != from,
               becomes_complex = in.real && !half_out_,
               aligned = reinterpret_cast<uintptr_t>(in.data) % (2 * size_of(in.dtype)) == 0;
    if (!half_in_ && !window && !pads && !becomes_complex && aligned) return in;
    const FftArray copy = scratch(from, half_out_, in.dtype);
    if (pads || becomes_complex) {
      const FftArray all = copy.flat();
      backend_.fill({all.view(), {.f = 0}});
    }
    FftArray to = copy;
    for (int64_t d : a_.dims) to = to.part(size_t(d), 0, in.sizes[size_t(d)]);
    if (becomes_complex) to = to.reals(0);
    if (window)
      multiply_by_window(in, to);
    else if (half_in_)
      scale(in, to, a_.scale, a_.weighted ? 0.5 : 1, a_.forward);
    else
      scale(in, to, 1, 1, false);
    if (window && half_in_) scale(to, to, a_.scale, a_.weighted ? 0.5 : 1, a_.forward);
    return copy;
  }

  void multiply_by_window(const FftArray& in, const FftArray& out) {
    const FftArray from = in.flat(), to = out.flat();
    Shape strides(from.sizes.size(), 0);
    strides[last_] = 1;
    // As far as the input goes.
    const View window(a_.window.data, a_.window.dtype, from.sizes, strides, a_.window.storage);
    const std::array<View, 2> operands{from.view(), window};
    const View target = to.view();
    backend_.pointwise({&product_program(in.dtype), operands, {&target, 1}, {}});
  }

  // out = factor * in, times `inner` for the numbers of a half spectrum that stand for two; the
  // conjugates.
  void scale(const FftArray& in, const FftArray& out, double factor, double inner, bool conjugate) {
    if (inner != 1) {
      const int64_t n = a_.points.back(), have = in.sizes[last_],
                    count = std::clamp<int64_t>((n - 1) / 2, 0, std::max<int64_t>(have - 1, 0));
      const auto piece = [&](int64_t first, int64_t numbers, int64_t step, double f) {
        if (numbers > 0)
          scale(in.part(last_, first, numbers, step), out.part(last_, first, numbers, step), f, 1,
                conjugate);
      };
      piece(1, count, 1, factor * inner);
      const bool both = n % 2 == 0 && have > n / 2;
      piece(0, both ? 2 : std::min<int64_t>(have, 1), both ? n / 2 : 1, factor);
      return;
    }
    if (conjugate) {
      scale(in.reals(0), out.reals(0), factor, 1, false);
      scale(in.reals(1), out.reals(1), -factor, 1, false);
      return;
    }
    const FftArray from = in.flat(), to = out.flat();
    const View source = from.view(), target = to.view();
    if (source.numel() == 0) return;
    if (factor == 1) {
      if (source.data != target.data) backend_.copy({target, source});
      return;
    }
    const expr::Literal number{.f = factor};
    backend_.pointwise({&scale_program(in.dtype), {&source, 1}, {&target, 1}, {&number, 1}});
  }

  // All dimensions, three at a time.
  void transform(FftArray now, const FftArray& to) {
    std::vector<size_t> dims;
    for (int64_t d : a_.dims) dims.push_back(size_t(d));
    // Half spectra are made first, with the last dimensions, and used last: alone, because
    // imaginary parts that a real signal cannot have are to be ignored, which cuFFT does not.
    while (!dims.empty()) {
      const bool alone = half_in_ && dims.size() == 1;
      const auto take = int64_t(std::min<size_t>(3, dims.size() - (half_in_ && !alone ? 1 : 0)));
      const auto first = half_in_ ? dims.begin() : dims.end() - take;
      const std::vector<size_t> group(first, first + take);
      dims.erase(first, first + take);
      if (alone) {
        const int64_t n = a_.points.back();
        const FftArray none =
            now.reals(1).part(last_, 0, n % 2 ? 1 : 2, std::max<int64_t>(n / 2, 1));
        backend_.fill({none.view(), {.f = 0}});
      }
      const FftArray target = half_in_ && !alone ? now : to;
      transform_group(group, alone || (half_out_ && group.back() == last_),
                      half_out_ || (!half_in_ && a_.forward), now, target);
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

  void transform_group(std::vector<size_t> dims, bool real, bool forward, const FftArray& in,
                       const FftArray& out) {
    // The order of strides, but that a half spectrum's dimension is the innermost one.
    std::stable_sort(dims.begin(), dims.end() - (real ? 1 : 0),
                     [&](size_t a, size_t b) { return in.strides[a] > in.strides[b]; });
    FftGeometry g;
    g.rank = int32_t(dims.size());
    for (size_t i = 0; i < dims.size(); ++i)
      g.n[i] = std::max(in.sizes[dims[i]], out.sizes[dims[i]]);
    if (real) g.n[dims.size() - 1] = a_.points.back();
    const bool doubles = in.dtype == kFloat64;
    g.type = !real       ? (doubles ? CUFFT_Z2Z : CUFFT_C2C)
             : half_out_ ? (doubles ? CUFFT_D2Z : CUFFT_R2C)
                         : (doubles ? CUFFT_Z2D : CUFFT_C2R);
    // The other dimensions, merged where they are one for both sides, the largest one last.
    struct Batch {
      int64_t size, in, out;
    };
    std::vector<size_t> others;
    for (size_t d = 0; d < in.sizes.size(); ++d)
      if (in.sizes[d] != 1 && std::find(dims.begin(), dims.end(), d) == dims.end())
        others.push_back(d);
    std::stable_sort(others.begin(), others.end(),
                     [&](size_t a, size_t b) { return in.strides[a] > in.strides[b]; });
    std::vector<Batch> batches;
    for (size_t d : others) {
      const Batch b{in.sizes[d], in.strides[d], out.strides[d]};
      if (!batches.empty() && batches.back().in == b.size * b.in &&
          batches.back().out == b.size * b.out)
        batches.back() = {batches.back().size * b.size, b.in, b.out};
      else
        batches.push_back(b);
    }
    std::stable_sort(batches.begin(), batches.end(),
                     [](const Batch& a, const Batch& b) { return a.size < b.size; });
    int64_t runs = 1;
    for (size_t i = 0; i + 1 < batches.size(); ++i) runs *= batches[i].size;
    bool fits = layout_of(in, dims, g.in) && layout_of(out, dims, g.out);
    g.in.distance = g.out.distance = 2 * std::max(numel_of(in.sizes), numel_of(out.sizes));
    if (!batches.empty()) {
      g.batch = batches.back().size;
      g.in.distance = batches.back().in / in.parts();
      g.out.distance = batches.back().out / out.parts();
      // Real numbers of a run must start where a complex one could.
      for (size_t i = 0; i + 1 < batches.size(); ++i)
        fits = fits && batches[i].in % 2 == 0 && batches[i].out % 2 == 0;
      fits = fits && batches.back().in % in.parts() == 0 && batches.back().in > 0 &&
             batches.back().out > 0;
    }
    // An even number of real ones is read in pairs, which want to be aligned.
    if (real && a_.points.back() % 2 == 0) {
      const FftLayout& reals = half_out_ ? g.in : g.out;
      fits = fits && reals.distance % 2 == 0 &&
             (dims.size() == 1 || reals.embed[dims.size() - 1] % 2 == 0);
    }
    constexpr int64_t kMostRuns = 8;
    if (!fits || runs > kMostRuns) {
      const FftArray from = scratch_with_last(dims, in), to = scratch_with_last(dims, out);
      scale(in, from, 1, 1, false);
      transform_group(dims, real, forward, from, to);
      scale(to, out, 1, 1, false);
      return;
    }
    const std::shared_ptr<FftPlan> plan = find_fft_plan(backend_.context().ordinal(), g);
    const std::lock_guard lock(plan->mutex);
    const Scratch work(backend_, plan->work_bytes());
    for (int64_t run = 0; run < runs; ++run) {
      int64_t from = 0, to = 0, rest = run;
      for (size_t i = 0; i + 1 < batches.size(); ++i) {
        from += rest % batches[i].size * batches[i].in;
        to += rest % batches[i].size * batches[i].out;
        rest /= batches[i].size;
      }
      const auto size = int64_t(size_of(in.dtype));
      plan->run(in.data + from * size, out.data + to * size, forward, work.data(), stream_);
    }
  }

  // Memory for an array whose dimensions `dims` are the inner ones, in that order.
  FftArray scratch_with_last(const std::vector<size_t>& dims, const FftArray& like) {
    std::vector<size_t> order;
    for (size_t d = 0; d < like.sizes.size(); ++d)
      if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
    order.insert(order.end(), dims.begin(), dims.end());
    Shape sizes;
    for (size_t d : order) sizes.push_back(like.sizes[d]);
    const FftArray made = scratch(sizes, like.real, like.dtype);
    FftArray a = made;
    a.sizes = like.sizes;
    for (size_t i = 0; i < order.size(); ++i) a.strides[order[i]] = made.strides[i];
    return a;
  }

  CudaBackend& backend_;
  const prim::FftArgs& a_;
  const CUstream stream_;
  const size_t last_;
  const bool half_in_, half_out_;
  std::vector<std::unique_ptr<Scratch>> memory_;
};

}  // namespace

void CudaBackend::fft(const prim::FftArgs& a) {
  if (a.out.numel() == 0) return;
  if (!has_cufft()) return prim::Backend::fft(a);
  CudaTransform(*this, a, enter(a)).run();
}

}  // namespace arete::cuda
