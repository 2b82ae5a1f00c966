// A copy of a tensor in which what a view would show is replaced.
#include <algorithm>

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

std::optional<int64_t> optional_int(const Arg& a) {
  if (a.is_none()) return std::nullopt;
  return a.integer();
}

// src, of the sizes of `part`, is written into it.
void write(const Call& c, Tensor part, const Tensor& src, const char* what) {
  ARETE_CHECK(std::ranges::equal(part.sizes(), src.sizes()),
              ValueError(c.name(), std::string("expected src to have a size equal to the ") + what +
                                       " of self. src size = " + to_string(src.sizes()) + ", " +
                                       what + " size = " + to_string(part.sizes()))
                  .argument("src"));
  part.copy_(src);
}

Tensor part_select(const Call& c, const Tensor& t) { return select(t, c.integer(2), c.integer(3)); }
Tensor part_slice(const Call& c, const Tensor& t) {
  return slice(t, c.integer(2), optional_int(c[3]), optional_int(c[4]), c.integer(5));
}
Tensor part_diagonal(const Call& c, const Tensor& t) {
  return diagonal(t, c.integer(2), c.integer(3), c.integer(4));
}

const OpRecord& select_scatter_op =
    define("select_scatter(Tensor self, Tensor src, int dim, int index) -> Tensor")
        .doc("self with one index of a dimension replaced by src.")
        .compose([](const Call& c) -> Results {
          const Tensor out = c.tensor(0).clone();
          write(c, part_select(c, out), c.tensor(1), "slice");
          return {out};
        });

const OpRecord& slice_scatter_op =
    define(
        "slice_scatter(Tensor self, Tensor src, int dim=0, int? start=None, int? end=None, int "
        "step=1) -> Tensor")
        .doc("self with Python's start:end:step along a dimension replaced by src.")
        .compose([](const Call& c) -> Results {
          const Tensor out = c.tensor(0).clone();
          write(c, part_slice(c, out), c.tensor(1), "slice");
          return {out};
        });

const OpRecord& diagonal_scatter_op =
    define(
        "diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> "
        "Tensor")
        .doc("self with the diagonal of two dimensions replaced by src.")
        .compose([](const Call& c) -> Results {
          const Tensor out = c.tensor(0).clone();
          write(c, part_diagonal(c, out), c.tensor(1), "diagonal");
          return {out};
        });

// The window lies on self's storage, so a copy of the storage is what is written.
const OpRecord& as_strided_scatter_op =
    define(
        "as_strided_scatter(Tensor self, Tensor src, int[] size, int[] stride, int? "
        "storage_offset=None) -> Tensor")
        .doc("self with a window on its storage replaced by src.")
        .compose([](const Call& c) -> Results {
          const Tensor& self = c.tensor(0);
          const int64_t offset = c.has(4) ? c.integer(4) : self.storage_offset();
          const int64_t total = int64_t(self.storage()->bytes() / self.element_size());
          if (self.is_contiguous() && total == self.numel()) {
            const Tensor out = self.clone();
            write(c, as_strided(out, c.ints(2), c.ints(3), offset), c.tensor(1), "slice");
            return {out};
          }
          const Tensor memory = as_strided(self, {total}, {1}, 0).clone();
          write(c, as_strided(memory, c.ints(2), c.ints(3), offset), c.tensor(1), "slice");
          return {as_strided(memory, self.sizes(), self.strides(), self.storage_offset())};
        });

}  // namespace
}  // namespace ops

Tensor select_scatter(const Tensor& self, const Tensor& src, int64_t dim, int64_t index) {
  return ops::call(ops::select_scatter_op, {self, src, dim, index});
}
Tensor slice_scatter(const Tensor& self, const Tensor& src, int64_t dim,
                     std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step) {
  return ops::call(ops::slice_scatter_op, {self, src, dim, start, stop, step});
}
Tensor diagonal_scatter(const Tensor& self, const Tensor& src, int64_t offset, int64_t dim1,
                        int64_t dim2) {
  return ops::call(ops::diagonal_scatter_op, {self, src, offset, dim1, dim2});
}
Tensor as_strided_scatter(const Tensor& self, const Tensor& src, IntList sizes, IntList strides,
                          std::optional<int64_t> offset) {
  return ops::call(ops::as_strided_scatter_op, {self, src, sizes, strides, offset});
}

}  // namespace arete

ARETE_FAMILY(view_scatter)
