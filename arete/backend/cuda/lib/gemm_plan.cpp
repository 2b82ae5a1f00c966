#include "arete/backend/cuda/lib/gemm_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/kernel.h"
#include "arete/backend/cuda/scratch_memory.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

// What NVIDIA recommends for Hopper and later.
constexpr uint64_t kWorkspace = 32u << 20;
// Below this the choice matters less than measuring it costs.
constexpr double kMeasureFrom = 2e9;  // floating-point operations
// The same of calls that come again and again. Smaller ones take no longer than their launches, so
// that a row of these would not show it.
constexpr double kMeasureRepeatedFrom = 1e8;
// Above this a product runs at the limit of the GPU's power, which a burst does not show: on an
// H200 the candidate that won at tf32 8192 (1.1e12) by bursts was 8 % slower in a row of products.
constexpr double kMeasureUpTo = 2e11;
constexpr int kCandidates = 6;
// Milliseconds that measuring one product may take; the round begun last is finished.
constexpr float kMeasureBudget = 100;
constexpr float kNever = std::numeric_limits<float>::max();

cublasComputeType_t compute_type(const GemmKey& key) {
  if (key.d == kFloat64 || key.d == kComplex128) return CUBLAS_COMPUTE_64F;
  return key.is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cudaDataType_t scale_type(DType d) {
  if (is_complex(d) || d == kFloat64) return cublas_type(d);
  return CUDA_R_32F;
}

cublasLtEpilogue_t epilogue_of(const GemmKey& key) {
  if (key.sums != GemmOptions::Sums::none)
    return key.sums == GemmOptions::Sums::a ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
  if (key.has_derivative) return CUBLASLT_EPILOGUE_DGELU;
  if (key.has_gelu && key.has_aux)
    return key.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  if (key.has_gelu) return key.has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  if (key.has_relu) return key.has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  return key.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

std::string describe(const GemmKey& k) {
  // As the caller sees it: the library's D is usually the transpose of a row-major result.
  std::string s = k.batch == 1 ? "" : std::to_string(k.batch) + " x ";
  s += "(" + std::to_string(k.n) + " x " + std::to_string(k.k) + ") @ (" + std::to_string(k.k) +
       " x " + std::to_string(k.m) + ") of " + std::string(name_of(k.b));
  if (k.a != k.b) s += " and " + std::string(name_of(k.a));
  return s + " into " + std::string(name_of(k.d));
}

double flops_of(const GemmKey& k) {
  return 2.0 * double(k.m) * double(k.n) * double(k.k) * double(k.batch) *
         (is_complex(k.d) ? 4 : 1);
}

// Two events around work on a stream.
class Stopwatch {
 public:
  explicit Stopwatch(CUstream stream) : stream_(stream) {
    ARETE_CU(cuEventCreate, &begin_, CU_EVENT_DEFAULT);
    const CUresult result = driver().cuEventCreate(&end_, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS) return;
    driver().cuEventDestroy(begin_);
    throw_cuda_error(result, "cuEventCreate");
  }
  ~Stopwatch() {
    driver().cuEventDestroy(begin_);
    driver().cuEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  /// Milliseconds that the work submitted by `f` takes.
  template <class F>
  float time(F&& f) {
    ARETE_CU(cuEventRecord, begin_, stream_);
    f();
    ARETE_CU(cuEventRecord, end_, stream_);
    ARETE_CU(cuEventSynchronize, end_);
    float ms = 0;
    ARETE_CU(cuEventElapsedTime, &ms, begin_, end_);
    return ms;
  }

 private:
  CUstream stream_;
  CUevent begin_ = nullptr, end_ = nullptr;
};

// Takes the place of all that is in the GPU's cache. Its memory is the driver's, not the
// allocator's, whose cache it would empty where memory is short, and whose statistics are the
// user's.
class CacheFlush {
 public:
  CacheFlush(CudaBackend& backend, CUstream stream) : stream_(stream) {
    int bytes = 0;
    ARETE_CU(cuDeviceGetAttribute, &bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
             backend.context().device());
    // Twice the size, however lines are replaced.
    words_ = 2 * size_t(bytes) / sizeof(uint32_t);
    if (words_ == 0 || driver().cuMemAlloc(&memory_, words_ * sizeof(uint32_t)) != CUDA_SUCCESS)
      memory_ = 0;
  }
  ~CacheFlush() {
    if (memory_) driver().cuMemFree(memory_);
  }
  CacheFlush(const CacheFlush&) = delete;
  CacheFlush& operator=(const CacheFlush&) = delete;
  /// False without memory for it.
  explicit operator bool() const { return memory_ != 0; }
  void run() { ARETE_CU(cuMemsetD32Async, memory_, 0, words_, stream_); }

 private:
  CUstream stream_;
  CUdeviceptr memory_ = 0;
  size_t words_ = 0;
};

prim::PlanCache<GemmKey, GemmPlan>& cache() {
  static auto* const plans = new prim::PlanCache<GemmKey, GemmPlan>(8192);  // used until exit
  return *plans;
}

}  // namespace

uint8_t log_alignment(uint64_t address) {
  const int zeros = std::countr_zero(address);
  return uint8_t(zeros >= 8 ? 8 : std::min(zeros, 4));
}

GemmKey gemm_key(int device, const LibraryGemm& call, DType a, DType b, DType d,
                 const GemmOptions& options, const GemmPointers& pointers, bool has_beta,
                 const std::array<uint64_t, 4>& offsets) {
  const auto alignment = [](const void* p, uint64_t offset) {
    return log_alignment(uint64_t(reinterpret_cast<uintptr_t>(p)) | offset);
  };
  GemmKey k;
  k.m = call.m, k.n = call.n, k.k = call.k;
  k.lda = call.lda, k.ldb = call.ldb, k.ldd = call.ldd;
  k.ld_aux = options.aux ? call.ld_aux : 0;
  k.batch = call.batch;
  k.batch_stride_a = call.batch_stride_a, k.batch_stride_b = call.batch_stride_b;
  k.batch_stride_d = call.batch_stride_d;
  k.batch_stride_aux = options.aux ? call.batch_stride_aux : 0;
  k.a = a, k.b = b, k.d = d;
  k.device = uint8_t(device);
  k.transpose_a = call.transpose_a, k.transpose_b = call.transpose_b;
  k.has_bias = options.bias, k.has_gelu = options.gelu_tanh, k.has_relu = options.relu,
  k.has_aux = options.aux;
  k.is_tf32 = options.tf32, k.has_beta = has_beta;
  k.is_repeated =
      options.repeated && flops_of(k) >= kMeasureRepeatedFrom && flops_of(k) < kMeasureFrom;
  k.has_derivative = options.derivative, k.sums = options.sums;
  k.has_a_scale = options.scales && pointers.a_scale;
  k.has_b_scale = options.scales && pointers.b_scale;
  k.log_align_a = alignment(pointers.a, offsets[0]);
  k.log_align_b = alignment(pointers.b, offsets[1]);
  k.log_align_d = alignment(pointers.d, offsets[2]);
  k.log_align_bias = options.bias                              ? alignment(pointers.bias, 0)
                     : options.sums != GemmOptions::Sums::none ? alignment(pointers.sums, 0)
                                                               : 0;
  k.log_align_aux = options.aux ? alignment(pointers.aux, offsets[3]) : 0;
  return k;
}

GemmPlan::GemmPlan(CudaBackend& backend, const GemmKey& key, const GemmPointers& pointers)
    : key_(key),
      operation_(compute_type(key), scale_type(key.d)),
      a_(key.a, key.transpose_a ? key.k : key.m, key.transpose_a ? key.m : key.k, key.lda,
         key.batch, key.batch_stride_a),
      b_(key.b, key.transpose_b ? key.n : key.k, key.transpose_b ? key.k : key.n, key.ldb,
         key.batch, key.batch_stride_b),
      d_(key.d, key.m, key.n, key.ldd, key.batch, key.batch_stride_d) {
  const int32_t transpose = CUBLAS_OP_T;
  if (key.transpose_a) operation_.set(CUBLASLT_MATMUL_DESC_TRANSA, transpose);
  if (key.transpose_b) operation_.set(CUBLASLT_MATMUL_DESC_TRANSB, transpose);
  const uint32_t epilogue = epilogue_of(key);
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    operation_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (key.has_bias || key.sums != GemmOptions::Sums::none) {
    const int32_t type = cublas_type(key.d);
    operation_.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
    if (key.batch_stride_bias)
      operation_.set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, key.batch_stride_bias);
  }
  if (key.has_aux) {
    operation_.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.ld_aux);
    if (key.batch > 1)
      operation_.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, key.batch_stride_aux);
  }
  set_pointers(pointers);  // the heuristic looks at their alignment

  MatmulPreference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  const auto align = [&](cublasLtMatmulPreferenceAttributes_t attribute, uint8_t log) {
    preference.set(attribute, uint32_t(1) << log);
  };
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.log_align_a);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.log_align_b);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.log_align_d);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.log_align_d);

  cublasLtMatmulHeuristicResult_t results[kCandidates] = {};
  int count = 0;
  const bool measured =
      key.is_repeated || (flops_of(key) >= kMeasureFrom && flops_of(key) <= kMeasureUpTo);
  const cublasStatus_t status = cublaslt().cublasLtMatmulAlgoGetHeuristic(
      cublaslt_handle(backend.context()), operation_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
      preference.get(), measured ? kCandidates : 1, results, &count);
  // What the library cannot do it calls not supported, or an invalid value.
  if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED &&
      status != CUBLAS_STATUS_INVALID_VALUE)
    throw_cublas_error(status, "cublasLtMatmulAlgoGetHeuristic for " + describe(key));
  if (status != CUBLAS_STATUS_SUCCESS) count = 0;
  for (int i = 0; i < count; ++i)
    if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= kWorkspace)
      candidates_.push_back({results[i].algo, results[i].workspaceSize});
  if (candidates_.size() == 1) best_.store(candidates_.data());
}

