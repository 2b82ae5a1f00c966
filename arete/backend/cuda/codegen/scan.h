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
  void* carries = nullptr;
  std::byte* indices = nullptr;
  int64_t index_stride = 0, factors = 0;
  int32_t log_group = 0, phase = 3;
};

/// How a scan is laid out over the threads; depends on sizes, strides, alignment and the GPU only.
struct ScanPlan {
  enum class Form : uint8_t {
    rows,     ///< some threads of a warp for each lane
    tiles,    ///< a block walks along each lane, or chunk of one
    columns,  ///< a thread for each lane, or chunk of one
    teams,    ///< the warps of a block for 32 of these lanes, or vectors of them
  } form = Form::rows;
  prim::LoopNest lanes;  ///< without the scanned dimension; operands: out, in, indices if there
  int vector = 1, rounds = 1;
  bool reverse = false;
  ScanHeader header;
  unsigned grid = 1;
  static constexpr unsigned kThreads = 256;
  int64_t carries_bytes = 0;  ///< of the totals of chunks, if there is more than one
};

/// What is accumulated in: monoids of device/scan.cuh.
struct ScanTypes {
  std::string local, wide;
  int local_bytes, wide_bytes;
};
ScanTypes scan_types(const prim::ScanArgs& args);

/// At least one element. in and out may differ in dtype; factors lie as `in` does.
ScanPlan plan_scan(const prim::ScanArgs& args, int multiprocessors);

/// The kernel for plans of this form, vector width, rank and direction.
KernelSource scan_source(const prim::ScanArgs& args, const ScanPlan& plan);

/// The bytes of a kernel's arguments.
std::vector<std::byte> scan_arguments(const ScanPlan& plan);

}  // namespace arete::cuda
