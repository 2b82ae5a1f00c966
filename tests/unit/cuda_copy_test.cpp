// Copies between the host and GPUs.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "arete/arete.h"
#include "tests/support/gpu.h"

namespace arete {
namespace {

TEST(CudaCopies, CopiesOfAllSizesAndOrders) {
  NEEDS_GPU();
  for (const int64_t n : {1, 1000, 262144, 262145, 5000000, 40000001}) {
    const Tensor host = arange(n, kFloat32);
    const Tensor there = host.to(kCUDA), back = there.cpu();
    EXPECT_FALSE(back.is_pinned());
    ASSERT_EQ(std::memcmp(host.data_ptr(), back.data_ptr(), host.nbytes()), 0) << n;
  }
  const Tensor m = arange(24, kFloat32).reshape({2, 3, 4});
  EXPECT_EQ(m.transpose(0, 2).to(kCUDA).cpu().to_vector<float>(),
            m.transpose(0, 2).to_vector<float>());
  EXPECT_EQ(m.slice(2, 1, 4, 2).to(kCUDA).cpu().to_vector<float>(),
            m.slice(2, 1, 4, 2).to_vector<float>());
  EXPECT_EQ(m.to(kCUDA).slice(1, 1, 3).cpu().to_vector<float>(),
            m.slice(1, 1, 3).to_vector<float>());
  EXPECT_EQ(zeros({0, 3}).to(kCUDA).cpu().numel(), 0);
  EXPECT_EQ(tensor(3.5).to(kCUDA).item<double>(), 3.5);
}

TEST(CudaCopies, CopiesConvert) {
  NEEDS_GPU();
  const Tensor bytes = tensor(std::vector<int64_t>{0, 1, 200}).to(kUInt8);
  EXPECT_EQ(bytes.to(kCUDA, kFloat32).cpu().to_vector<float>(), (std::vector<float>{0, 1, 200}));
  const Tensor wide = tensor(std::vector<double>{0.5, -2.25}, kFloat64);
  EXPECT_EQ(wide.to(kCUDA, kFloat16).to(kCPU, kFloat64).to_vector<double>(),
            (std::vector<double>{0.5, -2.25}));
  Tensor target = zeros({2, 2}, TensorOptions(kFloat32, kCUDA));
  target.copy_(wide);
  EXPECT_EQ(target.cpu().to_vector<float>(), (std::vector<float>{0.5, -2.25, 0.5, -2.25}));
  Tensor host = zeros({2, 2});
  host.select(1, 1).copy_(target.select(1, 0));
  EXPECT_EQ(host.to_vector<float>(), (std::vector<float>{0, 0.5, 0, 0.5}));
}

TEST(CudaCopies, GradientsComeBackToTheirDevice) {
  NEEDS_GPU();
  Tensor x = ones({3});
  x.requires_grad_();
  (x.to(kCUDA, kFloat64) * 2).sum().backward();
  EXPECT_EQ(x.grad().device(), kCPU);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 2, 2}));
  Tensor y = ones({2, 3}, TensorOptions(kFloat32, kCUDA)) * 1;
  y.copy_(x);
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{4, 4, 4}));
}

TEST(CudaCopies, PinnedCopiesWithImmediateReads) {
  NEEDS_GPU();
  const int64_t n = 3000000;
  const Tensor pinned = arange(n, kFloat32).pin_memory();
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_TRUE(pinned.pin_memory().is_same(pinned));
  for (int i = 0; i < 5; ++i) {
    const Tensor there = pinned.to(kCUDA, true) + float(i);
    const Tensor back = there.to(kCPU, true);
    EXPECT_TRUE(back.is_pinned());
    EXPECT_EQ(back[n - 1].item<float>(), float(n - 1) + float(i));  // waits
    EXPECT_EQ(there.to(kCPU, true).data<float>()[7], float(7 + i));
    EXPECT_EQ((there.to(kCPU, true) * 0).sum().item<float>(), 0);
  }
}

TEST(CudaCopies, PinnedMemoryIsNotReusedWhileItIsCopied) {
  NEEDS_GPU();
  const int64_t n = 1000000;
  std::vector<Tensor> there;
  for (int i = 0; i < 8; ++i)
    there.push_back(full({n}, float(i), kFloat32).pin_memory().to(kCUDA, true));
  for (int i = 0; i < 8; ++i) {
    const auto v = there[size_t(i)].to_vector<float>();
    EXPECT_EQ(v[0], float(i));
    EXPECT_EQ(v[size_t(n - 1)], float(i));
  }
  // Writing the host memory waits for a copy that still reads it.
  Tensor buffer = zeros({n}).pin_memory();
  std::vector<Tensor> batches;
  for (int i = 0; i < 8; ++i) {
    buffer.fill_(i);
    batches.push_back(buffer.to(kCUDA, true));
  }
  for (int i = 0; i < 8; ++i) EXPECT_EQ(batches[size_t(i)][n - 1].item<float>(), float(i));
}

TEST(CudaCopies, CopyIntoPinnedMemory) {
  NEEDS_GPU();
  Tensor host = zeros({1000}).pin_memory();
  const Tensor a = full({1000}, 3.0, TensorOptions(kFloat32, kCUDA));
  host.copy_(a, true);
  host.copy_(a + 1, true);
  EXPECT_EQ(host.sum().item<float>(), 4000);
  host.copy_(a, true);
  host.add_(1);
  EXPECT_EQ(host[999].item<float>(), 4);
}

TEST(CudaCopies, CopiesBetweenGpus) {
  NEEDS_GPU();
  if (cuda::device_count() < 2) GTEST_SKIP() << "there is one GPU";
  const Device one(DeviceType::cuda, 1);
  const Tensor host = arange(1000000, kFloat32);
  const Tensor a = host.to(kCUDA) + 1, b = a.to(one) * 2, c = b.to(kCUDA) - 1;
  EXPECT_EQ(b.device(), one);
  EXPECT_EQ(c[99].item<float>(), 199);
  EXPECT_EQ(c[999999].item<float>(), 2 * 1000000 - 1);
  Tensor d = zeros({2, 3}, TensorOptions(kFloat64, one));
  d.copy_(ones({3}, TensorOptions(kFloat32, kCUDA)));
  EXPECT_EQ(d.sum().item<double>(), 6);
  const cuda::DeviceGuard guard(1);
  EXPECT_EQ(cuda::current_stream().device(), 1);
  EXPECT_FALSE(cuda::can_device_access_peer(1, 1));
}

TEST(CudaCopies, ThreadsCopyAtTheSameTime) {
  NEEDS_GPU();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      const cuda::Stream stream;
      const cuda::StreamGuard guard(stream);
      for (int i = 0; i < 5; ++i) {
        const Tensor host = full({700000}, float(10 * t + i), kFloat32);
        EXPECT_EQ(host.to(kCUDA).cpu().data<float>()[699999], float(10 * t + i));
        EXPECT_EQ(host.pin_memory().to(kCUDA, true).to(kCPU, true).data<float>()[1],
                  float(10 * t + i));
      }
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace arete
