#include "tests/support/fake_gpus.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "arete/base/distributed_error.h"
#include "arete/prim/compiled_kernels.h"
#include "arete/prim/device_memory.h"
#include "arete/prim/forward.h"
#include "arete/prim/recorder.h"

namespace arete::test {
namespace {

// A stream whose work is done by a thread, late.
class SlowStream {
 public:
  SlowStream() : thread_([this] { run(); }) {
    const std::lock_guard lock(all_mutex());
    all().insert(this);
  }
  ~SlowStream() {
    {
      const std::lock_guard lock(all_mutex());
      all().erase(this);
    }
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void submit(std::function<void()> f) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(f));
    ++given_;
    changed_.notify_all();
  }
  uint64_t given() {
    const std::lock_guard lock(mutex_);
    return given_;
  }
  bool has_done(uint64_t n) {
    const std::lock_guard lock(mutex_);
    return done_ >= n;
  }
  void wait(uint64_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= n; });
  }
  /// Waits for a stream if it is such a one.
  static void wait_for(prim::StreamHandle handle) {
    SlowStream* found = nullptr;
    {
      const std::lock_guard lock(all_mutex());
      if (const auto at = all().find(static_cast<SlowStream*>(handle)); at != all().end())
        found = *at;
    }
    if (found) found->wait(found->given());
  }

 private:
  static std::set<SlowStream*>& all() {
    static auto& streams = *new std::set<SlowStream*>;
    return streams;
  }
  static std::mutex& all_mutex() {
    static auto& mutex = *new std::mutex;
    return mutex;
  }
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || !work_.empty(); });
      if (work_.empty()) return;
      const auto f = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      f();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  uint64_t given_ = 0, done_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

class SlowPoint final : public prim::StreamPoint {
 public:
  SlowPoint(std::shared_ptr<SlowStream> stream, uint64_t n) : stream_(std::move(stream)), n_(n) {}
  bool is_done() noexcept override { return !stream_ || stream_->has_done(n_); }
  void hold(prim::StreamHandle) override {
    if (stream_) stream_->wait(n_);
  }

 private:
  std::shared_ptr<SlowStream> stream_;  // null: all is done at once
  uint64_t n_;
};

// Beside the keys of the group's own Gloo.
class OtherKeys final : public prim::Rendezvous {
 public:
  explicit OtherKeys(prim::Rendezvous& where) : where_(where) {}
  void set(const std::string& key, std::string_view value) override {
    where_.set("gpu/" + key, value);
  }
  std::string get(const std::string& key) override { return where_.get("gpu/" + key); }
  void wait(std::span<const std::string> keys,
            std::optional<std::chrono::milliseconds> timeout) override {
    std::vector<std::string> names;
    for (const std::string& key : keys) names.push_back("gpu/" + key);
    where_.wait(names, timeout);
  }

 private:
  prim::Rendezvous& where_;
};

class GlooInPlace final : public prim::StreamCommunicator {
 public:
  explicit GlooInPlace(std::unique_ptr<prim::Communicator> gloo) : gloo_(std::move(gloo)) {}
  ~GlooInPlace() override { stream_->wait(stream_->given()); }
  prim::StreamHandle stream() override { return stream_.get(); }
  void run(std::span<const prim::CollectiveArgs> calls, prim::StreamHandle stream) override {
    // As the caller's lists go, but the memory stays.
    std::vector<Kept> kept(calls.begin(), calls.end());
    if (stream == stream_.get()) {
      stream_->submit([this, kept = std::move(kept)] { perform(kept); });
    } else {
      stream_->wait(stream_->given());
      perform(kept);
      const std::lock_guard lock(mutex_);
      if (!problem_.empty())
        throw DistributedError(DistributedError::Failure::backend, "", problem_);
    }
  }
  std::shared_ptr<prim::StreamPoint> mark(prim::StreamHandle stream) override {
    if (stream != stream_.get()) return std::make_shared<SlowPoint>(nullptr, 0);
    return std::make_shared<SlowPoint>(stream_, stream_->given());
  }
  std::string problem() override {
    const std::lock_guard lock(mutex_);
    return problem_;
  }
  void abort(const std::string&) noexcept override { gloo_->abort(); }

