// A GPU made of the CPU: cuda:0 of test programs that need graphs and have no GPU. It computes on
// the host at once, or while its stream is captured notes what it is given, and does that at each
// launch of the graph. Memory is never freed, so that graphs may go on using it.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "arete/core/cuda.h"
#include "arete/expr/value.h"
#include "arete/prim/backend.h"

namespace arete::test {

class RecordingDevice final : public prim::Backend {
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
  std::string supports(prim::Primitive, DType) const override { return ""; }
  std::string description() const override { return "the CPU"; }

  void fill(const prim::FillArgs& a) override {
    run([this, a, out = Kept(a.out)] {
      prim::FillArgs b = a;
      b.out = out.view();
      cpu_.fill(b);
    });
  }
  void copy(const prim::CopyArgs& a) override {
    run([this, out = Kept(a.out), in = Kept(a.in)] { cpu_.copy({out.view(), in.view()}); });
  }
  void pointwise(const prim::PointwiseArgs& a) override {
    run([this, program = kept(*a.program), in = kept(a.inputs), out = kept(a.outputs),
         params = std::vector<expr::Literal>(a.params.begin(), a.params.end())] {
      const std::vector<prim::View> i = views(in), o = views(out);
      cpu_.pointwise({program.get(), i, o, params});
    });
  }
  void reduce(const prim::ReduceArgs& a) override {
    run([this, a, space = Shape(a.space), in = kept(a.inputs), out = Kept(a.out),
         prologue = a.prologue ? kept(*a.prologue) : nullptr,
         epilogue = a.epilogue ? kept(*a.epilogue) : nullptr,
         params = std::vector<expr::Literal>(a.params.begin(), a.params.end()),
         after = std::vector<expr::Literal>(a.epilogue_params.begin(), a.epilogue_params.end())] {
      const std::vector<prim::View> i = views(in);
      cpu_.reduce({a.monoid, space, a.reduced, i, out.view(), prologue.get(), params,
                   epilogue.get(), after});
    });
  }
  void gemm(const prim::GemmArgs& a) override {
    ARETE_ASSERT(!a.aux.data && !a.a_sum.data && !a.a_scale.data && !a.b_scale.data);
    run([this, a, x = Kept(a.a), y = Kept(a.b), out = Kept(a.out), bias = Kept(a.bias)] {
      prim::GemmArgs g = a;
      g.a = x.view(), g.b = y.view(), g.out = out.view(), g.bias = bias.view();
      cpu_.gemm(g);
    });
  }
  void iota(const prim::IotaArgs& a) override {
    at_once([&] { cpu_.iota(a); });
  }
  void arg_reduce(const prim::ArgReduceArgs& a) override {
    at_once([&] { cpu_.arg_reduce(a); });
  }
  void scan(const prim::ScanArgs& a) override {
    at_once([&] { cpu_.scan(a); });
  }
  void sort(const prim::SortArgs& a) override {
    at_once([&] { cpu_.sort(a); });
  }
  void gather(const prim::GatherArgs& a) override {
    at_once([&] { cpu_.gather(a); });
  }
  void scatter(const prim::ScatterArgs& a) override {
    at_once([&] { cpu_.scatter(a); });
  }
  int64_t compact(const prim::CompactArgs& a) override {
    check_open();
    return cpu_.compact(a);
  }
  void random(const prim::RandomArgs& a) override {
    at_once([&] { cpu_.random(a); });
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

  /// A view that lives longer than its call.
  class Kept {
   public:
    explicit Kept(const prim::View& v) : view_(v), sizes_(v.sizes), strides_(v.strides) {}
    prim::View view() const {
      prim::View v = view_;
      v.sizes = sizes_;
      v.strides = strides_;
      return v;
    }

   private:
    prim::View view_;
    Shape sizes_, strides_;
  };
  static std::vector<Kept> kept(std::span<const prim::View> all) {
    return std::vector<Kept>(all.begin(), all.end());
  }
  static std::vector<prim::View> views(const std::vector<Kept>& all) {
    std::vector<prim::View> result;
    for (const Kept& k : all) result.push_back(k.view());
    return result;
  }
  /// Equal programs are one object.
  static expr::ProgramPtr kept(const expr::Program& p) {
    expr::Builder b;
    std::vector<expr::Value> inputs, params;
    for (DType t : p.inputs()) inputs.push_back(b.input(t));
    for (expr::Type t : p.params()) params.push_back(b.param(t));
    std::vector<DType> dtypes;
    for (const auto& o : p.outputs()) dtypes.push_back(o.dtype);
    return b.build(b.inline_program(p, inputs, params), dtypes);
  }

  void run(std::function<void()> f) {
    if (is_capturing()) return tape_->push_back(std::move(f));
    ++calls;
    f();
  }
  template <class F>
  void at_once(F&& f) {
    check_open();
    ++calls;
    f();
  }
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
