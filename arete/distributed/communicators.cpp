#include "arete/distributed/communicators_internal.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "arete/distributed/store_internal.h"

namespace arete::distributed {
namespace {

using prim::CollectiveArgs;
using prim::CollectiveKind;
using prim::Transfer;
using prim::View;

size_t bytes_in(const View& v) { return size_t(v.numel()) * size_of(v.dtype); }

class StoreRendezvous final : public prim::Rendezvous {
 public:
  explicit StoreRendezvous(Store& store) : store_(store) {}
  void set(const std::string& key, std::string_view value) override { store_.set(key, value); }
  std::string get(const std::string& key) override { return store_.get(key); }
  void wait(std::span<const std::string> keys, std::optional<Milliseconds> timeout) override {
    store_.wait(keys, timeout);
  }

 private:
  Store& store_;
};

// Messages are values of a store. It is slow, but needs no connections and has only what is
// mandatory: the reference of the decompositions.
class StoreCommunicator final : public prim::Communicator {
 public:
  StoreCommunicator(StorePtr store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool supports(const CollectiveArgs&) const override { return false; }
  void run(const CollectiveArgs&) override { ARETE_BUG("no collective is supported"); }

  std::unique_ptr<Transfer> send(const View& view, int to, uint32_t tag) override {
    const std::string name = message(rank_, to, tag, next(sent_, to, tag));
    const size_t bytes = bytes_in(view);
    const auto* data = reinterpret_cast<const char*>(view.data);
    // The first piece comes last: whoever sees it finds all others.
    for (size_t piece = pieces_in(bytes); piece-- > 0;) {
      const size_t n = std::min(kPiece, bytes - piece * kPiece);
      store_->set(name + "/" + std::to_string(piece), {data + piece * kPiece, n});
    }
    return std::make_unique<Sent>(to);
  }

  std::unique_ptr<Transfer> recv(const View& view, int from, uint32_t tag) override {
    return std::make_unique<Received>(*this, view, from, tag,
                                      from < 0 ? 0 : next(received_, from, tag));
  }

  void abort() noexcept override { aborted_ = true; }

 private:
  static constexpr size_t kPiece = size_t(4) << 20;
  static size_t pieces_in(size_t bytes) {
    return std::max<size_t>(1, (bytes + kPiece - 1) / kPiece);
  }
  using Counts = std::map<std::pair<int, uint32_t>, uint64_t>;

  struct Sent final : Transfer {
    explicit Sent(int to) : to(to) {}
    int wait(Milliseconds) override { return to; }
    int to;
  };
  struct Received final : Transfer {
    Received(StoreCommunicator& c, const View& view, int from, uint32_t tag, uint64_t number)
        : c(c), view(view), from(from), tag(tag), number(number) {}
    int wait(Milliseconds timeout) override { return c.receive(*this, timeout); }
    StoreCommunicator& c;
    View view;
    int from;
    uint32_t tag;
    uint64_t number;
  };

  static std::string message(int from, int to, uint32_t tag, uint64_t number) {
    return "message/" + std::to_string(from) + "/" + std::to_string(to) + "/" +
           std::to_string(tag) + "/" + std::to_string(number);
  }
  uint64_t next(Counts& counts, int peer, uint32_t tag) {
    const std::lock_guard lock(mutex_);
    return counts[{peer, tag}]++;
  }

  // Looks again and again, so that several may wait at one connection and all can be ended.
  template <class F>
  void poll(F&& is_there, Milliseconds timeout) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    for (Milliseconds pause(0); !is_there(); pause = std::min(pause * 2 + Milliseconds(1), kMost)) {
      if (aborted_) throw DistributedError(Failure::backend, "recv", "the group was destroyed");
      if (std::chrono::steady_clock::now() >= until)
        throw DistributedError(Failure::backend, "recv",
                               "Timed out waiting " + std::to_string(timeout.count()) +
                                   "ms for recv operation to complete");
      std::this_thread::sleep_for(pause);
    }
  }

  int receive(Received& r, Milliseconds timeout) {
    int from = r.from;
    std::string name;
    const auto is_there = [&](int peer, uint64_t number) {
      name = message(peer, rank_, r.tag, number);
      const std::string first = name + "/0";
      return store_->check({&first, 1});
    };
    if (from >= 0) {
      poll([&] { return is_there(from, r.number); }, timeout);
    } else {
      poll(
          [&] {
            for (from = 0; from < size_; ++from)
              if (from != rank_ && is_there(from, peek(from, r.tag))) return true;
            return false;
          },
          timeout);
      next(received_, from, r.tag);
    }
    const size_t bytes = bytes_in(r.view);
    for (size_t piece = 0; piece < pieces_in(bytes); ++piece) {
      const std::string key = name + "/" + std::to_string(piece);
      std::string value;
      // To wait for one that was never sent would keep others from the store.
      const bool there = store_->check({&key, 1});
      if (there) {
        value = store_->get(key);
        store_->delete_key(key);
      }
      if (!there || value.size() != std::min(kPiece, bytes - piece * kPiece))
        throw DistributedError(Failure::backend, "recv",
                               "the message of rank " + std::to_string(from) +
                                   " has another size than the tensor for it");
      std::memcpy(r.view.data + piece * kPiece, value.data(), value.size());
    }
    return from;
  }
  uint64_t peek(int peer, uint32_t tag) {
    const std::lock_guard lock(mutex_);
    return received_[{peer, tag}];
  }

