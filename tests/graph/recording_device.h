// A GPU made of the CPU: cuda:0 of test programs that need graphs and have no GPU. It computes on
// the host at once, or while its stream is captured notes what it is given, and does that at each
// launch of the graph. Memory is never given back, so that graphs may go on using it, but what is
// freed on a stream that is captured serves what comes later in that capture, as in a graph's pool:
// what must live as long as the graph and was allocated there is overwritten by replays.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "arete/device/cuda.h"
#include "arete/prim/forward.h"
#include "arete/prim/kept.h"

namespace arete::test {

class RecordingDevice final : public prim::Forwarding<prim::Backend, RecordingDevice> {
 public:
  /// Makes it cuda:0 of this process, whatever GPUs there are.
  static RecordingDevice& install() {
    static auto* const device = [] {
      prim::find_provider(DeviceType::cuda);  // so that no other is loaded later
      auto* const d = new RecordingDevice;
      prim::register_provider(DeviceType::cuda, new Provider(*d));
      return d;
    }();
    return *device;
  }
  /// Calls that it was given outside of captures, and by launches of graphs.
  int64_t calls = 0;

  Device device() const override { return Device(DeviceType::cuda, 0); }
  std::string description() const override { return "the CPU"; }

  template <prim::Primitive P, class Args>
  prim::ResultOf<P> pass(const Args& args) {
    if constexpr (P == prim::Primitive::compact) {
      check_open();  // the host waits for how many there are
    } else if (is_capturing()) {
      tape_->push_back(
          [this, kept = std::make_shared<prim::Kept<Args>>(args)] { kept->template run<P>(cpu_); });
      return;
    }
    ++calls;
    return prim::run_primitive<P>(cpu_, args);
  }

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    const size_t blocks = bytes / sizeof(Block) + 1;
    if (is_capturing())
      if (const auto free = free_.find(blocks); free != free_.end()) {
        void* const p = free->second;
        free_.erase(free);
        return p;
      }
    memory_.push_back(std::make_unique<Block[]>(blocks));
    void* const p = memory_.back().get();
    if (is_capturing()) of_capture_.insert(p);
    return p;
  }
  void deallocate(void* p, size_t bytes) noexcept override {
    if (is_capturing() && of_capture_.contains(p)) free_.emplace(bytes / sizeof(Block) + 1, p);
  }
  void* scratch(size_t bytes) override { return allocate(bytes); }
  void release_scratch(void* p, size_t bytes) noexcept override { deallocate(p, bytes); }
  void synchronize() override { check_open(); }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    check_open();
    std::memcpy(to, from, bytes);
  }
  void copy_from_host(void* to, const void* from, size_t bytes) override {
    check_open();
    std::memcpy(to, from, bytes);
  }

  prim::StreamHandle current_stream() override { return stream_; }
  prim::StreamHandle default_stream() override { return &streams_.front(); }
  void set_current_stream(prim::StreamHandle s) override { stream_ = s ? s : default_stream(); }
  prim::StreamHandle create_stream(int) override { return &streams_.emplace_back(); }
  bool is_capturing() override { return captured_ && captured_ == stream_; }
  uint64_t create_pool() override { return 1; }
  void begin_capture(prim::StreamHandle stream, uint64_t) override {
    captured_ = stream;
    tape_ = std::make_unique<Tape>();
  }
  prim::GraphHandle end_capture(prim::StreamHandle) override {
    leave_capture();
    return tape_.release();
  }
  void discard_capture(prim::StreamHandle) noexcept override { leave_capture(); }
  void launch_graph(prim::GraphHandle graph, prim::StreamHandle) override {
    for (const auto& f : *static_cast<Tape*>(graph)) {
      ++calls;
      f();
    }
  }
  void destroy_graph(prim::GraphHandle graph) noexcept override {
    delete static_cast<Tape*>(graph);
  }

 private:
  using Tape = std::vector<std::function<void()>>;
  struct alignas(64) Block {
    std::byte bytes[64];
  };
  class Provider final : public prim::DeviceProvider {
   public:
    explicit Provider(RecordingDevice& d) : device_(d) {}
    int count() const override { return 1; }
    DeviceProperties properties(int) const override { return {}; }
    std::string description(int) const override { return "the CPU"; }
    std::vector<std::pair<std::string, std::string>> versions() const override { return {}; }
    bool can_access_peer(int, int) const override { return false; }
    prim::Backend* make_backend(int) override { return &device_; }
    void push_range(const char*) noexcept override {}
    void pop_range() noexcept override {}

   private:
    RecordingDevice& device_;
  };

  void check_open() {
    ARETE_CHECK(!is_capturing(), DeviceError("", "not while the stream is being captured"));
  }

  void leave_capture() noexcept {
    captured_ = nullptr;
    free_.clear();
    of_capture_.clear();
  }

  prim::Backend& cpu_ = prim::backend_for(kCPU);
  std::vector<std::unique_ptr<Block[]>> memory_;
  std::multimap<size_t, void*> free_;  // by their sizes in blocks
  std::set<void*> of_capture_;
  std::deque<int> streams_ = std::deque<int>(1);
  prim::StreamHandle stream_ = &streams_.front(), captured_ = nullptr;
  std::unique_ptr<Tape> tape_;
};

}  // namespace arete::test
