// A store behind a port, which speaks with PyTorch's TCPStore.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "arete/distributed/store.h"

namespace arete::distributed {

struct TcpStoreOptions {
  uint16_t port = 29500;  ///< 0 with is_server: a free one
  bool is_server = false;
  /// How many stores there will be, the server's among them; the server waits for the others.
  std::optional<int> world_size{};
  Milliseconds timeout = std::chrono::minutes(5);
  bool wait_for_workers = true;
  /// A server at the same port in this process is shared.
  bool multi_tenant = false;
};

class StoreServer;

/// A client of the server at `host`; with is_server also the server, which then lives as long as
/// this object. A server at a loopback address can be reached from this machine only; at any other
/// everybody who reaches the machine may read and write, for the protocol knows no secrets.
class TCPStore final : public Store {
 public:
  explicit TCPStore(std::string host, const TcpStoreOptions& options = {});
  ~TCPStore() override;
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override;
  bool check(std::span<const std::string> keys) override;
  void wait(std::span<const std::string> keys, std::optional<Milliseconds> timeout = {}) override;
  bool delete_key(const std::string& key) override;
  int64_t num_keys() override;
  void append(const std::string& key, std::string_view value) override;
  std::vector<std::string> multi_get(std::span<const std::string> keys) override;
  void multi_set(std::span<const std::string> keys, std::span<const std::string> values) override;
  void queue_push(const std::string& key, std::string_view value) override;
  std::string queue_pop(const std::string& key, bool block = true) override;
  int64_t queue_len(const std::string& key) override;
  std::vector<std::string> list_keys() override;
  const std::string& host() const { return host_; }
  uint16_t port() const { return port_; }

 private:
  struct Connection;
  std::string host_;
  uint16_t port_;
  std::shared_ptr<StoreServer> server_;
  std::mutex mutex_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace arete::distributed
