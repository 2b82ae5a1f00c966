#include "cli/ceilings.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "arete/core/cuda.h"
#include "arete/profile/ceilings.h"

namespace arete::cli {

int ceilings(const CeilingsOptions& options) {
  const bool gpu = options.device == "cuda" || (options.device == "auto" && cuda::is_available());
  const profile::Ceilings c = profile::ceilings(gpu ? kCUDA : kCPU, options.again);
  if (options.json) {
    const nlohmann::ordered_json j{{"device", c.device},
                                   {"bandwidth", c.bandwidth},
                                   {"launch_overhead", c.launch_overhead},
                                   {"gemm", c.gemm}};
    std::printf("%s\n", j.dump(2).c_str());
    return 0;
  }
  std::fputs(to_string(c).c_str(), stdout);
  const std::string file = profile::ceilings_file();
  if (!file.empty()) std::printf("kept in %s\n", file.c_str());
  return 0;
}

}  // namespace arete::cli