GemmPlan::Scalar GemmPlan::scalar(double value) const {
  Scalar s{};
  if (key_.d == kFloat64)
    s.d = value;
  else if (key_.d == kComplex64)
    s.c[0] = float(value);
  else if (key_.d == kComplex128)
    s.z[0] = value;
  else
    s.f = float(value);
  return s;
}

void GemmPlan::set_pointers(const GemmPointers& p) {
  if (key_.has_bias) operation_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  if (key_.sums != GemmOptions::Sums::none)
    operation_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.sums);
  if (key_.has_aux) operation_.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
  if (key_.has_a_scale) operation_.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.a_scale);
  if (key_.has_b_scale) operation_.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.b_scale);
}

cublasStatus_t GemmPlan::launch(CudaBackend& backend, CUstream stream, const Candidate& candidate,
                                const GemmPointers& p, const Scalar& alpha, const Scalar& beta,
                                void* d) {
  const Scratch workspace(backend, candidate.workspace);
  note_library_kernel(backend.context(), stream);
  const auto submit = [&] {
    return cublaslt().cublasLtMatmul(cublaslt_handle(backend.context()), operation_.get(), &alpha,
                                     p.a, a_.get(), p.b, b_.get(), &beta, p.d, d_.get(), d,
                                     d_.get(), &candidate.algorithm, workspace.data(),
                                     candidate.workspace, stream);
  };
  if (!key_.has_bias && !key_.has_aux && !key_.has_a_scale && !key_.has_b_scale &&
      key_.sums == GemmOptions::Sums::none)
    return submit();
  const std::lock_guard lock(pointers_);
  set_pointers(p);
  return submit();
}

