// PyTorch beside us: runs peer_torch_cpu.py or peer_torch_cuda.py in a process of its own, if there
// is a PyTorch.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace arete::bench {

struct PeerFigures {
  std::string version;                    ///< of PyTorch; empty if it did not run
  std::string why_not;                    ///< the reason then
  std::map<std::string, double> figures;  ///< by key ("cpu2/add_16M")
};

/// Measures the rows of these names on the device ("cpu" with as many threads, or "cuda"), and
/// returns when it is done.
/// `repetitions` 0: the script's own. The interpreter is $ARETE_PYTHON, else python3.
PeerFigures run_peer(const std::string& device, const std::vector<std::string>& names, int threads,
                     int repetitions);

}  // namespace arete::bench
