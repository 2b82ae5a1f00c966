// What the records' tests do not reach: literals, foreign memory, strides, reading on the host.
#include "arete/ops/creation.h"

#include <gtest/gtest.h>

#include <complex>
#include <cstdint>
#include <limits>

#include "arete/ops/shape.h"

namespace arete {
namespace {

TEST(Creation, LiteralsFindTheirDtype) {
  EXPECT_EQ(tensor({1, 2}).dtype(), kInt64);
  EXPECT_EQ(tensor({1, 2.5}).dtype(), kFloat32);
  EXPECT_EQ(tensor({true, false}).dtype(), kBool);
  EXPECT_EQ(tensor({true, 2}).dtype(), kInt64);
  EXPECT_EQ(tensor(std::complex<double>(0, 1)).dtype(), kComplex64);
  EXPECT_EQ(tensor(std::complex<float>(1, 2)).item<std::complex<double>>(),
            std::complex<double>(1, 2));
  EXPECT_EQ(tensor({}).dtype(), kFloat32);
  EXPECT_EQ(tensor(std::vector<int32_t>{1}).dtype(), kInt64);
  EXPECT_EQ(tensor(std::vector<double>{1}).dtype(), kFloat32);
  EXPECT_EQ(tensor(std::vector<bool>{true}).dtype(), kBool);
  EXPECT_EQ(tensor({1, 2}, kFloat16).dtype(), kFloat16);
}

TEST(Creation, LiteralsNest) {
  const Tensor t = tensor({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}, {{9, 10}, {11, 12}}});
  EXPECT_EQ(to_string(t.sizes()), "[3, 2, 2]");
  EXPECT_EQ(t.to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(to_string(tensor({{1}}).sizes()), "[1, 1]");
  EXPECT_EQ(to_string(tensor(1).sizes()), "[]");
  EXPECT_EQ(to_string(tensor({}).sizes()), "[0]");
  EXPECT_THROW(tensor({{1, 2}, {3}}), ValueError);
  EXPECT_THROW(tensor({{1}, 2}), ValueError);
}

TEST(Creation, LargeIntegersStayExact) {
  const int64_t big = std::numeric_limits<int64_t>::max() - 1;
  EXPECT_EQ(tensor({big}).item<int64_t>(), big);
  EXPECT_EQ(full({1}, big).item<int64_t>(), big);
  EXPECT_EQ(arange(big, big + 1).item<int64_t>(), big);
}

TEST(Creation, ArangeDtypes) {
  EXPECT_EQ(arange(3).dtype(), kInt64);
  EXPECT_EQ(arange(3.0).dtype(), kFloat32);
  EXPECT_EQ(arange(0, 3, 0.5).dtype(), kFloat32);
  EXPECT_EQ(arange(3, kInt16).dtype(), kInt16);
  EXPECT_EQ(arange(0, 1, 0.1).numel(), 10);
}

TEST(Creation, LinspaceEndsExactly) {
  for (DType t : {kFloat32, kFloat64}) {
    const auto v = linspace(0.1, 0.7, 1001, t).to_vector<double>();
    EXPECT_EQ(v.front(), tensor(0.1, t).item<double>());
    EXPECT_EQ(v.back(), tensor(0.7, t).item<double>());
  }
}

TEST(Creation, LikeKeepsDenseStrides) {
  const Tensor t = zeros({2, 3, 4}).permute({2, 0, 1});
  EXPECT_EQ(to_string(zeros_like(t).strides()), to_string(t.strides()));
  EXPECT_EQ(to_string(ones_like(t.slice(0, 0, 2)).strides()), "[1, 6, 2]");  // its order
  EXPECT_EQ(zeros_like(t, kInt64).dtype(), kInt64);
  EXPECT_TRUE(empty_like(t, {}, kMeta).is_meta());
  EXPECT_FALSE(zeros_like(zeros({2}, TensorOptions().requires_grad())).requires_grad());
}

TEST(Creation, RequiresGrad) {
  EXPECT_TRUE(zeros({2}, TensorOptions().requires_grad()).requires_grad());
  EXPECT_THROW(zeros({2}, TensorOptions(kInt64).requires_grad()), AutogradError);
}

TEST(Creation, FromBlobSharesAndReleases) {
  float memory[6] = {1, 2, 3, 4, 5, 6};
  void* released = nullptr;
  {
    const Tensor t = from_blob(memory, {2, 2}, {3, 1}, {}, [&](void* p) { released = p; });
    EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{1, 2, 4, 5}));
    memory[4] = 50;
    const Tensor view = t.select(0, 1);
    EXPECT_EQ(view.to_vector<float>(), (std::vector<float>{4, 50}));
    EXPECT_EQ(released, nullptr);
  }
  EXPECT_EQ(released, memory);
  EXPECT_THROW(from_blob(memory, {2}, {-1}), ValueError);
  EXPECT_THROW(from_blob(memory, {2}, {1, 1}), ValueError);
  EXPECT_THROW(from_blob(nullptr, {2}), ValueError);
}

