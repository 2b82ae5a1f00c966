// The part of CUPTI's interface that is used here. CUPTI comes with the toolkit, but its headers
// often do not; of its records only the fields up to the last one used are declared, whose places
// have been the same since CUDA 11 (later versions add fields at the end).
#pragma once

#include <cstddef>
#include <cstdint>

namespace arete::cuda::cupti {

using Result = int;  // 0: success
using Kind = int32_t;

inline constexpr Kind kMemcpy = 1, kMemset = 2, kKernel = 3, kDriver = 4, kRuntime = 5,
                      kConcurrentKernel = 10, kExternalCorrelation = 39;
inline constexpr int32_t kCustomIds = 3;  // a kind of external ids that nobody else uses
inline constexpr uint32_t kFlushForced = 1;
inline constexpr int32_t kDriverCalls = 1;  // a domain of callbacks
inline constexpr int32_t kCallBegins = 0;   // a site of callbacks

/// What a callback is told about a call.
struct CallbackData {
  int32_t site;
  const char* function;
  const void* parameters;
  void* result;
  const char* symbol;
  void* context;
  uint32_t context_number;
  uint64_t* correlation_data;
  uint32_t correlation;
};

struct KernelRecord {
  Kind kind;
  uint8_t cache_config, shared_memory_config;
  uint16_t registers_per_thread;
  int32_t partitioned_requested, partitioned_executed;
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  int32_t static_shared, dynamic_shared;
  uint32_t local_per_thread, local_total, correlation;
  int64_t grid_id;
  const char* name;
};

struct MemcpyRecord {
  Kind kind;
  uint8_t copy_kind, source_kind, target_kind, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
};

struct MemsetRecord {
  Kind kind;
  uint32_t value;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
};

struct ApiRecord {
  Kind kind;
  uint32_t callback;
  uint64_t start, end;
  uint32_t process, thread, correlation, result;
};

struct ExternalRecord {
  Kind kind;
  int32_t external_kind;
  uint64_t id;
  uint32_t correlation;
};

}  // namespace arete::cuda::cupti
