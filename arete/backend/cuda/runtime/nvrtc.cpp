#include "arete/backend/cuda/runtime/nvrtc.h"

#include <cuda.h>
#include <nvrtc.h>

#include <cstdlib>

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

// A compilation allocates megabytes and frees them. glibc's malloc gives that back to the system,
// and the next one pays a page fault for each 4 KB again, until a block as large was mapped and
// freed: from then on it keeps twice as much.
void keep_freed_memory() {
  static const bool done = [] {
    void* volatile block =
        std::malloc(size_t(16) << 20);  // volatile: or the compiler leaves both calls out
    std::free(block);
    return true;
  }();
  (void)done;
}

class Program {
 public:
  explicit Program(const KernelSource& source) {
    std::vector<const char*> names, texts;
    std::vector<std::string> own;  // zero-terminated copies
    own.reserve(2 * kEmbeddedFiles.size());
    for (const EmbeddedFile& f : kEmbeddedFiles) {
      names.push_back(own.emplace_back(f.name).c_str());
      texts.push_back(own.emplace_back(f.text).c_str());
    }
    check(nvrtc().nvrtcCreateProgram(&program_, source.text.c_str(), (source.name + ".cu").c_str(),
                                     int(names.size()), texts.data(), names.data()),
          "nvrtcCreateProgram");
  }
  ~Program() { nvrtc().nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  operator nvrtcProgram() const { return program_; }

  nvrtcResult compile(const std::vector<std::string>& options) const {
    std::vector<const char*> pointers;
    for (const std::string& o : options) pointers.push_back(o.c_str());
    return nvrtc().nvrtcCompileProgram(program_, int(pointers.size()), pointers.data());
  }

 private:
  nvrtcProgram program_ = nullptr;
};

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
  keep_freed_memory();
  const Program program(source);
  if (lowered)
    check(n.nvrtcAddNameExpression(program, source.name.c_str()), "nvrtcAddNameExpression");
  std::vector<std::string> all = default_compile_options();
  all.push_back("--gpu-architecture=sm_" + std::to_string(arch));
  all.insert(all.end(), options.begin(), options.end());
  // The code is the same without the declarations of textures and the runtime, which take time to
  // read. An NVRTC may know no such option, and a program's own kernel may need the declarations:
  // the error does not tell that from a mistake in it, so that a kernel with one is compiled twice.
  all.push_back("--minimal");
  nvrtcResult result = program.compile(all);
  if (result == NVRTC_ERROR_COMPILATION || result == NVRTC_ERROR_INVALID_OPTION) {
    all.pop_back();
    result = program.compile(all);
  }
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
