// Products with a derivative, sums of rows or scales, against doubles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arete/prim/backend.h"
#include "tests/prim/strided_buffer.h"
#include "tests/support/test_device.h"
#include "tests/support/tolerance.h"

namespace arete::test {
namespace {

using prim::Activation;
using prim::GemmArgs;

double slope(Activation act, double x) {
  switch (act) {
    case Activation::none:
      return 1;
    case Activation::relu:
      return x > 0 ? 1 : 0;
    case Activation::gelu:
      return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) +
             x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    case Activation::gelu_tanh: {
      const double c = std::sqrt(2 / M_PI), t = std::tanh(c * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
    }
  }
  return 0;
}

// Row-major sums of products and of their magnitudes.
struct Product {
  std::vector<double> sum, magnitude;
};
Product product(const std::vector<double>& a, const std::vector<double>& b, int64_t m, int64_t n,
                int64_t k) {
  Product r;
  for (int64_t i = 0; i < m * n; ++i) {
    double sum = 0, magnitude = 0;
    for (int64_t p = 0; p < k; ++p) {
      const double x = a[size_t(i / n * k + p)] * b[size_t(p * n + i % n)];
      sum += x, magnitude += std::abs(x);
    }
    r.sum.push_back(sum), r.magnitude.push_back(magnitude);
  }
  return r;
}

TEST(GemmParts, TimesTheDerivativeOfAnActivation) {
  std::mt19937_64 rng(1);
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16})
    for (Activation act :
         {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh})
      for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {5, 7, 3}, {64, 96, 32}}) {
        StridedBuffer a(dtype, {m, k}), b(dtype, {k, n}, {1, 0}), out(dtype, {m, n}),
            aux(dtype, {m, n});
        for (StridedBuffer* t : {&a, &b, &out, &aux}) t->randomize(rng);
        GemmArgs g;
        g.a = a.view(), g.b = b.view(), g.out = out.view(), g.aux = aux.view();
        g.alpha = 0.5, g.activation = act, g.differentiate = true;
        const Product want = product(a.values(), b.values(), m, n, k);
        const std::vector<double> x = aux.values();
        backend_under_test().gemm(g);
        const std::vector<double> got = out.values();
        for (size_t i = 0; i < got.size(); ++i) {
          const double s = slope(act, x[i]);
          // The derivative itself is computed in f32, by the library a little less exactly.
          const double bound = 2 * tolerance(dtype, k, want.magnitude[i]) +
                               (is_reduced_float(dtype) ? 4e-3 : 1e-6) * want.magnitude[i];
          ASSERT_NEAR(got[i], 0.5 * s * want.sum[i], bound)
              << name_of(dtype) << " act " << int(act) << " " << m << "x" << n << "x" << k;
        }
        for (const StridedBuffer* t : {&a, &b, &out, &aux}) t->expect_guards_intact();
      }
}

TEST(GemmParts, SumsOfRows) {
  std::mt19937_64 rng(2);
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16})
    for (const bool transposed : {false, true})
      for (const auto& [m, n, k] :
           {std::array<int64_t, 3>{1, 1, 1}, {3, 5, 0}, {3, 0, 4}, {5, 7, 3}, {64, 96, 128}}) {
        StridedBuffer a(dtype, {m, k}, transposed ? std::vector<int>{1, 0} : std::vector<int>{}),
            b(dtype, {k, n}), out(dtype, {m, n}), sums(dtype, {m});
        for (StridedBuffer* t : {&a, &b, &out, &sums}) t->randomize(rng);
        GemmArgs g;
        g.a = a.view(), g.b = b.view(), g.out = out.view(), g.a_sum = sums.view();
        const std::vector<double> x = a.values(), ones(size_t(k), 1.0);
        const Product want = product(x, b.values(), m, n, k), rows = product(x, ones, m, 1, k);
        backend_under_test().gemm(g);
        const std::vector<double> got = out.values(), got_sums = sums.values();
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], want.sum[i], tolerance(dtype, k, want.magnitude[i]));
        for (size_t i = 0; i < got_sums.size(); ++i)
          ASSERT_NEAR(got_sums[i], rows.sum[i], tolerance(dtype, k, rows.magnitude[i]))
              << name_of(dtype) << " " << m << "x" << n << "x" << k << " transposed " << transposed;
        for (const StridedBuffer* t : {&a, &b, &out, &sums}) t->expect_guards_intact();
      }
}

