#include "arete/backend/cuda/lib/cufft.h"

#include <string>

#include "arete/backend/cuda/lib/plan_cache.h"
#include "arete/backend/cuda/runtime/dynamic_library.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

#define ARETE_CUFFT_FUNCTIONS(X) \
  X(cufftCreate)                 \
  X(cufftDestroy)                \
  X(cufftMakePlanMany64)         \
  X(cufftSetAutoAllocation)      \
  X(cufftSetWorkArea)            \
  X(cufftSetStream)              \
  X(cufftExecC2C)                \
  X(cufftExecZ2Z)

struct CuFft {
#define ARETE_CUFFT_POINTER(name) decltype(&::name) name = nullptr;
  ARETE_CUFFT_FUNCTIONS(ARETE_CUFFT_POINTER)
#undef ARETE_CUFFT_POINTER
};

const CuFft* find_cufft() {
  static const CuFft* const functions = []() -> const CuFft* {
    static const DynamicLibrary library("cuFFT, CUDA's library of Fourier transforms",
                                        {"libcufft.so." + std::to_string(CUFFT_VER_MAJOR),
                                         "libcufft.so.12", "libcufft.so.11", "libcufft.so"});
    auto* const r = new CuFft;  // kept for the process
    bool complete = true;
#define ARETE_LOOKUP(name) complete &= library.find(#name, r->name);
    ARETE_CUFFT_FUNCTIONS(ARETE_LOOKUP)
#undef ARETE_LOOKUP
    return complete ? r : nullptr;
  }();
  return functions;
}
const CuFft& cufft() { return *find_cufft(); }

void check(cufftResult status, const char* what) {
  if (status == CUFFT_SUCCESS) [[likely]]
    return;
  const std::string text = std::string(what) + " failed with status " + std::to_string(status);
  if (status == CUFFT_ALLOC_FAILED) throw OutOfMemoryError("fft", text);
  throw DeviceError("fft", text);
}

struct Key {
  int64_t lines, n;
  int32_t ordinal, doubles;
};

}  // namespace

bool has_cufft() { return find_cufft() != nullptr; }

FftPlan::FftPlan(DType dtype, int64_t lines, int64_t n) : doubles_(dtype == kFloat64) {
  const CuFft& f = cufft();
  check(f.cufftCreate(&plan_), "cufftCreate");
  try {
    // Memory for its work comes from Arete's allocator, call by call.
    check(f.cufftSetAutoAllocation(plan_, 0), "cufftSetAutoAllocation");
    long long size = n;
    check(f.cufftMakePlanMany64(plan_, 1, &size, nullptr, 1, n, nullptr, 1, n,
                                doubles_ ? CUFFT_Z2Z : CUFFT_C2C, lines, &work_bytes_),
          "cufftMakePlanMany64");
  } catch (...) {
    f.cufftDestroy(plan_);
    throw;
  }
}

FftPlan::~FftPlan() { cufft().cufftDestroy(plan_); }

void FftPlan::run(const void* in, void* out, bool forward, void* work, void* stream) {
  const CuFft& f = cufft();
  check(f.cufftSetStream(plan_, static_cast<cudaStream_t>(stream)), "cufftSetStream");
  if (work_bytes_ > 0) check(f.cufftSetWorkArea(plan_, work), "cufftSetWorkArea");
  const int direction = forward ? CUFFT_FORWARD : CUFFT_INVERSE;
  void* const from = const_cast<void*>(in);
  if (doubles_)
    check(f.cufftExecZ2Z(plan_, static_cast<cufftDoubleComplex*>(from),
                         static_cast<cufftDoubleComplex*>(out), direction),
          "cufftExecZ2Z");
  else
    check(f.cufftExecC2C(plan_, static_cast<cufftComplex*>(from), static_cast<cufftComplex*>(out),
                         direction),
          "cufftExecC2C");
}

std::shared_ptr<FftPlan> find_fft_plan(int ordinal, DType dtype, int64_t lines, int64_t n) {
  static auto* const plans = new PlanCache<Key, FftPlan>(256);
  return plans->get({lines, n, ordinal, dtype == kFloat64},
                    [&] { return std::make_shared<FftPlan>(dtype, lines, n); });
}

}  // namespace arete::cuda
