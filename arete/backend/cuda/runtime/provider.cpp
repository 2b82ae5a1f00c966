#include "arete/backend/cuda/runtime/provider.h"

#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <filesystem>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/dynamic_library.h"
#include "arete/backend/cuda/runtime/properties.h"

namespace arete::cuda {
namespace {

// What follows ".so." in the name of the file that a library's name leads to.
std::string version_of_file(const std::string& path) {
  std::error_code ignored;
  const std::string real = std::filesystem::canonical(path, ignored).filename().string();
  const size_t at = real.find(".so.");
  return at == std::string::npos ? "unknown version" : real.substr(at + 4);
}

}  // namespace

std::string describe_device(int ordinal) {
  const DeviceProperties p = query_properties(ordinal);
  char text[256];
  std::snprintf(text, sizeof text,
                ", compute capability %d.%d, %.1f GiB, %d multiprocessors, %d MHz, memory %d MHz x "
                "%d bits",
                p.major, p.minor, double(p.total_memory) / (1 << 30), p.multi_processor_count,
                p.clock_rate / 1000, p.memory_clock_rate / 1000, p.memory_bus_width);
  return p.name + text;
}

int CudaProvider::count() const { return DeviceContext::count(); }
DeviceProperties CudaProvider::properties(int ordinal) const { return query_properties(ordinal); }

std::vector<std::pair<std::string, std::string>> CudaProvider::versions() const {
  return known_versions(driver_version());
}

std::vector<std::pair<std::string, std::string>> known_versions(const std::string& cuda_version) {
  std::vector<std::pair<std::string, std::string>> all{
      {"driver", "CUDA " + cuda_version},
      {"built with", "CUDA " + std::to_string(CUDA_VERSION / 1000) + "." +
                         std::to_string(CUDA_VERSION % 1000 / 10)}};
  const struct {
    const char *name, *file;
  } libraries[] = {{"NVRTC", "libnvrtc.so"},       {"cuBLASLt", "libcublasLt.so"},
                   {"cuBLAS", "libcublas.so"},     {"cuDNN", "libcudnn.so"},
                   {"cuSOLVER", "libcusolver.so"}, {"cuFFT", "libcufft.so"},
                   {"NCCL", "libnccl.so"}};
  for (const auto& l : libraries) {
    const std::string path = find_library_file(l.file);
    all.emplace_back(l.name, path.empty() ? "not found" : version_of_file(path));
  }
  return all;
}

bool CudaProvider::can_access_peer(int from, int to) const {
  CUdevice a = 0, b = 0;
  ARETE_CU(cuDeviceGet, &a, from);
  ARETE_CU(cuDeviceGet, &b, to);
  int yes = 0;
  ARETE_CU(cuDeviceCanAccessPeer, &yes, a, b);
  return yes != 0;
}

prim::Backend* CudaProvider::make_backend(int ordinal) { return new CudaBackend(ordinal); }

void CudaProvider::push_range(const char* name) noexcept { nvtxRangePushA(name); }
void CudaProvider::pop_range() noexcept { nvtxRangePop(); }

}  // namespace arete::cuda
