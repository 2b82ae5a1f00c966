#include "cli/run.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include <nlohmann/json.hpp>

#include "arete/base/distributed_error.h"
#include "arete/device/cuda.h"
#include "arete/distributed/diagnosis.h"
#include "arete/distributed/monitor.h"
#include "cli/numa.h"
#include "cli/run_nodes.h"

extern char** environ;

namespace arete::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

volatile std::sig_atomic_t stop_signal = 0;
// Signals that say something to the program, as those of Slurm before a job's time is over.
volatile std::sig_atomic_t told_signals[2] = {0, 0};
void note_signal(int s) {
  if (s == SIGUSR1)
    told_signals[0] = 1;
  else if (s == SIGUSR2)
    told_signals[1] = 1;
  else
    stop_signal = s;
}

// Bytes of a rank's output: up to the last end of a line to `to`, as they are to a file; either may
// be null.
class Lines {
 public:
  Lines(int fd, FILE* to, FILE* file, const std::string& prefix)
      : fd_(fd), to_(to), file_(file), prefix_(prefix) {}
  int fd() const { return fd_; }

  void read_more() {
    std::array<char, 16384> bytes;
    const ssize_t n = read(fd_, bytes.data(), bytes.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return end();
    if (file_) {
      std::fwrite(bytes.data(), 1, size_t(n), file_);
      std::fflush(file_);
    }
    if (!to_) return;
    for (const char c : std::string_view(bytes.data(), size_t(n))) {
      line_.push_back(c);
      // A line without an end shall not fill the memory.
      if (c == '\n' || line_.size() >= kLongest) write_line();
    }
    std::fflush(to_);
  }
  // What is there now; a process that outlives its rank may still hold the other end.
  void end() {
    if (fd_ < 0) return;
    if (!line_.empty()) {
      line_.push_back('\n');
      write_line();
    }
    if (to_) std::fflush(to_);
    if (file_) std::fclose(file_);
    close(fd_);
    fd_ = -1;
  }

 private:
  static constexpr size_t kLongest = size_t(1) << 20;
  void write_line() {
    std::fwrite(prefix_.data(), 1, prefix_.size(), to_);
    std::fwrite(line_.data(), 1, line_.size(), to_);
    line_.clear();
  }
  int fd_;
  FILE *to_, *file_;
  std::string prefix_, line_;
};

struct Process {
  pid_t pid = -1;
  int rank = 0, local_rank = 0;
  bool ended = false;
  int status = 0;
  std::string error_file;
};

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string how(int status) {
  if (!WIFSIGNALED(status)) return "exit code " + std::to_string(WEXITSTATUS(status));
  const char* name = sigabbrev_np(WTERMSIG(status));
  return "signal " + (name ? "SIG" + std::string(name) : std::to_string(WTERMSIG(status)));
}

// What `elastic.multiprocessing.errors.record` wrote: the exception of a rank. "" without one.
std::string error_in(const std::string& path) {
  std::ifstream file(path);
  std::string text(size_t(1) << 20, '\0');
  file.read(text.data(), std::streamsize(text.size()));
  text.resize(size_t(file.gcount()));
  const auto error = nlohmann::json::parse(text, nullptr, false);
  if (!error.is_object() || !error.contains("message")) return "";
  const auto& message = error["message"];
  if (message.is_string()) return message.get<std::string>();
  return message.is_object() && message.contains("message") && message["message"].is_string()
             ? message["message"].get<std::string>()
             : "";
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& t : texts) list.push_back(t.data());
  list.push_back(nullptr);
  return list;
}

// Where outputs and errors of ranks go: what the user named, or a folder that goes with the run.
class Folder {
 public:
  Folder(const std::string& parent, const std::string& id, bool keep) : keep_(keep) {
    std::string name = id;
    std::ranges::replace(name, '/', '_');
    std::error_code error;
    const fs::path base = parent.empty() ? fs::temp_directory_path() : fs::path(parent);
    fs::create_directories(base, error);
    path_ = (base / ((parent.empty() ? "arete_" : "") + name + "_XXXXXX")).string();
    ARETE_CHECK(!error && mkdtemp(path_.data()),
                IoError("run", "no folder can be made in " + base.string()).argument("--log-dir"));
  }
  ~Folder() {
    std::error_code error;
    if (!keep_) fs::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool keep_;
};

struct Settings {
  const RunOptions& options;
  int local_size;
  std::vector<int> redirects, tee;
  std::vector<bool> shown;
  std::string folder;
  std::vector<cpu_set_t> processors;  // of each rank; empty: all
};

// What the monitor found, told by its thread.
struct Blamed {
  std::mutex mutex;
  std::vector<int> ranks;
};

// The ranks of one attempt on this machine.
class Launch {
 public:
  Launch(const Settings& settings, Nodes& nodes, distributed::MonitorServer* monitor,
         Blamed& blamed)
      : settings_(settings),
        options_(settings.options),
        nodes_(nodes),
        attempt_(nodes.attempt()),
        monitor_(monitor),
        blamed_(blamed) {}