 private:
  struct Kept {
    explicit Kept(const prim::CollectiveArgs& a) : args(a) {
      for (const auto& [from, to] : {std::pair(a.in, &in), std::pair(a.out, &out)})
        for (const prim::View& v : from) to->push_back({v, v.numel()});
    }
    struct Flat {
      prim::View view;
      int64_t size;
    };
    prim::CollectiveArgs args;
    std::vector<Flat> in, out;
  };
  void perform(const std::vector<Kept>& calls) try {
    static constexpr int64_t kOne = 1;
    std::vector<std::unique_ptr<prim::Transfer>> transfers;
    std::vector<const Kept::Flat*> sent, received;  // by this process, to itself
    for (const Kept& k : calls) {
      prim::CollectiveArgs a = k.args;
      std::vector<prim::View> in, out;
      for (const auto& f : k.in)
        in.emplace_back(f.view.data, f.view.dtype, IntList(&f.size, 1), IntList(&kOne, 1));
      for (const auto& f : k.out)
        out.emplace_back(f.view.data, f.view.dtype, IntList(&f.size, 1), IntList(&kOne, 1));
      a.in = in;
      a.out = out;
      a.timeout = std::chrono::minutes(1);  // as NCCL, which knows of none
      const bool sends = a.kind == prim::CollectiveKind::send;
      if ((sends || a.kind == prim::CollectiveKind::recv) && a.root == gloo_->rank())
        (sends ? sent : received).push_back(sends ? &k.in[0] : &k.out[0]);
      else if (sends)
        transfers.push_back(gloo_->send(in[0], a.root, 0));
      else if (a.kind == prim::CollectiveKind::recv)
        transfers.push_back(gloo_->recv(out[0], a.root, 0));
      else
        prim::run_collective(*gloo_, a);
    }
    for (const auto& t : transfers) t->wait(std::chrono::minutes(1));
    if (sent.size() != received.size()) throw std::runtime_error("a message to itself is missing");
    for (size_t i = 0; i < sent.size(); ++i)
      std::memcpy(received[i]->view.data, sent[i]->view.data,
                  size_t(sent[i]->size) * size_of(sent[i]->view.dtype));
  } catch (const std::exception& e) {
    const std::lock_guard lock(mutex_);
    problem_ = e.what();
  }
  std::unique_ptr<prim::Communicator> gloo_;
  std::shared_ptr<SlowStream> stream_ = std::make_shared<SlowStream>();
  std::mutex mutex_;
  std::string problem_;
};

// Gloo ends no call that waits for others, which NCCL does: after abort() all stays for the
// process.
class FakeNccl final : public prim::StreamCommunicator {
 public:
  explicit FakeNccl(std::unique_ptr<prim::Communicator> gloo)
      : gloo_(new GlooInPlace(std::move(gloo))) {}
  ~FakeNccl() override {
    if (!aborted_) delete gloo_;
  }
  prim::StreamHandle stream() override { return gloo_->stream(); }
  void run(std::span<const prim::CollectiveArgs> calls, prim::StreamHandle stream) override {
    gloo_->run(calls, stream);
  }
  std::shared_ptr<prim::StreamPoint> mark(prim::StreamHandle stream) override {
    return gloo_->mark(stream);
  }
  std::string problem() override { return gloo_->problem(); }
  void abort(const std::string& why) noexcept override {
    aborted_ = true;
    gloo_->abort(why);
  }

 private:
  GlooInPlace* gloo_;
  std::atomic<bool> aborted_{false};
};

