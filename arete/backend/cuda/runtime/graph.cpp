#include "arete/backend/cuda/runtime/graph.h"

#include <algorithm>

#include "arete/backend/cuda/runtime/allocator.h"
#include "arete/backend/cuda/runtime/context.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"

namespace arete::cuda {

namespace {

// The capture that a stream takes part in; 0: none. The function's arguments depend
// on the version of the headers, the first three do not.
cuuint64_t capture_id(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
#if CUDA_VERSION >= 13000
  ARETE_CU(cuStreamGetCaptureInfo, stream, &status, &id, nullptr, nullptr, nullptr, nullptr);
#else
  ARETE_CU(cuStreamGetCaptureInfo, stream, &status, &id, nullptr, nullptr, nullptr);
#endif
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

}  // namespace

RandomState::RandomState(DeviceContext& device, Generator::State begin)
    : device_(device), begin_(begin) {
  // From the driver: memory of the capture's pool is used again within the graph.
  ARETE_CU(cuMemAlloc, &words_, 2 * sizeof(uint64_t));
}

RandomState::~RandomState() {
  try {
    device_.make_current();
    driver().cuMemFree(words_);
  } catch (...) {
    // The driver is gone, and its memory.
  }
}

void RandomState::move_on(CUstream stream) {
  const std::lock_guard lock(mutex_);
  const Generator::State now = default_generator().reserve(end_ - begin_.offset);
  write({now.seed ^ begin_.seed, now.offset - begin_.offset}, stream);
}

void RandomState::begin(CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (!written_) write({0, 0}, stream);
}

void RandomState::write(std::array<uint64_t, 2> words, CUstream stream) {
  for (size_t half = 0; half < 4; ++half) {
    const auto part = [&](uint64_t word) { return uint32_t(word >> half % 2 * 32); };
    if (!written_ || part(words[half / 2]) != part((*written_)[half / 2]))
      ARETE_CU(cuMemsetD32Async, words_ + half * 4, part(words[half / 2]), 1, stream);
  }
  written_ = words;
}

TakenInTurn::~TakenInTurn() {
  if (event_) device_.give_event(event_);
}

std::unique_lock<std::mutex> TakenInTurn::begin(CUstream stream) {
  std::unique_lock turn(mutex_);
  if (event_ && stream_ != stream)
    ARETE_CU(cuStreamWaitEvent, stream, event_, CU_EVENT_WAIT_DEFAULT);
  return turn;
}

void TakenInTurn::end(std::unique_lock<std::mutex> turn, CUstream stream) {
  ARETE_ASSERT(turn.mutex() == &mutex_ && turn.owns_lock());
  if (!event_) event_ = device_.take_event();
  ARETE_CU(cuEventRecord, event_, stream);
  stream_ = stream;
}

void GraphCaptures::begin(CUstream stream, uint64_t pool) {
  device_.make_current();
  allocator_.begin_pool(pool, stream);  // which may refuse the pool
  any_.store(true, std::memory_order_relaxed);
  try {
    // Relaxed: kernels may be compiled and loaded, and memory mapped, while work is recorded. What
    // would wait is refused by our own checks.
    ARETE_CU(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    const cuuint64_t id = capture_id(stream);
    const std::lock_guard lock(mutex_);
    captures_.push_back({stream, id, pool, {stream}, default_generator().state()});
  } catch (...) {
    allocator_.end_pool(stream);
    throw;
  }
  device_.add_capture(1);
}

GraphCaptures::Capture* GraphCaptures::find(CUstream stream) {
  const cuuint64_t id = capture_id(stream);
  if (id != 0)
    for (Capture& c : captures_)
      if (c.id == id) return &c;
  return nullptr;
}

void GraphCaptures::join(CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (Capture* c = find(stream)) add(*c, stream);
}

void GraphCaptures::add(Capture& c, CUstream stream) {
  if (std::find(c.streams.begin(), c.streams.end(), stream) != c.streams.end()) return;
  allocator_.begin_pool(c.pool, stream);
  c.streams.push_back(stream);
}

void GraphCaptures::keep(CUstream stream, StoragePtr memory) {
  const std::lock_guard lock(mutex_);
  if (Capture* c = find(stream)) c->kept.push_back(std::move(memory));
}

void GraphCaptures::note_use(const void* p, CUstream stream) {
  if (!device_.has_captures() || !device_.is_capturing(stream)) return;
  const std::lock_guard lock(mutex_);
  Capture* const c = find(stream);
  if (!c) return;
  // Nothing runs on the stream itself: what it uses need not wait for it.
  add(*c, stream);
  c->used.insert(p);
}

bool GraphCaptures::begin_turn(CUstream stream, const std::shared_ptr<TakenInTurn>& turns) {
  const std::lock_guard lock(mutex_);
  Capture* const c = find(stream);
  if (!c) return false;
  c->in_turn.insert(turns);
  if (c->turn_end && c->turn_end->queue() != stream)
    ARETE_CU(cuStreamWaitEvent, stream, c->turn_end->handle(), CU_EVENT_WAIT_DEFAULT);
  return true;
}

void GraphCaptures::end_turn(CUstream stream) {
  std::shared_ptr<RecordedEvent> end = record_event(device_, stream);
  const std::lock_guard lock(mutex_);
  if (Capture* const c = find(stream)) c->turn_end = std::move(end);
}

const uint64_t* GraphCaptures::random_state(CUstream stream, uint64_t seed, uint64_t offset) {
  if (!device_.has_captures() || !device_.is_capturing(stream)) [[likely]]
    return nullptr;
  const std::lock_guard lock(mutex_);
  Capture* const c = find(stream);
  if (!c) return nullptr;  // a capture by other code
  if (offset < c->random_begin.offset)
    for (const auto& known : random_states_)
      if (std::shared_ptr<RandomState> other = known.lock(); other && other->has(seed, offset)) {
        c->others.push_back(other);
        return other->words();
      }
  if (!c->random) c->random = std::make_shared<RandomState>(device_, c->random_begin);
  return c->random->words();
}

// Takes the capture out of the list.
GraphCaptures::Capture GraphCaptures::take(CUstream stream) {
  const std::lock_guard lock(mutex_);
  const auto c = std::find_if(captures_.begin(), captures_.end(),
                              [&](const Capture& x) { return x.origin == stream; });
  ARETE_ASSERT(c != captures_.end());
  Capture taken = std::move(*c);
  captures_.erase(c);
  return taken;
}

std::unique_ptr<CapturedGraph> GraphCaptures::end(CUstream stream) {
  device_.make_current();
  Capture c = take(stream);
  CUgraph graph = nullptr;
  const CUresult result = driver().cuStreamEndCapture(stream, &graph);
  device_.add_capture(-1);
  for (CUstream s : c.streams) allocator_.end_pool(s);
  if (result != CUDA_SUCCESS) {
    if (graph) driver().cuGraphDestroy(graph);
    throw_cuda_error(result,
                     "the capture of a graph failed; every stream that joined it must be waited "
                     "for before it ends");
  }
  auto captured = std::make_unique<CapturedGraph>();
  captured->kept = std::move(c.kept);
  captured->used.assign(c.used.begin(), c.used.end());  // in order
  captured->in_turn = std::move(c.in_turn);
  captured->others = std::move(c.others);
  if ((captured->random = c.random)) {
    c.random->close(default_generator().state());
    const std::lock_guard lock(mutex_);
    std::erase_if(random_states_, [](const auto& known) { return known.expired(); });
    random_states_.push_back(c.random);
  }
  const CUresult made = driver().cuGraphInstantiate(&captured->executable, graph, 0);
  driver().cuGraphDestroy(graph);
  check(made, "cuGraphInstantiate");
  // A wish: otherwise the first launch takes longer.
  driver().cuGraphUpload(captured->executable, stream);
  return captured;
}

void GraphCaptures::discard(CUstream stream) noexcept try {
  device_.make_current();
  const Capture c = take(stream);
  CUgraph graph = nullptr;
  driver().cuStreamEndCapture(stream, &graph);
  if (graph) driver().cuGraphDestroy(graph);
  device_.add_capture(-1);
  for (CUstream s : c.streams) allocator_.end_pool(s);
} catch (...) {
}

void GraphCaptures::launch(CapturedGraph& graph, CUstream stream) {
  device_.make_current();
  if (!graph.in_turn.empty())
    device_.check_not_capturing(stream, "the launch of a graph in which GPUs exchange by copies");
  if (graph.random) graph.random->move_on(stream);
  for (const auto& other : graph.others) other->begin(stream);
  std::vector<std::unique_lock<std::mutex>> taken;
  for (const auto& turns : graph.in_turn) taken.push_back(turns->begin(stream));
  ARETE_CU(cuGraphLaunch, graph.executable, stream);
  for (size_t i = 0; const auto& turns : graph.in_turn) turns->end(std::move(taken[i++]), stream);
  const std::lock_guard lock(graph.mutex);
  auto& streams = graph.launched_on;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

void GraphCaptures::destroy(CapturedGraph* graph) noexcept {
  if (!graph) return;
  try {
    device_.make_current();
    for (CUstream s : graph->launched_on)
      if (!device_.is_capturing(s)) driver().cuStreamSynchronize(s);
    driver().cuGraphExecDestroy(graph->executable);
  } catch (...) {
    // The driver is gone, and the graph with it.
  }
  delete graph;
}

}  // namespace arete::cuda
