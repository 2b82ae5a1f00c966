// NCCL, loaded when a group of processes first exchanges tensors of GPUs. Its header is not needed:
// what is declared here has been the same since version 2.18.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "arete/prim/communicator.h"

namespace arete::cuda {

/// NCCL's types, under its names for them.
namespace nccl {
using Comm = struct OpaqueComm*;
struct UniqueId {
  char bytes[128];
};
enum Result : int { kSuccess = 0, kInProgress = 7 };
enum Type : int {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
  kFloat8e4m3,
  kFloat8e5m2
};
enum Op : int { kSum, kProd, kMax, kMin, kAvg };
/// As of 2.18; later versions have more behind it, and know by the first fields that it is not
/// here.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = INT_MIN, cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};
constexpr int kOldest = 21800;
}  // namespace nccl

// X(name here, name there, parameters), of functions that give a Result.
#define ARETE_NCCL_FUNCTIONS(X)                                                                   \
  X(get_version, ncclGetVersion, (int*))                                                          \
  X(get_unique_id, ncclGetUniqueId, (nccl::UniqueId*))                                            \
  X(init_rank, ncclCommInitRankConfig, (nccl::Comm*, int, nccl::UniqueId, int, nccl::Config*))    \
  X(finalize, ncclCommFinalize, (nccl::Comm))                                                     \
  X(destroy, ncclCommDestroy, (nccl::Comm))                                                       \
  X(abort, ncclCommAbort, (nccl::Comm))                                                           \
  X(async_error, ncclCommGetAsyncError, (nccl::Comm, nccl::Result*))                              \
  X(all_reduce, ncclAllReduce,                                                                    \
    (const void*, void*, size_t, nccl::Type, nccl::Op, nccl::Comm, void*))                        \
  X(reduce, ncclReduce,                                                                           \
    (const void*, void*, size_t, nccl::Type, nccl::Op, int, nccl::Comm, void*))                   \
  X(broadcast, ncclBroadcast, (const void*, void*, size_t, nccl::Type, int, nccl::Comm, void*))   \
  X(all_gather, ncclAllGather, (const void*, void*, size_t, nccl::Type, nccl::Comm, void*))       \
  X(reduce_scatter, ncclReduceScatter,                                                            \
    (const void*, void*, size_t, nccl::Type, nccl::Op, nccl::Comm, void*))                        \
  X(send, ncclSend, (const void*, size_t, nccl::Type, int, nccl::Comm, void*))                    \
  X(recv, ncclRecv, (void*, size_t, nccl::Type, int, nccl::Comm, void*))                          \
  X(group_start, ncclGroupStart, ())                                                              \
  X(group_end, ncclGroupEnd, ())                                                                  \
  X(create_premul_sum, ncclRedOpCreatePreMulSum, (nccl::Op*, void*, nccl::Type, int, nccl::Comm)) \
  X(destroy_op, ncclRedOpDestroy, (nccl::Op, nccl::Comm))

/// Pointers to the library's functions.
struct Nccl {
#define ARETE_NCCL_POINTER(name, symbol, parameters) nccl::Result(*name) parameters = nullptr;
  ARETE_NCCL_FUNCTIONS(ARETE_NCCL_POINTER)
#undef ARETE_NCCL_POINTER
  const char* (*error_string)(nccl::Result) = nullptr;
  const char* (*last_error)(nccl::Comm) = nullptr;
  int version = 0;
};

/// The library, the file that $ARETE_NCCL_LIBRARY names if it is there; null with the reason in
/// `problem` where none is installed or it is too old. Loads it.
const Nccl* find_nccl_library(std::string& problem);

/// What groups of processes have of it (communicator.cpp).
prim::StreamLibrary nccl_library();

}  // namespace arete::cuda
