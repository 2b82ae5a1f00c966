// Samples, references and errors of the records in ops/matmul.cpp.
#include "arete/ops/complex.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

/// Any product of two f64 tensors under the rules of matmul, with plain loops.
Tensor reference_product(const Tensor& a, const Tensor& b, double alpha = 1) {
  Shape as(a.sizes()), bs(b.sizes());
  const bool row = as.size() == 1, column = bs.size() == 1;
  if (row) as.insert(as.begin(), 1);
  if (column) bs.push_back(1);
  const int64_t k = as.back();
  Shape out =
      broadcast_shapes(IntList(as).first(as.size() - 2), IntList(bs).first(bs.size() - 2), "");
  out.push_back(as[as.size() - 2]);
  out.push_back(bs.back());
  const std::vector<double> av = values_of(a), bv = values_of(b);
  std::vector<double> values;
  for_each_index(out, [&](const Shape& i) {
    double sum = 0;
    for (int64_t x = 0; x < k; ++x) {
      Shape ia = i, ib = i;
      ia[ia.size() - 1] = x;
      ib[ib.size() - 2] = x;
      sum += av[size_t(flat_position(as, ia))] * bv[size_t(flat_position(bs, ib))];
    }
    values.push_back(alpha * sum);
  });
  if (column) out.pop_back();
  if (row) out.erase(out.end() - (column ? 1 : 2));
  return from_values(values, out);
}

const Attached matmul_op =
    attach("matmul")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3}), m.make({3})}},
                  {{m.make({2, 3}), m.make({3})}},
                  {{m.make({3}), m.make({3, 2})}},
                  {{m.make({2, 3}), m.make({3, 4})}},
                  {{m.make_strided({2, 3}), m.make_strided({3, 4})}},
                  {{m.make({2, 2, 3}), m.make({3, 2})}, "batch times matrix"},
                  {{m.make({2, 3}), m.make({2, 3, 2})}, "matrix times batch"},
                  {{m.make({2, 1, 2, 3}), m.make({2, 3, 2})}, "broadcast batches"},
                  {{m.make({2, 2, 3}), m.make({3})}},
                  {{m.make({3}), m.make({2, 3, 2})}},
                  {{m.make_strided({2, 2, 3}), m.make_strided({2, 3, 2})}},
                  {{m.make({2, 0}), m.make({0, 3})}, "empty sum"},
                  {{m.make({0, 2, 3}), m.make({3, 2})}, "empty batch"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({2, 3})},
                   ErrorKind::value,
                   "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"},
                  {{m.make({3}), m.make({4})}, ErrorKind::value, "inconsistent tensor size"},
                  {{m.make({}), m.make({3})},
                   ErrorKind::value,
                   "both arguments to matmul need to be at least 1D, but they are 0D and 1D"},
                  {{m.make({2, 3, 4}), m.make({3, 4, 2})},
                   ErrorKind::value,
                   "The size of tensor a (2) must match the size of tensor b (3)"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {reference_product(c.tensor(0), c.tensor(1))};
        });
const Attached matmul_scaled_op =
    attach("matmul_scaled")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({3, 4}), 0.5}},
                  {{m.make({2, 2, 3}), m.make_strided({2, 3, 2}), -2.0}},
                  {{m.make({2, 2, 3}), m.make({3}), 0.25}}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {reference_product(c.tensor(0), c.tensor(1), c.real(2))};
        });
const Attached mm_op =
    attach("mm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({3, 4})}},
                  {{m.make_strided({4, 3}), m.make({3, 1})}},
                  {{m.make({1, 3}), m.make_strided({3, 2})}},
                  {{m.make({2, 0}), m.make({0, 2})}},
                  {{m.make({0, 3}), m.make({3, 2})}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), m.make({2, 3})}, ErrorKind::value, "self must be a matrix"},
                  {{m.make({2, 3}), m.make({4, 5})},
                   ErrorKind::value,
                   "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"},
                  {{m.make({2, 3}), m.make({3, 2}).to(kInt64)},
                   ErrorKind::type,
                   "expected m1 and m2 to have the same dtype"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {reference_product(c.tensor(0), c.tensor(1))};
        });
