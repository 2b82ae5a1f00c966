// Times of repeated runs, what they say, and tables that compare them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace arete::benchmark {

/// What was measured.
struct TaskSpec {
  std::string stmt, setup, global_setup;
  std::optional<std::string> label, sub_label, description, env;
  int num_threads = 1;

  /// The label with the sub-label, else the statement.
  std::string title() const;
  /// The setup under its heading; "" where there is none.
  std::string setup_text() const;
  /// Title, description and setup, on lines of their own.
  std::string summarize() const;
  bool operator==(const TaskSpec&) const = default;
};

/// A unit in which times are easy to read.
struct TimeUnit {
  const char* name;     ///< "us"
  const char* english;  ///< "microsecond"
  double seconds;
};
TimeUnit select_unit(double seconds);
/// `x` rounded to `n` significant figures.
double trim_sigfig(double x, int n);

/// Runs of one task: each of `raw_times` is the time of `number_per_run` runs. All times in
/// seconds.
class Measurement {
 public:
  /// At least one time; ValueError otherwise.
  Measurement(int64_t number_per_run, std::vector<double> raw_times, TaskSpec spec = {});

  int64_t number_per_run() const noexcept { return number_per_run_; }
  const std::vector<double>& raw_times() const noexcept { return raw_times_; }
  const TaskSpec& spec() const noexcept { return spec_; }
  /// Of one run each.
  std::vector<double> times() const;
  double median() const noexcept { return median_; }
  double mean() const noexcept { return mean_; }
  /// The quarter of the times below and above.
  double p25() const noexcept { return p25_; }
  double p75() const noexcept { return p75_; }
  /// Between the two.
  double iqr() const noexcept { return p75_ - p25_; }
  /// How many figures of the median mean something: an estimate from the times between the
  /// quartiles, 1 to 4.
  int significant_figures() const noexcept { return significant_figures_; }
  /// Whether the spread (iqr) is below this part of the median.
  bool meets_confidence(double threshold = 0.1) const noexcept {
    return iqr() / median_ < threshold;
  }
  /// What a large spread suggests; "" where it is small.
  std::string warning() const;
  bool has_warnings() const noexcept { return !meets_confidence(); }
  /// The sub-label, else the statement.
  std::string row_name() const;
  /// Several lines for people: task, median, spread, counts, warning.
  std::string to_string() const;

  /// One measurement for each task: those of equal tasks are put together, in order of appearance.
  static std::vector<Measurement> merge(std::span<const Measurement> measurements);

 private:
  int64_t number_per_run_;
  std::vector<double> raw_times_;
  TaskSpec spec_;
  double median_ = 0, mean_ = 0, p25_ = 0, p75_ = 0;
  int significant_figures_ = 1;
};

/// Tables of measurements: one for each label, a row for each sub-label (and env), a column for
/// each description, rows in groups by number of threads.
class Compare {
 public:
  enum class Colorize : uint8_t { none, columnwise, rowwise };

  explicit Compare(std::vector<Measurement> results) : results_(std::move(results)) {}
  void extend(std::span<const Measurement> results);
  /// Shows the figures that mean something only.
  void trim_significant_figures() noexcept { trim_ = true; }
  /// Colours for terminals: the best of its column (or row) green, much worse ones red.
  void colorize(bool rowwise = false) noexcept {
    colorize_ = rowwise ? Colorize::rowwise : Colorize::columnwise;
  }
  /// Marks measurements with a large spread.
  void highlight_warnings() noexcept { highlight_ = true; }
  std::string to_string() const;
  /// On standard output.
  void print() const;

 private:
  std::vector<Measurement> results_;
  bool trim_ = false, highlight_ = false;
  Colorize colorize_ = Colorize::none;
};

}  // namespace arete::benchmark
