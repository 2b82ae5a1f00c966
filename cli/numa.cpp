#include "cli/numa.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "arete/base/error.h"

namespace arete::cli {

namespace fs = std::filesystem;

namespace {

std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

int number_of(const std::string& text, int otherwise) {
  int n = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), n);
  return n;
}

// "0-3,8" as the kernel writes it.
std::vector<int> list_of(const std::string& text) {
  std::vector<int> all;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t dash = part.find('-');
    const int first = number_of(part, -1);
    const int last = dash == std::string::npos ? first : number_of(part.substr(dash + 1), -1);
    for (int n = first; first >= 0 && n <= last; ++n) all.push_back(n);
    at = end + 1;
  }
  return all;
}

class Machine {
 public:
  Machine(const fs::path& root, const std::vector<int>& allowed)
      : root_(root), allowed_(allowed.begin(), allowed.end()) {
    for (int n : list_of(line_of(root_ / "sys/devices/system/node/online"))) {
      const auto own = among_allowed(list_of(
          line_of(root_ / "sys/devices/system/node" / ("node" + std::to_string(n)) / "cpulist")));
      if (!own.empty()) nodes_[n] = own;
    }
    if (nodes_.empty()) nodes_[0] = allowed;
  }

  // The node of a rank: its GPU's, if that is known.
  int node(int rank, int ranks, const std::string& visible) const {
    const std::optional<int> near = node_of_gpu(rank, visible);
    if (near && nodes_.contains(*near)) return *near;
    auto at = nodes_.begin();
    std::advance(at, size_t(rank) * nodes_.size() / size_t(ranks));
    return at->first;
  }
  const std::vector<int>& of_node(int node) const { return nodes_.at(node); }

  std::vector<int> of_socket(int node) const {
    const auto socket = [&](int cpu) {
      return line_of(cpu_folder(cpu) / "topology/physical_package_id");
    };
    const std::string own = socket(nodes_.at(node)[0]);
    std::vector<int> all;
    for (int cpu : allowed_)
      if (socket(cpu) == own) all.push_back(cpu);
    return all;
  }

  // A node's processors by what they share: a core, or the last cache.
  std::vector<std::vector<int>> groups(int node, const std::string& file) const {
    std::set<std::vector<int>> all;
    for (int cpu : nodes_.at(node)) {
      auto shared = list_of(line_of(cpu_folder(cpu) / file));
      shared = among_allowed(shared.empty() ? std::vector<int>{cpu} : shared);
      all.insert(shared);
    }
    return {all.begin(), all.end()};
  }

 private:
  fs::path cpu_folder(int cpu) const {
    return root_ / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu));
  }
  std::vector<int> among_allowed(std::vector<int> cpus) const {
    std::erase_if(cpus, [&](int cpu) { return !allowed_.contains(cpu); });
    return cpus;
  }
  // GPUs are counted in the order of their places on the bus, as CUDA does where they are alike.
  std::optional<int> node_of_gpu(int rank, const std::string& visible) const {
    std::set<std::string> gpus;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(root_ / "proc/driver/nvidia/gpus", none))
      gpus.insert(entry.path().filename().string());
    const std::vector<std::string> places(gpus.begin(), gpus.end());
    int gpu = rank;
    if (!visible.empty()) {
      const std::vector<int> shown = list_of(visible);
      if (size_t(rank) >= shown.size()) return {};
      gpu = shown[size_t(rank)];
    }
    if (size_t(gpu) >= places.size()) return {};
    const int node =
        number_of(line_of(root_ / "sys/bus/pci/devices" / places[size_t(gpu)] / "numa_node"), -1);
    return node < 0 ? std::nullopt : std::optional(node);
  }

  fs::path root_;
  std::set<int> allowed_;
  std::map<int, std::vector<int>> nodes_;
};

}  // namespace

std::vector<std::vector<int>> processors_of_ranks(const std::string& binding, int ranks,
                                                  const std::vector<int>& allowed,
                                                  const std::string& visible,
                                                  const fs::path& root) {
  const auto error = [](const std::string& text) {
    return ValueError("run", text).argument("--numa-binding");
  };
  ARETE_CHECK(binding == "node" || binding == "socket" || binding == "exclusive" ||
                  binding == "core-complex",
              error("there is no such binding")
                  .expected("node, socket, exclusive or core-complex")
                  .got("'" + binding + "'"));
  const Machine machine(root, allowed);
  std::vector<int> nodes;
  for (int r = 0; r < ranks; ++r) nodes.push_back(machine.node(r, ranks, visible));
  std::vector<std::vector<int>> all;
  for (int r = 0; r < ranks; ++r) {
    const int node = nodes[size_t(r)];
    if (binding == "node") {
      all.push_back(machine.of_node(node));
    } else if (binding == "socket") {
      all.push_back(machine.of_socket(node));
    } else {
      const auto together = size_t(std::ranges::count(nodes, node));
      const auto place = size_t(std::count(nodes.begin(), nodes.begin() + r, node));
      const bool cores = binding == "exclusive";
      const auto groups = machine.groups(
          node, cores ? "topology/thread_siblings_list" : "cache/index3/shared_cpu_list");
      std::vector<int> own;
      if (cores) {
        ARETE_CHECK(groups.size() >= together,
                    error("there are fewer cores than processes")
                        .got(std::to_string(groups.size()) + " cores of NUMA node " +
                             std::to_string(node) + " for " + std::to_string(together)));
        for (size_t g = place * groups.size() / together;
             g < (place + 1) * groups.size() / together; ++g)
          own.insert(own.end(), groups[g].begin(), groups[g].end());
      } else {
        own = groups[place % groups.size()];
      }
      std::ranges::sort(own);
      all.push_back(own);
    }
  }
  return all;
}

std::vector<int> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ARETE_CHECK(sched_getaffinity(0, sizeof(set), &set) == 0,
              NotImplementedError("run", "this machine has too many processors to bind to")
                  .argument("--numa-binding"));
  std::vector<int> all;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) all.push_back(cpu);
  return all;
}

}  // namespace arete::cli
