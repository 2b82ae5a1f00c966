#include "arete/profile/ceilings.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "arete/base/cpu_name.h"
#include "arete/base/file.h"
#include "arete/base/thread_pool.h"
#include "arete/core/matmul_precision.h"
#include "arete/core/modes.h"
#include "arete/device/cuda.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"

namespace arete::profile {
namespace {

using Clock = std::chrono::steady_clock;

void wait_for(Device device) {
  if (device.is_cuda()) cuda::synchronize(device.index);
}

// Where the middle round is so much slower than the best, something else used the machine.
constexpr double kMuchSpread = 0.25;
// So busy a machine has no processor to spare.
constexpr double kMuchLoad = 0.75;

/// One figure that is measured: what is called again and again.
struct Probe {
  std::function<void()> call;
  double enough;                      // seconds in a round
  const char* precision = "highest";  // of products of f32
  int64_t calls = 1;                  // in a round
  std::vector<double> rounds{};       // seconds of a call
  double total = 0;

  double least() const { return *std::min_element(rounds.begin(), rounds.end()); }
  double spread() const {
    std::vector<double> sorted = rounds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2] / sorted[0] - 1;
  }
};

// f32 without TF32, or with it, whatever the program has chosen.
class Precision {
 public:
  explicit Precision(const char* precision) : before_(get_float32_matmul_precision()) {
    set_float32_matmul_precision(precision);
  }
  ~Precision() { set_float32_matmul_precision(before_); }

 private:
  const std::string before_;
};

void run_round(Probe& p, Device device) {
  const Precision precision(p.precision);
  const auto begin = Clock::now();
  for (int64_t i = 0; i < p.calls; ++i) p.call();
  wait_for(device);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  p.rounds.push_back(seconds / double(p.calls));
  p.total += seconds;
}

// How many calls make a round. What only the first call does is over after that.
void calibrate(Probe& p, Device device) {
  for (;;) {
    run_round(p, device);
    const double seconds = p.rounds.back() * double(p.calls);
    p.rounds.clear();
    if (seconds >= p.enough / 2 || p.calls >= 1 << 20) break;
    p.calls =
        std::max(p.calls * 2, int64_t(0.75 * p.enough / std::max(seconds, 1e-9) * double(p.calls)));
  }
  p.total = 0;
}

// Note [Rounds of a measurement]
// A roof is what the machine does undisturbed: the best round counts. Disturbances last longer than
// a round, so the rounds of a figure are spread over the whole measurement: all figures take turns.
// Where the rounds differ much, as many again follow.
void measure(std::span<Probe> probes, Device device) {
  constexpr int kPasses = 10;
  // Seconds on a machine slower than thought: for one figure, and for all of them.
  constexpr double kLongest = 1, kEnough = 5;
  constexpr int kLeastPasses = 4;
  for (Probe& p : probes) calibrate(p, device);
  const auto begin = Clock::now();
  for (int pass = 0; pass < 2 * kPasses; ++pass) {
    if (pass >= kLeastPasses &&
        std::chrono::duration<double>(Clock::now() - begin).count() > kEnough)
      return;
    if (pass == kPasses && std::none_of(probes.begin(), probes.end(),
                                        [](const Probe& p) { return p.spread() > kMuchSpread; }))
      return;
    for (Probe& p : probes)
      if (p.rounds.size() < 2 || p.total < kLongest) run_round(p, device);
  }
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local);
  return text;
}

// By processors: 1 is a machine with something to do for each.
double machine_load() {
  double load = 0;
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  return getloadavg(&load, 1) == 1 && processors > 0 ? load / double(processors) : 0;
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
  c.cache = cache_bytes(device);
  c.date = now_text();
  c.load = machine_load();
  const bool gpu = device.is_cuda();
  const double enough = gpu ? 0.01 : 0.03;
  std::vector<Probe> probes;
  // Far more than the caches hold, and far less than the memory.
  int64_t bytes = std::max<int64_t>(96 << 20, 2 * c.cache);
  if (gpu)
    bytes = int64_t(std::min<size_t>(1 << 30, cuda::mem_get_info(device.index).free / 8));
  else
    bytes = std::min<int64_t>(bytes, sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE) / 16);
  const Tensor from = ones({bytes / 4}, TensorOptions(kFloat32, device));
  const Tensor to = ones({bytes / 4}, TensorOptions(kFloat32, device));
  probes.push_back({[&] { Tensor(to).copy_(from); }, enough});
  const Tensor one = ones({1}, TensorOptions(kFloat32, device));
  probes.push_back({[&] { one.neg(); }, enough / 2});
  struct Product {
    const char* name;
    DType dtype;
    int64_t gpu_size, cpu_size;
    const char* precision = "highest";
  };
  std::vector<Product> products{{"float64", kFloat64, 4096, 768},
                                {"float32", kFloat32, 4096, 1024},
                                {"bfloat16", kBFloat16, 8192, 512},
                                {"float16", kFloat16, 8192, 512}};
  if (gpu) products.push_back({"tf32", kFloat32, 8192, 0, "high"});
  for (const Product& s : products) {
    const int64_t n = gpu ? s.gpu_size : s.cpu_size;
    const Tensor a = ones({n, n}, TensorOptions(s.dtype, device));
    const Tensor b = ones({n, n}, TensorOptions(s.dtype, device));
    probes.push_back({[a, b] { matmul(a, b); }, enough, s.precision});
  }
  measure(probes, device);
  c.bandwidth = 2.0 * double(to.nbytes()) / probes[0].least();
  c.launch_overhead = probes[1].least();
  for (size_t i = 0; i < products.size(); ++i) {
    const double n = double(gpu ? products[i].gpu_size : products[i].cpu_size);
    c.gemm[products[i].name] = 2 * n * n * n / probes[2 + i].least();
  }
  // The smallest call is no roof, and differs by nature.
  for (size_t i = 0; i < probes.size(); ++i)
    if (i != 1) c.spread = std::max(c.spread, probes[i].spread());
  return c;
}

