// `arete explain`: Python runs the program, and explains it.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "arete/base/error.h"
#include "arete/base/text.h"
#include "cli/commands.h"

namespace arete::cli {

std::vector<std::string> explain_command(const ExplainOptions& options) {
  ARETE_CHECK(!options.program.empty(),
              ValueError("explain", "there is no program to run")
                  .hint("arete explain [--json FILE] [--html FILE] prog.py [arguments]"));
  std::vector<std::string> all{options.python, "-m", "arete.explain"};
  for (const auto& [name, file] : {std::pair{"--json", &options.json}, {"--html", &options.html}})
    if (!file->empty()) all.insert(all.end(), {name, *file});
  all.insert(all.end(), options.program.begin(), options.program.end());
  return all;
}

int explain(const ExplainOptions& options) {
  const std::vector<std::string> all = explain_command(options);
  std::vector<char*> arguments;
  for (const std::string& a : all) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  execvp(arguments[0], arguments.data());
  throw IoError("explain", "Python cannot be started: " + std::string(std::strerror(errno)))
      .argument("--python")
      .got(io::quote_text(options.python));
}

}  // namespace arete::cli
