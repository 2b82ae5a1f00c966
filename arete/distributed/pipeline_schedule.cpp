#include "arete/distributed/pipeline_schedule.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "arete/base/error.h"

namespace arete::distributed {

namespace {

using Kind = PipelineAction::Kind;
using Order = std::vector<PipelineAction>;

constexpr std::array<const char*, 8> kKinds = {"F",      "B",      "I",      "W",
                                               "SEND_F", "RECV_F", "SEND_B", "RECV_B"};

// What is done of each stage and microbatch.
class Progress {
 public:
  explicit Progress(const PipelineSchedule& s)
      : stages_(s.stages()), microbatches_(s.microbatches), at_(size_t(stages_ * microbatches_)) {}
  struct Piece {
    bool input = false, forward = false, gradient = false, backward = false, weight = false;
  };
  Piece& operator()(int stage, int microbatch) {
    return at_[size_t(stage) * size_t(microbatches_) + size_t(microbatch)];
  }
  bool is_first(int stage) const { return stage == 0; }
  bool is_last(int stage) const { return stage == stages_ - 1; }

  // Whether a computation's inputs are there.
  bool can(const PipelineAction& a) {
    const Piece& p = (*this)(a.stage, a.microbatch);
    switch (a.kind) {
      case Kind::forward:
        return p.input || is_first(a.stage);
      case Kind::backward_weight:
        return p.backward;
      default:
        return p.forward && (p.gradient || is_last(a.stage));
    }
  }
  void done(const PipelineAction& a) {
    Piece& p = (*this)(a.stage, a.microbatch);
    if (a.kind == Kind::forward) p.forward = true;
    if (a.kind == Kind::backward || a.kind == Kind::backward_input) p.backward = true;
    if (a.kind == Kind::backward || a.kind == Kind::backward_weight) p.weight = true;
  }
  // The step of another stage that gets a computation's result; none for those at the ends.
  std::optional<PipelineAction> target(const PipelineAction& a) const {
    if (a.kind == Kind::forward && !is_last(a.stage))
      return PipelineAction{Kind::recv_forward, a.stage + 1, a.microbatch};
    if ((a.kind == Kind::backward || a.kind == Kind::backward_input) && !is_first(a.stage))
      return PipelineAction{Kind::recv_backward, a.stage - 1, a.microbatch};
    return {};
  }
  void arrive(const PipelineAction& recv) {
    Piece& p = (*this)(recv.stage, recv.microbatch);
    (recv.kind == Kind::recv_forward ? p.input : p.gradient) = true;
  }

