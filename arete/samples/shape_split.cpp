// Samples, references and errors of the records in ops/shape_split.cpp.
#include <algorithm>

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using Refs = std::vector<Tensor>;

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

const Attached split_op =
    attach("split")
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
const Attached split_with_sizes_op =
    attach("split_with_sizes")
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
const Attached unbind_op =
    attach("unbind")
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
const Attached chunk_op =
    attach("chunk")
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
const Attached tensor_split_op =
    attach("tensor_split")
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
const Attached tensor_split_indices_op =
    attach("tensor_split.indices")
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
const Attached tensor_split_tensor_op =
    attach("tensor_split.tensor_indices_or_sections")
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
          const OpRecord& op =
              *find_record(c.tensor(1).dim() ? "tensor_split.indices" : "tensor_split");
          return samples_of(op).reference(Call(op, args));
        });

}  // namespace
}  // namespace arete::ops