/// Memory that was given back, for the next who wants as much: like an allocator of a GPU's memory,
/// and unlike malloc, it gives calls that come again the same addresses again. Sanitizers shall see
/// what is used too late. The process ends with what is kept.
class Freed {
 public:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool kKeeps = false;
#else
  static constexpr bool kKeeps = true;
#endif
  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto its = blocks_.lower_bound({bytes, nullptr});
    if (its == blocks_.end() || its->first != bytes) return cpu().allocate(bytes);
    void* const address = its->second;
    blocks_.erase(its);
    return address;
  }
  /// What is there, if it was given back.
  bool take_at(void* address, size_t bytes) {
    const std::lock_guard lock(mutex_);
    return blocks_.erase({bytes, address}) > 0;
  }
  void give(void* address, size_t bytes) {
    if (!kKeeps) return cpu().deallocate(address, bytes);
    const std::lock_guard lock(mutex_);
    blocks_.insert({bytes, address});
  }

 private:
  static prim::Backend& cpu() { return prim::backend_for(Device(DeviceType::cpu)); }
  std::mutex mutex_;
  std::set<std::pair<size_t, void*>> blocks_;
};

/// Bytes that are held: those of tensors and those that calls put beside them.
class Held {
 public:
  void add(size_t bytes) {
    const std::lock_guard lock(mutex_);
    stats_.allocated += bytes;
    stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
    ++stats_.allocations;
  }
  void subtract(size_t bytes) {
    const std::lock_guard lock(mutex_);
    stats_.allocated -= bytes;
    ++stats_.frees;
  }
  prim::MemoryStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak_allocated = stats_.allocated;
  }

 private:
  mutable std::mutex mutex_;
  prim::MemoryStats stats_;
};

using Calls = std::vector<std::unique_ptr<prim::RecordedCall>>;

/// The calls of a graph and what orders them: each comes after what its stream had waited for, and
/// after nothing else.
class Recording {
 public:
  explicit Recording(prim::StreamHandle origin) { last_[origin]; }
  bool has(prim::StreamHandle stream) const { return last_.contains(stream); }
  void add(prim::StreamHandle stream, std::unique_ptr<prim::RecordedCall> call) {
    after_.push_back(std::exchange(last_[stream], {calls_.size()}));
    calls_.push_back(std::move(call));
  }
  void record(prim::EventHandle event, prim::StreamHandle stream) {
    events_.erase(event);
    if (has(stream)) events_[event] = last_[stream];
  }
  void wait(prim::StreamHandle stream, prim::EventHandle event) {
    if (const auto its = events_.find(event); its != events_.end())
      last_[stream].insert(its->second.begin(), its->second.end());
  }
  /// In the order that is least like the one they came in, so that who forgets to wait gets other
  /// values. An error unless `origin` waits for all.
  std::unique_ptr<Calls> finish(prim::StreamHandle origin) {
    std::vector<size_t> order, open(calls_.size());  // for how many others it has to be there
    std::set<size_t> ready = last_[origin];
    for (const std::set<size_t>& its : after_)
      for (const size_t k : its) ++open[k];
    std::erase_if(ready, [&](size_t k) { return open[k] > 0; });
    while (!ready.empty()) {  // from the last one
      const size_t k = *ready.begin();
      ready.erase(ready.begin());
      order.push_back(k);
      for (const size_t j : after_[k])
        if (--open[j] == 0) ready.insert(j);
    }
    if (order.size() != calls_.size())
      throw DeviceError("", "a stream that takes part in a capture is not waited for at its end");
    auto calls = std::make_unique<Calls>();
    for (auto k = order.rbegin(); k != order.rend(); ++k) calls->push_back(std::move(calls_[*k]));
    return calls;
  }

 private:
  Calls calls_;
  std::vector<std::set<size_t>> after_;
  std::map<prim::StreamHandle, std::set<size_t>> last_;  // of streams that take part
  std::map<prim::EventHandle, std::set<size_t>> events_;
};