void GemmPlan::run(CudaBackend& backend, CUstream stream, const GemmPointers& p, double alpha,
                   double beta, bool deterministic) {
  const Candidate* chosen = best_.load(std::memory_order_acquire);
  if (deterministic) {
    chosen = candidates_.data();
  } else if (!chosen) [[unlikely]] {
    // Captures of other threads do not allow to wait here either.
    if (!backend.context().has_captures()) measure(backend, stream, p, alpha, beta);
    chosen = best_.load(std::memory_order_acquire);
    if (!chosen) chosen = candidates_.data();
  }
  const cublasStatus_t status =
      launch(backend, stream, *chosen, p, scalar(alpha), scalar(beta), p.d);
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    throw_cublas_error(status, "cublasLtMatmul of " + describe(key_));
  if (launch_blocking() && !backend.context().is_capturing(stream)) [[unlikely]]
    backend.context().synchronize(stream);
}

void GemmPlan::measure(CudaBackend& backend, CUstream stream, const GemmPointers& p, double alpha,
                       double beta) {
  const std::lock_guard lock(measuring_);
  if (best_.load(std::memory_order_relaxed)) return;
  const Scalar scaled = scalar(alpha), kept = scalar(beta);
  // Old values of D are still needed: trials write elsewhere, in the same layout.
  const int64_t span = (key_.batch - 1) * key_.batch_stride_d + (key_.n - 1) * key_.ldd + key_.m;
  const Scratch copy(backend, beta == 0 ? 0 : size_t(span) * size_of(key_.d));
  void* const d = beta == 0 ? p.d : copy.data();

  Stopwatch stopwatch(stream);
  float spent = 0;
  const auto time = [&](const Candidate& candidate, int count) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const float ms = stopwatch.time([&] {
      for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; ++i)
        status = launch(backend, stream, candidate, p, scaled, kept, d);
    });
    spent += ms;
    return status == CUBLAS_STATUS_SUCCESS ? ms / float(count) : kNever;
  };
  std::vector<float> times;
  float least = kNever;
  for (const Candidate& candidate : candidates_) {
    times.push_back(kNever);
    if (spent > kMeasureBudget) continue;
    const float before = spent;
    const bool runs = time(candidate, 1) != kNever;  // loads the kernel, whatever that takes
    spent = before;
    if (!runs) continue;
    times.back() = time(candidate, 1);
    least = std::min(least, times.back());
  }
  // The others take turns, so that the GPU's clock is the same for all.
  const auto take_turns = [&](int rounds, auto&& trial) {
    for (int round = 0; round < rounds && spent <= kMeasureBudget; ++round)
      for (size_t k = 0; k < times.size(); ++k)
        if (times[k] != kNever && times[k] < 1.5f * least && trial(k) == kNever) times[k] = kNever;
  };
  std::optional<CacheFlush> flush;
  if (key_.is_repeated) flush.emplace(backend, stream);
  if (flush && *flush) {
    std::vector<std::vector<float>> each(times.size());
    take_turns(21, [&](size_t k) {
      flush->run();
      return each[k].emplace_back(time(candidates_[k], 1));
    });
    // First times are those of a full cache, for which there may have been time alone.
    const bool any = !std::ranges::all_of(each, [](const auto& e) { return e.empty(); });
    for (size_t k = 0; k < times.size() && any; ++k) {
      const float first = std::exchange(times[k], kNever);
      if (first == kNever || each[k].empty()) continue;
      const auto middle = each[k].begin() + ptrdiff_t(each[k].size() / 2);
      std::ranges::nth_element(each[k], middle);
      times[k] = *middle;
    }
  } else {
    const int repeats = std::clamp(int(0.3f / std::max(least, 1e-3f)), 1, 20);
    take_turns(3, [&](size_t k) {
      const float ms = time(candidates_[k], repeats);
      times[k] = std::min(times[k], ms);
      return ms;
    });
  }
  // The heuristic's order is kept unless the gain is more than noise.
  const Candidate* best = nullptr;
  float best_time = kNever;
  for (size_t k = 0; k < times.size(); ++k)
    if (times[k] < 0.98f * best_time) best = &candidates_[k], best_time = times[k];
  // If none ran, the first one's error is the caller's.
  best_.store(best ? best : candidates_.data(), std::memory_order_release);
}

std::shared_ptr<GemmPlan> find_gemm_plan(CudaBackend& backend, const GemmKey& key,
                                         const GemmPointers& pointers) {
  return cache().get(key, [&] { return std::make_shared<GemmPlan>(backend, key, pointers); });
}

}  // namespace arete::cuda
