#include "bench/peer.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <nlohmann/json.hpp>

extern char** environ;

namespace arete::bench {
namespace {

namespace fs = std::filesystem;

/// Runs a program found through PATH; its output goes to our standard error or nowhere. Returns
/// the exit status, -1 if it could not be started or was killed.
int run(const std::vector<std::string>& command, bool quiet) {
  std::vector<char*> arguments;
  for (const std::string& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (quiet) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  } else {
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  }
  pid_t child = -1;
  const int error =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// The script in bench/ of the source tree that holds the working folder or this program.
std::string script_path(const std::string& name) {
  std::error_code ignored;
  for (fs::path start : {fs::current_path(ignored), fs::read_symlink("/proc/self/exe", ignored)}) {
    for (;; start = start.parent_path()) {
      const fs::path script = start / "bench" / name;
      if (fs::is_regular_file(script, ignored)) return script.string();
      if (start == start.parent_path()) break;
    }
  }
  return "";
}

/// A file of our own that goes away with this object.
class TemporaryFile {
 public:
  TemporaryFile() : path_((fs::temp_directory_path() / "arete-bench-XXXXXX").string()) {
    const int fd = mkstemp(path_.data());
    if (fd >= 0) close(fd);
  }
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

PeerFigures run_peer(const std::string& device, const std::vector<std::string>& names, int threads,
                     int repetitions) {
  PeerFigures peer;
  const char* chosen = std::getenv("ARETE_PYTHON");
  const std::string python = chosen && *chosen ? chosen : "python3";
  const std::string name = "peer_torch_" + device + ".py", script = script_path(name);
  if (script.empty()) {
    peer.why_not = "bench/" + name + " is neither above this folder nor above this program";
    return peer;
  }
  if (run({python, "-c", "import torch"}, true) != 0) {
    peer.why_not = python + " cannot import torch (ARETE_PYTHON names another interpreter)";
    return peer;
  }
  std::string rows;
  for (const std::string& row : names) rows += (rows.empty() ? "" : ",") + row;
  const TemporaryFile out;
  std::vector<std::string> command{python,   script,     "--threads", std::to_string(threads),
                                   "--json", out.path(), "--rows",    rows};
  if (repetitions > 0) {
    command.push_back("--reps");
    command.push_back(std::to_string(repetitions));
  }
  const int status = run(command, false);
  std::ifstream file(out.path());
  const auto json = nlohmann::json::parse(file, nullptr, false);
  if (status != 0 || json.is_discarded()) {
    peer.why_not = name + " failed (exit status " + std::to_string(status) + ")";
    return peer;
  }
  peer.version = json.at("torch").get<std::string>();
  for (const auto& [key, figure] : json.at("rows").items())
    peer.figures[key] = figure.at(0).get<double>();
  return peer;
}

}  // namespace arete::bench
