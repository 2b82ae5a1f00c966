// Levels of forward mode in C++; python/tests/test_forward_mode.py goes through the operators.
#include "arete/autograd/forward_mode.h"

#include <gtest/gtest.h>

#include "arete/autograd/engine.h"
#include "arete/autograd/function.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"

namespace arete {
namespace {

TEST(ForwardMode, TangentsFollowCallsViewsAndWrites) {
  const Tensor x = tensor(std::vector<float>{1, 2}), v = tensor(std::vector<float>{1, 10});
  Tensor out = zeros({2, 2});
  {
    const autograd::DualLevel level;
    EXPECT_FALSE(level.is_covered());
    EXPECT_THROW(autograd::DualLevel(), AutogradError);
    const Tensor dual = autograd::make_dual(x, v);
    EXPECT_TRUE(autograd::tangent_of(dual).is_same(v));
    EXPECT_FALSE(autograd::tangent_of(x).defined());
    EXPECT_FALSE(autograd::tangent_of(autograd::primal_of(dual)).defined());
    out.select(0, 1).copy_(dual * dual);
    EXPECT_EQ(autograd::tangent_of(out).to_vector<float>(), (std::vector<float>{0, 0, 2, 40}));
    {
      const autograd::WithoutTangents none;
      EXPECT_FALSE(autograd::tangent_of(dual + 1).defined());
    }
    EXPECT_THROW(autograd::make_dual(dual, v), AutogradError);
    EXPECT_THROW(autograd::make_dual(x, zeros({3})), AutogradError);
  }
  EXPECT_FALSE(autograd::has_dual_level());
  EXPECT_FALSE(autograd::tangent_of(out).defined());
  EXPECT_THROW(autograd::make_dual(x, v), AutogradError);
}

TEST(ForwardMode, GoesThroughFunctionsInCpp) {
  autograd::FunctionDef twice;
  twice.name = "twice";
  twice.forward = [](autograd::Context&, const std::vector<Tensor>& in) {
    return std::vector{in[0] * 2};
  };
  twice.backward = [](autograd::Context&, const std::vector<Tensor>& g) {
    return std::vector{g[0] * 2};
  };
  const Tensor x = tensor(std::vector<float>{1, 2}).requires_grad_();
  const Tensor v = tensor(std::vector<float>{1, 10});
  const autograd::DualLevel level;
  const Tensor y = autograd::apply(twice, {autograd::make_dual(x, v)})[0];
  EXPECT_EQ(autograd::tangent_of(y).to_vector<float>(), (std::vector<float>{2, 20}));
  const Tensor g = autograd::grad(pow(y, 2).sum(), x)[0];
  EXPECT_EQ(autograd::tangent_of(g).to_vector<float>(), (std::vector<float>{8, 80}));
}

}  // namespace
}  // namespace arete