  static constexpr Milliseconds kMost{10};
  StorePtr store_;
  int rank_, size_;
  std::mutex mutex_;
  Counts sent_, received_;
  std::atomic<bool> aborted_{false};
};

// One rank of a world in which nobody else is: what others would send stays as it is. It knows what
// was called.
class FakeCommunicator final : public prim::Communicator {
 public:
  FakeCommunicator(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool supports(const CollectiveArgs&) const override { return true; }
  void run(const CollectiveArgs& a) override {
    note({a.kind, a.reduce, a.root, a.in.empty() ? a.out : a.in, a.overlaps});
    const bool many_in = a.kind == CollectiveKind::reduce_scatter ||
                         a.kind == CollectiveKind::all_to_all || a.kind == CollectiveKind::scatter;
    const bool many_out = a.kind == CollectiveKind::all_gather ||
                          a.kind == CollectiveKind::all_to_all || a.kind == CollectiveKind::gather;
    if (a.in.empty() || a.out.empty()) return;
    const View& from = a.in[many_in ? rank_ : 0];
    const View& to = a.out[many_out ? rank_ : 0];
    if (from.data && to.data && from.data != to.data)
      std::memmove(to.data, from.data, bytes_in(to));
  }
  std::unique_ptr<Transfer> send(const View& v, int to, uint32_t) override {
    note({CollectiveKind::send, {}, to, {&v, 1}});
    return std::make_unique<Done>(to);
  }
  std::unique_ptr<Transfer> recv(const View& v, int from, uint32_t) override {
    note({CollectiveKind::recv, {}, from, {&v, 1}});
    return std::make_unique<Done>(from);
  }
  void abort() noexcept override {}

  std::vector<std::string> calls() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> texts;
    for (const Noted& n : noted_) {
      std::string text = prim::name_of(n.kind);
      const auto is = [&](std::initializer_list<CollectiveKind> kinds) {
        return std::ranges::find(kinds, n.kind) != kinds.end();
      };
      if (is({CollectiveKind::all_reduce, CollectiveKind::reduce, CollectiveKind::reduce_scatter}))
        text += std::string(" ") + prim::name_of(n.reduce);
      if (n.has_dtype)
        text += " " + std::string(name_of(n.dtype)) + "[" + std::to_string(n.elements) + "]";
      if (is({CollectiveKind::broadcast, CollectiveKind::scatter, CollectiveKind::recv}))
        text += " from " + std::to_string(n.root);
      if (is({CollectiveKind::reduce, CollectiveKind::gather, CollectiveKind::send}))
        text += " to " + std::to_string(n.root);
      if (n.overlaps) text += ", overlapping";
      texts.push_back(std::move(text));
    }
    return texts;
  }

 private:
  struct Noted {
    Noted(CollectiveKind k, prim::ReduceKind r, int root_in, std::span<const View> views,
          bool overlaps_in = false)
        : kind(k), reduce(r), root(root_in), overlaps(overlaps_in), has_dtype(!views.empty()) {
      if (has_dtype) dtype = views[0].dtype;
      for (const View& v : views) elements += v.numel();
    }
    CollectiveKind kind;
    prim::ReduceKind reduce;
    int root;
    bool overlaps, has_dtype;
    DType dtype = kFloat32;
    int64_t elements = 0;
  };
  void note(const Noted& n) {
    const std::lock_guard lock(mutex_);
    noted_.push_back(n);
  }
  struct Done final : Transfer {
    explicit Done(int peer) : peer(peer) {}
    int wait(Milliseconds) override { return peer; }
    int peer;
  };
  int rank_, size_;
  std::mutex mutex_;
  std::vector<Noted> noted_;
};

}  // namespace

std::vector<std::string> fake_calls(prim::Communicator& communicator) {
  auto* const fake = dynamic_cast<FakeCommunicator*>(&communicator);
  return fake ? fake->calls() : std::vector<std::string>();
}

std::unique_ptr<prim::Rendezvous> rendezvous_over(Store& store) {
  return std::make_unique<StoreRendezvous>(store);
}

std::unique_ptr<prim::Communicator> make_communicator(const std::string& backend, StorePtr store,
                                                      int rank, int size, Milliseconds timeout) {
  if (backend == "fake") return std::make_unique<FakeCommunicator>(rank, size);
  if (backend == "store") return std::make_unique<StoreCommunicator>(std::move(store), rank, size);
  std::string problem;
  if (const auto make = backend == "gloo" ? prim::find_gloo(problem) : nullptr) {
    StoreRendezvous where(*store);
    return make(where, rank, size, timeout);
  }
  if (problem.empty()) problem = "there is no backend '" + backend + "'";
  throw DistributedError(Failure::backend, "init_process_group", problem,
                         "the backends are gloo, nccl, store and fake");
}

}  // namespace arete::distributed
