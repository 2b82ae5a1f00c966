// Groups of processes that exchange tensors of GPUs, by NCCL, or what is large by copies.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <vector>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/lib/nccl_comm.h"
#include "arete/backend/cuda/peer_copies.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/event.h"
#include "arete/base/distributed_error.h"
#include "arete/prim/communicator.h"

namespace arete::cuda {
namespace {

class EventPoint final : public prim::StreamPoint {
 public:
  EventPoint(DeviceContext& device, CUstream stream)
      : device_(device),
        captured_(device.is_capturing(stream)),
        event_(record_event(device, stream)) {}

  bool is_done() noexcept override {
    // The event of a capture happens in replays; nobody may ask for it.
    return captured_ ? !device_.has_captures() : event_->is_done();
  }
  void hold(prim::StreamHandle handle) override {
    const auto stream = static_cast<CUstream>(handle);
    if (stream == event_->queue()) return;
    device_.make_current();
    if (captured_) {
      // The stream joins the capture. Of a graph that is closed the replays are in order anyway.
      if (!device_.has_captures()) return;
    } else if (device_.is_capturing(stream)) {
      return event_->wait();  // a graph waits for nothing outside
    }
    ARETE_CU(cuStreamWaitEvent, stream, event_->handle(), CU_EVENT_WAIT_DEFAULT);
  }

 private:
  DeviceContext& device_;
  const bool captured_;
  const std::shared_ptr<RecordedEvent> event_;
};

class CudaCommunicator final : public prim::StreamCommunicator {
 public:
  CudaCommunicator(CudaBackend& gpu, const Nccl& library, const nccl::UniqueId& id, int rank,
                   int size, std::chrono::milliseconds timeout)
      : gpu_(gpu),
        comm_(std::in_place, library, id, rank, size, gpu.limits().arch() >= 90, timeout,
              [&gpu] { gpu.context().make_current(); }),
        // Before the kernels of others: they have most of the device anyway.
        stream_(gpu.context().take_stream(-1)) {}
  ~CudaCommunicator() override {
    copies_.reset();
    comm_.reset();
    // Of one that was aborted the stream may have calls that never end.
    if (!aborted_) gpu_.context().give_stream(stream_);
  }

  /// What the library need not do, from now on.
  void take(std::unique_ptr<PeerCopies> copies) { copies_ = std::move(copies); }

  prim::StreamHandle stream() override { return stream_; }

  void run(std::span<const prim::CollectiveArgs> calls, prim::StreamHandle handle) override {
    gpu_.context().make_current();
    if (gpu_.several_streams()) {
      const auto current = static_cast<CUstream>(gpu_.current_stream());
      for (const prim::CollectiveArgs& a : calls) {
        for (const prim::View& v : a.in) gpu_.note_use(v.data, current);
        for (const prim::View& v : a.out) gpu_.note_use(v.data, current);
      }
    }
    const auto stream = static_cast<CUstream>(handle);
    // The library says what is wrong with calls, and with a group that was ended.
    std::vector<prim::CollectiveArgs> rest, large;
    for (const prim::CollectiveArgs& a : calls)
      (copies_ && !aborted_ && copies_->takes(a) ? large : rest).push_back(a);
    if (!rest.empty()) comm_->run(rest, stream);
    for (const prim::CollectiveArgs& a : large) copies_->run(a, stream);
  }

  std::shared_ptr<prim::StreamPoint> mark(prim::StreamHandle stream) override {
    return std::make_shared<EventPoint>(gpu_.context(), static_cast<CUstream>(stream));
  }

  std::string problem() override { return comm_->problem(); }

  void abort(const std::string& why) noexcept override {
    aborted_ = true;
    try {
      // Before those who wait for the device go on.
      gpu_.context().break_work(why);
    } catch (...) {
      // No memory for the text.
    }
    if (copies_) copies_->end();
    comm_->abort();
  }

