#include "arete/backend/cuda/peer_copies.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "arete/backend/cuda/codegen/peer.h"
#include "arete/backend/cuda/kernel_memo.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/event.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

// Mirror device/peer.cuh.
struct PeerSumArgs {
  const void* parts[kMostPeers];
  void* out;
  void* shared;
  int64_t n;
  double scale;
  int32_t aligned;
};
struct PeerMeetArgs {
  CUdeviceptr flags[kMostPeers];
  CUdeviceptr round, ended;
  int32_t rank, ranks;
};

// The same in all processes of a machine that runs, in containers too.
std::string machine() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// What the stream is given from now on comes after.
void follow(const RecordedEvent& event, CUstream stream) {
  ARETE_CU(cuStreamWaitEvent, stream, event.handle(), CU_EVENT_WAIT_DEFAULT);
}

}  // namespace

PeerCopies::Use PeerCopies::use() {
  static const Use result = [] {
    const char* const text = std::getenv("ARETE_PEER_COPIES");
    const std::string_view choice = text ? text : "";
    if (choice == "auto") return Use::overlapping;
    if (choice == "1") return Use::all;
    if (choice.empty() || choice == "0") return Use::none;
    throw ValueError("init_process_group", "ARETE_PEER_COPIES has another value")
        .expected("0, 1 or auto")
        .got(std::string(choice));
  }();
  return result;
}

class PeerCopies::Steps final : public PeerSteps {
 public:
  // A graph has all rounds in one stream: its branches may be put one after the other, in another
  // order by each process, and would wait for each other. What is in one room has the same order as
  // in two streams, so that some ranks may replay what others call.
  Steps(PeerCopies& copies, CUstream stream, bool in_one = false)
      : copies_(copies), main_(stream), stream_(stream) {
    if (!in_one) begin_ = record_event(copies_.gpu_.context(), main_);
  }

  void begin_round(int set) override {
    room_ = set;
    if (!begin_) return;
    stream_ = set == 0 ? main_ : copies_.beside_;
    if (set != 0 && !std::exchange(has_beside_, true)) follow(*begin_, stream_);
  }
  /// What follows in the stream comes after all rounds.
  void join() {
    if (has_beside_) follow(*record_event(copies_.gpu_.context(), copies_.beside_), main_);
  }

  void copy(std::byte* to, const std::byte* from, size_t bytes) override {
    if (bytes > 0) ARETE_CU(cuMemcpyAsync, address(to), address(from), bytes, stream_);
  }

  void meet() override {
    PeerMeetArgs a{};
    for (int r = 0; r < copies_.ranks_; ++r)
      a.flags[r] = address(copies_.opened_[size_t(r)]) + words_at(room_);
    a.round = a.flags[copies_.rank_] + kRoundAt;
    a.ended = copies_.ended_address_;
    a.rank = copies_.rank_;
    a.ranks = copies_.ranks_;
    static KernelTable<1> kernels;
    copies_.gpu_.launch(kernels.get(copies_.gpu_, 0, peer_meet_source), Dim3{}, Dim3{32}, 0,
                        stream_, a);
  }

  void add(const PeerSum& sum) override {
    if (sum.count == 0) return;
    const int ranks = copies_.ranks_;
    PeerSumArgs a{};
    uintptr_t places = uintptr_t(sum.out) | uintptr_t(sum.shared);
    for (int r = 0; r < ranks; ++r) {
      a.parts[r] = sum.parts[size_t(r)];
      places |= uintptr_t(a.parts[r]);
    }
    a.out = sum.out;
    a.shared = sum.shared;
    a.n = sum.count;
    a.scale = sum.scale;
    a.aligned = places % 16 == 0;
    static KernelTable<size_t(kNumDTypes) * (kMostPeers + 1)> kernels;
    const Kernel& k =
        kernels.get(copies_.gpu_, size_t(sum.dtype) * (kMostPeers + 1) + size_t(ranks),
                    [&] { return peer_sum_source(sum.dtype, ranks); });
    const int64_t per_block = 256 * 16 / int64_t(size_of(sum.dtype));
    const int64_t grid = std::min<int64_t>((sum.count + per_block - 1) / per_block,
                                           int64_t(copies_.gpu_.limits().multiprocessors) * 4);
    copies_.gpu_.launch(k, Dim3{unsigned(grid)}, Dim3{256}, 0, stream_, a);
  }

 private:
  PeerCopies& copies_;
  const CUstream main_;
  int room_ = 0;
  CUstream stream_;
  std::shared_ptr<RecordedEvent> begin_;  // of the call, which the second stream comes after
  bool has_beside_ = false;
};

PeerCopies::PeerCopies(CudaBackend& gpu)
    : gpu_(gpu),
      beside_(gpu.context().take_stream(-1)),
      turns_(std::make_shared<TakenInTurn>(gpu.context())) {
  try {
    allocate();
  } catch (...) {
    release();
    throw;
  }
}

