#include <algorithm>
#include <deque>

#include "arete/base/error.h"
#include "arete/base/small_vector.h"
#include "arete/prim/decompose/scatter_internal.h"

namespace arete::prim {
namespace {

// Of how many points places are stored: as many as a cache holds, or as fill a GPU.
int64_t most_stored(const Primitives& on) { return on.device().is_cpu() ? 1 << 16 : 1 << 22; }

// Planes of several images, or some points of one.
void scatter_to_stored_taps(Primitives& on, const ScatterArgs& a) {
  ARETE_ASSERT(a.dim == 2 && a.out.rank() == 3 && a.src.rank() == 3);
  ARETE_ASSERT(a.out.is_contiguous() && a.src.is_contiguous() && a.places->tables() == 0);
  const size_t taps = a.places->outputs().size() / 2;
  const int64_t images = a.src.sizes[0], channels = a.src.sizes[1], points = a.src.sizes[2];
  if (a.src.numel() == 0) return;
  const int64_t most = std::max<int64_t>(1, most_stored(on) / int64_t(taps)),
                some_points = std::min(points, most),
                some_images = std::min(images, most / some_points);
  std::deque<ScratchView> stored;
  for (const expr::Program::Output& o : a.places->outputs())
    stored.emplace_back(on, o.dtype, Shape{some_images * some_points});
  const auto moved = [](View v, int64_t elements) {
    v.data += elements * int64_t(size_of(v.dtype));
    return v;
  };
  for (int64_t image = 0; image < images; image += some_images)
    for (int64_t point = 0; point < points; point += some_points) {
      const int64_t n = std::min(some_images, images - image),
                    m = std::min(some_points, points - point);
      const Shape rows{n, m}, dense{m, 1}, all{n, channels, m}, of_points{m, 0, 1},
          planes{n, channels, a.out.sizes[2]};
      SmallVector<View, 4> inputs;
      for (const View& v : a.inputs) {
        inputs.push_back(moved(v, image * v.strides[0] + point * v.strides[1]));
        inputs.back().sizes = rows;
      }
      SmallVector<View, 16> results;
      for (const ScratchView& s : stored) {
        results.push_back(s.view());
        results.back().sizes = rows, results.back().strides = dense;
      }
      on.pointwise({.program = a.places,
                    .inputs = {inputs.data(), inputs.size()},
                    .outputs = {results.data(), results.size()},
                    .params = a.params,
                    .slots = a.slots,
                    .context = a.context});
      View src = moved(a.src, image * a.src.strides[0] + point),
           out = moved(a.out, image * a.out.strides[0]);
      src.sizes = all, out.sizes = planes;
      for (View& v : results) v.sizes = all, v.strides = of_points;
      for (size_t t = 0; t < taps; ++t)
        on.scatter({.out = out,
                    .index = results[2 * t],
                    .src = src,
                    .dim = 2,
                    .mode = ScatterMode::add,
                    .op = a.op,
                    .context = a.context,
                    .factors = results[2 * t + 1]});
    }
}

}  // namespace

void scatter_to_stored_places(Primitives& on, const ScatterArgs& a) {
  ARETE_ASSERT(a.places && !a.index && !a.factors && a.mode == ScatterMode::add);
  if (a.out.rank() == 3) return scatter_to_stored_taps(on, a);
  ARETE_ASSERT(a.out.rank() == 1 && a.src.rank() == 1);
  const int64_t count = a.src.sizes[0];
  const int64_t most = std::min(count, most_stored(on));
  if (count == 0) return;
  const ScratchView places(on, kInt64, Shape{most});
  for (int64_t from = 0; from < count; from += most) {
    const int64_t sizes[] = {std::min(most, count - from)};
    const auto part = [&](View v) {
      v.data += from * v.strides[0] * int64_t(size_of(v.dtype));
      v.sizes = sizes;
      return v;
    };
    View to = places.view();
    to.sizes = sizes;
    SmallVector<View, 4> inputs;
    for (size_t k = 0; k < a.inputs.size(); ++k)
      inputs.push_back(a.places->is_table(k) ? a.inputs[k] : part(a.inputs[k]));
    on.pointwise({.program = a.places,
                  .inputs = {inputs.data(), inputs.size()},
                  .outputs = {&to, 1},
                  .params = a.params,
                  .slots = a.slots,
                  .context = a.context});
    on.scatter({.out = a.out,
                .index = to,
                .src = part(a.src),
                .dim = 0,
                .mode = a.mode,
                .op = a.op,
                .context = a.context});
  }
}

}  // namespace arete::prim
