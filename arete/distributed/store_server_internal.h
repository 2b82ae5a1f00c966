// The server behind TCPStore: a table of keys, and what each connection asks of it.
//
// Note [The protocol of the store]
// It is that of torch.distributed.TCPStore, so that either side may be PyTorch's. A client sends
// first kValidate and a magic number of 32 bits. Each request is one byte and its arguments:
// numbers are little-endian, texts are preceded by their length in 64 bits, lists of texts by their
// length, too. set, append and multi_set have no answer; wait has one when all keys are there, or
// when the client cancels it. Clients of ours and PyTorch's put a '/' before all keys of users.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "arete/distributed/socket_internal.h"
#include "arete/distributed/store.h"

namespace arete::distributed {

inline constexpr uint32_t kStoreMagic = 0x3C85F7CE;

enum class Query : uint8_t {
  validate,
  set,
  compare_set,
  get,
  add,
  check,
  wait,
  num_keys,
  delete_key,
  append,
  multi_get,
  multi_set,
  cancel_wait,
  ping,
  queue_push,
  queue_pop,
  queue_length,
  list_keys,
};
inline constexpr char kReady = 0, kNotReady = 1;         // answers to check
inline constexpr char kStopWaiting = 0, kCancelled = 1;  // answers to wait

/// What a client may make a server keep.
inline constexpr uint64_t kMostText = uint64_t(8) << 20;
inline constexpr uint64_t kMostTexts = uint64_t(128) << 10;
inline constexpr uint64_t kMostRequest = uint64_t(64) << 20;
inline constexpr uint64_t kMostKept = uint64_t(1) << 30;
/// All clients together: how many, and the bytes of requests and answers that are under way.
inline constexpr size_t kMostClients = size_t(1) << 14;
inline constexpr uint64_t kMostUnderWay = uint64_t(2) << 30;

void append_number(std::string& to, uint64_t number);
void append_text(std::string& to, std::string_view text);

class StoreSession;

/// The keys, and who waits for which.
class StoreState {
 public:
  KeyTable keys;
  std::map<std::string, std::deque<std::string>> queues;
  uint64_t queued = 0;     // bytes
  uint64_t under_way = 0;  // bytes that sessions hold

  bool is_full() const { return keys.bytes() + queued > kMostKept; }
  bool has(const std::string& key) const { return keys.find(key) || queues.contains(key); }
  void await(const std::string& key, StoreSession* session);
  void forget(StoreSession* session);
  /// Tells those who wait for a key that it is there.
  void announce(const std::string& key);

 private:
  std::unordered_multimap<std::string, StoreSession*> waiting_;
};

/// One connection, without its socket: bytes come in, and answers gather in `out`.
class StoreSession {
 public:
  explicit StoreSession(StoreState& state) : state_(state) {}
  ~StoreSession() {
    state_.forget(this);
    state_.under_way -= counted_;
  }
  StoreSession(const StoreSession&) = delete;
  StoreSession& operator=(const StoreSession&) = delete;

  /// False: this is no client of a store, or one that asks for too much; it is to be closed.
  bool receive(std::string_view bytes);
  std::string out;
  /// The first bytes of `out` were taken.
  void sent(size_t bytes);
  std::string_view to_send() const { return std::string_view(out).substr(sent_); }

 private:
  friend class StoreState;
  class Reader;
  enum class Outcome { done, incomplete, wrong };
  // How far a request has come. Each of its parts is looked at once, however slowly it comes.
  struct Progress {
    size_t at = 0;       // the parts before are there
    uint64_t texts = 0;  // that are to come
    size_t list = 0;     // texts of an entry of the list whose length is to come
    size_t rest = 0;     // bytes after all texts
  };
  Outcome follow(std::string_view bytes);
  Outcome answer(Reader& reader);
  bool count();
  void key_is_there() {
    if (--missing_ > 0) return;
    out.push_back(kStopWaiting);
    awaited_ = 0;
  }

  StoreState& state_;
  std::string in_;
  Progress progress_;
  size_t sent_ = 0;
  uint64_t awaited_ = 0, counted_ = 0;  // bytes
  bool validated_ = false;
  size_t missing_ = 0;
};

/// The thread that answers clients.
class StoreServer {
 public:
  StoreServer(const std::string& host, uint16_t port, size_t most_clients = kMostClients);
  ~StoreServer();
  uint16_t port() const { return port_; }

 private:
  struct Client;
  void run();
  bool look();
  bool serve(Client& client, short events);
  Descriptor listener_, wake_;
  uint16_t port_;
  const size_t most_clients_;
  bool full_ = false;  // no descriptor was left for a client that wants to come in
  StoreState state_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::thread thread_;
};

}  // namespace arete::distributed
