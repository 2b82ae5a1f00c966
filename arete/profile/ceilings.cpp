#include "arete/profile/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>

#include "arete/base/cpu_name.h"
#include "arete/base/file.h"
#include "arete/base/thread_pool.h"
#include "arete/core/cuda.h"
#include "arete/core/matmul_precision.h"
#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"

namespace arete::profile {
namespace {

using Clock = std::chrono::steady_clock;

void wait_for(Device device) {
  if (device.is_cuda()) cuda::synchronize(device.index);
}

// Seconds of one call, the least of a few rounds: a roof is what the machine does undisturbed.
// `enough`: seconds in a round.
double least_seconds(Device device, double enough, const std::function<void()>& f) {
  f();  // plans, kernels and pages are made here
  wait_for(device);
  double least = 1e30;
  int64_t n = 1;
  for (int round = 0; round < 5;) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < n; ++i) f();
    wait_for(device);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    least = std::min(least, seconds / double(n));
    if (seconds < enough / 2 && n < 1 << 20)
      n = std::max(n * 2, int64_t(0.75 * enough / std::max(least, 1e-9)));
    else
      ++round;
    if (seconds > 10 * enough) break;  // slower than thought: one round tells enough
  }
  return least;
}

std::string device_text(Device device) {
  ARETE_CHECK(!device.is_meta(),
              DeviceError("ceilings", "the meta device computes nothing").got("meta"));
  if (device.is_cuda()) return cuda::get_device_properties(device.index).name;
  return cpu_name() + ", " + std::to_string(num_threads()) +
         (num_threads() == 1 ? " thread" : " threads");
}

std::string key_of(Device device) {
  std::string key = device_text(device) + " | arete " ARETE_VERSION;
  if (device.is_cuda())
    for (const auto& [name, version] : cuda::versions()) key += " | " + name + " " + version;
  return key;
}

// f32 without TF32, whatever the program has chosen.
class ExactMatmul {
 public:
  explicit ExactMatmul(const char* precision) : before_(get_float32_matmul_precision()) {
    set_float32_matmul_precision(precision);
  }
  ~ExactMatmul() { set_float32_matmul_precision(before_); }

 private:
  const std::string before_;
};

double gemm_rate(Device device, DType dtype, int64_t n, double enough) {
  const Tensor a = ones({n, n}, TensorOptions(dtype, device)),
               b = ones({n, n}, TensorOptions(dtype, device));
  return 2.0 * double(n) * double(n) * double(n) /
         least_seconds(device, enough, [&] { matmul(a, b); });
}

std::mutex file_mutex;

nlohmann::json read_cache() {
  const std::string path = ceilings_file();
  if (path.empty()) return nlohmann::json::object();
  try {
    const auto bytes = io::read_file(path, 1 << 20);
    auto j = nlohmann::json::parse(reinterpret_cast<const char*>(bytes.data()),
                                   reinterpret_cast<const char*>(bytes.data()) + bytes.size());
    if (j.is_object()) return j;
  } catch (const std::exception&) {
    // Missing or damaged: it is measured and written anew.
  }
  return nlohmann::json::object();
}

}  // namespace

double Ceilings::flops_of(DType dtype) const {
  const auto find = [&](DType t) {
    const auto it = gemm.find(std::string(name_of(t)));
    return it == gemm.end() ? 0.0 : it->second;
  };
  if (const double own = find(dtype); own > 0) return own;
  if (dtype == kComplex128) return find(kFloat64);
  if (is_reduced_float(dtype) && find(kFloat16) > 0) return find(kFloat16);
  return find(kFloat32);
}

double Ceilings::roof(DType dtype, double intensity) const {
  return std::min(flops_of(dtype), intensity * bandwidth);
}