  enum class End { done, failed, elsewhere, stopped };
  End run() {
    End end;
    try {
      for (int i = 0; i < settings_.local_size; ++i) start(i);
      end = watch();
    } catch (...) {
      end_all();
      throw;
    }
    if (end != End::done) end_all();
    for (int round = 0; round < 100 && forward(0) > 0; ++round) {
    }
    for (Lines& l : lines_) l.end();
    return end;
  }

  // The exit code, and what the user is told.
  int code() const { return culprit() ? code_of(culprit()->status) : 0; }
  std::string report() const {
    const Process& p = *culprit();
    const std::string error = error_in(p.error_file);
    return "rank " + std::to_string(p.rank) + " (process " + std::to_string(p.pid) +
           ") ended with " + how(p.status) + (error.empty() ? "" : ": " + error);
  }

 private:
  End watch() {
    const auto interval = std::clamp(
        std::chrono::milliseconds(int64_t(std::min(options_.monitor_interval, 60.0) * 1e3)), 1ms,
        60000ms);
    // The other machines are asked, and told that this one is there, however seldom ranks are
    // looked at.
    const auto asks = std::min(interval, 500ms);
    auto look_at = steady_clock::now(), ask_at = look_at;
    bool told_done = false;
    for (;;) {
      if (stop_signal) return End::stopped;
      if (first_) return End::failed;
      // Output is printed at once, however seldom ranks are looked at.
      forward(int(std::min(interval, std::chrono::milliseconds(50)).count()));
      tell_signals();
      if (steady_clock::now() >= look_at) {
        reap();
        look_at = steady_clock::now() + interval;
      }
      if (first_ || steady_clock::now() < ask_at) continue;
      ask_at = steady_clock::now() + asks;
      if (all_ended() && !told_done) {
        nodes_.done();
        told_done = true;
      }
      // First, for when all are done nothing else may begin.
      if (told_done && nodes_.are_all_done()) return End::done;
      if (nodes_.failure()) return End::elsewhere;
    }
  }

  std::vector<std::string> command() const {
    std::vector<std::string> all;
    if (!options_.no_python) all = {options_.python, "-u"};
    if (options_.module) all.push_back("-m");
    all.insert(all.end(), options_.program.begin(), options_.program.end());
    return all;
  }

  std::vector<std::string> environment(const Process& p) const {
    const auto text = [](int n) { return std::to_string(n); };
    std::vector<std::pair<std::string, std::string>> own = {
        {"RANK", text(p.rank)},
        {"LOCAL_RANK", text(p.local_rank)},
        {"WORLD_SIZE", text(nodes_.world_size())},
        {"LOCAL_WORLD_SIZE", text(settings_.local_size)},
        {"GROUP_RANK", text(nodes_.node())},
        {"GROUP_WORLD_SIZE", text(nodes_.count())},
        {"ROLE_NAME", options_.role},
        {"ROLE_RANK", text(p.rank)},
        {"ROLE_WORLD_SIZE", text(nodes_.world_size())},
        {"MASTER_ADDR", nodes_.host()},
        {"MASTER_PORT", text(nodes_.port())},
        // The server of the store is here, as it is in torchrun's agent.
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_RESTART_COUNT", text(nodes_.restarts())},
        {"ARETE_ATTEMPT", text(attempt_)},
        {"TORCHELASTIC_MAX_RESTARTS", text(options_.max_restarts)},
        {"TORCHELASTIC_RUN_ID", options_.rdzv_id},
        {"TORCHELASTIC_ERROR_FILE", p.error_file}};
    if (!options_.diagnose.empty())
      own.emplace_back("ARETE_FLIGHT_DIR", fs::absolute(options_.diagnose).string());
    // As torchrun: several processes with as many threads as processors each would only wait.
    if (settings_.local_size > 1 && !std::getenv("OMP_NUM_THREADS"))
      own.emplace_back("OMP_NUM_THREADS", "1");
    std::vector<std::string> all;
    for (char** e = environ; *e; ++e) {
      const std::string_view entry = *e;
      bool replaced = false;
      for (const auto& [name, value] : own)
        replaced |=
            entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
      if (!replaced) all.emplace_back(entry);
    }
    for (const auto& [name, value] : own) all.push_back(name + "=" + value);
    return all;
  }

