// Collectives between GPUs of one host by copies over their links, which take no multiprocessors.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/lib/peer_exchange.h"
#include "arete/backend/cuda/runtime/event.h"
#include "arete/backend/cuda/runtime/graph.h"

namespace arete::cuda {

/// One rank's part. Each has memory that the others open (cuIpcOpenMemHandle), where a
/// PeerExchange's rooms are and words for meetings.
class PeerCopies {
 public:
  /// What calls they make: none (ARETE_PEER_COPIES=0), those that computation goes on beside
  /// (auto), of which NCCL's kernels would take multiprocessors, or all that they can (1).
  enum class Use : char { none = '0', overlapping = 'a', all = '1' };
  /// What ARETE_PEER_COPIES says, else none; ValueError for another value.
  static Use use();
  /// OutOfMemoryError; DeviceError where the driver has no handles of memory.
  explicit PeerCopies(CudaBackend& gpu);
  /// Waits until the others have come, too, or for two seconds.
  ~PeerCopies();
  PeerCopies(const PeerCopies&) = delete;
  PeerCopies& operator=(const PeerCopies&) = delete;

  /// What the others need to know: the use, this machine and the memory's handle. Who was told may
  /// open the memory.
  const std::string& offer() {
    may_be_open_ = true;
    return offer_;
  }
  /// Opens the memory of the others (2 to kMostPeers in all) by their offers, in the order of
  /// ranks. False if that cannot be: another machine or use, or no way between the GPUs.
  bool open(int rank, std::span<const std::string> offers);
  /// Once all have opened all.
  void start();
  /// Instead: closes what was opened.
  void close() noexcept;
  /// Once all have closed all, or nobody will open any: the memory goes with this object. Otherwise
  /// it stays until the process ends.
  void others_have_closed() { may_be_open_ = false; }

  bool takes(const prim::CollectiveArgs& call) const {
    return (call.overlaps || use() == Use::all) && PeerExchange::takes(call, ranks_, kLeast);
  }
  void run(const prim::CollectiveArgs& call, CUstream stream);
  /// Ends all waiting, for good. From any thread.
  void end() noexcept;

 private:
  static constexpr int kRooms = 2;
  static constexpr size_t kLeast = size_t(1) << 20;  // a smaller one is faster by kernels
  static constexpr size_t kRoom = size_t(16) << 20;  // bytes of a room
  static constexpr size_t kWords = 4096;             // bytes of the words of a room
  static constexpr size_t kRoundAt = 2048;           // how often this rank has met the others
  static size_t words_at(int room) { return size_t(room) * (kWords + kRoom); }

  class Steps;
  void capture(const prim::CollectiveArgs& call, CUstream stream);
  void allocate();
  void leave() noexcept;
  void release() noexcept;

  CudaBackend& gpu_;
  std::byte* memory_ = nullptr;
  std::string offer_;
  std::vector<std::byte*> opened_;  // of each rank; its own at its place
  int rank_ = 0, ranks_ = 0;
  bool may_be_open_ = false;
  std::optional<PeerExchange> exchange_;  // once it is started
  uint32_t* ended_ = nullptr;             // on the host
  CUdeviceptr ended_address_ = 0;
  CUstream beside_;  // of every second round
  // Calls of streams and replays of graphs have the same rooms.
  const std::shared_ptr<TakenInTurn> turns_;
};

}  // namespace arete::cuda