const Attached bmm_op =
    attach("bmm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 2, 3}), m.make({2, 3, 2})}},
                  {{m.make_strided({2, 2, 3}), m.make_strided({2, 3, 2})}},
                  {{m.make({1, 1, 3}), m.make({1, 3, 4})}},
                  {{m.make({0, 2, 3}), m.make({0, 3, 2})}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make({2, 3}), m.make({2, 3, 2})}, ErrorKind::value, "batch1 must be a 3D tensor"},
              {{m.make({2, 3, 4}), m.make({2, 3, 4})},
               ErrorKind::value,
               "Expected size for first two dimensions of batch2 tensor to be: [2, 4] but got: [2, "
               "3]."}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {reference_product(c.tensor(0), c.tensor(1))};
        });
const Attached mv_op = attach("mv")
                           .samples([](SampleMaker& m) -> std::vector<Sample> {
                             return {{{m.make({2, 3}), m.make({3})}},
                                     {{m.make_strided({4, 3}), m.make({3})}},
                                     {{m.make({2, 0}), m.make({0})}}};
                           })
                           .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
                             return {{{m.make({2, 3}), m.make({4})},
                                      ErrorKind::value,
                                      "size mismatch, got input (2x3), vec (4)"}};
                           })
                           .reference([](const Call& c) -> std::vector<Tensor> {
                             return {reference_product(c.tensor(0), c.tensor(1))};
                           });
const Attached dot_op =
    attach("dot")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({5}), m.make({5})}},
                  {{m.make({1}), m.make({1})}},
                  {{m.make({0}), m.make({0})}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({3})},
                   ErrorKind::value,
                   "1D tensors expected, but got 2D and 1D tensors"},
                  {{m.make({2}), m.make({3})}, ErrorKind::value, "inconsistent tensor size"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {reference_product(c.tensor(0), c.tensor(1))};
        });
const Attached outer_op = attach("outer")
                              .samples([](SampleMaker& m) -> std::vector<Sample> {
                                return {{{m.make({3}), m.make({4})}}, {{m.make({0}), m.make({2})}}};
                              })
                              .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
                                return {{{m.make({2, 3}), m.make({3})},
                                         ErrorKind::value,
                                         "outer: Expected 1-D argument self, but got 2-D"}};
                              })
                              .reference([](const Call& c) -> std::vector<Tensor> {
                                const Tensor &a = c.tensor(0), &b = c.tensor(1);
                                return {build_tensor({a.size(0), b.size(0)}, [&](const Shape& i) {
                                  return at(a, {i[0]}) * at(b, {i[1]});
                                })};
                              });

std::vector<Tensor> add_product_reference(const Call& c) {
  const Tensor product = reference_product(c.tensor(1), c.tensor(2), c.real(4));
  const double beta = c.real(3);
  return {build_tensor(product.sizes(), [&](const Shape& i) {
    return at(product, i) + (beta == 0 ? 0 : beta * at(c.tensor(0), i));
  })};
}

const Attached addmm_op =
    attach("addmm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 4}), m.make({2, 3}), m.make({3, 4}), 1, 1}},
                  {{m.make({4}), m.make({2, 3}), m.make_strided({3, 4}), 1, 2}, "bias"},
                  {{m.make({2, 1}), m.make({2, 3}), m.make({3, 4}), 0.5, 2.0}},
                  {{m.make({}), m.make_strided({2, 3}), m.make({3, 4}), 2, 1}},
                  {{m.make({2, 4}), m.make({2, 3}), m.make({3, 4}), 0, 1}},
                  {{m.make({2, 4}), m.make({2, 0}), m.make({0, 4}), 2, 1}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({4}), m.make({2, 3}), m.make({2, 3}), 1, 1},
                   ErrorKind::value,
                   "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"},
                  {{m.make({4}), m.make({3}), m.make({3, 3}), 1, 1},
                   ErrorKind::value,
                   "mat1 must be a matrix"}};
        })
        .reference(add_product_reference);
const Attached baddbmm_op =
    attach("baddbmm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 2, 2}), m.make({2, 2, 3}), m.make({2, 3, 2}), 1, 1}},
                  {{m.make({2, 1}), m.make_strided({2, 2, 3}), m.make({2, 3, 2}), 0.5, 2.0}},
                  {{m.make({2}), m.make({2, 2, 3}), m.make({2, 3, 2}), 1, 0.5}},
                  {{m.make({1}), m.make({2, 2, 3}), m.make({2, 3, 2}), 0, 1}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({1}), m.make({2, 2, 3}), m.make({3, 3, 2}), 1, 1},
                   ErrorKind::value,
                   "batch1 and batch2 must have same number of batches"}};
        })
        .reference(add_product_reference);

}  // namespace
}  // namespace arete::ops
