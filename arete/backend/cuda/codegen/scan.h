// Scans as CUDA C++ text; the bodies are in device/scan.cuh.
#pragma once

#include <cstdint>
#include <vector>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/prim/args.h"
#include "arete/prim/loop_nest.h"

namespace arete::cuda {

/// The start of every kernel's arguments; mirrors ScanArguments in device/scan.cuh, which says what
/// the members are.
struct ScanHeader {
  std::byte *in = nullptr, *out = nullptr;
  int64_t n = 0, lanes = 0, in_stride = 0, out_stride = 0, parts = 1, chunk = 0;
  void *carries = nullptr, *status = nullptr;
  int32_t log_group = 0, phase = 3;
};

/// How a scan is laid out over the threads; depends on sizes, strides, alignment and the GPU only.
struct ScanPlan {
  enum class Form : uint8_t {
    rows,     ///< some threads of a warp for each lane
    tiles,    ///< a block walks along each lane
    waves,    ///< blocks share lanes
    columns,  ///< a thread for each lane, or chunk of one
  } form = Form::rows;
  prim::LoopNest lanes;  ///< without the scanned dimension; operands: out, in
  int vector = 1, rounds = 1;
  bool reverse = false;
  ScanHeader header;
  /// waves: more blocks than this have nothing to do, and all blocks must be resident at once.
  unsigned grid = 1;
  static constexpr unsigned kThreads = 256;
  static constexpr int kWaveWarps = 16, kWaveStages = 3;  ///< mirror device/scan.cuh
  static constexpr unsigned kWaveThreads = 32 * (kWaveWarps + 1);
  static constexpr int kWaveBlocks = 2;  ///< on a multiprocessor, if there is room for them
  unsigned threads() const { return form == Form::waves ? kWaveThreads : kThreads; }

  /// Bytes of the totals of chunks (columns), of published totals (waves).
  int64_t carries_bytes = 0, status_bytes = 0;
  int64_t shared_bytes = 0;  ///< of a block, besides static ones
};

/// What is accumulated in, as type names of device/dtype.cuh.
struct ScanTypes {
  const char *local, *wide;
  int local_bytes, wide_bytes;
};
ScanTypes scan_types(prim::Monoid monoid, DType out);

/// At least one element. in and out may differ in dtype.
ScanPlan plan_scan(const prim::ScanArgs& args, int multiprocessors);

/// The kernel for plans of this form, vector width, rank and direction.
KernelSource scan_source(const prim::ScanArgs& args, const ScanPlan& plan);

/// The bytes of a kernel's arguments.
std::vector<std::byte> scan_arguments(const ScanPlan& plan);

}  // namespace arete::cuda
