#include "arete/backend/cuda/lib/nccl.h"

#include <cstdlib>
#include <vector>

#include "arete/backend/cuda/runtime/dynamic_library.h"

namespace arete::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

struct Found {
  Nccl functions;
  std::string problem;
};

Found load() {
  Found r;
  // What a graph captures NCCL would make known to other processes, which it cannot do with memory
  // that is mapped piece by piece.
  setenv("NCCL_GRAPH_REGISTER", "0", 0);
  std::vector<std::string> names{"libnccl.so.2", "libnccl.so"};
  if (const char* named = std::getenv("ARETE_NCCL_LIBRARY"); named && *named)
    names.insert(names.begin(), named);
  static const DynamicLibrary library("NCCL, NVIDIA's library of collectives", names);
  if (!library.is_open()) {
    r.problem = library.problem();
    return r;
  }
  Nccl& f = r.functions;
#define ARETE_LOOKUP(name, symbol, parameters) library.look_up(f.name, #symbol, r.problem);
  ARETE_NCCL_FUNCTIONS(ARETE_LOOKUP)
#undef ARETE_LOOKUP
  library.look_up(f.error_string, "ncclGetErrorString", r.problem);
  library.look_up(f.last_error, "ncclGetLastError", r.problem);
  if (!f.get_version || f.get_version(&f.version) != nccl::kSuccess) f.version = 0;
  if (f.version < nccl::kOldest)
    r.problem = "NCCL " + version_text(f.version) + " (" + library.path() +
                ") is too old: " + version_text(nccl::kOldest) + " or newer is needed";
  return r;
}

}  // namespace

const Nccl* find_nccl_library(std::string& problem) {
  static const Found* const found = new Found(load());  // kept for the process
  if (found->problem.empty()) return &found->functions;
  problem = found->problem;
  return nullptr;
}

}  // namespace arete::cuda
