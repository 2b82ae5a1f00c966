#include "cli/run.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "arete/base/error.h"
#include "arete/device/cuda.h"
#include "arete/distributed/tcp_store.h"

extern char** environ;

namespace arete::cli {
namespace {

using std::chrono::steady_clock;

volatile std::sig_atomic_t stop_signal = 0;
void note_signal(int s) { stop_signal = s; }

// Bytes of a rank's output up to the last end of a line.
class Lines {
 public:
  Lines(int fd, FILE* to, int rank)
      : fd_(fd), to_(to), prefix_("[" + std::to_string(rank) + "] ") {}
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

  void read_more() {
    std::array<char, 16384> bytes;
    const ssize_t n = read(fd_, bytes.data(), bytes.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return end();
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
    std::fflush(to_);
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
  FILE* to_;
  std::string prefix_, line_;
};

struct Process {
  pid_t pid = -1;
  int rank = 0;
  bool ended = false;
  int status = 0;
};

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string how(int status) {
  if (!WIFSIGNALED(status)) return "exit code " + std::to_string(WEXITSTATUS(status));
  const char* name = sigabbrev_np(WTERMSIG(status));
  return "signal " + (name ? "SIG" + std::string(name) : std::to_string(WTERMSIG(status)));
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& t : texts) list.push_back(t.data());
  list.push_back(nullptr);
  return list;
}

class Launch {
 public:
  Launch(const RunOptions& options, int local_size, int port)
      : options_(options), local_size_(local_size), port_(port) {}

  int run() {
    try {
      for (int i = 0; i < local_size_; ++i) start(i);
    } catch (...) {
      end_all();
      throw;
    }
    while (!all_ended() && !first_ && !stop_signal) {
      forward(50);
      reap();
    }
    if (first_ || stop_signal) end_all();
    for (int round = 0; round < 100 && forward(0) > 0; ++round) {
    }
    for (Lines& l : lines_) l.end();
    if (!first_) return stop_signal ? 128 + stop_signal : 0;
    std::fprintf(stderr, "arete run: rank %d (process %d) ended with %s%s\n", first_->rank,
                 int(first_->pid), how(first_->status).c_str(),
                 local_size_ > 1 ? "; the others were ended" : "");
    return code_of(first_->status);
  }

 private:
  std::vector<std::string> command() const {
    std::vector<std::string> all;
    if (!options_.no_python) all = {options_.python, "-u"};
    if (options_.module) all.push_back("-m");
    all.insert(all.end(), options_.program.begin(), options_.program.end());
    return all;
  }

  std::vector<std::string> environment(int local_rank) const {
    std::vector<std::pair<std::string, std::string>> own = {
        {"RANK", std::to_string(options_.node * local_size_ + local_rank)},
        {"LOCAL_RANK", std::to_string(local_rank)},
        {"WORLD_SIZE", std::to_string(options_.nodes * local_size_)},
        {"LOCAL_WORLD_SIZE", std::to_string(local_size_)},
        {"GROUP_RANK", std::to_string(options_.node)},
        {"MASTER_ADDR", options_.host},
        {"MASTER_PORT", std::to_string(port_)},
        // The server of the store is here, as it is in torchrun's agent.
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_RESTART_COUNT", "0"},
        {"TORCHELASTIC_RUN_ID", "arete"}};
    // As torchrun: several processes with as many threads as processors each would only wait.
    if (local_size_ > 1 && !std::getenv("OMP_NUM_THREADS"))
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

  void start(int local_rank) {
    std::vector<std::string> arguments = command(), variables = environment(local_rank);
    const std::vector<char*> argv = pointers(arguments), envp = pointers(variables);
    std::array<std::array<int, 2>, 3> pipes;  // output, errors, and what exec says
    for (auto& p : pipes)
      ARETE_CHECK(pipe2(p.data(), O_CLOEXEC) == 0,
                  IoError("run", std::string("no pipe: ") + std::strerror(errno)));
    std::fflush(nullptr);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    ARETE_CHECK(pid >= 0, IoError("run", std::string("no process: ") + std::strerror(errno)));
    if (pid == 0) {
      // Only what is allowed between fork and exec. Nobody is left behind.
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(1);
      std::signal(SIGPIPE, SIG_DFL);
      std::signal(SIGINT, SIG_DFL);
      std::signal(SIGTERM, SIG_DFL);
      dup2(pipes[0][1], 1);
      dup2(pipes[1][1], 2);
      execvpe(argv[0], argv.data(), envp.data());
      const int error = errno;
      [[maybe_unused]] const ssize_t told = write(pipes[2][1], &error, sizeof(error));
      _exit(127);
    }
    for (auto& p : pipes) close(p[1]);
    processes_.push_back({.pid = pid, .rank = options_.node * local_size_ + local_rank});
    lines_.emplace_back(pipes[0][0], stdout, processes_.back().rank);
    lines_.emplace_back(pipes[1][0], stderr, processes_.back().rank);
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
    }
  }

  bool all_ended() const {
    for (const Process& p : processes_)
      if (!p.ended) return false;
    return true;
  }

  void end_all() {
    const auto signal_all = [&](int s) {
      for (const Process& p : processes_)
        if (!p.ended) kill(p.pid, s);
    };
    // Those that fail because one is gone say so first.
    wait_all(std::chrono::milliseconds(stop_signal ? 0 : 200));
    signal_all(SIGTERM);
    wait_all(std::chrono::seconds(5));
    signal_all(SIGKILL);
    wait_all(std::chrono::seconds(60));
  }

  void wait_all(std::chrono::milliseconds most) {
    const auto end = steady_clock::now() + most;
    for (; !all_ended() && steady_clock::now() < end; forward(20)) reap();
    reap();
  }

  const RunOptions& options_;
  const int local_size_, port_;
  std::vector<Process> processes_;
  std::vector<Lines> lines_;
  const Process* first_ = nullptr;  // which failed
};

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

int run(const RunOptions& options) {
  ARETE_CHECK(!options.program.empty(),
              ValueError("run", "there is no program to run")
                  .hint("arete run [--nproc-per-node N] prog.py [arguments]"));
  ARETE_CHECK(options.node < options.nodes, ValueError("run", "there is no such node")
                                                .argument("--node-rank")
                                                .got(std::to_string(options.node)));
  ARETE_CHECK(!options.standalone || options.nodes == 1,
              ValueError("run", "--standalone is for one node").argument("--nnodes"));
  ARETE_CHECK(!options.module || !options.no_python,
              ValueError("run", "--module needs Python").argument("--no-python"));
  const int size = number_of_processes(options.processes);
  RunOptions used = options;
  if (used.standalone) used.host = "127.0.0.1";
  // The store is here, so that it lives as long as all ranks, and a free port stays ours.
  std::unique_ptr<distributed::TCPStore> store;
  int port = used.standalone ? 0 : used.port;
  if (used.node == 0) {
    store = std::make_unique<distributed::TCPStore>(
        used.host, distributed::TcpStoreOptions{.port = uint16_t(port), .is_server = true});
    port = store->port();
  }
  for (const int s : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    sigaction(s, &action, nullptr);
  }
  return Launch(used, size, port).run();
}

}  // namespace arete::cli
