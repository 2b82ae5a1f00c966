#pragma once

#include <string>

namespace arete {

/// The processor's name as Linux tells it, or "unknown".
std::string cpu_name();

}  // namespace arete
