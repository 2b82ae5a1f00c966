#include "arete/prim/plugin_internal.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "arete/prim/backend.h"

namespace arete::prim {
namespace {

struct Plugin {
  const char* file;
  const char* variable;  // of the environment: names another file
  const char* what;
  const char* reason;  // why there may be none
};
constexpr Plugin kCuda{"libarete_cuda.so", "ARETE_CUDA_PLUGIN", "the CUDA backend",
                       "a build without CUDA has none"};
constexpr Plugin kGloo{"libarete_gloo.so", "ARETE_GLOO_PLUGIN", "Gloo",
                       "a build without Gloo (libgloo-dev) has none"};

// Where the plug-in may be: the file that the environment names, else beside the file that holds
// this function (libarete.so, or a program with the archive in it), else where the loader looks.
std::vector<std::string> candidates(const Plugin& plugin) {
  if (const char* own = std::getenv(plugin.variable); own && *own) return {own};
  std::vector<std::string> paths;
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&load_cuda_plugin), &self) && self.dli_fname) {
    const std::string path = self.dli_fname;
    if (const size_t slash = path.rfind('/'); slash != std::string::npos)
      paths.push_back(path.substr(0, slash + 1) + plugin.file);
  }
  paths.push_back(plugin.file);
  return paths;
}

// Null with the reason in `problem` if there is none.
void* open_library(const Plugin& plugin, std::string& problem) {
  std::string tried;
  for (const std::string& path : candidates(plugin)) {
    // Never closed: its kernels, threads and static objects live as long as the process.
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* said = dlerror();
    // What the loader says of a file that is there tells more than that another is missing.
    if (problem.empty() || std::string_view(said).find("No such file") == std::string_view::npos)
      problem = said;
    tried += (tried.empty() ? "" : ", ") + path;
  }
  problem = std::string(plugin.what) + " could not be loaded (tried " + tried + "): " + problem +
            "; " + plugin.reason;
  return nullptr;
}

PluginHost this_host() { return {ARETE_VERSION, library_identity()}; }

std::atomic<PluginTimeline> timeline{nullptr};

// "" if the provider is registered now.
std::string load() {
  std::string problem;
  void* const library = open_library(kCuda, problem);
  if (!library) return problem;
  const auto enter = reinterpret_cast<PluginEntry>(dlsym(library, kPluginEntry));
  if (!enter)
    return std::string(kCuda.file) + " is not Arete's: it has no function " + kPluginEntry;
  const PluginHost host = this_host();
  const char* reason = enter(&host);
  if (!reason) timeline = reinterpret_cast<PluginTimeline>(dlsym(library, kPluginTimeline));
  return reason ? reason : "";
}

}  // namespace

const void* library_identity() noexcept {
  static char here = 0;
  return &here;
}

std::string plugin_mismatch(const PluginHost& host, const char* version, const char* file) {
  if (std::string_view(host.version) != version)
    return std::string(file) + " is of version " + version + ", but Arete is " + host.version +
           "; install them together";
  if (host.identity != library_identity())
    return std::string("there are two copies of Arete in this process: ") + file +
           " belongs to libarete.so, but the program brings another copy, such as the archive "
           "libarete.a; link the program with libarete.so";
  return "";
}

MakeCommunicator find_gloo(std::string& problem) {
  static std::mutex mutex;
  static MakeCommunicator found = nullptr;
  const std::lock_guard lock(mutex);
  if (found) return found;
  void* const library = open_library(kGloo, problem);
  if (!library) return nullptr;
  const auto enter = reinterpret_cast<GlooEntry>(dlsym(library, kGlooEntry));
  const PluginHost host = this_host();
  const char* reason = enter ? enter(&host, &found) : "it is not Arete's";
  if (reason) problem = reason;
  return found;
}

namespace {
std::atomic<const StreamLibrary*> nccl{nullptr};
}  // namespace

void register_nccl(const StreamLibrary& library) { nccl = new StreamLibrary(library); }

const StreamLibrary* find_nccl(std::string& problem) {
  if (!find_provider(DeviceType::cuda)) {
    problem = unavailable_reason(DeviceType::cuda);
    return nullptr;
  }
  const StreamLibrary* const library = nccl;
  if (!library) problem = "the plug-in of GPUs has no NCCL";
  return library && library->version(problem) > 0 ? library : nullptr;
}

void load_cuda_plugin() noexcept {
  static std::once_flag once;
  std::call_once(once, [] {
    try {
      if (const std::string reason = load(); !reason.empty())
        set_unavailable_reason(DeviceType::cuda, reason);
    } catch (const std::exception& e) {
      set_unavailable_reason(DeviceType::cuda, e.what());
    }
  });
}

PluginTimeline plugin_timeline() noexcept { return timeline.load(); }

std::vector<std::pair<std::string, std::string>> survey_cuda_plugin() {
  using Lines = std::vector<std::pair<std::string, std::string>>;
  Lines lines;
  std::string problem;
  void* const library = open_library(kCuda, problem);
  const auto survey =
      library ? reinterpret_cast<PluginSurvey>(dlsym(library, kPluginSurvey)) : nullptr;
  if (!survey) return lines;
  const PluginHost host = this_host();
  survey(
      &host,
      [](void* to, const char* name, const char* text) {
        static_cast<Lines*>(to)->emplace_back(name, text);
      },
      &lines);
  return lines;
}

}  // namespace arete::prim
