#include "tests/support/fake_gpus.h"

#include <cstring>
#include <list>
#include <map>

#include "arete/prim/compiled_kernels.h"
#include "arete/prim/forward.h"

namespace arete::test {
namespace {

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
    return prim::run_primitive<P>(cpu(), args);
  }

  void* scratch(size_t bytes) override { return cpu().scratch(bytes); }
  void release_scratch(void* p, size_t bytes) noexcept override { cpu().release_scratch(p, bytes); }
  void* allocate(size_t bytes) override { return cpu().allocate(bytes); }
  void deallocate(void* p, size_t bytes) noexcept override { cpu().deallocate(p, bytes); }
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
  prim::EventHandle create_event(bool) override { return new int; }
  void destroy_event(prim::EventHandle e) noexcept override { delete static_cast<int*>(e); }

 private:
  static prim::Backend& cpu() { return prim::backend_for(kCPU); }
  static std::map<const FakeGpu*, prim::StreamHandle>& current() {
    static thread_local std::map<const FakeGpu*, prim::StreamHandle> streams;
    return streams;
  }
  int ordinal_;
};

class FakeProvider final : public prim::DeviceProvider {
 public:
  explicit FakeProvider(int count) : count_(count) {}
  int count() const override { return count_; }
  DeviceProperties properties(int ordinal) const override {
    DeviceProperties p;
    p.name = "fake GPU " + std::to_string(ordinal);
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
  return all.try_emplace(count, count).first->second;
}

}  // namespace arete::test
