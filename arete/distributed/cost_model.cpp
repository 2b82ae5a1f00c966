#include "arete/distributed/cost_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "arete/base/error.h"
#include "arete/distributed/pipeline_schedule.h"

namespace arete::distributed {

// Note [What a plan leaves out]
// Products reach one part of the peak whatever their sizes; kernels and messages take the same time
// in each step (no jitter, no failures); a node's links are not shared with others. Collectives are
// rings. Gradients hide behind the last microbatch's backward pass, gathered parameters behind the
// layers before. Activations are counted as if norms, products and the mask of no dropout were kept
// and scores were not (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
// Models").

double all_reduce_seconds(double bytes, int ranks, const Link& link) {
  return 2 * all_gather_seconds(bytes, ranks, link);
}

double all_gather_seconds(double bytes, int ranks, const Link& link) {
  const double others = ranks - 1;
  return others * link.latency + bytes * others / (double(ranks) * link.bandwidth);
}

Link fit_link(const std::vector<std::pair<double, double>>& measured) {
  // Weights of 1/t^2 make errors relative.
  double w = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [bytes, seconds] : measured) {
    ARETE_CHECK(seconds > 0 && bytes >= 0,
                ValueError("fit_link", "times are positive and sizes are not negative"));
    const double k = 1 / (seconds * seconds);
    w += k, x += k * bytes, y += k * seconds, xx += k * bytes * bytes, xy += k * bytes * seconds;
  }
  const double below = w * xx - x * x;
  ARETE_CHECK(measured.size() >= 2 && below > 1e-12 * w * xx,
              ValueError("fit_link", "wants messages of two sizes"));
  const double slope = (w * xy - x * y) / below, start = (y - slope * x) / w;
  ARETE_CHECK(slope > 0, ValueError("fit_link", "larger messages took no longer"));
  return {std::max(start, 0.0), 1 / slope};
}

Machine machine_of(const std::string& name) {
  // Peaks of the data sheets without sparsity; links as NCCL's rings reach them.
  static const Machine known[] = {
      {"h100", 8, 989e12, 0.5, 80e9, 3.35e12, {3e-6, 300e9}, {12e-6, 45e9}},
      {"h200", 8, 989e12, 0.5, 141e9, 4.8e12, {3e-6, 300e9}, {12e-6, 45e9}},
      {"a100", 8, 312e12, 0.5, 80e9, 2.0e12, {3e-6, 220e9}, {12e-6, 22e9}},
  };
  const auto* const found = std::ranges::find(known, name, &Machine::name);
  ARETE_CHECK(found != std::end(known), ValueError("plan", "there are no figures of this machine")
                                            .expected("h100, h200 or a100")
                                            .got("'" + name + "'"));
  return *found;
}

TransformerSize transformer_of(const std::string& name) {
  static const TransformerSize known[] = {
      {"gpt2", 12, 768, 12, 12, 3072, 50257, false, true},
      {"gpt2-medium", 24, 1024, 16, 16, 4096, 50257, false, true},
      {"gpt2-large", 36, 1280, 20, 20, 5120, 50257, false, true},
      {"gpt2-xl", 48, 1600, 25, 25, 6400, 50257, false, true},
      {"llama-7b", 32, 4096, 32, 32, 11008, 32000, true, false},
      {"llama-13b", 40, 5120, 40, 40, 13824, 32000, true, false},
      {"llama-70b", 80, 8192, 64, 8, 28672, 128256, true, false},
      {"llama-405b", 126, 16384, 128, 8, 53248, 128256, true, false},
  };
  const auto* const found = std::ranges::find(known, name, &TransformerSize::name);
  if (found != std::end(known)) return *found;
  std::string names;
  for (const auto& k : known) names += (names.empty() ? "" : ", ") + k.name;
  throw ValueError("plan", "there is no such model").expected(names).got("'" + name + "'");
}

double TransformerSize::parameters_of_layer() const {
  const double w = double(width), kv = w * double(kv_heads) / double(heads);
  return 2 * w * w + 2 * w * kv + (gated ? 3 : 2) * w * double(hidden) + 2 * w;
}
double TransformerSize::parameters() const {
  return double(layers) * parameters_of_layer() +
         (tied ? 1 : 2) * double(vocabulary) * double(width) + double(width);
}
double TransformerSize::flops_of_layer(int64_t sequence) const {
  return 2 * (parameters_of_layer() - 2 * double(width)) + 2 * double(sequence) * double(width);
}
double TransformerSize::flops(int64_t sequence) const {
  return double(layers) * flops_of_layer(sequence) + 2 * double(vocabulary) * double(width);
}

namespace {

class Planner {
 public:
  explicit Planner(const PlanRequest& r) : r_(r), m_(r.model), machine_(r.machine) {}

