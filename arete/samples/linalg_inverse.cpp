// Samples, references and errors of the records in ops/linalg_inverse.cpp.
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached linalg_inv_ex_op =
    attach("linalg_inv_ex")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {3, 3}), false}},
                  {{make_invertible(m, {2, 1, 2, 2}), true}, "batch"},
                  {{m.make({0, 3, 3}), false}, "empty batch"},
                  {{m.make({2, 0, 0}), false}, "empty matrices"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2}, 0, 0), true},
                   ErrorKind::value,
                   "linalg.inv_ex: The diagonal element 1 is zero"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& a = c.tensor(0);
          return {map_matrices(a, a.size(-1), a.size(-1), inverted),
                  build_tensor(
                      batch_sizes(a.sizes()), [](const Shape&) { return 0; }, kInt64)};
        });

std::vector<Sample> inverse_samples(SampleMaker& m) {
  return {{{make_invertible(m, {3, 3})}},
          {{make_invertible(m, {2, 1, 2, 2})}, "batch"},
          {{m.make({0, 3, 3})}, "empty batch"},
          {{m.make({2, 0, 0})}, "empty matrices"}};
}

std::vector<ErrorSample> inverse_errors(SampleMaker& m) {
  Tensor second = make_invertible(m, {3, 3}).detach();
  second.select(0, 1).zero_();
  second.select(1, 1).zero_();
  return {{{m.make({2, 3})},
           ErrorKind::value,
           "linalg.inv: A must be batches of square matrices, but they are 2 by 3 matrices"},
          {{m.make({2, 2}, 0, 0)},
           ErrorKind::value,
           "linalg.inv: The diagonal element 1 is zero, the inversion could not be completed "
           "because the input matrix is singular."},
          {{stack({eye(3, second.options()), second})},
           ErrorKind::value,
           "linalg.inv: (Batch element 1): The diagonal element 2 is zero"},
          {{m.make({2, 2}).to(kFloat16)},
           ErrorKind::not_implemented,
           "Low precision dtypes not supported"}};
}

std::vector<Tensor> inverse_reference(const Call& c) {
  const Tensor& a = c.tensor(0);
  return {map_matrices(a, a.size(-1), a.size(-1), inverted)};
}

const Attached linalg_inv_op = attach("linalg_inv")
                                   .samples(inverse_samples)
                                   .errors(inverse_errors)
                                   .reference(inverse_reference);
const Attached inverse_op =
    attach("inverse").samples(inverse_samples).errors(inverse_errors).reference(inverse_reference);
const Attached linalg_tensorinv_op =
    attach("linalg_tensorinv")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto make = [&](IntList s, int64_t n) {
            return make_invertible(m, {n, n}).detach().reshape(s).requires_grad_(m.requires_grad);
          };
          return {{{make({2, 2, 4}, 4), 2}}, {{make({4, 2, 2}, 4), 1}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), 0}, ErrorKind::value, "Expected a strictly positive integer"},
                  {{m.make({2, 3}), 1}, ErrorKind::value, "Expected self to satisfy"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& a = c.tensor(0);
          int64_t n = 1;
          Shape sizes;
          for (int64_t d = 0; d < c.integer(1); ++d) n *= a.size(d);
          for (int64_t d = c.integer(1); d < a.dim(); ++d) sizes.push_back(a.size(d));
          for (int64_t d = 0; d < c.integer(1); ++d) sizes.push_back(a.size(d));
          Matrix m(n, n);
          m.values = numbers_of(a);
          return {from_numbers(inverted(m).values, sizes, a.dtype())};
        });

std::vector<Sample> det_samples(SampleMaker& m, bool with_singular) {
  std::vector<Sample> all{{{make_invertible(m, {3, 3})}},
                          {{m.make({2, 1, 2, 2})}, "batch"},
                          {{m.make({1, 1})}, "one element"},
                          {{m.make({0, 3, 3})}, "empty batch"},
                          {{m.make({2, 0, 0})}, "empty matrices"}};
  if (with_singular) {
    const Tensor singular = m.make({3, 3});
    singular.detach().select(0, 1).zero_();
    all.push_back({{singular}, "singular"});
  }
  return all;
}

std::vector<ErrorSample> det_errors(SampleMaker& m) {
  return {{{m.make({2, 3})},
           ErrorKind::value,
           "A must be batches of square matrices, but they are 2 by 3 matrices"},
          {{m.make({2, 2}).to(kFloat16)},
           ErrorKind::not_implemented,
           "Low precision dtypes not supported"}};
}

std::vector<Tensor> det_reference(const Call& c) {
  return {map_matrices_to_numbers(c.tensor(0), determinant, c.tensor(0).dtype())};
}

const Attached linalg_det_op = attach("linalg_det")
                                   .samples([](SampleMaker& m) { return det_samples(m, true); })
                                   .errors(det_errors)
                                   .reference(det_reference);
const Attached det_op = attach("det")
                            .samples([](SampleMaker& m) { return det_samples(m, false); })
                            .errors(det_errors)
                            .reference(det_reference);

std::vector<Tensor> slogdet_reference(const Call& c) {
  const Tensor& a = c.tensor(0);
  return {map_matrices_to_numbers(
              a,
              [](const Matrix& m) {
                const Number d = determinant(m);
                return d == 0.0 ? d : d / std::abs(d);
              },
              a.dtype()),
          map_matrices_to_numbers(
              a, [](const Matrix& m) { return std::log(std::abs(determinant(m))); })};
}

const Attached linalg_slogdet_op =
    attach("linalg_slogdet")
        .samples([](SampleMaker& m) { return det_samples(m, false); })
        .errors(det_errors)
        .reference(slogdet_reference);
const Attached slogdet_op = attach("slogdet")
                                .samples([](SampleMaker& m) { return det_samples(m, false); })
                                .errors(det_errors)
                                .reference(slogdet_reference);
const Attached logdet_op =
    attach("logdet")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {3, 3})}},
                  {{make_invertible(m, {2, 2, 2})}, "batch"},
                  {{m.make({2, 0, 0})}, "empty matrices"}};
        })
        .errors(det_errors)
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {map_matrices_to_numbers(
              c.tensor(0), [](const Matrix& m) { return std::log(determinant(m)); },
              c.tensor(0).dtype())};
        });

}  // namespace
}  // namespace arete::ops