std::string ceilings_file() {
  const auto set = [](const char* name) -> std::string {
    const char* v = std::getenv(name);
    return v ? v : "";
  };
  if (const std::string own = set("ARETE_CACHE_DIR"); !own.empty()) return own + "/ceilings.json";
  if (const std::string cache = set("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/arete/ceilings.json";
  if (const std::string home = set("HOME"); !home.empty())
    return home + "/.cache/arete/ceilings.json";
  return "";
}

Ceilings measure_ceilings(Device device) {
  const NoGradGuard no_grad;
  const ModesGuard guard;
  modes().word = 0;
  Ceilings c;
  c.device = device_text(device);
  const bool gpu = device.is_cuda();
  const double enough = gpu ? 0.02 : 0.05;
  {
    int64_t bytes = 96 << 20;
    // Far more than its caches hold, and far less than its memory.
    if (gpu) bytes = int64_t(std::min<size_t>(1 << 30, cuda::mem_get_info(device.index).free / 8));
    const Tensor from = ones({bytes / 4}, TensorOptions(kFloat32, device));
    Tensor to = ones({bytes / 4}, TensorOptions(kFloat32, device));
    c.bandwidth =
        2.0 * double(to.nbytes()) / least_seconds(device, enough, [&] { to.copy_(from); });
  }
  {
    const Tensor one = ones({1}, TensorOptions(kFloat32, device));
    c.launch_overhead = least_seconds(device, enough / 2, [&] { one.neg(); });
  }
  const struct {
    DType dtype;
    int64_t gpu_size, cpu_size;
  } sizes[] = {
      {kFloat64, 4096, 768}, {kFloat32, 4096, 1024}, {kBFloat16, 8192, 512}, {kFloat16, 8192, 512}};
  for (const auto& s : sizes) {
    const ExactMatmul exact("highest");
    c.gemm[std::string(name_of(s.dtype))] =
        gemm_rate(device, s.dtype, gpu ? s.gpu_size : s.cpu_size, enough);
  }
  if (gpu) {
    const ExactMatmul with_tf32("high");
    c.gemm["tf32"] = gemm_rate(device, kFloat32, 8192, enough);
  }
  return c;
}

Ceilings ceilings(Device device, bool again) {
  const std::string key = key_of(device);
  const std::lock_guard lock(file_mutex);
  static std::map<std::string, Ceilings> known;
  if (const auto it = known.find(key); it != known.end() && !again) return it->second;
  if (!again) {
    const nlohmann::json cache = read_cache();
    try {
      if (cache.contains(key)) {
        const auto& j = cache.at(key);
        Ceilings c{j.at("device"), j.at("bandwidth"), j.at("launch_overhead"), {}};
        for (const auto& [dtype, rate] : j.at("gemm").items()) c.gemm[dtype] = rate;
        if (c.bandwidth > 0 && c.launch_overhead > 0 && c.flops_of(kFloat32) > 0)
          return known[key] = c;
      }
    } catch (const nlohmann::json::exception&) {
      // Of another shape: as if it were not there.
    }
  }
  const Ceilings c = measure_ceilings(device);
  known[key] = c;
  if (const std::string path = ceilings_file(); !path.empty()) {
    try {
      nlohmann::json cache = read_cache();
      cache[key] = {{"device", c.device},
                    {"bandwidth", c.bandwidth},
                    {"launch_overhead", c.launch_overhead},
                    {"gemm", c.gemm}};
      io::make_directories(path.substr(0, path.rfind('/')));
      io::AtomicFile file(path);
      file.write(cache.dump(2) + "\n");
      file.commit();
    } catch (const IoError&) {
      // A place that cannot be written to costs a second next time.
    }
  }
  return c;
}

std::string to_string(const Ceilings& c) {
  char line[160];
  std::string text = c.device + "\n";
  std::snprintf(line, sizeof line, "  copy             %10.1f GB/s\n", c.bandwidth / 1e9);
  text += line;
  std::snprintf(line, sizeof line, "  smallest call    %10.2f us\n", c.launch_overhead * 1e6);
  text += line;
  for (const auto& [dtype, rate] : c.gemm) {
    std::snprintf(line, sizeof line, "  gemm %-11s %10.3f TFLOP/s\n", dtype.c_str(), rate / 1e12);
    text += line;
  }
  return text;
}

}  // namespace arete::profile
