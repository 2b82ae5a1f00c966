// Types and defaults of schemas as values.
#pragma once

#include <string_view>

#include "arete/ops/record.h"

namespace arete::ops {

/// What a type as written, without "?", wants: "int[]" ints, "int[2]" too. ValueError for others.
Arg::Kind kind_of(std::string_view type);
/// A default as written: "0.5", "True", "'mean'", "[1, 1]", "None".
OwnedArg default_of(Arg::Kind kind, std::string_view text);

}  // namespace arete::ops
