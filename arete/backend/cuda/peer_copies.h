// Collectives between GPUs of one host by copies over their links, which take no multiprocessors.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/lib/peer_exchange.h"

namespace arete::cuda {

/// One rank's part. Each has memory that the others open (cuIpcOpenMemHandle), where a
/// PeerExchange's rooms are and words for meetings.
class PeerCopies {
 public:
  /// Whether ARETE_PEER_COPIES wants them: 1.
  static bool are_wanted();
  /// OutOfMemoryError; DeviceError where the driver has no handles of memory.
  explicit PeerCopies(CudaBackend& gpu);
  /// Waits until the others have come, too, or for two seconds.
  ~PeerCopies();
  PeerCopies(const PeerCopies&) = delete;
  PeerCopies& operator=(const PeerCopies&) = delete;

  /// What the others need to know: this machine and the memory's handle.
  const std::string& offer() const { return offer_; }
  /// Opens the memory of the others (2 to kMostPeers in all) by their offers, in the order of
  /// ranks. False if that cannot be: another machine, no offer, or no way between the GPUs.
  bool open(int rank, std::span<const std::string> offers);
  /// Once all have opened all.
  void start();

  bool takes(const prim::CollectiveArgs& call) const {
    return PeerExchange::takes(call, ranks_, kLeast);
  }
  void run(const prim::CollectiveArgs& call, CUstream stream);
  /// Ends all waiting, for good. From any thread.
  void end() noexcept;

 private:
  // Calls in graphs have a room of their own: replays come in the order of their streams, which
  // others are in no order with. It is one: branches of a graph may be put one after the other in
  // another order by each process, and would wait for each other.
  enum Way { in_streams, in_graphs, kWays };
  static constexpr int kRooms = 3;  // two for streams
  static constexpr std::array<int, kWays> kFirst{0, 2};
  static constexpr size_t kLeast = size_t(1) << 20;  // a smaller one is faster by kernels
  static constexpr size_t kRoom = size_t(16) << 20;  // bytes of a room
  static constexpr size_t kWords = 4096;             // bytes of the words of a room
  static constexpr size_t kRoundAt = 2048;           // how often this rank has met the others
  static size_t words_at(int room) { return size_t(room) * (kWords + kRoom); }

  class Steps;
  void follow_last(CUstream stream, Way way);
  void mark_last(CUstream stream, Way way);
  void allocate();
  void leave() noexcept;
  void release() noexcept;

  CudaBackend& gpu_;
  std::byte* memory_ = nullptr;
  std::string offer_;
  std::vector<std::byte*> opened_;  // of each rank; its own at its place
  int rank_ = 0, ranks_ = 0;
  std::vector<PeerExchange> exchanges_;  // of each way
  uint32_t* ended_ = nullptr;            // on the host
  CUdeviceptr ended_address_ = 0;
  CUstream beside_;  // of every second round
  // The last call of each way: where it was put, the event of its end, and of graphs which one.
  struct Last {
    CUstream stream = nullptr;
    CUevent event = nullptr;
    cuuint64_t capture = 0;
  };
  std::array<Last, kWays> last_{};
};

}  // namespace arete::cuda
