#include "arete/backend/cuda/runtime/nvrtc.h"

#include <cuda.h>
#include <nvrtc.h>

#include "arete/backend/cuda/runtime/dynamic_library.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

#define ARETE_NVRTC_FUNCTIONS(X) \
  X(nvrtcVersion)                \
  X(nvrtcGetErrorString)         \
  X(nvrtcCreateProgram)          \
  X(nvrtcDestroyProgram)         \
  X(nvrtcCompileProgram)         \
  X(nvrtcAddNameExpression)      \
  X(nvrtcGetLoweredName)         \
  X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN) X(nvrtcGetProgramLogSize) X(nvrtcGetProgramLog)

struct Nvrtc {
#define ARETE_POINTER(name) decltype(&::name) name = nullptr;
  ARETE_NVRTC_FUNCTIONS(ARETE_POINTER)
#undef ARETE_POINTER
  std::string problem;
};

const Nvrtc& loaded() {
  static const Nvrtc* const n = [] {
    auto* r = new Nvrtc;
    // The version this was built with comes first: its interface is the one known.
    const std::string built = "libnvrtc.so." + std::to_string((CUDA_VERSION / 1000));
    static const DynamicLibrary library("NVRTC, CUDA's run-time compiler",
                                        {built, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
    r->problem = library.problem();
    if (!library.is_open()) return r;
    r->problem.clear();
#define ARETE_LOOKUP(name) library.look_up(r->name, #name, r->problem);
    ARETE_NVRTC_FUNCTIONS(ARETE_LOOKUP)
#undef ARETE_LOOKUP
    return r;
  }();
  return *n;
}

const Nvrtc& nvrtc() {
  const Nvrtc& n = loaded();
  ARETE_CHECK(n.problem.empty(), DeviceError("", n.problem));
  return n;
}

void check(nvrtcResult result, const char* what) {
  ARETE_CHECK(result == NVRTC_SUCCESS,
              DeviceError("", std::string(what) + ": " + nvrtc().nvrtcGetErrorString(result)));
}

}  // namespace

const std::string& nvrtc_problem() { return loaded().problem; }

std::string nvrtc_version() {
  int major = 0, minor = 0;
  check(nvrtc().nvrtcVersion(&major, &minor), "nvrtcVersion");
  return std::to_string(major) + "." + std::to_string(minor);
}

std::vector<std::string> default_compile_options() {
  return {"--std=c++17", "--fmad=true", "--extra-device-vectorization", "-default-device"};
}

std::string compile_to_cubin(const KernelSource& source, int arch,
                             const std::vector<std::string>& options, std::string* lowered) {
  const Nvrtc& n = nvrtc();
  std::vector<const char*> names, texts;
  std::vector<std::string> own;  // zero-terminated copies
  own.reserve(2 * kEmbeddedFiles.size());
  for (const EmbeddedFile& f : kEmbeddedFiles) {
    names.push_back(own.emplace_back(f.name).c_str());
    texts.push_back(own.emplace_back(f.text).c_str());
  }
  nvrtcProgram program = nullptr;
  check(n.nvrtcCreateProgram(&program, source.text.c_str(), (source.name + ".cu").c_str(),
                             int(names.size()), texts.data(), names.data()),
        "nvrtcCreateProgram");
  struct Destroy {
    const Nvrtc& n;
    nvrtcProgram& p;
    ~Destroy() { n.nvrtcDestroyProgram(&p); }
  } destroy{n, program};
  if (lowered)
    check(n.nvrtcAddNameExpression(program, source.name.c_str()), "nvrtcAddNameExpression");
  std::vector<std::string> all = default_compile_options();
  all.push_back("--gpu-architecture=sm_" + std::to_string(arch));
  all.insert(all.end(), options.begin(), options.end());
  std::vector<const char*> pointers;
  for (const std::string& o : all) pointers.push_back(o.c_str());
  const nvrtcResult result = n.nvrtcCompileProgram(program, int(pointers.size()), pointers.data());
  if (result != NVRTC_SUCCESS) {
    size_t size = 0;
    std::string log;
    if (n.nvrtcGetProgramLogSize(program, &size) == NVRTC_SUCCESS && size > 1) {
      log.resize(size - 1);
      n.nvrtcGetProgramLog(program, log.data());
    }
    const std::string text = "kernel " + source.name + " does not compile for sm_" +
                             std::to_string(arch) + ": " + n.nvrtcGetErrorString(result) + "\n" +
                             log + "\n" + source.text;
    throw BugError("", text);
  }
  if (lowered) {
    const char* name = nullptr;
    check(n.nvrtcGetLoweredName(program, source.name.c_str(), &name), "nvrtcGetLoweredName");
    *lowered = name;
  }
  size_t size = 0;
  check(n.nvrtcGetCUBINSize(program, &size), "nvrtcGetCUBINSize");
  std::string cubin(size, '\0');
  check(n.nvrtcGetCUBIN(program, cubin.data()), "nvrtcGetCUBIN");
  return cubin;
}

}  // namespace arete::cuda