TEST(HostAccess, ReadsAnyStrides) {
  for (DType dtype : {kUInt8, kInt16, kFloat32, kFloat64, kComplex128}) {
    const Tensor t =
        arange(24, kInt64).to(dtype).view({2, 3, 4}).permute({2, 0, 1}).slice(0, 1, {}, 2);
    EXPECT_EQ(t.to_vector<int64_t>(),
              (std::vector<int64_t>{1, 5, 9, 13, 17, 21, 3, 7, 11, 15, 19, 23}))
        << name_of(dtype);
  }
}

TEST(HostAccess, ItemNeedsOneElement) {
  EXPECT_EQ(tensor({{2.5}}).item<double>(), 2.5);
  EXPECT_EQ(tensor({1, 7}).select(0, 1).item<int>(), 7);
  EXPECT_TRUE(tensor(true).item<bool>());
  EXPECT_THROW(tensor({1, 2}).item(), ValueError);
  EXPECT_THROW(zeros({0}).item(), ValueError);
  EXPECT_THROW(empty({1}, kMeta).item(), DeviceError);
}

TEST(HostAccess, DataChecksTheType) {
  const Tensor t = tensor({1.0, 2.0});
  EXPECT_EQ(t.slice(0, 1).data<float>()[0], 2.0f);
  EXPECT_THROW(t.data<double>(), TypeError);
  EXPECT_THROW(empty({2}, kMeta).data<float>(), DeviceError);
  EXPECT_EQ(zeros({0}).data_ptr(), nullptr);
  EXPECT_THROW(Tensor().data_ptr(), ValueError);
}

TEST(Shape, InPlaceFormsKeepHistory) {
  const Tensor x = tensor({{1.0, 2.0, 3.0}}, TensorOptions().requires_grad());
  Tensor y = x.mul(x);
  y.squeeze_(0).unsqueeze_(1).transpose_(0, 1).t_();
  EXPECT_EQ(to_string(y.sizes()), "[3, 1]");
  y.backward(tensor({{1.0}, {10.0}, {100.0}}));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 40, 600}));
  Tensor leaf = x;
  EXPECT_THROW(leaf.t_(), AutogradError);
}

TEST(Shape, AsStridedGradientOfStridedAndExpanded) {
  const Tensor a = zeros({3, 2}, TensorOptions().requires_grad());
  as_strided(a.t(), {2, 2}, {1, 2}, 1).backward(ones({2, 2}));
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{0, 1, 1, 1, 1, 0}));
  const Tensor b = zeros({1}, TensorOptions().requires_grad());
  as_strided(b.expand({4}), {3}, {0}, 0).backward(ones({3}));
  EXPECT_EQ(b.grad().to_vector<float>(), (std::vector<float>{3}));
}

TEST(Shape, CatPromotes) {
  EXPECT_EQ(cat({tensor({1}, kInt32), tensor({2})}).dtype(), kInt64);
  EXPECT_EQ(cat({tensor({1}), tensor({2.5}, kFloat16)}).dtype(), kFloat16);
  const Tensor h = tensor({1.0}, TensorOptions(kFloat16).requires_grad());
  cat({h, tensor({2.0})}).backward(ones({2}));
  EXPECT_EQ(h.grad().dtype(), kFloat16);
}

TEST(Shape, RepeatInterleaveByCounts) {
  const Tensor x = tensor({{1, 2}, {3, 4}});
  EXPECT_EQ(repeat_interleave(x, tensor({2, 1}), 0).to_vector<int>(),
            (std::vector<int>{1, 2, 1, 2, 3, 4}));
  EXPECT_EQ(repeat_interleave(x, tensor({2})).to_vector<int>(),
            (std::vector<int>{1, 1, 2, 2, 3, 3, 4, 4}));
  EXPECT_THROW(repeat_interleave(x, tensor({1, 2, 3}), 0), ValueError);
}

}  // namespace
}  // namespace arete
