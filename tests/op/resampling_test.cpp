// Pictures large enough to be resampled in slices, or in several passes: each as it is by itself,
// where elements are looked up one by one, and both as in f64.
#include <gtest/gtest.h>

#include "arete/arete.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

struct Case {
  const char* name;
  Shape from, to;
  const char* mode;
  bool align = false, antialias = false, channels_last = false;
};

// The result, and the gradient of x.
std::vector<Tensor> run(const Tensor& x, const Tensor& gradient, const Case& c) {
  const Tensor leaf = x.detach().requires_grad_();
  const Tensor y = interpolate(leaf, Extent(c.to), {}, c.mode, c.align, c.antialias);
  y.backward(gradient);
  return {y.detach(), leaf.grad()};
}

class Resampling : public testing::TestWithParam<Case> {};

TEST_P(Resampling, OfManyIsThatOfEach) {
  const Case& c = GetParam();
  manual_seed(3);
  Shape sizes{3, 40}, results{3, 40};
  for (int64_t n : c.from) sizes.push_back(n);
  for (int64_t n : c.to) results.push_back(n);
  Tensor x = randn(sizes, test_device()), g = randn(results, test_device());
  if (c.channels_last) {
    x = x.contiguous(MemoryFormat::channels_last);
    g = g.contiguous(MemoryFormat::channels_last);
  }
  const std::vector<Tensor> all = run(x, g, c), exact = run(x.to(kFloat64), g.to(kFloat64), c);
  for (size_t k = 0; k < all.size(); ++k)
    EXPECT_TRUE(allclose(all[k].to(kFloat64), exact[k], 1e-4, 1e-5)) << c.name << " " << k;
  for (int64_t channel : {0, 7, 39}) {
    const auto one = [&](const Tensor& t) {
      return t.select(0, 2).select(0, channel).unsqueeze(0).unsqueeze(0).contiguous();
    };
    const std::vector<Tensor> alone = run(one(x), one(g), c);
    for (size_t k = 0; k < all.size(); ++k)
      EXPECT_TRUE(allclose(one(all[k]), alone[k], 1e-4, 1e-5)) << c.name << " " << k;
  }
}

// More images than numbers of them are kept for: each is as it is by itself.
TEST(GridSampling, OfManyImagesIsThatOfEach) {
  constexpr int64_t kImages = 70000, kFew = 50;
  manual_seed(4);
  const Tensor x = randn({kImages, 2, 2, 2}, test_device()),
               grid = rand({kImages, 1, 2, 2}, test_device()) * 2.2 - 1.1,
               g = randn({kImages, 2, 1, 2}, test_device());
  const auto run = [](const Tensor& of, const Tensor& at, const Tensor& gradient) {
    const Tensor leaf = of.detach().requires_grad_(), points = at.detach().requires_grad_();
    const Tensor y = grid_sample(leaf, points, "bilinear", "zeros", false);
    y.backward(gradient);
    return std::vector<Tensor>{y.detach(), leaf.grad(), points.grad()};
  };
  const std::vector<Tensor> all = run(x, grid, g);
  for (const int64_t first : {int64_t{0}, int64_t{65500}, kImages - kFew}) {
    const auto some = [&](const Tensor& t) { return t.narrow(0, first, kFew).contiguous(); };
    const std::vector<Tensor> alone = run(some(x), some(grid), some(g));
    for (size_t k = 0; k < all.size(); ++k)
      EXPECT_TRUE(allclose(some(all[k]), alone[k], 1e-5, 1e-6)) << first << " " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Resampling,
    testing::Values(Case{"linear", {70}, {190}, "linear"},
                    Case{"bilinear", {13, 14}, {26, 28}, "bilinear"},
                    Case{"aligned", {13, 14}, {25, 29}, "bilinear", true},
                    Case{"one_way", {13, 30}, {13, 14}, "bilinear"},
                    Case{"bilinear_last", {13, 14}, {26, 28}, "bilinear", false, false, true},
                    Case{"bicubic", {13, 14}, {26, 20}, "bicubic"},
                    Case{"bicubic_last", {13, 14}, {26, 20}, "bicubic", false, false, true},
                    Case{"nearest", {13, 14}, {26, 28}, "nearest"},
                    Case{"nearest_down", {26, 28}, {13, 20}, "nearest"},
                    Case{"nearest_last", {13, 14}, {9, 28}, "nearest-exact", false, false, true},
                    Case{"antialias", {40, 44}, {19, 17}, "bilinear", false, true},
                    Case{"antialias_last", {40, 44}, {19, 17}, "bicubic", false, true, true},
                    Case{"trilinear", {7, 8, 9}, {14, 9, 12}, "trilinear"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace arete::test
