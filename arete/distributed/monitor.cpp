// The side of the monitor that is in each rank. See Note [The monitor].
#include "arete/distributed/monitor.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include <nlohmann/json.hpp>

#include "arete/distributed/monitor_messages_internal.h"
#include "arete/distributed/store_internal.h"
#include "arete/distributed/tcp_store.h"

namespace arete::distributed {

using nlohmann::json;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

constexpr auto kBeat = 500ms;
constexpr auto kServerSilence = 3s;
constexpr auto kGrace = 300ms;         // for a call to end by itself when the server is gone
constexpr auto kExplanation = 1500ms;  // that a call which failed waits for its reason
constexpr auto kAbort = 1s;            // that calls have to end when they are told to
constexpr size_t kRecentCalls = 4, kManyCalls = 256;

std::string setting(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

// Seconds that a call may wait for a rank that does other things.
double patience() {
  const std::string text = setting("ARETE_MONITOR_PATIENCE");
  return text.empty() ? MonitorServerOptions().patience : std::max(0.1, std::atof(text.c_str()));
}

void print(const std::string& text) {
  const std::string whole = "arete: " + text + "\n";
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, whole.data(), whole.size());
}

struct Report {
  std::string text;
  std::vector<int> culprits;
  bool hopeless = false;
  steady_clock::time_point at = steady_clock::now();
};

// The descriptor of the connection, which forked processes are not to keep open: the server would
// not hear of this one's death.
std::atomic<int> connection_of_process{-1};

// Whether calls must look for a report before they begin.
std::atomic<bool> any_verdict{false};

}  // namespace