 private:
  int stages_, microbatches_;
  std::vector<Piece> at_;
};

// Note [Units of time]
// Schedules are found, and their transfers ordered, by playing them in steps of time: F, I and W
// take one, B two, transfers none. pick(rank) gives what an idle process begins, or nothing.
template <class Pick, class Over>
void play(const PipelineSchedule& s, size_t steps, Pick&& pick, Over&& over) {
  struct Running {
    PipelineAction action{};
    int left = 0;
  };
  std::vector<Running> running(s.ranks.size());
  while (steps > 0) {
    bool moves = false;
    for (size_t r = 0; r < running.size(); ++r)
      if (running[r].left == 0)
        if (const std::optional<PipelineAction> a = pick(int(r)))
          running[r] = {*a, a->kind == Kind::backward ? 2 : 1};
    for (size_t r = 0; r < running.size(); ++r)
      if (running[r].left > 0) {
        moves = true;
        if (--running[r].left == 0) {
          over(int(r), running[r].action);
          --steps;
        }
      }
    ARETE_CHECK(moves, ValueError("pipeline_schedule", "the processes wait for each other"));
  }
}

// Results reach their stages without transfers.
void pass_on(Progress& progress, const PipelineAction& a) {
  progress.done(a);
  if (const auto to = progress.target(a)) progress.arrive(*to);
}

// Forward steps of all microbatches, stage by stage, then the backward ones.
void fill_breadth_first(PipelineSchedule& s) {
  const auto add = [&](Kind kind, int stage) {
    for (int m = 0; m < s.microbatches; ++m)
      s.ranks[size_t(s.rank_of_stage[size_t(stage)])].push_back({kind, stage, m});
  };
  for (int k = 0; k < s.stages(); ++k) add(Kind::forward, k);
  for (int k = s.stages() - 1; k >= 0; --k) add(Kind::backward, k);
}

// Each process has some forward steps ahead, then one backward step for each forward one. With
// several stages it goes through microbatches in rounds: `distance` forward steps ahead for each
// process behind it.
int fill_interleaved(PipelineSchedule& s, Kind backward, int distance) {
  const int n = int(s.ranks.size()), chunks = s.stages() / n;
  const int rounds = std::max(1, s.microbatches / n);
  ARETE_CHECK(chunks == 1 || s.microbatches % rounds == 0,
              ValueError("pipeline_schedule",
                         "microbatches must be divisible by the number of rounds, which is "
                         "max(1, microbatches / processes)")
                  .got(std::to_string(s.microbatches) + " microbatches, " + std::to_string(rounds) +
                       " rounds"));
  const int round = std::max(1, s.microbatches / rounds), total = chunks * s.microbatches;
  int most = 0;
  for (int r = 0; r < n; ++r) {
    std::vector<int> next(size_t(2 * chunks), 0);
    const auto add = [&](Kind kind, int k) {
      const bool forward = kind == Kind::forward;
      const int turn = k / round % chunks, chunk = forward ? turn : chunks - 1 - turn;
      s.ranks[size_t(r)].push_back(
          {kind, chunk * n + r, next[size_t(forward ? chunk : chunks + chunk)]++});
    };
    const int ahead = std::min(total, (chunks - 1) * round + distance * (n - 1 - r));
    for (int k = 0; k < ahead; ++k) add(Kind::forward, k);
    for (int k = ahead; k < total; ++k) {
      add(Kind::forward, k);
      add(backward, k - ahead);
    }
    for (int k = total - ahead; k < total; ++k) add(backward, k);
    most = std::max(most, std::min(ahead + 1, total));
  }
  return most;
}

// Weights' gradients wait for a time in which their process has nothing else to do, or for the
// memory of their microbatch to be wanted.
class Waiting {
 public:
  explicit Waiting(size_t ranks) : held_(ranks, 0), queue_(ranks) {}
  std::optional<PipelineAction> oldest(int rank) {
    Order& q = queue_[size_t(rank)];
    if (q.empty()) return {};
    const PipelineAction a = q.front();
    q.erase(q.begin());
    return a;
  }
  void over(int rank, const PipelineAction& a) {
    if (a.kind == Kind::forward) ++held_[size_t(rank)];
    if (a.kind == Kind::backward_weight) --held_[size_t(rank)];
    if (a.kind == Kind::backward_input)
      queue_[size_t(rank)].push_back({Kind::backward_weight, a.stage, a.microbatch});
  }
  int held(int rank) const { return held_[size_t(rank)]; }

