// Event files that TensorBoard shows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace arete::io {

/// Writes one event file. Not for use by several threads at once.
class EventWriter {
 public:
  /// Creates `folder` and in it a new file events.out.tfevents.<time>.<host>.<pid>. A resumed run
  /// gives `resume_step`: TensorBoard then drops what earlier files of the folder say about this
  /// step and later ones. IoError when the file cannot be made.
  explicit EventWriter(const std::string& folder, std::optional<int64_t> resume_step = {});
  /// Flushes; errors are lost here, so call flush() to see them.
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  /// Adds a point of the curve `tag` (such as "loss/train"). NaN and infinities are kept. Written
  /// at once when the last write was over two seconds ago, else with a later call.
  void scalar(std::string_view tag, double value, int64_t step);

  /// Hands everything to the operating system. IoError when the disk is full.
  void flush();

  const std::string& path() const { return path_; }

 private:
  void add_event(std::string_view message);
  std::string path_;
  std::string buffer_;
  double last_flush_;  // seconds of a steady clock
  int fd_ = -1;
};

}  // namespace arete::io
