// The CUDA backend: every primitive on one GPU, implemented family by family in the files beside
// this one. Everything is asynchronous on the calling thread's current stream.
#pragma once

#include <cuda.h>

#include <atomic>
#include <mutex>

#include "arete/backend/cuda/runtime/context.h"
#include "arete/backend/cuda/runtime/graph.h"
#include "arete/backend/cuda/runtime/kernel.h"
#include "arete/base/error.h"
#include "arete/prim/backend.h"

namespace arete::cuda {

class CachingAllocator;

class CudaBackend final : public prim::Backend {
 public:
  explicit CudaBackend(int ordinal);
  Device device() const override { return Device(DeviceType::cuda, context_.ordinal()); }

  // fft.cpp, linalg.cpp
  void fft(const prim::FftArgs&) override;
  void linalg(const prim::LinalgArgs&) override;
  // user_kernel.cpp
  const void* find_user_kernel(const std::string& source, const std::string& name,
                               const std::vector<std::string>& options) override;
  void launch_user_kernel(const void* kernel, const prim::UserLaunch& launch) override;

  // pointwise.cpp, copy.cpp
  void fill(const prim::FillArgs&) override;
  void iota(const prim::IotaArgs&) override;
  void pointwise(const prim::PointwiseArgs&) override;
  void multi_pointwise(const prim::MultiPointwiseArgs&) override;
  void copy(const prim::CopyArgs&) override;
  /// multi_pointwise of a program that changes nothing, for up to kMostPieces tensors.
  void copy_pieces(const prim::MultiPointwiseArgs&);
  // multi_reduce.cpp, dropout.cpp, attention.cpp
  void multi_reduce(const prim::MultiReduceArgs&) override;
  void dropout(const prim::DropoutArgs&) override;
  void attention(const prim::AttentionArgs&) override;
  // random.cpp
  void random(const prim::RandomArgs&) override;
  // reduce.cpp, arg_reduce.cpp, scan.cpp, fused.cpp
  void reduce(const prim::ReduceArgs&) override;
  void arg_reduce(const prim::ArgReduceArgs&) override;
  void scan(const prim::ScanArgs&) override;
  void fused(const prim::FusedArgs&) override;
  // recurrence.cpp
  void recurrence(const prim::RecurrenceArgs&) override;
  // gather.cpp, scatter.cpp, rows.cpp, compact.cpp
  void gather(const prim::GatherArgs&) override;
  void scatter(const prim::ScatterArgs&) override;
  void take_rows(const prim::TakeRowsArgs&) override;
  void add_rows(const prim::AddRowsArgs&) override;
  int64_t compact(const prim::CompactArgs&) override;
  // sort.cpp
  void sort(const prim::SortArgs&) override;
  void topk(const prim::TopkArgs&) override;
  // select.cpp
  void select(const prim::SelectArgs&) override;
  // gemm.cpp
  void gemm(const prim::GemmArgs&) override;
  bool has_epilogue(prim::Activation, DType) const override;
  // conv.cpp, pool.cpp
  void conv(const prim::ConvArgs&) override;
  bool wants_channels_last(const prim::ConvArgs&) const override;
  void pool(const prim::PoolArgs&) override;

  // backend.cpp
  void* scratch(size_t bytes) override;
  void release_scratch(void* p, size_t bytes) noexcept override;
  void* allocate(size_t bytes) override;
  void deallocate(void* p, size_t bytes) noexcept override;
  bool has_own(prim::Primitive p, DType dtype) const override;
  std::string description() const override;

  // services.cpp
  void synchronize() override;
  void copy_to_host(void* dst, const void* src, size_t bytes) override;
  void copy_from_host(void* dst, const void* src, size_t bytes) override;
  void copy_to_host_async(Storage& host, void* dst, const void* src, size_t bytes) override;
  void copy_from_host_async(Storage& host, void* dst, const void* src, size_t bytes) override;
  void copy_from_peer(void* dst, prim::Backend& from, const void* src, size_t bytes) override;
  Allocator& pinned_allocator() override;

