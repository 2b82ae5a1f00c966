// Transposition of blocks.
#include "arete/backend/cpu/kernels/simd.inl.h"

namespace arete::cpu::kernels {
namespace {

struct Bytes16 { uint64_t low, high; };

template <class T>
void transpose(void* dst, const void* src, int64_t rows, int64_t cols, int64_t dst_stride,
               int64_t src_stride) {
  auto* d = static_cast<T*>(dst);
  auto* s = static_cast<const T*>(src);
  constexpr int64_t kBlock = 8;
  int64_t r = 0;
  for (; r + kBlock <= rows; r += kBlock) {
    int64_t c = 0;
    for (; c + kBlock <= cols; c += kBlock)
      for (int64_t j = 0; j < kBlock; ++j)
        for (int64_t i = 0; i < kBlock; ++i)
          d[(c + j) * dst_stride + r + i] = s[(r + i) * src_stride + c + j];
    for (; c < cols; ++c)
      for (int64_t i = 0; i < kBlock; ++i) d[c * dst_stride + r + i] = s[(r + i) * src_stride + c];
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) d[c * dst_stride + r] = s[r * src_stride + c];
}

}  // namespace

void ARETE_FILL(move)(KernelTable& t) {
  t.transpose[1] = transpose<uint8_t>;
  t.transpose[2] = transpose<uint16_t>;
  t.transpose[4] = transpose<uint32_t>;
  t.transpose[8] = transpose<uint64_t>;
  t.transpose[16] = transpose<Bytes16>;
}

}  // namespace arete::cpu::kernels
