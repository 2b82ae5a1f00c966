// Random numbers of one thread that move nobody else's.
#pragma once

#include "arete/core/generator.h"

namespace arete {

/// Makes `generator` what default_generator() gives in the calling thread, and with it what
/// manual_seed() seeds there; with null that is the program's own again. `generator` must live
/// until then, or until the thread ends. Returns the one before, or null.
Generator* set_thread_generator(Generator* generator);

}  // namespace arete
