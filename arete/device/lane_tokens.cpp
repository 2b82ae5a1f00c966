#include "arete/device/lane_tokens_internal.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "arete/base/error.h"

namespace arete::lanes {
namespace {

struct Macro {
  bool is_function = false;
  std::vector<std::string> parameters;
  std::vector<Token> body;
};

class Reader {
 public:
  Reader(const std::string& kernel, const std::string& source,
         const std::vector<std::string>& options, Lines& lines)
      : kernel_(kernel), source_(source), lines_(lines) {
    // As NVRTC has them; threads of the CPU stand for those of an H100.
    for (const auto& [name, value] :
         {std::pair("__CUDA_ARCH__", "900"), std::pair("__CUDACC__", "1"),
          std::pair("__CUDACC_RTC__", "1")})
      macros_[name].body = split(value, 0);
    for (size_t k = 0; k < options.size(); ++k) {
      static const std::string kLong = "--define-macro";
      std::string o = options[k];
      if (o == "-D" || o == kLong) {
        if (++k == options.size()) fail<ValueError>(0, "the option " + o + " defines nothing");
        o = "-D" + options[k];
      } else if (o.starts_with(kLong + "=")) {
        o = "-D" + o.substr(kLong.size() + 1);
      }
      if (!o.starts_with("-D")) continue;
      o.erase(0, std::min(o.find_first_not_of(' ', 2), o.size()));
      const size_t equal = o.find('=');
      const std::string name = o.substr(0, equal);
      macros_[name].body = split(equal == std::string::npos ? "1" : o.substr(equal + 1), 0);
    }
  }

  std::vector<Token> all() {
    std::vector<Token> plain;
    const std::string text = without_comments();
    number_lines();
    int line = 1;
    for (size_t at = 0; at < text.size();) {
      size_t end = text.find('\n', at);
      if (end == std::string::npos) end = text.size();
      std::string row = text.substr(at, end - at);
      const int first = line++;
      at = end + 1;
      while (row.ends_with('\\') && at < text.size()) {  // the line goes on
        row.pop_back();
        end = text.find('\n', at);
        if (end == std::string::npos) end = text.size();
        row += text.substr(at, end - at);
        at = end + 1;
        ++line;
      }
      const size_t begin = row.find_first_not_of(" \t\r");
      if (begin != std::string::npos && row[begin] == '#') {
        expand_into(result_, plain);
        plain.clear();
        // Of what is left out only where its parts begin and end is read: a message may be no C.
        const size_t name = std::min(row.find_first_not_of(" \t", begin + 1), row.size());
        const auto is = [&](const char* start) { return row.compare(name, 2, start) == 0; };
        if (skipping_ > 0 && !is("if") && !is("el") && !is("en") && !is("li")) continue;
        const std::vector<Token> words = split(row.substr(begin + 1), first);
        if (words.size() > 1 && words[0].is("line"))
          line = std::atoi(words[1].string.c_str());
        else
          directive(row.substr(begin + 1), first);
      } else if (skipping_ == 0) {
        for (Token& t : split(row, first)) plain.push_back(std::move(t));
      }
    }
    expand_into(result_, plain);
    result_.push_back({Token::end, "", line});
    return std::move(result_);
  }

 private:
  template <class E>
  [[noreturn]] void fail(int line, const std::string& what) const {
    throw E(kernel_, at_line(lines_, line, what));
  }

  void number_lines() {
    int line = 1;
    for (size_t at = 0; at <= source_.size();) {
      const size_t end = std::min(source_.find('\n', at), source_.size());
      const std::string row = source_.substr(at, end - at);
      if (row.starts_with("#line "))
        line = std::atoi(row.c_str() + 6);
      else
        lines_[line++] = row;
      at = end + 1;
    }
  }

  std::string without_comments() const {
    std::string r;
    for (size_t i = 0; i < source_.size(); ++i) {
      if (source_.compare(i, 2, "//") == 0) {
        while (i < source_.size() && source_[i] != '\n') ++i;
        if (i < source_.size()) r += '\n';
      } else if (source_.compare(i, 2, "/*") == 0) {
        r += ' ';
        const size_t end = source_.find("*/", i + 2);
        for (; i < source_.size() && i < end; ++i)
          if (source_[i] == '\n') r += '\n';
        ++i;
      } else {
        r += source_[i];
      }
    }
    return r;
  }

