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

constexpr const char* kFile = "libarete_cuda.so";

// Where the plug-in may be: the file that $ARETE_CUDA_PLUGIN names, else beside the file that holds
// this function (libarete.so, or a program with the archive in it), else where the loader looks.
std::vector<std::string> candidates() {
  if (const char* own = std::getenv("ARETE_CUDA_PLUGIN"); own && *own) return {own};
  std::vector<std::string> paths;
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&load_cuda_plugin), &self) && self.dli_fname) {
    const std::string path = self.dli_fname;
    if (const size_t slash = path.rfind('/'); slash != std::string::npos)
      paths.push_back(path.substr(0, slash + 1) + kFile);
  }
  paths.push_back(kFile);
  return paths;
}

// Null with the reason in `problem` if there is none.
void* open_library(std::string& problem) {
  std::string tried;
  for (const std::string& path : candidates()) {
    // Never closed: its kernels, threads and static objects live as long as the process.
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* said = dlerror();
    // What the loader says of a file that is there tells more than that another is missing.
    if (problem.empty() || std::string_view(said).find("No such file") == std::string_view::npos)
      problem = said;
    tried += (tried.empty() ? "" : ", ") + path;
  }
  problem = "the CUDA backend could not be loaded (tried " + tried + "): " + problem +
            "; a build without CUDA has none";
  return nullptr;
}

PluginHost this_host() { return {ARETE_VERSION, library_identity()}; }

std::atomic<PluginTimeline> timeline{nullptr};

// "" if the provider is registered now.
std::string load() {
  std::string problem;
  void* const library = open_library(problem);
  if (!library) return problem;
  const auto enter = reinterpret_cast<PluginEntry>(dlsym(library, kPluginEntry));
  if (!enter) return std::string(kFile) + " is not Arete's: it has no function " + kPluginEntry;
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
  void* const library = open_library(problem);
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
