// arete: trains, evaluates, runs saved programs, measures and describes.
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include <CLI/CLI.hpp>

#include "arete/base/error.h"
#include "cli/commands.h"
#include "cli/run.h"

namespace {

using namespace arete::cli;

// CLI11's own check names the range of a double to 300 digits.
std::string positive_number(const std::string& text) {
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  const bool good = end != text.c_str() && *end == 0 && v > 0 && std::isfinite(v);
  return good ? "" : "expected a positive number, got '" + text + "'";
}

void add_train(CLI::App& app, TrainOptions& o, int& code) {
  CLI::App* c =
      app.add_subcommand("train", "Train a classifier and write checkpoints, metrics and a report");
  c->add_option("dataset", o.dataset, "The data set: fashion-mnist or mnist")
      ->capture_default_str();
  c->add_option("--model", o.model, "mlp or cnn")
      ->capture_default_str()
      ->check(CLI::IsMember({"mlp", "cnn"}));
  c->add_option("--epochs", o.epochs, "Passes over the data")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(1000000)));
  c->add_option("--batch-size", o.batch_size, "Images in a step")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(60000)));
  c->add_option("--lr", o.lr, "Learning rate of Adam")
      ->capture_default_str()
      ->check(positive_number);
  c->add_option("--schedule", o.schedule,
                "Learning rate over the run: cosine (down to 0) or constant")
      ->capture_default_str()
      ->check(CLI::IsMember({"cosine", "constant"}));
  c->add_option("--device", o.device, "auto, cpu or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  c->add_option("--seed", o.seed, "Decides initial weights and order of the images")
      ->capture_default_str();
  c->add_option("--out", o.out, "Folder for everything the run writes")->capture_default_str();
  c->add_option("--data", o.data, "Folder of the data set's files");
  c->add_option("--workers", o.workers, "Threads that prepare batches")
      ->capture_default_str()
      ->check(CLI::Range(0, 64));
  c->add_option("--checkpoint-every", o.checkpoint_every, "Also write a checkpoint every N steps")
      ->check(CLI::Range(int64_t(0), int64_t(1) << 40));
  c->add_flag("--resume", o.resume, "Go on from the checkpoint in the --out folder");
  c->add_flag("--overwrite", o.overwrite, "Start anew where a run already is");
  c->add_flag("--quiet", o.quiet, "No progress bar");
  c->callback([&] { code = train(o); });
}

void add_eval(CLI::App& app, EvalOptions& o, int& code) {
  CLI::App* c = app.add_subcommand("eval", "Test accuracy of a checkpoint, class by class");
  c->add_option("checkpoint", o.checkpoint, "A checkpoint file, or the folder of a run")
      ->required();
  c->add_option("--data", o.data, "Folder of the data set's files");
  c->add_option("--device", o.device, "auto, cpu or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  c->add_option("--batch-size", o.batch_size, "Images at a time")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(60000)));
  c->callback([&] { code = evaluate(o); });
}

void add_plan(CLI::App& app, PlanOptions& o, int& code) {
  CLI::App* c = app.add_subcommand(
      "plan", "Ways to divide a Transformer among GPUs, by projected speed and memory");
  c->add_option(
       "model", o.model,
       "gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-7b, -13b, -70b, -405b, or a config.json")
      ->required();
  c->add_option("--gpus", o.gpus, "How many")->capture_default_str()->check(CLI::Range(1, 65536));
  c->add_option("--machine", o.machine, "h100, h200 or a100")->capture_default_str();
  c->add_option("--gpus-per-node", o.gpus_per_node, "Other than the machine's")
      ->check(CLI::Range(1, 1024));
  c->add_option("--efficiency", o.efficiency,
                "The part of the peak that a layer's products reach on one GPU, measured")
      ->check(CLI::Range(0.01, 1.0));
  c->add_option("--memory", o.memory, "GiB of a GPU")->check(positive_number);
  c->add_option("--local-bandwidth", o.local, "GB/s of a GPU within a node, measured")
      ->check(positive_number);
  c->add_option("--network-bandwidth", o.network, "GB/s of a GPU between nodes, measured")
      ->check(positive_number);
  c->add_option("--batch", o.batch, "Sequences of a step, of all GPUs")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(1) << 30));
  c->add_option("--sequence", o.sequence, "Tokens of a sequence")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(1) << 30));
  c->add_option("--top", o.top, "How many ways to show")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(100000)));
  c->add_option("--json", o.json, "A file for them, or - for standard output");
  c->callback([&] { code = plan(o); });
}

