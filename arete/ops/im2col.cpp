// Windows of images as columns and back: torch.nn.functional's unfold and fold (declared in nn.h).
#include <algorithm>
#include <optional>

#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/ops/filling.h"
#include "arete/ops/nn.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_parts_internal.h"
#include "arete/ops/window_util.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {
namespace {

// The windows of images (.., height, width) and how many there are in each direction.
struct Windows {
  Shape kernel, dilation, padding, stride, counts;
  bool pads() const { return padding[0] != 0 || padding[1] != 0; }
};

// `first`: the position of kernel_size among the arguments; dilation, padding and stride follow.
Windows windows_of(const Call& c, size_t first, IntList image) {
  const char* op = c.name();
  Windows w{spread(c.ints(first), 2, op, "kernel_size"),
            spread(c.ints(first + 1), 2, op, "dilation"),
            spread(c.ints(first + 2), 2, op, "padding"),
            spread(c.ints(first + 3), 2, op, "stride"),
            {}};
  for (size_t d = 0; d < 2; ++d) {
    ARETE_CHECK(
        w.kernel[d] > 0,
        ValueError(op, "kernel size should be greater than zero, but got " + to_string(w.kernel)));
    ARETE_CHECK(w.dilation[d] > 0, ValueError(op, "dilation should be greater than zero, but got " +
                                                      to_string(w.dilation)));
    ARETE_CHECK(w.stride[d] > 0, ValueError(op, "stride should be greater than zero, but got " +
                                                    to_string(w.stride)));
    ARETE_CHECK(w.padding[d] >= 0,
                ValueError(op, "padding should be non-negative, but got " + to_string(w.padding)));
    const int64_t room = image[d] + 2 * w.padding[d] - w.dilation[d] * (w.kernel[d] - 1) - 1;
    w.counts.push_back(room < 0 ? 0 : room / w.stride[d] + 1);
  }
  ARETE_CHECK(
      w.counts[0] > 0 && w.counts[1] > 0,
      ValueError(op, "Given image with spatial size " + to_string(image) + ", kernel_size=" +
                         to_string(w.kernel) + ", dilation=" + to_string(w.dilation) +
                         ", padding=" + to_string(w.padding) + ", stride=" + to_string(w.stride) +
                         ", calculated shape of the array of sliding blocks as " +
                         to_string(w.counts) + ", but its components must be at least one."));
  return w;
}

// Images as (N, C, height, width) and columns as (N, C, kh, kw, rows, columns), both with the parts
// of complex numbers last.
PartsView as_images(const Tensor& t) {
  Shape sizes(t.sizes()), strides(t.strides());
  if (t.dim() == 3) {
    sizes.insert(sizes.begin(), 1);
    strides.insert(strides.begin(), 0);
  }
  return {t, sizes, strides};
}
PartsView as_columns(const Tensor& t, const Windows& w) {
  const bool batched = t.dim() == 3;
  const int64_t taps = w.kernel[0] * w.kernel[1];
  const int64_t row = t.strides()[size_t(t.dim()) - 2], column = t.strides().back();
  return {t,
          Shape{batched ? t.size(0) : 1, t.size(-2) / taps, w.kernel[0], w.kernel[1], w.counts[0],
                w.counts[1]},
          Shape{batched ? t.strides()[0] : 0, taps * row, w.kernel[1] * row, row,
                w.counts[1] * column, column}};
}

// ---- elements of every window and their places in the images

// Calls f(elements of images, elements of columns) with views of the same elements, for each
// element of a window; for as many at once as windows are apart, of which no two are one.
template <class F>
void for_taps(const Windows& w, const prim::View& images, const prim::View& columns, F&& f) {
  // The dimensions of images, for windows in place of positions, and two of elements of a window.
  const size_t taps = images.sizes.size();
  Shape sizes(images.sizes), image_strides(images.strides), column_strides(images.strides);
  for (size_t d = 0; d < taps; ++d) column_strides[d] = columns.strides[d < 2 ? d : d + 2];
  for (Shape* shape : {&sizes, &image_strides, &column_strides}) shape->resize(taps + 2);
  const auto visit = [&](auto& self, size_t d, int64_t image, int64_t column) -> void {
    if (d == 2) {
      prim::View a = images, b = columns;
      a.data += image * int64_t(size_of(a.dtype));
      b.data += column * int64_t(size_of(b.dtype));
      a.sizes = b.sizes = sizes;
      a.strides = image_strides;
      b.strides = column_strides;
      return f(a, b);
    }
    const int64_t n = images.sizes[2 + d], step = images.strides[2 + d];
    const int64_t tap_step = columns.strides[2 + d], window_step = columns.strides[4 + d];
    image_strides[2 + d] = step * w.stride[d];
    image_strides[taps + d] = step;
    column_strides[taps + d] = tap_step;
    const int64_t most = w.dilation[d] == 1 ? w.stride[d] : 1;
    for (int64_t k = 0; k < w.kernel[d]; k += most) {
      const int64_t count = std::min(most, w.kernel[d] - k);
      for (int64_t o = 0, windows = 1; o < w.counts[d]; o += windows) {
        // Window o has them from `at` on; those that have all within the image go together.
        const int64_t at = o * w.stride[d] + k * w.dilation[d] - w.padding[d];
        const int64_t first = std::max<int64_t>(-at, 0), end = std::min(count, n - at);
        const bool whole = first == 0 && end == count;
        windows = whole ? std::min(w.counts[d] - o, (n - count - at) / w.stride[d] + 1) : 1;
        if (first >= end) continue;
        sizes[2 + d] = windows;
        sizes[taps + d] = end - first;
        self(self, d + 1, image + (at + first) * step,
             column + (k + first) * tap_step + o * window_step);
      }
    }
  };
  visit(visit, 0, 0, 0);
}

// ---- programs

// Which of an image's windows have an element, along one dimension.
struct Reach {
  bool dilated, apart;  // apart: a stride that is not 1
  int64_t taps, size;   // at most so many windows, of which `size` are looked at in one launch
};
Reach reach_of(const Windows& w, size_t d) {
  const bool dilated = w.dilation[d] > 1 && w.kernel[d] > 1;
  const int64_t taps = dilated ? w.kernel[d] : (w.kernel[d] + w.stride[d] - 1) / w.stride[d];
  return {dilated, w.stride[d] > 1, taps, taps};
}
constexpr int64_t kMostTapsAtOnce = 32;

// Parameters of each of the two dimensions: the strides of the table's window elements and windows
// (folding) or image (unfolding), then geometry.
enum { kTapStep, kStep, kStride, kDilation, kPadding, kSize, kKernel, kSkip, kNumbersOfFold };

// columns = elements of images, 0 in the padding.
const expr::Program& unfold_program(DType dtype, DType number, size_t leading) {
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;
  // The table, numbers of the leading dimensions, of elements of windows and of windows.
  std::vector<DType> inputs(1 + leading + 4, number);
  inputs[0] = dtype;
  const std::vector<expr::Type> params(leading + 2 * kNumbersOfFold, expr::compute_type(number));
  return cache.get(
      pack_key({int(dtype), number == kInt64, int(leading)}), inputs, params, {dtype},
      [&](std::span<const Value> v) {
        const Value* const p = v.data() + inputs.size();
        Value at = v[1] * p[0], exists;
        for (size_t k = 1; k < leading; ++k) at = at + v[1 + k] * p[k];
        for (size_t d = 0; d < 2; ++d) {
          const Value* const q = p + leading + d * kNumbersOfFold;
          const Value tap = v[1 + leading + d], window = v[3 + leading + d];
          const Value i = window * q[kStride] + tap * q[kDilation] - q[kPadding];
          const Value inside = (i >= 0.0) & (i < q[kSize]);
          exists = d ? exists & inside : inside;
          at = at + i * q[kStep];
        }
        const Value value = expr::load(v[0], where(exists, at, expr::constant_like(at, 0)));
        return std::vector{where(exists, value, expr::constant_like(value, 0))};
      },
      1);
}

// images = sums of the elements of columns that lie on theirs; `adds`: to what is there.
const expr::Program& fold_program(DType in, DType out, DType number, size_t leading,
                                  const Reach (&reach)[2], bool adds) {
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;
  std::vector<DType> inputs(1 + leading + 2, number);
  inputs[0] = in;
  if (adds) inputs.push_back(out);
  const std::vector<expr::Type> params(leading + 2 * kNumbersOfFold, expr::compute_type(number));
  uint64_t key = pack_key({int(in), int(out), number == kInt64, int(leading), adds});
  for (const Reach& r : reach)
    key = key << 8 | uint64_t(r.size) << 2 | uint64_t(r.dilated) << 1 | uint64_t(r.apart);
  return cache.get(
      key, inputs, params, {out},
      [&](std::span<const Value> v) {
        const Value* const p = v.data() + inputs.size();
        Value first = v[1] * p[0];
        for (size_t k = 1; k < leading; ++k) first = first + v[1 + k] * p[k];
        struct Place {
          Value at, exists;
        };
        std::vector<Place> places[2];
        for (size_t d = 0; d < 2; ++d) {
          const Value* const q = p + leading + d * kNumbersOfFold;
          const auto whole = [&](Value n) { return reach[d].apart ? trunc_div(n, q[kStride]) : n; };
          const Value i = v[1 + leading + d] + q[kPadding];
          for (int64_t j = 0; j < reach[d].size; ++j) {
            const Value number = q[kSkip] + double(j);
            // As element `tap` of `window` if both exist.
            Value tap = number, window, exists;
            if (reach[d].dilated) {
              const Value from = i - number * q[kDilation];
              window = whole(from);
              exists = (from >= 0.0) & (number < q[kKernel]);
              if (reach[d].apart) exists = exists & (window * q[kStride] == from);
            } else {
              const Value last = whole(i);
              window = last - number;
              tap = (i - last * q[kStride]) + number * q[kStride];
              exists = (window >= 0.0) & (tap < q[kKernel]);
            }
            places[d].push_back(
                {tap * q[kTapStep] + window * q[kStep], exists & (window < q[kSize])});
          }
        }
        Value sum;
        for (const Place& row : places[0])
          for (const Place& column : places[1]) {
            const Value exists = row.exists & column.exists, at = first + row.at + column.at;
            const Value value = expr::load(v[0], where(exists, at, expr::constant_like(at, 0)));
            const Value part = where(exists, value, expr::constant_like(value, 0));
            sum = !sum.builder() ? part : in == kBool ? sum | part : sum + part;
          }
        if (adds) {
          const Value before = v[inputs.size() - 1];
          sum = in == kBool ? before | sum : before + cast(sum, before.type());
        }
        return std::vector{sum};
      },
      1);
}

// A view whose elements a program may look up.
class Table {
 public:
  Table(prim::Primitives& p, const prim::View& v) : view_(v) {
    if (Layout(v.sizes, v.strides).is_dense()) return;
    dense_.emplace(p, v.dtype, v.sizes);
    p.copy({*dense_, v});
    view_ = *dense_;
  }
  const prim::View& view() const { return view_; }

