// The kernel that copies pieces, run on the host: rows that begin at odd addresses.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "arete/backend/cuda/codegen/pointwise.h"
#include "tests/cuda/emulation.h"

namespace arete::cuda {
namespace copy_device {

#include "tests/cuda/kernel_words.inl"
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t by) {
  return uint32_t((uint64_t(high) << 32 | low) >> (by & 31));
}
struct uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
#include "arete/backend/cuda/device/copy_pieces.cuh"

}  // namespace copy_device

namespace {

// Copies `rows` x `planes` rows of `row_bytes` from byte `from` of one buffer to byte `to` of
// another, with gaps between them that stay as they were.
void check_rows(uint32_t width, uint32_t row_bytes, int64_t rows, int64_t planes, int64_t from,
                int64_t to, int64_t in_gap, int64_t out_gap) {
  const int64_t in_step = row_bytes + in_gap, out_step = row_bytes + out_gap;
  // The rows fill the memory that they are read from but for whole words.
  const int64_t n_in = rows * planes * in_step + from, n_out = rows * planes * out_step + to;
  std::vector<copy_device::uint4> in_words(size_t(n_in / 16 + 1)),
      out_words(size_t(n_out / 16 + 2));
  char *const in = reinterpret_cast<char*>(in_words.data()), *const out = reinterpret_cast<char*>(
                                                                 out_words.data());
  for (int64_t i = 0; i < n_in; ++i) in[i] = char(i * 7 + 3);
  std::vector<char> expected(out, out + 16 * out_words.size());
  copy_device::CopyPieces a{};
  copy_device::CopyPiece& p = a.pieces[0];
  a.used = 1;
  p.in = in + from;
  p.out = out + to;
  p.in_stride[1] = in_step, p.in_stride[2] = rows * in_step;
  p.out_stride[1] = out_step, p.out_stride[2] = rows * out_step;
  p.size[0] = (row_bytes + 30) / 16, p.size[1] = uint32_t(rows);
  for (int d = 0; d < 2; ++d) {
    const FastDivisor divisor = fast_divisor(p.size[d]);
    p.magic[d] = divisor.magic, p.shift[d] = divisor.shift;
  }
  p.total = uint32_t(p.size[0] * rows * planes);
  p.width = width;
  p.row_bytes = row_bytes;
  for (int64_t plane = 0; plane < planes; ++plane)
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(p.in + plane * p.in_stride[2] + r * in_step, row_bytes,
                  expected.data() + to + plane * p.out_stride[2] + r * out_step);
  for (uint32_t block = 0; block <= p.total / 1024; ++block)
    for (uint32_t thread = 0; thread < 256; ++thread) {
      emulation::block_index = {block, 0, 0};
      emulation::thread_index = {thread, 0, 0};
      copy_device::copy_by_blocks<true>(a);
    }
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out))
      << width << " wide, " << row_bytes << " bytes from " << from << " to " << to;
}

TEST(CopyKernels, RowsAtAnyAddress) {
  for (int64_t from = 0; from < 17; ++from)
    for (int64_t to = 0; to < 17; ++to) {
      check_rows(1, 33, 3, 2, from, to, 0, 0);
      check_rows(1, 47, 5, 1, from, to, 3, 5);
      check_rows(2, 66, 3, 2, 2 * from, 2 * to, 2, 4);
      check_rows(4, 132, 3, 2, 4 * from, 4 * to, 4, 0);
      check_rows(8, 264, 1, 1, 8 * from, 8 * to, 0, 0);
    }
  check_rows(2, 70002, 1, 1, 6, 10, 0, 0);
  check_rows(1, 1, 40, 3, 5, 9, 0, 1);
}

}  // namespace
}  // namespace arete::cuda