void PeerCopies::allocate() {
  gpu_.context().make_current();
  CUdeviceptr memory = 0;
  const size_t bytes = words_at(kRooms);
  CUresult result = driver().cuMemAlloc(&memory, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    gpu_.empty_cache();
    result = driver().cuMemAlloc(&memory, bytes);
  }
  check(result, "cuMemAlloc");
  memory_ = reinterpret_cast<std::byte*>(memory);
  const CUstream stream = gpu_.context().default_stream();
  for (int room = 0; room < kRooms; ++room)
    ARETE_CU(cuMemsetD8Async, memory + words_at(room), 0, kWords, stream);
  ARETE_CU(cuStreamSynchronize, stream);
  void* host = nullptr;
  ARETE_CU(cuMemHostAlloc, &host, sizeof(uint32_t),
           CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  ended_ = static_cast<uint32_t*>(host);
  *ended_ = 0;
  ARETE_CU(cuMemHostGetDevicePointer, &ended_address_, host, 0);
  CUipcMemHandle handle;
  ARETE_CU(cuIpcGetMemHandle, &handle, memory);
  offer_ = std::string(handle.reserved, sizeof handle.reserved) + char(use()) + machine();
}

void PeerCopies::release() noexcept {
  gpu_.context().give_stream(beside_);
  if (memory_ && !may_be_open_) driver().cuMemFree(address(memory_));
  if (ended_) driver().cuMemFreeHost(ended_);
}

bool PeerCopies::open(int rank, std::span<const std::string> offers) {
  rank_ = rank;
  ranks_ = int(offers.size());
  opened_.assign(offers.size(), nullptr);
  opened_[size_t(rank)] = memory_;
  const std::string_view own = std::string_view(offer_).substr(sizeof(CUipcMemHandle::reserved));
  if (own.size() < 2) return false;  // no machine says which it is
  for (int r = 0; r < ranks_; ++r) {
    if (r == rank) continue;
    CUipcMemHandle handle;
    const std::string& text = offers[size_t(r)];
    if (text.size() != offer_.size() || !text.ends_with(own)) return false;
    std::memcpy(handle.reserved, text.data(), sizeof handle.reserved);
    CUdeviceptr begin = 0;
    if (driver().cuIpcOpenMemHandle(&begin, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
        CUDA_SUCCESS)
      return false;
    opened_[size_t(r)] = reinterpret_cast<std::byte*>(begin);
  }
  return true;
}

void PeerCopies::start() {
  using Rooms = std::vector<std::vector<std::byte*>>;
  Rooms rooms(kRooms);
  for (int room = 0; room < kRooms; ++room)
    for (std::byte* const memory : opened_)
      rooms[size_t(room)].push_back(memory + words_at(room) + kWords);
  const size_t place = kRoom / size_t(ranks_) / kWords * kWords;
  exchange_.emplace(rank_, std::move(rooms), place);
}

void PeerCopies::close() noexcept {
  for (size_t r = 0; r < opened_.size(); ++r)
    if (opened_[r] && int(r) != rank_) driver().cuIpcCloseMemHandle(address(opened_[r]));
  opened_.clear();
}

void PeerCopies::run(const prim::CollectiveArgs& call, CUstream stream) {
  if (gpu_.context().is_capturing(stream)) return capture(call, stream);
  auto turn = turns_->begin(stream);
  Steps steps(*this, stream);
  exchange_->run(call, steps);
  steps.join();
  turns_->end(std::move(turn), stream);
}

void PeerCopies::capture(const prim::CollectiveArgs& call, CUstream stream) {
  if (!gpu_.captures().begin_turn(stream, turns_))
    throw DeviceError(prim::name_of(call.kind),
                      "GPUs exchange by copies in graphs that were captured by Arete only")
        .hint("ARETE_PEER_COPIES=0 leaves all to NCCL");
  Steps steps(*this, stream, true);
  exchange_->run(call, steps);
  gpu_.captures().end_turn(stream);
}

void PeerCopies::end() noexcept {
  std::atomic_ref<uint32_t>(*ended_).store(1, std::memory_order_release);
}

// The others may still fetch what is here: nothing goes before they have come to the same place.
// Of who does not come the memory stays, until the process ends.
void PeerCopies::leave() noexcept try {
  constexpr std::chrono::seconds kTime(2);
  gpu_.context().make_current();
  if (exchange_) {
    if (std::atomic_ref<uint32_t>(*ended_).load() != 0) return;
    gpu_.context().wait_for_all();
    const CUstream stream = gpu_.context().take_stream(0);
    Steps(*this, stream).meet();
    const auto met = record_event(gpu_.context(), stream);
    const auto until = std::chrono::steady_clock::now() + kTime;
    while (!met->is_done() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    const bool all_came = met->is_done();
    end();
    ARETE_CU(cuStreamSynchronize, stream);
    gpu_.context().give_stream(stream);
    if (!all_came) return;
    others_have_closed();  // or will, and touch it no more
  }
  close();
  release();
} catch (...) {
  // The driver is gone, or the device is broken.
}

PeerCopies::~PeerCopies() { leave(); }

}  // namespace arete::cuda
