// What all sources of kernels find on a GPU, for those that a test runs on the host: to be included
// after emulation.h within a namespace of the test's own, before the sources. What only some of them
// call stands in their tests.
#define ARETE_EMULATED
#define __device__
#define __noinline__
#define __forceinline__ inline
#define threadIdx emulation::thread_index
#define blockIdx emulation::block_index
inline emulation::Dim blockDim;
inline float __uint_as_float(uint32_t v) { return emulation::as_float(v); }
inline uint32_t __float_as_uint(float v) { return emulation::as_word(v); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return uint32_t(uint64_t(a) * b >> 32); }
inline void __syncthreads() { emulation::Block::barrier(); }
inline void __threadfence_system() {}
inline float f16_value(uint16_t bits) { return emulation::f16_value(bits, 0); }
inline uint16_t f16_bits(float v) { return Half(v).bits; }
inline uint16_t bf16_bits(float v) { return BFloat16(v).bits; }
using std::max, std::min;