  void add_output(int fd, const Process& p, int stream, const std::string& folder) {
    const auto local = size_t(p.local_rank);
    const bool only_file = settings_.redirects[local] & stream;
    FILE* file = nullptr;
    if (only_file || (settings_.tee[local] & stream)) {
      const std::string path = folder + (stream == 1 ? "/stdout.log" : "/stderr.log");
      file = std::fopen(path.c_str(), "we");
      if (!file) {
        close(fd);
        throw IoError("run", path + " cannot be written").argument("--log-dir");
      }
    }
    FILE* const to = only_file || !settings_.shown[local] ? nullptr : stream == 1 ? stdout : stderr;
    lines_.emplace_back(fd, to, file, "[" + std::to_string(p.rank) + "] ");
  }

  void start(int local_rank) {
    const std::string folder = settings_.folder + "/attempt_" + std::to_string(attempt_) + "/" +
                               std::to_string(local_rank);
    fs::create_directories(folder);
    Process p{.rank = nodes_.first_rank() + local_rank,
              .local_rank = local_rank,
              .error_file = folder + "/error.json"};
    std::vector<std::string> arguments = command(), variables = environment(p);
    const std::vector<char*> argv = pointers(arguments), envp = pointers(variables);
    std::array<std::array<int, 2>, 3> pipes;  // output, errors, and what exec says
    for (auto& pipe : pipes)
      ARETE_CHECK(pipe2(pipe.data(), O_CLOEXEC) == 0,
                  IoError("run", std::string("no pipe: ") + std::strerror(errno)));
    std::fflush(nullptr);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    ARETE_CHECK(pid >= 0, IoError("run", std::string("no process: ") + std::strerror(errno)));
    if (pid == 0) {
      // Only what is allowed between fork and exec. Nobody is left behind.
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(1);
      // A terminal's Ctrl-C is for the launcher, who tells the ranks: once.
      setsid();
      for (const int s : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
        std::signal(s, SIG_DFL);
      if (!settings_.processors.empty())
        sched_setaffinity(0, sizeof(cpu_set_t), &settings_.processors[size_t(local_rank)]);
      dup2(pipes[0][1], 1);
      dup2(pipes[1][1], 2);
      execvpe(argv[0], argv.data(), envp.data());
      const int error = errno;
      [[maybe_unused]] const ssize_t told = write(pipes[2][1], &error, sizeof(error));
      _exit(127);
    }
    for (auto& pipe : pipes) close(pipe[1]);
    p.pid = pid;
    processes_.push_back(p);
    add_output(pipes[0][0], p, 1, folder);
    add_output(pipes[1][0], p, 2, folder);
    int error = 0;
    const ssize_t told = read(pipes[2][0], &error, sizeof(error));
    close(pipes[2][0]);
    if (told != sizeof(error)) return;
    throw IoError("run", "'" + arguments[0] + "' cannot be started: " + std::strerror(error));
  }

  // Prints what the ranks say; how many of them said something.
  int forward(int milliseconds) {
    std::vector<pollfd> polled;
    for (const Lines& l : lines_) polled.push_back({l.fd(), POLLIN, 0});
    const int n = poll(polled.data(), polled.size(), milliseconds);
    for (size_t i = 0; i < lines_.size() && n > 0; ++i)
      if (polled[i].revents) lines_[i].read_more();
    return n;
  }

  void reap() {
    for (Process& p : processes_) {
      if (p.ended || waitpid(p.pid, &p.status, WNOHANG) != p.pid) continue;
      p.ended = true;
      if (p.status != 0 && !first_) first_ = &p;
      if (monitor_)
        monitor_->process_ended(
            p.rank, (WIFSIGNALED(p.status) ? "was ended by " : "has ended with ") + how(p.status));
    }
  }

  // Of the ranks that failed, the one that the monitor blames, or the first.
  const Process* culprit() const {
    const std::lock_guard lock(blamed_.mutex);
    for (const Process& p : processes_)
      if (p.ended && p.status != 0 && std::ranges::count(blamed_.ranks, p.rank)) return &p;
    return first_;
  }

  bool all_ended() const {
    return std::ranges::all_of(processes_, [](const Process& p) { return p.ended; });
  }

  void signal_all(int s) {
    for (const Process& p : processes_)
      if (!p.ended) kill(p.pid, s);
  }

  void tell_signals() {
    for (const int i : {0, 1})
      if (told_signals[i]) {
        told_signals[i] = 0;
        signal_all(i == 0 ? SIGUSR1 : SIGUSR2);
      }
  }

  void end_all() {
    // Those that fail because one is gone say so first.
    wait_all(stop_signal ? 0ms : 1500ms);
    signal_all(stop_signal ? int(stop_signal) : SIGTERM);
    wait_all(5s);
    // One that is stopped does not even end.
    signal_all(SIGKILL);
    wait_all(60s);
  }

  void wait_all(std::chrono::milliseconds most) {
    const auto end = steady_clock::now() + most;
    for (; !all_ended() && steady_clock::now() < end; forward(20)) {
      reap();
      nodes_.keep_alive();
    }
    reap();
  }

  const Settings& settings_;
  const RunOptions& options_;
  Nodes& nodes_;
  const int attempt_;
  distributed::MonitorServer* const monitor_;
  Blamed& blamed_;
  std::vector<Process> processes_;
  std::vector<Lines> lines_;
  const Process* first_ = nullptr;  // which failed
};

bool is_monitored() {
  const char* text = std::getenv("ARETE_MONITOR");
  return !text || std::string_view(text) != "0";
}

std::unique_ptr<distributed::MonitorServer> start_server(Nodes& nodes, Blamed& blamed) {
  if (nodes.node() != 0 || nodes.world_size() < 2 || !is_monitored()) return nullptr;
  distributed::MonitorServerOptions options{.host = nodes.count() == 1 ? "127.0.0.1" : nodes.host(),
                                            .size = nodes.world_size(),
                                            .name = "the launcher",
                                            .report = [&blamed](const distributed::Finding& f) {
                                              std::fprintf(stderr, "arete run: %s\n",
                                                           f.text.c_str());
                                              const std::lock_guard lock(blamed.mutex);
                                              if (f.hopeless) blamed.ranks = f.culprits;
                                            }};
  if (const char* patience = std::getenv("ARETE_MONITOR_PATIENCE"))
    options.patience = std::max(0.1, std::atof(patience));
  auto server = std::make_unique<distributed::MonitorServer>(options);
  nodes.store_of_ranks()->set(distributed::kMonitorKey, server->address());
  return server;
}

void print_diagnosis(const std::string& folder) {
  try {
    std::fprintf(stderr, "arete run: records of ranks in %s:\n%s", folder.c_str(),
                 distributed::diagnose_folder(folder).c_str());
  } catch (const Error& e) {
    std::fprintf(stderr, "arete run: %s\n", e.what());
  }
}

void check(const RunOptions& o) {
  ARETE_CHECK(!o.program.empty() && !o.program[0].empty(),
              ValueError("run", "there is no program to run")
                  .hint("arete run [--nproc-per-node N] prog.py [arguments]"));
  ARETE_CHECK(o.program[0][0] != '-', ValueError("run", "there is no such option")
                                          .got("'" + o.program[0] + "'")
                                          .hint("`arete run --help` lists them"));
  ARETE_CHECK(!o.module || !o.no_python,
              ValueError("run", "--module needs Python").argument("--no-python"));
  ARETE_CHECK(
      o.start_method.empty(),
      NotImplementedError("run", "ranks are programs of their own, started by fork and exec")
          .argument("--start-method"));
  ARETE_CHECK(o.rdzv_id.size() <= 200 && !o.rdzv_id.empty(),
              ValueError("run", "an identifier has 1 to 200 characters").argument("--rdzv-id"));
}

}  // namespace

int number_of_processes(const std::string& text) {
  if (text == "gpu" || text == "auto") {
    const int gpus = cuda::is_available() ? cuda::device_count() : 0;
    if (gpus > 0) return gpus;
    ARETE_CHECK(text == "auto", DeviceError("run", "there is no GPU: " + cuda::unavailable_reason())
                                    .argument("--nproc-per-node"));
  }
  if (text == "cpu" || text == "auto")
    return int(std::max(1u, std::thread::hardware_concurrency()));
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  ARETE_CHECK(error == std::errc() && end == text.data() + text.size() && n > 0 && n <= 4096,
              ValueError("run", "a number of processes was expected")
                  .argument("--nproc-per-node")
                  .expected("1 to 4096, gpu, cpu or auto")
                  .got("'" + text + "'"));
  return n;
}

std::vector<int> streams_of_ranks(const char* option, const std::string& text, int ranks) {
  std::vector<int> streams(static_cast<size_t>(ranks), 0);
  const auto wrong = [&] {
    return ValueError("run", "outputs of ranks were expected")
        .argument(option)
        .expected("0, 1 (standard output), 2 (errors) or 3 (both), or 0:1,2:3 by local ranks")
        .got("'" + text + "'");
  };
  const auto number = [&](std::string_view part, int most) {
    int n = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (error != std::errc() || end != part.data() + part.size() || n < 0 || n > most)
      throw wrong();
    return n;
  };
  if (text.find(':') == std::string::npos) {
    std::ranges::fill(streams, number(text, 3));
    return streams;
  }
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view entry = rest.substr(0, comma);
    const size_t colon = entry.find(':');
    if (colon == std::string_view::npos) throw wrong();
    streams[size_t(number(entry.substr(0, colon), ranks - 1))] = number(entry.substr(colon + 1), 3);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return streams;
}

int run(const RunOptions& options) {
  if (!options.diagnose.empty() && options.program.empty()) {
    std::fputs(distributed::diagnose_folder(options.diagnose).c_str(), stdout);
    return 0;
  }
  check(options);
  const int size = number_of_processes(options.processes);
  Settings settings{.options = options,
                    .local_size = size,
                    .redirects = streams_of_ranks("--redirects", options.redirects, size),
                    .tee = streams_of_ranks("--tee", options.tee, size),
                    .shown = std::vector<bool>(size_t(size), options.local_ranks_filter.empty())};
  for (std::string_view rest = options.local_ranks_filter; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string one = std::string(rest.substr(0, comma)) + ":3";
    const std::vector<int> chosen = streams_of_ranks("--local-ranks-filter", one, size);
    for (size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i]) settings.shown[i] = true;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    sigaction(s, &action, nullptr);
  }
  const bool keeps = !options.log_dir.empty() || options.redirects != "0" || options.tee != "0";
  const Folder folder(options.log_dir, options.rdzv_id, keeps);
  settings.folder = folder.path();
  if (!options.numa_binding.empty()) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    for (const auto& own : processors_of_ranks(options.numa_binding, settings.local_size,
                                               allowed_processors(), visible ? visible : "")) {
      cpu_set_t& set = settings.processors.emplace_back();
      CPU_ZERO(&set);
      for (int cpu : own) CPU_SET(cpu, &set);
    }
  }
  if (keeps && options.log_dir.empty())
    std::fprintf(stderr, "arete run: outputs are in %s\n", folder.path().c_str());
  if (!options.diagnose.empty()) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(options.diagnose, error))
      if (const std::string name = entry.path().filename();
          name.starts_with("rank_") && name.ends_with(".json"))
        fs::remove(entry.path(), error);
  }
  Nodes nodes(options, size, [] { return stop_signal != 0; });
  for (;;) {
    if (!nodes.meet()) {
      if (stop_signal) return 128 + stop_signal;
      if (nodes.is_done()) return 0;
      std::fprintf(stderr, "arete run: the job has failed on the other machines\n");
      return 1;
    }
    Blamed blamed;
    const auto monitor = start_server(nodes, blamed);
    if (!nodes.begin()) {
      nodes.leave();
      return 128 + stop_signal;
    }
    Launch launch(settings, nodes, monitor.get(), blamed);
    const bool last = nodes.restarts() >= options.max_restarts;
    Launch::End end;
    try {
      end = launch.run();
    } catch (const Error& e) {
      try {
        nodes.fail(e.what(), true);
      } catch (const Error&) {
        // The store is what failed.
      }
      throw;
    }
    if (end == Launch::End::done) return 0;
    if (end == Launch::End::stopped) {
      nodes.leave();
      return 128 + stop_signal;
    }
    int code = 1;
    bool again = !last, counts = true;
    if (end == Launch::End::failed) {
      code = launch.code();
      nodes.fail(launch.report(), last);
      std::fprintf(stderr, "arete run: %s%s\n", launch.report().c_str(),
                   nodes.world_size() > 1 ? "; the others were ended" : "");
    } else {
      const auto failure = nodes.failure();
      counts = !failure->is_change;
      again = !failure->final && (again || !counts);
      std::fprintf(stderr, "arete run: %s%s\n", counts ? "on another machine: " : "",
                   failure->text.c_str());
    }
    if (!options.diagnose.empty() && nodes.world_size() > 1) print_diagnosis(options.diagnose);
    if (!again) return code;
    if (counts)
      std::fprintf(stderr, "arete run: all ranks start again (%d of %d)\n", nodes.restarts() + 1,
                   options.max_restarts);
    else
      std::fprintf(stderr, "arete run: all ranks start again\n");
  }
}

}  // namespace arete::cli