  std::vector<Token> split(const std::string& s, int line) const {
    static const char* const kThree[] = {"<<=", ">>=", "..."};
    static const char* const kTwo[] = {"<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=",
                                       "*=", "/=", "%=", "&=", "|=", "^=", "++", "--", "::", "->"};
    std::vector<Token> r;
    for (size_t i = 0; i < s.size();) {
      const unsigned char c = static_cast<unsigned char>(s[i]);
      if (std::isspace(c)) {
        ++i;
        continue;
      }
      size_t end = i + 1;
      Token::Kind kind = Token::op;
      if (std::isalpha(c) || c == '_') {
        kind = Token::name;
        while (end < s.size() &&
               (std::isalnum(static_cast<unsigned char>(s[end])) || s[end] == '_'))
          ++end;
      } else if (std::isdigit(c) ||
                 (c == '.' && end < s.size() && std::isdigit(static_cast<unsigned char>(s[end])))) {
        kind = Token::number;
        const bool hex = s.compare(i, 2, "0x") == 0 || s.compare(i, 2, "0X") == 0;
        while (end < s.size() &&
               (std::isalnum(static_cast<unsigned char>(s[end])) || s[end] == '.' ||
                (!hex && (s[end] == '+' || s[end] == '-') &&
                 (s[end - 1] == 'e' || s[end - 1] == 'E'))))
          ++end;
      } else if (c == '"') {
        kind = Token::text;
        while (end < s.size() && s[end] != '"') end += s[end] == '\\' ? 2 : 1;
        if (end >= s.size()) fail<ValueError>(line, "a string without an end");
        ++end;
      } else {
        for (const char* op : kThree)
          if (s.compare(i, 3, op) == 0) end = i + 3;
        if (end == i + 1)
          for (const char* op : kTwo)
            if (s.compare(i, 2, op) == 0) end = i + 2;
        if (c == '\'')
          fail<NotImplementedError>(line, "character constants are not understood on the CPU");
        if (!std::ispunct(c) || c == '@' || c == '$' || c == '`')
          fail<ValueError>(line, std::string("cannot read '") + s[i] + "'");
      }
      r.push_back({kind, s.substr(i, end - i), line});
      i = end;
    }
    return r;
  }

  void directive(const std::string& text, int line) {
    const std::vector<Token> words = split(text, line);
    const std::string what = words.empty() ? "" : words[0].string;
    if (what == "endif") {
      if (open_ == 0) fail<ValueError>(line, "an #endif without its #if");
      --open_;
      taken_.pop_back();
      if (skipping_ > open_) skipping_ = 0;
      return;
    }
    if (what == "ifdef" || what == "ifndef") {
      ++open_;
      taken_.push_back(false);
      if (skipping_ == 0)
        take_or_skip(words.size() < 2 || macros_.contains(words[1].string) == (what == "ifdef"));
      return;
    }
    if (what == "if") {
      ++open_;
      taken_.push_back(false);
      if (skipping_ == 0) take_or_skip(condition(words, line));
      return;
    }
    if (what == "else" || what == "elif") {
      if (open_ == 0) fail<ValueError>(line, "an #" + what + " without its #if");
      if (skipping_ == 0 || skipping_ == open_)
        take_or_skip(!taken_.back() && (what == "else" || condition(words, line)));
      return;
    }
    if (skipping_ > 0 || what.empty() || what == "include" || what == "pragma") return;
    if (what == "undef" && words.size() == 2) {
      macros_.erase(words[1].string);
      return;
    }
    if (what != "define" || words.size() < 2)
      fail<NotImplementedError>(line, "#" + what + " is not understood on the CPU");
    Macro m;
    size_t at = 2;
    // Only a parenthesis right behind the name begins parameters.
    const size_t name_end =
        text.find(words[1].string, text.find("define") + 6) + words[1].string.size();
    if (name_end < text.size() && text[name_end] == '(') {
      m.is_function = true;
      for (++at; at < words.size() && !words[at].is(")"); ++at)
        if (!words[at].is(",")) m.parameters.push_back(words[at].string);
      ++at;
    }
    m.body.assign(words.begin() + std::ptrdiff_t(std::min(at, words.size())), words.end());
    macros_[words[1].string] = std::move(m);
  }

