#include "arete/compile/device_graph_internal.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "arete/base/error.h"
#include "arete/compile/graph_internal.h"
#include "arete/compile/under_way_internal.h"
#include "arete/expr/program_cache.h"
#include "arete/expr/value.h"

namespace arete::compile {

using prim::Access;
using prim::PointwiseArgs;
using prim::Primitive;
using prim::View;

namespace {

// Between kernels that are launched one by one a device waits a microsecond, and a host that is
// busy with other things needs five or more for a step: of kernels that move so many bytes, which
// takes some fifteen, it is worth while.
constexpr size_t kBytesPerLaunch = size_t{64} << 20;
constexpr size_t kFewestSteps = 4;
constexpr int kMostCaptures = 5;
// Larger memory is not worth a copy, unless it is little beside what the steps move.
constexpr size_t kMostMovedBytes = size_t{8} << 20, kMostMovedPart = 128;
constexpr size_t kWordsApart = 2;  // 16 bytes
// Places of a ring: hosts are rarely so many launches ahead.
constexpr size_t kLaunchesOfRing = 256;

// Numbers of a call that are no parameters of programs come first.
size_t count_fields(const prim::RecordedCall& call, size_t numbers) {
  return numbers - call.numbers().size();
}
// Whose numbers begin with a seed and an offset.
bool is_random(const prim::RecordedCall& call) {
  return call.primitive() == Primitive::random || call.primitive() == Primitive::dropout ||
         call.primitive() == Primitive::attention;
}
bool reads(prim::RecordedCall& call, const Storage& memory) {
  bool found = false;
  call.for_each_operand([&](View& v, Access) { found |= v.storage == &memory; });
  return found;
}
// Copies of memory from place to place, all in one launch.
class Copies {
 public:
  void add(std::byte* to, const std::byte* from, int64_t bytes) {
    const auto all =
        reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | uintptr_t(bytes);
    (all % 4 == 0 ? words_ : bytes_).push_back({to, const_cast<std::byte*>(from), bytes});
  }
  void run(prim::Backend& backend) const {
    run(backend, words_, kInt32);
    run(backend, bytes_, kUInt8);
  }

