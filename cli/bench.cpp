// What a machine does, measured through Arete's own operators: copies between memories, bandwidth,
// matrix products, and what one call costs.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "arete/base/cpu_name.h"
#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/base/thread_pool.h"
#include "arete/core/matmul_precision.h"
#include "arete/device/cuda.h"
#include "arete/io/html_report.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/prim/backend.h"
#include "arete/profile/benchmark.h"
#include "arete/profile/ceilings.h"
#include "cli/commands.h"
#include "cli/run_files.h"

namespace arete::cli {

namespace {

using benchmark::Measurement;

constexpr double kMebi = 1 << 20;
constexpr double kMuchSpread = 0.25;

/// One figure.
struct Row {
  std::string group, name, variant;
  double size = 0;    ///< mebibytes, or rows of the matrices
  double amount = 0;  ///< bytes or FLOPs of a run; 0: the time itself is the figure
  Measurement time;

  double rate() const { return amount / time.median(); }
};

class Bench {
 public:
  explicit Bench(const BenchOptions& o) : options_(o), device_(resolve_device(o.device)) {}

  int run() {
    check_writable(options_.json);
    check_writable(options_.html);
    describe();
    const auto wanted = [&](const char* group) {
      return options_.groups.empty() || std::find(options_.groups.begin(), options_.groups.end(),
                                                  group) != options_.groups.end();
    };
    if (wanted("transfers")) device_.is_cuda() ? transfers() : host_copies();
    if (wanted("bandwidth")) bandwidth();
    if (wanted("gemm")) gemm();
    if (wanted("launch")) launch();
    report_noise();
    if (!options_.json.empty()) write_json();
    if (!options_.html.empty()) write_html();
    return 0;
  }

 private:
  void describe() {
    machine_.emplace_back("device", prim::backend_for(device_).description());
    machine_.emplace_back("processor", cpu_name());
    machine_.emplace_back("threads", std::to_string(num_threads()));
    machine_.emplace_back("arete", ARETE_VERSION);
    for (const auto& [key, value] : machine_) std::printf("%-10s %s\n", key.c_str(), value.c_str());
  }

  Measurement measure(std::function<void()> f) const {
    benchmark::TaskSpec spec;
    spec.num_threads = num_threads();
    const benchmark::Timer t(std::move(f), spec);
    t.timeit(1);  // plans, kernels and pages of the first call
    const Measurement m =
        options_.quick ? t.adaptive_autorange(0.2, 0.03, 0.5) : t.adaptive_autorange(0.1, 0.3, 3);
    // The spread in the tables needs quartiles, however slow the machine is.
    constexpr size_t kLeastTimes = 4;
    std::vector<double> times = m.raw_times();
    while (times.size() < kLeastTimes) times.push_back(t.timeit(m.number_per_run()).raw_times()[0]);
    return Measurement(m.number_per_run(), std::move(times), spec);
  }

  void heading(const std::string& title, const char* columns) {
    std::printf("\n%s\n%s\n", title.c_str(), columns);
  }

  const Row& add(Row row) {
    rows_.push_back(std::move(row));
    return rows_.back();
  }

  void print_rate(const Row& r, double unit, const std::string& size) {
    std::printf("  %-26s %-16s %10s %10s %12s %7.1f %%\n", r.name.c_str(), r.variant.c_str(),
                size.c_str(), rate_text(r.rate() / unit).c_str(),
                time_text(r.time.median()).c_str(), 100 * r.time.iqr() / r.time.median());
    std::fflush(stdout);
  }

  static std::string rate_text(double rate) {
    return rate < 100 ? fmt::format("{:.3g}", rate) : fmt::format("{:.0f}", rate);
  }
  static std::string time_text(double seconds) {
    const benchmark::TimeUnit u = benchmark::select_unit(seconds);
    return fmt::format("{:.4g} {}", seconds / u.seconds, u.name);
  }
  static std::string bytes_text(int64_t bytes) {
    return bytes >= int64_t(1) << 30 ? fmt::format("{} GiB", bytes >> 30)
                                     : fmt::format("{} MiB", bytes >> 20);
  }

