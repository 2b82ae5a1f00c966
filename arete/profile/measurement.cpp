#include "arete/profile/measurement.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "arete/base/error.h"

namespace arete::benchmark {

namespace {

// Spreads, as parts of the median, from which on a measurement is suspect.
constexpr double kWarnSpread = 0.1, kGrossSpread = 0.25;
// No clock here tells times apart more finely.
constexpr double kFinest = 25e-9;
// Of a normal distribution, nine tenths lie within so many standard deviations of its mean.
constexpr double kNineTenths = 1.645;
constexpr int kMostFigures = 4;

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * double(sorted.size() - 1);
  const size_t below = size_t(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - double(below));
}

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (double v : values) sum += v;
  return sum / double(values.size());
}

int figures(const std::vector<double>& sorted, double median) {
  // Between the quartiles only: the tails are what the system did meanwhile.
  const size_t n = sorted.size(), low = n / 4, high = (3 * n + 3) / 4;
  const std::span<const double> middle = std::span(sorted).subspan(low, high - low);
  const double mean = mean_of(middle);
  double squares = 0;
  for (double v : middle) squares += (v - mean) * (v - mean);
  const double deviation = std::sqrt(squares / double(middle.size()));
  const double interval =
      std::max(kNineTenths * deviation / std::sqrt(double(middle.size())), kFinest);
  const double relative = std::floor(std::log10(median / interval));
  return relative >= 1 ? int(std::min(relative, double(kMostFigures))) : 1;
}

std::string indented(std::string_view text) {
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) out += "  ";
    out += line;
    if (end < text.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

bool has_lines(std::string_view text) { return text.find('\n') != std::string_view::npos; }

void remove_trailing_space(std::string& s) {
  const size_t last = s.find_last_not_of(" \n\t\r");
  s.resize(last == std::string::npos ? 0 : last + 1);
}

}  // namespace

std::string TaskSpec::title() const {
  const bool has_sub = sub_label && !sub_label->empty();
  if (label || !has_lines(stmt)) return label.value_or(stmt) + (has_sub ? ": " + *sub_label : "");
  return "stmt:" + (has_sub ? " (" + *sub_label + ")" : "") + "\n" + indented(stmt);
}

std::string TaskSpec::setup_text() const {
  if (setup.empty() || setup == "pass") return "";
  return has_lines(setup) ? "setup:\n" + indented(setup) : "setup: " + setup;
}

std::string TaskSpec::summarize() const {
  const std::string sections[] = {title(), description.value_or(""), setup_text()};
  std::string out;
  for (const std::string& s : sections)
    if (!s.empty()) out += (out.empty() ? "" : "\n") + s + (has_lines(s) ? "\n" : "");
  return out;
}

TimeUnit select_unit(double seconds) {
  static constexpr TimeUnit kUnits[] = {{"ns", "nanosecond", 1e-9},
                                        {"us", "microsecond", 1e-6},
                                        {"ms", "millisecond", 1e-3},
                                        {"s", "second", 1}};
  // A hair below a unit counts as the unit: 1e-6 is no 1000 ns.
  for (int i = 3; i > 0; --i)
    if (seconds >= kUnits[i].seconds * (1 - 1e-7)) return kUnits[i];
  return kUnits[0];
}

double trim_sigfig(double x, int n) {
  ARETE_CHECK(n > 0, ValueError("trim_sigfig", "the number of significant figures must be positive")
                         .got(std::to_string(n)));
  if (x == 0 || !std::isfinite(x)) return x;
  const double scale = std::pow(10., std::ceil(std::log10(std::fabs(x))) - n);
  return std::nearbyint(x / scale) * scale;
}

Measurement::Measurement(int64_t number_per_run, std::vector<double> raw_times, TaskSpec spec)
    : number_per_run_(number_per_run), raw_times_(std::move(raw_times)), spec_(std::move(spec)) {
  ARETE_CHECK(!raw_times_.empty() && number_per_run_ > 0,
              ValueError("Measurement", "a measurement needs at least one time of at least one run")
                  .got(std::to_string(raw_times_.size()) + " times of " +
                       std::to_string(number_per_run_) + " runs"));
  std::vector<double> sorted = times();
  std::sort(sorted.begin(), sorted.end());
  median_ = quantile(sorted, 0.5);
  mean_ = mean_of(sorted);
  p25_ = quantile(sorted, 0.25);
  p75_ = quantile(sorted, 0.75);
  significant_figures_ = figures(sorted, median_);
}

std::vector<double> Measurement::times() const {
  std::vector<double> out = raw_times_;
  for (double& t : out) t /= double(number_per_run_);
  return out;
}

std::string Measurement::warning() const {
  if (meets_confidence(kWarnSpread)) return "";
  return fmt::format(
      "  WARNING: Interquartile range is {:.1f}% of the median measurement.\n           {}",
      iqr() / median_ * 100,
      meets_confidence(kGrossSpread) ? "This could indicate system fluctuation."
                                     : "This suggests significant environmental influence.");
}

std::string Measurement::row_name() const {
  if (spec_.sub_label && !spec_.sub_label->empty()) return *spec_.sub_label;
  return spec_.stmt.empty() ? "[Unknown]" : spec_.stmt;
}

std::string Measurement::to_string() const {
  const TimeUnit unit = select_unit(median_);
  const size_t n = raw_times_.size();
  std::string s = spec_.summarize() + "\n";
  s += fmt::format("  {}{:.2f} {}\n", n > 1 ? "Median: " : "", median_ / unit.seconds, unit.name);
  if (n >= 4)
    s += fmt::format("  IQR:    {:.2f} {} ({:.2f} to {:.2f})\n", iqr() / unit.seconds, unit.name,
                     p25_ / unit.seconds, p75_ / unit.seconds);
  s += fmt::format("  {} measurement{}, {} runs {} {} thread{}\n", n, n > 1 ? "s" : "",
                   number_per_run_, n > 1 ? "per measurement," : ",", spec_.num_threads,
                   spec_.num_threads > 1 ? "s" : "");
  s += warning();
  remove_trailing_space(s);
  return s;
}

std::vector<Measurement> Measurement::merge(std::span<const Measurement> measurements) {
  struct Group {
    const TaskSpec* spec;
    std::vector<double> times;
  };
  std::vector<Group> groups;
  for (const Measurement& m : measurements) {
    auto it = std::find_if(groups.begin(), groups.end(),
                           [&](const Group& g) { return *g.spec == m.spec_; });
    if (it == groups.end()) it = groups.insert(it, {&m.spec_, {}});
    const std::vector<double> times = m.times();
    it->times.insert(it->times.end(), times.begin(), times.end());
  }
  std::vector<Measurement> out;
  out.reserve(groups.size());
  for (Group& g : groups) out.emplace_back(1, std::move(g.times), *g.spec);
  return out;
}

}  // namespace arete::benchmark