std::string doubts_about(const Ceilings& c) {
  if (c.date.empty()) return "";
  std::string why;
  char text[128];
  if (c.spread > kMuchSpread) {
    std::snprintf(text, sizeof text, "rounds of one figure differed by %.0f %%", 100 * c.spread);
    why = text;
  }
  // A GPU does not wait for the host's processors.
  if (c.load > kMuchLoad && c.device.find(" thread") != std::string::npos) {
    std::snprintf(text, sizeof text, "the processors' load was %.0f %%", 100 * c.load);
    why += (why.empty() ? "" : ", ") + std::string(text);
  }
  if (why.empty()) return "";
  return "The ceilings may be too low: when they were measured (" + c.date + ") " + why +
         ": something else used the machine. Measure once more when it is idle: arete bench "
         "--ceilings --again";
}

int64_t cache_bytes(Device device) {
  if (device.is_cuda()) return std::max(cuda::get_device_properties(device.index).l2_cache_size, 0);
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (const long size = sysconf(_SC_LEVEL3_CACHE_SIZE); size > 0) return size;
#endif
  return int64_t(64) << 20;
}

namespace {

nlohmann::json json_of(const Ceilings& c) {
  return {{"device", c.device},
          {"bandwidth", c.bandwidth},
          {"launch_overhead", c.launch_overhead},
          {"gemm", c.gemm},
          {"cache", c.cache},
          {"date", c.date},
          {"spread", c.spread},
          {"load", c.load}};
}

// Figure by figure.
void keep_better(Ceilings& c, const Ceilings& before) {
  c.bandwidth = std::max(c.bandwidth, before.bandwidth);
  c.launch_overhead = std::min(c.launch_overhead, before.launch_overhead);
  for (const auto& [dtype, rate] : before.gemm) c.gemm[dtype] = std::max(c.gemm[dtype], rate);
}

}  // namespace

Ceilings ceilings(Device device, bool again) {
  const std::string key = key_of(device);
  const std::lock_guard lock(file_mutex);
  static std::map<std::string, Ceilings> known;
  if (const auto it = known.find(key); it != known.end() && !again) return it->second;
  std::optional<Ceilings> doubtful;
  if (!again) {
    const nlohmann::json cache = read_cache();
    try {
      if (cache.contains(key)) {
        const auto& j = cache.at(key);
        Ceilings c;
        c.device = j.at("device");
        c.bandwidth = j.at("bandwidth");
        c.launch_overhead = j.at("launch_overhead");
        for (const auto& [dtype, rate] : j.at("gemm").items()) c.gemm[dtype] = rate;
        c.cache = j.at("cache");
        c.date = j.at("date");
        c.spread = j.at("spread");
        c.load = j.at("load");
        if (c.bandwidth > 0 && c.launch_overhead > 0 && c.flops_of(kFloat32) > 0) {
          if (doubts_about(c).empty()) return known[key] = c;
          doubtful = std::move(c);
        }
      }
    } catch (const nlohmann::json::exception&) {
      // Of another shape: as if it were not there.
    }
  }
  Ceilings c = measure_ceilings(device);
  if (doubtful) keep_better(c, *doubtful);
  known[key] = c;
  if (const std::string path = ceilings_file(); !path.empty()) {
    try {
      nlohmann::json cache = read_cache();
      cache[key] = json_of(c);
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
  if (!c.date.empty()) {
    std::snprintf(line, sizeof line, "  measured %s, middle round %.0f %% slower than the best\n",
                  c.date.c_str(), 100 * c.spread);
    text += line;
  }
  if (const std::string doubts = doubts_about(c); !doubts.empty()) text += doubts + "\n";
  return text;
}

}  // namespace arete::profile
