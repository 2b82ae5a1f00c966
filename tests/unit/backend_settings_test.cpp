// What users ask of backends: cuDNN's switches, how exactly f32 is computed, ways of attention.
#include <gtest/gtest.h>

#include <array>

#include "arete/arete.h"
#include "tests/support/errors.h"
#include "tests/support/gpu.h"

namespace arete {
namespace {

TEST(CudnnSwitches, AreSetAndReadAnywhere) {
  EXPECT_TRUE(cuda::cudnn_enabled() && !cuda::cudnn_benchmark() && !cuda::cudnn_deterministic());
  cuda::set_cudnn_deterministic(true);
  EXPECT_TRUE(cuda::cudnn_deterministic() && !modes().deterministic);
  cuda::set_cudnn_deterministic(false);
  cuda::set_cudnn_enabled(false);
  EXPECT_FALSE(cuda::cudnn_enabled());
  EXPECT_FALSE(cuda::cudnn_benchmark());
  cuda::set_cudnn_benchmark(true);
  EXPECT_TRUE(cuda::cudnn_benchmark());
  cuda::set_cudnn_enabled(true);
  cuda::set_cudnn_benchmark(false);
  cuda::set_cudnn_benchmark_limit(0);
  EXPECT_EQ(cuda::cudnn_benchmark_limit(), 0);
  EXPECT_ERROR(cuda::set_cudnn_benchmark_limit(-1), "must not be negative");
  EXPECT_EQ(cuda::cudnn_benchmark_limit(), 0);
  cuda::set_cudnn_benchmark_limit(10);
}

TEST(CudnnSwitches, ConvolutionsAgree) {
  NEEDS_GPU();
  manual_seed(3);
  const Tensor x = randn({8, 16, 40, 40}), w = randn({32, 16, 3, 3});  // 1.1e8 products: not timed
  const Tensor large = randn({64, 16, 40, 40});                        // 9e8, 1.8e9 operations
  for (const Tensor& in : {x, large}) {
    const Tensor want = conv2d(in, w);
    const double bound = 1e-4 * want.abs().max().item<double>();
    for (bool enabled : {true, false})
      for (bool benchmark : {true, false}) {
        cuda::set_cudnn_enabled(enabled);
        cuda::set_cudnn_benchmark(benchmark);
        const Tensor got = conv2d(in.to(kCUDA), w.to(kCUDA)).to(kCPU);
        EXPECT_LE((got - want).abs().max().item<double>(), bound) << enabled << benchmark;
      }
  }
  cuda::set_cudnn_enabled(true);
  cuda::set_cudnn_benchmark(false);
}

TEST(Float32Precision, WhatIsCloserDecides) {
  using enum Float32Scope;
  using P = Float32Precision;
  struct Restore {
    std::array<P, kNumFloat32Scopes> before;
    Restore() {
      for (int i = 0; i < kNumFloat32Scopes; ++i)
        before[size_t(i)] = float32_precision_setting(Float32Scope(i));
    }
    ~Restore() {
      for (int i = 0; i < kNumFloat32Scopes; ++i)
        set_float32_precision(Float32Scope(i), before[size_t(i)]);
    }
  } restore;
  // As at the start of a program.
  for (int i = 0; i < kNumFloat32Scopes; ++i) set_float32_precision(Float32Scope(i), P::none);
  set_float32_precision(convolutions, P::tf32);
  EXPECT_TRUE(float32_convolution_tf32());
  EXPECT_EQ(float32_matmul_precision(), MatmulPrecision::highest);
  EXPECT_EQ(float32_precision(products), P::none);
  EXPECT_FALSE(float32_recurrence_tf32());
  set_float32_precision(recurrences, P::tf32);
  EXPECT_TRUE(float32_recurrence_tf32());
  set_float32_precision(recurrences, P::none);
  set_float32_precision(all, P::tf32);
  EXPECT_EQ(float32_matmul_precision(), MatmulPrecision::high);
  set_float32_precision(gpu, P::ieee);
  EXPECT_EQ(float32_matmul_precision(), MatmulPrecision::highest);
  EXPECT_TRUE(float32_convolution_tf32());  // its own setting stays
  set_float32_precision(convolutions, P::none);
  EXPECT_FALSE(float32_convolution_tf32());
  set_float32_precision(gpu, P::none);
  EXPECT_TRUE(float32_convolution_tf32());
  set_float32_matmul_precision("medium");
  EXPECT_EQ(get_float32_matmul_precision(), "medium");
  set_float32_precision(products, P::tf32);
  EXPECT_EQ(get_float32_matmul_precision(), "high");
  set_float32_matmul_precision("highest");
  EXPECT_EQ(float32_matmul_precision(), MatmulPrecision::highest);
}

TEST(AttentionBackends, AreAskedByEachCall) {
  const Tensor q = randn({1, 2, 4, 8});
  const auto run = [&] { return scaled_dot_product_attention(q, q, q); };
  const Tensor exact = run();
  set_attention_backends({.flash = false, .mem_efficient = false, .cudnn = false});
  EXPECT_TRUE(attention_backends().math && !attention_backends().fused());
  EXPECT_TRUE(equal(run(), exact));
  set_attention_backends({.flash = false, .mem_efficient = false, .cudnn = false, .math = false});
  EXPECT_ERROR(run(), "No viable backend for scaled_dot_product_attention was found");
  set_attention_backends({.math = false});
  EXPECT_TRUE(equal(run(), exact));  // CPUs need no permission
  if (cuda::is_available()) {
    const Tensor there = q.to(kCUDA);  // cuDNN's is for half types, bands are for all
    const auto run_there = [&] { return scaled_dot_product_attention(there, there, there); };
    EXPECT_TRUE(allclose(run_there().to(kCPU), exact, 1e-4, 1e-5));
    set_attention_backends({.mem_efficient = false, .math = false});
    EXPECT_ERROR(run_there(), "No available kernel");
  }
  set_attention_backends({});
  EXPECT_TRUE(attention_backends().fused() && attention_backends().math);
}

}  // namespace
}  // namespace arete
