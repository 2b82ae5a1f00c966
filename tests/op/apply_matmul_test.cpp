// Products with programs applied to tensors, against the calls that they stand for.
#include <algorithm>

#include "arete/ops/apply_matmul.h"

#include <gtest/gtest.h>

#include "arete/arete.h"
#include "arete/autograd/engine.h"
#include "arete/autograd/gradcheck.h"
#include "arete/expr/value.h"
#include "arete/ops/call.h"
#include "tests/support/errors.h"
#include "tests/support/record_cases.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using expr::Value;
using Values = std::span<const Value>;

expr::ProgramPtr dequantize(DType to) {
  return expr::trace([](Values v) { return std::vector{expr::to_float(v[0]) * v[1]}; },
                     {{kInt8, kFloat32}}, {}, {{to}});
}
expr::ProgramPtr biased_relu(DType t) {
  return expr::trace([](Values v) { return std::vector{max(v[0] + v[1], v[2])}; }, {{t, t}},
                     {{expr::Type::f64}}, {{t}});
}

Tensor random(IntList sizes, DType dtype = kFloat64) {
  return randn(sizes, {kFloat64, test_device()}).to(dtype);
}

TEST(ApplyMatmul, IsTheCallsThatItStandsFor) {
  for (const DType dtype : {kFloat32, kBFloat16})
    for (const auto& [a_sizes, b_sizes] :
         std::vector<std::pair<Shape, Shape>>{{{1, 300}, {300, 70}},
                                              {{3, 64}, {64, 50}},
                                              {{40, 1}, {1, 33}},
                                              {{60, 20}, {20, 30}},
                                              {{2, 1, 9, 5}, {3, 5, 7}},
                                              {{0, 4}, {4, 3}},
                                              {{5, 0}, {0, 3}}}) {
      SCOPED_TRACE(to_string(a_sizes) + to_string(b_sizes));
      const Tensor x = random(a_sizes, dtype);
      const Tensor w = randint(-128, 128, b_sizes, {kInt8, test_device()});
      const Tensor scale = random({b_sizes.back()}, kFloat32),
                   bias = random({b_sizes.back()}, dtype);
      const Tensor scales[] = {scale}, biases[] = {bias};
      const Scalar zero[] = {0.0};
      const Tensor got = ops::apply_matmul(x, w, {}, {dequantize(dtype), scales},
                                           {biased_relu(dtype), biases, zero}, "quantized");
      const Tensor dense = (w.to(kFloat32) * scale).to(dtype);
      const Tensor want = relu(matmul(x, dense) + bias);
      const double largest = want.numel() ? want.to(kFloat64).abs().max().item<double>() : 0;
      const double far =
          want.numel() ? (got.to(kFloat64) - want.to(kFloat64)).abs().max().item<double>() : 0;
      EXPECT_EQ(to_string(got.sizes()), to_string(want.sizes()));
      EXPECT_EQ(got.dtype(), dtype);
      EXPECT_LE(far, (dtype == kBFloat16 ? 2e-2 : 1e-5) * std::max(1.0, largest));
    }
}

// A result that GPUs compute in bands: what its program reads is cut as it is, or not at all.
TEST(ApplyMatmul, OfManyRows) {
  const auto plus = expr::trace([](Values v) { return std::vector{v[0] + v[1]}; },
                                {{kBFloat16, kBFloat16}}, {}, {{kBFloat16}});
  const bool on_gpu = test_device().is_cuda() && !too_large_for_reference(1 << 24);
  const int64_t batch = 4, m = on_gpu ? 2048 : 16, n = on_gpu ? 4096 : 24, k = 32;
  const Tensor w = random({k, n}, kBFloat16);
  for (const Shape& x_sizes : {Shape{batch, m, k}, Shape{1, 2 * m, k}, Shape{2 * m, k}}) {
    const Tensor x = random(x_sizes, kBFloat16), product = matmul(x, w);
    for (const Shape& sizes :
         {Shape(product.sizes()), Shape{x.size(-2), n}, Shape{x.size(-2), 1}, Shape{n}, Shape{}}) {
      SCOPED_TRACE(to_string(x_sizes) + to_string(sizes));
      const Tensor more = random(sizes, kBFloat16);
      const Tensor got = ops::apply_matmul(x, w, {}, {}, {plus, {&more, 1}}, "plus");
      EXPECT_LE((got - (product + more)).abs().max().to(kFloat64).item<double>(), 0.26);
      EXPECT_LE((got - (product + more)).to(kFloat32).abs().mean().item<double>(), 1e-3);
    }
  }
}

