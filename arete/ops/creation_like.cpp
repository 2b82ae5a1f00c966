// Creation with the options of another tensor (new_*), in a given memory order, and from tensors.
#include <algorithm>

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/vmap_internal.h"

namespace arete {
namespace ops {
namespace {

// self's dtype and device, unless arguments `first` and `first + 1` say otherwise.
TensorOptions options_of(const Call& c, size_t first) {
  TensorOptions o = c.tensor(0).options();
  if (c.has(first)) o = o.dtype(c[first].dtype());
  if (c.has(first + 1)) o = o.device(c[first + 1].device());
  return o;
}

// What is made, where one element of a batch is seen, of a tensor of it, is one for each.
Results new_of(const Call& c, Tensor made) {
  const uint64_t level = vmaps::may_be() ? vmaps::level_of(c) : 0;
  return {level ? vmaps::one_for_each(made, level) : made};
}

const OpRecord& new_zeros_op =
    define(
        "new_zeros(Tensor self, int[] size, *, dtype? dtype=None, device? device=None) -> Tensor")
        .sparse_layout()
        .doc("Zeros with self's dtype and device.")
        .compose(
            [](const Call& c) -> Results { return new_of(c, zeros(c.ints(1), options_of(c, 2))); });

const OpRecord& new_ones_op =
    define("new_ones(Tensor self, int[] size, *, dtype? dtype=None, device? device=None) -> Tensor")
        .doc("Ones with self's dtype and device.")
        .compose(
            [](const Call& c) -> Results { return new_of(c, ones(c.ints(1), options_of(c, 2))); });

const OpRecord& new_full_op =
    define(
        "new_full(Tensor self, int[] size, Scalar fill_value, *, dtype? dtype=None, device? "
        "device=None) -> Tensor")
        .doc("All fill_value, with self's dtype and device.")
        .compose([](const Call& c) -> Results {
          return new_of(c, full(c.ints(1), c.scalar(2), options_of(c, 3)));
        });

const OpRecord& new_empty_op =
    define(
        "new_empty(Tensor self, int[] size, *, dtype? dtype=None, device? device=None) -> Tensor")
        .sparse_layout()
        .doc("Without values, with self's dtype and device.")
        .uninitialized()
        .compose(
            [](const Call& c) -> Results { return new_of(c, empty(c.ints(1), options_of(c, 2))); });

const OpRecord& new_empty_strided_op =
    define(
        "new_empty_strided(Tensor self, int[] size, int[] stride, *, dtype? dtype=None, device? "
        "device=None) -> Tensor")
        .doc("Without values and with given strides, with self's dtype and device.")
        .uninitialized()
        .compose([](const Call& c) -> Results {
          return new_of(c, empty_strided(c.ints(1), c.ints(2), options_of(c, 3)));
        });

const OpRecord& empty_permuted_op =
    define(
        "empty_permuted(int[] size, int[] physical_layout, *, dtype? dtype=None, device? "
        "device=None) -> Tensor")
        .doc("Without values; dimension physical_layout[k] is the k-th slowest in memory.")
        .uninitialized()
        .compose([](const Call& c) -> Results {
          const IntList size = c.ints(0), order = c.ints(1);
          const size_t rank = size.size();
          ARETE_CHECK(
              order.size() == rank,
              ValueError(c.name(),
                         "Number of dimensions in size does not match the length of the "
                         "physical_layout; i.e. len(size) = " +
                             std::to_string(rank) + " is not equal to len(physical_layout) = " +
                             std::to_string(order.size())));
          Shape strides(rank, -1);
          int64_t next = 1;
          for (size_t k = rank; k-- > 0;) {
            ARETE_CHECK(
                order[k] >= 0 && order[k] < int64_t(rank),
                ValueError(c.name(), "Dimension out of range (expected to be between 0 and " +
                                         std::to_string(rank - 1) + ", but got " +
                                         std::to_string(order[k]) + " at index " +
                                         std::to_string(k) + ")."));
            int64_t& stride = strides[size_t(order[k])];
            ARETE_CHECK(stride < 0, ValueError(c.name(), "Duplicate dim not allowed")
                                        .argument("physical_layout")
                                        .got(to_string(order)));
            stride = next;
            next *= std::max<int64_t>(size[size_t(order[k])], 1);
          }
          TensorOptions o;
          if (c.has(2)) o = o.dtype(c[2].dtype());
          if (c.has(3)) o = o.device(c[3].device());
          return {empty_strided(size, strides, o)};
        });

const OpRecord& scalar_tensor_op =
    define("scalar_tensor(Scalar s, *, dtype? dtype=None, device? device=None) -> Tensor")
        .doc("A 0-d tensor; without a dtype of the default one, whatever the number.")
        .compose([](const Call& c) -> Results {
          return {full({}, c.scalar(0),
                       TensorOptions(c.has(1) ? c[1].dtype() : default_dtype(),
                                     c.has(2) ? c[2].device() : kCPU))};
        });

// ---- linspace and logspace between 0-d tensors, read on the host

std::pair<Scalar, Scalar> ends(const Call& c) {
  const std::string name = c.name();
  ARETE_CHECK(
      c.tensor(0).dim() == 0 && c.tensor(1).dim() == 0,
      ValueError(c.name(), name +
                               " only supports 0-dimensional start and end tensors, but got start "
                               "with " +
                               std::to_string(c.tensor(0).dim()) + " dimension(s) and end with " +
                               std::to_string(c.tensor(1).dim()) + " dimension(s)."));
  return {c.tensor(0).item(), c.tensor(1).item()};
}
TensorOptions range_options(const Call& c, size_t first) {
  TensorOptions o(c.has(first + 1) ? c[first + 1].device() : c.tensor(0).device());
  return c.has(first) ? o.dtype(c[first].dtype()) : o;
}

const OpRecord& linspace_tensor_op =
    define(
        "linspace.Tensor_Tensor(Tensor start, Tensor end, int steps, *, dtype? dtype=None, device? "
        "device=None) -> Tensor")
        .doc("linspace between two 0-d tensors, which are read on the host.")
        .keeps_out_shape()
        .one_by_one("its ends are read on the host")
        .compose([](const Call& c) -> Results {
          const auto [start, end] = ends(c);
          return {linspace(start, end, c.integer(2), range_options(c, 3))};
        });

const OpRecord& logspace_tensor_op =
    define(
        "logspace.Tensor_Tensor(Tensor start, Tensor end, int steps, float base=10.0, *, dtype? "
        "dtype=None, device? device=None) -> Tensor")
        .doc("logspace between two 0-d tensors, which are read on the host.")
        .keeps_out_shape()
        .one_by_one("its ends are read on the host")
        .compose([](const Call& c) -> Results {
          const auto [start, end] = ends(c);
          return {logspace(start, end, c.integer(2), c.real(3), range_options(c, 4))};
        });

}  // namespace
}  // namespace ops

Tensor empty_permuted(IntList sizes, IntList physical_layout, const TensorOptions& o) {
  Tensor t = ops::call(ops::empty_permuted_op, {sizes, physical_layout, o.dtype_, o.device_});
  if (o.requires_grad_) t.requires_grad_();
  return t;
}
Tensor scalar_tensor(Scalar value, const TensorOptions& o) {
  Tensor t = ops::call(ops::scalar_tensor_op, {value, o.dtype_, o.device_});
  if (o.requires_grad_) t.requires_grad_();
  return t;
}

}  // namespace arete

ARETE_FAMILY(creation_like)