class FakeGpu final : public prim::Forwarding<prim::Backend, FakeGpu> {
 public:
  explicit FakeGpu(int ordinal) : ordinal_(ordinal) { prim::heed_rehearsals(DeviceType::cuda); }
  Device device() const override { return Device(DeviceType::cuda, ordinal_); }
  std::string description() const override { return "no GPU"; }
  template <prim::Primitive P, class Args>
  prim::ResultOf<P> pass(const Args& args) {
    if (prim::is_rehearsing()) {
      prim::note_compiled_kernel(prim::name_of(P), 0);
      return prim::ResultOf<P>();
    }
    if constexpr (P != prim::Primitive::compact)
      if (Recording* const graph = recording_here()) {
        graph->add(current_stream(), prim::as_recorded(device(), args));
        return;
      }
    SlowStream::wait_for(current_stream());
    return prim::run_primitive<P>(cpu(), args);
  }

  void* scratch(size_t bytes) override {
    memory_.add(bytes);
    return cpu().scratch(bytes);
  }
  void release_scratch(void* p, size_t bytes) noexcept override {
    memory_.subtract(bytes);
    cpu().release_scratch(p, bytes);
  }
  void* allocate(size_t bytes) override { return give_out(freed_.take(bytes), bytes); }
  void* allocate_at(void* p, size_t bytes) {
    return freed_.take_at(p, bytes) ? give_out(p, bytes) : nullptr;
  }
  void* give_out(void* p, size_t bytes) {
    memory_.add(bytes);
    const std::lock_guard lock(pools_mutex_);
    const auto& s = scopes();
    const auto mine = std::find_if(s.rbegin(), s.rend(), [&](auto& x) { return x.first == this; });
    if (p && mine != s.rend()) pools_[mine->second].emplace(uintptr_t(p), bytes);
    return p;
  }
  void deallocate(void* p, size_t bytes) noexcept override {
    {
      const std::lock_guard lock(pools_mutex_);
      for (auto& [id, blocks] : pools_) blocks.erase(uintptr_t(p));
    }
    memory_.subtract(bytes);
    freed_.give(p, bytes);
  }
  Held& memory() { return memory_; }

  // What tensors hold of a pool; there is no cache.
  void enter_pool(uint64_t pool) { scopes().emplace_back(this, pool); }
  void leave_pool(uint64_t pool) {
    auto& s = scopes();
    const auto mine = std::find(s.rbegin(), s.rend(), std::pair(this, pool));
    if (mine != s.rend()) s.erase(std::prev(mine.base()));
  }
  std::vector<prim::PoolSegment> pool_segments(uint64_t pool) {
    const std::lock_guard lock(pools_mutex_);
    std::vector<prim::PoolSegment> found;
    for (const auto& [address, bytes] : pools_[pool])
      found.push_back({address,
                       bytes,
                       default_stream(),
                       false,
                       {{address, bytes, prim::PoolSegment::Block::State::live}}});
    return found;
  }
  bool has_recorded_graphs() const { return recorded_; }
  MemoryStats memory_stats() const override { return memory_.stats(); }
  void reset_peak_memory_stats() override { memory_.reset_peak(); }
  void synchronize() override {}
  void copy_to_host(void* dst, const void* src, size_t n) override { std::memcpy(dst, src, n); }
  void copy_from_host(void* dst, const void* src, size_t n) override { std::memcpy(dst, src, n); }
  void copy_from_peer(void* dst, prim::Backend&, const void* src, size_t n) override {
    std::memcpy(dst, src, n);
  }
  Allocator& pinned_allocator() override { return cpu(); }

  prim::StreamHandle current_stream() override {
    const auto it = current().find(this);
    return it == current().end() ? default_stream() : it->second;
  }
  prim::StreamHandle default_stream() override { return this; }
  void set_current_stream(prim::StreamHandle s) override {
    current()[this] = s ? s : default_stream();
  }
  prim::StreamHandle create_stream(int) override { return new int; }
  void destroy_stream(prim::StreamHandle s) noexcept override { delete static_cast<int*>(s); }

