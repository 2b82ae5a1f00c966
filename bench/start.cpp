#include "bench/start.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/core/modes.h"
#include "arete/models/classifier.h"
#include "arete/nn/container.h"
#include "arete/ops/creation.h"
#include "arete/ops/loss.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/optim/adam.h"

namespace arete::bench {
namespace {

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

/// This program once more, with the compiled kernels of `cache`, or where they usually are.
void run_first(const std::string& what, const std::string& cache = "") {
  const std::string kernels = cache.empty() ? "" : "ARETE_KERNEL_CACHE='" + cache + "' ";
  const std::string command = kernels + "exec '" + own_path() + "' --first " + what + " >/dev/null";
  ARETE_CHECK(std::system(command.c_str()) == 0,
              IoError("arete-bench", "the program could not be started again"));
}

/// An empty folder, gone at the end.
class EmptyFolder {
 public:
  EmptyFolder() {
    // mkdtemp() puts a name that is free in place of the last letters.
    path_ = (std::filesystem::temp_directory_path() / "arete-bench-XXXXXX").string();
    if (!mkdtemp(path_.data())) throw io::system_error("make", path_, errno);
  }
  ~EmptyFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  EmptyFolder(const EmptyFolder&) = delete;
  EmptyFolder& operator=(const EmptyFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void first_result() {
  const Tensor x = ones({3}, TensorOptions(kFloat32, kCUDA));
  std::printf("%g\n", (x + x).sum().item<double>());
}

// What `arete train fashion-mnist --model cnn` does in its first step and for its first test batch.
void first_training_step() {
  nn::Sequential net = models::cnn();
  net.to(kCUDA);
  optim::Adam adam(net.parameters(), {.lr = 1e-3});
  const TensorOptions counter(kInt64, kCUDA);
  Tensor loss_sum = zeros({}, TensorOptions(kFloat64, kCUDA)), correct = zeros({}, counter);
  const auto batch = [&](int64_t n, bool train) {
    const Tensor x = randn({n, 1, 28, 28}).to(kCUDA), y = randint(10, {n}).to(kCUDA);
    const Tensor logits = net(x), loss = cross_entropy(logits, y);
    if (train) {
      loss.backward();
      adam.step();
    }
    const NoGradGuard no_grad;
    loss_sum.add_(loss.detach().to(kFloat64), n);
    correct.add_((logits.argmax(1) == y).sum());
  };
  batch(64, true);
  net.eval();
  const InferenceModeGuard inference;
  batch(500, false);
  std::printf("%g %g\n", loss_sum.item<double>(), correct.item<double>());
}

Row start_row(std::string name, Goal goal, std::function<void()> run) {
  Row row{.name = std::move(name), .unit = Unit::ms};
  row.timing = Timing::wall;
  row.repetitions = 5;
  row.has_peer = false;
  row.goal = goal;
  row.prepare = [run = std::move(run)] { return run; };
  return row;
}

}  // namespace

void do_first(const std::string& what) {
  if (what == "result") return first_result();
  if (what == "training-step") return first_training_step();
  throw ValueError("arete-bench", "there is no first '" + what + "'")
      .expected("result or training-step");
}

std::vector<Row> start_rows() {
  return {start_row("start/first_cuda_result", at_most(600), [] { run_first("result"); }),
          start_row("start/first_cnn_step", {}, [] { run_first("training-step"); }),
          start_row("start/first_cnn_step_empty_cache", at_most(2000), [] {
            const EmptyFolder cache;
            run_first("training-step", cache.path());
          })};
}

}  // namespace arete::bench
