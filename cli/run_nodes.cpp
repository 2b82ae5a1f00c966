#include "cli/run_nodes.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "arete/base/distributed_error.h"

namespace arete::cli {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

int whole(const char* option, std::string_view text, int least, int most) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  ARETE_CHECK(error == std::errc() && end == text.data() + text.size() && n >= least && n <= most,
              ValueError("run", "a number was expected")
                  .argument(option)
                  .expected(std::to_string(least) + " to " + std::to_string(most))
                  .got("'" + std::string(text) + "'"));
  return n;
}

// The least and the most machines.
std::pair<int, int> numbers_of_nodes(const std::string& text) {
  const size_t colon = text.find(':');
  const int least = whole("--nnodes", std::string_view(text).substr(0, colon), 1, 65536);
  if (colon == std::string::npos) return {least, least};
  return {least, whole("--nnodes", std::string_view(text).substr(colon + 1), least, 65536)};
}

// What a member's key says when a round was closed with it, and when it was told to end before.
constexpr const char *kTaken = "+", *kWithdrawn = "-";

// Whether an address of the host is one of this machine's.
bool is_here(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  bool here = false;
  for (const addrinfo* a = found; a && !here; a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    here = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0;
    if (fd >= 0) close(fd);
  }
  freeaddrinfo(found);
  return here;
}

}  // namespace