TEST(ApplyMatmul, HasGradientsToEverything) {
  const auto square = expr::trace([](Values v) { return std::vector{v[0] * v[0] * v[1]}; },
                                  {{kFloat64, kFloat64}}, {}, {{kFloat64}});
  const auto root = expr::trace([](Values v) { return std::vector{sqrt(v[0] * v[0] + v[1])}; },
                                {{kFloat64, kFloat64}}, {}, {{kFloat64}});
  std::vector<Tensor> inputs{random({3, 4}), random({4, 5}), random({3, 1}), random({4, 5}),
                             random({5}).abs().add(1.0)};
  for (Tensor& t : inputs) t = t.detach().requires_grad_();
  const auto f = [&](const std::vector<Tensor>& t) {
    return std::vector<Tensor>{ops::apply_matmul(t[0], t[1], {square, {&t[2], 1}},
                                                 {square, {&t[3], 1}}, {root, {&t[4], 1}}, "f")};
  };
  EXPECT_EQ(autograd::gradcheck(f, inputs), "");
  // What gives a gradient gives the value without one, too.
  const Tensor with = f(inputs)[0].detach();
  const NoGradGuard guard;
  EXPECT_LE((f(inputs)[0] - with).abs().max().item<double>(), 1e-12);
}

TEST(ApplyMatmul, OfTheMetaDeviceAndErrors) {
  const Tensor x = random({2, 3}, kFloat32), w = randint(0, 9, {3, 4}, {kInt8, test_device()});
  const Tensor scale = random({4}, kFloat32), long_one = random({5}, kFloat32);
  const Tensor scales[] = {scale};
  const auto quantized = [&](const Tensor& a, const Tensor& b, const ops::MatrixProgram& right,
                             const ops::MatrixProgram& result = {}) {
    return ops::apply_matmul(a, b, {}, right, result, "quantized");
  };
  const Tensor meta_scale[] = {scale.to(kMeta)};
  const Tensor meta = quantized(x.to(kMeta), w.to(kMeta), {dequantize(kFloat32), meta_scale});
  EXPECT_EQ(to_string(meta.sizes()), "[2, 4]");
  EXPECT_EQ(meta.dtype(), kFloat32);

  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(error_of([&] { quantized(x, w, {}); }), "one real dtype");
  has(error_of([&] { quantized(x, w, {dequantize(kFloat64), scales}); }), "one real dtype");
  has(error_of([&] { quantized(x, w.t(), {dequantize(kFloat32), {}}); }), "number of inputs");
  has(error_of([&] {
        quantized(x, w.t(), {dequantize(kFloat32), {&long_one, 1}});
      }),
      "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x3)");
  has(error_of([&] { quantized(x, w, {dequantize(kFloat32), {&long_one, 1}}); }), "must match");
  has(error_of([&] { quantized(x, x.t(), {dequantize(kFloat32), scales}); }), "another dtype");
  has(error_of([&] { quantized(x, w, {nullptr, scales}); }), "not there");
  has(error_of([&] {
        quantized(x, w, {dequantize(kFloat32), scales}, {biased_relu(kFloat64), {&scale, 1}});
      }),
      "dtype");
  has(error_of([&] { quantized(x[0], w, {dequantize(kFloat32), scales}); }), "must be matrices");
  const Tensor wide = random({7, 2, 4}, kFloat32);
  const Scalar zero[] = {0.0};
  has(error_of([&] {
        quantized(x, w, {dequantize(kFloat32), scales}, {biased_relu(kFloat32), {&wide, 1}, zero});
      }),
      "does not broadcast to the matrix");
}

}  // namespace
}  // namespace arete::test
