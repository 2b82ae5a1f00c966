// Samples, references and errors of the records in ops/linalg_ldl.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached linalg_ldl_factor_ex_op =
    attach("linalg_ldl_factor_ex")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_symmetric(m, {3, 3}), false, false}},
                  {{m.make({2, 1, 4, 4}), true, false}, "indefinite, batch"},
                  {{m.make({3, 3}, 0, 0), false, false}, "zeros"},
                  {{m.make({0, 3, 3}), false, true}, "empty batch"},
                  {{m.make({2, 0, 0}), false, true}, "empty matrices"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), false, false},
                   ErrorKind::value,
                   "torch.linalg.ldl_factor_ex: A must be batches of square matrices, but they are "
                   "2 by 3 matrices"},
                  {{m.make({2, 2}, 0, 0), false, true}, ErrorKind::value, "D[1,1] is zero"}};
        })
        .no_reference("pivots are a choice: tests/op/linalg_test.cpp multiplies the factors");
const Attached linalg_ldl_factor_op =
    attach("linalg_ldl_factor")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_symmetric(m, {3, 3}), false}}, {{m.make({2, 4, 4}), false}, "batch"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2}, 0, 0), false},
                   ErrorKind::value,
                   "torch.linalg.ldl_factor: D[1,1] is zero"}};
        })
        .no_reference("linalg_ldl_factor_ex without its last result");

// The matrix whose factors these are: exchanges are undone from the last to the first.
Matrix composed(const Matrix& ld, const std::vector<double>& pivots) {
  const int64_t n = ld.rows;
  Matrix a(n, n);
  const auto pair = [&](int64_t k) { return pivots[size_t(k)] < 0; };
  std::vector<int64_t> starts;  // of the blocks of D
  for (int64_t k = 0; k < n; k += pair(k) ? 2 : 1) starts.push_back(k);
  for (size_t s = starts.size(); s-- > 0;) {
    const int64_t k = starts[s], size = pair(k) ? 2 : 1, end = k + size;
    Matrix l = identity_matrix(n), d = a;
    for (int64_t i = end; i < n; ++i)
      for (int64_t j = k; j < end; ++j) l(i, j) = ld(i, j);
    for (int64_t i = k; i < end; ++i)
      for (int64_t j = k; j < end; ++j) d(i, j) = i >= j ? ld(i, j) : ld(j, i);
    a = product(product(l, d), adjoint(l));
    const int64_t p = end - 1, q = int64_t(std::fabs(pivots[size_t(k)])) - 1;
    for (int64_t j = 0; j < n; ++j) std::swap(a(p, j), a(q, j));
    for (int64_t i = 0; i < n; ++i) std::swap(a(i, p), a(i, q));
  }
  return a;
}

const Attached linalg_ldl_solve_op =
    attach("linalg_ldl_solve")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto factors = [](const Tensor& a) {
            return call_all(*find_record("linalg_ldl_factor_ex"), {a.detach(), false, false});
          };
          const Results one = factors(make_symmetric(m, {4, 4}));
          Tensor swapped = make_symmetric(m, {2, 3, 3}).detach();
          swapped.diagonal(0, -2, -1).zero_();  // every pivot is a block of two
          const Results two = factors(swapped);
          return {{{one[0], one[1], m.make({4, 2}), false}},
                  {{two[0], two[1], m.make_strided({3, 2}), false}, "blocks of two, broadcast B"},
                  {{two[0], two[1], m.make({2, 3, 0}), true}, "no columns"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const Tensor a = m.make({2, 2});
          const Tensor pivots = ones({2}, TensorOptions(kInt32, m.device));
          return {{{a, m.make({2}), m.make({2, 1}), false},
                   ErrorKind::type,
                   "torch.linalg.ldl_solve: Expected pivots to be integers."},
                  {{a, full({2}, 3, pivots.options()), m.make({2, 1}), false},
                   ErrorKind::value,
                   "pivots are not those of ldl_factor"},
                  {{a, tensor({1, -2}, pivots.options()), m.make({2, 1}), false},
                   ErrorKind::value,
                   "pivots are not those of ldl_factor"},
                  {{a, pivots, m.make({3, 1}), false},
                   ErrorKind::value,
                   "Incompatible matrix sizes for torch.linalg.ldl_solve: each A matrix is 2 by 2 "
                   "but each b matrix is 3 by 1"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &ld = c.tensor(0), &b = c.tensor(2);
          const std::vector<double> all = values_of(c.tensor(1));
          const std::vector<Matrix> rights = matrices_of(b);
          const int64_t n = ld.size(-1);
          size_t index = 0;
          return {map_matrices(ld, b.size(-2), b.size(-1), [&](const Matrix& m) {
            const std::vector<double> own(all.begin() + int64_t(index) * n,
                                          all.begin() + int64_t(index + 1) * n);
            const Matrix& right = rights[rights.size() == 1 ? 0 : index];
            ++index;
            return solved(composed(m, own), right);
          })};
        });

}  // namespace
}  // namespace arete::ops
