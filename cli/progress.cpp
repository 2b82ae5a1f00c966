#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace arete::cli {
namespace {

constexpr double kDrawInterval = 0.1;
// The rate forgets with this time constant, so that the remaining time follows a change of speed.
constexpr double kRateMemory = 4.0;
constexpr int kMinBar = 8, kMaxBar = 40;

double steady_seconds() {
  using Seconds = std::chrono::duration<double>;
  return std::chrono::duration_cast<Seconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

template <typename... Args>
std::string print(const char* format, Args... args) {
  char buffer[96];
  std::snprintf(buffer, sizeof(buffer), format, args...);
  return buffer;
}

// The program may not have called setlocale(), and need not for this.
bool environment_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    std::string text = value;
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
  }
  return false;
}

bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && !(term && std::strcmp(term, "dumb") == 0);
}

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

// Columns of a UTF-8 text, taking each character as one column wide.
int width_of(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string cut(std::string_view text, int columns) {
  size_t i = 0;
  for (int used = 0; i < text.size(); ++i) {
    if (starts_character(text[i]) && used++ == columns) break;
  }
  return std::string(text.substr(0, i));
}

// Control characters in a label or message would break the line.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

// Minutes and seconds, also for short times, so that the line does not jump.
std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-:--";
  return seconds < 60 ? print("0:%02d", static_cast<int>(seconds)) : format_duration(seconds);
}

std::string bar(double fraction, int columns, bool utf8) {
  std::string out;
  const double filled = std::clamp(fraction, 0.0, 1.0) * columns;
  const int full = static_cast<int>(filled);
  if (!utf8) {
    for (int i = 0; i < columns; ++i) out += i < full ? '#' : i == full && full > 0 ? '>' : '.';
    return "[" + out + "]";
  }
  static constexpr const char* kEighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  for (int i = 0; i < columns; ++i) {
    if (i < full) {
      out += "█";
    } else if (i == full) {
      out += kEighths[static_cast<int>((filled - full) * 8)];
    } else {
      out += ' ';
    }
  }
  return "│" + out + "│";
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "--";
  if (seconds < 0) return "-" + format_duration(-seconds);
  if (seconds == 0) return "0 s";
  if (seconds < 0.9995e-3) return print("%.3g us", seconds * 1e6);
  if (seconds < 0.9995) return print("%.3g ms", seconds * 1e3);
  if (seconds < 9.95) return print("%.1f s", seconds);
  if (seconds < 59.5) return print("%.0f s", seconds);
  // Half a million years; beyond this the conversion would overflow.
  const auto whole = static_cast<uint64_t>(std::min(seconds + 0.5, 1.6e13));
  const auto s = static_cast<unsigned>(whole % 60), m = static_cast<unsigned>(whole / 60 % 60);
  const auto h = static_cast<unsigned>(whole / 3600 % 24);
  const unsigned long long d = whole / 86400;
  if (d > 0) return print("%llud %02u:%02u:%02u", d, h, m, s);
  if (h > 0) return print("%u:%02u:%02u", h, m, s);
  return print("%u:%02u", m, s);
}

std::string format_count(double value) {
  if (!std::isfinite(value)) return "--";
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  double scaled = std::fabs(value);
  size_t unit = 0;
  // 999.5 would be printed as 1e+03.
  while (scaled >= 999.5 && unit + 1 < std::size(kUnits)) {
    scaled /= 1000;
    ++unit;
  }
  if (scaled >= 999.5) return print("%.3g", value);
  return (value < 0 ? "-" : "") + print("%.3g", scaled) + kUnits[unit];
}

std::string format_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto scaled = static_cast<double>(bytes);
  size_t unit = 0;
  while (scaled >= 1023.5 && unit + 1 < std::size(kUnits)) {
    scaled /= 1024;
    ++unit;
  }
  // Four digits only occur between 1000 and 1023.
  return print(scaled >= 999.5 ? "%.0f" : "%.3g", scaled) + " " + kUnits[unit];
}

std::string format_integer(uint64_t value) {
  std::string out = std::to_string(value);
  for (size_t i = out.size(); i > 3; i -= 3) out.insert(i - 3, ",");
  return out;
}

Progress::Progress(ProgressOptions options) : options_(std::move(options)) {
  if (!options_.terminal) options_.terminal = is_terminal(options_.fd);
  if (!options_.utf8) options_.utf8 = environment_is_utf8();
  if (!options_.clock) options_.clock = steady_seconds;
  options_.label = one_line(std::move(options_.label));
  start_ = now_ = rate_time_ = options_.clock();
  next_draw_ = start_ + (*options_.terminal ? 0 : options_.plain_interval);
}

