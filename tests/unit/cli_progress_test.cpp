#include "cli/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace arete::cli {
namespace {

double test_time = 0;
double test_clock() { return test_time; }

// What a Progress writes into a pipe.
class Capture {
 public:
  Capture() {
    if (::pipe(fds_) != 0) std::abort();
    ::fcntl(fds_[0], F_SETFL, O_NONBLOCK);
    test_time = 1000;
  }
  ~Capture() {
    ::close(fds_[0]);
    ::close(fds_[1]);
  }
  ProgressOptions options(uint64_t total, bool terminal, bool utf8 = true) const {
    ProgressOptions o;
    o.label = "epoch 1/5";
    o.total = total;
    o.unit = "images";
    o.fd = fds_[1];
    o.terminal = terminal;
    o.utf8 = utf8;
    o.clock = test_clock;
    return o;
  }
  std::string take() {
    std::string out;
    char buffer[4096];
    for (ssize_t n; (n = ::read(fds_[0], buffer, sizeof(buffer))) > 0;)
      out.append(buffer, static_cast<size_t>(n));
    return out;
  }

 private:
  int fds_[2];
};

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

size_t characters(const std::string& text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

TEST(Format, Durations) {
  const std::vector<std::pair<double, std::string>> cases = {
      {0, "0 s"},       {8.5e-4, "850 us"}, {0.42, "420 ms"},    {0.9996, "1.0 s"},
      {4.2, "4.2 s"},   {9.97, "10 s"},     {42, "42 s"},        {59.6, "1:00"},
      {187, "3:07"},    {3723, "1:02:03"},  {3599.7, "1:00:00"}, {183845, "2d 03:04:05"},
      {-4.2, "-4.2 s"}, {INFINITY, "--"},   {NAN, "--"}};
  for (const auto& [seconds, text] : cases) EXPECT_EQ(format_duration(seconds), text);
  EXPECT_FALSE(format_duration(1e300).empty());
}

TEST(Format, CountsAndBytes) {
  const std::vector<std::pair<double, std::string>> counts = {
      {0, "0"},         {7, "7"},         {999, "999"},     {999.6, "1k"},
      {1234, "1.23k"},  {60000, "60k"},   {1.5e6, "1.5M"},  {2e9, "2G"},
      {-1500, "-1.5k"}, {0.125, "0.125"}, {INFINITY, "--"}, {1e21, "1e+21"}};
  for (const auto& [value, text] : counts) EXPECT_EQ(format_count(value), text);
  const std::vector<std::pair<uint64_t, std::string>> bytes = {{0, "0 B"},
                                                               {512, "512 B"},
                                                               {1023, "1023 B"},
                                                               {1024, "1 KiB"},
                                                               {1536, "1.5 KiB"},
                                                               {uint64_t{1023} << 10, "1023 KiB"},
                                                               {3489660928, "3.25 GiB"},
                                                               {~uint64_t{0}, "16 EiB"}};
  for (const auto& [value, text] : bytes) EXPECT_EQ(format_bytes(value), text);
  EXPECT_EQ(format_integer(0), "0");
  EXPECT_EQ(format_integer(999), "999");
  EXPECT_EQ(format_integer(60000), "60,000");
  EXPECT_EQ(format_integer(1234567), "1,234,567");
}

TEST(Progress, DrawsAtMostTenTimesASecond) {
  Capture capture;
  int messages = 0;
  {
    Progress progress(capture.options(100'000, true));
    for (int i = 0; i < 100'000; ++i) {
      test_time += 1e-5;
      progress.advance(1, [&] {
        ++messages;
        return std::string("loss 0.5");
      });
    }
  }
  const std::string out = capture.take();
  // One second: the first drawing, one each 0.1 s, and the last.
  EXPECT_GE(messages, 9);
  EXPECT_LE(messages, 11);
  EXPECT_EQ(count(out, "\r"), static_cast<size_t>(messages) + 2);
  EXPECT_EQ(out.substr(out.size() - 2), "\r\n");
  EXPECT_NE(out.find("100,000/100,000"), std::string::npos);
  EXPECT_NE(out.find("100k images/s"), std::string::npos);
  EXPECT_NE(out.find("loss 0.5"), std::string::npos);
  EXPECT_EQ(out.find("\x1b[?25l"), std::string::npos) << "the cursor must not be hidden";
}

TEST(Progress, ShowsBarRateAndRemainingTime) {
  Capture capture;
  Progress progress(capture.options(1000, true));
  progress.advance(0);
  for (int i = 0; i < 20; ++i) {
    test_time += 0.5;
    progress.advance(25);
  }
  const std::string out = capture.take();
  const std::string last = out.substr(out.rfind('\r'));
  for (const char* part : {"epoch 1/5  50%", "│", "█", "500/1,000", "50 images/s", "0:10 < 0:10"})
    EXPECT_NE(last.find(part), std::string::npos) << part << " in " << last;
  progress.finish();
  const std::string end = capture.take();
  EXPECT_EQ(end.find("<"), std::string::npos);
  progress.finish();
  progress.advance(1);
  EXPECT_EQ(capture.take(), "");
}

TEST(Progress, RateFollowsAChangeOfSpeed) {
  Capture capture;
  Progress progress(capture.options(100'000, true));
  for (int i = 0; i < 100; ++i) {
    test_time += 0.2;
    progress.advance(200);
  }
  for (int i = 0; i < 100; ++i) {
    test_time += 0.2;
    progress.advance(20);
  }
  const std::string out = capture.take();
  const std::string last = out.substr(out.rfind('\r'));
  // 100 per second now, 550 on the average.
  EXPECT_NE(last.find("106 images/s"), std::string::npos) << last;
}

TEST(Progress, AsciiWithoutUtf8) {
  Capture capture;
  {
    Progress progress(capture.options(10, true, false));
    test_time += 1;
    progress.advance(5);
  }
  const std::string out = capture.take();
  for (const char c : out) EXPECT_LT(static_cast<unsigned char>(c), 0x80);
  EXPECT_NE(out.find("#####"), std::string::npos);
}

TEST(Progress, PlainLinesAreRare) {
  Capture capture;
  {
    Progress progress(capture.options(600, false));
    progress.set_message("loss\n0.25");
    for (int i = 0; i < 120; ++i) {
      test_time += 0.1;
      progress.advance(5);
    }
  }
  const std::string out = capture.take();
  EXPECT_EQ(count(out, "\n"), 3u) << out;  // after 5 s, after 10 s, and at the end
  EXPECT_EQ(count(out, "\r") + count(out, "\x1b"), 0u);
  EXPECT_NE(out.find("epoch 1/5: 41% 250/600, 50 images/s, 5.0 s so far, 7.0 s left, loss 0.25\n"),
            std::string::npos)
      << out;
  EXPECT_NE(out.find("epoch 1/5: 100% 600/600, 50 images/s, 12 s in all, loss 0.25\n"),
            std::string::npos)
      << out;
}

TEST(Progress, UnknownTotalAndTooMany) {
  Capture capture;
  {
    Progress progress(capture.options(0, true));
    test_time += 2;
    progress.advance(1500);
  }
  std::string out = capture.take();
  EXPECT_EQ(out.find('%'), std::string::npos);
  EXPECT_NE(out.find("1,500 · 750 images/s"), std::string::npos) << out;
  {
    Progress progress(capture.options(10, true));
    test_time += 2;
    progress.advance(25);
  }
  out = capture.take();
  EXPECT_NE(out.find("100%"), std::string::npos) << out;
  EXPECT_NE(out.find("25/10"), std::string::npos) << out;
}

TEST(Progress, PrintsLinesAboveTheBar) {
  Capture capture;
  Progress progress(capture.options(10, true));
  test_time += 1;
  progress.advance(1);
  capture.take();
  progress.print_line("saved a checkpoint");
  const std::string out = capture.take();
  EXPECT_EQ(out.rfind("\r\x1b[Ksaved a checkpoint\r\n\repoch 1/5", 0), 0u) << out;
}

// A real terminal of each width: no line may fill the last column, and none may be cut away.
TEST(Progress, FitsTheTerminal) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0) GTEST_SKIP() << "no pseudo terminals here";
  ASSERT_EQ(::grantpt(master), 0);
  ASSERT_EQ(::unlockpt(master), 0);
  const int slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  ASSERT_GE(slave, 0);
  termios mode;
  ::tcgetattr(slave, &mode);
  ::cfmakeraw(&mode);
  ::tcsetattr(slave, TCSANOW, &mode);
  ::setenv("TERM", "xterm", 1);
  ::setenv("LC_ALL", "C.UTF-8", 1);
  ::fcntl(master, F_SETFL, O_NONBLOCK);
  for (int columns : {1, 10, 20, 40, 60, 80, 120, 200}) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 24;
    ASSERT_EQ(::ioctl(master, TIOCSWINSZ, &size), 0);
    test_time = 1000;
    ProgressOptions o;
    o.label = "epoch 1/5";
    o.total = 60'000;
    o.unit = "images";
    o.fd = slave;
    o.clock = test_clock;
    Progress progress(o);
    progress.set_message("loss 0.4321");
    test_time += 3;
    progress.advance(27'000);
    char buffer[4096];
    const ssize_t n = ::read(master, buffer, sizeof(buffer));
    ASSERT_GT(n, 0);
    std::string out(buffer, static_cast<size_t>(n));
    ASSERT_EQ(out[0], '\r') << "a terminal was not recognised";
    out = out.substr(1, out.find('\x1b') - 1);
    EXPECT_LT(characters(out), static_cast<size_t>(columns)) << out;
    if (columns >= 60) {
      EXPECT_NE(out.find("loss 0.4321"), std::string::npos) << out;
    }
    if (columns >= 80) {
      EXPECT_NE(out.find("images/s"), std::string::npos) << out;
    }
    if (columns >= 120) {
      EXPECT_NE(out.find("█"), std::string::npos) << out;
    }
    progress.finish();
    while (::read(master, buffer, sizeof(buffer)) > 0) {
    }
  }
  ::close(slave);
  ::close(master);
}

}  // namespace
}  // namespace arete::cli
