// What ranks and the server of their monitor say to each other: lines of JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "arete/distributed/socket_internal.h"

namespace arete::distributed {

/// The line of someone who has not yet said the token, and of one who has.
inline constexpr size_t kMostHello = size_t(4) << 10;
inline constexpr size_t kMostLine = size_t(4) << 20;
inline constexpr size_t kMostUnsent = size_t(8) << 20;

/// A message as it is sent. Bytes that are no text of UTF-8 are replaced.
std::string line_of(const nlohmann::json& message);

/// A connection that does not block.
class LineConnection {
 public:
  explicit LineConnection(Descriptor socket, size_t longest)
      : socket_(std::move(socket)), longest_(longest) {}
  int fd() const { return socket_.get(); }
  bool wants_to_send() const { return !out_.empty(); }
  void set_longest(size_t bytes) { longest_ = bytes; }
  /// Dropped where too much waits already: the other end takes nothing.
  void send(std::string_view line);
  /// What can be sent at once; false if the other end is gone.
  bool flush();
  /// Takes what has come; false at the end, or if a line is too long.
  bool receive();
  /// The next line; false if there is none yet.
  bool next(std::string& line);

 private:
  Descriptor socket_;
  size_t longest_;
  std::string in_, out_;
  size_t read_ = 0, searched_ = 0;
};

/// "it is stopped by a signal", if that is so and the process is of this machine.
std::string state_of_process(const std::string& host, int64_t pid);
std::string name_of_host();

}  // namespace arete::distributed
