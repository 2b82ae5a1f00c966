// Samples, references and errors of the records in ops/fft_core.cpp; those of fourier_transform are
// in fft.cpp.
#include <complex>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft.h"
#include "arete/ops/shape.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

Tensor complex_sample(SampleMaker& m, IntList sizes, bool strided = false) {
  Shape parts(sizes);
  parts.push_back(2);
  SampleMaker reals(real_of(m.dtype), m.device, false, uint64_t(numel_of(parts)));
  const Tensor t = view_as_complex_copy(reals.make(parts));
  return strided && t.dim() > 1 ? t.transpose(0, -1).contiguous().transpose(0, -1) : t;
}

const Attached view_as_real_copy_op =
    attach("view_as_real_copy")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{complex_sample(m, {2, 3})}},
                  {{complex_sample(m, {2, 3}, true)}, "strided"},
                  {{complex_sample(m, {})}, "0-d"},
                  {{complex_sample(m, {0, 2})}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{SampleMaker(kFloat32, m.device, false).make({2})},
                   ErrorKind::type,
                   "view_as_real is only supported for complex tensors"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const auto* p = static_cast<const std::complex<double>*>(x.data_ptr());
          std::vector<double> v;
          for (int64_t i = 0; i < x.numel(); ++i) {
            v.push_back(p[i].real());
            v.push_back(p[i].imag());
          }
          Shape sizes(x.sizes());
          sizes.push_back(2);
          return {from_values(v, sizes)};
        });
const Attached view_as_complex_copy_op =
    attach("view_as_complex_copy")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3, 2})}},
                  {{m.make_strided({3, 2})}},
                  {{m.make({2})}, "0-d"},
                  {{m.make({0, 2})}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make({2, 3})}, ErrorKind::value, "Tensor must have a last dimension of size 2"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const std::vector<double> v = values_of(x);
          const Tensor out = empty_tensor(x.sizes().first(x.sizes().size() - 1), kComplex128, kCPU);
          auto* p = static_cast<std::complex<double>*>(out.data_ptr());
          for (size_t i = 0; i < v.size() / 2; ++i) p[i] = {v[2 * i], v[2 * i + 1]};
          return {out};
        });

}  // namespace
}  // namespace arete::ops