  std::vector<int64_t> transfer_sizes() const {
    std::vector<int64_t> sizes;
    const int64_t most = int64_t(1) << (options_.quick ? 26 : 30);
    for (int64_t n = int64_t(1) << 20; n <= most; n *= 4) sizes.push_back(n);
    return sizes;
  }

  static constexpr const char* kRateColumns =
      "  what                       how                    size       GB/s         time  spread";

  // Where there is no GPU: the copy that a transfer would be.
  void host_copies() {
    if (!cuda::is_available())
      std::printf("\nTransfers between host and GPU need a GPU: %s\n",
                  cuda::unavailable_reason().c_str());
    heading("Copies in host memory, bytes moved", kRateColumns);
    const int64_t memory = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
    for (int64_t n : transfer_sizes()) {
      if (4 * n > memory) break;
      const Tensor from = full({n}, 1, kUInt8), to = full({n}, 2, kUInt8);
      const Row& r = add({"transfers", "host to host", "memcpy", double(n) / kMebi, double(n),
                          measure([&] { Tensor(to).copy_(from); })});
      print_rate(r, 1e9, bytes_text(n));
    }
  }

  void transfers() {
    heading("Transfers between host and GPU, bytes moved", kRateColumns);
    for (const bool to_device : {true, false})
      for (const bool pinned : {true, false})
        for (const bool non_blocking : {false, true})
          for (int64_t n : transfer_sizes()) {
            Tensor host = full({n}, 1, kUInt8);
            if (pinned) host = host.pin_memory();
            Tensor there = full({n}, 2, TensorOptions(kUInt8, device_));
            const Row& r = add(
                {"transfers", to_device ? "host to GPU" : "GPU to host",
                 std::string(pinned ? "pinned" : "pageable") + (non_blocking ? ", async" : ""),
                 double(n) / kMebi, double(n), measure([&] {
                   to_device ? there.copy_(host, non_blocking) : host.copy_(there, non_blocking);
                 })});
            print_rate(r, 1e9, bytes_text(n));
          }
  }

  // The caches hold a good part of such a tensor from one run to the next.
  bool may_be_cached(int64_t bytes) const { return bytes < 2 * cache_; }

  void bandwidth() {
    heading("Memory bandwidth, bytes read and written", kRateColumns);
    std::vector<int64_t> sizes{int64_t(1) << 24};  // bytes of one tensor
    if (!options_.quick) sizes.push_back(device_.is_cuda() ? int64_t(1) << 30 : int64_t(1) << 28);
    for (int64_t bytes : sizes) {
      const int64_t n = bytes / 4;
      const TensorOptions o(kFloat32, device_);
      const Tensor a = full({n}, 1, o), b = full({n}, 2, o);
      Tensor c = full({n}, 3, o);
      const auto one = [&](const char* name, double amount, std::function<void()> f) {
        print_rate(add({"bandwidth", name, "float32", double(bytes) / kMebi, amount,
                        measure(std::move(f))}),
                   1e9, bytes_text(bytes));
      };
      one("fill", double(bytes), [&] { c.fill_(1); });
      one("copy", 2. * double(bytes), [&] { c.copy_(a); });
      one("scale in place", 2. * double(bytes), [&] { c.mul_(1); });
      one("triad a + 2 b", 3. * double(bytes), [&] { add_to_nothing(a, b); });
      one("sum", double(bytes), [&] { benchmark::keep(sum(a)); });
      one("sum of rows", double(bytes), [&] { benchmark::keep(sum(a.view({-1, 1024}), {1})); });
      one("max", double(bytes), [&] { benchmark::keep(max(a)); });
      if (may_be_cached(bytes))
        std::printf("  %s may lie in the caches, which hold %s: not the memory's bandwidth\n",
                    bytes_text(bytes).c_str(), bytes_text(cache_).c_str());
    }
  }
  // A new tensor each time, as programs make: its memory comes back from the cache.
  static void add_to_nothing(const Tensor& a, const Tensor& b) {
    benchmark::keep(arete::add(a, b, 2));
  }

