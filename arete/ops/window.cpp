#include "arete/ops/window.h"

#include "arete/ops/call.h"
#include "arete/ops/creation.h"

namespace arete::ops {

namespace {

// A flat piece of memory in which a tensor of `sizes` is laid out with `strides`.
int64_t extent(IntList sizes, IntList strides) { return Layout(sizes, strides).end(); }

prim::View strided(const prim::View& flat, DType dtype, IntList sizes, IntList strides,
                   int64_t offset) {
  return {flat.data + offset * int64_t(size_of(dtype)), dtype, sizes, strides, flat.storage};
}

bool row_major(const Tensor& self, IntList base_strides) {
  return Layout(self.sizes(), base_strides).is_contiguous();
}

TensorList read_grad(const GradCall& g) {
  const Tensor base = zeros(g.input_sizes(0), g.grad().options());
  return {write_window(base, g.grad(), g.ints(1), g.ints(3), g.integer(4))};
}

TensorList write_grad(const GradCall& g) {
  const Tensor& dy = g.grad();
  TensorList result(2);
  if (g.needs(0))
    result[0] =
        write_window(dy, zeros(g.input_sizes(1), dy.options()), g.ints(2), g.ints(3), g.integer(4));
  if (g.needs(1)) result[1] = read_window(dy, g.ints(2), g.input_sizes(1), g.ints(3), g.integer(4));
  return result;
}

const OpRecord& read_window_op =
    define(
        "read_window(Tensor self, int[] base_strides, int[] sizes, int[] strides, int offset) "
        "-> Tensor")
        .doc("A strided window of self's memory, as if self had base_strides.")
        .infer([](const Call& c, OutputSpecs& out) {
          out.push_back({Shape(c.ints(2)), c.tensor(0).dtype(), c.tensor(0).device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& self = c.tensor(0);
          const DType t = self.dtype();
          if (row_major(self, c.ints(1)) && self.is_contiguous()) {
            p.copy(
                {view_of(out[0]), strided(view_of(self), t, c.ints(2), c.ints(3), c.integer(4))});
            return;
          }
          const prim::ScratchView flat(p, t, {extent(self.sizes(), c.ints(1))});
          p.copy({strided(flat, t, self.sizes(), c.ints(1), 0), view_of(self)});
          p.copy({view_of(out[0]), strided(flat, t, c.ints(2), c.ints(3), c.integer(4))});
        })
        .grad(read_grad)
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({3, 4}), {4, 1}, {2, 2}, {4, 2}, 1}, "row-major"},
              {{m.make({3, 4}), {1, 3}, {4, 2}, {3, 1}, 1}, "column-major"},
              {{m.make({2}), {1}, std::vector<int64_t>{}, std::vector<int64_t>{}, 1}, "0-d"}};
        })
        .no_reference("checked by the tests of in-place writes through views");

const OpRecord& write_window_op =
    define(
        "write_window(Tensor self, Tensor values, int[] base_strides, int[] strides, int "
        "offset) -> Tensor")
        .doc("A copy of self with a strided window of its memory replaced by values.")
        .infer([](const Call& c, OutputSpecs& out) {
          out.push_back(
              {Shape(c.tensor(0).sizes()), c.tensor(0).dtype(), c.tensor(0).device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& self = c.tensor(0);
          const Tensor& values = c.tensor(1);
          const DType t = self.dtype();
          if (row_major(self, c.ints(2))) {
            p.copy({view_of(out[0]), view_of(self)});
            p.copy({strided(view_of(out[0]), t, values.sizes(), c.ints(3), c.integer(4)),
                    view_of(values)});
            return;
          }
          const prim::ScratchView flat(p, t, {extent(self.sizes(), c.ints(2))});
          const prim::View whole = strided(flat, t, self.sizes(), c.ints(2), 0);
          p.copy({whole, view_of(self)});
          p.copy({strided(flat, t, values.sizes(), c.ints(3), c.integer(4)), view_of(values)});
          p.copy({view_of(out[0]), whole});
        })
        .grad(write_grad)
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({3, 4}), m.make({2, 2}), {4, 1}, {4, 2}, 1}, "row-major"},
              {{m.make({3, 4}), m.make({4, 2}), {1, 3}, {3, 1}, 1}, "column-major"}};
        })
        .no_reference("checked by the tests of in-place writes through views");

}  // namespace

Tensor read_window(const Tensor& self, IntList base_strides, IntList sizes, IntList strides,
                   int64_t offset) {
  return call(read_window_op, {self, base_strides, sizes, strides, offset});
}

Tensor write_window(const Tensor& self, const Tensor& values, IntList base_strides, IntList strides,
                    int64_t offset) {
  return call(write_window_op, {self, values, base_strides, strides, offset});
}

}  // namespace arete::ops

ARETE_FAMILY(window)
