// Connections of TCP, with times at which waiting ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace arete::distributed {

using TimePoint = std::chrono::steady_clock::time_point;

/// An open file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

/// Whether a host's name or address is one of this machine's own loopback.
bool is_loopback(const std::string& host);
/// Waits for clients, which do not block. `host` is only asked whether it is loopback: then nobody
/// else can connect, otherwise all that can reach this machine. Port 0 takes a free one.
Descriptor listen_at(const std::string& host, uint16_t port);
uint16_t port_of(const Descriptor& socket);
/// Tries again until the host answers or the time is up.
Descriptor connect_to(const std::string& host, uint16_t port, std::chrono::milliseconds timeout);
/// DistributedError if the peer is gone.
void send_all(const Descriptor& socket, std::string_view bytes);
/// Fills `to`; false if the time came before its first byte.
bool receive(const Descriptor& socket, void* to, size_t bytes, TimePoint until);

}  // namespace arete::distributed
