// Which processors of a machine its ranks run on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace arete::cli {

/// For each of `ranks` processes the numbers of its processors, under torchrun's words: "node":
/// those of the NUMA node of its GPU, or of a node of its own as far as they go; "socket": those of
/// that node's socket; "exclusive": whole cores of the node, of which each rank there has as many;
/// "core-complex": those that share a last-level cache there. Only processors among `allowed`
/// count. `root` is the folder of /sys and /proc; `visible`: $CUDA_VISIBLE_DEVICES, or "".
/// ValueError for other words, and if a rank would have no processor.
std::vector<std::vector<int>> processors_of_ranks(const std::string& binding, int ranks,
                                                  const std::vector<int>& allowed,
                                                  const std::string& visible,
                                                  const std::filesystem::path& root = "/");

/// Those on which this process may run.
std::vector<int> allowed_processors();

}  // namespace arete::cli
