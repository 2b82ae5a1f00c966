#include <algorithm>
#include <chrono>
#include <cstdio>

#include "arete/core/modes.h"
#include "arete/device/cuda.h"
#include "arete/io/tensor_io.h"
#include "arete/ops/call.h"
#include "arete/program/program.h"
#include "cli/commands.h"
#include "cli/run_files.h"

namespace arete::cli {

namespace {

std::string shape_text(const program::InputInfo& input) {
  std::string s = std::string(name_of(input.dtype)) + "[";
  for (size_t d = 0; d < input.sizes.size(); ++d) s += (d ? ", " : "") + input.sizes[d];
  return s + "]";
}

// Results by name: those of a file with several.
void write_results(const std::string& path, const std::vector<Tensor>& results) {
  if (path.ends_with(".npz")) {
    io::NamedTensors named;
    for (size_t k = 0; k < results.size(); ++k)
      named.emplace_back("output_" + std::to_string(k), results[k]);
    return io::save_npz(path, named);
  }
  ARETE_CHECK(results.size() == 1,
              ValueError("run-program", "the program has " + std::to_string(results.size()) +
                                            " results, and a .npy file holds one")
                  .argument("--output")
                  .got(path)
                  .hint("name an .npz file"));
  io::save_npy(path, results[0]);
}

}  // namespace

int run_program(const RunProgramOptions& o) {
  const Device device = resolve_device(o.device);
  if (!o.output.empty()) check_writable(o.output);
  const program::Program p = program::Program::load(o.file, device);
  const std::vector<program::InputInfo> wanted = p.inputs();
  for (const program::InputInfo& i : wanted)
    std::printf("input  %-12s %s\n", i.name.c_str(), shape_text(i).c_str());
  ARETE_CHECK(o.inputs.size() == wanted.size(),
              ValueError("run-program", "the program has " + std::to_string(wanted.size()) +
                                            " inputs, but " + std::to_string(o.inputs.size()) +
                                            " files are given")
                  .argument("--input"));
  std::vector<Tensor> inputs;
  for (const std::string& path : o.inputs) inputs.push_back(io::load_npy(path).to(device));
  const InferenceModeGuard inference;
  std::vector<double> seconds;
  std::vector<Tensor> results;
  for (int64_t k = 0; k < o.repeat; ++k) {
    const auto start = std::chrono::steady_clock::now();
    results = p(inputs);
    if (device.is_cuda()) cuda::synchronize();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  for (size_t k = 0; k < results.size(); ++k)
    std::printf("output %-12s %s\n", ("output_" + std::to_string(k)).c_str(),
                ops::describe(results[k]).c_str());
  std::printf("first run %.3f ms", 1e3 * seconds[0]);
  if (seconds.size() > 1) {
    std::vector<double> later(seconds.begin() + 1, seconds.end());
    std::ranges::sort(later);
    std::printf(", then %.3f ms in the median of %zu", 1e3 * later[later.size() / 2], later.size());
  }
  std::printf(" on %s\n", device.to_string().c_str());
  if (!o.output.empty())
    write_results(o.output, results);
  else
    for (const Tensor& t : results) std::printf("%s\n", t.to_string().c_str());
  return 0;
}

}  // namespace arete::cli
