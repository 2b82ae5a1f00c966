#include "arete/distributed/flight_recorder.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "arete/base/distributed_error.h"
#include "arete/distributed/monitor.h"

namespace arete::distributed {

using nlohmann::json;
using std::chrono::steady_clock;

namespace {

thread_local constinit const CallLabel* innermost_label = nullptr;

CallShape shape_of(const prim::View* v) {
  CallShape shape;
  if (!v) return shape;
  shape.known = 1;
  shape.dim = uint8_t(std::min<size_t>(v->sizes.size(), 255));
  for (size_t i = 0; i < std::min(v->sizes.size(), shape.sizes.size()); ++i)
    shape.sizes[i] = v->sizes[i];
  return shape;
}

json sizes_of(const CallShape& shape) {
  json list = json::array();
  if (!shape.known) return list;
  json sizes = json::array();
  for (size_t i = 0; i < std::min<size_t>(shape.dim, shape.sizes.size()); ++i)
    sizes.push_back(shape.sizes[i]);
  list.push_back(std::move(sizes));
  return list;
}

std::string text_of(const CallShape& shape) {
  std::string text = "[";
  const size_t shown = std::min<size_t>(shape.dim, shape.sizes.size());
  for (size_t i = 0; i < shown; ++i) text += (i ? ", " : "") + std::to_string(shape.sizes[i]);
  return text + (shape.dim > shown ? ", ...]" : "]");
}

const char* name_of(const CallRecord& r) {
  switch (r.kind) {
    case CallKind::send:
      return "send";
    case CallKind::recv:
      return "recv";
    case CallKind::init:
      return "init_process_group";
    default:
      return prim::name_of(r.op);
  }
}

bool reduces(const CallRecord& r) {
  return r.kind == CallKind::collective &&
         (r.op == prim::CollectiveKind::all_reduce || r.op == prim::CollectiveKind::reduce ||
          r.op == prim::CollectiveKind::reduce_scatter);
}

// What must be the same on all ranks.
std::string signature_of(const CallRecord& r) {
  std::string text = name_of(r);
  if (reduces(r)) text += std::string(" ") + prim::name_of(r.reduce);
  if (r.has_dtype) text += " " + std::string(arete::name_of(r.dtype));
  if (r.numel >= 0)
    text += " of " + std::to_string(r.numel) + (r.numel == 1 ? " element" : " elements");
  if (r.root >= 0) text += " root " + std::to_string(r.root);
  return text;
}

const char* name_of(CallState state) {
  switch (state) {
    case CallState::queued:
      return "scheduled";
    case CallState::started:
      return "started";
    case CallState::done:
      return "completed";
    default:
      return "failed";
  }
}

bool is_under_way(const CallRecord& r) {
  return r.state == CallState::queued || r.state == CallState::started;
}

// Asks where the program is on a thread of its own, since it may hold what the answer needs.
class Places {
 public:
  void set_reader(PlaceReader reader) {
    const std::lock_guard lock(mutex_);
    reader_ = reader;
  }
  std::string ask(uint64_t thread, std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    // One that did not answer is not asked again until it does.
    if (!reader_ || busy_) return "";
    busy_ = true;
    try {
      std::thread([this, thread, reader = reader_] {
        std::string place = reader(thread);
        const std::lock_guard inner(mutex_);
        place_ = std::move(place);
        busy_ = false;
        answered_.notify_all();
      }).detach();
    } catch (const std::exception&) {
      busy_ = false;
      return "";
    }
    return answered_.wait_for(lock, most, [&] { return !busy_; }) ? place_ : "";
  }

 private:
  std::mutex mutex_;
  std::condition_variable answered_;
  PlaceReader reader_ = nullptr;
  bool busy_ = false;
  std::string place_;
};

// Never destroyed: threads may still tell it what they do.
Places& places() {
  static auto* const all = new Places;
  return *all;
}

}  // namespace

class FlightRecorder {
 public:
  static FlightRecorder& of_process() {
    static auto* const recorder = new FlightRecorder;
    return *recorder;
  }

