// The side of the monitor that compares. See Note [The monitor].
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>

#include <nlohmann/json.hpp>

#include "arete/distributed/monitor.h"
#include "arete/distributed/monitor_messages_internal.h"

namespace arete::distributed {

using nlohmann::json;
using std::chrono::steady_clock;
using Status = RankSummary::Status;
using namespace std::chrono_literals;

namespace {

constexpr auto kTick = 100ms;
constexpr auto kHello = 5s;          // for the first line
constexpr auto kSilence = 2200ms;    // four beats that did not come
constexpr auto kAnswers = 400ms;     // for ranks to say where they are
constexpr auto kLauncher = 500ms;    // for the launcher to say how a process ended
constexpr auto kAfterDeath = 250ms;  // what ranks say then is about the time after it
constexpr size_t kMostReports = 100;

std::string random_token() {
  std::array<uint8_t, 16> bytes{};
  ARETE_CHECK(getrandom(bytes.data(), bytes.size(), 0) == ssize_t(bytes.size()),
              IoError("monitor", "the system has no random bytes"));
  std::string text;
  for (const uint8_t b : bytes) {
    text.push_back("0123456789abcdef"[b >> 4]);
    text.push_back("0123456789abcdef"[b & 15]);
  }
  return text;
}

// Takes as long for a wrong one as for the right one.
bool is_same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= unsigned(uint8_t(a[i]) ^ uint8_t(b[i]));
  return difference == 0;
}

}  // namespace