Nodes::Nodes(const RunOptions& options, int local_size, std::function<bool()> is_stopped)
    : least_(numbers_of_nodes(options.nodes).first),
      most_(numbers_of_nodes(options.nodes).second),
      local_size_(local_size),
      max_restarts_(options.max_restarts),
      count_(most_),
      host_(options.host),
      prefix_("arete_run/" + options.rdzv_id + "/"),
      is_stopped_(std::move(is_stopped)) {
  ARETE_CHECK(!options.standalone || most_ == 1,
              ValueError("run", "--standalone is for one node").argument("--nnodes"));
  const bool meets = options.rdzv_backend == "c10d";
  ARETE_CHECK(meets || options.rdzv_backend == "static",
              NotImplementedError("run", "there is no such rendezvous")
                  .argument("--rdzv-backend")
                  .expected("static or c10d")
                  .got("'" + options.rdzv_backend + "'"));
  int port = options.port;
  node_ = options.node;
  if (!options.rdzv_endpoint.empty()) {
    const size_t colon = options.rdzv_endpoint.rfind(':');
    host_ = options.rdzv_endpoint.substr(0, colon);
    if (host_.starts_with('[') && host_.ends_with(']')) host_ = host_.substr(1, host_.size() - 2);
    if (colon != std::string::npos)
      port = whole("--rdzv-endpoint", std::string_view(options.rdzv_endpoint).substr(colon + 1), 0,
                   65535);
    else
      port = meets ? 29400 : 29500;
  }
  for (std::string_view rest = options.rdzv_conf; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view entry = rest.substr(0, comma);
    const size_t equals = std::min(entry.find('='), entry.size());
    const std::string_view name = entry.substr(0, equals),
                           value = entry.substr(std::min(equals + 1, entry.size()));
    if (name == "timeout" || name == "join_timeout" || name == "read_timeout")
      patience_ = std::chrono::seconds(whole("--rdzv-conf", value, 1, 1 << 30));
    else if (name == "last_call_timeout")
      last_call_ = std::chrono::seconds(whole("--rdzv-conf", value, 0, 1 << 30));
    else if (name == "keep_alive_interval")
      beats_ = std::chrono::seconds(whole("--rdzv-conf", value, 1, 3600));
    else if (name == "keep_alive_max_attempt")
      missed_beats_ = whole("--rdzv-conf", value, 1, 3600);
    else if (name == "rank")
      node_ = whole("--rdzv-conf", value, 0, 65535);
    else
      throw NotImplementedError("run", "there is no such setting of a rendezvous")
          .argument("--rdzv-conf")
          .expected(
              "timeout, join_timeout, read_timeout, last_call_timeout, keep_alive_interval, "
              "keep_alive_max_attempt or rank")
          .got("'" + std::string(entry) + "'");
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (options.standalone) {
    host_ = "127.0.0.1";
    port = 0;
  }
  meets_ = meets && node_ < 0 && most_ > 1;
  ARETE_CHECK(meets_ || least_ == most_,
              ValueError("run",
                         "a number of machines that changes needs --rdzv-backend=c10d, and "
                         "no numbers of machines")
                  .argument("--nnodes")
                  .got("'" + options.nodes + "'"));
  if (!meets_) node_ = std::max(node_, 0);
  ARETE_CHECK(node_ < count_, ValueError("run", "there is no such node")
                                  .argument("--node-rank")
                                  .got(std::to_string(node_)));
  const auto make = [&](bool server) {
    return std::make_shared<distributed::TCPStore>(
        host_, distributed::TcpStoreOptions{
                   .port = uint16_t(port), .is_server = server, .timeout = patience_});
  };
  // The store is here, so that it lives as long as all ranks, and a free port stays ours.
  if (node_ == 0) {
    store_ = make(true);
    has_store_ = true;
  } else if (meets_ && is_here(host_)) {
    try {
      store_ = make(true);
      has_store_ = true;
      node_ = 0;
    } catch (const DistributedError& e) {
      // Another launcher of this machine is the server.
      if (e.message().find("EADDRINUSE") == std::string::npos) throw;
    }
  }
  if (!store_) store_ = make(false);
  if (meets_) {
    const std::string server = prefix_ + "server";
    if (has_store_) {
      store_->set(server, "here");
    } else {
      store_->wait({&server, 1}, patience_);
      id_ = std::to_string(store_->add(prefix_ + "arrived", 1));
    }
    return;
  }
  if (count_ == 1) {
    world_size_ = local_size;
    return;
  }
  const auto size_key = [&](int n) { return prefix_ + "size/" + std::to_string(n); };
  store_->set(size_key(node_), std::to_string(local_size));
  for (int n = 0; n < count_; ++n) {
    const std::string theirs = size_key(n);
    if (!wait_for([&] { return store_->check({&theirs, 1}); }, "the other machines")) return;
    const int size = whole("--nproc-per-node", store_->get(theirs), 1, 4096);
    if (n < node_) first_rank_ += size;
    world_size_ += size;
  }
}

Nodes::~Nodes() {
  if (most_ == 1 || !store_) return;
  try {
    // Of those that were there last.
    const std::string left = meets_ ? key("left") : prefix_ + "left";
    store_->add(left, 1);
    if (!has_store_) return;
    store_->set(prefix_ + "over", is_done_ ? "done" : "failed");
    const auto until = steady_clock::now() + 10s;
    while (store_->add(left, 0) < count_ + waiting() && steady_clock::now() < until)
      std::this_thread::sleep_for(20ms);
  } catch (const Error&) {
    // Whoever is gone needs no store.
  }
}

bool Nodes::wait_for(const std::function<bool()>& condition, const char* what) {
  const auto until = steady_clock::now() + patience_;
  while (!condition()) {
    if (is_stopped_()) return false;
    if (steady_clock::now() >= until)
      throw DistributedError(
          DistributedError::Failure::store, "run",
          std::string(what) + " did not come in " + std::to_string(patience_.count()) + " s");
    std::this_thread::sleep_for(20ms);
  }
  return true;
}

bool Nodes::meet() {
  if (meets_) return has_store_ ? open_round() : join_round();
  ++attempt_;
  return count_ == 1 || world_size_ >= count_;  // else it was stopped
}

bool Nodes::open_round() {
  // Whoever was there will be there again, but for those that have gone.
  const int expected = attempt_ < 0 ? most_ : count_ + waiting() - int(store_->add(key("gone"), 0));
  attempt_ = int(store_->add(prefix_ + "round", 1)) - 1;
  std::string members;
  std::map<int64_t, std::string> came, taken;
  auto last_call = steady_clock::time_point::max();
  const auto is_complete = [&] {
    came = taken;
    const int64_t joined = store_->add(key("joined"), 0);
    for (int64_t i = 1; i <= joined && int(came.size()) + 1 < most_; ++i) {
      const std::string theirs = key("member") + "/" + std::to_string(i);
      if (taken.contains(i) || !store_->check({&theirs, 1})) continue;
      if (const std::string text = store_->get(theirs); text != kWithdrawn) came[i] = text;
    }
    const int n = int(came.size()) + 1;
    if (n < least_)
      last_call = steady_clock::time_point::max();
    else if (last_call == steady_clock::time_point::max())
      last_call = steady_clock::now() + last_call_;
    const int gone = int(store_->add(key("withdrawn"), 0));
    if (n < std::min(most_, std::max(least_, expected - gone)) && steady_clock::now() < last_call)
      return false;
    members = id_ + ":" + std::to_string(local_size_);
    for (const auto& [i, text] : came) {
      const std::string theirs = key("member") + "/" + std::to_string(i);
      if (!taken.contains(i) && store_->compare_set(theirs, text, kTaken) != kTaken) return false;
      taken[i] = text;
      members += "," + text;
    }
    return true;
  };
  if (!wait_for(is_complete, "the other machines")) return false;
  take_part(members);
  store_->set(key("members"), members);
  return true;
}

// A launcher that waits was told to end.
void Nodes::withdraw(const std::string& member, const std::string& text) {
  // Before it holds, lest it looks like one that waits.
  store_->add(key("withdrawn"), 1);
  if (store_->compare_set(member, text, kWithdrawn) == kWithdrawn) return store_.reset();
  store_->add(key("withdrawn"), -1);
  const std::string closed = key("members");
  store_->wait({&closed, 1}, 10s);
  take_part(store_->get(closed));
  leave();
}

bool Nodes::join_round() {
  const std::string over = prefix_ + "over", mine = id_ + ":" + std::to_string(local_size_);
  std::string member;  // its key, where it waits for room
  const auto is_over = [&] {
    if (!store_->check({&over, 1})) return false;
    is_done_ = store_->get(over) == "done";
    return true;
  };
  for (;;) {
    // The next round, which is the first one for whoever has just come. Spares wait for as long as
    // the others work.
    int64_t round = 0;
    const auto is_open = [&] {
      round = store_->add(prefix_ + "round", 0);
      return round > attempt_ + 1 || is_over();
    };
    while (!is_open()) {
      if (is_stopped_()) {
        if (!member.empty())
          withdraw(member, mine);
        else if (attempt_ >= 0)
          store_->add(key("gone"), 1);
        return false;
      }
      std::this_thread::sleep_for(20ms);
    }
    if (is_over()) return false;
    attempt_ = int(round) - 1;
    const int64_t place = store_->add(key("joined"), 1);
    member = key("member") + "/" + std::to_string(place);
    store_->set(member, mine);
    const std::string closed = key("members");
    const auto is_closed = [&] { return store_->check({&closed, 1}) || is_over(); };
    if (!wait_for(is_closed, "the other machines")) {
      withdraw(member, mine);
      return false;
    }
    if (!store_->check({&closed, 1})) return false;
    const std::string members = store_->get(closed);
    if (("," + members).find("," + id_ + ":") == std::string::npos) continue;
    take_part(members);
    return true;
  }
}

// The members of a round, "id:size,id:size", by their numbers.
void Nodes::take_part(const std::string& members) {
  count_ = world_size_ = 0;
  heard_.clear();
  // Before this one is ready no rank starts, and so none fails.
  restarts_ = int(store_->add(prefix_ + "restarts", 0));
  for (std::string_view rest = members; !rest.empty(); ++count_) {
    const std::string_view one = rest.substr(0, rest.find(','));
    const size_t colon = one.find(':');
    const std::string id(one.substr(0, colon));
    if (id == id_) node_ = count_, first_rank_ = world_size_;
    if (id != "0") heard_[id] = {"", steady_clock::now()};
    world_size_ += whole("--nproc-per-node", one.substr(colon + 1), 1, 4096);
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
  }
}

// How many have joined a round that was closed before, and still wait.
int Nodes::waiting() {
  if (!meets_ || attempt_ < 0) return 0;
  return int(store_->add(key("joined"), 0) - store_->add(key("withdrawn"), 0)) + 1 - count_;
}

bool Nodes::begin() {
  if (count_ == 1) return true;
  const std::string ready = key("ready");
  store_->add(ready, 1);
  return wait_for([&] { return store_->add(ready, 0) >= count_ || (meets_ && failure()); },
                  "the other machines");
}

distributed::StorePtr Nodes::store_of_ranks() const {
  return std::make_shared<distributed::PrefixStore>("/worker/attempt_" + std::to_string(attempt_),
                                                    store_);
}

// What ends the attempt, if nothing else was said before; whether it is so.
bool Nodes::say(End end, const std::string& text) {
  const std::string mine = char(end) + text;
  if (store_->compare_set(key("failed"), "", mine) != mine) return false;
  if (end == End::failure && meets_) store_->add(prefix_ + "restarts", 1);
  return true;
}

void Nodes::fail(const std::string& text, bool final) {
  if (most_ > 1) say(final ? End::final_failure : End::failure, text);
}

void Nodes::leave() {
  if (!meets_ || has_store_ || count_ <= least_)
    return fail("the launcher was ended by a signal", true);
  store_->add(key("gone"), 1);
  say(End::change, "another machine's launcher was ended by a signal");
}

bool Nodes::is_time_to_beat() {
  const auto now = steady_clock::now();
  if (now < beaten_ + 500ms) return false;
  beaten_ = now;
  return true;
}

void Nodes::beat() {
  if (is_time_to_beat())
    store_->set(prefix_ + "beat/" + id_, std::to_string(beaten_.time_since_epoch().count()));
}

void Nodes::keep_alive() noexcept {
  if (!meets_ || has_store_) return;
  try {
    beat();
  } catch (const Error&) {
    // The store is gone, and with it who would listen. Ranks are to be ended all the same.
  }
}

void Nodes::look_after_members() {
  if (count_ < most_ && waiting() > 0) {
    say(End::change, "another machine has come");
    return;
  }
  for (auto& [id, heard] : heard_) {
    const std::string theirs = prefix_ + "beat/" + id;
    const std::string last = store_->check({&theirs, 1}) ? store_->get(theirs) : "";
    if (last != heard.beat) heard = {last, steady_clock::now()};
    const auto silence = beats_ * missed_beats_;
    if (steady_clock::now() <= heard.at + silence) continue;
    store_->add(key("gone"), 1);
    return fail("nothing was heard of the machine that came as number " + id + " for " +
                    std::to_string(silence.count()) + " s",
                restarts() >= max_restarts_);
  }
}

std::optional<Nodes::Failure> Nodes::failure() {
  if (most_ == 1) return std::nullopt;
  const std::string failed = key("failed");
  const auto is_said = [&] { return store_->check({&failed, 1}); };
  if (!is_said()) {
    if (!meets_) return std::nullopt;
    if (!has_store_)
      beat();
    else if (is_time_to_beat())
      look_after_members();
    if (!is_said()) return std::nullopt;
  }
  const std::string text = store_->get(failed);
  const End end{text.at(0)};
  if (end == End::all_done) return std::nullopt;
  return Failure{text.substr(1), end == End::final_failure, end == End::change};
}

void Nodes::done() {
  if (most_ > 1) store_->add(key("done"), 1);
}

bool Nodes::are_all_done() {
  is_done_ = most_ == 1 || (store_->add(key("done"), 0) >= count_ && say(End::all_done, ""));
  return is_done_;
}

}  // namespace arete::cli