 private:
  std::vector<int> held_;
  std::vector<Order> queue_;
};

// Fills the schedule with what `choose` gives a process, and where that is nothing with weights'
// gradients that wait.
template <class Choose>
void play_with_waiting(PipelineSchedule& s, Progress& progress, Waiting& waiting,
                       const Choose& choose) {
  play(
      s, size_t(3 * s.stages()) * size_t(s.microbatches),
      [&](int r) -> std::optional<PipelineAction> {
        std::optional<PipelineAction> a = choose(r);
        if (!a) a = waiting.oldest(r);
        if (a) s.ranks[size_t(r)].push_back(*a);
        return a;
      },
      [&](int r, const PipelineAction& a) {
        pass_on(progress, a);
        waiting.over(r, a);
      });
}

void fill_interleaved_zero_bubble(PipelineSchedule& s) {
  const int most = fill_interleaved(s, Kind::backward_input, 1);
  const std::vector<Order> orders = std::exchange(s.ranks, std::vector<Order>(s.ranks.size()));
  std::vector<size_t> next(orders.size(), 0);
  Progress progress(s);
  Waiting waiting(orders.size());
  play_with_waiting(s, progress, waiting, [&](int r) -> std::optional<PipelineAction> {
    const Order& order = orders[size_t(r)];
    size_t& at = next[size_t(r)];
    if (at == order.size() || !progress.can(order[at])) return {};
    if (order[at].kind == Kind::forward && waiting.held(r) >= most) return {};
    return order[at++];
  });
}

// Two stages a process, of which the second way goes back through the processes. What is nearer to
// the end of its way comes first, and a microbatch begins while less than a process' share of
// memory is in use: two stages for each process.
void fill_v_zero_bubble(PipelineSchedule& s) {
  const int n = int(s.ranks.size());
  Progress progress(s);
  Waiting waiting(s.ranks.size());
  std::vector<std::array<int, 4>> next(s.ranks.size());  // F and I of both stages
  std::vector<int> begun(s.ranks.size(), 0), ended(s.ranks.size(), 0);
  play_with_waiting(s, progress, waiting, [&](int r) -> std::optional<PipelineAction> {
    auto& at = next[size_t(r)];
    const int near = r, far = 2 * n - 1 - r;
    struct Choice {
      Kind kind;
      int stage, place;
    };
    const Choice choices[] = {{Kind::backward_input, far, 3},
                              {Kind::backward_input, near, 2},
                              {Kind::forward, far, 1},
                              {Kind::forward, near, 0}};
    for (const Choice& c : choices) {
      const int m = at[size_t(c.place)];
      if (m == s.microbatches || !progress.can({c.kind, c.stage, m})) continue;
      // Both of a microbatch's forward steps have their memory from the first one on.
      const int promised = at[0] - at[1];
      if (c.place == 0 && waiting.held(r) + promised + 2 > 2 * n) continue;
      ++at[size_t(c.place)];
      return PipelineAction{c.kind, c.stage, m};
    }
    return {};
  });
}

struct Maker {
  const char* name;
  bool several;  // stages a process
  void (*fill)(PipelineSchedule&);
};
const Maker kMakers[] = {
    {"GPipe", false, fill_breadth_first},
    {"1F1B", false, [](PipelineSchedule& s) { fill_interleaved(s, Kind::backward, 1); }},
    {"LoopedBFS", true, fill_breadth_first},
    {"Interleaved1F1B", true, [](PipelineSchedule& s) { fill_interleaved(s, Kind::backward, 2); }},
    {"InterleavedZeroBubble", true, fill_interleaved_zero_bubble},
    {"ZBVZeroBubble", true, fill_v_zero_bubble},
};

// The computations whose end a computation waits for.
template <class F>
void for_each_need(const PipelineSchedule& s, const PipelineAction& a, F&& f) {
  const auto backward_of = [&](int stage) {
    f(PipelineAction{Kind::backward, stage, a.microbatch});
  };
  if (a.kind == Kind::forward) {
    if (a.stage > 0) f(PipelineAction{Kind::forward, a.stage - 1, a.microbatch});
  } else if (a.kind == Kind::backward_weight) {
    backward_of(a.stage);
  } else {
    f(PipelineAction{Kind::forward, a.stage, a.microbatch});
    if (a.stage + 1 < s.stages()) backward_of(a.stage + 1);
  }
}

}  // namespace

std::string to_string(const PipelineAction& a) {
  return kKinds[size_t(a.kind)] + std::to_string(a.stage) + "." + std::to_string(a.microbatch);
}

std::vector<std::string> pipeline_schedule_names() {
  std::vector<std::string> names;
  for (const Maker& m : kMakers) names.emplace_back(m.name);
  return names;
}

PipelineSchedule pipeline_schedule(std::string_view name, int ranks, int stages, int microbatches,
                                   bool train) {
  const auto* const maker = std::ranges::find(kMakers, name, &Maker::name);
  const auto error = [](const std::string& text) { return ValueError("pipeline_schedule", text); };
  ARETE_CHECK(maker != std::end(kMakers),
              error("there is no schedule of the name " + std::string(name)));
  ARETE_CHECK(ranks > 0 && microbatches > 0,
              error("wants at least one process and one microbatch")
                  .got(std::to_string(ranks) + " and " + std::to_string(microbatches)));
  const bool v = maker->fill == fill_v_zero_bubble;
  ARETE_CHECK(
      maker->several ? stages > 0 && stages % ranks == 0 : stages == ranks,
      error(std::string(name) + (maker->several ? " wants as many stages in each process"
                                                : " wants one stage in each process"))
          .got(std::to_string(stages) + " stages, " + std::to_string(ranks) + " processes"));
  ARETE_CHECK(!v || stages == 2 * ranks, error("ZBVZeroBubble wants two stages in each process")
                                             .got(std::to_string(stages) + " stages, " +
                                                  std::to_string(ranks) + " processes"));
  PipelineSchedule s{.microbatches = microbatches, .rank_of_stage = {}, .ranks = {}};
  s.ranks.resize(size_t(ranks));
  for (int k = 0; k < stages; ++k)
    s.rank_of_stage.push_back(v && k >= ranks ? stages - 1 - k : k % ranks);
  maker->fill(s);
  if (!train)
    for (Order& order : s.ranks)
      std::erase_if(order, [](const PipelineAction& a) { return a.kind != Kind::forward; });
  add_transfers(s);
  return s;
}

void add_transfers(PipelineSchedule& s) {
  const std::vector<Order> orders = s.ranks;
  for (Order& order : s.ranks) order.clear();
  std::vector<size_t> next(orders.size(), 0);
  Progress progress(s);
  size_t steps = 0;
  for (const Order& order : orders) steps += order.size();
  play(
      s, steps,
      [&](int r) -> std::optional<PipelineAction> {
        const Order& order = orders[size_t(r)];
        size_t& at = next[size_t(r)];
        if (at == order.size() || !progress.can(order[at])) return {};
        s.ranks[size_t(r)].push_back(order[at]);
        return order[at++];
      },
      [&](int r, const PipelineAction& a) {
        pass_on(progress, a);
        const auto to = progress.target(a);
        if (!to) return;
        const int other = s.rank_of_stage[size_t(to->stage)];
        if (other == r) return;
        const Kind send = a.kind == Kind::forward ? Kind::send_forward : Kind::send_backward;
        s.ranks[size_t(r)].push_back({send, a.stage, a.microbatch});
        s.ranks[size_t(other)].push_back(*to);
      });
}

std::vector<int> check_schedule(const PipelineSchedule& s, bool train) {
  const auto error = [](size_t rank, const PipelineAction& a, const std::string& text) {
    return ValueError("check_schedule",
                      to_string(a) + " of process " + std::to_string(rank) + " " + text);
  };
  for (size_t r = 0; r < s.ranks.size(); ++r)
    for (const PipelineAction& a : s.ranks[r]) {
      ARETE_CHECK(a.stage >= 0 && a.stage < s.stages() && a.microbatch >= 0 &&
                      a.microbatch < s.microbatches,
                  error(r, a, "is of no stage or microbatch"));
      ARETE_CHECK(s.rank_of_stage[size_t(a.stage)] == int(r),
                  error(r, a, "is of another process' stage"));
    }
  Progress progress(s);
  std::vector<size_t> next(s.ranks.size(), 0);
  std::vector<int> held(s.ranks.size(), 0), most(s.ranks.size(), 0);
  const auto head = [&](size_t r) {
    return next[r] < s.ranks[r].size() ? &s.ranks[r][next[r]] : nullptr;
  };
  std::vector<size_t> awake(s.ranks.size());
  for (size_t r = 0; r < awake.size(); ++r) awake[r] = awake.size() - 1 - r;
  while (!awake.empty()) {
    const size_t r = awake.back();
    awake.pop_back();
    while (const PipelineAction* const a = head(r)) {
      auto& piece = progress(a->stage, a->microbatch);
      if (a->computes()) {
        // Its inputs come by this process' own steps, which are over.
        ARETE_CHECK(progress.can(*a), error(r, *a, "comes before its inputs"));
        ARETE_CHECK(a->kind == Kind::forward           ? !piece.forward
                    : a->kind == Kind::backward_weight ? !piece.weight
                                                       : !piece.backward,
                    error(r, *a, "is there twice"));
        progress.done(*a);
        if (a->kind == Kind::forward) most[r] = std::max(most[r], ++held[r]);
        if (a->kind == Kind::backward || a->kind == Kind::backward_weight) --held[r];
        if (const auto to = progress.target(*a); to && s.rank_of_stage[size_t(to->stage)] == int(r))
          progress.arrive(*to);
        ++next[r];
        continue;
      }
      const bool forward = a->kind == Kind::send_forward || a->kind == Kind::recv_forward;
      const bool sends = a->kind == Kind::send_forward || a->kind == Kind::send_backward;
      if (sends)
        ARETE_CHECK(forward ? piece.forward : piece.backward,
                    error(r, *a, "comes before what it sends"));
      const int there = a->stage + (forward == sends ? 1 : -1);
      ARETE_CHECK(there >= 0 && there < s.stages(), error(r, *a, "has no other stage"));
      const size_t other = size_t(s.rank_of_stage[size_t(there)]);
      const Kind wanted = sends ? (forward ? Kind::recv_forward : Kind::recv_backward)
                                : (forward ? Kind::send_forward : Kind::send_backward);
      const PipelineAction* const theirs = head(other);
      if (!theirs || *theirs != PipelineAction{wanted, there, a->microbatch}) break;
      if (!sends) {
        // The other side waits for this one; what it sends is there, or it is an error of its own.
        awake.push_back(r);
        awake.push_back(other);
        break;
      }
      const auto& at = progress(there, a->microbatch);
      ARETE_CHECK(!(forward ? at.input : at.gradient), error(r, *a, "is there twice"));
      progress.arrive(*theirs);
      ++next[r];
      ++next[other];
      awake.push_back(other);
    }
  }
  for (size_t r = 0; r < s.ranks.size(); ++r)
    if (const PipelineAction* const a = head(r))
      throw error(r, *a, "waits for a process that waits, too, or has ended");
  for (int k = 0; k < s.stages(); ++k)
    for (int m = 0; m < s.microbatches; ++m) {
      const auto& piece = progress(k, m);
      ARETE_CHECK(piece.forward && (!train || (piece.backward && piece.weight)),
                  error(size_t(s.rank_of_stage[size_t(k)]), {Kind::forward, k, m},
                        "or its backward steps are missing"));
    }
  return most;
}

double PipelineTimes::bubble() const {
  double sum = 0;
  for (const double b : busy) sum += b;
  return total > 0 ? 1 - sum / (total * double(busy.size())) : 0;
}

PipelineTimes simulate_schedule(const PipelineSchedule& s, const PipelineCosts& costs) {
  for (const auto* c : {&costs.forward, &costs.backward_input, &costs.backward_weight})
    ARETE_CHECK(int(c->size()) == s.stages(),
                ValueError("simulate_schedule", "costs are of each stage")
                    .expected(std::to_string(s.stages()))
                    .got(std::to_string(c->size())));
  // When forward and input-backward steps are over; below zero: not yet known.
  const size_t pieces = size_t(s.stages()) * size_t(s.microbatches);
  std::vector<double> forward(pieces, -1), backward(pieces, -1);
  const auto over = [&](const PipelineAction& a) -> double& {
    return (a.kind == Kind::forward
                ? forward
                : backward)[size_t(a.stage) * size_t(s.microbatches) + size_t(a.microbatch)];
  };
  PipelineTimes times{.total = 0, .busy = std::vector<double>(s.ranks.size(), 0)};
  std::vector<double> clock(s.ranks.size(), 0);
  std::vector<size_t> next(s.ranks.size(), 0);
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t r = 0; r < s.ranks.size(); ++r)
      for (; next[r] < s.ranks[r].size(); ++next[r], moves = true) {
        const PipelineAction& a = s.ranks[r][next[r]];
        if (!a.computes()) continue;
        double start = clock[r];
        bool known = true;
        for_each_need(s, a, [&](const PipelineAction& need) {
          const double t = over(need);
          known &= t >= 0;
          const bool here = s.rank_of_stage[size_t(need.stage)] == int(r);
          start = std::max(start, t + (here ? 0 : costs.transfer));
        });
        if (!known) break;
        const size_t k = size_t(a.stage);
        const double takes = a.kind == Kind::forward          ? costs.forward[k]
                             : a.kind == Kind::backward_input ? costs.backward_input[k]
                             : a.kind == Kind::backward_weight
                                 ? costs.backward_weight[k]
                                 : costs.backward_input[k] + costs.backward_weight[k];
        clock[r] = start + takes;
        times.busy[r] += takes;
        if (a.kind != Kind::backward_weight) over(a) = clock[r];
      }
  }
  times.total = *std::ranges::max_element(clock);
  return times;
}

}  // namespace arete::distributed