 private:
  struct Copy {
    std::byte *to, *from;
    int64_t size;
  };
  static void run(prim::Backend& backend, const std::vector<Copy>& copies, DType dtype) {
    if (copies.empty()) return;
    const int64_t one = 1;
    std::vector<int64_t> sizes;
    for (const Copy& c : copies) sizes.push_back(c.size / int64_t(size_of(dtype)));
    std::vector<View> from, to;
    for (size_t k = 0; k < copies.size(); ++k) {
      from.push_back(View(copies[k].from, dtype, {&sizes[k], 1}, {&one, 1}));
      to.push_back(View(copies[k].to, dtype, {&sizes[k], 1}, {&one, 1}));
    }
    backend.multi_pointwise({.program = expr::conversion(dtype, dtype).get(),
                             .n_tensors = int64_t(copies.size()),
                             .inputs = from,
                             .outputs = to,
                             .params = {}});
  }
  std::vector<Copy> words_, bytes_;
};

// Why steps that move so many bytes shall be no graph; null: they may be one.
const char* obstacle_to(std::span<const GraphStep> steps, size_t bytes) {
  if (steps.empty()) return "it has no steps";
  const Device device = steps[0].call->device();
  if (!device.is_cuda()) return "it does not run on a GPU";
  if (steps.size() < kFewestSteps) return "so few steps are launched as fast one by one";
  if (bytes > steps.size() * kBytesPerLaunch)
    return "its steps take longer than the host needs to launch them";
  for (const GraphStep& step : steps) {
    if (step.call->device() != device) return "its steps run on several devices";
    if (step.call->primitive() == Primitive::linalg)
      return "a factorization or solver looks at values on the host";
  }
  return nullptr;
}

}  // namespace

DeviceGraph::DeviceGraph(std::span<const GraphStep> steps, size_t bytes) : bytes_(bytes) {
  if (const char* const why = obstacle_to(steps, bytes)) {
    why_not_ = why;
    return;
  }
  for (const GraphStep& step : steps) {
    size_t k = 0;
    const_cast<prim::RecordedCall*>(step.call)->for_each_operand([&](View&, Access access) {
      const int b = step.buffers[k++];
      if (b < 0) return;
      if (uses_.size() <= size_t(b)) uses_.resize(size_t(b) + 1);
      Use& use = uses_[size_t(b)];
      use.is_used = true;
      use.is_written |= access != Access::read;
    });
  }
  backend_ = &prim::backend_for(steps[0].call->device());
  may_ = true;
  why_not_ = "it has not run often enough yet";
}

DeviceGraph::~DeviceGraph() {
  drop();
  if (stream_) backend_->destroy_stream(stream_);
  if (pool_) backend_->release_pool(pool_);
}

void DeviceGraph::drop() noexcept {
  for (const Part& part : parts_)
    if (part.graph) backend_->destroy_graph(part.graph);
  parts_.clear();
  steps_.clear();
  calls_.clear();
  words_.clear();
  ring_ = nullptr;
  paging_ = nullptr;
  launches_ = 0;
  for (prim::EventHandle& event : half_is_read_)
    if (event) backend_->destroy_event(std::exchange(event, nullptr));
  for (Use& use : uses_) use.place = nullptr;
}

std::vector<StoragePtr> DeviceGraph::arenas() {
  // Of several streams none waits for what another one does there, and a capture by others keeps
  // the memory.
  if (!arenas_.empty() && (backend_->current_stream() != launched_on_ || backend_->is_capturing()))
    arenas_.clear();
  return arenas_;
}

void DeviceGraph::give_up(std::string why) noexcept {
  drop();
  arenas_.clear();
  page_ = nullptr;
  may_ = false;
  why_not_ = std::move(why);
}

bool DeviceGraph::run(UsedBuffers memory, std::span<const uint64_t> numbers) {
  is_due_ = false;
  if (!may_) return false;
  bool is_as_captured = is_captured() && backend_->current_stream() == launched_on_;
  size_t moved = 0;  // bytes of the largest result that is elsewhere than before
  for (size_t b = 0; b < uses_.size(); ++b) {
    Use& use = uses_[b];
    if (!use.is_used) continue;
    std::byte* const at = memory[b].base();
    // The first run had other memory around it: that of the calls that were written down.
    use.has_moved = runs_ > 1 && at != use.at && !use.moves;
    if (use.has_moved) {
      is_as_captured = false;
      // Results find their places by and by, and anew around what the first capture keeps.
      use.moves = !memory[b].is_new || captures_ > 1;
      if (use.moves && memory[b].is_new) moved = std::max(moved, memory[b].storage->bytes());
    }
    use.at = at;
  }
  // Memory made for a result is where that of the last run was, as long as nobody keeps those:
  // gradients that the next step drops. Once one is kept others, no larger, will be.
  if (moved > 0 && is_captured())
    for (size_t b = 0; b < uses_.size(); ++b)
      uses_[b].moves |= memory[b].is_new && memory[b].storage->bytes() <= moved;
  varies_.resize(numbers.size());
  for (size_t k = 0; k < last_.size(); ++k)
    if (last_[k] != numbers[k] && !varies_[k]) {
      varies_[k] = true;
      is_as_captured = false;
    }
  last_.assign(numbers.begin(), numbers.end());
  ++runs_;
  if (!is_as_captured) {
    if (is_captured()) {
      drop();
      due_ = runs_ + kRunsBefore - 1;  // until then it is seen what else changes
    }
    if (captures_ == kMostCaptures)
      give_up("what it works on changed again after each of several captures");
    is_due_ = may_ && runs_ >= due_ && !backend_->is_capturing();
    return false;
  }
  // Also what is only written, of which parts may stay as they are.
  Copies in, out;
  for (size_t b = 0; b < uses_.size(); ++b) {
    const Use& use = uses_[b];
    if (!use.place) continue;
    std::byte* const there = memory[b].base() + use.first;
    if (!memory[b].is_new) in.add(use.place->data(), there, use.last - use.first);
    if (use.is_written) out.add(there, use.place->data(), use.last - use.first);
  }
  in.run(*backend_);
  if (paging_) write_numbers(numbers);
  UnderWay under_way;
  bool is_page_read = !paging_;
  for (const Part& part : parts_) {
    for (const size_t step : part.waits) under_way.wait_for(step);
    if (!part.graph) {
      make_effect(part.step, memory, numbers, under_way);
      continue;
    }
    backend_->launch_graph(part.graph, launched_on_);
    // The first one moves the device on in the ring, whatever becomes of the others.
    if (!std::exchange(is_page_read, true)) count_launch();
  }
  under_way.wait_for_all();  // also for the graph's own memory
  out.run(*backend_);
  return true;
}

// The call that writes the page from the next place of the ring, of which each word has its own.
void DeviceGraph::make_page() {
  const size_t count = words_.size() * kWordsApart;
  const int64_t n = int64_t(count), all = n * int64_t(kLaunchesOfRing), one = 1;
  ring_ =
      Storage::create(kCPU, size_t(all) * sizeof(uint64_t), &backend_->pinned_allocator(), true);
  for (prim::EventHandle& event : half_is_read_) event = backend_->create_event(false);
  std::byte* const places = page_->data() + count * sizeof(uint64_t);
  std::vector<int64_t> first(count);
  std::iota(first.begin(), first.end(), int64_t{0});
  backend_->copy_from_host(places, first.data(), count * sizeof(uint64_t));
  static auto& programs = *new expr::ProgramCache;
  const expr::Program& program = programs.get(
      0, {kInt64, kInt64}, {expr::Type::i64, expr::Type::i64}, {kInt64, kInt64},
      [](std::span<const expr::Value> v) {
        const expr::Value ring = v[0], place = v[1], n = v[2], all = v[3];
        const expr::Value next = place + n;
        return std::vector{load(ring, place), where(next < all, next, next - all)};
      },
      1);
  const View inputs[] = {View(ring_->data(), kInt64, {&all, 1}, {&one, 1}, ring_.get()),
                         View(places, kInt64, {&n, 1}, {&one, 1}, page_.get())};
  const View outputs[] = {View(page_->data(), kInt64, {&n, 1}, {&one, 1}, page_.get()), inputs[1]};
  const expr::Literal params[] = {{.i = n}, {.i = all}};
  paging_ = prim::as_recorded(backend_->device(), PointwiseArgs{&program, inputs, outputs, params});
}

// Into the place of the launch that comes.
void DeviceGraph::write_numbers(std::span<const uint64_t> numbers) {
  constexpr size_t kHalf = kLaunchesOfRing / 2;
  if (launches_ % kHalf == 0 && launches_ >= kLaunchesOfRing)
    backend_->synchronize_event(half_is_read_[launches_ / kHalf % 2]);
  uint64_t* const page = reinterpret_cast<uint64_t*>(ring_->data()) +
                         launches_ % kLaunchesOfRing * words_.size() * kWordsApart;
  for (size_t w = 0; w < words_.size(); ++w) {
    const Word& word = words_[w];
    uint64_t value = numbers[word.number];
    if (word.is_seed) value ^= captured_[word.number];
    if (word.is_offset) value -= captured_[word.number];
    page[(w - size_t(word.is_offset)) * kWordsApart + size_t(word.is_offset)] = value;
  }
}

void DeviceGraph::count_launch() {
  constexpr size_t kHalf = kLaunchesOfRing / 2;
  if (++launches_ % kHalf == 0)
    backend_->record_event(half_is_read_[(launches_ / kHalf - 1) % 2], launched_on_);
}

void DeviceGraph::make_effect(size_t step, UsedBuffers memory, std::span<const uint64_t> numbers,
                              UnderWay& under_way) {
  prim::RecordedCall& call = *calls_[step];
  const GraphStep& its = steps_[step];
  size_t k = 0, n = 0;
  call.for_each_operand([&](View& v, Access) {
    const int b = its.buffers[k++];
    if (b >= 0 && !uses_[size_t(b)].place) v.storage = memory[size_t(b)].storage;
  });
  call.for_each_number(
      [&](void* place) { std::memcpy(place, &numbers[its.numbers[n++]], sizeof(uint64_t)); });
  under_way.make(step, call, its.is_awaited);
}

void DeviceGraph::capture(std::span<const GraphStep> steps, UsedBuffers memory,
                          std::span<const uint64_t> numbers, std::vector<StoragePtr> arenas) {
  is_due_ = false;
  ++captures_;
  for (Use& use : uses_) use.moves |= use.has_moved;  // other than in the last run
  arenas_ = std::move(arenas);
  steps_.assign(steps.begin(), steps.end());
  captured_.assign(numbers.begin(), numbers.end());
  const auto for_each_moving = [&](prim::RecordedCall& call, const GraphStep& step, auto&& f) {
    size_t k = 0;
    call.for_each_operand([&](View& v, Access) {
      const int b = step.buffers[k++];
      if (b >= 0 && uses_[size_t(b)].moves) f(v, uses_[size_t(b)], memory[size_t(b)].base());
    });
  };
  for (Use& use : uses_) use.first = INT64_MAX, use.last = INT64_MIN;
  for (const GraphStep& step : steps)
    for_each_moving(const_cast<prim::RecordedCall&>(*step.call), step,
                    [](const View& v, Use& use, const std::byte* base) {
                      const auto [first, last] = extent_of(v);
                      use.first = std::min(use.first, first - reinterpret_cast<intptr_t>(base));
                      use.last = std::max(use.last, last - reinterpret_cast<intptr_t>(base));
                    });
  size_t much = 0;
  for (const Use& use : uses_)
    if (use.last > use.first && size_t(use.last - use.first) > kMostMovedBytes)
      much += size_t(use.last - use.first);
  if (much > bytes_ / kMostMovedPart) return give_up("much memory lies elsewhere from run to run");
  try {
    for (Use& use : uses_)
      if (use.last > use.first) use.place = backend_->new_storage(size_t(use.last - use.first));
  } catch (const OutOfMemoryError&) {
    return give_up("there is no memory for copies of what lies elsewhere from run to run");
  }
  size_t count = 0;
  for (const GraphStep& step : steps) count += step.numbers.size();
  if (!page_)
    page_ = backend_->new_storage(2 * std::max<size_t>(1, count) * kWordsApart * sizeof(uint64_t));
  const int64_t two = 2, one = 1;
  for (const GraphStep& step : steps) {
    std::unique_ptr<prim::RecordedCall> call = step.call->clone();
    for_each_moving(*call, step, [](View& v, const Use& use, const std::byte* base) {
      v.data = use.place->data() + (v.data - base - use.first);
      v.storage = use.place.get();
    });
    const size_t fields = count_fields(*step.call, step.numbers.size());
    const auto address = [&] {
      return page_->data() + words_.size() * kWordsApart * sizeof(uint64_t);
    };
    for (size_t n = 0; n < step.numbers.size(); ++n) {
      if (!varies_[step.numbers[n]] || is_effect(*call)) continue;
      if (n >= fields) {
        const DType dtype = call->numbers()[n - fields].dtype;
        call->put_in_memory(n - fields, View(address(), dtype, {}, {}, page_.get()));
        words_.push_back({step.numbers[n], false, false});
      } else if (!is_random(*call) || n > 1) {
        return give_up("a number changes from run to run that a graph cannot read from memory");
      }
    }
    if (is_random(*call) && (varies_[step.numbers[0]] || varies_[step.numbers[1]])) {
      call->put_random_state(View(address(), kInt64, {&two, 1}, {&one, 1}, page_.get()));
      words_.push_back({step.numbers[0], true, false});
      words_.push_back({step.numbers[1], false, true});
    }
    calls_.push_back(std::move(call));
  }
  launched_on_ = backend_->current_stream();
  try {
    if (!pool_) pool_ = backend_->create_pool();
    if (!words_.empty()) make_page();
    prim::RecordedCall* before = paging_.get();  // in the first part
    for (size_t k = 0; k < calls_.size();) {
      parts_.push_back({.step = k, .waits = steps_[k].waits});
      if (is_effect(*calls_[k])) {
        ++k;
        continue;
      }
      std::vector<prim::RecordedCall*> part;
      // Behind the first step if that needs no numbers: what begins a graph is begun first.
      if (before && reads(*calls_[k], *page_)) part.push_back(std::exchange(before, nullptr));
      do {
        part.push_back(calls_[k++].get());
        if (before) part.push_back(std::exchange(before, nullptr));
      } while (k < calls_.size() && !is_effect(*calls_[k]) && steps_[k].waits.empty());
      capture_part(part);
    }
  } catch (const Error& e) {
    give_up(std::string("a step cannot be captured: ") + e.what());
  }
}

void DeviceGraph::capture_part(std::span<prim::RecordedCall* const> calls) {
  if (!stream_) stream_ = backend_->create_stream(0);
  backend_->begin_capture(stream_, pool_);
  try {
    const prim::StreamScope scope(*backend_, stream_);
    for (prim::RecordedCall* const call : calls) call->run_once();
  } catch (...) {
    backend_->discard_capture(stream_);
    throw;
  }
  parts_.back().graph = backend_->end_capture(stream_);
}

}  // namespace arete::compile
