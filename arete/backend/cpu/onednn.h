// What the contractions share of oneDNN: engine, stream, threads, dtypes, the cache of plans.
#pragma once

#include <array>
#include <cstdint>
#include <dnnl.hpp>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "arete/base/small_vector.h"
#include "arete/core/dtype.h"
#include "arete/prim/plan_cache.h"

namespace arete::cpu {
class CpuBackend;

namespace onednn {

const dnnl::engine& engine();
/// "oneDNN 2.6.3".
std::string version();
/// The calling thread's stream; execution is synchronous.
dnnl::stream& stream();
/// f32 and bf16; anything else is a bug of the caller.
dnnl::memory::data_type to_dnnl(DType dtype);
/// avx512_core or better.
bool has_avx512();
/// bf16 runs natively, or where there is no avx512_bf16 emulated in registers.
inline bool has_bf16() { return has_avx512(); }

/// While alive, oneDNN (and any OpenMP code) called from this thread uses num_threads() threads, or
/// one inside parallel regions and where `work`, as of grain_for(), pays for no other. The setting
/// of OpenMP is per host thread, so others are untouched.
class ThreadScope {
 public:
  explicit ThreadScope(double work = std::numeric_limits<double>::infinity());
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;
  int threads() const { return threads_; }

 private:
  int threads_, previous_;
};

/// Everything a plan depends on, as numbers.
using PlanKey = SmallVector<int64_t, 48>;
inline Hash128 hash_of(const PlanKey& key) {
  return hash_bytes(key.data(), key.size() * sizeof(int64_t));
}

/// One argument of a primitive: DNNL_ARG_*, descriptor and memory.
struct Argument {
  int index;
  const dnnl::memory::desc* desc;
  void* data;
};
/// Runs a primitive on the calling thread's stream.
void execute(const dnnl::primitive& primitive, std::initializer_list<Argument> arguments);

/// out (m, n) = alpha * a (m, k) @ b (k, n) + beta * out (+ bias), one matrix or a batch.
/// Strides are in elements; a batch stride of 0 broadcasts. Each of a, b and out has a unit stride
/// in one of its two dimensions.
struct MatmulSpec {
  DType dtype, out_dtype;
  int64_t batch, m, n, k;
  std::array<int64_t, 3> a_strides, b_strides, out_strides;  // batch, row, column
  bool has_bias;
  float alpha, beta;
};
/// False, and nothing is done, where oneDNN has only its slow reference code for `spec`.
bool matmul(CpuBackend& backend, const MatmulSpec& spec, const void* a, const void* b, void* out,
            const void* bias);

/// For tests.
prim::PlanCacheStatistics conv_plan_statistics();

}  // namespace onednn
}  // namespace arete::cpu
