// The kernel of convolutions with few channels, run on the host: gradients of inputs, whose windows
// slide over results with zeros between them. What it does on a GPU is tested with the primitive.
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <string>
#include <vector>

#include "arete/backend/cuda/codegen/direct_conv.h"
#include "tests/cuda/emulation.h"

namespace arete::cuda {
namespace direct_conv_device {

#include "tests/cuda/kernel_words.inl"
#define __shared__
#define __align__(n)
// Of what is not run here.
template <class T>
T __shfl_xor_sync(unsigned, T v, int) {
  return v;
}
alignas(16) unsigned char shared[64 << 10];
#include "arete/backend/cuda/device/direct_conv.cuh"

}  // namespace direct_conv_device

namespace {

static_assert(sizeof(direct_conv_device::DirectConvArguments) == sizeof(DirectConvArguments));

// Of a depthwise convolution of `planes` images with k x k weights.
template <int k, int stride_y, int stride_x, int dilation>
void check(int height, int width, int padding) {
  SCOPED_TRACE(std::to_string(height) + " x " + std::to_string(width) + ", padding " +
               std::to_string(padding));
  constexpr int kPlanes = 3, kRows = 2;
  const int reach = dilation * (k - 1);
  const int grad_height = (height + 2 * padding - reach - 1) / stride_y + 1,
            grad_width = (width + 2 * padding - reach - 1) / stride_x + 1;
  std::mt19937 random(11);
  const auto numbers = [&](int n) {  // whole ones, so that all sums are exact
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = float(int(random() % 19)) - 9;
    return v;
  };
  const std::vector<float> grad = numbers(kPlanes * grad_height * grad_width),
                           w = numbers(kPlanes * k * k);
  std::vector<float> wanted(size_t(kPlanes * height * width)), found(wanted.size(), 77.0f);
  for (int plane = 0; plane < kPlanes; ++plane)
    for (int y = 0; y < grad_height; ++y)
      for (int x = 0; x < grad_width; ++x)
        for (int i = 0; i < k; ++i)
          for (int j = 0; j < k; ++j) {
            const int to_y = y * stride_y - padding + i * dilation,
                      to_x = x * stride_x - padding + j * dilation;
            if (to_y < 0 || to_y >= height || to_x < 0 || to_x >= width) continue;
            wanted[size_t((plane * height + to_y) * width + to_x)] +=
                grad[size_t((plane * grad_height + y) * grad_width + x)] *
                w[size_t((plane * k + i) * k + j)];
          }

  DirectConvKernel kernel{.kernel_y = k,
                          .kernel_x = k,
                          .dilation_y = dilation,
                          .dilation_x = dilation,
                          .spread_y = stride_y,
                          .spread_x = stride_x,
                          .rows = kRows};
  constexpr int kLogX = 2, kLogY = 3, kThreads = 1 << (kLogX + kLogY);
  direct_conv_device::DirectConvArguments a{};
  a.in = grad.data(), a.out = found.data();
  a.w = w.data() + k * k - 1;  // mirrored
  a.w_group = k * k, a.w_row = -k, a.w_column = -1;
  a.in_sample = kPlanes * grad_height * grad_width, a.in_channel = grad_height * grad_width;
  a.in_row = grad_width, a.out_sample = kPlanes * height * width, a.out_channel = height * width;
  a.out_row = width;
  a.in_height = (grad_height - 1) * stride_y + 1, a.in_width = (grad_width - 1) * stride_x + 1;
  a.out_height = height, a.out_width = width;
  a.top = a.left = reach - padding;
  a.groups = a.planes = kPlanes, a.channels = 1;
  a.log_x = kLogX, a.log_y = kLogY;
  a.tile_row = kernel.tile_row(1 << kLogX), a.tile_rows = kernel.tile_rows(1 << kLogY);
  a.plane_words = kernel.weight_words() + a.tile_row * a.tile_rows;
  a.tiles_x = uint32_t((width + 15) / 16), a.tiles_y = uint32_t((height + 15) / 16);
  ASSERT_LE(size_t(a.plane_words) * sizeof(float), sizeof direct_conv_device::shared);
  emulation::Block block(kThreads);
  direct_conv_device::blockDim.x = kThreads;
  for (unsigned b = 0; b < a.tiles_x * a.tiles_y * kPlanes; ++b) {
    emulation::block_index = {b, 0, 0};
    block.run([&] {
      direct_conv_device::DirectConv<float, k, k, 1, 1, dilation, dilation, stride_y, stride_x, 1,
                                     1, kRows, 0, false>::run(a);
    });
  }
  EXPECT_EQ(found, wanted);
}

TEST(DirectConvKernel, GradientsOfStridedConvolutions) {
  for (const int height : {1, 13, 32})
    for (const int width : {7, 16, 35})
      for (const int padding : {2, 3}) {
        check<3, 1, 1, 1>(height, width, padding);
        check<3, 2, 2, 1>(height, width, padding);
        check<5, 2, 2, 1>(height, width, padding);
        check<5, 1, 2, 1>(height, width, padding);
        check<4, 2, 1, 1>(height, width, padding);
        check<3, 2, 2, 2>(height, width, padding);
      }
}

}  // namespace
}  // namespace arete::cuda
