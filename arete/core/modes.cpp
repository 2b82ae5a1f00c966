#include "arete/core/modes.h"

namespace arete::detail {
thread_local constinit Modes thread_modes;
}
