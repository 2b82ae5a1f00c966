// `arete run`: starts the processes of a program that works with several.
#pragma once

#include <string>
#include <vector>

namespace arete::cli {

/// torchrun's names, as far as they mean something here.
struct RunOptions {
  std::string processes = "1";  ///< on this machine: a number, "gpu", "cpu" or "auto"
  std::string nodes = "1";      ///< machines: a number, or the least and the most, "A:B"
  int node = -1;                ///< which one this is; -1: 0, or whoever comes, with c10d
  std::string host = "127.0.0.1";
  int port = 29500;
  bool standalone = false;  ///< one machine, any free port
  std::string rdzv_backend = "static", rdzv_endpoint, rdzv_id = "arete", rdzv_conf;
  int max_restarts = 0;  ///< of all ranks, from the beginning
  double monitor_interval = 0.1;
  std::string role = "default";
  std::string log_dir, redirects = "0", tee = "0", local_ranks_filter;
  std::string numa_binding;  ///< of processors_of_ranks(); "": none
  std::string start_method;  ///< refused
  std::string diagnose;      ///< folder of flight records
  bool module = false;       ///< the program is a module of Python
  bool no_python = false;    ///< the program is started by itself
  std::string python = "python3";
  std::vector<std::string> program;  ///< and its arguments
};

/// How many processes `text` stands for; ValueError for what it cannot.
int number_of_processes(const std::string& text);
/// Of each local rank, which of its outputs (1: standard output, 2: errors, 3: both) `text` names:
/// "3", or "0:1,2:3". ValueError for anything else.
std::vector<int> streams_of_ranks(const char* option, const std::string& text, int ranks);
/// Runs them, with their lines of output behind "[rank] ", until all have ended. If one fails the
/// others are ended, on all machines, and all start again if max_restarts allows it; at last it is
/// named. Gives its exit code, or 128 and the number of its signal. With `diagnose` and no program:
/// prints what the flight records there say.
int run(const RunOptions& options);

}  // namespace arete::cli