TEST(GemmParts, BiasesOfEachOfABatch) {
  std::mt19937_64 rng(4);
  for (DType dtype : {kFloat32, kFloat64, kBFloat16})
    for (const int64_t count : {1, 2, 3})
      for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {5, 7, 3}, {16, 32, 24}})
        for (const Activation act : {Activation::none, Activation::relu}) {
          StridedBuffer a(dtype, {count, m, k}), b(dtype, {count, k, n}), out(dtype, {count, m, n}),
              bias(dtype, {count, 1, n});
          for (StridedBuffer* t : {&a, &b, &out, &bias}) t->randomize(rng);
          GemmArgs g;
          g.a = a.view(), g.b = b.view(), g.out = out.view(), g.bias = bias.view();
          g.activation = act;
          backend_under_test().gemm(g);
          const std::vector<double> x = a.values(), y = b.values(), c = bias.values(),
                                    got = out.values();
          const auto part = [](const std::vector<double>& v, int64_t number, int64_t size) {
            return std::vector(v.begin() + number * size, v.begin() + (number + 1) * size);
          };
          for (int64_t i = 0; i < count; ++i) {
            const Product want = product(part(x, i, m * k), part(y, i, k * n), m, n, k);
            for (int64_t e = 0; e < m * n; ++e) {
              const double add = c[size_t(i * n + e % n)], sum = want.sum[size_t(e)] + add;
              ASSERT_NEAR(got[size_t(i * m * n + e)],
                          act == Activation::relu ? std::max(sum, 0.0) : sum,
                          tolerance(dtype, k, want.magnitude[size_t(e)] + std::abs(add)))
                  << name_of(dtype) << " " << count << " of " << m << "x" << n << "x" << k;
            }
          }
          for (const StridedBuffer* t : {&a, &b, &out, &bias}) t->expect_guards_intact();
        }
}

// f8 operands with one number for each, or one for each row and column.
TEST(GemmParts, ScaledFloat8) {
  std::mt19937_64 rng(3);
  for (DType a_type : {kFloat8E4M3, kFloat8E5M2})
    for (DType out_type : {kFloat32, kBFloat16, kFloat16})
      for (const bool by_row : {false, true})
        for (const bool with_bias : {false, true})
          for (const auto& [m, n, k] :
               {std::array<int64_t, 3>{1, 1, 1}, {5, 7, 3}, {32, 48, 64}, {128, 256, 96}}) {
            StridedBuffer a(a_type, {m, k}), b(kFloat8E4M3, {k, n}, {1, 0}), out(out_type, {m, n}),
                bias(out_type, {n});
            StridedBuffer a_scale(kFloat32, {by_row ? m : 1, 1}),
                b_scale(kFloat32, {1, by_row ? n : 1});
            for (StridedBuffer* t : {&a, &b, &out, &bias, &a_scale, &b_scale}) t->randomize(rng);
            GemmArgs g;
            g.a = a.view(), g.b = b.view(), g.out = out.view();
            g.a_scale = a_scale.view(), g.b_scale = b_scale.view();
            if (with_bias) g.bias = bias.view();
            const Product want = product(a.values(), b.values(), m, n, k);
            const std::vector<double> sa = a_scale.values(), sb = b_scale.values(),
                                      c = bias.values();
            backend_under_test().gemm(g);
            const std::vector<double> got = out.values();
            for (int64_t i = 0; i < m * n; ++i) {
              const double s = sa[size_t(by_row ? i / n : 0)] * sb[size_t(by_row ? i % n : 0)];
              const double add = with_bias ? c[size_t(i % n)] : 0;
              // Tensor cores keep 14 bits of each sum of f8 products.
              const double bound =
                  tolerance(out_type, k, want.magnitude[size_t(i)] * std::abs(s) + std::abs(add)) +
                  std::ldexp(want.magnitude[size_t(i)] * std::abs(s), -12);
              ASSERT_NEAR(got[size_t(i)], s * want.sum[size_t(i)] + add, bound)
                  << name_of(a_type) << " " << name_of(out_type) << " " << m << "x" << n << "x" << k
                  << (by_row ? " by row" : "") << (with_bias ? " bias" : "");
            }
            for (const StridedBuffer* t : {&a, &b, &out, &bias}) t->expect_guards_intact();
          }
}

}  // namespace
}  // namespace arete::test