  bool is_capturing() override { return recording_here() != nullptr; }
  uint64_t create_pool() override { return ++last_pool_; }
  void lend_pool(uint64_t pool) {
    const std::lock_guard lock(pools_mutex_);
    lent_.insert(pool);
  }
  void begin_capture(prim::StreamHandle stream, uint64_t pool) override {
    {
      const std::lock_guard lock(pools_mutex_);
      if (lent_.contains(pool))
        throw ValueError("", "graphs do not take memory from a pool that lends");
    }
    recorded_ = true;
    recording() = std::make_unique<Recording>(stream);
  }
  prim::GraphHandle end_capture(prim::StreamHandle stream) override {
    const std::unique_ptr<Recording> whole = std::move(recording());
    return whole->finish(stream).release();
  }
  void discard_capture(prim::StreamHandle) noexcept override { recording() = nullptr; }
  void launch_graph(prim::GraphHandle graph, prim::StreamHandle) override {
    for (const auto& call : *static_cast<const Calls*>(graph)) call->run_once();
  }
  void destroy_graph(prim::GraphHandle graph) noexcept override {
    delete static_cast<const Calls*>(graph);
  }

  prim::EventHandle create_event(bool) override { return new int; }
  void record_event(prim::EventHandle e, prim::StreamHandle s) override {
    if (Recording* const graph = recording().get()) graph->record(e, s);
  }
  void stream_wait_event(prim::StreamHandle s, prim::EventHandle e) override {
    if (Recording* const graph = recording().get()) graph->wait(s, e);
  }
  void destroy_event(prim::EventHandle e) noexcept override { delete static_cast<int*>(e); }

 private:
  static prim::Backend& cpu() { return prim::backend_for(kCPU); }
  static std::unique_ptr<Recording>& recording() {
    static thread_local std::unique_ptr<Recording> calls;
    return calls;
  }
  Recording* recording_here() {
    Recording* const graph = recording().get();
    return graph && graph->has(current_stream()) ? graph : nullptr;
  }
  static std::map<const FakeGpu*, prim::StreamHandle>& current() {
    static thread_local std::map<const FakeGpu*, prim::StreamHandle> streams;
    return streams;
  }
  static std::vector<std::pair<FakeGpu*, uint64_t>>& scopes() {
    static thread_local std::vector<std::pair<FakeGpu*, uint64_t>> entered;
    return entered;
  }
  int ordinal_;
  Held memory_;
  Freed freed_;
  std::atomic<uint64_t> last_pool_{0};
  std::atomic<bool> recorded_{false};
  std::mutex pools_mutex_;
  std::map<uint64_t, std::map<uintptr_t, size_t>> pools_;
  std::set<uint64_t> lent_;
};

