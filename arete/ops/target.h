// Where the primitive calls of an operator go.
#pragma once

#include "arete/prim/backend.h"

namespace arete::ops {
/// What captures the thread's calls, if anything does (Modes::capture), else the backend of
/// `device`.
prim::Primitives& target(Device device);
/// The address of an operand of a call that goes to target(): nothing that is under way writes to
/// the memory any more. Where the thread puts calls off it may be a stand-in.
std::byte* operand_data(const Storage& memory);
/// Tells what puts the thread's calls off that an operator looks at values on the host, which it
/// may because nothing that was put off writes them.
void note_look() noexcept;
/// Before a call that goes to target() writes to the memory: waits for all that is under way there.
void wait_to_write(const Storage& memory);
/// Whether a graph of the device takes what is called now.
inline bool is_capturing(Device device) {
  return device.is_cuda() && prim::backend_for(device).is_capturing();
}
}  // namespace arete::ops
