#include "arete/io/metrics_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <variant>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/base/text.h"

namespace arete::io {
namespace {

constexpr uint64_t kMaxLogBytes = uint64_t{1} << 32;

// What the log keeps of the text: all lines, or those up to the step.
std::string lines_to_keep(std::string_view text, std::optional<int64_t> resume_step,
                          const std::string& path) {
  std::string kept;
  size_t number = 0;
  for (size_t start = 0; start < text.size();) {
    ++number;
    size_t end = text.find('\n', start);
    const bool finished = end != std::string_view::npos;
    if (!finished) end = text.size();
    const std::string_view line = text.substr(start, end - start);
    start = end + 1;
    if (line.empty()) continue;
    const auto record = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    if (!record.is_object()) {
      if (!finished) break;
      throw IoError("", "line " + std::to_string(number) + " of " + quote_text(path, 500) +
                            " is not a JSON object")
          .hint("this is not a log of metrics: move it away or choose another output folder");
    }
    const auto step = record.find("step");
    if (resume_step && step != record.end() && step->is_number() &&
        step->get<double>() > static_cast<double>(*resume_step))
      continue;
    kept += line;
    kept += '\n';
  }
  return kept;
}

}  // namespace

std::string metric_line(const MetricRecord& record) {
  std::string line = "{";
  for (size_t i = 0; i < record.size(); ++i) {
    const auto& [key, value] = record[i];
    for (size_t j = 0; j < i; ++j)
      ARETE_CHECK(record[j].first != key,
                  ValueError("", "a record of metrics has the key " + quote_text(key) + " twice"));
    if (i) line += ", ";
    line += json_string(key) + ": ";
    if (const auto* real = std::get_if<double>(&value)) line += json_number(*real);
    if (const auto* integer = std::get_if<int64_t>(&value)) line += std::to_string(*integer);
    if (const auto* text = std::get_if<std::string>(&value)) line += json_string(*text);
  }
  return line + "}";
}

MetricsLog::MetricsLog(const std::string& path, std::optional<int64_t> resume_step) : path_(path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    const auto bytes = read_file(path, kMaxLogBytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::string kept = lines_to_keep(text, resume_step, path);
    if (kept != text) {
      AtomicFile file(path);
      file.write(kept);
      file.commit();
    }
  }
  do {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) throw system_error("open", path, errno);
}

MetricsLog::~MetricsLog() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsLog::write(const MetricRecord& record) {
  const std::string line = metric_line(record) + "\n";
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t put = ::write(fd_, line.data() + done, line.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int cause = errno;
      // Half a record would spoil the next one. If this fails too, the next opening repairs it.
      if (done > 0 && before >= 0 && ::ftruncate(fd_, before) != 0) errno = cause;
      throw system_error("write", path_, cause);
    }
    done += static_cast<size_t>(put);
  }
}

}  // namespace arete::io