  std::mutex mutex;
  std::array<CallRecord, GroupWatch::kRecorded> ring;
  uint64_t newest = 0;
  struct Names {
    std::string name, backend;
  };
  std::vector<std::weak_ptr<GroupWatch>> groups;
  std::vector<Names> names;  // of all that there ever were
  std::atomic<int> rank{0};

  CallRecord* find(uint64_t call) {
    CallRecord& r = ring[call % ring.size()];
    return call && r.number == call ? &r : nullptr;
  }

  json describe(const RecordOptions& options) {
    // Not held while the text is made, which takes long.
    std::vector<CallRecord> calls;
    json all_groups = json::array();
    std::vector<Names> group_names;
    uint64_t thread = 0;
    {
      const std::lock_guard lock(mutex);
      for (const auto& entry : groups) {
        const auto g = entry.lock();
        if (!g) continue;
        all_groups.push_back({{"id", g->id_},
                              {"name", g->name_},
                              {"backend", g->backend_},
                              {"rank", g->rank_},
                              {"ranks", g->ranks_},
                              {"issued", g->issued_},
                              {"done", g->done_}});
        if (g->thread_) thread = g->thread_;
      }
      group_names = names;
      const uint64_t oldest = newest >= ring.size() ? newest - ring.size() + 1 : 1;
      for (uint64_t n = oldest; n <= newest; ++n)
        if (const CallRecord* r = find(n)) calls.push_back(*r);
    }
    if (options.recent) keep_recent(calls, options.recent);
    const auto now = steady_clock::now();
    const auto wall = std::chrono::system_clock::now();
    const auto nanoseconds = [&](steady_clock::time_point t) -> json {
      if (t == steady_clock::time_point{}) return nullptr;
      return std::chrono::nanoseconds((wall - (now - t)).time_since_epoch()).count();
    };
    json entries = json::array();
    for (const CallRecord& r : calls) {
      const Names& group = group_names[r.group];
      const bool message = r.kind == CallKind::send || r.kind == CallKind::recv;
      std::string detail;
      const CallShape& shape = r.in.known ? r.in : r.out;
      if (r.has_dtype) detail = std::string(arete::name_of(r.dtype)) + text_of(shape);
      if (r.label) detail += (detail.empty() ? "" : ", ") + *r.label;
      const auto end = is_under_way(r) ? now : r.ended;
      const std::string dtype = r.has_dtype ? std::string(arete::name_of(r.dtype)) : "";
      json e = {
          {"record_id", r.number},
          {"pg_id", r.group},
          {"process_group", {group.name, ""}},
          {"collective_seq_id", message ? 0 : r.sequence},
          {"p2p_seq_id", message ? r.sequence : 0},
          {"op_id", r.sequence},
          {"profiling_name", group.backend + ":" + name_of(r)},
          {"time_created_ns", nanoseconds(r.queued)},
          {"time_discovered_started_ns", nanoseconds(r.started)},
          {"time_discovered_completed_ns", nanoseconds(r.ended)},
          {"duration_ms", std::chrono::duration<double, std::milli>(end - r.queued).count()},
          {"input_sizes", sizes_of(r.in)},
          {"output_sizes", sizes_of(r.out)},
          {"input_dtypes", r.in.known ? json::array({dtype}) : json::array()},
          {"output_dtypes", r.out.known ? json::array({dtype}) : json::array()},
          {"state", name_of(r.state)},
          {"is_p2p", message},
          {"retired", !is_under_way(r)},
          {"operation", name_of(r)},
          {"signature", signature_of(r)},
          {"detail", detail},
      };
      if (r.root >= 0) e["root"] = r.root;
      entries.push_back(std::move(e));
    }
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    json all = {{"version", "arete-1"},
                {"rank", rank.load()},
                {"host", host.data()},
                {"pid", getpid()},
                {"groups", std::move(all_groups)},
                {"entries", std::move(entries)}};
    if (options.place) all["place"] = places().ask(thread, std::chrono::milliseconds(200));
    return all;
  }

