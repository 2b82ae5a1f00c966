// How tensors are written as text.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace arete {

class Tensor;

struct PrintOptions {
  int precision = 4;               ///< digits behind the point
  int64_t threshold = 1000;        ///< tensors with more elements are shown by their corners
  int64_t edge_items = 3;          ///< elements shown at each end of a dimension then
  int line_width = 80;             ///< columns
  std::optional<bool> scientific;  ///< always or never 1.0000e-05; without it, by the values
  std::string package = "arete";   ///< where dtypes are said to be: dtype=arete.float64
};

/// The elements alone, "[1., 2.]", as they stand behind `indent` columns of other text.
std::string values_to_string(const Tensor& t, int indent);

/// The options of all threads.
PrintOptions print_options();
/// ValueError for a precision or threshold below 0, or edge items or columns below 1.
void set_print_options(const PrintOptions& options);

namespace detail {
/// What tells a tensor's tangent, which its text shows; null until there is forward mode.
extern constinit std::atomic<Tensor (*)(const Tensor&)> tangent_for_text;
}  // namespace detail

}  // namespace arete
