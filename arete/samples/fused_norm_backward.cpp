// Samples, references and errors of the records in ops/fused_norm_backward.cpp.
#include "arete/ops/fused_norm_internal.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
using namespace norms;

namespace {

std::vector<Tensor> backward_reference(const Call& c) {
  const NormSpec s = spec_of(c, 7);
  const Shape rows = stat_sizes(s);
  const Tensor& xt = c.tensor(1);
  std::vector<double> g = values_of(c.tensor(0));
  const std::vector<double> x = values_of(xt);
  const std::vector<double> w = c.has(2) ? values_of(c.tensor(2)) : std::vector<double>();
  const std::vector<double> b = c.has(3) ? values_of(c.tensor(3)) : std::vector<double>();
  const std::vector<double> y = c.has(6) ? values_of(c.tensor(6)) : std::vector<double>();
  const std::vector<double> mean = values_of(c.tensor(4)), rstd = values_of(c.tensor(5));
  std::vector<double> sum(mean.size(), 0.0), product(mean.size(), 0.0), dx;
  std::vector<double> dw(size_t(numel_of(s.weight_shape)), 0.0), db(dw.size(), 0.0);
  const double n = elements_per_row(s);
  const auto walk = [&](auto f) {
    size_t k = 0;
    for_each_index(s.shape, [&](const Shape& i) {
      const size_t r = size_t(flat_position(rows, i)), p = size_t(flat_position(s.weight_shape, i));
      f(r, p, k, (x[k] - mean[r]) * rstd[r]);
      ++k;
    });
  };
  const auto weight = [&](size_t p) { return w.empty() ? 1 : w[p]; };
  if (s.relu)
    walk([&](size_t, size_t p, size_t k, double xhat) {
      if ((y.empty() ? xhat * weight(p) + (b.empty() ? 0 : b[p]) : y[k]) <= 0) g[k] = 0;
    });
  walk([&](size_t r, size_t p, size_t k, double xhat) {
    const double u = g[k] * weight(p);
    sum[r] += s.center ? u / n : 0;
    product[r] += u * xhat / n;
    dw[p] += g[k] * xhat;
    db[p] += g[k];
  });
  walk([&](size_t r, size_t p, size_t k, double xhat) {
    dx.push_back(rstd[r] * (g[k] * weight(p) - sum[r] - xhat * product[r]));
  });
  if (!c.has(2) && !c.has(3)) {
    dw.clear();
    db.clear();
  }
  const Shape sizes = c.has(2)   ? Shape(c.tensor(2).sizes())
                      : c.has(3) ? Shape(c.tensor(3).sizes())
                                 : Shape{0};
  return {from_values(dx, xt.sizes()), from_values(dw, sizes), from_values(db, sizes),
          c.has(6) ? from_values(g, xt.sizes()) : from_values({}, Shape{0})};
}

const Attached fused_norm_backward_op =
    attach("fused_norm_backward")
        // Its gradient takes mean and rstd as functions of the input, so it is checked as the
        // second derivative of fused_norm.
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> out;
          for (bool with_residual : {false, true}) {
            const OpRecord& forward =
                *find_record(with_residual ? "fused_norm_residual" : "fused_norm");
            for (Sample& s : samples_of(forward).samples(m)) {
              std::vector<Arg> args;
              for (const OwnedArg& a : s.args) args.push_back(a.borrow());
              const Results r = call_all(forward, args);
              std::vector<OwnedArg> all{m.make(s.args[0].tensor.sizes()),
                                        s.args[0],
                                        s.args[1],
                                        s.args[2],
                                        r[1].detach(),
                                        r[2].detach()};
              all.push_back(with_residual ? OwnedArg(r[0].detach()) : OwnedArg());
              all.insert(all.end(), s.args.begin() + (with_residual ? 6 : 5), s.args.end() - 1);
              out.push_back({std::move(all), s.note});
            }
          }
          return out;
        })
        .reference(backward_reference);

}  // namespace
}  // namespace arete::ops
