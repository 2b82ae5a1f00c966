// arete-bench: Arete's figures on this machine beside PyTorch's, measured one after the other in
// one run with the same threads; without PyTorch, beside the machine's own speed.
#include <cstdio>
#include <exception>
#include <fstream>
#include <optional>
#include <regex>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/core/generator.h"
#include "arete/device/cuda.h"
#include "bench/machine.h"
#include "bench/peer.h"
#include "bench/row.h"
#include "bench/start.h"

namespace {

using namespace arete;
using namespace arete::bench;

struct Options {
  std::string device = "cpu", filter, json, first;
  int threads = 0, reps = 0;
  bool no_peer = false, list = false;
};

/// A row with its figures.
struct Line {
  std::string key;
  const Row* row;
  double arete = 0;
  std::optional<double> torch;

  /// Above 1 where Arete is faster.
  std::optional<double> ratio() const {
    if (!torch) return {};
    return is_rate(row->unit) ? arete / *torch : *torch / arete;
  }
  /// Nothing where there is no goal, or no peer to compare with.
  std::optional<bool> reached() const {
    switch (row->goal.kind) {
      case Goal::Kind::none:
        return {};
      case Goal::Kind::figure:
        return is_rate(row->unit) ? arete >= row->goal.value : arete <= row->goal.value;
      case Goal::Kind::ratio:
        if (!torch) return {};
        return *ratio() >= row->goal.value;
    }
    return {};
  }
};

std::string text(double v) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), v < 100 ? "%.3g" : "%.0f", v);
  return buffer;
}

std::string goal_text(const Row& row) {
  switch (row.goal.kind) {
    case Goal::Kind::none:
      return "-";
    case Goal::Kind::figure:
      return (is_rate(row.unit) ? ">= " : "<= ") + text(row.goal.value);
    case Goal::Kind::ratio: {
      char buffer[32];
      std::snprintf(buffer, sizeof(buffer), ">= %.2fx", row.goal.value);
      return buffer;
    }
  }
  return "-";
}

std::vector<Row> wanted_rows(const Options& o) {
  std::vector<Row> rows;
  const std::regex filter(o.filter);
  const auto add = [&](std::vector<Row> family) {
    for (Row& row : family)
      if (std::regex_search(row.name, filter)) rows.push_back(std::move(row));
  };
  if (o.device == "cuda")
    add(cuda_rows());
  else
    for (auto family : {overhead_rows, operator_rows, training_rows}) add(family());
  return rows;
}

void print_beside_peer(const std::vector<Line>& lines, const std::string& version) {
  std::printf("\n%-38s %-8s %10s %10s %8s %10s  %s\n", "row", "unit", "Arete", "PyTorch", "ratio",
              "goal", "reached");
  int goals = 0, reached = 0;
  for (const Line& l : lines) {
    const std::optional<double> ratio = l.ratio();
    const std::optional<bool> yes = l.reached();
    if (l.row->goal.kind != Goal::Kind::none) ++goals;
    if (yes && *yes) ++reached;
    std::printf("%-38s %-8s %10s %10s %8s %10s  %s\n", l.key.c_str(),
                std::string(name_of(l.row->unit)).c_str(), text(l.arete).c_str(),
                l.torch ? text(*l.torch).c_str() : "-", ratio ? (text(*ratio) + "x").c_str() : "-",
                goal_text(*l.row).c_str(),
                !yes   ? "-"
                : *yes ? "yes"
                       : "no");
  }
  std::printf("\nratio: Arete beside PyTorch %s, above 1 where Arete is faster\n", version.c_str());
  std::printf("%d of %d rows with a goal reach it\n", reached, goals);
}

void print_beside_machine(const std::vector<Line>& lines, double copy, double gemm,
                          const std::string& why) {
  std::printf("\nNo PyTorch to compare with: %s.\n", why.c_str());
  std::printf("Shares of this machine's own speed instead: copy %.1f GB/s, gemm %.0f GFLOP/s.\n",
              copy / 1e9, gemm / 1e9);
  std::printf("\n%-38s %-8s %10s  %s\n", "row", "unit", "Arete", "share of the machine");
  for (const Line& l : lines) {
    // Seconds of one call, back from the figure.
    const double seconds =
        is_rate(l.row->unit) ? l.row->figure(1) / l.arete : l.arete / l.row->figure(1);
    std::string share = "-";
    if (l.row->flops > 0)
      share = text(100 * l.row->flops / seconds / gemm) + " % of gemm";
    else if (l.row->bytes > 0)
      share = text(100 * l.row->bytes / seconds / copy) + " % of copy";
    std::printf("%-38s %-8s %10s  %s\n", l.key.c_str(), std::string(name_of(l.row->unit)).c_str(),
                text(l.arete).c_str(), share.c_str());
  }
  int goals = 0, reached = 0;
  for (const Line& l : lines)
    if (const std::optional<bool> yes = l.reached()) {
      ++goals;
      reached += *yes;
    }
  if (goals > 0)
    std::printf("\n%d of %d rows with a goal that needs no PyTorch reach it\n", reached, goals);
}

