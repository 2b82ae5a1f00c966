// On another device: ARETE_TEST_DEVICE=cuda.
#include <cmath>

#include "tests/support/test_device.h"
#include "tests/unit/nn_test_support.h"

namespace arete {
namespace {

using test::error_of;
using test::expect_values;
using test::has;

std::vector<Tensor> with_grads(DType t) {
  std::vector<Tensor> params{zeros({2}, t), zeros({1, 2}, t), zeros({3}, t)};
  for (Tensor& p : params) p.requires_grad_();
  params[0].set_grad(tensor({3.0, -4.0}, t));
  params[1].set_grad(tensor({{12.0, 0.0}}, t));
  return params;  // the third has none
}

TEST(NnUtils, ClipsTheJointNorm) {
  for (DType t : {kFloat32, kFloat64, kBFloat16}) {
    const struct {
      double order, norm;
    } cases[] = {{2, 13}, {1, 19}, {INFINITY, 12}, {3, std::cbrt(27 + 64 + 1728)}};
    for (const auto& c : cases) {
      std::vector<Tensor> params = with_grads(t);
      const uint64_t version = params[0].grad().version();
      const Tensor norm = nn::utils::clip_grad_norm_(params, 1, c.order);
      EXPECT_NEAR(norm.item<double>(), c.norm, test::tolerance(t, 4, c.norm));
      const double f = 1 / (c.norm + 1e-6);
      expect_values(params[0].grad(), {3 * f, -4 * f}, 4);
      expect_values(params[1].grad(), {12 * f, 0}, 4);
      EXPECT_GT(params[0].grad().version(), version);
      EXPECT_FALSE(params[2].grad().defined());
    }
    std::vector<Tensor> params = with_grads(t);
    nn::utils::clip_grad_norm_(params, 100);
    expect_values(params[0].grad(), {3, -4});
  }
  EXPECT_EQ(nn::utils::clip_grad_norm_({}, 1).item<double>(), 0);
  std::vector<Tensor> params = with_grads(kFloat32);
  params[0].set_grad(tensor({NAN, 1.0}));
  EXPECT_TRUE(has(error_of([&] { nn::utils::clip_grad_norm_(params, 1, 2, true); }), "non-finite"));
  expect_values(params[1].grad(), {12, 0});
}

// As many as one launch of a GPU takes with short arguments, with long ones, and more.
TEST(NnUtils, ClipsManyTensorsOfSeveralDTypes) {
  for (const int count : {1, 120, 121, 1601}) {
    std::vector<Tensor> params;
    std::vector<std::vector<double>> grads;
    double squares = 0;
    for (int i = 0; i < count; ++i) {
      const DType t = i % 50 == 7 ? kFloat64 : i % 3 == 2 ? kBFloat16 : kFloat32;
      std::vector<double> values(size_t(i % 5 == 4 ? 0 : i == 60 ? 70000 : 1 + i % 11));
      for (size_t k = 0; k < values.size(); ++k) values[k] = double((i + int(k)) % 7 - 3);
      for (const double v : values) squares += v * v;
      Tensor p = zeros({int64_t(values.size())}, {t, test::test_device()});
      p.requires_grad_();
      p.set_grad(tensor(values).to(test::test_device(), t));
      params.push_back(p);
      grads.push_back(std::move(values));
    }
    const double norm = std::sqrt(squares), most = 0.4 * norm;
    EXPECT_NEAR(nn::utils::clip_grad_norm_(params, most).item<double>(), norm, 1e-5 * norm);
    for (size_t i = 0; i < params.size(); ++i) {
      for (double& v : grads[i]) v *= most / (norm + 1e-6);
      expect_values(params[i].grad(), grads[i], 8);
    }
  }
}

TEST(NnUtils, ClipsValues) {
  std::vector<Tensor> params = with_grads(kFloat32);
  nn::utils::clip_grad_value_(params, 3.5);
  expect_values(params[0].grad(), {3, -3.5});
  expect_values(params[1].grad(), {3.5, 0});
}

TEST(NnUtils, ParametersAsOneVector) {
  nn::Linear a(2, 3), b(2, 3);
  const Tensor v = nn::utils::parameters_to_vector(a.parameters());
  EXPECT_EQ(v.numel(), 9);
  nn::utils::vector_to_parameters(v.detach(), b.parameters());
  EXPECT_TRUE(equal(a.weight, b.weight) && equal(a.bias, b.bias));
  EXPECT_TRUE(b.weight.is_leaf() && b.weight.requires_grad());
  v.sum().backward();
  expect_values(a.bias.grad(), {1, 1, 1});
  EXPECT_TRUE(
      has(error_of([&] { nn::utils::vector_to_parameters(zeros({8}), b.parameters()); }), "[9]"));
}

TEST(NnStateDict, KeepsOrderAndFinds) {
  nn::StateDict d{{"b", ones({1})}, {"a", ones({2})}, {"c", ones({3})}};
  d.insert("a", ones({4}));
  EXPECT_EQ(d.keys(), (std::vector<std::string>{"b", "a", "c"}));
  EXPECT_EQ(d.at("a").numel(), 4);
  EXPECT_TRUE(d.erase("b"));
  EXPECT_FALSE(d.erase("b"));
  EXPECT_EQ(d.at("c").numel(), 3);
  EXPECT_EQ(d.find("b"), nullptr);
  EXPECT_TRUE(has(error_of([&] { d.at("zz"); }), "zz"));
}

}  // namespace
}  // namespace arete
