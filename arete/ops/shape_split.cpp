// Views with several results.
#include <algorithm>

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

// ---- split, unbind

// Pieces of `size` of a dimension of `total`; there is always one.
Shape equal_lengths(int64_t size, int64_t total) {
  Shape lengths;
  int64_t rest = total;
  do {
    lengths.push_back(size == 0 ? rest : std::min(size, rest));
    rest -= lengths.back();
  } while (rest > 0);
  return lengths;
}

std::vector<Layout> cut(const Layout& l, int dim, IntList lengths) {
  std::vector<Layout> out;
  int64_t start = 0;
  for (int64_t n : lengths) {
    out.push_back(arete::narrow(l, dim, start, n));
    start += n;
  }
  return out;
}

void check_not_0d(const Call& c) {
  ARETE_CHECK(
      c.tensor(0).dim() > 0,
      ValueError(c.name(), std::string(c.name()) + " expects at least a 1-dimensional tensor"));
}

// Pieces without a gradient count as zero.
TensorList joined_gradient(const GradCall& g, int dim, IntList lengths) {
  std::vector<Tensor> parts;
  TensorOptions options;
  for (size_t i = 0; i < lengths.size(); ++i)
    if (g.grad(i).defined()) options = g.grad(i).options();
  for (size_t i = 0; i < lengths.size(); ++i) {
    Shape sizes(g.input_sizes(0));
    sizes[dim] = lengths[i];
    parts.push_back(g.grad(i).defined() ? g.grad(i) : zeros(sizes, options));
  }
  return {cat(parts, dim)};
}

const OpRecord& split_op =
    define("split(Tensor self, int split_size, int dim=0) -> Tensor[]")
        .doc("Pieces of one size along a dimension.")
        .views([](const Call& c) {
          check_not_0d(c);
          const int d = dim_of(c, 2);
          const int64_t size = c.integer(1), n = c.tensor(0).sizes()[size_t(d)];
          ARETE_CHECK(size >= 0, ValueError(c.name(),
                                            "split expects split_size be non-negative, but "
                                            "got split_size=" +
                                                std::to_string(size)));
          ARETE_CHECK(size > 0 || n == 0,
                      ValueError(c.name(),
                                 "split_size can only be 0 if dimension size is 0, but got "
                                 "dimension size of " +
                                     std::to_string(n)));
          return cut(c.tensor(0).layout(), d, equal_lengths(size, n));
        })
        .grad([](const GradCall& g) {
          const IntList sizes = g.input_sizes(0);
          const int d = normalize_dim(g.integer(2), int(sizes.size()), "split");
          return joined_gradient(g, d, equal_lengths(g.integer(1), sizes[size_t(d)]));
        });

const OpRecord& split_with_sizes_op =
    define("split_with_sizes(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]")
        .face("split.sizes(Tensor self, int[] split_sizes, int dim=0)")
        .doc("Pieces of given sizes along a dimension.")
        .views([](const Call& c) {
          check_not_0d(c);
          const int d = dim_of(c, 2);
          const int64_t n = c.tensor(0).sizes()[size_t(d)];
          int64_t sum = 0;
          for (int64_t s : c.ints(1)) {
            ARETE_CHECK(s >= 0 && s <= n, ValueError(c.name(),
                                                     "split_with_sizes expects split_sizes "
                                                     "have only non-negative entries that "
                                                     "fit the dimension")
                                              .got(to_string(c.ints(1))));
            sum += s;
          }
          ARETE_CHECK(
              sum == n,
              ValueError(c.name(),
                         "split_with_sizes expects split_sizes to sum "
                         "exactly to " +
                             std::to_string(n) + " (input tensor's size at dimension " +
                             std::to_string(d) + "), but got split_sizes=" + to_string(c.ints(1))));
          return cut(c.tensor(0).layout(), d, c.ints(1));
        })
        .grad([](const GradCall& g) {
          const int rank = int(g.input_sizes(0).size());
          return joined_gradient(g, normalize_dim(g.integer(2), rank, "split"), g.ints(1));
        });

const OpRecord& unbind_op =
    define("unbind(Tensor self, int dim=0) -> Tensor[]")
        .doc("All slices along a dimension, without it.")
        .views([](const Call& c) {
          ARETE_CHECK(
              c.tensor(0).dim() > 0,
              IndexError(c.name(), "Dimension specified as " + std::to_string(c.integer(1)) +
                                       " but tensor has no dimensions"));
          const int d = dim_of(c, 1);
          std::vector<Layout> out;
          for (int64_t i = 0; i < c.tensor(0).sizes()[size_t(d)]; ++i)
            out.push_back(arete::select(c.tensor(0).layout(), d, i));
          return out;
        })
        .grad([](const GradCall& g) -> TensorList {
          Shape sizes(g.input_sizes(0));
          const int d = normalize_dim(g.integer(1), int(sizes.size()), "unbind");
          const size_t n = size_t(sizes[d]);
          sizes.erase(sizes.begin() + d);
          TensorOptions options;
          for (size_t i = 0; i < n; ++i)
            if (g.grad(i).defined()) options = g.grad(i).options();
          std::vector<Tensor> parts;
          for (size_t i = 0; i < n; ++i)
            parts.push_back(g.grad(i).defined() ? g.grad(i) : zeros(sizes, options));
          return {stack(parts, d)};
        });

TensorList list_of(const std::vector<Tensor>& v) { return TensorList(v.begin(), v.end()); }

