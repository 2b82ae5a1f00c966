// A GPU made of the CPU: cuda:0 of test programs that need graphs and have no GPU. It computes on
// the host at once, or while its stream is captured notes what it is given, and does that at each
// launch of the graph. Memory is never freed, so that graphs may go on using it.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "arete/core/cuda.h"
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
      tape_->push_back([this, kept = std::make_shared<prim::Kept<Args>>(args)] {
        prim::run_primitive<P>(cpu_, kept->args());
      });
      return;
    }
    ++calls;
    return prim::run_primitive<P>(cpu_, args);
  }

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    memory_.push_back(std::make_unique<Block[]>(bytes / sizeof(Block) + 1));
    return memory_.back().get();
  }
  void deallocate(void*, size_t) noexcept override {}
  void* scratch(size_t bytes) override { return allocate(bytes); }
  void release_scratch(void*, size_t) noexcept override {}
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
  prim::StreamHandle default_stream() override { return &streams_[0]; }
  void set_current_stream(prim::StreamHandle s) override { stream_ = s ? s : default_stream(); }
  prim::StreamHandle create_stream(int) override { return &streams_[1]; }
  bool is_capturing() override { return captured_ && captured_ == stream_; }
  uint64_t create_pool() override { return 1; }
  void begin_capture(prim::StreamHandle stream, uint64_t) override {
    captured_ = stream;
    tape_ = std::make_unique<Tape>();
  }
  prim::GraphHandle end_capture(prim::StreamHandle) override {
    captured_ = nullptr;
    return tape_.release();
  }
  void discard_capture(prim::StreamHandle) noexcept override { captured_ = nullptr; }
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

  prim::Backend& cpu_ = prim::backend_for(kCPU);
  std::vector<std::unique_ptr<Block[]>> memory_;
  int streams_[2] = {};
  prim::StreamHandle stream_ = &streams_[0], captured_ = nullptr;
  std::unique_ptr<Tape> tape_;
};

}  // namespace arete::test