  prim::StreamHandle current_stream() override { return context_.stream(); }
  prim::StreamHandle default_stream() override { return context_.default_stream(); }
  void set_current_stream(prim::StreamHandle stream) override;
  prim::StreamHandle create_stream(int priority) override;
  void destroy_stream(prim::StreamHandle stream) noexcept override;
  void adopt_stream(prim::StreamHandle stream) override;
  bool stream_is_done(prim::StreamHandle stream) override;
  void synchronize_stream(prim::StreamHandle stream) override;
  void stream_wait_event(prim::StreamHandle stream, prim::EventHandle event) override;

  prim::EventHandle create_event(bool timing) override;
  void destroy_event(prim::EventHandle event) noexcept override;
  void record_event(prim::EventHandle event, prim::StreamHandle stream) override;
  bool event_is_done(prim::EventHandle event) override;
  void synchronize_event(prim::EventHandle event) override;
  double elapsed_time(prim::EventHandle begin, prim::EventHandle end) override;

  bool is_capturing() override { return context_.is_capturing(context_.stream()); }
  uint64_t create_pool() override;
  void release_pool(uint64_t pool) noexcept override;
  void begin_capture(prim::StreamHandle stream, uint64_t pool) override;
  prim::GraphHandle end_capture(prim::StreamHandle stream) override;
  void discard_capture(prim::StreamHandle stream) noexcept override;
  void launch_graph(prim::GraphHandle graph, prim::StreamHandle stream) override;
  void destroy_graph(prim::GraphHandle graph) noexcept override;

  MemoryStats memory_stats() const override;
  std::string memory_summary() const override;
  MemoryInfo memory_info() override;
  void reset_peak_memory_stats() override;
  void empty_cache() override;
  void set_memory_fraction(double fraction) override;

  DeviceContext& context() { return context_; }
  CachingAllocator& allocator() { return allocator_; }
  /// Of memory that other processes can open: made when some is asked for first.
  CachingAllocator& shared_allocator();
  bool has_recorded_graphs() const { return captures_.were_any(); }
  GraphCaptures& captures() { return captures_; }
  const DeviceLimits& limits() const { return context_.limits(); }

  /// Every primitive begins with this: makes the device current and tells the allocator which
  /// memory the current stream is about to use. Returns that stream.
  template <class Args>
  CUstream enter(const Args& args) {
    const CUstream stream = enter();
    if (several_streams()) [[unlikely]]
      prim::for_each_operand(args,
                             [&](const prim::View& v, prim::Access) { note_use(v.data, stream); });
    return stream;
  }
  /// Where a random call on the stream that enter() gave finds its state; null: it has none.
  template <class Args>
  const uint64_t* random_state(const Args& args, CUstream stream) {
    if (!args.state) return captures_.random_state(stream, args.seed, args.offset);
    ARETE_ASSERT(args.state.dtype == kInt64 && args.state.is_contiguous());
    return args.state.template as<uint64_t>();
  }
  CUstream enter() {
    context_.make_current();
    return context_.stream();
  }
  /// The compiled kernel of a source on this device.
  const Kernel& kernel(const KernelSource& source) { return find_kernel(context_, source); }
  /// Launches on the stream that enter() gave.
  template <class... Args>
  void launch(const Kernel& k, Dim3 grid, Dim3 block, size_t shared, CUstream stream,
              const Args&... args) {
    cuda::launch(context_, k, grid, block, shared, stream, args...);
  }

  /// Memory is used on a stream that enter() does not know of.
  void note_use(const void* p, CUstream stream);
  /// Whether streams besides the default one do what enter() precedes.
  bool several_streams() const { return several_streams_.load(std::memory_order_relaxed); }

 private:
  DeviceContext& context_;
  CachingAllocator& allocator_;
  std::atomic<CachingAllocator*> shared_{nullptr};  // for the rest of the process
  std::mutex shared_mutex_;
  GraphCaptures captures_;
  /// Set for good when the first stream besides the default one is made.
  std::atomic<bool> several_streams_{false};
};

/// The object of a device; made at first use.
CudaBackend& cuda_backend(int ordinal);

}  // namespace arete::cuda