class Monitor {
 public:
  Monitor(StorePtr store, int rank, int size)
      : rank_(rank),
        size_(size),
        store_(std::move(store)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        folder_(setting("ARETE_FLIGHT_DIR")) {
    thread_ = std::thread([this] { run(); });
  }

  ~Monitor() {
    ends_ = true;
    wake();
    thread_.join();
  }

  void leave(const std::string& why) {
    const std::lock_guard lock(mutex_);
    bye_ = why;
  }

  std::string last_report() {
    const std::lock_guard lock(mutex_);
    return reports_.empty() ? "" : reports_.back().text;
  }

  // What makes calls of these ranks hopeless; empty if nothing does.
  std::string verdict_on(const std::vector<int>& ranks) {
    const std::lock_guard lock(mutex_);
    return report_locked(ranks, std::nullopt);
  }

  // The same after a while, in which the server hears that a call has failed, or what was told
  // since it was made.
  std::string wait_for_report(const std::vector<int>& ranks, steady_clock::time_point since,
                              bool waits) {
    urgent_ = true;
    wake();
    std::unique_lock lock(mutex_);
    std::string text;
    changed_.wait_for(lock, waits ? kExplanation : 0ms, [&] {
      text = report_locked(ranks, std::nullopt);
      return !text.empty() || done_;
    });
    return text.empty() ? report_locked(ranks, since) : text;
  }

  // The process is about to end by a mistake.
  void last_words(const std::string& why) {
    {
      const std::unique_lock lock(connection_mutex_, 100ms);
      if (!lock || !connection_) return;
      connection_->send(line_of(
          {{"bye", why}, {"failed", true}, {"ends", true}, {"record", record(kRecentCalls)}}));
      connection_->flush();
    }
    // The report, printed by whoever has the server, comes before the end.
    std::unique_lock reports_lock(mutex_);
    changed_.wait_for(reports_lock, 1s, [&] { return any_verdict.load(); });
  }

 private:
  json record(size_t recent, bool place = false) const {
    return json::parse(flight_record({.recent = recent, .place = place}));
  }

  // The newest that is hopeless, or that is not but was told since then.
  std::string report_locked(const std::vector<int>& ranks,
                            std::optional<steady_clock::time_point> since) const {
    for (auto r = reports_.rbegin(); r != reports_.rend(); ++r)
      if ((since ? !r->hopeless && r->at >= *since : r->hopeless) &&
          (r->culprits.empty() || std::ranges::any_of(r->culprits, [&](int c) {
             return std::ranges::find(ranks, c) != ranks.end();
           })))
        return r->text;
    return "";
  }

  void wake() {
    const uint64_t one = 1;
    while (::write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }

  // Sleeps, unless woken; whether there is something to read.
  bool sleep(std::chrono::milliseconds most) {
    pollfd polled[2] = {{wake_.get(), POLLIN, 0},
                        {connection_ ? connection_->fd() : -1, POLLIN, 0}};
    poll(polled, 2, int(most.count()));
    if (polled[0].revents) {
      uint64_t count;
      [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof(count));
    }
    return polled[1].revents != 0;
  }

  void run() {
    try {
      if (connect()) {
        exchange();
        if (!ends_) judge_alone();
      }
    } catch (const std::exception& e) {
      if (!ends_ && rank_ == 0) print(std::string("this job is not watched any more: ") + e.what());
    }
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  bool connect() {
    const std::string key = kMonitorKey;
    const auto begin = steady_clock::now();
    bool told = false;
    // Not a wait: others use the store, too.
    while (!store_->check({&key, 1})) {
      if (ends_) return false;
      sleep(20ms);
      // Whoever would say it is who does not come.
      const std::chrono::duration<double> waited = steady_clock::now() - begin;
      if (told || waited.count() < patience()) continue;
      told = true;
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.1f s", waited.count());
      tell({.kind = Finding::Kind::behind,
            .culprits = {0},
            .text = std::string("rank 0 has not come to init_process_group, for ") + seconds +
                    "; the others wait"});
    }
    const json address = json::parse(store_->get(key));
    store_ = nullptr;
    const auto host = address.at("host").get<std::string>();
    const auto port = address.at("port").get<uint16_t>();
    Descriptor socket;
    for (const auto until = steady_clock::now() + 5s; !socket;) {
      try {
        socket = connect_to(host, port, 200ms);
      } catch (const DistributedError& e) {
        if (e.message().find("refused") != std::string::npos) {
          // Its process was there and has ended, unless something on the way refuses: then calls do
          // not fail.
          refused_ = lost_ = true;
          answered_ = steady_clock::now();
          return true;
        }
        if (ends_ || steady_clock::now() >= until) throw;
      }
    }
    auto connection = std::make_unique<LineConnection>(std::move(socket), kMostLine);
    connection_of_process = connection->fd();
    connection->send(line_of({{"token", address.at("token")}, {"rank", rank_}, {"size", size_}}));
    const std::lock_guard lock(connection_mutex_);
    connection_ = std::move(connection);
    return true;
  }

  void exchange() {
    if (lost_) return;
    auto beat_at = steady_clock::now();
    answered_ = beat_at;
    while (!lost_ && !server_ended_) {
      const bool leaves = ends_;
      const auto now = steady_clock::now();
      {
        const std::lock_guard lock(connection_mutex_);
        if (leaves) {
          std::string why;
          {
            const std::lock_guard inner(mutex_);
            why = bye_;
          }
          connection_->send(line_of({{"bye", why.empty() ? "has left the group" : why},
                                     {"ends", !why.empty()},
                                     {"record", record(kRecentCalls)}}));
          return say_goodbye();
        }
        if (urgent_.exchange(false) || now >= beat_at) {
          connection_->send(line_of({{"record", record(kRecentCalls)}}));
          beat_at = now + kBeat;
        }
        if (!connection_->flush()) lost_ = true;
      }
      check_server(now);
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(beat_at - steady_clock::now());
      if (sleep(std::max(left, 1ms))) read();
    }
  }

  // Until the server has heard it: to close at once would take back what it has not read.
  void say_goodbye() {
    const auto until = steady_clock::now() + kGrace;
    bool open = true;
    while (open && connection_->wants_to_send() && steady_clock::now() < until) {
      open = connection_->flush();
      if (open && connection_->wants_to_send()) std::this_thread::sleep_for(5ms);
    }
    shutdown(connection_->fd(), SHUT_WR);
    while (open && steady_clock::now() < until) {
      pollfd polled{connection_->fd(), POLLIN, 0};
      poll(&polled, 1, 20);
      open = connection_->receive();
    }
  }

  void read() {
    std::vector<std::string> lines;
    bool open;
    {
      const std::lock_guard lock(connection_mutex_);
      open = connection_->receive();
      for (std::string text; connection_->next(text);) lines.push_back(text);
    }
    for (const std::string& text : lines) answer(json::parse(text));
    if (!open) lost_ = true;
  }

  void answer(const json& message) {
    answered_ = steady_clock::now();
    if (message.contains("pid")) {
      server_ = message.at("server").get<std::string>();
      server_host_ = message.at("host").get<std::string>();
      server_pid_ = message.at("pid").get<int64_t>();
    }
    if (message.contains("end")) {
      server_ended_ = true;
      if (const auto record = message.find("record"); record != message.end()) {
        server_left_ = read_flight_record(record->dump());
        server_left_->rank = 0;
        server_left_->status = RankSummary::Status::left;
        server_left_->why = message.at("why").get<std::string>();
        server_left_->ends = true;
      }
    }
    if (const auto ask = message.find("ask"); ask != message.end()) {
      const bool all = *ask == "all";
      const std::string text =
          line_of({{"record", record(all ? kManyCalls : kRecentCalls, *ask == "place")}});
      const std::lock_guard lock(connection_mutex_);
      connection_->send(text);
    }
    if (message.contains("report"))
      take({message.at("report").get<std::string>(), message.at("culprits").get<std::vector<int>>(),
            message.at("hopeless").get<bool>()});
  }

  // Whether the server still answers. Where it is one of the ranks, the others notice by themselves
  // that that one is stopped or gone.
  void check_server(steady_clock::time_point now) {
    if (now - answered_ < kServerSilence || said_silent_) return;
    const RankSummary server = server_summary(RankSummary::Status::silent, now);
    if (const auto finding = judge(server)) {
      said_silent_ = true;
      tell(*finding);
    }
  }

  // The server is gone, or has left: calls that are under way, or begin later, may need its rank.
  void judge_alone() {
    if (server_ended_ && !server_left_) return;
    const auto until = steady_clock::now() + kGrace;
    while (steady_clock::now() < until && !ends_ && !urgent_) sleep(50ms);
    // A call that failed may have asked the server before it was known to be gone.
    for (bool judges = !refused_; !ends_ && !any_verdict;
         judges = !refused_ && are_calls_under_way({})) {
      if (urgent_.exchange(false) || judges)
        if (const auto finding =
                judge(server_left_ ? *server_left_
                                   : server_summary(RankSummary::Status::gone, answered_)))
          return tell(*finding);
      sleep(100ms);
    }
  }

  RankSummary server_summary(RankSummary::Status status, steady_clock::time_point now) const {
    RankSummary server{.rank = 0, .host = server_host_, .pid = server_pid_, .status = status};
    server.silent_for = std::chrono::duration<double>(now - answered_).count();
    server.why = status == RankSummary::Status::silent ? state_of_process(server_host_, server_pid_)
                                                       : "has ended without a word";
    return server;
  }

  // What is wrong if the server is as it says.
  std::optional<Finding> judge(const RankSummary& server) {
    RankSummary self = read_flight_record(flight_record({.recent = kRecentCalls}));
    self.heard_since = true;
    if (server_.empty()) return diagnose({server, self});
    if (!are_calls_under_way({})) return std::nullopt;
    const bool gone = server.status == RankSummary::Status::gone;
    return Finding{.kind = gone ? Finding::Kind::gone : Finding::Kind::silent,
                   .culprits = {},
                   .text = server_ + " (node " + server_host_ + ", pid " +
                           std::to_string(server_pid_) + ")" +
                           (gone ? " has ended" : " does not answer"),
                   .hopeless = gone};
  }

  void tell(const Finding& finding) {
    // One of those that know it says so.
    const int first = server_.empty() ? 1 : 0;
    if (rank_ == first) print(finding.text);
    take({finding.text, finding.culprits, finding.hopeless});
  }

  void take(Report report) {
    const bool hopeless = report.hopeless;
    const std::vector<int> culprits = report.culprits;
    {
      const std::lock_guard lock(mutex_);
      reports_.push_back(std::move(report));
      if (reports_.size() > 64) reports_.erase(reports_.begin());
      if (hopeless) any_verdict = true;
      changed_.notify_all();
    }
    if (!folder_.empty()) {
      try {
        write_flight_record(folder_);
      } catch (const Error& e) {
        print(e.what());
      }
    }
    if (hopeless) end_calls(culprits);
  }

  // Never hangs: libraries may not return from ending what is under way.
  void end_calls(const std::vector<int>& members) {
    if (!are_calls_under_way(members)) return;
    std::thread([groups = watched_groups(members)] {
      for (const auto& group : groups) group->abort();
    }).detach();
    const auto until = steady_clock::now() + kAbort;
    while (are_calls_under_way(members)) {
      if (steady_clock::now() >= until) {
        if (setting("ARETE_ABORT") == "wait") return;
        print("rank " + std::to_string(rank_) +
              "'s calls did not end in a second after that: the process ends");
        _exit(1);
      }
      std::this_thread::sleep_for(5ms);
    }
  }

  const int rank_, size_;
  StorePtr store_;  // until the server is known
  Descriptor wake_;
  const std::string folder_;
  std::atomic<bool> ends_{false}, urgent_{false}, lost_{false};

  std::timed_mutex connection_mutex_;
  std::unique_ptr<LineConnection> connection_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Report> reports_;
  std::string bye_;
  bool done_ = false;

  // Of the thread.
  steady_clock::time_point answered_;
  std::string server_, server_host_;
  int64_t server_pid_ = 0;
  bool server_ended_ = false, said_silent_ = false, refused_ = false;
  std::optional<RankSummary> server_left_;  // the rank that it was in
  std::thread thread_;
};

namespace {

// Never destroyed: threads of the program may be in a call at its end.
struct Watched {
  std::mutex mutex;
  std::shared_ptr<Monitor> monitor;
  std::unique_ptr<MonitorServer> server;  // of rank 0, for as long as the process lives
  pid_t process = 0;                      // whose threads these are: not those forked from it
};
Watched& watched_process() {
  static auto* const all = new Watched;
  return *all;
}

std::shared_ptr<Monitor> monitor_of_process() {
  Watched& all = watched_process();
  const std::lock_guard lock(all.mutex);
  return all.monitor;
}

// Where the ranks' store is, for those of other machines.
std::string host_of(const StorePtr& store) {
  const Store* s = store.get();
  while (const auto* prefix = dynamic_cast<const PrefixStore*>(s))
    s = prefix->underlying_store().get();
  const auto* tcp = dynamic_cast<const TCPStore*>(s);
  return tcp && !is_loopback(tcp->host()) ? tcp->host() : "127.0.0.1";
}

std::terminate_handler other_handler = nullptr;

[[noreturn]] void at_terminate() {
  std::string why = "has ended by an exception that nobody caught";
  try {
    if (std::current_exception()) throw;
  } catch (const std::exception& e) {
    why += std::string(": ") + e.what();
  } catch (...) {
  }
  if (const auto monitor = monitor_of_process()) monitor->last_words(why);
  if (other_handler) other_handler();
  std::abort();
}

void register_process() {
  static const bool once = [] {
    std::atexit([] {
      stop_monitor("has ended its program");
      if (watched_process().process == getpid()) watched_process().server = nullptr;
    });
    pthread_atfork(nullptr, nullptr, [] {
      if (const int fd = connection_of_process.exchange(-1); fd >= 0) ::close(fd);
    });
    other_handler = std::set_terminate(at_terminate);
    return true;
  }();
  (void)once;
}

class WatchedStore final : public Store {
 public:
  WatchedStore(StorePtr store, std::shared_ptr<GroupWatch> watch)
      : store_(std::move(store)), watch_(std::move(watch)) {}
  void set(const std::string& key, std::string_view value) override { store_->set(key, value); }
  std::string get(const std::string& key) override {
    wait({&key, 1});
    return store_->get(key);
  }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(key, amount); }
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override {
    return store_->compare_set(key, expected, desired);
  }
  bool check(std::span<const std::string> keys) override { return store_->check(keys); }
  void wait(std::span<const std::string> keys, std::optional<Milliseconds> limit = {}) override {
    constexpr Milliseconds kSlice(200);
    const Milliseconds most = limit.value_or(store_->timeout());
    for (Milliseconds waited(0);; waited += kSlice) {
      const Milliseconds slice = std::min(kSlice, most - waited);
      const auto begun = steady_clock::now();
      try {
        return store_->wait(keys, slice);
      } catch (const DistributedError& e) {
        // Well before its end it is no timeout: the store itself has failed.
        if (e.failure() != DistributedError::Failure::store ||
            steady_clock::now() - begun < slice / 2)
          throw;
      }
      check_verdict(*watch_);
      if (waited + kSlice >= most) throw_store_timeout(keys, most);
      // Others use the store, too.
      std::this_thread::sleep_for(1ms);
    }
  }
  bool delete_key(const std::string& key) override { return store_->delete_key(key); }
  int64_t num_keys() override { return store_->num_keys(); }
  void append(const std::string& key, std::string_view value) override {
    store_->append(key, value);
  }
  Milliseconds timeout() const override { return store_->timeout(); }
  void set_timeout(Milliseconds timeout) override { store_->set_timeout(timeout); }

 private:
  StorePtr store_;
  std::shared_ptr<GroupWatch> watch_;
};

[[noreturn]] void throw_report(const std::string& op, const std::string& report,
                               const std::string& before = "") {
  throw DistributedError(DistributedError::Failure::backend, op,
                         report + (before.empty() ? "" : " [" + before + "]"));
}

}  // namespace

void start_monitor(const StorePtr& store, int rank, int size) {
  set_process_rank(rank);
  if (size < 2 || setting("ARETE_MONITOR") == "0") return;
  register_process();
  Watched& all = watched_process();
  const std::lock_guard lock(all.mutex);
  if (all.process != getpid()) {
    // A forked process has no threads of its parent's.
    new std::shared_ptr<Monitor>(std::move(all.monitor));
    all.server.release();
    all.process = getpid();
  }
  any_verdict = false;
  const std::string key = kMonitorKey;
  if (rank == 0 && !store->check({&key, 1})) {
    if (!all.server) {
      MonitorServerOptions options{.host = host_of(store), .size = size, .patience = patience()};
      options.report = [](const Finding& f) { print(f.text); };
      all.server = std::make_unique<MonitorServer>(options);
    }
    store->set(key, all.server->address());
  }
  all.monitor = std::make_shared<Monitor>(store, rank, size);
}

void stop_monitor(const std::string& why) noexcept {
  std::shared_ptr<Monitor> monitor;
  {
    Watched& all = watched_process();
    const std::lock_guard lock(all.mutex);
    if (all.process != getpid()) return;
    monitor = std::move(all.monitor);
    all.monitor = nullptr;
    any_verdict = false;
  }
  if (!monitor) return;
  connection_of_process = -1;
  try {
    monitor->leave(why);
    monitor = nullptr;
  } catch (const std::exception&) {
    // The others will hear of the end of the process.
  }
}

std::string last_report() {
  const auto monitor = monitor_of_process();
  return monitor ? monitor->last_report() : "";
}

void check_verdict(const GroupWatch& watch) {
  if (!any_verdict.load(std::memory_order_relaxed)) return;
  const auto monitor = monitor_of_process();
  if (!monitor) return;
  const std::string report = monitor->verdict_on(watch.ranks());
  if (!report.empty()) throw_report("", report);
}

std::string reason_of_failure(const GroupWatch& watch, steady_clock::time_point since) {
  const auto monitor = monitor_of_process();
  return monitor ? monitor->wait_for_report(watch.ranks(), since, watch.may_ask()) : "";
}

void explain_failure(const GroupWatch& watch, const DistributedError& error,
                     steady_clock::time_point since) {
  const std::string report = reason_of_failure(watch, since);
  if (report.empty() || error.message().find(report) != std::string::npos) throw;
  throw_report(error.op(), report, error.message());
}

StorePtr watched(StorePtr store, std::shared_ptr<GroupWatch> watch) {
  return std::make_shared<WatchedStore>(std::move(store), std::move(watch));
}

}  // namespace arete::distributed
