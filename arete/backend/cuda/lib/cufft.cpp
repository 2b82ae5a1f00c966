#include "arete/backend/cuda/lib/cufft.h"

#include <string>

#include "arete/backend/cuda/lib/library_setup.h"
#include "arete/backend/cuda/runtime/dynamic_library.h"
#include "arete/base/error.h"
#include "arete/prim/plan_cache.h"

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
  X(cufftExecR2C)                \
  X(cufftExecC2R)                \
  X(cufftExecZ2Z)                \
  X(cufftExecD2Z)                \
  X(cufftExecZ2D)

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
  FftGeometry geometry;
  int64_t ordinal;
};

}  // namespace

bool has_cufft() { return find_cufft() != nullptr; }

FftPlan::FftPlan(const FftGeometry& g) : type_(g.type) {
  const CuFft& f = cufft();
  check(f.cufftCreate(&plan_), "cufftCreate");
  try {
    // Memory for its work comes from Arete's allocator, call by call.
    check(f.cufftSetAutoAllocation(plan_, 0), "cufftSetAutoAllocation");
    const auto list = [](const std::array<int64_t, 3>& a) {
      return std::array<long long, 3>{a[0], a[1], a[2]};
    };
    auto n = list(g.n), in = list(g.in.embed), out = list(g.out.embed);
    check(f.cufftMakePlanMany64(plan_, g.rank, n.data(), in.data(), g.in.stride, g.in.distance,
                                out.data(), g.out.stride, g.out.distance, cufftType(g.type),
                                g.batch, &work_bytes_),
          "cufftMakePlanMany64");
  } catch (...) {
    f.cufftDestroy(plan_);
    throw;
  }
}

FftPlan::~FftPlan() { cufft().cufftDestroy(plan_); }

void FftPlan::run(void* in, void* out, bool forward, void* work, void* stream) {
  const CuFft& f = cufft();
  check(f.cufftSetStream(plan_, static_cast<cudaStream_t>(stream)), "cufftSetStream");
  if (work_bytes_ > 0) check(f.cufftSetWorkArea(plan_, work), "cufftSetWorkArea");
  const int direction = forward ? CUFFT_FORWARD : CUFFT_INVERSE;
  switch (type_) {
#define ARETE_CUFFT_RUN(type, In, Out, ...)                                                   \
  case CUFFT_##type:                                                                          \
    check(f.cufftExec##type(plan_, static_cast<In*>(in), static_cast<Out*>(out) __VA_ARGS__), \
          "cufftExec" #type);                                                                 \
    break;
    ARETE_CUFFT_RUN(C2C, cufftComplex, cufftComplex, , direction)
    ARETE_CUFFT_RUN(R2C, cufftReal, cufftComplex)
    ARETE_CUFFT_RUN(C2R, cufftComplex, cufftReal)
    ARETE_CUFFT_RUN(Z2Z, cufftDoubleComplex, cufftDoubleComplex, , direction)
    ARETE_CUFFT_RUN(D2Z, cufftDoubleReal, cufftDoubleComplex)
    ARETE_CUFFT_RUN(Z2D, cufftDoubleComplex, cufftDoubleReal)
#undef ARETE_CUFFT_RUN
    default:
      ARETE_BUG("a transform of an unknown type");
  }
}

std::shared_ptr<FftPlan> find_fft_plan(DeviceContext& device, const FftGeometry& g) {
  static auto* const plans = new prim::PlanCache<Key, FftPlan>(256);
  return plans->get({g, device.ordinal()}, [&] {
    std::shared_ptr<FftPlan> plan;
    try {
      plan = std::make_shared<FftPlan>(g);
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const DeviceError& e) {
      if (!device.has_captures()) throw;
      throw DeviceError(
          "fft", "cuFFT cannot make the plan of this transform during a capture: " + e.message())
          .hint(
              "for lengths with large prime factors it computes tables on the device and waits "
              "for them: do the same transform once before the capture");
    }
    finish_setup(device);
    return plan;
  });
}

}  // namespace arete::cuda
