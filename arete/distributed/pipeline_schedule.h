// Schedules of pipelines as data: what each process computes, sends and receives, in which order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace arete::distributed {

/// A step of a process. The backward pass of a microbatch is one step, or one for the gradient of
/// the stage's inputs and a later one for those of its parameters.
struct PipelineAction {
  enum class Kind : uint8_t {
    forward,
    backward,
    backward_input,
    backward_weight,
    send_forward,  ///< of the stage's outputs to the next stage
    recv_forward,  ///< of the stage's inputs from the stage before
    send_backward,
    recv_backward
  };
  Kind kind;
  int stage;
  int microbatch;
  bool operator==(const PipelineAction&) const = default;
  bool computes() const { return kind <= Kind::backward_weight; }
};

/// F0.3, SEND_B2.0 and so on: kind, stage and microbatch.
std::string to_string(const PipelineAction& action);

struct PipelineSchedule {
  int microbatches = 0;
  std::vector<int> rank_of_stage;
  std::vector<std::vector<PipelineAction>> ranks;  ///< in order
  int stages() const { return int(rank_of_stage.size()); }
};

/// The names below, in the order of their makers' papers.
std::vector<std::string> pipeline_schedule_names();
/// "GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble": with
/// transfers. `train`: with backward steps. ValueError for sizes that a schedule cannot have.
PipelineSchedule pipeline_schedule(std::string_view name, int ranks, int stages, int microbatches,
                                   bool train = true);
/// Adds the transfers between processes to a schedule of computations. All processes see these in
/// an order of one sequence, so that none waits for another in a circle even where a transfer ends
/// only when both sides have come to it and nothing overtakes.
void add_transfers(PipelineSchedule& schedule);

/// Plays a schedule with transfers that wait for both sides. ValueError if a step's inputs are not
/// there, a step is missing, twice or in the wrong process, or if processes wait for each other:
/// it names the first such step. Gives how many microbatches each process has at most in its
/// stages, from forward step to the end of the backward ones.
std::vector<int> check_schedule(const PipelineSchedule& schedule, bool train = true);

/// Seconds of each stage's steps. A whole backward step takes both parts' time.
struct PipelineCosts {
  std::vector<double> forward, backward_input, backward_weight;
  double transfer = 0;  ///< from the end of a step to the start of the one that needs its result
};
struct PipelineTimes {
  double total = 0;
  std::vector<double> busy;  ///< of each process
  /// The part of all processes' time in which they wait.
  double bubble() const;
};
/// When each step of a schedule that check_schedule() has passed is over, if transfers take no time
/// of the processes.
PipelineTimes simulate_schedule(const PipelineSchedule& schedule, const PipelineCosts& costs);

}  // namespace arete::distributed
