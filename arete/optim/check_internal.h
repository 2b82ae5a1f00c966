// Checks of options.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "arete/base/error.h"

namespace arete::optim {

/// ValueError "Invalid <name> value: ..." for the first that is negative or NaN.
inline void check_not_negative(const char* optimizer,
                               std::initializer_list<std::pair<const char*, double>> values) {
  for (const auto& [name, value] : values)
    ARETE_CHECK(value >= 0, ValueError(optimizer, "Invalid " + std::string(name) +
                                                      " value: " + std::to_string(value))
                                .expected("a number that is not negative"));
}
/// The same for numbers that must be in [0, 1).
inline void check_fraction(const char* optimizer,
                           std::initializer_list<std::pair<const char*, double>> values) {
  for (const auto& [name, value] : values)
    ARETE_CHECK(
        value >= 0 && value < 1,
        ValueError(optimizer, "Invalid " + std::string(name) + " value: " + std::to_string(value))
            .expected("a number in [0, 1)"));
}

}  // namespace arete::optim
