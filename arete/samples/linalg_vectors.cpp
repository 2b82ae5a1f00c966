// Samples, references and errors of the records in ops/linalg_vectors.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

Tensor cross_reference(const Tensor& x, const Tensor& y, int64_t dim) {
  const Shape sizes = broadcast_shapes(x.sizes(), y.sizes(), "");
  const size_t d = size_t(normalize_dim(dim, int(x.dim()), "cross"));
  return build_tensor(
      sizes,
      [&](const Shape& i) {
        Shape a = i, b = i;
        a[d] = (i[d] + 1) % 3;
        b[d] = (i[d] + 2) % 3;
        return at(x, a) * at(y, b) - at(x, b) * at(y, a);
      },
      x.dtype());
}

const Attached cross_along_op =
    attach("cross_along")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3}), m.make({3}), 0}},
                  {{m.make_strided({2, 3, 2}), m.make({2, 3, 1}), 1}, "broadcast, strided"},
                  {{m.make({0, 3}), m.make({0, 3}), 1}, "empty"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {cross_reference(c.tensor(0), c.tensor(1), c.integer(2))};
        });
const Attached linalg_cross_op =
    attach("linalg_cross")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3}), m.make({3}), -1}},
                  {{m.make({2, 3}), m.make({1, 3}), 1}, "broadcast"},
                  {{m.make({3, 2}), m.make({3, 2}), 0}, "columns"},
                  {{m.make({0, 3}), m.make({0, 3}), -1}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({2, 3}), 0},
                   ErrorKind::value,
                   "linalg.cross: inputs dimension 0 must have length 3. Got 2 and 2"},
                  {{m.make({3}).gt(Scalar(0)), m.make({3}).gt(Scalar(0)), -1},
                   ErrorKind::not_implemented,
                   "\"cross\" not implemented for 'Bool'"},
                  {{m.make({2, 3}), m.make({3}), -1},
                   ErrorKind::value,
                   "linalg.cross: inputs must have the same number of dimensions."}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {cross_reference(c.tensor(0), c.tensor(1), c.integer(2))};
        });
const Attached cross_op =
    attach("cross")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3, 3}), m.make({2, 3, 3}), std::nullopt}},
                  {{m.make({2, 3}), m.make({2, 3}), -1}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 4}), m.make({2, 4}), std::nullopt},
                   ErrorKind::value,
                   "no dimension of size 3 in input"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const IntList sizes = c.tensor(0).sizes();
          const int64_t dim = c.has(2) ? c.integer(2) : std::ranges::find(sizes, 3) - sizes.begin();
          return {cross_reference(c.tensor(0), c.tensor(1), dim)};
        });
const Attached powers_op =
    attach("powers")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), 5}},           {{m.make({3}), 2}},
                  {{m.make({3}), 1}, "ones only"}, {{m.make({3}), 0}, "no columns"},
                  {{m.make({0}), 3}, "nothing"},   {{m.make({}), 3}, "0-d"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          return {build_tensor(
              with_sizes(x.sizes(), {c.integer(1)}),
              [&](const Shape& i) {
                return std::pow(at(x, IntList(i).first(i.size() - 1)), double(i.back()));
              },
              x.dtype())};
        });
const Attached linalg_vander_op =
    attach("linalg_vander")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3}), std::nullopt}},
                  {{m.make({2, 2}), 4}, "batch"},
                  {{m.make({}), 3}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), 1}, ErrorKind::value, "N must be greater than 1."}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const int64_t n = c.has(1) ? c.integer(1) : x.size(-1);
          return {build_tensor(
              with_sizes(x.dim() ? x.sizes() : IntList({1}), {n}),
              [&](const Shape& i) {
                return std::pow(at(x, IntList(i).first(i.size() - 1)), double(i.back()));
              },
              x.dtype())};
        });
const Attached vander_op =
    attach("vander")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3}), std::nullopt, false}},
                  {{m.make({3}), 2, true}, "increasing"},
                  {{m.make({3}), 0, false}, "no columns"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2}), std::nullopt, false},
                   ErrorKind::value,
                   "x must be a one-dimensional tensor."}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const int64_t n = c.has(1) ? c.integer(1) : x.size(0);
          return {build_tensor(
              {x.size(0), n},
              [&](const Shape& i) {
                return std::pow(at(x, {i[0]}), double(c.boolean(2) ? i[1] : n - 1 - i[1]));
              },
              x.dtype())};
        });
const Attached linalg_vecdot_op =
    attach("linalg_vecdot")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3}), m.make({3}), -1}},
                  {{m.make({2, 3}), m.make({3}), 1}, "broadcast"},
                  {{m.make({3, 2}), m.make({3, 1}), 0}, "columns"},
                  {{m.make({2, 0}), m.make({2, 0}), -1}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), m.make({3}).to(kFloat64), -1},
                   ErrorKind::type,
                   "linalg.vecdot: Expected x and y to have the same dtype"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x = c.tensor(0), &y = c.tensor(1);
          const Shape full = broadcast_shapes(x.sizes(), y.sizes(), "");
          const size_t d = size_t(normalize_dim(c.integer(2), int(full.size()), ""));
          Shape sizes = full;
          sizes.erase(sizes.begin() + int64_t(d));
          return {build_tensor(sizes, [&](const Shape& i) {
            double sum = 0;
            Shape j = i;
            j.insert(j.begin() + int64_t(d), 0);
            for (j[d] = 0; j[d] < full[d]; ++j[d]) sum += at(x, j) * at(y, j);
            return sum;
          })};
        });
const Attached linalg_diagonal_op =
    attach("linalg_diagonal")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 3}), 0, -2, -1}}, {{m.make({2, 3, 4}), 1, 0, 2}, "offset, dims"}};
        })
        .no_reference("diagonal has one");
const Attached linalg_matmul_op = attach("linalg_matmul")
                                      .samples([](SampleMaker& m) -> std::vector<Sample> {
                                        return {{{m.make({2, 3}), m.make({3, 2})}}};
                                      })
                                      .no_reference("matmul has one");
const Attached vdot_op = attach("vdot")
                             .samples([](SampleMaker& m) -> std::vector<Sample> {
                               return {{{m.make({3}), m.make({3})}}};
                             })
                             .no_reference("dot has one");
const Attached ger_op = attach("ger")
                            .samples([](SampleMaker& m) -> std::vector<Sample> {
                              return {{{m.make({3}), m.make({2})}}};
                            })
                            .no_reference("outer has one");

}  // namespace
}  // namespace arete::ops