void add_bench(CLI::App& app, BenchOptions& o, int& code) {
  CLI::App* c = app.add_subcommand(
      "bench", "What this machine does: transfers, memory bandwidth, products, launch overhead");
  CLI::Option* const groups =
      c->add_option("groups", o.groups, "Only these: transfers, bandwidth, gemm, launch");
  groups->check(CLI::IsMember(bench_groups()));
  c->add_option("--device", o.device, "auto, cpu or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  c->add_option("--json", o.json, "Also write the figures to this file");
  CLI::Option* const html =
      c->add_option("--html", o.html, "Also write a page with plots to this file");
  CLI::Option* const quick = c->add_flag("--quick", o.quick, "Smaller sizes, shorter measurements");
  CLI::Option* const ceilings_only = c->add_flag(
      "--ceilings", o.ceilings,
      "Only bandwidth, matrix products and the smallest call: what operators are compared with");
  ceilings_only->excludes(groups)->excludes(html)->excludes(quick);
  c->add_flag("--again", o.again, "With --ceilings: measure even if the figures are known")
      ->needs(ceilings_only);
  c->callback([&] { code = o.ceilings ? ceilings(o) : bench(o); });
}

void add_explain(CLI::App& app, ExplainOptions& o, int& code) {
  CLI::App* c = app.add_subcommand(
      "explain",
      "Run a Python program (prog.py [arguments], behind the options) and say what became "
      "of its compiled functions; the exit code is the program's");
  c->add_option("--json", o.json, "Also write all that is known to this file");
  c->add_option("--html", o.html, "Also write a page with the plans drawn to this file");
  c->add_option("--python", o.python, "The Python that has the package arete")
      ->capture_default_str();
  c->prefix_command();
  c->callback([&o, &code, c] {
    o.program = c->remaining();
    code = explain(o);
  });
}

void add_run(CLI::App& app, RunOptions& o, int& code) {
  CLI::App* c = app.add_subcommand(
      "run",
      "Start the processes of a program (prog.py [arguments], behind the options) that works with "
      "several, as torchrun does");
  c->add_option("--nproc-per-node,--nproc_per_node", o.processes,
                "Processes on this machine: a number, gpu, cpu or auto")
      ->capture_default_str();
  c->add_option(
       "--nnodes", o.nodes,
       "Machines, on each of which the program is started; the least and the most with c10d, A:B")
      ->capture_default_str();
  c->add_option("--node-rank,--node_rank", o.node, "Which of them this is")
      ->check(CLI::NonNegativeNumber);
  c->add_option("--master-addr,--master_addr", o.host, "The address of node 0")
      ->capture_default_str();
  c->add_option("--master-port,--master_port", o.port, "A port there")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  c->add_flag("--standalone", o.standalone, "On this machine alone, with any free port");
  c->add_option("--rdzv-backend,--rdzv_backend", o.rdzv_backend,
                "static (--node-rank says which machine is which) or c10d (whoever comes)")
      ->capture_default_str();
  c->add_option("--rdzv-endpoint,--rdzv_endpoint", o.rdzv_endpoint,
                "host:port of one machine, in place of --master-addr and --master-port");
  c->add_option("--rdzv-id,--rdzv_id", o.rdzv_id, "A name of the run")->capture_default_str();
  c->add_option("--rdzv-conf,--rdzv_conf", o.rdzv_conf,
                "timeout=SECONDS for machines to come, rank=N");
  c->add_option("--max-restarts,--max_restarts", o.max_restarts,
                "How often all ranks start again, from the beginning, when one has failed")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000));
  c->add_option("--monitor-interval,--monitor_interval", o.monitor_interval,
                "Seconds between looks at the ranks")
      ->capture_default_str()
      ->check(positive_number);
  c->add_option("--role", o.role, "ROLE_NAME of the ranks")->capture_default_str();
  c->add_option("--log-dir,--log_dir", o.log_dir, "Folder for outputs of ranks");
  c->add_option("-r,--redirects", o.redirects,
                "Outputs that go to files only: 1 (standard output), 2 (errors) or 3 (both), or by "
                "local ranks: 0:1,2:3")
      ->capture_default_str();
  c->add_option("-t,--tee", o.tee, "The same for outputs that go to files, too")
      ->capture_default_str();
  c->add_option("--local-ranks-filter,--local_ranks_filter", o.local_ranks_filter,
                "Only these local ranks' outputs are printed: 0,2");
  c->add_option("--start-method,--start_method", o.start_method)->group("");
  c->add_option(
      "--numa-binding,--numa_binding", o.numa_binding,
      "Processors of each rank: those of its GPU's NUMA node (node), of that node's socket "
      "(socket), cores of its own there (exclusive), or a shared cache's (core-complex)");
  c->add_option(
      "--diagnose", o.diagnose,
      "Folder for flight records of ranks if one fails; without a program: say what those "
      "that are there mean");
  c->add_flag("-m,--module", o.module, "The program is a module of Python");
  c->add_flag("--no-python,--no_python", o.no_python, "The program is not one of Python");
  c->add_option("--python", o.python, "The Python that has the package arete")
      ->capture_default_str();
  c->prefix_command();
  c->callback([&o, &code, c] {
    o.program = c->remaining();
    code = run(o);
  });
}

