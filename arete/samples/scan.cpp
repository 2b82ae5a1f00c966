// Samples, references and errors of the records in ops/scan.cpp.
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached reverse_cumsum_op =
    attach("reverse_cumsum")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({3, 4}), 1}, "rows"},
                                     {{m.make({3, 4}), 0}, "columns"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          const size_t d = size_t(normalize_dim(c.integer(1), int(x.dim()), "scan"));
          return std::vector<Tensor>{build_tensor(x.sizes(), [&](const Shape& i) {
            double s = 0;
            for (Shape j = i; j[d] < x.sizes()[d]; ++j[d]) s += at(x, j);
            return s;
          })};
        });

std::vector<Sample> scan_samples(SampleMaker& m) {
  return {{{m.make({3, 4}), 1, std::nullopt}, "rows"},
          {{m.make({3, 4}), 0, std::nullopt}, "columns"},
          {{m.make({2, 3, 2}), -2, std::nullopt}, "middle"},
          {{m.make_strided({3, 4}), 1, std::nullopt}, "strided"},
          {{m.make({3, 4}), 1, kFloat64}, "dtype"},
          {{m.make({}), 0, std::nullopt}, "0-d"},
          {{m.make({0, 2}), 0, std::nullopt}, "empty"}};
}

template <class F>
Reference scan_reference(F f) {
  return [f](const Call& c) {
    const Tensor& x = c.tensor(0);
    const int d = normalize_dim(c.integer(1), int(x.dim()), "scan");
    return std::vector<Tensor>{build_tensor(
        x.sizes(),
        [&](const Shape& i) {
          if (i.empty()) return at(x, i);
          Shape j = i;
          j[size_t(d)] = 0;
          double s = at(x, j);
          for (j[size_t(d)] = 1; j[size_t(d)] <= i[size_t(d)]; ++j[size_t(d)]) s = f(s, at(x, j));
          return s;
        },
        x.dtype() == kFloat64 || c.has(2) ? kFloat64 : kInt64)};
  };
}

std::vector<ErrorSample> scan_errors(SampleMaker& m) {
  return {{{m.make({2, 3}), 2, std::nullopt}, ErrorKind::index, "Dimension out of range"}};
}

const Attached cumsum_op = attach("cumsum")
                               .samples(scan_samples)
                               .errors(scan_errors)
                               .reference(scan_reference([](double a, double b) { return a + b; }));
const Attached cumprod_op =
    attach("cumprod")
        .samples([](SampleMaker& m) {
          auto all = scan_samples(m);
          Tensor with_zero = m.make({2, 3}, 0.5, 2);
          with_zero.detach().select(1, 1).zero_();
          all.push_back({{with_zero, 1, std::nullopt}, "zeros"});
          return all;
        })
        .errors(scan_errors)
        .reference(scan_reference([](double a, double b) { return a * b; }));

}  // namespace
}  // namespace arete::ops
