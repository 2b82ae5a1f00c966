#include "arete/backend/cuda/runtime/driver.h"

#include <cstdlib>
#include <optional>

#include "arete/backend/cuda/runtime/dynamic_library.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

struct Loaded {
  Driver driver;
  std::string problem;
};

std::string text_of(const Driver& d, CUresult result) {
  const char *name = nullptr, *text = nullptr;
  if (d.cuGetErrorName) d.cuGetErrorName(result, &name);
  if (d.cuGetErrorString) d.cuGetErrorString(result, &text);
  // The text is what people search for.
  return (text ? std::string(text) + " (" : std::string("(")) +
         (name ? std::string(name) : std::to_string(int(result))) + ")";
}

const Loaded& loaded() {
  static const Loaded* const l = [] {
    auto* r = new Loaded;
    static const DynamicLibrary library("the CUDA driver", {"libcuda.so.1", "libcuda.so"});
    if (!library.is_open()) {
      r->problem = library.problem() + "; is an NVIDIA driver installed on this machine?";
      return r;
    }
#define ARETE_CUDA_NAME(name) #name
#define ARETE_CUDA_LOOKUP(name) library.look_up(r->driver.name, ARETE_CUDA_NAME(name), r->problem);
    ARETE_CUDA_DRIVER_FUNCTIONS(ARETE_CUDA_LOOKUP)
#undef ARETE_CUDA_LOOKUP
    if (!r->problem.empty()) return r;
    if (const CUresult e = r->driver.cuInit(0); e != CUDA_SUCCESS) {
      r->problem = "the CUDA driver does not start: " + text_of(r->driver, e);
      return r;
    }
    int count = 0;
    if (const CUresult e = r->driver.cuDeviceGetCount(&count); e != CUDA_SUCCESS || count == 0) {
      r->problem = "the CUDA driver finds no device";
      if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
        r->problem += std::string(" (CUDA_VISIBLE_DEVICES is \"") + visible + "\")";
    }
    return r;
  }();
  return *l;
}

}  // namespace

const Driver& driver() {
  const Loaded& l = loaded();
  if (!l.problem.empty()) [[unlikely]]
    throw DeviceError("", l.problem);
  return l.driver;
}

const std::string& driver_problem() { return loaded().problem; }

std::string driver_version() {
  int v = 0;
  ARETE_CU(cuDriverGetVersion, &v);
  return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
}

void throw_cuda_error(CUresult result, const char* what, const char* op) {
  const std::string text =
      "CUDA error: " + text_of(loaded().driver, result) + " from " + std::string(what);
  const std::string name = op ? op : "";
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemoryError(name, text);
  DeviceError error(name, text);
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
      error.hint(
          "an earlier kernel broke the context, and the process cannot use this GPU any more; run "
          "with CUDA_LAUNCH_BLOCKING=1 to see which, and report it");
      break;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
      error.hint("docs/cuda.md says what a capture of a graph allows");
      break;
    default:
      break;
  }
  throw error;
}

}  // namespace arete::cuda
