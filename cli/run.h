// `arete run`: starts the processes of a program that works with several.
#pragma once

#include <string>
#include <vector>

namespace arete::cli {

struct RunOptions {
  std::string processes = "1";  ///< on this machine: a number, "gpu", "cpu" or "auto"
  int nodes = 1, node = 0;      ///< machines, and which one this is
  std::string host = "127.0.0.1";
  int port = 29500;
  bool standalone = false;  ///< one machine, any free port
  bool module = false;      ///< the program is a module of Python
  bool no_python = false;   ///< the program is started by itself
  std::string python = "python3";
  std::vector<std::string> program;  ///< and its arguments
};

/// How many processes `text` stands for; ValueError for what it cannot.
int number_of_processes(const std::string& text);
/// Runs them, with their lines of output behind "[rank] ", until all have ended. If one fails the
/// others are ended, and it is named; gives its exit code, or 128 and the number of its signal.
int run(const RunOptions& options);

}  // namespace arete::cli
