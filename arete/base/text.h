// Text helpers for messages and for the small text formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace arete::io {

/// `text` in single quotes for an error message: control characters and broken UTF-8 become \xNN,
/// and text longer than `max_bytes` is cut, so that a hostile name cannot spoil the terminal.
std::string quote_text(std::string_view text, size_t max_bytes = 120);

/// A shape as people write it: [2, 3].
std::string shape_text(std::span<const int64_t> shape);

/// `text` as a JSON string with its quotes. Broken UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);

/// The shortest decimal text that reads back as the same double; "null" for NaN and infinities,
/// for which JSON has no words.
std::string json_number(double value);

/// The length (1 to 4) of the valid UTF-8 sequence at the start of `text`, or 0 if there is none.
size_t utf8_sequence_length(std::string_view text);

}  // namespace arete::io
