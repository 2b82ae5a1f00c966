// How settings of layers are printed.
#include <charconv>
#include <cmath>

#include "arete/nn/layer_internal.h"

namespace arete::nn {

// The shortest text that reads back as v, as Python prints it: "0.1", "1e-05", "2.0".
std::string text_of(double v) {
  char buffer[64];
  const double size = std::abs(v);
  const bool is_short = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = is_short ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v, format).ptr;
  std::string text(buffer, end);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string tuple_text(IntList values) {
  std::string text = "(";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + (values.size() == 1 ? ",)" : ")");
}

}  // namespace arete::nn
