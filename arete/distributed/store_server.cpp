#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "arete/base/error.h"
#include "arete/distributed/store_server_internal.h"

namespace arete::distributed {

struct StoreServer::Client {
  Client(Descriptor s, StoreState& state) : socket(std::move(s)), session(state) {}
  Descriptor socket;
  StoreSession session;
};

StoreServer::StoreServer(const std::string& host, uint16_t port)
    : listener_(listen_at(host, port)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      port_(port_of(listener_)) {
  thread_ = std::thread([this] { run(); });
}

StoreServer::~StoreServer() {
  const uint64_t one = 1;
  while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void StoreServer::run() {
  std::vector<pollfd> polled;
  bool full = false;  // no descriptor was left for a client that wants to come in
  for (;;) {
    polled.assign({{wake_.get(), POLLIN, 0}, {full ? -1 : listener_.get(), POLLIN, 0}});
    for (const auto& client : clients_) {
      // Who does not take its answers is not asked for more.
      const bool slow = client->session.out.size() > kMostText;
      polled.push_back({client->socket.get(),
                        short((slow ? 0 : POLLIN) | (client->session.out.empty() ? 0 : POLLOUT)),
                        0});
    }
    // Nobody tells that a descriptor is free again.
    if (poll(polled.data(), polled.size(), full ? 100 : -1) < 0 && errno != EINTR) return;
    full = false;
    if (polled[0].revents) return;
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
      Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket)
        clients_.push_back(std::make_unique<Client>(std::move(socket), state_));
      else
        full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    }
  }
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
  std::string& out = client.session.out;
  while (!out.empty()) {
    const ssize_t n = ::send(client.socket.get(), out.data(), out.size(), MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    out.erase(0, size_t(n));
  }
  return true;
}

}  // namespace arete::distributed