 private:
  CudaBackend& gpu_;
  std::optional<NcclComm> comm_;  // until the end
  std::unique_ptr<PeerCopies> copies_;
  CUstream stream_;
  std::atomic<bool> aborted_{false};
};

constexpr std::string_view kOffer = "copies ";  // and where they go, beside who is there

// Stages of the making, as errors name them.
constexpr const char* const kToNccl = "NCCL";
constexpr const char* const kToOpen = "the opening of memory for copies";
constexpr const char* const kToClose = "the closing of memory for copies";

// Everybody is there before NCCL is asked, which would not say who is missing. Gives what each has
// said.
std::vector<std::string> meet(prim::Rendezvous& where, const char* stage, int rank, int size,
                              const std::string& said, std::chrono::milliseconds timeout) {
  const auto key = [&](int r) { return std::string(stage) + "/" + std::to_string(r); };
  where.set(key(rank), said);
  std::vector<std::string> all;
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (int r = 0; r < size; ++r) {
    const std::string name = key(r);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    try {
      where.wait({&name, 1}, std::max(left, std::chrono::milliseconds(1)));
    } catch (const DistributedError& e) {
      if (e.failure() != DistributedError::Failure::store) throw;
      throw DistributedError(DistributedError::Failure::backend, "init_process_group",
                             "rank " + std::to_string(r) + " of " + std::to_string(size) +
                                 " did not come to " + stage + " within " +
                                 std::to_string(timeout.count()) + " ms");
    }
    all.push_back(where.get(name));
  }
  return all;
}

// What the others may open; null where it is not wanted, or the driver has none.
std::unique_ptr<PeerCopies> make_copies(CudaBackend& gpu, int size) {
  if (PeerCopies::use() == PeerCopies::Use::none || size < 2 || size > kMostPeers) return nullptr;
  try {
    return std::make_unique<PeerCopies>(gpu);
  } catch (const Error&) {
    return nullptr;
  }
}

// The others' memory, if all want it and all reach all of it.
std::unique_ptr<PeerCopies> open_copies(std::unique_ptr<PeerCopies> copies, prim::Rendezvous& where,
                                        int rank, std::span<const std::string> offers,
                                        std::chrono::milliseconds timeout) {
  if (!copies) return nullptr;
  if (!std::ranges::all_of(offers, [](const std::string& o) { return o.starts_with(kOffer); })) {
    copies->others_have_closed();  // who sees this opens nothing
    return nullptr;
  }
  std::vector<std::string> handles;
  for (const std::string& o : offers) handles.push_back(o.substr(kOffer.size()));
  const std::string opened = copies->open(rank, handles) ? "opened" : "not opened";
  const auto all = meet(where, kToOpen, rank, int(offers.size()), opened, timeout);
  if (std::ranges::all_of(all, [](const std::string& s) { return s == "opened"; })) {
    copies->start();
    return copies;
  }
  copies->close();
  meet(where, kToClose, rank, int(offers.size()), "closed", timeout);
  copies->others_have_closed();
  return nullptr;
}

std::unique_ptr<prim::StreamCommunicator> make(int ordinal, prim::Rendezvous& where, int rank,
                                               int size, std::chrono::milliseconds timeout) {
  std::string problem;
  const Nccl* const library = find_nccl_library(problem);
  if (!library)
    throw DistributedError(DistributedError::Failure::backend, "init_process_group", problem);
  CudaBackend& gpu = cuda_backend(ordinal);
  gpu.context().make_current();
  nccl::UniqueId id{};
  if (rank == 0) {
    if (library->get_unique_id(&id) != nccl::kSuccess)
      throw DistributedError(DistributedError::Failure::backend, "init_process_group",
                             std::string("NCCL failed: ") + library->last_error(nullptr));
    where.set("nccl/id", {id.bytes, sizeof id.bytes});
  }
  auto copies = make_copies(gpu, size);
  const auto offers = meet(where, kToNccl, rank, size,
                           copies ? std::string(kOffer) + copies->offer() : "here", timeout);
  const std::string text = where.get("nccl/id");
  if (text.size() != sizeof id.bytes)
    throw DistributedError(DistributedError::Failure::store, "init_process_group",
                           "the store has something else under NCCL's key");
  std::memcpy(id.bytes, text.data(), sizeof id.bytes);
  auto made = std::make_unique<CudaCommunicator>(gpu, *library, id, rank, size, timeout);
  DeviceContext::forget_current();  // the library chooses devices too
  gpu.context().make_current();
  made->take(open_copies(std::move(copies), where, rank, offers, timeout));
  return made;
}

int version(std::string& problem) {
  const Nccl* const library = find_nccl_library(problem);
  return library ? library->version : 0;
}

}  // namespace

prim::StreamLibrary nccl_library() { return {&make, &version}; }

}  // namespace arete::cuda