const OpRecord& chunk_op =
    define("chunk(Tensor self, int chunks, int dim=0) -> Tensor[]")
        .doc("At most so many pieces of equal size; the last may be smaller.")
        .compose([](const Call& c) -> Results {
          check_not_0d(c);
          const int64_t chunks = c.integer(1), n = c.tensor(0).size(dim_of(c, 2));
          ARETE_CHECK(chunks > 0, ValueError(c.name(),
                                             "chunk expects `chunks` to be greater than 0, "
                                             "got: " +
                                                 std::to_string(chunks)));
          const int64_t size = n / chunks + (n % chunks != 0);
          if (size > 0) return list_of(arete::split(c.tensor(0), size, c.integer(2)));
          const Shape none(size_t(chunks), 0);
          return list_of(arete::split(c.tensor(0), IntList(none), c.integer(2)));
        });

const OpRecord& tensor_split_op =
    define("tensor_split(Tensor self, int sections, int dim=0) -> Tensor[]")
        .doc("So many pieces, the first ones larger by one where it does not divide.")
        .compose([](const Call& c) -> Results {
          check_not_0d(c);
          const Tensor& x = c.tensor(0);
          const int d = dim_of(c, 2);
          const int64_t n = x.size(d), sections = c.integer(1);
          ARETE_CHECK(sections > 0, ValueError(c.name(),
                                               "number of sections must be larger than 0, "
                                               "got " +
                                                   std::to_string(sections)));
          Shape lengths(size_t(sections), n / sections);
          for (int64_t i = 0; i < n % sections; ++i) ++lengths[size_t(i)];
          return list_of(arete::split(x, IntList(lengths), d));
        });

const OpRecord& tensor_split_indices_op =
    define("tensor_split.indices(Tensor self, int[] indices, int dim=0) -> Tensor[]")
        .doc("Cut before each of the indices; pieces may be empty.")
        .compose([](const Call& c) -> Results {
          check_not_0d(c);
          const Tensor& x = c.tensor(0);
          const int d = dim_of(c, 2);
          Results out;
          // As Python's slices: bounds are clamped.
          std::optional<int64_t> start = 0;
          for (int64_t stop : c.ints(1)) {
            out.push_back(slice(x, d, start, stop));
            start = stop;
          }
          out.push_back(slice(x, d, start));
          return out;
        });

const OpRecord& tensor_split_tensor_op =
    define(
        "tensor_split.tensor_indices_or_sections(Tensor self, Tensor tensor_indices_or_sections, "
        "int dim=0) -> "
        "Tensor[]")
        .doc("tensor_split by a 0-d tensor (sections) or a 1-d one (indices), read on the host.")
        .compose([](const Call& c) -> Results {
          const Tensor& t = c.tensor(1);
          ARETE_CHECK(t.dim() <= 1,
                      ValueError(c.name(),
                                 "tensor_split expected tensor_indices_or_sections to be a "
                                 "zero-dimensional or one-dimensional tensor, but got a tensor "
                                 "with " +
                                     std::to_string(t.dim()) + " dims"));
          ARETE_CHECK(t.dtype() == kInt64,
                      TypeError(c.name(),
                                "tensor_split expected tensor_indices_or_sections to have dtype of "
                                "long, but got " +
                                    std::string(name_of(t.dtype()))));
          if (t.dim() == 0)
            return list_of(arete::tensor_split(c.tensor(0), t.item<int64_t>(), c.integer(2)));
          const std::vector<int64_t> indices = t.to_vector<int64_t>();
          return list_of(arete::tensor_split(c.tensor(0), IntList(indices), c.integer(2)));
        });

}  // namespace

namespace {
std::vector<Tensor> vector_of(const Results& r) { return {r.begin(), r.end()}; }
}  // namespace
}  // namespace ops

std::vector<Tensor> split(const Tensor& self, int64_t size, int64_t dim) {
  return ops::vector_of(ops::call_all(ops::split_op, {self, size, dim}));
}
std::vector<Tensor> split(const Tensor& self, IntList sizes, int64_t dim) {
  return ops::vector_of(ops::call_all(ops::split_with_sizes_op, {self, sizes, dim}));
}
std::vector<Tensor> unbind(const Tensor& self, int64_t dim) {
  return ops::vector_of(ops::call_all(ops::unbind_op, {self, dim}));
}
std::vector<Tensor> chunk(const Tensor& self, int64_t chunks, int64_t dim) {
  return ops::vector_of(ops::call_all(ops::chunk_op, {self, chunks, dim}));
}
std::vector<Tensor> tensor_split(const Tensor& self, int64_t sections, int64_t dim) {
  return ops::vector_of(ops::call_all(ops::tensor_split_op, {self, sections, dim}));
}
std::vector<Tensor> tensor_split(const Tensor& self, IntList indices, int64_t dim) {
  return ops::vector_of(ops::call_all(ops::tensor_split_indices_op, {self, indices, dim}));
}
std::vector<Tensor> Tensor::split(int64_t size, int64_t dim) const {
  return arete::split(*this, size, dim);
}
std::vector<Tensor> Tensor::split(IntList sizes, int64_t dim) const {
  return arete::split(*this, sizes, dim);
}
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim) const {
  return arete::chunk(*this, chunks, dim);
}
std::vector<Tensor> Tensor::unbind(int64_t dim) const { return arete::unbind(*this, dim); }

}  // namespace arete

ARETE_FAMILY(shape_split)
