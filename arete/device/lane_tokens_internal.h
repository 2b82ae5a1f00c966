// The words of a kernel's source, after the preprocessor: see Note [Lanes].
#pragma once

#include <map>
#include <string>
#include <vector>

namespace arete::lanes {

struct Token {
  enum Kind : uint8_t { name, number, op, text, end } kind = end;
  std::string string;
  int line = 0;

  bool is(const char* s) const { return kind != text && string == s; }
};

/// The text of each line by its number, which "#line" changes: the last of several is the one.
using Lines = std::map<int, std::string>;

/// Macros (those of `options`, too) are replaced, "#include" and "#pragma" are passed over. The
/// last token is an `end`. ValueError and NotImplementedError name the line.
std::vector<Token> tokens_of(const std::string& kernel, const std::string& source,
                             const std::vector<std::string>& options, Lines& lines);

/// "line 3: what: `the line`".
std::string at_line(const Lines& lines, int line, const std::string& what);

}  // namespace arete::lanes
