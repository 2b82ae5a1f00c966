// The commands of the program `arete`. Each returns the exit code; errors are exceptions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace arete::cli {

struct TrainOptions {
  std::string dataset = "fashion-mnist";
  std::string model = "mlp";
  int64_t epochs = 5;
  int64_t batch_size = 64;
  double lr = 1e-3;
  std::string schedule = "cosine";  // of the learning rate over all epochs, or "constant"
  std::string device = "auto";
  uint64_t seed = 0;
  std::string out = "runs/fashion-mnist";
  std::string data;  // folder of the data set; empty: the usual places
  int workers = 1;
  int64_t checkpoint_every = 0;  // steps between checkpoints within an epoch; 0: only at its end
  bool resume = false;
  bool overwrite = false;
  bool quiet = false;
  std::function<void(int64_t step)> after_step;  // called after each, before its checkpoint
};
int train(const TrainOptions& options);

struct EvalOptions {
  std::string checkpoint;
  std::string data;
  std::string device = "auto";
  int64_t batch_size = 256;
};
int evaluate(const EvalOptions& options);

struct RunProgramOptions {
  std::string file;                 ///< a saved program
  std::vector<std::string> inputs;  ///< .npy files, in the order of the program's inputs
  std::string output;               ///< .npy, or .npz of several results; "": they are printed
  std::string device = "cpu";
  int64_t repeat = 1;
};
int run_program(const RunProgramOptions& options);

struct CheckpointOptions {
  std::string source;         ///< a folder that distributed.checkpoint wrote; split: other files
  std::string out;            ///< a folder
  std::string prefix;         ///< of names, which merge takes away and split adds
  double most_gigabytes = 5;  ///< merge: of a file
  int64_t pieces = 1;         ///< split: of each tensor
  bool verify = false;        ///< info: read everything
};
int checkpoint_info(const CheckpointOptions& options);
int checkpoint_merge(const CheckpointOptions& options);
int checkpoint_split(const CheckpointOptions& options);

struct PlanOptions {
  std::string model;  ///< a name of transformer_of(), or a config.json as Hugging Face writes it
  int gpus = 8;
  std::string machine = "h100";
  int gpus_per_node = 0;  ///< 0: the machine's
  double efficiency = 0;  ///< of products, measured; 0: the machine's
  double memory = 0;      ///< GiB of a GPU; 0: the machine's
  double local = 0;       ///< GB/s of a GPU within a node; 0: the machine's
  double network = 0;     ///< between nodes
  int64_t batch = 1024;   ///< sequences of a step
  int64_t sequence = 4096;
  int64_t top = 10;  ///< ways to print
  std::string json;  ///< a file to write; "-": standard output, instead of the table
};
int plan(const PlanOptions& options);

struct InfoOptions {
  bool json = false;
  bool check = false;  ///< start the GPU, too
};
int info(const InfoOptions& options);

struct ExplainOptions {
  std::string python = "python3";    ///< which has the package arete
  std::string json, html;            ///< files to write
  std::vector<std::string> program;  ///< and its arguments
};
/// What is run: Python with arete.explain. ValueError without a program.
std::vector<std::string> explain_command(const ExplainOptions& options);
/// Becomes that process. IoError if there is no such Python.
int explain(const ExplainOptions& options);

struct BenchOptions {
  std::string device = "auto";
  std::vector<std::string> groups;  ///< of bench_groups(); none: all
  std::string json, html;           ///< files to write
  bool quick = false;               ///< smaller sizes, shorter measurements
  bool ceilings = false;            ///< see ceilings()
  bool again = false;               ///< ceilings: measure even if the figures are known
};
/// transfers, bandwidth, gemm, launch.
std::vector<std::string> bench_groups();
int bench(const BenchOptions& options);
/// IoError unless a file of this name can be written, before anything is measured for it; "" is no
/// file.
void check_writable(const std::string& path);
/// What the machine can do at most, which the profiler compares operators with: printed, and
/// written to `json` if that is a name. ValueError beside groups, `html` or `quick`.
int ceilings(const BenchOptions& options);

}  // namespace arete::cli
