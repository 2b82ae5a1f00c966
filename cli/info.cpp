#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "arete/base/thread_pool.h"
#include "arete/core/cuda.h"
#include "arete/prim/backend.h"
#include "cli/commands.h"

namespace arete::cli {

namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string features() {
  std::string text;
#if defined(__x86_64__)
  const auto add = [&](bool has, const char* name) {
    if (has) text += (text.empty() ? "" : " ") + std::string(name);
  };
  add(__builtin_cpu_supports("sse4.2"), "sse4.2");
  add(__builtin_cpu_supports("avx"), "avx");
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
  add(__builtin_cpu_supports("avx512bw"), "avx512bw");
  add(__builtin_cpu_supports("avx512vnni"), "avx512_vnni");
  add(__builtin_cpu_supports("avx512bf16"), "avx512_bf16");
#endif
  return text.empty() ? "none that matter" : text;
}

// How many GPUs there are and the versions of what they are used with, or why there are none.
std::string cuda_summary(int gpus) {
  if (gpus == 0) return "not available: " + cuda::unavailable_reason();
  std::string text = std::to_string(gpus) + (gpus == 1 ? " device" : " devices");
  for (const auto& [name, version] : cuda::versions()) text += ", " + name + " " + version;
  return text;
}

}  // namespace

int info(bool as_json) {
  nlohmann::ordered_json j;
  j["arete"] = ARETE_VERSION;
  j["cpu"] = cpu_name();
  j["cpu features"] = features();
  j["threads"] = num_threads();
  prim::Backend& cpu = prim::backend_for(kCPU);
  j["cpu backend"] = cpu.description();
  const int gpus = cuda::device_count();
  j["cuda"] = cuda_summary(gpus);
  // From the driver alone: a context would take longer than everything else here.
  if (const prim::DeviceProvider* provider = prim::find_provider(DeviceType::cuda))
    for (int i = 0; i < gpus; ++i) j["cuda:" + std::to_string(i)] = provider->description(i);
  if (as_json) {
    std::printf("%s\n", j.dump(2).c_str());
    return 0;
  }
  for (const auto& [key, value] : j.items())
    std::printf("%-14s %s\n", key.c_str(),
                (value.is_string() ? value.get<std::string>() : value.dump()).c_str());
  return 0;
}

}  // namespace arete::cli
