// Types and defaults of schemas as values.
#pragma once

#include <string_view>

#include "arete/ops/record.h"

namespace arete::ops {

/// What a type as written, without "?", wants: "int[]" ints, "int[2]" too. ValueError for others.
Arg::Kind kind_of(std::string_view type);
/// A default as written: "0.5", "True", "'mean'", "[1, 1]", "None".
OwnedArg default_of(Arg::Kind kind, std::string_view text);
/// Whether argument `position` of an operator, whose type is `type` without "?", may be given as
/// this kind: as C++ and the bindings do.
bool takes(const OpRecord& op, size_t position, std::string_view type, Arg::Kind kind);
/// Whether those who are not trusted to know it may call it by its name. Parts of other operators
/// check less of their arguments than what users call: of them those may be called that element by
/// element cannot go wrong, and those whose records say so.
bool may_be_named(const OpRecord& op);

}  // namespace arete::ops