 private:
  // Of each group: the first calls that are under way, else the last ones.
  static void keep_recent(std::vector<CallRecord>& calls, size_t most) {
    std::vector<CallRecord> kept;
    std::vector<uint32_t> seen;
    for (const CallRecord& r : calls)
      if (std::ranges::find(seen, r.group) == seen.end()) seen.push_back(r.group);
    for (const uint32_t group : seen) {
      std::vector<CallRecord> of_group;
      std::ranges::copy_if(calls, std::back_inserter(of_group),
                           [&](const CallRecord& r) { return r.group == group; });
      auto first = std::ranges::find_if(of_group, is_under_way) - of_group.begin();
      first = std::max<ptrdiff_t>(first - 2, 0);
      first = std::min(first, std::max<ptrdiff_t>(std::ssize(of_group) - ptrdiff_t(most), 0));
      const size_t n = std::min(most, of_group.size() - size_t(first));
      kept.insert(kept.end(), of_group.begin() + first, of_group.begin() + first + ptrdiff_t(n));
    }
    calls = std::move(kept);
  }
};

// ---- GroupWatch

GroupWatch::GroupWatch(std::string name, std::string backend, int rank, std::vector<int> ranks)
    : name_(std::move(name)), backend_(std::move(backend)), rank_(rank), ranks_(std::move(ranks)) {}

std::shared_ptr<GroupWatch> GroupWatch::make(std::string name, std::string backend, int rank,
                                             std::vector<int> ranks) {
  std::shared_ptr<GroupWatch> made(
      new GroupWatch(std::move(name), std::move(backend), rank, std::move(ranks)));
  FlightRecorder& all = FlightRecorder::of_process();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.groups, [](const auto& g) { return g.expired(); });
  made->id_ = uint32_t(all.names.size());
  all.names.push_back({made->name_, made->backend_});
  all.groups.push_back(made);
  return made;
}

uint64_t GroupWatch::enter(const prim::CollectiveArgs& args) {
  using prim::CollectiveKind;
  CallRecord r;
  r.op = args.kind;
  r.reduce = args.reduce;
  const prim::View* const in = args.in.empty() ? nullptr : &args.in[0];
  const prim::View* const out = args.out.empty() ? nullptr : &args.out[0];
  r.in = shape_of(in);
  r.out = shape_of(out);
  if (const prim::View* v = in ? in : out) {
    r.has_dtype = true;
    r.dtype = v->dtype;
  }
  switch (args.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
      r.numel = in->numel();
      break;
    case CollectiveKind::broadcast:
      r.numel = out->numel();
      break;
    case CollectiveKind::reduce_scatter:
      r.numel = 0;
      for (const prim::View& v : args.in) r.numel += v.numel();
      break;
    default:  // sizes may differ
      break;
  }
  switch (args.kind) {
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      r.root = args.root;
      break;
    default:
      break;
  }
  return add(std::move(r));
}

uint64_t GroupWatch::enter(CallKind kind, int peer, const prim::View* view) {
  CallRecord r;
  r.kind = kind;
  r.root = peer;
  if (view) {
    (kind == CallKind::send ? r.in : r.out) = shape_of(view);
    r.has_dtype = true;
    r.dtype = view->dtype;
  }
  return add(std::move(r));
}

uint64_t GroupWatch::add(CallRecord r) {
  check_verdict(*this);
  r.group = id_;
  r.queued = steady_clock::now();
  r.label = CallLabel::current();
  FlightRecorder& all = FlightRecorder::of_process();
  const std::lock_guard lock(all.mutex);
  switch (r.kind) {
    case CallKind::collective:
      r.sequence = ++issued_;
      break;
    case CallKind::init:
      break;
    default:
      r.sequence = ++messages_;
      break;
  }
  thread_ = uint64_t(pthread_self());
  r.number = ++all.newest;
  CallRecord& slot = all.ring[r.number % all.ring.size()];
  slot = std::move(r);
  return slot.number;
}

void GroupWatch::start(uint64_t call) {
  FlightRecorder& all = FlightRecorder::of_process();
  const auto now = steady_clock::now();
  const std::lock_guard lock(all.mutex);
  if (CallRecord* r = all.find(call)) {
    r->started = now;
    r->state = CallState::started;
  }
}

