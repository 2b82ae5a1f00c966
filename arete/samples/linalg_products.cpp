// Samples, references and errors of the records in ops/linalg_products.cpp.
#include <algorithm>

#include "arete/ops/linalg.h"
#include "arete/ops/shape.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached tensordot_op =
    attach("tensordot")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{m.make({2, 3}), m.make({3, 4}), {1}, {0}}, "matrices"},
              {{m.make({2, 3, 4}), m.make({4, 2, 3}), {2, 0}, {0, 1}}, "two dims"},
              {{m.make({2, 3}), m.make({2, 3}), {0, -1}, {0, 1}}, "all"},
              {{m.make({2}), m.make({3}), std::vector<int64_t>{}, std::vector<int64_t>{}}, "none"},
              {{m.make({2, 1}), m.make({3, 2}), {1}, {0}}, "broadcast"},
              {{m.make({2, 0}), m.make({0, 3}), {1}, {0}}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({4, 2}), {1}, {0}},
                   ErrorKind::value,
                   "contracted dimensions need to match, but first has size 3 in dim 1 and second "
                   "has size 4 in dim 0"},
                  {{m.make({2, 3}), m.make({3, 2}), {1}, {0, 1}},
                   ErrorKind::value,
                   "both dimension lists should have same length"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          const auto dims_of = [](IntList given, int64_t rank) {
            Shape dims(given);
            for (int64_t& d : dims) d += d < 0 ? rank : 0;
            return dims;
          };
          const Shape da = dims_of(c.ints(2), a.dim()), db = dims_of(c.ints(3), b.dim());
          Shape sizes, inner;
          std::vector<size_t> ra, rb;
          const auto rest = [&](const Tensor& t, const Shape& dims, std::vector<size_t>& left) {
            for (int64_t d = 0; d < t.dim(); ++d) {
              if (std::find(dims.begin(), dims.end(), d) != dims.end()) continue;
              left.push_back(size_t(d));
              sizes.push_back(t.size(d));
            }
          };
          rest(a, da, ra);
          rest(b, db, rb);
          for (size_t i = 0; i < da.size(); ++i)
            inner.push_back(std::max(a.size(da[i]), b.size(db[i])));
          return {build_tensor(sizes, [&](const Shape& i) {
            Shape x(size_t(a.dim()), 0), y(size_t(b.dim()), 0);
            for (size_t k = 0; k < ra.size(); ++k) x[ra[k]] = i[k];
            for (size_t k = 0; k < rb.size(); ++k) y[rb[k]] = i[ra.size() + k];
            double sum = 0;
            for_each_index(inner, [&](const Shape& j) {
              for (size_t k = 0; k < j.size(); ++k) x[size_t(da[k])] = y[size_t(db[k])] = j[k];
              sum += at(a, x) * at(b, y);
            });
            return sum;
          })};
        });
const Attached kron_op = attach("kron")
                             .samples([](SampleMaker& m) -> std::vector<Sample> {
                               return {{{m.make({2, 2}), m.make({1, 3})}},
                                       {{m.make({2}), m.make({2, 3})}, "ranks differ"},
                                       {{m.make({2, 3, 1}), m.make({2})}, "ranks differ"},
                                       {{m.make({}), m.make({2})}, "0-d"},
                                       {{m.make({0, 2}), m.make({2, 2})}, "empty"}};
                             })
                             .reference([](const Call& c) -> std::vector<Tensor> {
                               const Tensor &a = c.tensor(0), &b = c.tensor(1);
                               const size_t rank = size_t(std::max(a.dim(), b.dim()));
                               const auto size = [&](const Tensor& t, size_t d) {
                                 const size_t lead = rank - size_t(t.dim());
                                 return d < lead ? int64_t(1) : t.sizes()[d - lead];
                               };
                               Shape sizes;
                               for (size_t d = 0; d < rank; ++d)
                                 sizes.push_back(size(a, d) * size(b, d));
                               return {build_tensor(
                                   sizes,
                                   [&](const Shape& i) {
                                     Shape x = i, y = i;
                                     for (size_t d = 0; d < rank; ++d) {
                                       x[d] = i[d] / size(b, d);
                                       y[d] = i[d] % size(b, d);
                                     }
                                     return at(a, x) * at(b, y);
                                   },
                                   a.dtype())};
                             });
const Attached inner_op =
    attach("inner")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3}), m.make({3})}},
                  {{m.make({2, 3}), m.make({4, 2, 3})}},
                  {{m.make({}), m.make({2})}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({2})},
                   ErrorKind::value,
                   "inner() the last dimension must match on both input tensors but got shapes [2, "
                   "3] and [2]"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          Shape sizes;
          if (a.dim() == 0 || b.dim() == 0)
            return {build_tensor(a.dim() ? a.sizes() : b.sizes(),
                                 [&](const Shape& i) { return at(a, i) * at(b, i); })};
          for (int64_t d = 0; d + 1 < a.dim(); ++d) sizes.push_back(a.size(d));
          for (int64_t d = 0; d + 1 < b.dim(); ++d) sizes.push_back(b.size(d));
          return {build_tensor(sizes, [&](const Shape& i) {
            double sum = 0;
            for (int64_t k = 0; k < a.size(-1); ++k) {
              Shape x(IntList(i).first(size_t(a.dim() - 1))),
                  y(IntList(i).subspan(size_t(a.dim() - 1)));
              x.push_back(k);
              y.push_back(k);
              sum += at(a, x) * at(b, y);
            }
            return sum;
          })};
        });