  // Of the parts of one #if the first whose condition holds is read.
  void take_or_skip(bool take) {
    if (take) taken_.back() = true;
    skipping_ = take ? 0 : open_;
  }

  bool condition(const std::vector<Token>& words, int line) {
    // What defined() asks for is no macro to replace.
    std::vector<Token> asked, all;
    for (size_t i = 1; i < words.size(); ++i) {
      if (!words[i].is("defined")) {
        asked.push_back(words[i]);
        continue;
      }
      const bool in_parentheses = i + 1 < words.size() && words[i + 1].is("(");
      i += in_parentheses ? 2 : 1;
      if (i >= words.size()) fail<ValueError>(line, "defined() of nothing");
      asked.push_back({Token::number, macros_.contains(words[i].string) ? "1" : "0", line});
      i += in_parentheses;
    }
    expand_into(all, asked);
    all.push_back({Token::end, "", line});
    size_t at = 0;
    const int64_t v = conditional(all, at, line, true);
    if (all[at].kind != Token::end) fail<ValueError>(line, "this #if is no condition");
    return v != 0;
  }

  // Where it is not `counted`, what is read has no value that matters, and a division by 0 is none.
  int64_t conditional(const std::vector<Token>& all, size_t& at, int line, bool counted) {
    const int64_t asked = alternatives(all, at, line, 0, counted);
    if (!all[at].is("?")) return asked;
    ++at;
    const int64_t a = conditional(all, at, line, counted && asked != 0);
    if (!all[at].is(":")) fail<ValueError>(line, "this #if is no condition");
    ++at;
    const int64_t b = conditional(all, at, line, counted && asked == 0);
    return asked != 0 ? a : b;
  }

  // Operators of two numbers from a rank on, as C binds them.
  int64_t alternatives(const std::vector<Token>& all, size_t& at, int line, size_t rank,
                       bool counted) {
    static const std::vector<std::vector<const char*>> kRanks = {{"||"},
                                                                 {"&&"},
                                                                 {"|"},
                                                                 {"^"},
                                                                 {"&"},
                                                                 {"==", "!="},
                                                                 {"<=", ">=", "<", ">"},
                                                                 {"<<", ">>"},
                                                                 {"+", "-"},
                                                                 {"*", "/", "%"}};
    if (rank == kRanks.size()) return single(all, at, line, counted);
    int64_t a = alternatives(all, at, line, rank + 1, counted);
    while (true) {
      const std::string op = all[at].string;
      if (all[at].kind != Token::op || std::ranges::find(kRanks[rank], op) == kRanks[rank].end())
        return a;
      ++at;
      const bool decided = (op == "||" && a != 0) || (op == "&&" && a == 0);
      int64_t b = alternatives(all, at, line, rank + 1, counted && !decided);
      if ((op == "/" || op == "%") && b == 0) {
        if (counted) fail<ValueError>(line, "a division by 0 in an #if");
        b = 1;
      }
      a = op == "||"   ? a || b
          : op == "&&" ? a && b
          : op == "|"  ? a | b
          : op == "^"  ? a ^ b
          : op == "&"  ? a & b
          : op == "==" ? a == b
          : op == "!=" ? a != b
          : op == "<=" ? a <= b
          : op == ">=" ? a >= b
          : op == "<"  ? a < b
          : op == ">"  ? a > b
          : op == "<<" ? int64_t(uint64_t(a) << (b & 63))
          : op == ">>" ? a >> (b & 63)
          : op == "+"  ? int64_t(uint64_t(a) + uint64_t(b))
          : op == "-"  ? int64_t(uint64_t(a) - uint64_t(b))
          : op == "*"  ? int64_t(uint64_t(a) * uint64_t(b))
          : b == -1    ? (op == "/" ? int64_t(-uint64_t(a)) : 0)
          : op == "/"  ? a / b
                       : a % b;
    }
  }
  int64_t single(const std::vector<Token>& all, size_t& at, int line, bool counted) {
    const Token& t = all[at];
    if (t.kind == Token::end) fail<ValueError>(line, "this #if is no condition");
    ++at;
    if (t.is("!")) return !single(all, at, line, counted);
    if (t.is("-")) return int64_t(-uint64_t(single(all, at, line, counted)));
    if (t.is("+")) return single(all, at, line, counted);
    if (t.is("~")) return ~single(all, at, line, counted);
    if (t.is("(")) {
      const int64_t v = conditional(all, at, line, counted);
      if (!all[at].is(")")) fail<ValueError>(line, "this #if is no condition");
      ++at;
      return v;
    }
    if (t.kind == Token::name) return t.string == "true";  // what is no macro is 0
    char* end = nullptr;
    const int64_t v = int64_t(std::strtoull(t.string.c_str(), &end, 0));
    if (t.kind != Token::number || std::string(end).find_first_not_of("uUlL") != std::string::npos)
      fail<ValueError>(line, "this #if is no condition");
    return v;
  }

