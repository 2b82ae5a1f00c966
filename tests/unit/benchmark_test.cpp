#include "arete/profile/benchmark.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/io/html_report.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"

namespace arete::benchmark {
namespace {

TEST(Measurement, statistics) {
  std::vector<double> times(101);
  std::iota(times.begin(), times.end(), 100.);  // 100 to 200 s of 10 runs each
  const Measurement m(10, times);
  EXPECT_DOUBLE_EQ(m.median(), 15);
  EXPECT_DOUBLE_EQ(m.mean(), 15);
  EXPECT_DOUBLE_EQ(m.iqr(), 5);
  EXPECT_DOUBLE_EQ(m.p25(), 12.5);
  EXPECT_FALSE(m.meets_confidence(0.3));
  EXPECT_TRUE(m.meets_confidence(0.34));
  EXPECT_EQ(m.significant_figures(), 1);
  EXPECT_NE(m.warning().find("33.3%"), std::string::npos) << m.warning();
  EXPECT_EQ(Measurement(1, {1., 1., 1., 1.}).significant_figures(), 4);
  EXPECT_EQ(Measurement(1, {1., 1., 1., 1.}).warning(), "");
  EXPECT_THROW(Measurement(1, {}), ValueError);
  EXPECT_THROW(Measurement(0, {1.}), ValueError);
}

TEST(Measurement, units_and_figures) {
  EXPECT_STREQ(select_unit(1e-6).name, "us");
  EXPECT_STREQ(select_unit(9.99e-7).name, "ns");
  EXPECT_STREQ(select_unit(5).english, "second");
  EXPECT_DOUBLE_EQ(trim_sigfig(79896.4, 3), 79900);
  EXPECT_DOUBLE_EQ(trim_sigfig(-0.00123456, 2), -0.0012);
  EXPECT_EQ(trim_sigfig(0, 2), 0);
  EXPECT_THROW(trim_sigfig(1, 0), ValueError);
}

TEST(Timer, counts_runs) {
  int runs = 0, setups = 0;
  TaskSpec spec;
  spec.label = "count";
  const Timer timer([&] { ++runs; }, spec, [&] { ++setups; });
  const Measurement m = timer.timeit(1000);
  EXPECT_EQ(runs, 1010);
  EXPECT_EQ(setups, 2);
  EXPECT_EQ(m.number_per_run(), 1000);
  EXPECT_EQ(m.spec().title(), "count");
  EXPECT_THROW(timer.timeit(0), ValueError);
  EXPECT_THROW(Timer(nullptr), ValueError);
  spec.num_threads = 0;
  EXPECT_THROW(Timer([] {}, spec), ValueError);
}

TEST(Timer, measures_what_a_sleep_takes) {
  const Timer timer([] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  double told = 0;
  const Measurement m = timer.blocked_autorange(0.05, [&](int64_t, double s) { told += s; });
  EXPECT_GE(m.median(), 0.002);
  EXPECT_LT(m.median(), 0.1);
  EXPECT_GE(std::accumulate(m.raw_times().begin(), m.raw_times().end(), 0.), 0.05);
  EXPECT_NEAR(told, std::accumulate(m.raw_times().begin(), m.raw_times().end(), 0.), 1e-9);
  EXPECT_GE(timer.adaptive_autorange(0.9, 0.01, 1).raw_times().size(), 4u);
}

TEST(Timer, blocks_hide_the_clock) {
  int x = 0;
  const Measurement m = Timer([&] { keep(++x); }).blocked_autorange(0.02);
  EXPECT_GE(m.number_per_run(), 1000);
  EXPECT_LT(m.median(), 1e-6);
}

TEST(Timer, sets_threads_and_flushes_caches) {
  const int before = num_threads();
  TaskSpec spec;
  spec.num_threads = before + 2;
  int seen = 0;
  const Timer timer([&] { seen = num_threads(); }, spec);
  EXPECT_EQ(timer.device_time(kCPU, 5, true).raw_times().size(), 5u);
  EXPECT_EQ(seen, before + 2);
  EXPECT_EQ(num_threads(), before);
  EXPECT_THROW(timer.device_time(kCPU, 0), ValueError);
}

TEST(Adaptive, stops_at_the_limit) {
  // Times that never agree.
  double t = 1e-3;
  const Runner wild = [&](int64_t n) { return n == 0 ? 0. : t *= 1.5; };
  const Measurement m = adaptive_autorange(wild, 1e-6, 0.01, 5);
  EXPECT_GE(std::accumulate(m.raw_times().begin(), m.raw_times().end(), 0.), 5);
}

TEST(Compare, table) {
  const auto m = [](const char* sub, const char* column, double t, int threads) {
    TaskSpec s;
    s.label = "label";
    s.sub_label = sub;
    s.description = column;
    s.num_threads = threads;
    return Measurement(1, {t * 1e-6, t * 1e-6}, s);
  };
  Compare c({m("first", "a", 1, 1), m("second", "a", 20, 1), m("first", "bb", 300, 1)});
  const std::vector<Measurement> more{m("second", "bb", 4, 2), m("second", "bb", 8, 2)};
  c.extend(more);
  EXPECT_EQ(c.to_string(),
            "[----------- label -----------]\n"
            "              |   a    |    bb \n"
            "1 threads: --------------------\n"
            "      first   |   1.0  |  300.0\n"
            "      second  |  20.0  |       \n"
            "2 threads: --------------------\n"
            "      second  |        |    6.0\n"
            "\nTimes are in microseconds (us).\n");
}

TEST(Report, logarithmic_x) {
  io::Report r;
  io::ReportChart chart;
  chart.log_x = true;
  chart.series.push_back({"s", {1, 10, 100, -1}, {1, 2, 3, 4}});
  r.charts.push_back(chart);
  const std::string html = io::render_html_report(r);
  // Equal steps on the axis, and no point where there is no logarithm.
  EXPECT_NE(html.find("&quot;x&quot;:[1,10,100]"), std::string::npos)
      << html.substr(html.find("<svg"));
  EXPECT_NE(html.find(">10</text>"), std::string::npos);
}

}  // namespace
}  // namespace arete::benchmark
