// A log of any content must either be refused untouched or become lines that are JSON objects.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "arete/base/error.h"
#include "arete/io/metrics_log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const char* folder = std::getenv("TMPDIR");
  static const std::string path = std::string(folder ? folder : "/tmp") + "/arete-fuzz-" +
                                  std::to_string(::getpid()) + ".jsonl";
  const std::string content(reinterpret_cast<const char*>(data), size);
  auto text = [] {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  std::ofstream(path, std::ios::binary) << content;
  try {
    arete::io::MetricsLog log(path, 3);
    log.write({{"step", int64_t{4}}});
    std::string rest = text();
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      if (end == std::string::npos) std::abort();
      if (!nlohmann::json::parse(rest.substr(0, end), nullptr, false).is_object()) std::abort();
      rest.erase(0, end + 1);
    }
  } catch (const arete::Error&) {
    if (text() != content) std::abort();
  }
  ::unlink(path.c_str());
  return 0;
}