  std::vector<ParallelPlan> all() {
    for (int tensor = 1; tensor <= machine_.gpus_per_node; tensor *= 2) {
      if (m_.heads % tensor || m_.kv_heads % tensor || r_.gpus % tensor) continue;
      for (int pipeline = 1; pipeline <= std::min<int64_t>(m_.layers, 64); ++pipeline) {
        if (r_.gpus / tensor % pipeline) continue;
        const int data = r_.gpus / tensor / pipeline;
        if (r_.batch % data) continue;
        for (const int64_t microbatch : {1, 2, 4, 8, 16})
          if (r_.batch / data % microbatch == 0)
            for (const bool recompute : {false, true})
              consider({.data = data,
                        .tensor = tensor,
                        .pipeline = pipeline,
                        .schedule = "",
                        .sharding = "",
                        .recompute = recompute,
                        .microbatch = microbatch,
                        .microbatches = r_.batch / data / microbatch});
      }
    }
    std::ranges::stable_sort(plans_, std::greater<>(), &ParallelPlan::tokens);
    return std::move(plans_);
  }

 private:
  void consider(const ParallelPlan& plan) {
    if (plan.pipeline == 1) return with_schedule(plan, "", 1);
    if (plan.microbatches > 4096) return;
    with_schedule(plan, "1F1B", plan.pipeline);
    if (m_.layers >= 2 * plan.pipeline) {
      const int64_t rounds = std::max<int64_t>(1, plan.microbatches / plan.pipeline);
      if (plan.microbatches % rounds == 0)
        with_schedule(plan, "Interleaved1F1B", 2 * plan.pipeline);
      with_schedule(plan, "ZBVZeroBubble", 2 * plan.pipeline);
    }
  }

  double seconds(double flops, int tensor) const {
    return flops / (machine_.flops * machine_.efficiency * tensor);
  }
  // Layers of a stage: the first ones have one more.
  double layers_of(int stage, int stages) const {
    return double(m_.layers / stages + (stage < m_.layers % stages ? 1 : 0));
  }
  double tokens_of(const ParallelPlan& p) const {
    return double(p.microbatch) * double(r_.sequence);
  }

  PipelineCosts costs_of(const ParallelPlan& p) const {
    const double tokens = tokens_of(p), bytes = 2 * tokens * double(m_.width);
    const double layer = seconds(m_.flops_of_layer(r_.sequence) * tokens, p.tensor);
    const double scores = seconds(2 * double(r_.sequence) * double(m_.width) * tokens, p.tensor);
    const double sums = 2 * all_reduce_seconds(bytes, p.tensor, machine_.local);
    const double head = seconds(2 * double(m_.vocabulary) * double(m_.width) * tokens, p.tensor);
    PipelineCosts costs;
    for (int k = 0; k < p.stages; ++k) {
      const double n = layers_of(k, p.stages), last = k == p.stages - 1 ? head : 0;
      const double forward = n * (layer + sums) + last;
      costs.forward.push_back(forward);
      // Scores have gradients of inputs alone, which take twice their time.
      costs.backward_input.push_back(forward + n * scores + (p.recompute ? n * (layer + sums) : 0));
      costs.backward_weight.push_back(n * (layer - scores) + last);
    }
    const bool near = p.tensor * p.pipeline <= machine_.gpus_per_node;
    costs.transfer = (near ? machine_.local : machine_.network).message(bytes / p.tensor);
    return costs;
  }

  // Of a collective over the processes of one line of data parallelism, some of which share a node.
  double over_data(double bytes, const ParallelPlan& p, bool reduce) const {
    const int inner = p.tensor * p.pipeline;
    const int local = std::clamp(machine_.gpus_per_node / inner, 1, p.data);
    const int nodes = std::max(1, p.data / local);
    const double within = all_gather_seconds(bytes, local, machine_.local);
    const double between = all_gather_seconds(bytes / local, nodes, machine_.network);
    return (reduce ? 2 : 1) * (within + between);
  }

  void with_schedule(ParallelPlan p, const std::string& schedule, int stages) {
    p.schedule = schedule, p.stages = stages;
    const PipelineCosts costs = costs_of(p);
    double total = 0, busy = 0;
    int held = 1;
    if (schedule.empty()) {
      total = busy = double(p.microbatches) *
                     (costs.forward[0] + costs.backward_input[0] + costs.backward_weight[0]);
    } else {
      const auto key = std::tuple(schedule, p.pipeline, p.microbatches);
      auto at = schedules_.find(key);
      if (at == schedules_.end()) {
        Known known{pipeline_schedule(schedule, p.pipeline, stages, int(p.microbatches)), 0};
        known.held = std::ranges::max(check_schedule(known.schedule));
        at = schedules_.emplace(key, std::move(known)).first;
      }
      const PipelineTimes times = simulate_schedule(at->second.schedule, costs);
      total = times.total, busy = std::ranges::max(times.busy), held = at->second.held;
    }
    for (const char* sharding : {"replicas", "optimizer", "parameters"}) {
      if (p.data == 1 && sharding != std::string_view("replicas")) continue;
      // Beside stages, shards of parameters would stay gathered all the step.
      if (p.pipeline > 1 && sharding == std::string_view("parameters")) continue;
      p.sharding = sharding;
      add(p, costs, total, busy, held);
    }
  }

