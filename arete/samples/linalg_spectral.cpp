// Samples, references and errors of the records in ops/linalg_spectral.cpp.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

#include "arete/ops/creation.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached svd_parts_op =
    attach("_linalg_svd")
        .no_gradient_test()  // of linalg_svd
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all;
          for (bool full : {false, true}) {
            all.push_back({{make_invertible(m, {3, 3}), full, true}});
            all.push_back({{make_invertible(m, {2, 4, 2}), full, true}, "batch, tall"});
            all.push_back({{make_invertible(m, {2, 4}), full, false}, "wide, values"});
            all.push_back({{m.make({0, 2, 2}), full, true}, "empty batch"});
            all.push_back({{m.make({3, 0}), full, true}, "empty matrix"});
          }
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          Tensor bad = m.make({2, 2});
          bad.select(0, 0).fill_(Scalar(std::numeric_limits<double>::quiet_NaN()));
          return {{{bad, false, true},
                   ErrorKind::value,
                   "linalg.svd: The algorithm failed to converge because the input matrix "
                   "contained non-finite values."}};
        })
        .no_reference("the signs of the vectors are free: tests/op/linalg_test.cpp");

std::vector<Sample> svd_samples(SampleMaker& m, std::vector<OwnedArg> more) {
  std::vector<Sample> all{{{make_invertible(m, {3, 3})}},
                          {{make_invertible(m, {2, 4, 2})}, "batch, tall"},
                          {{make_invertible(m, {2, 4})}, "wide"},
                          {{m.make({0, 2, 2})}, "empty batch"},
                          {{m.make({3, 0})}, "empty matrix"}};
  for (Sample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
  return all;
}

const Attached linalg_svd_op =
    attach("linalg_svd")
        .samples([](SampleMaker& m) {
          // Full factors have free columns, which gradients cannot be checked with.
          return svd_samples(m, {!m.requires_grad});
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), true},
                   ErrorKind::value,
                   "linalg.svd: The input tensor A must have at least 2 dimensions."},
                  {{m.make({2, 2}).to(kBFloat16), true},
                   ErrorKind::not_implemented,
                   "linalg.svd: Low precision dtypes not supported. Got bfloat16"}};
        })
        .no_reference("the signs of the vectors are free: tests/op/linalg_test.cpp");
const Attached linalg_svdvals_op =
    attach("linalg_svdvals")
        .samples([](SampleMaker& m) { return svd_samples(m, {}); })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& a = c.tensor(0);
          std::vector<double> all;
          for (const Matrix& m : matrices_of(a))
            for (double s : singular_values(m)) all.push_back(s);
          return {from_values(
              all, with_sizes(batch_sizes(a.sizes()), {std::min(a.size(-1), a.size(-2))}))};
        });
const Attached svd_op =
    attach("svd")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {3, 3}), true, true}},
                  {{make_invertible(m, {2, 4, 2}), true, true}, "batch, tall"},
                  {{make_invertible(m, {2, 4}), true, false}, "values only"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), true, true}, ErrorKind::value, "svd: The input tensor"}};
        })
        .no_reference("the signs of the vectors are free: tests/op/linalg_test.cpp");
const Attached eigh_parts_op =
    attach("_linalg_eigh")
        .no_gradient_test()  // of symmetric matrices: tests/grad/linalg_grad_test.cpp
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_symmetric(m, {3, 3}), "L", true}},
                  {{make_symmetric(m, {2, 2, 2}), "U", false}, "batch, values"},
                  {{m.make({0, 2, 2}), "L", true}, "empty batch"},
                  {{m.make({2, 0, 0}), "L", true}, "empty matrices"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2}), "X", true},
                   ErrorKind::value,
                   "Expected UPLO argument to be 'L' or 'U', but got X"}};
        })
        .no_reference("the signs of the vectors are free: tests/op/linalg_test.cpp");

std::vector<Sample> eigh_samples(SampleMaker& m) {
  return {{{make_symmetric(m, {3, 3}), "L"}},
          {{make_symmetric(m, {2, 2, 2}), "U"}, "batch"},
          {{make_invertible(m, {4, 4}), "L"}, "one triangle is read"},
          {{make_invertible(m, {4, 4}), "U"}, "one triangle is read, upper"},
          {{m.make({2, 0, 0}), "L"}, "empty matrices"}};
}

std::vector<ErrorSample> eigh_errors(SampleMaker& m) {
  return {{{m.make({2, 3}), "L"},
           ErrorKind::value,
           "linalg.eigh: A must be batches of square matrices, but they are 2 by 3 matrices"}};
}

const Attached linalg_eigh_op =
    attach("linalg_eigh")
        .no_gradient_test()
        .samples(eigh_samples)
        .errors(eigh_errors)
        .no_reference("the signs of the vectors are free: tests/op/linalg_test.cpp");

// Jacobi's rotations.
std::vector<double> symmetric_eigenvalues(Matrix a, bool upper) {
  const int64_t n = a.rows;
  for (int64_t i = 0; i < n; ++i) {
    a(i, i) = a(i, i).real();
    for (int64_t j = 0; j < i; ++j)
      (upper ? a(i, j) : a(j, i)) = std::conj(upper ? a(j, i) : a(i, j));
  }
  for (int sweep = 0; sweep < 60; ++sweep)
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q)
        rotate(a, p, q, a(p, p).real(), a(q, q).real(), a(p, q), true);
  std::vector<double> w;
  for (int64_t i = 0; i < n; ++i) w.push_back(a(i, i).real());
  std::sort(w.begin(), w.end());
  return w;
}

const Attached linalg_eigvalsh_op =
    attach("linalg_eigvalsh")
        .no_gradient_test()
        .samples(eigh_samples)
        .errors(eigh_errors)
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& a = c.tensor(0);
          std::vector<double> all;
          for (const Matrix& m : matrices_of(a))
            for (double w : symmetric_eigenvalues(m, c[1].string() == "U")) all.push_back(w);
          return {from_values(all, batch_sizes(a.sizes(), 1))};
        });
const Attached linalg_eig_op =
    attach("linalg_eig")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 3})}}, {{m.make({2, 4, 4})}, "batch"}, {{m.make({0, 0})}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3})}, ErrorKind::value, "linalg.eig: A must be batches of square"}};
        })
        .no_reference("order and scale are free: tests/op/linalg_test.cpp");
std::vector<Sample> eigenvalue_samples(SampleMaker& m) {
  return {{{m.make({3, 3})}}, {{m.make({2, 4, 4})}, "batch"}, {{m.make({0, 0})}, "empty"}};
}
const Attached linalg_eigvals_op = attach("linalg_eigvals")
                                       .no_gradient_test()
                                       .samples(eigenvalue_samples)
                                       .no_reference("the order is free: tests/op/linalg_test.cpp");
const Attached eigenvalues_op = attach("_linalg_eigvals")
                                    .no_gradient_test()
                                    .samples(eigenvalue_samples)
                                    .no_reference("the order is free: tests/op/linalg_test.cpp");

}  // namespace
}  // namespace arete::ops
