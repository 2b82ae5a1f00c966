#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "arete/distributed/socket_internal.h"
#include "arete/distributed/store_internal.h"

namespace arete::distributed {
namespace {

[[noreturn]] void throw_closed(const std::string& why) {
  throw DistributedError(
      Failure::network, "",
      "Connection was likely closed. Did the remote server shutdown or crash? (" + why + ")");
}

std::string text_of(int error) { return std::strerror(error); }

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
Addresses addresses_of(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return {error ? nullptr : found, &freeaddrinfo};
}

int milliseconds_until(TimePoint until) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  return int(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

// Whether what poll() waits for came in time.
bool await(int fd, short events, TimePoint until) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int n = poll(&entry, 1, milliseconds_until(until));
    if (n > 0) return true;
    if (n == 0 && std::chrono::steady_clock::now() >= until) return false;
    if (n < 0 && errno != EINTR) throw_closed(text_of(errno));
  }
}

void set_options(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

// One attempt at one address; 0 or the error.
int try_connect(const addrinfo& address, TimePoint until, Descriptor& connected) {
  Descriptor fd(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!await(fd.get(), POLLOUT, until)) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error) return error;
  }
  // A port that nobody listens at may connect to itself while it is tried again and again.
  sockaddr_storage here{}, there{};
  socklen_t here_size = sizeof(here), there_size = sizeof(there);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&here), &here_size);
  getpeername(fd.get(), reinterpret_cast<sockaddr*>(&there), &there_size);
  if (here_size == there_size && std::memcmp(&here, &there, here_size) == 0) return ECONNREFUSED;
  set_options(fd.get());
  connected = std::move(fd);
  return 0;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    std::swap(fd_, other.fd_);
  }
  return *this;
}

void Descriptor::reset() noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool is_loopback(const std::string& host) {
  const Addresses found = addresses_of(host, 0);
  for (const addrinfo* a = found.get(); a; a = a->ai_next) {
    if (a->ai_family == AF_INET) {
      const auto* in = reinterpret_cast<const sockaddr_in*>(a->ai_addr);
      if (ntohl(in->sin_addr.s_addr) >> 24 != 127) return false;
    } else if (a->ai_family == AF_INET6) {
      const auto* in = reinterpret_cast<const sockaddr_in6*>(a->ai_addr);
      if (!IN6_IS_ADDR_LOOPBACK(&in->sin6_addr)) return false;
    }
  }
  return found != nullptr;
}

Descriptor listen_at(const std::string& host, uint16_t port) {
  const bool here_only = is_loopback(host);
  const auto attempt = [&](int family) -> Descriptor {
    Descriptor fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return {};
    const int on = 1, off = 0;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in in{};
    sockaddr_in6 in6{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    in.sin_addr.s_addr = htonl(here_only ? INADDR_LOOPBACK : INADDR_ANY);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    in6.sin6_addr = in6addr_any;
    if (family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    const auto* address = family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&in6)
                                             : reinterpret_cast<const sockaddr*>(&in);
    const socklen_t size = family == AF_INET6 ? sizeof(in6) : sizeof(in);
    if (bind(fd.get(), address, size) != 0 || listen(fd.get(), SOMAXCONN) != 0) return {};
    return fd;
  };
  // One socket of IPv6 takes clients of both kinds; but loopback has two addresses, and 127.0.0.1
  // is there everywhere.
  Descriptor fd = here_only ? Descriptor() : attempt(AF_INET6);
  if (!fd) fd = attempt(AF_INET);
  if (!fd) {
    const int error = errno;
    const char* name = strerrorname_np(error);
    throw DistributedError(
        Failure::network, "",
        "The server socket has failed to listen on any local network address. port: " +
            std::to_string(port) + ", code: -" + std::to_string(error) +
            ", name: " + (name ? name : "?") + ", message: " + text_of(error),
        error == EADDRINUSE ? "another program has the port, perhaps an earlier run; choose "
                              "another MASTER_PORT, or 0 to let the system choose"
                            : "");
  }
  return fd;
}

uint16_t port_of(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Descriptor connect_to(const std::string& host, uint16_t port, std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  std::string why = "the host's name is not known";
  Descriptor connected;
  // A server may start later than its clients do.
  for (std::chrono::milliseconds pause(5);;
       pause = std::min(pause * 2, std::chrono::milliseconds(250))) {
    const Addresses found = addresses_of(host, port);
    for (const addrinfo* a = found.get(); a; a = a->ai_next) {
      const int error = try_connect(*a, until, connected);
      if (!error) return connected;
      why = text_of(error);
    }
    if (std::chrono::steady_clock::now() + pause >= until) break;
    std::this_thread::sleep_for(pause);
  }
  throw DistributedError(Failure::network, "",
                         "The client socket has timed out after " +
                             std::to_string(timeout.count()) + "ms while trying to connect to (" +
                             host + ", " + std::to_string(port) + "): " + why);
}

void send_all(const Descriptor& socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(size_t(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!await(socket.get(), POLLOUT, std::chrono::steady_clock::now() + std::chrono::minutes(1)))
        throw_closed("nothing was taken for a minute");
    } else if (errno != EINTR) {
      throw_closed(text_of(errno));
    }
  }
}

bool receive(const Descriptor& socket, void* to, size_t bytes, TimePoint until) {
  auto* at = static_cast<std::byte*>(to);
  const auto* const begin = at;
  while (bytes > 0) {
    const ssize_t n = ::recv(socket.get(), at, bytes, 0);
    if (n > 0) {
      at += n;
      bytes -= size_t(n);
    } else if (n == 0) {
      throw_closed("end of the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      // What has begun to come has a minute more.
      if (!await(socket.get(), POLLIN, at == begin ? until : until + std::chrono::minutes(1))) {
        if (at == begin) return false;
        throw_closed("a message was not finished");
      }
    } else if (errno != EINTR) {
      throw_closed(text_of(errno));
    }
  }
  return true;
}

}  // namespace arete::distributed
