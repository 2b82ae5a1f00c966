// What memory was held for while a profiler recorded, and the files that PyTorch's profiler writes
// of it.
//
// Note [Categories of memory]
// A recording knows of each piece of memory when it was taken and given back, and within which
// events. So much can be told from that:
//   gradient          taken by a backward function, held when the backward pass has ended
//   autograd_detail   taken by a backward function, given back during the pass
//   optimizer_state   taken by an optimizer's step, held when it has ended
//   activation        taken by a call that autograd remembers, held when it has ended
//   temporary         given back before the call, or the optimizer's step, that took it has ended
//   unknown           all else: taken before the recording began (parameters, as a rule), or
//                     outside of operators, or by those that autograd does not remember (inputs)
// A backward pass is a row of backward functions of one thread which no optimizer's step and no
// call that autograd remembers interrupts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arete/profile/memory_history.h"
#include "arete/profile/trace.h"

namespace arete::profile {

/// The numbers are those of PyTorch's files, which have parameter and input, too.
enum class MemoryCategory : uint8_t {
  optimizer_state = 1,
  temporary = 3,
  activation = 4,
  gradient = 5,
  autograd_detail = 6,
  unknown = 7,
};
/// "GRADIENT", ...; "unknown".
const char* name_of(MemoryCategory category);

/// A piece of memory from its taking to its giving back.
struct MemoryLife {
  Device device;
  uint64_t address = 0;
  int64_t bytes = 0;
  int64_t begin_ns = -1;  ///< steady clock; -1: before the recording
  int64_t end_ns = -1;    ///< -1: still held at the recording's end
  int64_t event = -1;     ///< index of the event that took it
  int thread = 0;         ///< that took it; 0: not known
  MemoryCategory category = MemoryCategory::unknown;
};

/// The memory of all devices, by begin. What was there before the recording is known of GPUs, as
/// one piece, and of the CPU as far as it was given back meanwhile. ValueError if memory was not
/// recorded.
std::vector<MemoryLife> memory_lives(const Trace& trace);

/// The memory of one device as PyTorch's files of these endings have it:
///   .json, .json.gz  [times, sizes]: microseconds since 1970, and for each the bytes held: 0, then
///                    PARAMETER, OPTIMIZER_STATE, INPUT, TEMPORARY, ACTIVATION, GRADIENT,
///                    AUTOGRAD_DETAIL, unknown
///   .raw.json.gz     [time, action, bytes, category] of each change: nanoseconds since 1970 (-1:
///                    before the recording); 1: was there, 2: taken, 4: given back; bytes < 0 when
///                    given back; categories in the order above, from 0
///   .html            a page that needs no network, by category or operator
/// PARAMETER and INPUT stay 0: see Note [Categories of memory]. ValueError for other endings.
void export_memory_timeline(const Trace& trace, const std::string& path, Device device);

}  // namespace arete::profile