void add_run_program(CLI::App& app, RunProgramOptions& o, int& code) {
  CLI::App* c = app.add_subcommand(
      "run-program", "Run a saved program (arete.jit.save, arete.export.save) on arrays");
  c->add_option("file", o.file, "The program")->required();
  c->add_option("--input", o.inputs, "A .npy file; once for each input, in their order");
  c->add_option("--output", o.output,
                "Write the results to this .npy file, or .npz for several; else they are printed");
  c->add_option("--device", o.device, "auto, cpu or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  c->add_option("--repeat", o.repeat, "Run it so often, and say how long that takes")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(1000000)));
  c->callback([&] { code = run_program(o); });
}

void add_checkpoint(CLI::App& app, CheckpointOptions& o, int& code) {
  CLI::App* all = app.add_subcommand("ckpt", "Checkpoints that many processes wrote");
  all->require_subcommand(1);
  CLI::App* c = all->add_subcommand("info", "List the tensors");
  c->add_option("folder", o.source, "The checkpoint")->required();
  c->add_flag("--verify", o.verify, "Also read everything, and compare it with its checksums");
  c->callback([&] { code = checkpoint_info(o); });
  c = all->add_subcommand("merge", "Write whole tensors, as Hugging Face's libraries read them");
  c->add_option("folder", o.source, "The checkpoint")->required();
  c->add_option("out", o.out, "A folder for model.safetensors")->required();
  c->add_option("--prefix", o.prefix,
                "Only names that begin so, without it: model. for a dictionary's \"model\"");
  c->add_option("--max-file-size", o.most_gigabytes, "Gigabytes in a file")
      ->capture_default_str()
      ->check(positive_number);
  c->callback([&] { code = checkpoint_merge(o); });
  c = all->add_subcommand("split", "Make a checkpoint of a safetensors file, or a folder of such");
  c->add_option("source", o.source, "The file or folder")->required();
  c->add_option("out", o.out, "A folder for the checkpoint")->required();
  c->add_option("--prefix", o.prefix, "What the names are to begin with");
  c->add_option("--pieces", o.pieces, "Of each tensor, and files")
      ->capture_default_str()
      ->check(CLI::Range(int64_t(1), int64_t(4096)));
  c->callback([&] { code = checkpoint_split(o); });
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that went away ends output, not the training run.
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app("Arete: deep learning in C++", "arete");
  app.set_version_flag("--version", ARETE_VERSION);
  app.require_subcommand(1);
  int code = 0;
  TrainOptions train_options;
  EvalOptions eval_options;
  InfoOptions info_options;
  add_train(app, train_options, code);
  add_eval(app, eval_options, code);
  RunOptions run_options;
  add_run(app, run_options, code);
  RunProgramOptions run_program_options;
  add_run_program(app, run_program_options, code);
  CheckpointOptions checkpoint_options;
  add_checkpoint(app, checkpoint_options, code);
  BenchOptions bench_options;
  add_bench(app, bench_options, code);
  ExplainOptions explain_options;
  add_explain(app, explain_options, code);
  PlanOptions plan_options;
  add_plan(app, plan_options, code);
  CLI::App* info_command = app.add_subcommand("info", "CPU, threads, libraries and devices");
  info_command->add_flag("--json", info_options.json, "As JSON");
  info_command->add_flag("--check", info_options.check,
                         "Also start CUDA and compute on the first GPU");
  info_command->callback([&] { code = info(info_options); });
  try {
    app.parse(argc, argv);
    return code;
  } catch (const CLI::ParseError& e) {
    const int status = app.exit(e);
    return status == 0 ? 0 : 2;  // help and version are no errors
  } catch (const arete::Error& e) {
    std::fprintf(stderr, "arete: %s\n", e.what());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "arete: out of memory. Hint: use a smaller --batch-size\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "arete: %s\n", e.what());
  }
  return 1;
}