 private:
  std::optional<prim::ScratchView> dense_;
  prim::View view_;
};

// Numbers of an element of `sizes` (N, C, middle..., [parts]) in the leading dimensions and the
// parts, of which programs see as many as the table's strides ask for; then of the others.
struct Places {
  SmallVector<prim::View, 8> numbers;
  SmallVector<expr::Literal, 24> params;  // strides of the leading ones
  size_t leading;

  Places(prim::Positions& positions, IntList sizes, size_t middle, const prim::View& table) {
    const auto lead = [&](size_t first, size_t last, int64_t stride) {
      numbers.push_back(positions.along(sizes, first, last));
      params.push_back({.i = stride});
    };
    if (table.strides[0] == table.sizes[1] * table.strides[1] || sizes[0] == 1) {
      lead(0, 1, table.strides[1]);
    } else {
      lead(0, 0, table.strides[0]);
      lead(1, 1, table.strides[1]);
    }
    if (sizes.size() > 2 + middle) lead(2 + middle, 2 + middle, 1);
    leading = numbers.size();
    for (size_t d = 2; d < 2 + middle; ++d) numbers.push_back(positions.along(sizes, d, d));
  }
  void add_geometry(const Windows& w, size_t d, int64_t tap_step, int64_t step, int64_t size,
                    int64_t skip) {
    for (int64_t value :
         {tap_step, step, w.stride[d], w.dilation[d], w.padding[d], size, w.kernel[d], skip})
      params.push_back({.i = value});
  }
};

int64_t longest_number(IntList sizes) {
  int64_t n = sizes[0] * sizes[1];
  for (int64_t s : sizes) n = std::max(n, s);
  return n;
}

void run_unfold(prim::Primitives& p, const Windows& w, const prim::View& images,
                const prim::View& columns) {
  const Table table(p, images);
  const DType number = prim::position_dtype(std::max(images.numel(), columns.numel()));
  prim::Positions positions(p, number, longest_number(columns.sizes));
  Places places(positions, columns.sizes, 4, table.view());
  for (size_t d = 0; d < 2; ++d)
    places.add_geometry(w, d, 0, table.view().strides[2 + d], images.sizes[2 + d], 0);
  places.numbers.insert(places.numbers.begin(), table.view());
  p.pointwise({&unfold_program(images.dtype, number, places.leading),
               places.numbers,
               {&columns, 1},
               places.params});
}

void run_fold(prim::Primitives& p, const Windows& w, const prim::View& columns,
              const prim::View& images) {
  const Table table(p, columns);
  const DType number = prim::position_dtype(std::max(images.numel(), columns.numel()));
  prim::Positions positions(p, number, longest_number(images.sizes));
  const Places all(positions, images.sizes, 2, table.view());
  Reach reach[2] = {reach_of(w, 0), reach_of(w, 1)};
  while (reach[0].size * reach[1].size > kMostTapsAtOnce) {
    Reach& longer = reach[reach[0].size < reach[1].size];
    longer.size = (longer.size + 1) / 2;
  }
  const bool parts = reach[0].size < reach[0].taps || reach[1].size < reach[1].taps;
  const DType work = is_floating(images.dtype) ? expr::work_dtype(images.dtype) : images.dtype;
  std::optional<prim::ScratchView> wide;
  if (parts && work != images.dtype) wide.emplace(p, work, images.sizes);
  const prim::View sum = wide ? wide->view() : images;
  bool adds = false;
  for (int64_t row = 0; row < reach[0].taps; row += reach[0].size)
    for (int64_t column = 0; column < reach[1].taps; column += reach[1].size) {
      Places places = all;
      for (size_t d = 0; d < 2; ++d)
        places.add_geometry(w, d, table.view().strides[2 + d], table.view().strides[4 + d],
                            w.counts[d], d ? column : row);
      places.numbers.insert(places.numbers.begin(), table.view());
      if (adds) places.numbers.push_back(sum);
      p.pointwise({&fold_program(columns.dtype, sum.dtype, number, places.leading, reach, adds),
                   places.numbers,
                   {&sum, 1},
                   places.params});
      adds = true;
    }
  if (wide) p.copy({images, sum});
}

// ---- copies and sums of parts

// All windows of images that are padded already.
class WindowsView {
 public:
  WindowsView(const Windows& w, const prim::View& images, const prim::View& columns)
      : strides_(columns.strides), view_(images) {
    for (size_t d = 0; d < strides_.size(); ++d)
      strides_[d] = images.strides[d < 4 ? d : d - 2] * (d < 2 || d > 5 ? 1
                                                         : d < 4        ? w.dilation[d - 2]
                                                                        : w.stride[d - 4]);
    view_.sizes = columns.sizes;
    view_.strides = strides_;
  }
  operator const prim::View&() const { return view_; }