uint64_t GroupWatch::sequence_of(uint64_t call) const noexcept {
  FlightRecorder& all = FlightRecorder::of_process();
  const std::lock_guard lock(all.mutex);
  const CallRecord* const r = all.find(call);
  return r ? r->sequence : 0;
}

void GroupWatch::leave(uint64_t call, bool failed) noexcept {
  FlightRecorder& all = FlightRecorder::of_process();
  const auto now = steady_clock::now();
  const std::lock_guard lock(all.mutex);
  CallRecord* const r = all.find(call);
  if (!r || !is_under_way(*r)) return;
  r->ended = now;
  r->state = failed ? CallState::failed : CallState::done;
  if (r->kind == CallKind::collective && !failed) done_ = std::max(done_, r->sequence);
}

void GroupWatch::rethrow(uint64_t call, const Error& error) {
  const auto* const e = dynamic_cast<const DistributedError*>(&error);
  if (!e) throw;
  steady_clock::time_point since;
  {
    FlightRecorder& all = FlightRecorder::of_process();
    const std::lock_guard lock(all.mutex);
    const CallRecord* const r = all.find(call);
    since = r ? r->queued : steady_clock::now();
  }
  explain_failure(*this, *e, since);
}

bool GroupWatch::has_one_of(const std::vector<int>& members) const {
  return members.empty() || std::ranges::any_of(members, [&](int r) {
           return std::ranges::find(ranks_, r) != ranks_.end();
         });
}

void GroupWatch::set_abort(std::function<void()> abort) {
  if (!abort) asked_ = true;
  const std::lock_guard lock(abort_mutex_);
  abort_ = std::move(abort);
}

void GroupWatch::abort() noexcept {
  const std::lock_guard lock(abort_mutex_);
  if (abort_) abort_();
}

// ---- labels, records, places

CallLabel::CallLabel(std::shared_ptr<const std::string> text)
    : text_(std::move(text)), outer_(innermost_label) {
  innermost_label = this;
}
std::shared_ptr<const std::string> CallLabel::current() {
  return innermost_label ? innermost_label->text_ : nullptr;
}
CallLabel::~CallLabel() { innermost_label = outer_; }

std::string flight_record(const RecordOptions& options) {
  return FlightRecorder::of_process().describe(options).dump(-1, ' ', false,
                                                             json::error_handler_t::replace);
}

void write_flight_record(const std::string& folder) {
  const std::string path =
      folder + "/rank_" + std::to_string(FlightRecorder::of_process().rank.load()) + ".json";
  // Whoever reads finds a whole one, or none.
  const std::string fresh = path + "." + std::to_string(getpid());
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::ofstream file(fresh);
  file << flight_record() << '\n';
  file.close();
  if (file) std::filesystem::rename(fresh, path, error);
  ARETE_CHECK(file && !error, IoError("flight_record", path + " cannot be written"));
}

std::vector<std::shared_ptr<GroupWatch>> watched_groups(const std::vector<int>& members) {
  FlightRecorder& all = FlightRecorder::of_process();
  std::vector<std::shared_ptr<GroupWatch>> found;
  const std::lock_guard lock(all.mutex);
  for (const auto& entry : all.groups)
    if (auto g = entry.lock(); g && g->has_one_of(members)) found.push_back(std::move(g));
  return found;
}

bool are_calls_under_way(const std::vector<int>& members) {
  const auto groups = watched_groups(members);
  FlightRecorder& all = FlightRecorder::of_process();
  const std::lock_guard lock(all.mutex);
  return std::ranges::any_of(all.ring, [&](const CallRecord& r) {
    return r.number && is_under_way(r) &&
           std::ranges::any_of(groups, [&](const auto& g) { return g->id_ == r.group; });
  });
}

void set_process_rank(int rank) { FlightRecorder::of_process().rank = rank; }
void set_place_reader(PlaceReader reader) { places().set_reader(reader); }

}  // namespace arete::distributed
