// Tables of measurements.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <tuple>

#include <fmt/format.h>

#include "arete/profile/measurement.h"

namespace arete::benchmark {

namespace {

constexpr const char* kBetween = "  |  ";
constexpr double kSpreadToMark = 0.1;

/// Characters, not bytes: the width on a terminal of names that are not ASCII, nearly always.
size_t width_of(const std::string& s) {
  return size_t(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string centred(const std::string& s, size_t width, char fill = ' ') {
  const size_t n = width_of(s);
  if (n >= width) return s;
  // Of an odd rest the greater half goes left where the width is odd, too: as Python's center().
  const size_t rest = width - n, left = rest / 2 + (rest & width & 1);
  return std::string(left, fill) + s + std::string(rest - left, fill);
}

std::string left_aligned(const std::string& s, size_t width, char fill = ' ') {
  const size_t n = width_of(s);
  return n >= width ? s : s + std::string(width - n, fill);
}

struct RowKey {
  int threads;
  std::string env, name;
  bool operator==(const RowKey&) const = default;
};

template <class T>
size_t position(std::vector<T>& all, const T& value) {
  const auto it = std::find(all.begin(), all.end(), value);
  if (it != all.end()) return size_t(it - all.begin());
  all.push_back(value);
  return all.size() - 1;
}

/// One label's measurements.
class Table {
 public:
  Table(std::vector<const Measurement*> results, bool trim, bool highlight,
        Compare::Colorize colorize)
      : trim_(trim), highlight_(highlight), colorize_(colorize) {
    double least = std::numeric_limits<double>::infinity();
    for (const Measurement* m : results) {
      position(rows_, key_of(*m));
      position(columns_, m->spec().description);
      least = std::min(least, m->median());
      marked_ = marked_ || m->has_warnings();
    }
    unit_ = select_unit(least);
    std::stable_sort(rows_.begin(), rows_.end(), [](const RowKey& a, const RowKey& b) {
      return std::tie(a.threads, a.env) < std::tie(b.threads, b.env);
    });
    cells_.assign(rows_.size() * columns_.size(), nullptr);
    for (const Measurement* m : results)
      cells_[position(rows_, key_of(*m)) * columns_.size() +
             position(columns_, m->spec().description)] = m;
    label_ = results[0]->spec().label.value_or("");
  }

  std::string text() const {
    std::vector<std::vector<std::string>> lines{{""}};
    for (const auto& c : columns_) lines[0].push_back(c.value_or(""));
    const std::vector<Format> formats = column_formats();
    for (size_t r = 0; r < rows_.size(); ++r) lines.push_back(line(r, formats));
    std::vector<size_t> widths(columns_.size() + 1);
    for (const auto& l : lines)
      for (size_t c = 0; c < l.size(); ++c) widths[c] = std::max(widths[c], width_of(l[c]));

    std::string header = centred(lines[0][0], widths[0]);
    for (size_t c = 1; c < widths.size(); ++c) header += kBetween + centred(lines[0][c], widths[c]);
    const size_t width = width_of(header);
    std::string s = "[" + centred(" " + label_ + " ", width >= 2 ? width - 2 : 0, '-') + "]\n";
    s += header + "\n";
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (begins_group(r))
        s += left_aligned(std::to_string(rows_[r].threads) + " threads: ", width, '-') + "\n";
      s += left_aligned(lines[r + 1][0], widths[0]);
      for (size_t c = 0; c < columns_.size(); ++c)
        s += kBetween + coloured(centred(lines[r + 1][c + 1], widths[c + 1]), r, c);
      s += "\n";
    }
    s += fmt::format("\nTimes are in {}s ({}).\n", unit_.english, unit_.name);
    if (highlight_ && marked_)
      s += "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.\n";
    return s;
  }

 private:
  struct Format {
    int width, decimals;
    bool marks;  // of large spreads
  };

  static RowKey key_of(const Measurement& m) {
    return {m.spec().num_threads, m.spec().env.value_or(""), m.row_name()};
  }
  const Measurement* cell(size_t row, size_t column) const {
    return cells_[row * columns_.size() + column];
  }
  bool begins_group(size_t row) const {
    return row == 0 || rows_[row].threads != rows_[row - 1].threads;
  }

  /// Room for the largest number of each column, with the decimals that all of its figures have.
  std::vector<Format> column_formats() const {
    std::vector<Format> formats;
    for (size_t c = 0; c < columns_.size(); ++c) {
      constexpr int kMost = std::numeric_limits<int>::max();
      int digits = -kMost, decimals = kMost;
      bool marks = false;
      for (size_t r = 0; r < rows_.size(); ++r)
        if (const Measurement* m = cell(r, c)) {
          const double value = m->median() / unit_.seconds;
          const int leading = value > 0 ? int(std::ceil(std::log10(value))) : 1;
          digits = std::max(digits, leading);
          marks = marks || (highlight_ && m->iqr() > kSpreadToMark * m->median());
          decimals = std::min(decimals, std::max(m->significant_figures() - leading, 0));
        }
      if (!trim_) decimals = 1;
      formats.push_back({digits + decimals + (decimals ? 1 : 0), decimals, marks});
    }
    return formats;
  }

  std::vector<std::string> line(size_t row, const std::vector<Format>& formats) const {
    const RowKey& key = rows_[row];
    const bool many_envs = std::any_of(rows_.begin(), rows_.end(),
                                       [&](const RowKey& k) { return k.env != rows_[0].env; });
    size_t longest = 0;
    if (many_envs)
      for (const RowKey& k : rows_) longest = std::max(longest, width_of(k.env));
    const bool show = many_envs && (begins_group(row) || key.env != rows_[row - 1].env);
    std::vector<std::string> out{"  " + left_aligned(show ? "(" + key.env + ")" : "", longest + 4) +
                                 key.name};
    for (size_t c = 0; c < columns_.size(); ++c) {
      const Measurement* m = cell(row, c);
      std::string text;
      if (m) {
        double value = m->median() / unit_.seconds;
        if (trim_) value = trim_sigfig(value, m->significant_figures());
        text = fmt::format("{:>{}.{}f}", value, std::max(formats[c].width, 0), formats[c].decimals);
        const double spread = m->iqr() / m->median();
        if (formats[c].marks)
          text += fmt::format("{:>7}", spread > kSpreadToMark
                                           ? fmt::format(" (! {:.0f}%)", spread * 100)
                                           : std::string());
      }
      out.push_back(std::move(text));
    }
    return out;
  }

  std::string coloured(const std::string& s, size_t row, size_t column) const {
    const Measurement* m = cell(row, column);
    if (!m || colorize_ == Compare::Colorize::none) return s;
    double best = std::numeric_limits<double>::infinity();
    if (colorize_ == Compare::Colorize::rowwise) {
      for (size_t c = 0; c < columns_.size(); ++c)
        if (const Measurement* other = cell(row, c)) best = std::min(best, other->median());
    } else {
      for (size_t r = 0; r < rows_.size(); ++r)
        if (const Measurement* other = cell(r, column);
            other && rows_[r].threads == rows_[row].threads)
          best = std::min(best, other->median());
    }
    constexpr const char *kBold = "\x1b[1m", *kFaint = "\x1b[2m", *kEnd = "\x1b[0m\x1b[0m";
    constexpr const char *kBest = "\x1b[92m", *kGood = "\x1b[34m", *kBad = "\x1b[91m",
                         *kVeryBad = "\x1b[31m";
    const double t = m->median();
    if (t <= best * 1.01 || t <= best + 100e-9) return kBest + (kBold + s) + kEnd;
    if (t <= best * 1.1) return kGood + (kBold + s) + kEnd;
    if (t >= best * 5) return kVeryBad + (kBold + s) + kEnd;
    if (t >= best * 2) return kFaint + (kBad + s) + kEnd;
    return s;
  }

  const bool trim_, highlight_;
  const Compare::Colorize colorize_;
  bool marked_ = false;
  TimeUnit unit_{};
  std::string label_;
  std::vector<RowKey> rows_;
  std::vector<std::optional<std::string>> columns_;
  std::vector<const Measurement*> cells_;
};

}  // namespace

void Compare::extend(std::span<const Measurement> results) {
  results_.insert(results_.end(), results.begin(), results.end());
}

std::string Compare::to_string() const {
  const std::vector<Measurement> merged = Measurement::merge(results_);
  std::vector<std::optional<std::string>> labels;
  for (const Measurement& m : merged) position(labels, m.spec().label);
  std::string s;
  for (const auto& label : labels) {
    std::vector<const Measurement*> group;
    for (const Measurement& m : merged)
      if (m.spec().label == label) group.push_back(&m);
    s += (s.empty() ? "" : "\n") + Table(std::move(group), trim_, highlight_, colorize_).text();
  }
  return s;
}

void Compare::print() const {
  std::fputs(to_string().c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace arete::benchmark