void write_json(const std::string& path, const std::vector<Line>& lines, const Machine& m,
                const std::string& torch, double copy, double gemm) {
  const auto or_null = [](const auto& optional) {
    return optional ? nlohmann::ordered_json(*optional) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json j;
  for (const Line& l : lines)
    j[l.key] = {{"arete", l.arete},
                {"torch", or_null(l.torch)},
                {"ratio", or_null(l.ratio())},
                {"unit", name_of(l.row->unit)},
                {"goal", goal_text(*l.row)},
                {"reached", or_null(l.reached())}};
  j["machine"] = {
      {"cpu", m.cpu},
      {"processors", m.processors},
      {"threads", m.threads},
      {"date", m.date},
      {"arete", m.arete},
      {"backend", m.backend},
      {"compiler", m.compiler},
      {"torch", torch.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(torch)},
      {"copy_GB/s", copy / 1e9},
      {"gemm_GFLOP/s", gemm / 1e9}};
  std::ofstream file(path);
  file << j.dump(1) << '\n';
  file.close();
  ARETE_CHECK(file, IoError("arete-bench", "cannot write '" + path + "'")
                        .hint("check that its folder is there, writable and not full"));
}

int run(const Options& o) {
  if (o.threads > 0) set_num_threads(o.threads);
  manual_seed(0);
  ARETE_CHECK(o.device != "cuda" || o.list || cuda::is_available(),
              DeviceError("arete-bench", "there is no CUDA device: " + cuda::unavailable_reason())
                  .argument("--device"));
  const std::vector<Row> rows = wanted_rows(o);
  if (o.list) {
    for (const Row& row : rows) std::printf("%s\n", row.name.c_str());
    return 0;
  }
  ARETE_CHECK(!rows.empty(), ValueError("arete-bench", "no row matches '" + o.filter + "'")
                                 .argument("--filter")
                                 .hint("--list shows all rows"));
  if (!o.json.empty())  // before minutes of work, not after them
    ARETE_CHECK(std::ofstream(o.json, std::ios::app),
                IoError("arete-bench", "cannot write '" + o.json + "'")
                    .hint("check that its folder is there and writable"));
  const Machine machine = this_machine(o.device == "cuda" ? kCUDA : kCPU);
  std::printf("%s, %d processors, %d threads; Arete %s (%s); %s; %s\n", machine.cpu.c_str(),
              machine.processors, machine.threads, machine.arete.c_str(), machine.backend.c_str(),
              machine.compiler.c_str(), machine.date.c_str());
  std::fflush(stdout);

  PeerFigures peer{.why_not = "--no-peer was given"};
  if (!o.no_peer) {
    std::vector<std::string> names;
    for (const Row& row : rows)
      if (row.has_peer) names.push_back(row.name);
    if (names.empty())
      peer.why_not = "PyTorch has none of these rows";
    else
      peer = run_peer(o.device, names, machine.threads, o.reps);
  }

  const bool on_gpu = o.device == "cuda";
  const double copy = on_gpu ? cuda_copy_bandwidth() : copy_bandwidth(),
               gemm = on_gpu ? cuda_gemm_rate() : gemm_rate();
  std::vector<Line> lines;
  for (const Row& row : rows) {
    Line line{.key = on_gpu ? row.name : "cpu" + std::to_string(machine.threads) + "/" + row.name,
              .row = &row};
    try {
      line.arete = row.figure(measure(row, o.reps > 0 ? o.reps : row.repetitions));
    } catch (const Error& e) {  // one row without a figure must not cost the others theirs
      std::fprintf(stderr, "%-44s failed: %s\n", line.key.c_str(), e.what());
      continue;
    }
    if (on_gpu) cuda::empty_cache();
    if (auto found = peer.figures.find(line.key); found != peer.figures.end())
      line.torch = found->second;
    std::fprintf(stderr, "%-44s %12.4g %s\n", line.key.c_str(), line.arete,
                 std::string(name_of(row.unit)).c_str());
    lines.push_back(std::move(line));
  }
  if (peer.version.empty())
    print_beside_machine(lines, copy, gemm, peer.why_not);
  else
    print_beside_peer(lines, peer.version);
  if (!o.json.empty()) write_json(o.json, lines, machine, peer.version, copy, gemm);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures Arete on this machine, beside PyTorch where it is importable",
               "arete-bench");
  Options o;
  app.add_option("--device", o.device, "What to measure")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--filter", o.filter, "Only rows that this regular expression matches");
  app.add_option("--json", o.json, "Also write the figures to this file");
  app.add_option("--threads", o.threads, "Threads, for both sides (default: as Arete chooses)")
      ->check(CLI::Range(1, 4096));
  app.add_option("--reps", o.reps, "Measurements of each row (default: 9; training: 15)")
      ->check(CLI::Range(1, 1000000));
  app.add_flag("--no-peer", o.no_peer, "Do not run PyTorch");
  app.add_flag("--list", o.list, "Print the rows' names and stop");
  app.add_option("--first", o.first)->group("");  // what the rows of a start run
  try {
    app.parse(argc, argv);
    if (!o.first.empty()) {
      do_first(o.first);
      return 0;
    }
    return run(o);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::regex_error&) {
    std::fprintf(stderr, "arete-bench: --filter '%s' is no regular expression\n", o.filter.c_str());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "arete-bench: %s\n", e.what());
    return 1;
  }
}