/// Memory that processes share is that of files without names.
class FakeMemory final : public prim::DeviceMemory {
 public:
  void enter_pool(int device, uint64_t pool) override { gpu(device).enter_pool(pool); }
  void leave_pool(int device, uint64_t pool) noexcept override { gpu(device).leave_pool(pool); }
  void lend_pool(int device, uint64_t pool) override { gpu(device).lend_pool(pool); }
  std::vector<prim::PoolSegment> pool_segments(int device, uint64_t pool) override {
    return gpu(device).pool_segments(pool);
  }
  void* allocate_at(int device, void* p, size_t bytes) override {
    return gpu(device).allocate_at(p, bytes);
  }
  prim::SharedBlock copy_to_shared(int device, const void* from, size_t bytes) override {
    if (gpu(device).has_recorded_graphs()) throw DeviceError("", "graphs were recorded");
    const int file = memfd_create("fake GPU", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, off_t(bytes)) < 0)
      throw DeviceError("", "the fake GPU has no shared memory");
    void* const p = map(file, bytes);
    std::memcpy(p, from, bytes);
    gpu(device).memory().add(bytes);
    const std::lock_guard lock(mutex_);
    files_[p] = {file, bytes};
    return {p, "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file), 0};
  }
  void free_shared(int device, void* p) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto it = files_.find(p);
    gpu(device).memory().subtract(it->second.second);
    munmap(p, it->second.second);
    close(it->second.first);
    files_.erase(it);
  }
  void wait(int device) override {
    if (gpu(device).is_capturing())
      throw DeviceError("", "a graph is captured: nothing may be waited for");
  }
  void* open_shared(int, const std::string& handle) override {
    const int file = open(handle.c_str(), O_RDWR | O_CLOEXEC);
    struct stat known;
    if (file < 0 || fstat(file, &known) < 0) throw DeviceError("", "there is no such memory");
    void* const p = map(file, size_t(known.st_size));
    const std::lock_guard lock(mutex_);
    files_[p] = {file, size_t(known.st_size)};
    return p;
  }
  void close_shared(int, void* p) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto it = files_.find(p);
    munmap(p, it->second.second);
    close(it->second.first);
    files_.erase(it);
  }

  // Events of fake GPUs are done when they are recorded: a process that is there has what it told.
  void* create_shared_event(int device) override { return gpu(device).create_event(false); }
  std::string handle_of_event(int, void* event) override {
    return std::to_string(getpid()) + " " + std::to_string(reinterpret_cast<uintptr_t>(event));
  }
  void* open_event(int device, const std::string& handle) override {
    const int process = std::atoi(handle.c_str());
    if (process <= 0 || process == getpid() || kill(process, 0) < 0)
      throw DeviceError("", "there is no event of another process");
    return gpu(device).create_event(false);
  }

 private:
  static FakeGpu& gpu(int device) {
    return static_cast<FakeGpu&>(prim::backend_for(Device(DeviceType::cuda, device)));
  }
  static void* map(int file, size_t bytes) {
    void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (p == MAP_FAILED) throw DeviceError("", "the fake GPU's memory cannot be mapped");
    return p;
  }
  std::mutex mutex_;
  std::map<void*, std::pair<int, size_t>> files_;
};

class FakeProvider final : public prim::DeviceProvider {
 public:
  explicit FakeProvider(int count) : count_(count) {}
  int count() const override { return count_; }
  DeviceProperties properties(int ordinal) const override {
    DeviceProperties p;
    p.name = "fake GPU " + std::to_string(ordinal);
    p.pci_bus_id = "0000:" + std::to_string(90 - ordinal) + ":00.0";  // not in the bus' order
    return p;
  }
  std::string description(int ordinal) const override { return properties(ordinal).name; }
  std::vector<std::pair<std::string, std::string>> versions() const override { return {}; }
  bool can_access_peer(int, int) const override { return true; }
  prim::Backend* make_backend(int ordinal) override { return &gpus_.emplace_back(ordinal); }
  void push_range(const char*) noexcept override {}
  void pop_range() noexcept override {}

 private:
  int count_;
  std::list<FakeGpu> gpus_;  // alive for the process, as all backends are
};

}  // namespace

prim::DeviceProvider& fake_gpus(int count) {
  // What is released at exit may still ask for a GPU.
  static auto& all = *new std::map<int, FakeProvider>;
  static auto& memory = *new FakeMemory;
  prim::register_device_memory(&memory);
  return all.try_emplace(count, count).first->second;
}

prim::StreamLibrary fake_nccl() {
  return {[](int, prim::Rendezvous& where, int rank, int size,
             std::chrono::milliseconds timeout) -> std::unique_ptr<prim::StreamCommunicator> {
            std::string problem;
            const auto make = prim::find_gloo(problem);
            if (!make) throw DistributedError(DistributedError::Failure::backend, "", problem);
            OtherKeys keys(where);
            return std::make_unique<FakeNccl>(make(keys, rank, size, timeout));
          },
          [](std::string&) { return 22809; }};
}

}  // namespace arete::test
