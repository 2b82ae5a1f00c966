// Numbers of a State as texts that give the same numbers back.
#include <charconv>

#include "arete/optim/optimizer.h"

namespace arete::optim {

std::map<std::string, std::string> numbers_to_text(const std::map<std::string, double>& numbers) {
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : numbers) {
    char buffer[64];  // the shortest text that reads back as the same number
    texts[key] = std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  }
  return texts;
}

std::map<std::string, double> numbers_from_text(const std::map<std::string, std::string>& texts) {
  std::map<std::string, double> numbers;
  for (const auto& [key, text] : texts) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    ARETE_CHECK(error == std::errc() && stop == end,
                ValueError("numbers_from_text", "the value of '" + key + "' is not a number")
                    .got("\"" + text.substr(0, 40) + "\""));
    numbers[key] = value;
  }
  return numbers;
}

}  // namespace arete::optim