  void add(ParallelPlan p, const PipelineCosts& costs, double total, double busy, int held) {
    const double embedding = double(m_.vocabulary) * double(m_.width);
    const int parts = p.stages / p.pipeline;  // stages of a process
    const double layers = parts * layers_of(0, p.stages);
    const double own =
        (layers * m_.parameters_of_layer() + (p.pipeline > 1 || m_.tied ? 1 : 2) * embedding) /
        p.tensor;
    const bool shards = p.sharding == "parameters", states = shards || p.sharding == "optimizer";
    // Weights and gradients in bf16; the optimizer's weights and two moments in f32.
    const double around = 2 * 2 * m_.parameters_of_layer() / p.tensor;
    const double kept = shards ? (2 + 2) * own / p.data + 2 * around : (2 + 2) * own;
    const double tokens = tokens_of(p), width = double(m_.width);
    const double layer =
        tokens * width *
        (10 + (8 + 4 * (m_.gated ? 1.5 : 1) * double(m_.hidden) / width) / p.tensor);
    const double activations = held * layers / parts * (p.recompute ? 2 * tokens * width : layer) +
                               (p.recompute ? layer : 0) +
                               6 * tokens * double(m_.vocabulary) / p.tensor;
    p.memory = kept + 12 * own / (states ? p.data : 1) + activations;
    if (p.memory > 0.94 * machine_.memory)
      return;  // the rest is the libraries' and the allocator's
    const double backward = costs.backward_input[0] + costs.backward_weight[0];
    double exposed = 0;
    if (p.data > 1 && shards) {
      // In each microbatch, but for the first layer of all behind the work of others.
      const double gather = over_data(2 * own, p, false);
      exposed = double(p.microbatches) *
                    (std::max(0.0, gather - costs.forward[0]) + std::max(0.0, gather - backward)) +
                std::max(0.0, over_data(2 * own, p, false) - backward) +
                2 * gather / double(m_.layers);
    } else if (p.data > 1) {
      const double reduce = over_data(2 * own, p, !states);
      exposed = std::max(reduce / (double(parts) * layers), reduce - parts * backward) +
                (states ? over_data(2 * own, p, false) : 0);
    }
    const double update = (12 + 12 + 4) * own / (states ? p.data : 1) / machine_.memory_bandwidth;
    p.step = total + exposed + update;
    p.tokens = double(r_.batch) * double(r_.sequence) / p.step;
    p.utilization = 3 * m_.flops(r_.sequence) * p.tokens / (machine_.flops * r_.gpus);
    p.bubble = (total - busy) / p.step;
    p.exposed = exposed / p.step;
    plans_.push_back(std::move(p));
  }

  struct Known {
    PipelineSchedule schedule;
    int held;
  };
  const PlanRequest& r_;
  const TransformerSize& m_;
  const Machine& machine_;
  std::map<std::tuple<std::string, int, int64_t>, Known> schedules_;
  std::vector<ParallelPlan> plans_;
};

}  // namespace

std::vector<ParallelPlan> parallel_plans(const PlanRequest& r) {
  ARETE_CHECK(r.gpus > 0 && r.batch > 0 && r.sequence > 0 && r.machine.gpus_per_node > 0 &&
                  r.machine.flops > 0 && r.machine.efficiency > 0 && r.machine.memory > 0,
              ValueError("plan", "numbers of GPUs, sequences and their length are positive"));
  ARETE_CHECK(r.model.layers > 0 && r.model.heads > 0 && r.model.kv_heads > 0 && r.model.width > 0,
              ValueError("plan", "the model has no size"));
  std::vector<ParallelPlan> plans = Planner(r).all();
  ARETE_CHECK(!plans.empty(),
              ValueError("plan", "no way fits into the memory, or divides the batch")
                  .got(std::to_string(r.gpus) + " GPUs, a batch of " + std::to_string(r.batch) +
                       " sequences of " + std::to_string(r.sequence))
                  .hint("more GPUs, shorter sequences, or a batch that is divisible by them"));
  return plans;
}

}  // namespace arete::distributed