std::vector<Tensor> addend_reference(const Call& c, IntList sizes,
                                     const std::function<double(const Shape&)>& product) {
  const double beta = c.real(3), alpha = c.real(4);
  return {build_tensor(
      sizes,
      [&](const Shape& i) {
        return alpha * product(i) + (beta == 0 ? 0 : beta * at(c.tensor(0), i));
      },
      c.tensor(1).dtype())};
}

const Attached addmv_op =
    attach("addmv")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2}), m.make({2, 3}), m.make({3}), Scalar(1), Scalar(1)}},
                  {{m.make({}), m.make({2, 3}), m.make({3}), Scalar(0.5), Scalar(2)}, "0-d self"},
                  {{m.make({2}), m.make_strided({2, 3}), m.make({3}), Scalar(0), Scalar(1)}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), m.make({2, 3}), m.make({2}), Scalar(1), Scalar(1)},
                   ErrorKind::value,
                   "size mismatch, got input (2), mat (2x3), vec (2)"}};
        })
        .reference([](const Call& c) {
          const Tensor &a = c.tensor(1), &b = c.tensor(2);
          return addend_reference(c, {a.size(0)}, [&](const Shape& i) {
            double sum = 0;
            for (int64_t k = 0; k < a.size(1); ++k) sum += at(a, {i[0], k}) * at(b, {k});
            return sum;
          });
        });
const Attached addr_op =
    attach("addr")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({2}), m.make({3}), Scalar(1), Scalar(1)}},
                  {{m.make({3}), m.make({2}), m.make({3}), Scalar(3), Scalar(2)}, "broadcast"},
                  {{m.make({2, 3}), m.make({2}), m.make({3}), Scalar(0), Scalar(1)}, "beta 0"},
                  {{m.make_mask({2, 3}), m.make_mask({2}), m.make_mask({3}), true, true}, "bool"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({2, 1}), m.make({3}), Scalar(1), Scalar(1)},
                   ErrorKind::value,
                   "addr: Expected 1-D argument vec1, but got 2-D"}};
        })
        .reference([](const Call& c) {
          const Tensor &a = c.tensor(1), &b = c.tensor(2);
          if (a.dtype() == kBool)
            return std::vector<Tensor>{build_tensor(
                {a.size(0), b.size(0)},
                [&](const Shape& i) {
                  return at(c.tensor(0), i) != 0 || (at(a, {i[0]}) != 0 && at(b, {i[1]}) != 0);
                },
                kBool)};
          return addend_reference(c, {a.size(0), b.size(0)},
                                  [&](const Shape& i) { return at(a, {i[0]}) * at(b, {i[1]}); });
        });
const Attached addbmm_op =
    attach("addbmm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 2}), m.make({3, 2, 2}), m.make({3, 2, 2}), Scalar(1), Scalar(1)}},
                  {{m.make({2}), m.make({2, 1, 3}), m.make({2, 3, 2}), Scalar(0.5), Scalar(2)},
                   "broadcast"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2}), m.make({2, 2, 2}), m.make({3, 2, 2}), Scalar(1), Scalar(1)},
                   ErrorKind::value,
                   "batch1 and batch2 must have same number of batches, got 2 and 3"},
                  {{m.make({2, 2}), m.make({2, 2, 3}), m.make({2, 2, 2}), Scalar(1), Scalar(1)},
                   ErrorKind::value,
                   "Incompatible matrix sizes for bmm (2x3 and 2x2)"}};
        })
        .reference([](const Call& c) {
          const Tensor &a = c.tensor(1), &b = c.tensor(2);
          return addend_reference(c, {a.size(1), b.size(2)}, [&](const Shape& i) {
            double sum = 0;
            for (int64_t n = 0; n < a.size(0); ++n)
              for (int64_t k = 0; k < a.size(2); ++k)
                sum += at(a, {n, i[0], k}) * at(b, {n, k, i[1]});
            return sum;
          });
        });
const Attached trace_op =
    attach("trace")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 3})}}, {{m.make({2, 4})}, "wide"}, {{m.make({0, 2})}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3})}, ErrorKind::value, "trace: expected a matrix"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& a = c.tensor(0);
          double sum = 0;
          for (int64_t i = 0; i < std::min(a.size(0), a.size(1)); ++i) sum += at(a, {i, i});
          return {from_values({sum}, {}, a.dtype())};
        });

}  // namespace
}  // namespace arete::ops
