#include "arete/backend/cuda/runtime/dynamic_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "arete/base/error.h"

namespace arete::cuda {
namespace {

void append_path_list(std::vector<std::string>& folders, const char* list) {
  if (!list) return;
  std::string current;
  for (const char* p = list;; ++p) {
    if (*p && *p != ':') {
      current += *p;
      continue;
    }
    if (!current.empty()) folders.push_back(current);
    current.clear();
    if (!*p) return;
  }
}

// Where the user says that libraries of CUDA are: before the loader's own places.
const std::vector<std::string>& named_folders() {
  static const std::vector<std::string> folders = [] {
    std::vector<std::string> f;
    append_path_list(f, std::getenv("ARETE_CUDA_LIBRARY_PATH"));
    return f;
  }();
  return folders;
}

// Where they may be besides.
const std::vector<std::string>& usual_folders() {
  static const std::vector<std::string> folders = [] {
    std::vector<std::string> f;
    Dl_info self;
    if (dladdr(reinterpret_cast<void*>(&usual_folders), &self) && self.dli_fname) {
      const std::string path = self.dli_fname;
      f.push_back(path.substr(0, path.rfind('/') + 1));
    }
    for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
      if (const char* home = std::getenv(name)) f.push_back(std::string(home) + "/lib64");
    f.push_back("/usr/local/cuda/lib64");
    return f;
  }();
  return folders;
}

}  // namespace

DynamicLibrary::DynamicLibrary(std::string what, std::vector<std::string> names)
    : what_(std::move(what)) {
  std::string tried;
  const auto attempt = [&](const std::string& path) {
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_)
      path_ = path;
    else if (problem_.empty())
      problem_ = dlerror();
    return handle_ != nullptr;
  };
  const auto attempt_in = [&](const std::vector<std::string>& folders) {
    for (const std::string& folder : folders)
      for (const std::string& name : names)
        if (std::error_code ignored; name.find('/') == std::string::npos &&
                                     std::filesystem::exists(folder + "/" + name, ignored) &&
                                     attempt(folder + "/" + name))
          return true;
    return false;
  };
  if (attempt_in(named_folders())) return;
  for (const std::string& name : names) {
    tried += (tried.empty() ? "" : ", ") + name;
    if (attempt(name)) return;
  }
  if (attempt_in(usual_folders())) return;
  problem_ = what_ + " could not be loaded (tried " + tried + "): " + problem_;
}

void* DynamicLibrary::find(const char* symbol) const noexcept {
  return handle_ ? dlsym(handle_, symbol) : nullptr;
}

void* DynamicLibrary::get(const char* symbol) const {
  ARETE_CHECK(handle_, DeviceError("", problem_));
  void* p = dlsym(handle_, symbol);
  ARETE_CHECK(p, DeviceError("", missing(symbol)));
  return p;
}

std::string DynamicLibrary::missing(const char* symbol) const {
  return what_ + " (" + path_ + ") has no function " + symbol +
         "; its version does not fit this build of Arete";
}

std::string find_library_file(const std::string& name) {
  std::vector<std::string> folders = named_folders();
  append_path_list(folders, std::getenv("LD_LIBRARY_PATH"));
  for (const std::string& f : usual_folders()) folders.push_back(f);
  for (const char* f : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"})
    folders.push_back(f);
  std::error_code ignored;
  for (const std::string& folder : folders) {
    // The longest name tells most of the version.
    std::string best;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string file = entry.path().filename().string();
      if ((file == name || file.starts_with(name + ".")) && file.size() > best.size()) best = file;
    }
    if (!best.empty()) return folder + "/" + best;
  }
  return "";
}

}  // namespace arete::cuda
