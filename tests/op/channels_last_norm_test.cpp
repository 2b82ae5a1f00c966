// Batch norm over data whose channels lie side by side, in sizes where kernels take several rows at
// a time and divide long ones: values and gradients against f64 on the CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "arete/arete.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

struct Case {
  int64_t n, channels, height, width;
  bool rectified, with_residual;
};

// y, and the gradients of x, weight, bias and residual.
std::vector<Tensor> run_norm(const std::vector<Tensor>& in, const Case& c) {
  std::vector<Tensor> leaves;
  for (size_t i = 0; i < 4; ++i) leaves.push_back(in[i].detach().requires_grad_());
  const Tensor residual = c.with_residual ? leaves[3] : Tensor();
  const Tensor y =
      c.rectified
          ? batch_norm_relu(leaves[0], {}, {}, leaves[1], leaves[2], true, 0.1, 1e-3, residual)
          : batch_norm(leaves[0], {}, {}, leaves[1], leaves[2], true, 0.1, 1e-3);
  y.backward(in[4]);
  std::vector<Tensor> out{y.detach()};
  for (const Tensor& l : leaves)
    if (l.grad().defined()) out.push_back(l.grad());
  return out;
}

class ChannelsLastNorm : public testing::TestWithParam<DType> {};

TEST_P(ChannelsLastNorm, AgreesWithDoubles) {
  manual_seed(9);
  const DType dtype = GetParam();
  const double unit = is_reduced_float(dtype) ? (dtype == kFloat16 ? 1e-3 : 8e-3) : 1e-5;
  for (const Case& c : {Case{8, 128, 40, 40, false, false},
                        {8, 128, 40, 40, true, false},
                        {8, 128, 40, 40, true, true},
                        {4, 64, 56, 56, true, false},
                        {8, 130, 33, 31, true, false},
                        {2, 256, 20, 21, true, true},
                        {8, 33, 40, 40, true, false},
                        {2, 96, 3, 5, true, true}}) {
    const Shape x_sizes{c.n, c.channels, c.height, c.width}, w_sizes{c.channels};
    if (too_large_for_reference(numel_of(x_sizes))) continue;
    const auto last = [&](const Tensor& t) { return t.contiguous(MemoryFormat::channels_last); };
    std::vector<Tensor> in{last(randn(x_sizes).mul(2).add(1).to(dtype)), rand(w_sizes).add(0.5),
                           randn(w_sizes), last(randn(x_sizes).to(dtype)),
                           last(randn(x_sizes).to(dtype))};
    std::vector<Tensor> device, doubles;
    for (const Tensor& t : in) {
      device.push_back(t.to(test_device()));
      doubles.push_back(t.to(kFloat64));
    }
    const std::vector<Tensor> got = run_norm(device, c), want = run_norm(doubles, c);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const Tensor g = got[i].cpu().to(kFloat64), w = want[i].to(kFloat64);
      const double scale = w.abs().max().item<double>();
      // An element at the edge of the relu may fall on either side, and its channel's sums feel it.
      const double allowed = !c.rectified || i == 0 ? 0.0 : i == 2 || i == 3 ? 0.05 : 2e-3;
      const Tensor bad = g.sub(w).abs().gt(Scalar(4 * unit * scale));
      const double share = bad.to(kFloat64).mean().item<double>();
      EXPECT_LE(share, allowed) << name_of(dtype) << " output " << i << " of " << c.n << "x"
                                << c.channels << "x" << c.height << "x" << c.width
                                << (c.rectified ? " relu" : "")
                                << (c.with_residual ? " residual" : "") << ", largest error "
                                << g.sub(w).abs().max().item<double>() << " of " << scale;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ChannelsLastNorm,
                         testing::Values(kFloat32, kFloat64, kFloat16, kBFloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace arete::test
