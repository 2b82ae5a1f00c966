// The figures of a run as JSON lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace arete::io {

using MetricValue = std::variant<double, int64_t, std::string>;
/// Keys and values in the order in which they are written.
using MetricRecord = std::vector<std::pair<std::string, MetricValue>>;

/// Appends records to a file, one JSON object per line, each written whole and at once, so that a
/// killed run leaves complete lines (but for the very last one).
class MetricsLog {
 public:
  /// Opens `path` for appending; the folder must exist. A last line that a killed run left
  /// unfinished is removed. With `resume_step`, records whose "step" is larger are removed too:
  /// the resumed run will write them anew. IoError when the file cannot be read or written, or
  /// holds lines that are not JSON objects.
  explicit MetricsLog(const std::string& path, std::optional<int64_t> resume_step = {});
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  /// Writes one line. NaN and infinities become null, for JSON has no words for them. ValueError
  /// when a key appears twice; IoError when the disk is full (the file then ends with the record
  /// before).
  void write(const MetricRecord& record);

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
};

/// The line (without its end) that MetricsLog writes for a record.
std::string metric_line(const MetricRecord& record);

}  // namespace arete::io
