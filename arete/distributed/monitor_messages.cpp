#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>

#include <nlohmann/json.hpp>

#include "arete/distributed/monitor_messages_internal.h"

namespace arete::distributed {

std::string line_of(const nlohmann::json& message) {
  return message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void LineConnection::send(std::string_view line) {
  if (out_.size() + line.size() > kMostUnsent) return;
  out_.append(line);
  out_.push_back('\n');
}

bool LineConnection::flush() {
  while (!out_.empty()) {
    const ssize_t n = ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    out_.erase(0, size_t(n));
  }
  return true;
}

bool LineConnection::receive() {
  std::array<char, 64 << 10> bytes;
  const ssize_t n = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n == 0) return false;
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  in_.erase(0, read_);
  searched_ -= read_;
  read_ = 0;
  in_.append(bytes.data(), size_t(n));
  return in_.size() <= longest_ || in_.find('\n', searched_) != std::string::npos;
}

bool LineConnection::next(std::string& line) {
  const size_t end = in_.find('\n', std::max(read_, searched_));
  if (end == std::string::npos) {
    searched_ = in_.size();
    return false;
  }
  line.assign(in_, read_, end - read_);
  read_ = searched_ = end + 1;
  return true;
}

std::string name_of_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string state_of_process(const std::string& host, int64_t pid) {
  if (pid <= 0 || host != name_of_host()) return "";
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return "";
  const char state = text[name_end + 2];
  return state == 'T' || state == 't' ? "it is stopped by a signal" : "";
}

}  // namespace arete::distributed