 private:
  Shape strides_;
  prim::View view_;
};

void copy_windows(prim::Primitives& p, const Windows& w, const prim::View& images,
                  const prim::View& columns) {
  if (!w.pads()) return p.copy({columns, WindowsView(w, images, columns)});
  Shape sizes(images.sizes);
  for (size_t d = 0; d < 2; ++d) sizes[2 + d] += 2 * w.padding[d];
  const prim::ScratchView padded(p, images.dtype, sizes);
  p.fill(filling(padded, 0, "unfold"));
  prim::View inside = padded;
  for (size_t d = 2; d < 4; ++d)
    inside.data += w.padding[d - 2] * inside.strides[d] * int64_t(size_of(inside.dtype));
  inside.sizes = images.sizes;
  p.copy({inside, images});
  p.copy({columns, WindowsView(w, padded, columns)});
}

void add_taps(prim::Primitives& p, const Windows& w, const prim::View& columns,
              const prim::View& images) {
  const DType work = is_floating(images.dtype) ? expr::work_dtype(images.dtype) : images.dtype;
  std::optional<prim::ScratchView> wide;
  if (work != images.dtype) wide.emplace(p, work, images.sizes);
  const prim::View sum = wide ? wide->view() : images;
  p.fill(filling(sum, 0, "fold"));
  for_taps(w, sum, columns,
           [&](const prim::View& to, const prim::View& part) { add_into(p, to, part); });
  if (wide) p.copy({images, sum});
}

// Whether no element of an image is part of two windows, and whether each is part of one.
bool are_apart(const Windows& w) {
  return w.stride[0] > w.dilation[0] * (w.kernel[0] - 1) &&
         w.stride[1] > w.dilation[1] * (w.kernel[1] - 1);
}
bool are_tiles(const Windows& w, const prim::View& images) {
  for (size_t d = 0; d < 2; ++d)
    if (w.kernel[d] * w.counts[d] != images.sizes[2 + d]) return false;
  return are_apart(w) && !w.pads();
}

void fold_into(prim::Primitives& p, const Windows& w, const prim::View& columns,
               const prim::View& images, bool on_cpu) {
  if (are_tiles(w, images)) return p.copy({WindowsView(w, images, columns), columns});
  if (!on_cpu) return run_fold(p, w, columns, images);
  if (!are_apart(w)) return add_taps(p, w, columns, images);
  p.fill(filling(images, 0, "fold"));
  if (!w.pads()) return p.copy({WindowsView(w, images, columns), columns});
  for_taps(w, images, columns, [&](const prim::View& to, const prim::View& part) {
    p.copy({to, part});
  });
}

// ---- records

Tensor unfold_of(const Tensor& x, IntList kernel, IntList dilation, IntList padding,
                 IntList stride);
Tensor fold_of(const Tensor& x, IntList size, IntList kernel, IntList dilation, IntList padding,
               IntList stride);

const OpRecord& unfold_op =
    define(
        "unfold_im2col(Tensor input, int[] kernel_size, int[] dilation=1, int[] padding=0, int[] "
        "stride=1) -> Tensor")
        .functional({"unfold"})
        .doc("The windows of images as columns: (N, C, H, W) to (N, C kh kw, windows).")
        .indexed({0})
        .surface(Surface::internal)
        .for_files()
        .batched(vmaps::folded)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(x.dim() == 3 || x.dim() == 4,
                      ValueError(c.name(),
                                 "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size "
                                 "and other non-zero dimensions for input, but got: " +
                                     to_string(x.sizes())));
          const Windows w = windows_of(c, 1, x.sizes().last(2));
          Shape sizes;
          if (x.dim() == 4) sizes.push_back(x.size(0));
          sizes.push_back(x.size(-3) * w.kernel[0] * w.kernel[1]);
          sizes.push_back(w.counts[0] * w.counts[1]);
          out.push_back({std::move(sizes), x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Windows w = windows_of(c, 1, c.tensor(0).sizes().last(2));
          const PartsView images = as_images(c.tensor(0)), columns = as_columns(out[0], w);
          if (c.tensor(0).numel() == 0)
            p.fill(filling(view_of(out[0]), 0, c.name()));
          else if (w.pads() && !out[0].device().is_cpu())
            run_unfold(p, w, images.view(), columns.view());
          else
            copy_windows(p, w, images.view(), columns.view());
        })
        .grad([](const GradCall& g) -> TensorList {
          return {fold_of(g.grad(), IntList(g.input_sizes(0)).last(2), g.ints(1), g.ints(2),
                          g.ints(3), g.ints(4))};
        });

const OpRecord& fold_op =
    define(
        "fold(Tensor input, int[] output_size, int[] kernel_size, int[] dilation=1, int[] "
        "padding=0, int[] stride=1) -> Tensor")
        .doc(
            "Adds the windows that columns hold up to images: (N, C kh kw, windows) to "
            "(N, C, H, W).")
        .indexed({0})
        .surface(Surface::functional)
        .batched(vmaps::folded)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(x.dim() == 2 || x.dim() == 3,
                      ValueError(c.name(),
                                 "Expected 2D or 3D (batch mode) tensor for input with possibly 0 "
                                 "batch size and non-zero dimensions for input, but got: " +
                                     to_string(x.sizes())));
          const Shape image = spread(c.ints(1), 2, c.name(), "output_size");
          const Windows w = windows_of(c, 2, image);
          const int64_t taps = w.kernel[0] * w.kernel[1], windows = w.counts[0] * w.counts[1];
          ARETE_CHECK(x.size(-2) % taps == 0,
                      ValueError(c.name(),
                                 "Expected size of input's dimension 1 to be divisible by the "
                                 "product of kernel_size, but got input.size(1)=" +
                                     std::to_string(x.size(-2)) +
                                     " and kernel_size=" + to_string(w.kernel) + "."));
          ARETE_CHECK(
              x.size(-1) == windows,
              ValueError(c.name(), "Given output_size=" + to_string(image) + ", kernel_size=" +
                                       to_string(w.kernel) + ", dilation=" + to_string(w.dilation) +
                                       ", padding=" + to_string(w.padding) +
                                       ", stride=" + to_string(w.stride) +
                                       ", expected size of input's dimension 2 to match the "
                                       "calculated number of sliding blocks " +
                                       std::to_string(windows) + ", but got input.size(2)=" +
                                       std::to_string(x.size(-1)) + "."));
          Shape sizes;
          if (x.dim() == 3) sizes.push_back(x.size(0));
          sizes.push_back(x.size(-2) / taps);
          sizes.append(image.begin(), image.end());
          out.push_back({std::move(sizes), x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Windows w = windows_of(c, 2, out[0].sizes().last(2));
          const PartsView columns = as_columns(c.tensor(0), w), images = as_images(out[0]);
          fold_into(p, w, columns.view(), images.view(), out[0].device().is_cpu());
        })
        .grad([](const GradCall& g) -> TensorList {
          const Tensor grad = g.grad();
          const Shape kernel = spread(g.ints(2), 2, "fold", "kernel_size"),
                      dilation = spread(g.ints(3), 2, "fold", "dilation"),
                      padding = spread(g.ints(4), 2, "fold", "padding"),
                      stride = spread(g.ints(5), 2, "fold", "stride");
          // Of images that are one row each the windows are a view.
          if (grad.dim() == 4 && grad.size(1) == 1 && grad.size(2) == 1 && kernel[0] == 1 &&
              padding[0] == 0 && dilation[1] == 1) {
            Tensor rows = grad.reshape({grad.size(0), grad.size(3)});
            if (padding[1] > 0) rows = pad(rows, {padding[1], padding[1]});
            return {rows.unfold(1, kernel[1], stride[1]).transpose(1, 2)};
          }
          return {unfold_of(g.grad(), g.ints(2), g.ints(3), g.ints(4), g.ints(5))};
        });

Tensor unfold_of(const Tensor& x, IntList kernel, IntList dilation, IntList padding,
                 IntList stride) {
  return call(unfold_op, {x, kernel, dilation, padding, stride});
}
Tensor fold_of(const Tensor& x, IntList size, IntList kernel, IntList dilation, IntList padding,
               IntList stride) {
  return call(fold_op, {x, size, kernel, dilation, padding, stride});
}

}  // namespace
}  // namespace ops

Tensor im2col(const Tensor& input, const Extent& kernel_size, const Extent& dilation,
              const Extent& padding, const Extent& stride) {
  return ops::unfold_of(input, kernel_size, dilation, padding, stride);
}
Tensor fold(const Tensor& input, const Extent& output_size, const Extent& kernel_size,
            const Extent& dilation, const Extent& padding, const Extent& stride) {
  return ops::fold_of(input, output_size, kernel_size, dilation, padding, stride);
}

}  // namespace arete

ARETE_FAMILY(im2col)
