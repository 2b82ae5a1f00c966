#include <chrono>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "arete/base/cpu_name.h"
#include "arete/base/thread_pool.h"
#include "arete/device/cuda.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/prim/backend.h"
#include "cli/commands.h"

namespace arete::cli {

namespace {

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

// Starts the first GPU and computes something on it.
std::string try_gpu() {
  const auto start = std::chrono::steady_clock::now();
  const double sum = ones({1000}, kCUDA).add(1).sum().item<double>();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return fmt::format("{} after {:.2f} s", sum == 2000 ? "computes" : "gives wrong results",
                     seconds.count());
}

}  // namespace

int info(const InfoOptions& options) {
  nlohmann::ordered_json j;
  j["arete"] = ARETE_VERSION;
  j["cpu"] = cpu_name();
  j["cpu features"] = features();
  j["threads"] = num_threads();
  prim::Backend& cpu = prim::backend_for(kCPU);
  j["cpu backend"] = cpu.description();
  for (const auto& [name, text] : cuda::survey(options.check)) j[name] = text;
  if (options.check && cuda::is_available()) j["check"] = try_gpu();
  if (options.json) {
    std::printf("%s\n", j.dump(2).c_str());
    return 0;
  }
  for (const auto& [key, value] : j.items())
    std::printf("%-14s %s\n", key.c_str(),
                (value.is_string() ? value.get<std::string>() : value.dump()).c_str());
  return 0;
}

}  // namespace arete::cli