  void gemm() {
    heading("Matrix products",
            "  what                       how                    rows    TFLOP/s         time  "
            "spread");
    std::vector<int64_t> sizes{256, 512, 1024};
    if (!options_.quick || device_.is_cuda()) sizes.push_back(2048);
    if (!options_.quick && device_.is_cuda()) sizes.insert(sizes.end(), {4096, 8192});
    struct Kind {
      DType dtype;
      const char* name;
      MatmulPrecision precision;
    };
    std::vector<Kind> kinds{{kFloat64, "float64", MatmulPrecision::highest},
                            {kFloat32, "float32", MatmulPrecision::highest}};
    if (device_.is_cuda()) kinds.push_back({kFloat32, "float32 (tf32)", MatmulPrecision::high});
    kinds.push_back({kBFloat16, "bfloat16", MatmulPrecision::highest});
    kinds.push_back({kFloat16, "float16", MatmulPrecision::highest});
    const MatmulPrecision before = float32_matmul_precision();
    for (const Kind& k : kinds) {
      set_float32_matmul_precision(k.precision);
      for (int64_t n : sizes) {
        const TensorOptions o(k.dtype, device_);
        const Tensor a = full({n, n}, 0.5, o), b = full({n, n}, 0.25, o);
        print_rate(add({"gemm", "gemm", k.name, double(n), 2. * double(n) * double(n) * double(n),
                        measure([&] { benchmark::keep(mm(a, b)); })}),
                   1e12, std::to_string(n));
      }
    }
    set_float32_matmul_precision(before);
  }

  void launch() {
    heading("What one call costs",
            "  what                                              time  spread");
    const TensorOptions o(kFloat32, device_);
    const Tensor a = full({16, 16}, 1, o), b = full({16, 16}, 2, o);
    Tensor c = full({16, 16}, 3, o);
    const auto one = [&](const char* name, std::function<void()> f) {
      const Row& r = add({"launch", name, "float32", 256, 0, measure(std::move(f))});
      std::printf("  %-43s %10s %7.1f %%\n", r.name.c_str(), time_text(r.time.median()).c_str(),
                  100 * r.time.iqr() / r.time.median());
    };
    one("view", [&] { benchmark::keep(a.view({256})); });
    one("empty", [&] { benchmark::keep(empty({16, 16}, o)); });
    one("add", [&] { benchmark::keep(a.add(b)); });
    one("add in place", [&] { c.add_(b); });
    one("matrix product", [&] { benchmark::keep(mm(a, b)); });
    one("sum", [&] { benchmark::keep(sum(a)); });
    one("sum and read on the host", [&] { benchmark::keep(sum(a).item<float>()); });
    if (!device_.is_cuda()) return;
    one("add and wait", [&] {
      benchmark::keep(a.add(b));
      cuda::synchronize();
    });
    cuda::Graph graph;
    {
      cuda::GraphCapture capture(graph);
      for (int i = 0; i < 100; ++i) c.add_(b);
      capture.end();
    }
    one("graph of 100 adds in place", [&] { graph.replay(); });
  }

  void report_noise() const {
    const auto noisy = std::count_if(rows_.begin(), rows_.end(), [](const Row& r) {
      return !r.time.meets_confidence(kMuchSpread);
    });
    if (noisy > 0)
      std::printf("\n%d of %d rows have a spread above %.0f %%: something else used the machine.\n",
                  int(noisy), int(rows_.size()), 100 * kMuchSpread);
  }

  void write_json() const {
    nlohmann::ordered_json j;
    for (const auto& [key, value] : machine_) j["machine"][key] = value;
    j["rows"] = nlohmann::ordered_json::array();
    for (const Row& r : rows_) {
      nlohmann::ordered_json row{{"group", r.group}, {"name", r.name}, {"variant", r.variant}};
      row[r.group == "gemm" ? "rows" : r.group == "launch" ? "elements" : "mebibytes"] = r.size;
      row["median_seconds"] = r.time.median();
      row["iqr_seconds"] = r.time.iqr();
      row["measurements"] = r.time.raw_times().size();
      if (r.group == "gemm")
        row["tflop_per_s"] = r.rate() / 1e12;
      else if (r.amount > 0)
        row["gb_per_s"] = r.rate() / 1e9;
      j["rows"].push_back(std::move(row));
    }
    write(options_.json, j.dump(1) + "\n");
  }

