// The gradient of views: values put back where a view showed them.
#include "arete/ops/call.h"
#include "arete/ops/shape.h"
#include "arete/prim/positions.h"

namespace arete::ops {
namespace {

const OpRecord& embed_window_op =
    define("embed_window(Tensor values, int[] size, int[] stride, int offset) -> Tensor")
        .doc("Zeros with values added where a strided view would show them.")
        .surface(Surface::internal)
        .one_by_one("the window may lie over itself in the memory of one element only")
        .infer([](const Call& c, OutputSpecs& out) {
          out.push_back({Shape(c.ints(1)), c.tensor(0).dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& values = c.tensor(0);
          const Layout window(values.sizes(), c.ints(2), c.integer(3));
          const bool places = !window.may_overlap();
          // Where the window is everything there is nothing to fill.
          if (places && values.numel() == out[0].numel())
            return p.copy({view_of(out[0], window), view_of(values)});
          const prim::View whole = view_of(out[0]);
          prim::FillArgs zero{whole, {}, is_integral_or_bool(whole.dtype), 0};
          if (zero.value_is_integer)
            zero.value.i = 0;
          else
            zero.value.f = 0;
          p.fill(zero);
          if (values.numel() == 0) return;
          if (places) return p.copy({view_of(out[0], window), view_of(values)});
          // Which element each value belongs to: the window on the numbers 0, 1, 2, ...
          const int64_t total[] = {out[0].numel()}, count[] = {values.numel()}, one[] = {1};
          const prim::Positions numbers(p, kInt64, total[0]);
          const prim::ScratchView index(p, kInt64, values.sizes()),
              packed(p, values.dtype(), values.sizes());
          prim::View shown = numbers.all();
          shown.data += window.offset * int64_t(sizeof(int64_t));
          shown.sizes = window.sizes;
          shown.strides = window.strides;
          p.copy({index, shown});
          p.copy({packed, view_of(values)});
          const auto flat = [&](prim::View v, const int64_t* n) {
            v.sizes = IntList(n, 1);
            v.strides = IntList(one, 1);
            return v;
          };
          p.scatter({flat(whole, total), flat(index, count), flat(packed, count), 0,
                     prim::ScatterMode::add, "embed_window"});
        })
        .grad([](const GradCall& g) -> TensorList {
          // A view, because that may overlap itself and still have a gradient.
          const Tensor dy = g.grad().contiguous();
          return {as_strided(dy, g.input_sizes(0), g.ints(2), dy.storage_offset() + g.integer(3))};
        });

}  // namespace

Tensor embed_window(const Tensor& values, IntList sizes, IntList strides, int64_t offset) {
  return call(embed_window_op, {values, sizes, strides, offset});
}

}  // namespace arete::ops

ARETE_FAMILY(embed_window)
