// A communicator of NCCL: calls in our terms, errors as exceptions, an end that never hangs.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "arete/backend/cuda/lib/nccl.h"
#include "arete/prim/communicator.h"

namespace arete::cuda {

class NcclComm {
 public:
  /// Makes it, together with the other ranks; DistributedError if that fails or takes longer.
  /// `enter_device` makes the device a thread's own. `adds_float8`: the device can.
  NcclComm(
      const Nccl& library, const nccl::UniqueId& id, int rank, int size, bool adds_float8,
      std::chrono::milliseconds timeout, std::function<void()> enter_device = [] {});
  /// Ends it; nothing may be under way. See Note [The end of a communicator].
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// Puts calls into a stream as one group.
  void run(std::span<const prim::CollectiveArgs> calls, void* stream);
  /// What went wrong since; "" if nothing did. From any thread.
  std::string problem();
  /// Ends what is under way. From any thread.
  void abort() noexcept;

 private:
  struct Element {
    nccl::Type type;
    int count;  // of them in one of ours
    nccl::Op op;
    bool scales;
  };
  Element element_of(const prim::CollectiveArgs& a) const;
  nccl::Result put(nccl::Comm comm, const prim::CollectiveArgs& a, const Element& e,
                   void* stream) const;
  /// Waits until the library has done what it was asked for.
  void finish(std::unique_lock<std::timed_mutex>& lock, nccl::Result r, const char* what);
  [[noreturn]] void fail(nccl::Result r, const char* what) const;

  const Nccl& nccl_;
  const int rank_, size_;
  const bool adds_float8_;
  const std::chrono::milliseconds timeout_;
  std::timed_mutex mutex_;  // of all that uses comm_, but for abort()
  std::atomic<nccl::Comm> comm_ = nullptr;
};

}  // namespace arete::cuda
