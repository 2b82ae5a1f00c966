#include "arete/distributed/tcp_store.h"

#include <unistd.h>

#include <map>
#include <thread>

#include "arete/distributed/store_internal.h"
#include "arete/distributed/store_server_internal.h"

namespace arete::distributed {
namespace {

using std::chrono::steady_clock;

// How long a server may take for what it need not wait for.
constexpr Milliseconds kAnswer = std::chrono::minutes(1);
constexpr const char* kWorkers = "init/";

std::string wire_key(const std::string& key) { return "/" + key; }

std::string request(Query query) { return std::string(1, char(query)); }

std::string request(Query query, std::span<const std::string> keys) {
  std::string text = request(query);
  append_number(text, keys.size());
  for (const std::string& key : keys) append_text(text, wire_key(key));
  return text;
}

std::string request(Query query, const std::string& key) {
  std::string text = request(query);
  append_text(text, wire_key(key));
  return text;
}

std::shared_ptr<StoreServer> server_at(const std::string& host, const TcpStoreOptions& options) {
  if (!options.multi_tenant) return std::make_shared<StoreServer>(host, options.port);
  static std::mutex mutex;
  static std::map<uint16_t, std::weak_ptr<StoreServer>> servers;
  const std::lock_guard lock(mutex);
  if (auto server = servers[options.port].lock(); server && options.port != 0) return server;
  auto server = std::make_shared<StoreServer>(host, options.port);
  servers[server->port()] = server;
  return server;
}

}  // namespace

// The bytes on their way. Once an answer is missing nobody knows which the next one belongs to.
struct TCPStore::Connection {
  Descriptor socket;
  bool broken = false;

  void send(std::string_view text) {
    check();
    try {
      send_all(socket, text);
    } catch (...) {
      broken = true;
      throw;
    }
  }
  void receive_now(void* to, size_t bytes) {
    check();
    bool came = false;
    try {
      came = receive(socket, to, bytes, steady_clock::now() + kAnswer);
    } catch (...) {
      broken = true;
      throw;
    }
    if (came) return;
    broken = true;
    throw DistributedError(Failure::network, "TCPStore", "the server does not answer");
  }
  template <class T>
  T number() {
    T value;
    receive_now(&value, sizeof(value));
    return value;
  }
  std::string text() {
    const auto length = number<uint64_t>();
    if (length > kMostRequest) {
      broken = true;
      throw DistributedError(Failure::network, "TCPStore",
                             "the server's answer is too long for one of a store");
    }
    std::string value(length, '\0');
    receive_now(value.data(), length);
    return value;
  }
  // What has no answer, and something behind it that has one: then the server has done both, and
  // whoever hears of it finds it there.
  void send_and_wait(std::string text) {
    const auto nonce = uint32_t(getpid());
    text += request(Query::ping);
    text.append(reinterpret_cast<const char*>(&nonce), sizeof(nonce));
    send(text);
    if (number<uint32_t>() == nonce) return;
    broken = true;
    throw DistributedError(Failure::network, "TCPStore",
                           "the server's answer is not one of a store");
  }
  void wait(std::span<const std::string> keys, Milliseconds limit) {
    send(request(Query::wait, keys));
    char answer = 0;
    if (receive(socket, &answer, 1, steady_clock::now() + limit)) return;
    send(request(Query::cancel_wait));
    // The keys may have come in the meantime.
    if (number<char>() == kStopWaiting) number<char>();
    throw_store_timeout(keys, limit);
  }
  void check() const {
    if (broken)
      throw DistributedError(Failure::network, "TCPStore",
                             "the connection to the server broke before");
  }
};

TCPStore::TCPStore(std::string host, const TcpStoreOptions& options) : host_(std::move(host)) {
  ARETE_CHECK(options.is_server || options.port != 0,
              ValueError("TCPStore", "a client must say the port of its server"));
  ARETE_CHECK(options.timeout.count() > 0, ValueError("TCPStore", "the timeout must be positive"));
  Store::set_timeout(options.timeout);
  if (options.is_server) server_ = server_at(host_, options);
  port_ = server_ ? server_->port() : options.port;
  connection_ = std::make_unique<Connection>();
  // The server is in this process: it can be reached whatever the name of the host is.
  connection_->socket = connect_to(server_ ? "127.0.0.1" : host_, port_, options.timeout);
  std::string hello = request(Query::validate);
  hello.append(reinterpret_cast<const char*>(&kStoreMagic), sizeof(kStoreMagic));
  hello += request(Query::ping);
  const auto nonce = uint32_t(getpid());
  hello.append(reinterpret_cast<const char*>(&nonce), sizeof(nonce));
  connection_->send(hello);
  uint32_t echo = 0;
  if (!receive(connection_->socket, &echo, sizeof(echo), steady_clock::now() + options.timeout) ||
      echo != nonce)
    throw DistributedError(
        Failure::network, "TCPStore",
        "what listens at " + host_ + ":" + std::to_string(port_) + " is not the server of a store");
  if (!options.world_size || !options.wait_for_workers) return;
  const auto arrive = [&](int64_t more) {
    std::string text = request(Query::add);
    append_text(text, kWorkers);
    append_number(text, uint64_t(more));
    connection_->send(text);
    return connection_->number<int64_t>();
  };
  int64_t arrived = arrive(1);
  const auto until = steady_clock::now() + options.timeout;
  // The server's process must not end before the others have come.
  while (server_ && arrived < *options.world_size) {
    if (steady_clock::now() >= until)
      throw DistributedError(
          Failure::store, "",
          "Timed out after " +
              std::to_string(std::chrono::ceil<std::chrono::seconds>(options.timeout).count()) +
              " seconds waiting for clients. " + std::to_string(arrived) + "/" +
              std::to_string(*options.world_size) + " clients joined.");
    std::this_thread::sleep_for(Milliseconds(5));
    arrived = arrive(0);
  }
}

TCPStore::~TCPStore() = default;

void TCPStore::set(const std::string& key, std::string_view value) {
  ARETE_CHECK(key.size() < kMostText && value.size() <= kMostText,
              ValueError("TCPStore", "a key or value has more than 8 MiB"));
  std::string text = request(Query::set, key);
  append_text(text, value);
  const std::lock_guard lock(mutex_);
  connection_->send_and_wait(std::move(text));
}

std::string TCPStore::get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  connection_->wait({&key, 1}, timeout());
  connection_->send(request(Query::get, key));
  return connection_->text();
}

