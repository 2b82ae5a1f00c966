#include "cli/run_nodes.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

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

int number_of_nodes(const std::string& text) {
  const size_t colon = text.find(':');
  const int least = whole("--nnodes", std::string_view(text).substr(0, colon), 1, 65536);
  const int most = colon == std::string::npos
                       ? least
                       : whole("--nnodes", std::string_view(text).substr(colon + 1), 1, 65536);
  ARETE_CHECK(least == most, NotImplementedError(
                                 "run", "the number of machines cannot change while a program runs")
                                 .argument("--nnodes")
                                 .got("'" + text + "'"));
  return least;
}

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
    : count_(number_of_nodes(options.nodes)),
      host_(options.host),
      prefix_("arete_run/" + options.rdzv_id + "/"),
      is_stopped_(std::move(is_stopped)) {
  ARETE_CHECK(!options.standalone || count_ == 1,
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
    else if (name == "rank")
      node_ = whole("--rdzv-conf", value, 0, 65535);
    else
      throw NotImplementedError("run", "there is no such setting of a rendezvous")
          .argument("--rdzv-conf")
          .expected("timeout, join_timeout, read_timeout or rank")
          .got("'" + std::string(entry) + "'");
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (options.standalone) {
    host_ = "127.0.0.1";
    port = 0;
  }
  const bool arrives = meets && node_ < 0 && count_ > 1;  // numbers are given in order of arrival
  if (!arrives) node_ = std::max(node_, 0);
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
  } else if (arrives && is_here(host_)) {
    try {
      store_ = make(true);
      node_ = 0;
    } catch (const DistributedError& e) {
      // Another launcher of this machine is the server.
      if (e.message().find("EADDRINUSE") == std::string::npos) throw;
    }
  }
  if (!store_) store_ = make(false);
  if (arrives) {
    if (node_ == 0) store_->set(prefix_ + "server", "here");
    const std::string server = prefix_ + "server";
    if (node_ < 0) {
      store_->wait({&server, 1}, patience_);
      node_ = int(store_->add(prefix_ + "arrived", 1));
    }
    ARETE_CHECK(node_ < count_, ValueError("run", "more machines came than --nnodes says")
                                    .argument("--nnodes")
                                    .got(options.nodes));
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
  if (count_ == 1 || !store_) return;
  try {
    const std::string key = prefix_ + "left";
    store_->add(key, 1);
    if (node_ != 0) return;
    const auto until = steady_clock::now() + 10s;
    while (store_->add(key, 0) < count_ && steady_clock::now() < until)
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

bool Nodes::begin(int attempt) {
  if (count_ == 1) return true;
  if (world_size_ < count_) return false;
  const std::string ready = key("ready", attempt);
  store_->add(ready, 1);
  return wait_for([&] { return store_->add(ready, 0) >= count_; }, "the other machines");
}

distributed::StorePtr Nodes::store_of_ranks(int attempt) const {
  return std::make_shared<distributed::PrefixStore>("/worker/attempt_" + std::to_string(attempt),
                                                    store_);
}

void Nodes::fail(int attempt, const std::string& text, bool final) {
  if (count_ > 1) store_->compare_set(key("failed", attempt), "", (final ? "1" : "0") + text);
}

std::optional<Nodes::Failure> Nodes::failure(int attempt) {
  const std::string failed = key("failed", attempt);
  if (count_ == 1 || !store_->check({&failed, 1})) return std::nullopt;
  const std::string text = store_->get(failed);
  return Failure{text.substr(1), text[0] == '1'};
}

void Nodes::done(int attempt) {
  if (count_ > 1) store_->add(key("done", attempt), 1);
}

bool Nodes::are_all_done(int attempt) {
  return count_ == 1 || store_->add(key("done", attempt), 0) >= count_;
}

}  // namespace arete::cli
