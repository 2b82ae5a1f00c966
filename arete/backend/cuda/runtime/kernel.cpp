#include "arete/backend/cuda/runtime/kernel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "arete/backend/cuda/runtime/context.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/nvrtc.h"
#include "arete/base/error.h"
#include "arete/core/modes.h"
#include "arete/prim/compiled_kernels.h"

namespace arete::cuda {
namespace {

struct Table {
  std::mutex mutex;
  // A future, so that threads asking for one kernel wait for one compilation.
  std::unordered_map<Hash128, std::shared_future<const Kernel*>, Hash128Hasher> kernels;
};

Table& table_of(int ordinal) {
  static auto* const tables = new std::array<Table, 64>;
  return (*tables)[size_t(ordinal)];
}

// What all kernels have in common in their keys.
const std::string& common_key() {
  static const std::string text = [] {
    std::string t = "nvrtc " + nvrtc_version() + "\n";
    for (const std::string& o : default_compile_options()) t += o + "\n";
    for (const EmbeddedFile& f : kEmbeddedFiles)
      t += std::string(f.name) + "\n" + std::string(f.text);
    return hash_bytes(t).hex();
  }();
  return text;
}

// A name of a template's instance, which the code calls otherwise: saved code begins with that
// name.
bool is_expression(const std::string& name) { return name.find('<') != std::string::npos; }

// Machine code from disk, or compiled now and saved. `fresh` compiles without looking.
std::string machine_code(DeviceContext& device, const KernelSource& source, const Hash128& key,
                         bool fresh) {
  if (!fresh)
    if (std::optional<std::string> saved = device.store().load(key)) return std::move(*saved);
  const auto begin = std::chrono::steady_clock::now();
  std::string lowered;
  std::string code = compile_to_cubin(source, device.limits().arch(), source.options,
                                      is_expression(source.name) ? &lowered : nullptr);
  if (!lowered.empty()) code = lowered + '\n' + code;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  prim::note_compiled_kernel(source.name, took.count());
  device.store().save(key, code);
  return code;
}

// Whether the driver has them in streams and in graphs.
bool has_early_starts() {
  static const bool result = [] {
    const char* choice = std::getenv("ARETE_EARLY_START");
    int major = 0, minor = 0;
    return !(choice && std::strcmp(choice, "0") == 0) &&
           std::sscanf(driver_version().c_str(), "%d.%d", &major, &minor) == 2 &&
           (major > 12 || (major == 12 && minor >= 3));
  }();
  return result;
}
std::atomic<bool> early_starts_allowed{true};
// Streams to which the thread gave a product of a library while they were captured (several are at
// once where a graph has branches), and none of our kernels since.
thread_local std::vector<CUstream> behind_library;

// The module with a function, and what the function is called there.
CUmodule load_module(DeviceContext& device, const KernelSource& source, const Hash128& key,
                     std::string& name) {
  CUmodule module = nullptr;
  const auto code_of = [&](bool fresh) {
    std::string code = machine_code(device, source, key, fresh);
    if (is_expression(source.name)) {
      const size_t end = code.find('\n');
      name = code.substr(0, end);
      code.erase(0, end + 1);
    }
    return code;
  };
  std::string code = code_of(false);
  if (driver().cuModuleLoadData(&module, code.data()) != CUDA_SUCCESS) {
    // Whole by its hash, but not for this driver: make it again.
    code = code_of(true);
    ARETE_CU(cuModuleLoadData, &module, code.data());
  }
  return module;
}

// Functions of one source of a user are of one module, and so share its variables; an instance of a
// template is of its own, since the code depends on which instances are asked for.
CUmodule shared_module(DeviceContext& device, const KernelSource& source, std::string& name) {
  KernelSource whole = source;
  whole.name.clear();
  const Hash128 key = kernel_key(whole, device.limits().arch());
  static auto& mutex = *new std::mutex;
  static auto& modules = *new std::array<std::unordered_map<Hash128, CUmodule, Hash128Hasher>, 64>;
  const std::lock_guard lock(mutex);
  CUmodule& module = modules[size_t(device.ordinal())][key];
  if (!module) module = load_module(device, source, key, name);
  return module;
}

const Kernel* load(DeviceContext& device, const KernelSource& source, const Hash128& key,
                   bool waits) {
  device.make_current();
  auto kernel = std::make_unique<Kernel>();
  kernel->name = source.name;
  kernel->waits = waits;
  std::string name = source.name;
  kernel->module = source.of_user && !is_expression(source.name)
                       ? shared_module(device, source, name)
                       : load_module(device, source, key, name);
  ARETE_CU(cuModuleGetFunction, &kernel->function, kernel->module, name.c_str());
  const auto get = [&](CUfunction_attribute a) {
    int v = 0;
    ARETE_CU(cuFuncGetAttribute, &v, a, kernel->function);
    return v;
  };
  kernel->max_threads = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  kernel->registers = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
  kernel->static_shared = get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  return kernel.release();
}

}  // namespace

Hash128 kernel_key(const KernelSource& source, int arch) {
  std::string text = common_key() + "sm_" + std::to_string(arch) + "\n" + source.name + "\n";
  for (const std::string& o : source.options) text += o + "\n";
  return hash_bytes(text + source.text);
}

const Kernel& find_kernel(DeviceContext& device, const KernelSource& given) {
  const bool waits = !given.of_user && device.limits().arch() >= 90 && has_early_starts();
  const KernelSource source = waits ? with_early_start(given) : given;
  const Hash128 key = kernel_key(source, device.limits().arch());
  Table& table = table_of(device.ordinal());
  std::promise<const Kernel*> promise;
  std::shared_future<const Kernel*> future;
  {
    const std::lock_guard lock(table.mutex);
    const auto found = table.kernels.find(key);
    if (found != table.kernels.end()) {
      future = found->second;
    } else {
      table.kernels.emplace(key, promise.get_future().share());
    }
  }
  if (future.valid()) return *future.get();
  try {
    const Kernel* kernel = load(device, source, key, waits);
    promise.set_value(kernel);
    return *kernel;
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(table.mutex);
    table.kernels.erase(key);  // the next call tries again
    throw;
  }
}

bool has_long_arguments() {
  static const bool result = [] {
    const auto at_least_12_1 = [](const std::string& version) {
      int major = 0, minor = 0;
      return std::sscanf(version.c_str(), "%d.%d", &major, &minor) == 2 &&
             (major > 12 || (major == 12 && minor >= 1));
    };
    return at_least_12_1(driver_version()) && at_least_12_1(nvrtc_version());
  }();
  return result;
}

void allow_early_starts(bool allowed) { early_starts_allowed = allowed; }

void note_library_kernel(const DeviceContext& device, CUstream stream) {
  if (device.is_capturing(stream) &&
      std::ranges::find(behind_library, stream) == behind_library.end())
    behind_library.push_back(stream);
}

void launch_raw(DeviceContext& device, const Kernel& kernel, Dim3 grid, Dim3 block, size_t shared,
                CUstream stream, void** arguments) {
  if (prim::is_rehearsing()) [[unlikely]]
    return;
  const Driver& d = driver();
  if (shared + size_t(kernel.static_shared) > 48 * 1024) [[unlikely]]
    check(d.cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               int(shared)),
          "cuFuncSetAttribute");
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = grid.x, config.gridDimY = grid.y, config.gridDimZ = grid.z;
  config.blockDimX = block.x, config.blockDimY = block.y, config.blockDimZ = block.z;
  config.sharedMemBytes = unsigned(shared);
  config.hStream = stream;
  config.attrs = &early;
  const bool is_behind_library = !behind_library.empty() &&
                                 std::erase(behind_library, stream) > 0 &&
                                 device.is_capturing(stream);
  config.numAttrs =
      kernel.waits && early_starts_allowed.load(std::memory_order_relaxed) && !is_behind_library
          ? 1
          : 0;
  CUresult result = d.cuLaunchKernelEx(&config, kernel.function, arguments, nullptr);
  const bool launched = result == CUDA_SUCCESS;
  if (launched && launch_blocking() && !device.is_capturing(stream)) {
    result = d.cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS) device.raise_device_errors();
  }
  if (result == CUDA_SUCCESS) [[likely]]
    return;
  const auto size = [](Dim3 v) {
    return std::to_string(v.x) + " x " + std::to_string(v.y) + " x " + std::to_string(v.z);
  };
  const std::string what =
      std::string(launched ? "running" : "launching") + " kernel " + kernel.name +
      " on cuda:" + std::to_string(device.ordinal()) + ", grid " + size(grid) + ", block " +
      size(block) + ", " + std::to_string(shared) + " bytes of shared memory, stream " +
      (stream == device.default_stream() ? std::string("default")
                                         : std::to_string(reinterpret_cast<uintptr_t>(stream)));
  throw_cuda_error(result, what.c_str(), modes().current_op);
}

}  // namespace arete::cuda
