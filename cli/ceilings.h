// `arete bench --ceilings`: what the machine can do at most.
#pragma once

#include <string>

namespace arete::cli {

struct CeilingsOptions {
  bool ceilings = false;        ///< what there is to measure
  std::string device = "auto";  ///< auto: the GPU if there is one
  bool json = false;
  bool again = false;  ///< measure even if the figures are known
};
int ceilings(const CeilingsOptions& options);

}  // namespace arete::cli
