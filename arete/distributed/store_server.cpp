#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>

#include "arete/base/error.h"
#include "arete/distributed/store_server_internal.h"

namespace arete::distributed {

struct StoreServer::Client {
  Client(Descriptor s, StoreState& state) : socket(std::move(s)), session(state) {}
  Descriptor socket;
  StoreSession session;
};

StoreServer::StoreServer(const std::string& host, uint16_t port, size_t most_clients)
    : listener_(listen_at(host, port)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      port_(port_of(listener_)),
      most_clients_(most_clients) {
  thread_ = std::thread([this] { run(); });
}

StoreServer::~StoreServer() {
  const uint64_t one = 1;
  while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void StoreServer::run() {
  for (;;) {
    try {
      if (!look()) return;
    } catch (const std::bad_alloc&) {
      // Others may give memory back.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

// Waits for something to do, and does it; false if that is to end.
bool StoreServer::look() {
  const bool takes_more = !full_ && clients_.size() < most_clients_;
  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0},
                             {takes_more ? listener_.get() : -1, POLLIN, 0}};
  for (const auto& client : clients_) {
    // Who does not take its answers is not asked for more.
    const size_t waiting = client->session.to_send().size();
    polled.push_back({client->socket.get(),
                      short((waiting > kMostText ? 0 : POLLIN) | (waiting == 0 ? 0 : POLLOUT)), 0});
  }
  // Nobody tells that a descriptor is free again.
  if (poll(polled.data(), polled.size(), full_ ? 100 : -1) < 0) return errno == EINTR;
  full_ = false;
  if (polled[0].revents) return false;
  for (size_t i = 0; i < clients_.size(); ++i) {
    bool stays = false;
    try {
      stays = serve(*clients_[i], polled[i + 2].revents);
    } catch (const std::bad_alloc&) {
    }
    if (!stays) clients_[i].reset();
  }
  std::erase(clients_, nullptr);
  if (polled[1].revents & POLLIN) {
    clients_.reserve(clients_.size() + 1);
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket)
      clients_.push_back(std::make_unique<Client>(std::move(socket), state_));
    else
      full_ = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  }
  return true;
}

// False if the client is to be closed.
bool StoreServer::serve(Client& client, short events) {
  if (events & (POLLIN | POLLHUP | POLLERR)) {
    std::array<char, 64 << 10> bytes;
    const ssize_t n = ::recv(client.socket.get(), bytes.data(), bytes.size(), 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (n > 0 && !client.session.receive({bytes.data(), size_t(n)})) return false;
  }
  // Tried at once: the answers to this request are ready, and poll() would only say so.
  for (std::string_view out; !(out = client.session.to_send()).empty();) {
    const ssize_t n = ::send(client.socket.get(), out.data(), out.size(), MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    client.session.sent(size_t(n));
  }
  return true;
}

}  // namespace arete::distributed
