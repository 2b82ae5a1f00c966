// The seam: what a device must provide (docs/architecture.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "arete/core/device.h"
#include "arete/prim/args.h"
#include "arete/prim/device_runtime.h"

namespace arete::prim {

/// The compute primitives. Backends run them; recorders write them down (prim/recorder.h). Those up
/// to gemm are mandatory. The others are optional: the base class decomposes them into mandatory
/// ones (prim/decompose/), so overriding one is always an optimisation. fft and linalg are optional
/// for a Backend, which without its own lets the CPU compute them: no device gains by less.
class Primitives {
 public:
  virtual ~Primitives() = default;
  virtual Device device() const = 0;

  virtual void fill(const FillArgs&) = 0;
  virtual void copy(const CopyArgs&) = 0;
  virtual void iota(const IotaArgs&) = 0;
  virtual void pointwise(const PointwiseArgs&) = 0;
  virtual void reduce(const ReduceArgs&) = 0;
  virtual void arg_reduce(const ArgReduceArgs&) = 0;
  virtual void scan(const ScanArgs&) = 0;
  virtual void sort(const SortArgs&) = 0;
  virtual void gather(const GatherArgs&) = 0;
  virtual void scatter(const ScatterArgs&) = 0;
  virtual int64_t compact(const CompactArgs&) = 0;
  virtual void random(const RandomArgs&) = 0;
  virtual void gemm(const GemmArgs&) = 0;

  virtual void topk(const TopkArgs&);
  virtual void select(const SelectArgs&);
  virtual void take_rows(const TakeRowsArgs&);
  virtual void add_rows(const AddRowsArgs&);
  virtual void conv(const ConvArgs&);
  virtual void pool(const PoolArgs&);
  virtual void multi_pointwise(const MultiPointwiseArgs&);
  virtual void multi_reduce(const MultiReduceArgs&);
  virtual void dropout(const DropoutArgs&);
  virtual void attention(const AttentionArgs&);
  virtual void fused(const FusedArgs&);
  virtual void recurrence(const RecurrenceArgs&);
  virtual void fft(const FftArgs&) = 0;
  virtual void linalg(const LinalgArgs&) = 0;

  /// How many bytes of an intermediate result that is computed band by band to have at one time.
  virtual int64_t band_bytes() const { return int64_t(64) << 20; }
  /// Whether such a convolution is quicker where channels lie side by side.
  virtual bool wants_channels_last(const ConvArgs&) const { return false; }
  /// Whether products of a dtype take this activation, or its derivative, along on their way out.
  virtual bool has_epilogue(Activation, DType) const { return false; }
  /// Memory for a tensor, as calls will write and read it.
  virtual StoragePtr new_storage(size_t bytes) = 0;
  /// Temporary memory for decompositions and kernels, at least 64-byte aligned; usable until
  /// release_scratch in stream order.
  virtual void* scratch(size_t bytes) = 0;
  virtual void release_scratch(void* p, size_t bytes) noexcept = 0;
};

/// Scratch memory as RAII, seen as a contiguous view.
class ScratchView {
 public:
  ScratchView(Primitives& p, DType dtype, IntList sizes);
  ~ScratchView();
  ScratchView(const ScratchView&) = delete;
  ScratchView& operator=(const ScratchView&) = delete;
  const View& view() const { return view_; }
  operator const View&() const { return view_; }

 private:
  Primitives& primitives_;
  Layout layout_;
  size_t bytes_;
  void* data_;
  View view_;
};

/// The primitives by number: for statistics, records and what a backend is asked.
enum class Primitive : uint8_t {
#define ARETE_NAME_PRIMITIVE(name, Args) name,
  ARETE_PRIMITIVES(ARETE_NAME_PRIMITIVE)
#undef ARETE_NAME_PRIMITIVE
};
inline constexpr int kNumPrimitives = int(Primitive::linalg) + 1;
inline constexpr int kNumMandatory = int(Primitive::gemm) + 1;
const char* name_of(Primitive p);

using arete::MemoryStats;

/// A device's runtime services plus its primitives. One object per device, alive for the process.
class Backend : public Primitives, public DeviceRuntime {
 public:
  /// Whether the device has more than a decomposition for an optional primitive: asked by operators
  /// that can also compute their result in another way.
  virtual bool has_own(Primitive, DType) const { return false; }
  /// One line for `arete info`.
  virtual std::string description() const = 0;

  /// On the CPU, with copies to the host and back; waits for the device. An error while the current
  /// stream captures a graph.
  void fft(const FftArgs&) override;
  void linalg(const LinalgArgs&) override;
  StoragePtr new_storage(size_t bytes) override { return Storage::create(device(), bytes, this); }
};

/// The backend of a device, made at its first use; DeviceError saying why if there is none. cpu is
/// always there. In all of these a GPU without an ordinal is the calling thread's current one.
Backend& backend_for(Device device);
/// Null instead of an error.
Backend* find_backend(Device device) noexcept;
/// The same, but null too if the device has not been used yet.
Backend* used_backend(Device device) noexcept;
/// Called by backends when they load; the object lives for the rest of the process.
void register_backend(Device device, Backend* backend);
/// True in a process that was forked after its parent had begun to use a device that a plug-in
/// brings: see Note [Forked processes] in backend.cpp.
bool is_forked_from_device_user() noexcept;
/// Why there is no device of a type ("" if there is one).
std::string unavailable_reason(DeviceType type);
/// Set by a loader that tried and failed.
void set_unavailable_reason(DeviceType type, std::string reason);

}  // namespace arete::prim