  void expand_into(std::vector<Token>& to, const std::vector<Token>& from) {
    for (size_t i = 0; i < from.size(); ++i) {
      const Token& t = from[i];
      const auto found = t.kind == Token::name ? macros_.find(t.string) : macros_.end();
      if (found == macros_.end() || open_macros_.contains(t.string)) {
        to.push_back(t);
        continue;
      }
      const Macro& m = found->second;
      std::vector<std::vector<Token>> arguments;
      if (m.is_function) {
        if (i + 1 >= from.size() || !from[i + 1].is("(")) {
          to.push_back(t);
          continue;
        }
        int depth = 0;
        size_t k = i + 1;
        arguments.emplace_back();
        for (; k < from.size(); ++k) {
          if (from[k].is("(") && depth++ == 0) continue;
          if (from[k].is(")") && --depth == 0) break;
          if (from[k].is(",") && depth == 1)
            arguments.emplace_back();
          else
            arguments.back().push_back(from[k]);
        }
        if (k == from.size()) fail<ValueError>(t.line, t.string + "(...) has no end");
        if (m.parameters.empty() && arguments[0].empty()) arguments.clear();
        if (arguments.size() != m.parameters.size())
          fail<ValueError>(t.line, "the macro " + t.string + " takes " +
                                       std::to_string(m.parameters.size()) + " arguments");
        i = k;
      }
      std::vector<Token> body;
      for (Token b : m.body) {
        b.line = t.line;
        size_t p = 0;
        while (p < m.parameters.size() && m.parameters[p] != b.string) ++p;
        if (p < m.parameters.size())
          expand_into(body, arguments[p]);
        else
          body.push_back(b);
      }
      open_macros_.insert(t.string);
      expand_into(to, body);
      open_macros_.erase(t.string);
    }
  }

  const std::string &kernel_, &source_;
  Lines& lines_;
  std::map<std::string, Macro> macros_;
  std::set<std::string> open_macros_;
  std::vector<Token> result_;
  int open_ = 0, skipping_ = 0;  // depth of #if, and where what is left out began
  std::vector<bool> taken_;      // of each open #if: one of its parts was read
};

}  // namespace

std::string at_line(const Lines& lines, int line, const std::string& what) {
  std::string text;
  if (const auto found = lines.find(line); found != lines.end())
    if (const size_t begin = found->second.find_first_not_of(" \t"); begin != std::string::npos)
      text = ": `" + found->second.substr(begin) + "`";
  return "line " + std::to_string(line) + ": " + what + text;
}

std::vector<Token> tokens_of(const std::string& kernel, const std::string& source,
                             const std::vector<std::string>& options, Lines& lines) {
  return Reader(kernel, source, options, lines).all();
}

}  // namespace arete::lanes
