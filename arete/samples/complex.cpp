// Samples, references and errors of the records in ops/complex.cpp.
#include <complex>

#include "arete/ops/complex.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/pointwise_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

std::vector<Sample> whole_samples(SampleMaker& m) {
  return {{{m.make({2, 3})}, "usual"},
          {{m.make_strided({2, 3})}, "strided"},
          {{m.make({})}, "0-d"},
          {{m.make({0, 2})}, "empty"}};
}

std::vector<std::complex<double>> numbers_of(const Tensor& t) {
  return t.to_vector<std::complex<double>>();
}

const Attached view_as_real_op =
    attach("view_as_real")
        .samples(whole_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{SampleMaker(kFloat32, m.device, false).make({2})},
                   ErrorKind::type,
                   "view_as_real is only supported for complex tensors"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          std::vector<double> v;
          for (const std::complex<double>& z : numbers_of(c.tensor(0))) {
            v.push_back(z.real());
            v.push_back(z.imag());
          }
          return {from_values(v, layout_of_parts(c.tensor(0).layout()).sizes)};
        });
const Attached view_as_complex_op =
    attach("view_as_complex")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{m.make({2, 3, 2})}, "usual"}, {{m.make({2})}, "0-d"}, {{m.make({0, 2})}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make({2, 3})}, ErrorKind::value, "Tensor must have a last dimension of size 2"},
              {{m.make_strided({3, 2})},
               ErrorKind::value,
               "Tensor must have a last dimension with stride 1"},
              {{m.make({3, 3}).narrow(1, 0, 2)},
               ErrorKind::value,
               "Tensor must have a stride divisible by 2"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> v = values_of(c.tensor(0));
          const Tensor out = empty_tensor(c.tensor(0).sizes().first(c.tensor(0).sizes().size() - 1),
                                          kComplex128, kCPU);
          auto* p = static_cast<std::complex<double>*>(out.data_ptr());
          for (size_t i = 0; i < v.size() / 2; ++i) p[i] = {v[2 * i], v[2 * i + 1]};
          return {out};
        });
const Attached complex_parts_op =
    attach("complex_parts")
        .samples(whole_samples)
        .reference([](const Call& c) -> std::vector<Tensor> {
          std::vector<double> re, im;
          for (const std::complex<double>& z : numbers_of(c.tensor(0))) {
            re.push_back(z.real());
            im.push_back(z.imag());
          }
          return {from_values(re, c.tensor(0).sizes()), from_values(im, c.tensor(0).sizes())};
        });
const Attached complex_op = attach("complex")
                                .samples([](SampleMaker& m) -> std::vector<Sample> {
                                  return {{{m.make({2, 3}), m.make({2, 3})}, "usual"},
                                          {{m.make({2, 1}), m.make_strided({2, 3})}, "broadcast"},
                                          {{m.make({}), m.make({3})}, "0-d"},
                                          {{m.make({0, 2}), m.make({2})}, "empty"}};
                                })
                                .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
                                  return {{{m.make({2}), m.make_index({2}, 3)},
                                           ErrorKind::type,
                                           "Expected both inputs to be Float or Double tensors"}};
                                })
                                .reference([](const Call& c) -> std::vector<Tensor> {
                                  const Shape sizes = broadcast_args(c, 2);
                                  const Tensor out = empty_tensor(sizes, kComplex128, kCPU);
                                  auto* p = static_cast<std::complex<double>*>(out.data_ptr());
                                  for_each_index(sizes, [&](const Shape& i) {
                                    *p++ = {at(c.tensor(0), i), at(c.tensor(1), i)};
                                  });
                                  return {out};
                                });
const Attached polar_op = attach("polar")
                              .samples([](SampleMaker& m) -> std::vector<Sample> {
                                return {{{m.make({2, 3}, 0, 2), m.make({2, 3}, -4, 4)}, "usual"},
                                        {{m.make({2, 1}), m.make_strided({2, 3})}, "broadcast"}};
                              })
                              .reference([](const Call& c) -> std::vector<Tensor> {
                                const Shape sizes = broadcast_args(c, 2);
                                const Tensor out = empty_tensor(sizes, kComplex128, kCPU);
                                auto* p = static_cast<std::complex<double>*>(out.data_ptr());
                                for_each_index(sizes, [&](const Shape& i) {
                                  const double r = at(c.tensor(0), i), a = at(c.tensor(1), i);
                                  *p++ = {r * std::cos(a), r * std::sin(a)};
                                });
                                return {out};
                              });
const Attached real_op =
    attach("real").samples(whole_samples).reference(reference1([](double v) { return v; }));
const Attached imag_op =
    attach("imag").samples(whole_samples).reference([](const Call& c) -> std::vector<Tensor> {
      std::vector<double> im;
      for (const std::complex<double>& z : numbers_of(c.tensor(0))) im.push_back(z.imag());
      return {from_values(im, c.tensor(0).sizes())};
    });
const Attached conj_physical_op =
    attach("conj_physical").samples(whole_samples).reference(reference1([](double v) {
      return v;
    }));
const Attached conjugate_op =
    attach("conjugate").samples(whole_samples).reference(reference1([](double v) { return v; }));
const Attached conj_op =
    attach("conj").samples(whole_samples).reference(reference1([](double v) { return v; }));
const Attached resolve_conj_op =
    attach("resolve_conj").samples(whole_samples).reference(reference1([](double v) { return v; }));
const Attached isreal_op =
    attach("isreal").no_gradient_test().samples(whole_samples).reference([](const Call& c) {
      return std::vector<Tensor>{build_tensor(
          c.tensor(0).sizes(), [](const Shape&) { return true; }, kBool)};
    });

}  // namespace
}  // namespace arete::ops
