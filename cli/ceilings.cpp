// `arete bench --ceilings`.
#include "arete/profile/ceilings.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/device/cuda.h"
#include "cli/commands.h"

namespace arete::cli {

int ceilings(const BenchOptions& options) {
  ARETE_CHECK(options.groups.empty() && options.html.empty() && !options.quick,
              ValueError("bench", "the ceilings are always the same figures")
                  .argument("--ceilings")
                  .got("groups, --html or --quick beside it")
                  .hint("--json writes them to a file"));
  check_writable(options.json);
  const bool gpu = options.device == "cuda" || (options.device == "auto" && cuda::is_available());
  const profile::Ceilings c = profile::ceilings(gpu ? kCUDA : kCPU, options.again);
  std::fputs(to_string(c).c_str(), stdout);
  const std::string kept = profile::ceilings_file();
  if (!kept.empty()) std::printf("kept in %s\n", kept.c_str());
  if (!options.json.empty()) {
    const nlohmann::ordered_json j{
        {"device", c.device}, {"bandwidth", c.bandwidth}, {"launch_overhead", c.launch_overhead},
        {"gemm", c.gemm},     {"cache", c.cache},         {"date", c.date},
        {"spread", c.spread}, {"load", c.load},           {"doubts", doubts_about(c)}};
    io::AtomicFile file(options.json);
    file.write(j.dump(2) + "\n");
    file.commit();
  }
  return 0;
}

}  // namespace arete::cli
