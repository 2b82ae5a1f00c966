// Warnings: what is likely a mistake, and is carried out all the same.
#pragma once

#include <string_view>

namespace arete {

/// Tells the user of the program: on stderr, each text once, or where set_warning_handler() says.
/// Throws what the handler throws (a program may ask for errors in place of warnings).
void warn(std::string_view text);
/// Who is told from now on; null: stderr again.
void set_warning_handler(void (*handler)(std::string_view text)) noexcept;

}  // namespace arete
