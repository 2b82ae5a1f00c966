// Views with several results.
#include <algorithm>

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/reference_util.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

using Refs = std::vector<Tensor>;

int dim_of(const Call& c, size_t arg) {
  return normalize_dim(c.integer(arg), int(c.tensor(0).dim()), c.name());
}

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

Refs reference_cut(const Call& c, int dim, IntList lengths) {
  Refs out;
  int64_t start = 0;
  for (int64_t n : lengths) {
    Shape sizes(c.tensor(0).sizes());
    sizes[dim] = n;
    out.push_back(build_tensor(sizes, [&](Shape i) {
      i[dim] += start;
      return at(c.tensor(0), i);
    }));
    start += n;
  }
  return out;
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
        })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({5, 2}), 2, 0}, "rest"},
                                     {{m.make_strided({2, 4}), 2, -1}, "even"},
                                     {{m.make({0, 2}), 3, 0}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({4}), -1, 0},
               ErrorKind::value,
               "split expects split_size be non-negative, but got split_size=-1"},
              {{m.make({4}), 0, 0},
               ErrorKind::value,
               "split_size can only be 0 if dimension size is 0"},
              {{m.make({}), 1, 0},
               ErrorKind::value,
               "split expects at least a 1-dimensional tensor"}};
        })
        .reference([](const Call& c) {
          const int d = dim_of(c, 2);
          Shape lengths;
          const int64_t n = c.tensor(0).sizes()[size_t(d)];
          for (int64_t at = 0; at < n; at += c.integer(1))
            lengths.push_back(std::min(c.integer(1), n - at));
          if (lengths.empty()) lengths.push_back(0);
          return reference_cut(c, d, lengths);
        });

const OpRecord& split_with_sizes_op =
    define("split_with_sizes(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]")
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
        })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({5, 2}), {1, 4}, 0}, "usual"},
              {{m.make_strided({2, 4}), {2, 0, 2}, -1}, "with an empty piece"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({4}), {1, 2}, 0},
               ErrorKind::value,
               "split_with_sizes expects split_sizes to sum exactly to 4 (input tensor's size at "
               "dimension 0), but got split_sizes=[1, 2]"}};
        })
        .reference([](const Call& c) { return reference_cut(c, dim_of(c, 2), c.ints(1)); });

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
        })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({3, 2}), 0}, "usual"},
                                     {{m.make_strided({2, 3}), -1}, "negative"},
                                     {{m.make({2}), 0}, "to 0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({}), 0}, ErrorKind::index, "Dimension specified as 0 but tensor has no dim"},
              {{m.make({2}), 1}, ErrorKind::index, "Dimension out of range"}};
        })
        .reference([](const Call& c) {
          const int d = dim_of(c, 1);
          Shape sizes(c.tensor(0).sizes());
          const int64_t n = sizes[d];
          sizes.erase(sizes.begin() + d);
          Refs out;
          for (int64_t k = 0; k < n; ++k)
            out.push_back(build_tensor(sizes, [&](Shape i) {
              i.insert(i.begin() + d, k);
              return at(c.tensor(0), i);
            }));
          return out;
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
        })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({5, 2}), 2, 0}, "rest"},
                                     {{m.make_strided({2, 6}), 4, -1}, "fewer"},
                                     {{m.make({0}), 2, 0}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({4}), 0, 0},
                                           ErrorKind::value,
                                           "chunk expects `chunks` to be greater than 0, got: 0"}};
        })
        .reference([](const Call& c) {
          const int d = dim_of(c, 2);
          const int64_t n = c.tensor(0).size(d), k = c.integer(1), size = (n + k - 1) / k;
          Shape lengths;
          if (size == 0) lengths.resize(size_t(k), 0);
          for (int64_t at = 0; at < n; at += size) lengths.push_back(std::min(size, n - at));
          return reference_cut(c, d, lengths);
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
        })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({5, 2}), 3, 0}, "rows"},
                                     {{m.make_strided({2, 3}), 4, -1}, "an empty piece"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({4}), 0, 0},
                                           ErrorKind::value,
                                           "number of sections must be larger than 0, got 0"}};
        })
        .reference([](const Call& c) {
          const int d = dim_of(c, 2);
          const int64_t n = c.tensor(0).size(d);
          Shape lengths;
          for (int64_t i = 0; i < c.integer(1); ++i)
            lengths.push_back(n / c.integer(1) + (i < n % c.integer(1)));
          return reference_cut(c, d, lengths);
        });

const OpRecord& tensor_split_indices_op =
    define("tensor_split_indices(Tensor self, int[] indices, int dim=0) -> Tensor[]")
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
        })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 5}), {1, 3}, -1}, "usual"},
                                     {{m.make_strided({4}), {3, 1, 9}, 0}, "empty pieces"},
                                     {{m.make({3}), std::vector<int64_t>{}, 0}, "whole"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({}), {1}, 0}, ErrorKind::value, "expects at least a 1-dimensional tensor"}};
        })
        .reference([](const Call& c) {
          const int d = dim_of(c, 2);
          const Tensor& x = c.tensor(0);
          const int64_t n = x.size(d);
          Refs out;
          int64_t start = 0;
          for (size_t k = 0; k <= c.ints(1).size(); ++k) {
            const int64_t stop = k < c.ints(1).size() ? std::min(c.ints(1)[k], n) : n;
            Shape sizes(x.sizes());
            sizes[d] = std::max<int64_t>(stop - start, 0);
            out.push_back(build_tensor(sizes, [&](Shape i) {
              i[d] += start;
              return at(x, i);
            }));
            start = stop;
          }
          return out;
        });

const OpRecord& tensor_split_tensor_op =
    define(
        "tensor_split_tensor(Tensor self, Tensor tensor_indices_or_sections, int dim=0) -> "
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
        })
        .samples([](SampleMaker& m) {
          const TensorOptions o(kInt64, m.device);
          return std::vector<Sample>{{{m.make({5, 2}), tensor(3, o), 0}, "sections"},
                                     {{m.make_strided({2, 5}), tensor({1, 3}, o), -1}, "indices"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({4}), m.make_index({1, 1}, 2), 0},
               ErrorKind::value,
               "tensor_split expected tensor_indices_or_sections to be "
               "a zero-dimensional or one-dimensional tensor"},
              {{m.make({4}), m.make({1}), 0}, ErrorKind::type, "to have dtype of long"}};
        })
        .reference([](const Call& c) {
          const std::vector<double> v = values_of(c.tensor(1));
          const std::vector<int64_t> whole(v.begin(), v.end());
          const Arg by = c.tensor(1).dim() ? Arg(IntList(whole)) : Arg(whole[0]);
          const Arg args[] = {c[0], by, c[2]};
          const OpRecord& op = c.tensor(1).dim() ? tensor_split_indices_op : tensor_split_op;
          return op.reference(Call(op, args));
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
