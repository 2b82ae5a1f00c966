// What users should know of a call that goes on.
#pragma once

#include <string>

namespace arete {

/// Tells the handler, which at first prints "Warning: TEXT" to stderr. A handler may throw: the
/// call that warns ends with its exception.
void warn(const std::string& text);

/// Replaces the handler (null: the first one) and returns the one before.
using WarningHandler = void (*)(const std::string& text);
WarningHandler set_warning_handler(WarningHandler handler) noexcept;

}  // namespace arete
