// A report of a run as one HTML file that needs no network.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace arete::io {

/// One curve. Points whose x or y is not finite leave a gap. x and y have the same length.
struct ReportSeries {
  std::string name;
  std::vector<double> x, y;
};

struct ReportChart {
  std::string title, x_label, y_label;
  std::vector<ReportSeries> series;
  bool log_y = false;  ///< logarithmic y axis; values that are not positive leave gaps
  bool log_x = false;  ///< logarithmic x axis, alike
};

struct ReportTable {
  std::string title;
  std::vector<std::pair<std::string, std::string>> rows;
};

/// All texts are plain text: they are escaped where they are placed.
struct Report {
  std::string title, subtitle;
  std::vector<std::pair<std::string, std::string>>
      figures;  ///< label and value, shown large on top
  std::vector<ReportChart> charts;
  std::vector<ReportTable> tables;  ///< settings, environment, ...
  std::string footer;
};

/// The HTML of a report: light and dark, curves as SVG with values under the pointer. ValueError
/// when x and y of a series have different lengths.
std::string render_html_report(const Report& report);

/// Writes it to `path`, all or nothing. IoError when that is not possible.
void write_html_report(const std::string& path, const Report& report);

}  // namespace arete::io
