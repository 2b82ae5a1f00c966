#include "arete/io/html_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "io_test_support.h"

namespace arete::io {
namespace {

using test::expect_error;
using test::read_text;
using test::TempDir;

size_t count(const std::string& text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

ReportChart chart_of(std::vector<double> x, std::vector<double> y) {
  return {"Loss", "epoch", "loss", {{"train", std::move(x), std::move(y)}}, false};
}

std::string render(const ReportChart& chart) {
  Report report;
  report.charts = {chart};
  return render_html_report(report);
}

// The data that the script in the page gets.
nlohmann::json points_of(const std::string& html) {
  const std::string key = "data-points=\"";
  const size_t at = html.find(key) + key.size();
  std::string text = html.substr(at, html.find('"', at) - at);
  for (size_t p; (p = text.find("&quot;")) != std::string::npos;) text.replace(p, 6, "\"");
  for (size_t p; (p = text.find("&lt;")) != std::string::npos;) text.replace(p, 4, "<");
  for (size_t p; (p = text.find("&gt;")) != std::string::npos;) text.replace(p, 4, ">");
  return nlohmann::json::parse(text);
}

TEST(HtmlReport, IsOneFileWithoutNetwork) {
  Report report;
  report.title = "run";
  report.charts = {chart_of({1, 2}, {1, 2})};
  report.tables = {{"Settings", {{"lr", "0.1"}}}};
  report.figures = {{"test accuracy", "88.1 %"}};
  const std::string html = render_html_report(report);
  EXPECT_EQ(html.rfind("<!doctype html>", 0), 0u);
  EXPECT_EQ(count(html, "http://") + count(html, "https://") + count(html, "src="), 0u);
  EXPECT_EQ(count(html, "default-src 'none'"), 1u);
  for (const char* part :
       {"88.1 %", "<td>lr</td><td>0.1</td>", "prefers-color-scheme:dark", "<svg"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  TempDir dir;
  write_html_report(dir / "report.html", report);
  EXPECT_EQ(read_text(dir / "report.html"), html);
  expect_error(ErrorKind::io, {"the folder"},
               [&] { write_html_report(dir / "none/report.html", report); });
}

TEST(HtmlReport, EscapesEverywhere) {
  const std::string evil = "</script><img onerror='x' a=\"b\">&\x01\xff";
  Report report;
  report.title = report.subtitle = report.footer = evil;
  report.figures = {{evil, evil}};
  report.tables = {{evil, {{evil, evil}}}};
  report.charts = {{evil, evil, evil, {{evil, {1, 2}, {1, 2}}}, false}};
  const std::string html = render_html_report(report);
  EXPECT_EQ(count(html, "<img"), 0u);
  EXPECT_EQ(count(html, "</script>"), 1u);
  EXPECT_EQ(count(html, "\xff"), 0u);
  EXPECT_EQ(count(html, "\x01"), 0u);
  EXPECT_EQ(count(html, "a=\"b\""), 0u);
  EXPECT_GE(count(html, "&lt;/script&gt;&lt;img onerror=&#39;x&#39; a=&quot;b&quot;&gt;&amp;"),
            10u);
}

TEST(HtmlReport, DrawsValuesWhereTheyBelong) {
  const auto d = points_of(render(chart_of({0, 5, 10}, {0, 50, 100})));
  const auto& s = d.at("series").at(0);
  EXPECT_EQ(s.at("name"), "train");
  EXPECT_EQ(s.at("y"), (nlohmann::json{0.0, 50.0, 100.0}));
  const double left = s.at("px").at(0), middle = s.at("px").at(1), right = s.at("px").at(2);
  EXPECT_NEAR(middle - left, right - middle, 0.11);
  EXPECT_GT(middle, left);
  const std::string html = render(chart_of({0, 5, 10}, {0, 50, 100}));
  for (const char* tick : {">0</text>", ">20</text>", ">100</text>", ">10</text>", ">epoch</text>"})
    EXPECT_NE(html.find(tick), std::string::npos) << tick;
  EXPECT_EQ(count(html, "<circle"), 3u);
}

TEST(HtmlReport, GapsWhereValuesAreNotFinite) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const std::string html = render(chart_of({1, 2, 3, 4, 5, 6}, {1, 2, nan, 3, inf, 5}));
  const size_t at = html.find("class=\"l\" d=\"") + 13;
  const std::string path = html.substr(at, html.find('"', at) - at);
  EXPECT_EQ(count(path, "M"), 3u);
  EXPECT_EQ(count(path, "L"), 1u);
  EXPECT_EQ(count(html, "<circle"), 4u);
  EXPECT_EQ(count(path, "nan") + count(path, "inf"), 0u);
  EXPECT_EQ(count(html, ">nan<") + count(html, ">inf<") + count(html, "=\"nan"), 0u);
  EXPECT_NE(render(chart_of({1, 2}, {nan, nan})).find("no finite values"), std::string::npos);
  EXPECT_NE(render(chart_of({}, {})).find("no finite values"), std::string::npos);
}

TEST(HtmlReport, StrangeRangesStayFinite) {
  constexpr double kMax = std::numeric_limits<double>::max();
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  const std::vector<std::vector<double>> ranges = {
      {0, 0},         {3, 3},   {1e300, 1e300}, {-kMax, kMax},         {kTiny, kTiny},
      {1, 1 + 1e-15}, {-5, -5}, {1e-30, 1e30},  {123456789, 123456790}};
  for (const auto& y : ranges) {
    for (const bool log_y : {false, true}) {
      ReportChart chart = chart_of({1, 2}, y);
      chart.log_y = log_y;
      const std::string html = render(chart);
      EXPECT_LT(html.size(), 100'000u);
      // Coordinates are numbers that a browser reads.
      EXPECT_EQ(count(html, "=\"nan") + count(html, "=\"-nan") + count(html, "=\"inf"), 0u) << y[0];
      EXPECT_EQ(count(html, "Mnan") + count(html, " nan") + count(html, " -nan"), 0u) << y[0];
    }
    render(chart_of(y, {1, 2}));
  }
}

TEST(HtmlReport, LogAxisShowsDecadesAndSkipsWhatIsNotPositive) {
  ReportChart chart = chart_of({1, 2, 3, 4}, {1000, 0, 1, -1});
  chart.log_y = true;
  const std::string html = render(chart);
  for (const char* tick : {">1</text>", ">10</text>", ">100</text>", ">1000</text>"})
    EXPECT_NE(html.find(tick), std::string::npos) << tick;
  EXPECT_EQ(points_of(html).at("series").at(0).at("y").size(), 2u);
}

TEST(HtmlReport, ThinsLongCurvesAndKeepsSpikes) {
  std::vector<double> x, y;
  for (int i = 0; i < 300'000; ++i) {
    x.push_back(i);
    y.push_back(std::sin(i * 1e-3));
  }
  y[123'457] = 77;
  const std::string html = render(chart_of(x, y));
  EXPECT_LT(html.size(), 150'000u);
  const auto shown = points_of(html).at("series").at(0).at("y");
  EXPECT_LE(shown.size(), 1000u);
  EXPECT_EQ(*std::max_element(shown.begin(), shown.end()), 77.0);
}

TEST(HtmlReport, RefusesUnequalLengths) {
  expect_error(ErrorKind::value, {"'train'", "'Loss'", "2 and 1"}, [] {
    render(chart_of({1, 2}, {1}));
  });
}

}  // namespace
}  // namespace arete::io
