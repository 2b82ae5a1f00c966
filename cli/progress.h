// A progress bar for terminals that becomes plain lines where the output is a file or a pipe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace arete::cli {

/// "850 us", "420 ms", "4.2 s", "42 s", "3:07", "1:02:03", "2d 03:04:05"; "--" when not finite.
std::string format_duration(double seconds);

/// Three significant digits with k, M, G, T: "7", "12.3", "1.23k", "60k".
std::string format_count(double value);

/// "512 B", "1.5 KiB", "3.25 GiB".
std::string format_bytes(uint64_t bytes);

/// "60,000".
std::string format_integer(uint64_t value);

struct ProgressOptions {
  std::string label;             ///< what runs, such as "epoch 1/5"
  uint64_t total = 0;            ///< units of the whole, 0 when not known
  std::string unit = "it";       ///< their name in the rate, such as "images"
  int fd = 2;                    ///< where to write
  std::optional<bool> terminal;  ///< default: whether fd is one (and TERM is not "dumb")
  std::optional<bool> utf8;      ///< default: whether the locale of the environment is
  double plain_interval = 5;     ///< seconds between lines when not a terminal
  double (*clock)() = nullptr;   ///< seconds; default: the steady clock
};

/// Shows how far a loop is. A step costs a clock read; drawing happens ten times a second at most.
/// The cursor is never hidden and always left at the start of a fresh line in the end, so a killed
/// program leaves the terminal usable. For one thread; write errors are ignored.
class Progress {
 public:
  explicit Progress(ProgressOptions options);
  /// Ends the line as finish() does.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Counts `units` more. `message` (a callable giving a string, such as the loss) is called only
  /// when something is drawn, so that it may do work or wait for a device.
  template <typename Message>
  void advance(uint64_t units, Message&& message) {
    if (!count(units)) return;
    message_ = message();
    draw(false);
  }
  void advance(uint64_t units = 1) {
    if (count(units)) draw(false);
  }

  /// Sets the text behind the figures, shown with the next drawing.
  void set_message(std::string message) { message_ = std::move(message); }

  /// Prints a line of text above the bar.
  void print_line(std::string_view text);

  /// Draws the last state (with the average rate) and ends the line. Once; later calls do nothing.
  void finish();

  uint64_t done() const { return done_; }
  double elapsed() const;

 private:
  bool count(uint64_t units);
  void draw(bool last);
  std::string bar_line(int columns, bool last) const;
  std::string plain_line(bool last) const;
  double shown_rate(bool last) const;
  void write_out(std::string_view text) const;
  int columns() const;

  ProgressOptions options_;
  std::string message_;
  uint64_t done_ = 0, rate_done_ = 0;
  double start_ = 0, next_draw_ = 0, rate_time_ = 0, now_ = 0;
  double rate_ = 0, rate_weight_ = 0;
  bool line_open_ = false, finished_ = false;
};

}  // namespace arete::cli