int64_t TCPStore::add(const std::string& key, int64_t amount) {
  std::string text = request(Query::add, key);
  append_number(text, uint64_t(amount));
  const std::lock_guard lock(mutex_);
  connection_->send(text);
  return connection_->number<int64_t>();
}

std::string TCPStore::compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired) {
  std::string text = request(Query::compare_set, key);
  append_text(text, expected);
  append_text(text, desired);
  const std::lock_guard lock(mutex_);
  connection_->send(text);
  return connection_->text();
}

bool TCPStore::check(std::span<const std::string> keys) {
  const std::lock_guard lock(mutex_);
  connection_->send(request(Query::check, keys));
  return connection_->number<char>() == kReady;
}

void TCPStore::wait(std::span<const std::string> keys, std::optional<Milliseconds> limit) {
  const std::lock_guard lock(mutex_);
  connection_->wait(keys, limit.value_or(timeout()));
}

bool TCPStore::delete_key(const std::string& key) {
  const std::lock_guard lock(mutex_);
  connection_->send(request(Query::delete_key, key));
  return connection_->number<int64_t>() == 1;
}

int64_t TCPStore::num_keys() {
  const std::lock_guard lock(mutex_);
  connection_->send(request(Query::num_keys));
  return connection_->number<int64_t>();
}

void TCPStore::append(const std::string& key, std::string_view value) {
  std::string text = request(Query::append, key);
  append_text(text, value);
  const std::lock_guard lock(mutex_);
  connection_->send_and_wait(std::move(text));
}

std::vector<std::string> TCPStore::multi_get(std::span<const std::string> keys) {
  const std::lock_guard lock(mutex_);
  connection_->wait(keys, timeout());
  connection_->send(request(Query::multi_get, keys));
  std::vector<std::string> values;
  for (size_t i = 0; i < keys.size(); ++i) values.push_back(connection_->text());
  return values;
}

void TCPStore::multi_set(std::span<const std::string> keys, std::span<const std::string> values) {
  ARETE_CHECK(keys.size() == values.size(),
              ValueError("multi_set", "multi_set keys and values vectors must be of same size"));
  std::string text = request(Query::multi_set);
  append_number(text, keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    append_text(text, wire_key(keys[i]));
    append_text(text, values[i]);
  }
  const std::lock_guard lock(mutex_);
  connection_->send_and_wait(std::move(text));
}

void TCPStore::queue_push(const std::string& key, std::string_view value) {
  ARETE_CHECK(key.size() < kMostText && value.size() <= kMostText,
              ValueError("TCPStore", "a key or value has more than 8 MiB"));
  std::string text = request(Query::queue_push, key);
  append_text(text, value);
  const std::lock_guard lock(mutex_);
  connection_->send_and_wait(std::move(text));
}

std::string TCPStore::queue_pop(const std::string& key, bool block) {
  const std::lock_guard lock(mutex_);
  const auto until = steady_clock::now() + timeout();
  for (;;) {
    if (block) {
      const auto left = std::chrono::ceil<Milliseconds>(until - steady_clock::now());
      connection_->wait({&key, 1}, std::max(left, Milliseconds(0)));
    }
    connection_->send(request(Query::queue_pop, key));
    if (connection_->number<int64_t>() > 0) return connection_->text();
    if (!block) throw_empty_queue(key);
    // Another process has taken it since.
  }
}

int64_t TCPStore::queue_len(const std::string& key) {
  const std::lock_guard lock(mutex_);
  connection_->send(request(Query::queue_length, key));
  return connection_->number<int64_t>();
}

std::vector<std::string> TCPStore::list_keys() {
  const std::lock_guard lock(mutex_);
  connection_->send(request(Query::list_keys));
  std::vector<std::string> keys;
  for (auto n = connection_->number<int64_t>(); n > 0; --n) {
    std::string key = connection_->text();
    // What was not set by a user, as the number of clients, has no '/' before it.
    if (key.starts_with('/')) keys.push_back(key.substr(1));
  }
  return keys;
}

}  // namespace arete::distributed