class MonitorServer::Impl {
 public:
  explicit Impl(const MonitorServerOptions& options)
      : options_(options),
        token_(options.token.empty() ? random_token() : options.token),
        listener_(listen_at(options.host, 0)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        port_(port_of(listener_)) {
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() {
    ends_ = true;
    wake();
    thread_.join();
  }

  uint16_t port() const { return port_; }

  std::string address() const {
    return line_of({{"host", options_.host}, {"port", port_}, {"token", token_}});
  }

  void process_ended(int rank, const std::string& how) {
    {
      const std::lock_guard lock(mutex_);
      ended_.emplace_back(rank, how);
    }
    wake();
  }

 private:
  struct Session {
    Session(Descriptor socket, steady_clock::time_point now)
        : connection(std::move(socket), kMostHello), since(now) {}
    LineConnection connection;
    steady_clock::time_point since;
    int rank = -1;  // once it has said the token
    bool closing = false;
  };
  struct Rank {
    RankSummary summary;
    Session* session = nullptr;
    steady_clock::time_point heard, placed, asked;
    bool dead = false;       // its process, as the launcher knows
    std::string bye_record;  // what it said last
  };

  void wake() {
    const uint64_t one = 1;
    while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }

  void run() {
    while (!ends_) {
      try {
        look();
      } catch (const std::bad_alloc&) {
        std::this_thread::sleep_for(20ms);
      }
    }
    // Ranks are not to take it for a death. If this is a rank, they may still need it.
    json end = {{"end", true}};
    if (const auto self = ranks_.find(0);
        self != ranks_.end() && options_.name.empty() && !self->second.bye_record.empty()) {
      end["why"] = self->second.summary.why;
      end["record"] = json::parse(self->second.bye_record);
    }
    const std::string text = line_of(end);
    for (const auto& s : sessions_)
      if (s->rank >= 0) {
        s->connection.send(text);
        s->connection.flush();
      }
  }

  void look() {
    const bool takes_more = sessions_.size() < size_t(size_) + 64;
    std::vector<pollfd> polled{{wake_.get(), POLLIN, 0},
                               {takes_more ? listener_.get() : -1, POLLIN, 0}};
    for (const auto& s : sessions_)
      polled.push_back(
          {s->connection.fd(), short(POLLIN | (s->connection.wants_to_send() ? POLLOUT : 0)), 0});
    if (poll(polled.data(), polled.size(), int(kTick.count())) < 0) return;
    now_ = steady_clock::now();
    if (polled[0].revents) {
      uint64_t count;
      [[maybe_unused]] const ssize_t n = read(wake_.get(), &count, sizeof(count));
      take_deaths();
    }
    for (size_t i = 0; i < sessions_.size(); ++i) {
      Session& s = *sessions_[i];
      if (!serve(s, polled[i + 2].revents)) close(s);
    }
    std::erase_if(sessions_, [](const auto& s) { return s->closing; });
    if (polled[1].revents & POLLIN) {
      Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket) sessions_.push_back(std::make_unique<Session>(std::move(socket), now_));
      // Otherwise there is no descriptor left: not to be asked again at once.
      else
        std::this_thread::sleep_for(20ms);
    }
    judge();
    for (const auto& s : sessions_) s->connection.flush();
  }

  void take_deaths() {
    std::vector<std::pair<int, std::string>> ended;
    {
      const std::lock_guard lock(mutex_);
      ended = std::move(ended_);
      ended_.clear();
    }
    for (auto& [rank, how] : ended) {
      Rank& r = ranks_[rank];
      r.summary.rank = rank;
      if (r.summary.status == Status::gone && r.summary.why != kNoWord) continue;
      if (r.summary.status == Status::left) continue;
      if (r.summary.status != Status::gone) mark_gone(r);
      r.summary.why = how;
      r.dead = true;
    }
  }

  // False: it is to be closed.
  bool serve(Session& s, short events) {
    if (s.rank < 0 && now_ - s.since > kHello) return false;
    if (events & (POLLIN | POLLHUP | POLLERR)) {
      const bool open = s.connection.receive();
      std::string text;
      while (!s.closing && s.connection.next(text))
        if (!answer(s, text)) return false;
      if (!open) return false;
    }
    return !(events & POLLOUT) || s.connection.flush();
  }

  bool answer(Session& s, const std::string& text) {
    const json message = json::parse(text, nullptr, false);
    if (!message.is_object()) return false;
    if (s.rank < 0) return greet(s, message);
    Rank& r = ranks_[s.rank];
    if (r.session != &s) return true;  // it has said its last words
    const auto record = message.find("record");
    if (record != message.end()) {
      try {
        take(r, read_flight_record(record->dump()));
      } catch (const Error&) {
        return false;
      }
    }
    if (const auto bye = message.find("bye"); bye != message.end() && bye->is_string()) {
      // One that is about to die still wants to hear why.
      const bool failed = message.value("failed", json(false)) == true;
      r.session = nullptr;
      s.closing = !failed;
      mark_gone(r);
      if (!failed) r.summary.status = Status::left;
      r.summary.ends = message.value("ends", json(false)) == true;
      if (record != message.end()) r.bye_record = record->dump();
      r.summary.why = bye->get<std::string>().substr(0, 1000);
      // It goes to terminals, as one line.
      std::ranges::replace_if(
          r.summary.why, [](char c) { return uint8_t(c) < 0x20 || c == 0x7f; }, ' ');
      return failed;
    }
    s.connection.send(R"({"ok":true})");
    return true;
  }

  bool greet(Session& s, const json& message) {
    const auto token = message.find("token"), rank = message.find("rank"),
               size = message.find("size");
    if (token == message.end() || !token->is_string() || rank == message.end() ||
        !rank->is_number_integer() || size == message.end() || !size->is_number_integer() ||
        !is_same_secret(token->get_ref<const std::string&>(), token_))
      return false;
    const auto n = size->get<int64_t>(), number = rank->get<int64_t>();
    if (n < 1 || n > (1 << 20) || number < 0 || number >= n) return false;
    Rank& r = ranks_[int(number)];
    if (r.session) {
      s.connection.send(line_of(
          {{"report", "rank " + std::to_string(number) + " is there twice: another process (node " +
                          r.summary.host + ", pid " + std::to_string(r.summary.pid) + ") has it"},
           {"culprits", {number}},
           {"hopeless", true}}));
      s.connection.flush();
      return false;
    }
    // The first of a group that begins: nobody is left of the one before, or of those that heard a
    // hopeless report.
    if (std::ranges::none_of(ranks_, [&](const auto& entry) {
          return entry.second.session && entry.second.session->since <= over_at_;
        })) {
      std::erase_if(ranks_, [&](const auto& entry) {
        const Rank& other = entry.second;
        const bool comes_again = other.summary.status == Status::left && !other.summary.ends;
        return !other.session && !other.dead && (over_ || comes_again);
      });
      reported_.clear();
      over_ = false;
      over_at_ = steady_clock::time_point::max();
    }
    size_ = int(n);
    Rank& fresh = ranks_[int(number)];
    // What it said before its death may come after the news of that.
    const std::string why = fresh.dead ? fresh.summary.why : "";
    fresh = {.dead = fresh.dead};
    fresh.summary.why = why;
    fresh.summary.rank = int(number);
    fresh.session = &s;
    fresh.heard = now_;
    s.rank = int(number);
    s.connection.set_longest(kMostLine);
    s.connection.send(line_of(
        {{"ok", true}, {"server", options_.name}, {"host", name_of_host()}, {"pid", getpid()}}));
    return true;
  }

  void take(Rank& r, RankSummary record) {
    record.rank = r.summary.rank;
    if (!record.place.empty()) r.placed = now_;
    if (record.place.empty()) record.place = r.summary.place;
    record.status = Status::working;
    record.why = r.summary.why;
    // Groups that have ended there may still be those that others wait in.
    for (GroupSummary& old : r.summary.groups)
      if (std::ranges::find(record.groups, old.name, &GroupSummary::name) == record.groups.end() &&
          record.groups.size() < 256) {
        old.calls.clear();
        record.groups.push_back(std::move(old));
      }
    r.summary = std::move(record);
    r.heard = now_;
    const bool failed = std::ranges::any_of(r.summary.groups, [](const GroupSummary& g) {
      return std::ranges::any_of(g.calls, &CallSummary::failed);
    });
    if (failed) ask_all(200ms);
  }

  void close(Session& s) {
    s.closing = true;
    if (s.rank < 0) return;
    Rank& r = ranks_[s.rank];
    if (r.session != &s) return;
    r.session = nullptr;
    if (!r.dead) r.summary.why = kNoWord;
    mark_gone(r);
  }

  void mark_gone(Rank& r) {
    r.summary.status = Status::gone;
    last_gone_ = now_;
    asks_again_ = true;
  }

  // What ranks know now, and where they are.
  void ask_all(std::chrono::milliseconds pause, bool place = false) {
    for (auto& [number, r] : ranks_)
      if (r.session && now_ - r.asked > pause) {
        r.asked = now_;
        r.session->connection.send(line_of({{"ask", place ? "place" : "record"}}));
      }
  }

  // Somebody waits in a call of which another has not said what it was.
  void ask_for_calls(const std::vector<RankSummary>& all) {
    for (const RankSummary& waiting : all)
      for (const GroupSummary& g : waiting.groups)
        for (const CallSummary& c : g.calls) {
          if (!c.under_way && !c.failed) continue;
          for (const int other : g.ranks) {
            const auto at = ranks_.find(other);
            if (at == ranks_.end() || !at->second.session || now_ - at->second.asked < 1s) continue;
            for (const GroupSummary& theirs : at->second.summary.groups)
              if (theirs.name == g.name && theirs.issued >= c.sequence && c.sequence > 0 &&
                  std::ranges::find(theirs.calls, c.sequence, &CallSummary::sequence) ==
                      theirs.calls.end()) {
                at->second.asked = now_;
                at->second.session->connection.send(R"({"ask":"all"})");
              }
          }
        }
  }

  void judge() {
    if (over_ || size_ < 2) return;
    if (asks_again_ && now_ - last_gone_ > kAfterDeath) {
      asks_again_ = false;
      ask_all(0ms);
    }
    std::vector<RankSummary> all;
    all.reserve(size_t(size_));
    const bool begun = std::ranges::any_of(ranks_, [](const auto& r) { return r.second.session; });
    if (!begun) return;
    for (int i = 0; i < size_; ++i) {
      const auto at = ranks_.find(i);
      if (at == ranks_.end()) {
        all.push_back({.rank = i, .status = Status::absent});
        continue;
      }
      Rank& r = at->second;
      RankSummary summary = r.summary;
      if (r.session && now_ - r.heard > kSilence) {
        summary.status = Status::silent;
        summary.silent_for = std::chrono::duration<double>(now_ - r.heard).count();
        summary.why = state_of_process(summary.host, summary.pid);
      }
      // Its calls go on while nothing is heard.
      const double since = std::chrono::duration<double>(now_ - r.heard).count();
      for (GroupSummary& g : summary.groups)
        for (CallSummary& c : g.calls)
          if (c.under_way) c.seconds += since;
      summary.heard_since =
          last_gone_ != steady_clock::time_point{} && r.heard - last_gone_ > kAfterDeath;
      all.push_back(std::move(summary));
    }
    ask_for_calls(all);
    const auto finding = diagnose(all, options_.patience);
    if (!finding) {
      asked_all_.reset();
      return;
    }
    if (std::ranges::any_of(reported_, [&](const Finding& f) { return f.is_like(*finding); }))
      return;
    // What all ranks know now, and where they are, is not waited for long. Of a death the launcher
    // may know more.
    const bool death = finding->kind == Finding::Kind::gone || finding->kind == Finding::Kind::left;
    if (!asked_all_) {
      asked_all_ = now_;
      ask_all(0ms, !death);
      return;
    }
    const bool all_answered = std::ranges::all_of(ranks_, [&](const auto& entry) {
      const Rank& r = entry.second;
      return !r.session || (death ? r.heard : r.placed) > *asked_all_;
    });
    const auto waited = now_ - *asked_all_;
    const bool launcher_knows_more =
        death && !options_.name.empty() && std::ranges::any_of(finding->culprits, [&](int c) {
          return ranks_[c].summary.why == kNoWord;
        });
    if (waited < (launcher_knows_more ? kLauncher : all_answered ? 0ms : kAnswers)) return;
    asked_all_.reset();
    report(*finding);
  }

  void report(const Finding& finding) {
    over_ = finding.hopeless || reported_.size() >= kMostReports;
    if (over_) over_at_ = now_;
    reported_.push_back(finding);
    const std::string text = line_of(
        {{"report", finding.text}, {"culprits", finding.culprits}, {"hopeless", finding.hopeless}});
    // At once: if this is a rank, what is reported may end it.
    for (const auto& s : sessions_)
      if (s->rank >= 0) {
        s->connection.send(text);
        s->connection.flush();
      }
    if (options_.report) options_.report(finding);
  }

  static constexpr const char* kNoWord = "has ended without a word";

  const MonitorServerOptions options_;
  const std::string token_;
  Descriptor listener_, wake_;
  const uint16_t port_;
  std::atomic<bool> ends_{false};
  std::mutex mutex_;
  std::vector<std::pair<int, std::string>> ended_;  // guarded

  // Of the thread.
  steady_clock::time_point now_, last_gone_;
  bool asks_again_ = false;
  int size_ = 1;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::map<int, Rank> ranks_;
  std::optional<steady_clock::time_point> asked_all_;
  std::vector<Finding> reported_;
  bool over_ = false;  // hopeless: what follows is a consequence
  steady_clock::time_point over_at_ = steady_clock::time_point::max();
  std::thread thread_;
};

MonitorServer::MonitorServer(const MonitorServerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
MonitorServer::~MonitorServer() = default;
uint16_t MonitorServer::port() const { return impl_->port(); }
std::string MonitorServer::address() const { return impl_->address(); }
void MonitorServer::process_ended(int rank, const std::string& how) {
  impl_->process_ended(rank, how);
}

}  // namespace arete::distributed
