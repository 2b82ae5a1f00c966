#include "arete/distributed/environment.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "arete/distributed/store_internal.h"
#include "arete/distributed/tcp_store.h"

namespace arete::distributed {
namespace {

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int> first_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (!text || !*text) continue;
    const auto value = whole_number(text);
    ARETE_CHECK(value && *value >= 0,
                ValueError("", std::string("the environment variable ") + name + " is no number")
                    .got(std::string("'") + text + "'"));
    return value;
  }
  return std::nullopt;
}

[[noreturn]] void throw_missing(const std::string& scheme, const std::string& what) {
  throw ValueError("",
                   "Error initializing arete.distributed using " + scheme + "rendezvous: " + what);
}

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text)
    throw_missing("env:// ",
                  std::string("environment variable ") + name + " expected, but not set");
  return text;
}

bool is_on(const char* name, const char* value) {
  const char* text = std::getenv(name);
  return text && std::string_view(text) == value;
}

uint16_t port_in(std::string_view text) {
  const auto port = whole_number(text);
  ARETE_CHECK(port && *port >= 0 && *port < 65536,
              ValueError("", "there is no such port").got("'" + std::string(text) + "'"));
  return uint16_t(*port);
}

std::string text_of_first(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* text = std::getenv(name); text && *text) return text;
  return "";
}

StorePtr tcp_store(const std::string& host, uint16_t port, int rank, int world_size,
                   Milliseconds timeout) {
  TcpStoreOptions options{.port = port, .world_size = world_size, .timeout = timeout};
  // The launcher is the server: its workers of different attempts have different keys. That of
  // `arete run` numbers attempts, of which not all are restarts.
  if (is_on("TORCHELASTIC_USE_AGENT_STORE", "True")) {
    const std::string attempt = text_of_first({"ARETE_ATTEMPT", "TORCHELASTIC_RESTART_COUNT"});
    return std::make_shared<PrefixStore>("/worker/attempt_" + (attempt.empty() ? "0" : attempt),
                                         std::make_shared<TCPStore>(host, options));
  }
  options.is_server = rank == 0;
  options.multi_tenant = true;
  return std::make_shared<TCPStore>(host, options);
}

// A port that all ranks of a job find, and other jobs of this machine hardly.
uint16_t port_of_job(std::string_view job) {
  uint32_t hash = 2166136261u;
  for (const char c : job) hash = (hash ^ uint8_t(c)) * 16777619u;
  return uint16_t(20000 + hash % 12000);
}

// Where launchers that set no MASTER_ADDR put rank 0, and a port there; nothing if they do not say.
std::optional<std::pair<std::string, uint16_t>> place_of_rank_0() {
  const char* const port = std::getenv("MASTER_PORT");
  const auto at = [&](const std::string& host, const std::string& job) {
    return std::pair(host, port && *port ? port_in(port) : port_of_job(job));
  };
  const std::string nodes = text_of_first({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
  if (!nodes.empty() && std::getenv("SLURM_PROCID")) {
    const std::string job =
        text_of_first({"SLURM_JOB_ID"}) + "." + text_of_first({"SLURM_STEP_ID"});
    return at(text_of_first({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}) == "1" ? "127.0.0.1"
                                                                             : first_host(nodes),
              job);
  }
  // Where all ranks are on one machine, as MPI's launchers say.
  const auto size = first_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  const auto here = first_of({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  if (!size || size != here) return std::nullopt;
  const std::string job = text_of_first({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  return at("127.0.0.1", job.empty() ? std::to_string(getppid()) : job);
}

}  // namespace

std::string first_host(std::string_view nodes) {
  // "a[07-09,12]x,b": the first of a list is its beginning and the first number in brackets.
  const size_t open = nodes.find('['), comma = nodes.find(',');
  if (open == std::string_view::npos || comma < open) return std::string(nodes.substr(0, comma));
  const size_t close = nodes.find(']', open);
  if (close == std::string_view::npos) return std::string(nodes.substr(0, open));
  const size_t number = nodes.find_first_of("-,]", open);
  const size_t end = std::min(nodes.find(',', close), nodes.size());
  return std::string(nodes.substr(0, open)) +
         std::string(nodes.substr(open + 1, number - open - 1)) +
         std::string(nodes.substr(close + 1, end - close - 1));
}

std::optional<int> environment_rank() {
  return first_of({"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"});
}
std::optional<int> environment_world_size() {
  return first_of(
      {"WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
}
std::optional<int> environment_local_rank() {
  return first_of({"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"});
}

Meeting rendezvous(const std::string& init_method, int rank, int world_size, Milliseconds timeout) {
  const size_t colon = init_method.find("://");
  ARETE_CHECK(colon != std::string::npos,
              ValueError("init_process_group", "the init_method is no address")
                  .argument("init_method")
                  .expected("env://, tcp://host:port or file:///path")
                  .got("'" + init_method + "'"));
  const std::string scheme = init_method.substr(0, colon + 3) + " ";
  std::string place = init_method.substr(colon + 3), query;
  if (const size_t mark = place.find('?'); mark != std::string::npos) {
    query = place.substr(mark + 1);
    place.resize(mark);
  }
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view entry = std::string_view(query).substr(0, end);
    const size_t equals = entry.find('=');
    const auto value =
        equals < entry.size() ? whole_number(entry.substr(equals + 1)) : std::nullopt;
    if (value && entry.substr(0, equals) == "rank" && rank < 0) rank = *value;
    if (value && entry.substr(0, equals) == "world_size" && world_size < 0) world_size = *value;
    query.erase(0, end + 1);
  }
  const auto check = [&] {
    if (rank < 0) throw_missing(scheme, "rank parameter missing");
    if (world_size < 0) throw_missing(scheme, "world size parameter missing");
    ARETE_CHECK(rank < world_size, ValueError("init_process_group", "there is no such rank")
                                       .argument("rank")
                                       .expected("less than " + std::to_string(world_size))
                                       .got(std::to_string(rank)));
  };
  if (scheme == "env:// ") {
    if (rank < 0)
      if (const auto r = environment_rank()) rank = *r;
    if (rank < 0) variable("RANK");
    if (world_size < 0)
      if (const auto n = environment_world_size()) world_size = *n;
    if (world_size < 0) variable("WORLD_SIZE");
    check();
    if (const char* host = std::getenv("MASTER_ADDR"); !host || !*host)
      if (const auto place = place_of_rank_0())
        return {tcp_store(place->first, place->second, rank, world_size, timeout), rank,
                world_size};
    const std::string host = variable("MASTER_ADDR");
    return {tcp_store(host, port_in(variable("MASTER_PORT")), rank, world_size, timeout), rank,
            world_size};
  }
  check();
  if (scheme == "tcp:// ") {
    const size_t last = place.rfind(':');
    if (last == std::string::npos) throw_missing(scheme, "port number missing");
    std::string host = place.substr(0, last);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    return {tcp_store(host, port_in(place.substr(last + 1)), rank, world_size, timeout), rank,
            world_size};
  }
  if (scheme == "file:// ") {
    if (place.empty()) throw_missing(scheme, "path missing");
    auto store = std::make_shared<FileStore>(place, world_size);
    store->set_timeout(timeout);
    return {store, rank, world_size};
  }
  throw ValueError("init_process_group", "No rendezvous handler for " + init_method);
}

}  // namespace arete::distributed