Progress::~Progress() {
  try {
    finish();
  } catch (...) {
    // Out of memory while drawing: the program has greater worries than this line.
  }
}

double Progress::elapsed() const { return options_.clock() - start_; }

bool Progress::count(uint64_t units) {
  done_ += units;
  now_ = options_.clock();
  return now_ >= next_draw_ && !finished_;
}

void Progress::draw(bool last) {
  const double interval = now_ - rate_time_;
  if (interval > 0) {
    const double fresh = static_cast<double>(done_ - rate_done_) / interval;
    const double keep = std::exp(-interval / kRateMemory);
    rate_ = rate_ * keep + fresh * (1 - keep);
    rate_weight_ = rate_weight_ * keep + (1 - keep);
    rate_time_ = now_;
    rate_done_ = done_;
  }
  message_ = one_line(std::move(message_));
  if (*options_.terminal) {
    // One column stays free: some terminals wrap when the last one is filled.
    write_out("\r" + bar_line(columns() - 1, last) + "\x1b[K" + (last ? "\r\n" : ""));
    line_open_ = !last;
    next_draw_ = now_ + kDrawInterval;
  } else {
    write_out(plain_line(last) + "\n");
    next_draw_ = now_ + options_.plain_interval;
  }
}

double Progress::shown_rate(bool last) const {
  const double seconds = now_ - start_;
  if (last || rate_weight_ <= 0) return seconds > 0 ? static_cast<double>(done_) / seconds : 0;
  return rate_ / rate_weight_;
}

std::string Progress::bar_line(int columns, bool last) const {
  const double rate = shown_rate(last);
  const bool known = options_.total > 0;
  const double fraction =
      known ? std::min(1.0, static_cast<double>(done_) / static_cast<double>(options_.total)) : 0;
  const std::string gap = *options_.utf8 ? " · " : " | ";
  std::string times = clock_text(now_ - start_);
  if (known && !last) {
    const auto left = static_cast<double>(options_.total - std::min(options_.total, done_));
    times += " < " + clock_text(rate > 0 ? left / rate : INFINITY);
  }
  const std::string head = options_.label.empty() ? "" : options_.label + " ";
  const std::string percent = known ? print("%3d%%", static_cast<int>(fraction * 100)) : "";
  const std::string counts =
      known ? " " + format_integer(done_) + "/" + format_integer(options_.total)
            : format_integer(done_);
  const std::string speed = gap + format_count(rate) + " " + options_.unit + "/s";
  const std::string note = message_.empty() ? "" : gap + message_;

  // The message matters most, then the remaining time, the rate, the counts; the bar takes what is
  // left, and everything gives way from the right end of this list.
  const int needed = width_of(head + percent + gap + times + note);
  const int with_speed = needed + width_of(speed);
  const int with_counts = with_speed + width_of(counts);
  std::string tail = (columns >= with_counts ? counts : "") + (columns >= with_speed ? speed : "") +
                     gap + times + note;
  if (!known && columns < with_counts) tail = counts + tail;
  const int room = columns - width_of(head + percent + tail) - 3;
  const std::string middle =
      known && room >= kMinBar ? " " + bar(fraction, std::min(room, kMaxBar), *options_.utf8) : "";
  return cut(head + percent + middle + tail, std::max(columns, 0));
}

std::string Progress::plain_line(bool last) const {
  const double rate = shown_rate(last);
  std::string out = options_.label.empty() ? "" : options_.label + ": ";
  if (options_.total > 0) {
    const double fraction =
        std::min(1.0, static_cast<double>(done_) / static_cast<double>(options_.total));
    out += print("%d%% ", static_cast<int>(fraction * 100)) + format_integer(done_) + "/" +
           format_integer(options_.total);
  } else {
    out += format_integer(done_);
  }
  out += ", " + format_count(rate) + " " + options_.unit + "/s, " + format_duration(now_ - start_) +
         (last ? " in all" : " so far");
  if (!last && options_.total > done_ && rate > 0)
    out += ", " + format_duration(static_cast<double>(options_.total - done_) / rate) + " left";
  if (!message_.empty()) out += ", " + message_;
  return out;
}

void Progress::print_line(std::string_view text) {
  if (!*options_.terminal) {
    write_out(std::string(text) + "\n");
    return;
  }
  write_out((line_open_ ? "\r\x1b[K" : "") + std::string(text) + "\r\n");
  if (line_open_) {
    now_ = options_.clock();
    draw(false);
  }
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  now_ = options_.clock();
  draw(true);
}

int Progress::columns() const {
  winsize size{};
  if (::ioctl(options_.fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

void Progress::write_out(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t put = ::write(options_.fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    text.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace arete::cli
