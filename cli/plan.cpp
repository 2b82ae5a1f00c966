// arete plan: ways to divide a Transformer among GPUs.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "arete/base/error.h"
#include "arete/distributed/cost_model.h"
#include "cli/commands.h"

namespace arete::cli {

namespace d = arete::distributed;
using nlohmann::json;

namespace {

// The sizes that a config.json of Hugging Face's libraries says, under the names of GPT-2 or of
// Llama.
d::TransformerSize size_of_config(const std::string& path) {
  std::ifstream file(path);
  const json c = file ? json::parse(file, nullptr, false) : json();
  ARETE_CHECK(c.is_object(), IoError("plan", path + " is no file of JSON with a model's sizes"));
  const auto number = [&](std::initializer_list<const char*> names, int64_t otherwise) {
    for (const char* name : names)
      if (c.contains(name) && c[name].is_number_integer() && c[name].get<int64_t>() > 0)
        return c[name].get<int64_t>();
    ARETE_CHECK(otherwise > 0, IoError("plan", path + " does not say " + *names.begin()));
    return otherwise;
  };
  d::TransformerSize m;
  m.name = path;
  m.layers = number({"num_hidden_layers", "n_layer"}, 0);
  m.width = number({"hidden_size", "n_embd"}, 0);
  m.heads = number({"num_attention_heads", "n_head"}, 0);
  m.kv_heads = number({"num_key_value_heads"}, m.heads);
  m.hidden = number({"intermediate_size", "n_inner"}, 4 * m.width);
  m.vocabulary = number({"vocab_size"}, 0);
  const std::string activation =
      c.value("hidden_act", c.value("activation_function", std::string()));
  m.gated = activation == "silu" || activation == "swiglu";
  m.tied = c.value("tie_word_embeddings", c.contains("n_embd"));
  return m;
}

json json_of(const d::ParallelPlan& p) {
  return {{"data", p.data},
          {"tensor", p.tensor},
          {"pipeline", p.pipeline},
          {"schedule", p.schedule},
          {"stages", p.stages},
          {"sharding", p.sharding},
          {"recompute", p.recompute},
          {"microbatch", p.microbatch},
          {"microbatches", p.microbatches},
          {"step_seconds", p.step},
          {"tokens_per_second", p.tokens},
          {"utilization", p.utilization},
          {"memory_bytes", p.memory},
          {"bubble", p.bubble},
          {"exposed", p.exposed}};
}

}  // namespace

int plan(const PlanOptions& o) {
  const bool is_file = o.model.ends_with(".json");
  d::PlanRequest r{.model = is_file ? size_of_config(o.model) : d::transformer_of(o.model),
                   .machine = d::machine_of(o.machine),
                   .gpus = o.gpus,
                   .batch = o.batch,
                   .sequence = o.sequence};
  d::Machine& m = r.machine;
  if (o.gpus_per_node) m.gpus_per_node = o.gpus_per_node;
  if (o.efficiency > 0) m.efficiency = o.efficiency;
  if (o.memory > 0) m.memory = o.memory * double(1 << 30);
  if (o.local > 0) m.local.bandwidth = o.local * 1e9;
  if (o.network > 0) m.network.bandwidth = o.network * 1e9;
  check_writable(o.json == "-" ? "" : o.json);
  std::vector<d::ParallelPlan> plans = d::parallel_plans(r);
  const size_t ways = plans.size();
  plans.resize(std::min(ways, size_t(o.top)));
  if (!o.json.empty()) {
    json all = {{"model", r.model.name},      {"parameters", r.model.parameters()},
                {"machine", m.name},          {"gpus", r.gpus},
                {"batch", r.batch},           {"sequence", r.sequence},
                {"efficiency", m.efficiency}, {"projected", true},
                {"plans", json::array()}};
    for (const auto& p : plans) all["plans"].push_back(json_of(p));
    if (o.json == "-") {
      std::printf("%s\n", all.dump(2).c_str());
      return 0;
    }
    std::ofstream(o.json) << all.dump(2) << "\n";
  }
  std::printf(
      "%s: %.2f G parameters on %d GPUs (%s, %d a node), %ld sequences of %ld tokens a step\n"
      "projected, not measured: products at %.0f %% of %.0f TFLOPS, %.0f GB/s within a node, %.0f "
      "between nodes\n\n",
      r.model.name.c_str(), r.model.parameters() / 1e9, r.gpus, m.name.c_str(), m.gpus_per_node,
      long(r.batch), long(r.sequence), 100 * m.efficiency, m.flops / 1e12, m.local.bandwidth / 1e9,
      m.network.bandwidth / 1e9);
  std::printf("%5s %4s %4s  %-22s %-11s %-10s %13s %12s %6s %8s %7s %8s\n", "data", "tp", "pp",
              "schedule", "sharded", "recompute", "microbatches", "tokens/s", "MFU", "GiB",
              "bubble", "exposed");
  for (const auto& p : plans) {
    const std::string schedule =
        p.schedule.empty() ? "-" : p.schedule + " " + std::to_string(p.stages / p.pipeline);
    const std::string batches =
        std::to_string(p.microbatches) + " of " + std::to_string(p.microbatch);
    std::printf("%5d %4d %4d  %-22s %-11s %-10s %13s %12.0f %5.1f%% %8.1f %6.1f%% %7.1f%%\n",
                p.data, p.tensor, p.pipeline, schedule.c_str(),
                p.sharding == "replicas" ? "-" : p.sharding.c_str(), p.recompute ? "yes" : "-",
                batches.c_str(), p.tokens, 100 * p.utilization, p.memory / double(1 << 30),
                100 * p.bubble, 100 * p.exposed);
  }
  if (ways > plans.size()) std::printf("... and %zu more ways that fit\n", ways - plans.size());
  return 0;
}

}  // namespace arete::cli
