// The threads in which a group makes calls of host memory that nobody waits for.
#pragma once

#include <functional>
#include <limits>
#include <mutex>

#include "arete/distributed/process_group.h"
#include "arete/distributed/threads_internal.h"

namespace arete::distributed {

struct ProcessGroup::Threads {
  std::mutex one_at_a_time;  // collective
  TaskThreads collectives{1};
  TaskThreads transfers{std::numeric_limits<size_t>::max()};
};

/// Has a thread do what `work` stands for, which ends with what `task` throws, or with the rank of
/// the sender that it returns (-1: there is none).
void submit(TaskThreads& threads, WorkPtr work, std::function<int()> task);

}  // namespace arete::distributed