  static void write(const std::string& path, const std::string& text) {
    io::AtomicFile file(path);
    file.write(text);
    file.commit();
  }

  /// One curve for each name and variant of a group.
  io::ReportChart chart(const std::string& group, double unit) const {
    io::ReportChart c;
    c.log_x = true;
    std::map<std::string, size_t> at;
    for (const Row& r : rows_) {
      if (r.group != group) continue;
      const std::string name = group == "gemm" ? r.variant : r.name + ", " + r.variant;
      const auto [it, fresh] = at.emplace(name, c.series.size());
      if (fresh) c.series.push_back({name, {}, {}});
      c.series[it->second].x.push_back(r.size);
      c.series[it->second].y.push_back(r.rate() / unit);
    }
    return c;
  }

  void write_html() const {
    io::Report report;
    report.title = "arete bench";
    report.subtitle = machine_[0].second;
    io::ReportChart transfers = chart("transfers", 1e9), gemm = chart("gemm", 1e12);
    transfers.title =
        device_.is_cuda() ? "Transfers between host and GPU" : "Copies in host memory";
    transfers.x_label = "MiB";
    transfers.y_label = "GB/s";
    gemm.title = "Matrix products";
    gemm.x_label = "rows and columns";
    gemm.y_label = "TFLOP/s";
    gemm.log_y = true;
    double best_transfer = 0, best_bandwidth = 0, best_gemm = 0, largest = 0;
    io::ReportTable bandwidth{"Bandwidth", {}}, launch{"What one call costs", {}};
    for (const Row& r : rows_) {
      if (r.group == "transfers") best_transfer = std::max(best_transfer, r.rate());
      if (r.group == "gemm") best_gemm = std::max(best_gemm, r.rate());
      if (r.group == "bandwidth") {
        // Of the largest tensors: smaller ones may fit into a cache.
        best_bandwidth = r.size > largest ? r.rate() : std::max(best_bandwidth, r.rate());
        largest = std::max(largest, r.size);
        const bool cached = may_be_cached(int64_t(r.size * kMebi));
        bandwidth.rows.emplace_back(
            fmt::format("{}, {:.0f} MiB{}", r.name, r.size, cached ? " (fits the caches)" : ""),
            fmt::format("{:.1f} GB/s", r.rate() / 1e9));
      }
      if (r.group == "launch") launch.rows.emplace_back(r.name, time_text(r.time.median()));
    }
    const auto figure = [&](const char* label, double rate, double unit, const char* name) {
      if (rate > 0) report.figures.emplace_back(label, fmt::format("{:.4g} {}", rate / unit, name));
    };
    figure(device_.is_cuda() ? "fastest transfer" : "fastest copy", best_transfer, 1e9, "GB/s");
    // Of tensors that fit the caches it would be another figure than the memory's.
    if (!may_be_cached(int64_t(largest * kMebi)))
      figure("memory bandwidth", best_bandwidth, 1e9, "GB/s");
    else
      figure(fmt::format("bandwidth, {:.0f} MiB in cache", largest).c_str(), best_bandwidth, 1e9,
             "GB/s");
    figure("matrix products", best_gemm, 1e12, "TFLOP/s");
    if (!transfers.series.empty()) report.charts.push_back(std::move(transfers));
    if (!gemm.series.empty()) report.charts.push_back(std::move(gemm));
    if (!bandwidth.rows.empty()) report.tables.push_back(std::move(bandwidth));
    if (!launch.rows.empty()) report.tables.push_back(std::move(launch));
    report.tables.push_back({"Machine", machine_});
    report.footer = "Medians of repeated runs; written by arete bench.";
    io::write_html_report(options_.html, report);
  }

  const BenchOptions options_;
  const Device device_;
  const int64_t cache_ = profile::cache_bytes(device_);
  std::vector<std::pair<std::string, std::string>> machine_;
  std::vector<Row> rows_;
};

}  // namespace

std::vector<std::string> bench_groups() { return {"transfers", "bandwidth", "gemm", "launch"}; }

void check_writable(const std::string& path) {
  // Makes a file beside it, and takes that away again.
  if (!path.empty()) io::AtomicFile probe(path);
}

int bench(const BenchOptions& options) { return Bench(options).run(); }

}  // namespace arete::cli
