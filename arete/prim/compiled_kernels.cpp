#include "arete/prim/compiled_kernels.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

namespace arete::prim {
namespace {

struct List {
  std::mutex mutex;
  std::vector<CompiledKernel> kernels;
  std::atomic<size_t> count{0};
};
List& list() {
  static auto* const l = new List;  // plug-ins may compile until the process ends
  return *l;
}

}  // namespace

void note_compiled_kernel(std::string name, double seconds) {
  const std::lock_guard lock(list().mutex);
  list().kernels.push_back({std::move(name), seconds});
  list().count = list().kernels.size();
}

size_t count_compiled_kernels() noexcept { return list().count; }

std::vector<CompiledKernel> compiled_kernels(size_t skip) {
  const std::lock_guard lock(list().mutex);
  const auto& all = list().kernels;
  return {all.begin() + std::ptrdiff_t(std::min(skip, all.size())), all.end()};
}

}  // namespace arete::prim
