#include "arete/profile/roofline.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/profile/text_table_internal.h"

namespace arete::profile {

const char* name_of(Regime regime) {
  switch (regime) {
    case Regime::overhead:
      return "overhead";
    case Regime::memory:
      return "memory";
    default:
      return "compute";
  }
}

namespace {

using Source = std::function<const Ceilings&(const std::string& device)>;

// Reading alone, or writing alone, may be so much faster than a copy.
double above_copies(const std::string& device) { return device == "cpu" ? 1.6 : 1.25; }

// The same for products: those of f32 may run as TF32, those with results of 16 bits as FP8.
double above_products(const Ceilings& c, DType dtype) {
  const auto tf32 = c.gemm.find("tf32");
  if (tf32 == c.gemm.end()) return 1.25;
  if (is_reduced_float(dtype)) return 2.5;
  return dtype == kFloat32 ? 1.25 * std::max(tf32->second / c.flops_of(kFloat32), 1.0) : 1.25;
}

// Below tables and plots.
std::string notes_on(const std::vector<OperatorRate>& rates) {
  std::string names;
  for (const OperatorRate& r : rates) {
    if (!r.above_roof) continue;
    char text[32];
    std::snprintf(text, sizeof text, " (%.0f %%)", 100 * r.attained);
    names += (names.empty() ? "" : ", ") + r.name + text;
  }
  if (names.empty()) return "";
  return "Faster than the roof, with more data than a cache holds: " + names +
         ". The ceilings look too low; measure them anew: arete bench --ceilings --again\n";
}

std::string doubts_about_all(const std::vector<OperatorRate>& rates) {
  std::set<std::string> devices;
  for (const OperatorRate& r : rates) devices.insert(r.device);
  std::string text;
  for (const std::string& d : devices)
    if (const std::string doubts = doubts_about(ceilings(Device(d))); !doubts.empty())
      text += doubts + "\n";
  return text;
}

std::vector<OperatorRate> rates_under(const Trace& trace, const Source& ceilings_of) {
  struct Sum {
    OperatorRate rate;
    DType dtype;
    double beyond_cache = 0;  // bytes that no cache can have held
  };
  std::map<std::tuple<std::string, DType, std::string>, Sum> sums;
  for (const Event& e : trace.events) {
    if (e.composite || e.view || e.failed || e.device.is_meta()) continue;
    if (e.bytes == 0 && e.flops == 0) continue;
    const bool gpu = e.device.is_cuda();
    const double seconds = double(gpu ? e.self_device_ns : e.self_ns()) / 1e9;
    if (seconds <= 0) continue;  // of a GPU whose times are not known
    Sum& s = sums[{e.name, e.dtype, e.device.to_string()}];
    if (s.rate.count++ == 0) {
      s.rate.name = e.name;
      s.rate.dtype = arete::name_of(e.dtype);
      s.rate.device = e.device.to_string();
      s.dtype = e.dtype;
    }
    s.rate.seconds += seconds;
    s.rate.flops += e.flops;
    s.rate.bytes += double(e.bytes);
    s.beyond_cache += double(std::max<int64_t>(e.bytes - ceilings_of(s.rate.device).cache, 0));
  }
  std::vector<OperatorRate> rates;
  for (auto& [key, s] : sums) {
    OperatorRate& r = s.rate;
    const Ceilings& c = ceilings_of(r.device);
    const double peak = c.flops_of(s.dtype);
    const double by_memory = c.bandwidth > 0 ? r.bytes / c.bandwidth : 0;
    const double by_compute = peak > 0 ? r.flops / peak : 0;
    const double least = std::max(by_memory, by_compute);
    r.regime = least / double(r.count) < c.launch_overhead ? Regime::overhead
               : by_memory >= by_compute                   ? Regime::memory
                                                           : Regime::compute;
    r.attained = r.seconds > 0 ? least / r.seconds : 0;
    const double memory = c.bandwidth > 0 ? s.beyond_cache / c.bandwidth : 0;
    r.above_roof = memory > above_copies(r.device) * r.seconds ||
                   by_compute > above_products(c, s.dtype) * r.seconds;
    rates.push_back(std::move(r));
  }
  std::stable_sort(rates.begin(), rates.end(), [](const OperatorRate& a, const OperatorRate& b) {
    return a.seconds > b.seconds;
  });
  return rates;
}

std::string number(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

// "1.5 TFLOP/s", "200 GFLOP/s", ...
std::string with_prefix(double value, const char* unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  int p = 0;
  for (; value >= 999.5 && p < 5; ++p) value /= 1000;
  return number("%.3g ", value) + kPrefixes[p] + unit;
}

// Without CSS variables, which only browsers know: other programs would draw everything in black.
constexpr const char* kStyle = R"css(
.rl{background:#fff;font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.rl .b{fill:#fff}.rl text{fill:#5b6575}.rl .t{fill:#1c2330;font-size:16px;font-weight:600}.rl .n{fill:#1c2330}
.rl .g{stroke:#e9ecf1}.rl .r{stroke:#1c2330;stroke-width:2;fill:none}.rl .d{stroke:#5b6575;stroke-dasharray:4 4;fill:none}
.rl .overhead{fill:#b7791f}.rl .memory{fill:#2563eb}.rl .compute{fill:#0f8a6d}
.rl circle{fill-opacity:.7;stroke:#fff}
@media(prefers-color-scheme:dark){.rl{background:#1a1f28}.rl .b{fill:#1a1f28}.rl text{fill:#98a2b3}.rl .t,.rl .n{fill:#e6e9ef}
.rl .g{stroke:#272d38}.rl .r{stroke:#e6e9ef}.rl .d{stroke:#98a2b3}
.rl .overhead{fill:#e8c468}.rl .memory{fill:#6ea8fe}.rl .compute{fill:#4fd1a5}.rl circle{stroke:#1a1f28}}
)css";

constexpr double kWidth = 900, kHeight = 540, kLeft = 92, kRight = 24, kTop = 74, kBottom = 56;

// A plot with two logarithmic axes.
class Plot {
 public:
  Plot(const std::vector<OperatorRate>& rates, const Ceilings& c) : rates_(rates), c_(c) {
    double peak = 0;
    std::set<std::string> used;
    for (const OperatorRate& r : rates) {
      used.insert(r.dtype);
      if (r.intensity() > 0 && r.flops_per_second() > 0) {
        x0_ = std::min(x0_, r.intensity());
        x1_ = std::max(x1_, r.intensity());
        y0_ = std::min(y0_, r.flops_per_second());
        peak = std::max(peak, r.flops_per_second());
      }
    }
    // The roofs of the dtypes that occur; of f32 where none is known.
    for (const std::string& t : used)
      if (const auto it = c.gemm.find(t); it != c.gemm.end()) roofs_.insert(*it);
    if (used.contains("float32"))
      if (const auto it = c.gemm.find("tf32"); it != c.gemm.end()) roofs_.insert(*it);
    if (roofs_.empty() && c.flops_of(kFloat32) > 0) roofs_["float32"] = c.flops_of(kFloat32);
    for (const auto& [name, rate] : roofs_) {
      peak = std::max(peak, rate);
      if (c.bandwidth > 0) x1_ = std::max(x1_, 4 * rate / c.bandwidth);
    }
    y0_ = std::min(y0_, peak / 1e3);
    x0_ = std::pow(10, std::floor(std::log10(x0_ / 1.5)));
    x1_ = std::pow(10, std::ceil(std::log10(x1_ * 1.5)));
    y0_ = std::pow(10, std::floor(std::log10(y0_ / 1.5)));
    y1_ = std::pow(10, std::ceil(std::log10(peak * 2)));
  }

  std::string svg() {
    out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"rl\" viewBox=\"0 0 " +
           number("%.0f ", kWidth) + number("%.0f", kHeight) + "\" width=\"" +
           number("%.0f", kWidth) + "\" height=\"" + number("%.0f", kHeight) +
           "\" role=\"img\"><style>" + kStyle + "</style><rect width=\"" + number("%.0f", kWidth) +
           "\" height=\"" + number("%.0f", kHeight) + "\" class=\"b\"/>\n";
    text(kLeft, 26, "Roofline: " + c_.device, "t");
    text(kLeft, 46,
         "copy " + with_prefix(c_.bandwidth, "B/s") + ", smallest call " +
             number("%.2f us", c_.launch_overhead * 1e6) + "; area of a point: its share of time");
    legend();
    axes();
    roofs();
    points();
    return std::move(out_) + "</svg>\n";
  }

 private:
  double x(double v) const {
    return kLeft + (kWidth - kLeft - kRight) * std::log(v / x0_) / std::log(x1_ / x0_);
  }
  double y(double v) const {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * std::log(v / y0_) / std::log(y1_ / y0_);
  }
  static std::string at(const char* name, double v) {
    return std::string(" ") + name + "=\"" + number("%.1f", v) + "\"";
  }
  void text(double px, double py, const std::string& content, const char* cls = "",
            const char* more = "") {
    out_ += "<text" + at("x", px) + at("y", py) +
            (*cls ? std::string(" class=\"") + cls + "\"" : "") + more + ">" + escape(content) +
            "</text>\n";
  }
  void line(double ax, double ay, double bx, double by, const char* cls) {
    out_ += "<line" + at("x1", ax) + at("y1", ay) + at("x2", bx) + at("y2", by) + " class=\"" +
            cls + "\"/>\n";
  }

  void legend() {
    double px = kWidth - kRight - 352;
    for (const Regime r : {Regime::overhead, Regime::memory, Regime::compute}) {
      out_ += "<circle" + at("cx", px) + at("cy", 62) + " r=\"5\" class=\"" + name_of(r) + "\"/>\n";
      text(px + 10, 66, std::string(name_of(r)) + "-bound");
      px += 124;
    }
  }

  void axes() {
    for (double v = x0_; v <= x1_ * 1.001; v *= 10) {
      line(x(v), kTop, x(v), kHeight - kBottom, "g");
      text(x(v), kHeight - kBottom + 18, number("%g", v), "", " text-anchor=\"middle\"");
    }
    for (double v = y0_; v <= y1_ * 1.001; v *= 10) {
      line(kLeft, y(v), kWidth - kRight, y(v), "g");
      text(kLeft - 8, y(v) + 4, with_prefix(v, "FLOP/s"), "", " text-anchor=\"end\"");
    }
    text((kLeft + kWidth - kRight) / 2, kHeight - 14, "FLOP per byte", "",
         " text-anchor=\"middle\"");
  }

  void roofs() {
    if (c_.bandwidth <= 0) return;
    double highest = 0;
    for (const auto& [name, rate] : roofs_) {
      const double ridge = rate / c_.bandwidth;
      highest = std::max(highest, rate);
      line(x(std::max(ridge, x0_)), y(rate), x(x1_), y(rate), "r");
      text(x(x1_) - 4, y(rate) - 5, name + " " + with_prefix(rate, "FLOP/s"), "",
           " text-anchor=\"end\"");
      taken_.push_back({x(x1_) - 170, y(rate) - 16, 170, 14});
    }
    const double low = std::max(x0_, y0_ / c_.bandwidth), high = highest / c_.bandwidth;
    if (high > low) line(x(low), y(low * c_.bandwidth), x(high), y(highest), "r");
  }

  struct Box {
    double x, y, w, h;
    bool meets(const Box& o) const {
      return x < o.x + o.w && o.x < x + w && y < o.y + o.h && o.y < y + h;
    }
  };

  void points() {
    double total = 0;
    for (const OperatorRate& r : rates_) total += r.seconds;
    std::vector<std::tuple<double, double, double, const OperatorRate*>> placed;
    for (const OperatorRate& r : rates_) {
      if (r.intensity() <= 0 || r.flops_per_second() <= 0) continue;
      const double radius = 4 + 16 * std::sqrt(total > 0 ? r.seconds / total : 0);
      const double px = x(r.intensity()), py = y(r.flops_per_second());
      placed.emplace_back(px, py, radius, &r);
      out_ += "<circle" + at("cx", px) + at("cy", py) + at("r", radius) + " class=\"" +
              name_of(r.regime) + "\"><title>" + escape(r.name + " " + r.dtype) + ", " +
              std::to_string(r.count) + " calls, " + escape(format_time(r.seconds * 1e6)) + ", " +
              with_prefix(r.flops_per_second(), "FLOP/s") + ", " +
              with_prefix(r.bytes_per_second(), "B/s") + ", " + name_of(r.regime) + "-bound, " +
              number("%.1f%%", r.attained * 100) + " of the roof</title></circle>\n";
    }
    // Names of the points that take most time, where there is room.
    for (const auto& [px, py, radius, r] : placed)
      taken_.push_back({px - 0.8 * radius, py - 0.8 * radius, 1.6 * radius, 1.6 * radius});
    int named = 0;
    for (const auto& [px, py, radius, r] : placed) {
      if (named == 16) break;
      const double w = 6.6 * double(r->name.size()) + 4;
      const Box tries[] = {{px + radius + 3, py - 7, w, 13},
                           {px - radius - 3 - w, py - 7, w, 13},
                           {px - w / 2, py - radius - 16, w, 13},
                           {px - w / 2, py + radius + 3, w, 13}};
      for (const Box& b : tries) {
        if (b.x < kLeft || b.x + b.w > kWidth - kRight || b.y < kTop ||
            b.y + b.h > kHeight - kBottom)
          continue;
        if (std::any_of(taken_.begin(), taken_.end(), [&](const Box& o) { return b.meets(o); }))
          continue;
        taken_.push_back(b);
        text(b.x + 2, b.y + 11, r->name, "n");
        ++named;
        break;
      }
    }
  }

  const std::vector<OperatorRate>& rates_;
  const Ceilings& c_;
  std::map<std::string, double> roofs_;
  double x0_ = 0.1, x1_ = 10, y0_ = 1e15, y1_ = 1;
  std::vector<Box> taken_;
  std::string out_;
};

constexpr const char* kPageStyle = R"css(
:root{--page:#f6f7f9;--card:#fff;--text:#1c2330;--soft:#5b6575;--line:#dfe3ea}
@media(prefers-color-scheme:dark){:root{--page:#12151b;--card:#1a1f28;--text:#e6e9ef;--soft:#98a2b3;--line:#2c3340}}
body{margin:0;background:var(--page);color:var(--text);font:15px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1000px;margin:0 auto;padding:28px 20px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px;margin-bottom:18px;overflow-x:auto}
svg{width:100%;height:auto}table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
td,th{padding:4px 8px;border-top:1px solid var(--line);text-align:right}td:first-child,th:first-child{text-align:left}
th{color:var(--soft);font-weight:500;border-top:0}
)css";

std::vector<std::string> cells_of(const OperatorRate& r) {
  return {r.name,
          r.dtype,
          r.device,
          std::to_string(r.count),
          format_time(r.seconds * 1e6),
          number("%.4g", r.flops_per_second() / 1e12),
          number("%.4g", r.bytes_per_second() / 1e9),
          number("%.3g", r.intensity()),
          name_of(r.regime),
          number("%.1f%%", r.attained * 100)};
}
constexpr const char* kColumns[] = {"Name",    "Dtype", "Device",    "# of Calls", "Time",
                                    "TFLOP/s", "GB/s",  "FLOP/byte", "Bound by",   "Of roof"};

}  // namespace

std::vector<OperatorRate> operator_rates(const Trace& trace) {
  std::map<std::string, Ceilings> known;
  return rates_under(trace, [&](const std::string& device) -> const Ceilings& {
    auto it = known.find(device);
    if (it == known.end()) it = known.emplace(device, ceilings(Device(device))).first;
    return it->second;
  });
}

std::vector<OperatorRate> operator_rates(const Trace& trace, const Ceilings& ceilings) {
  return rates_under(trace, [&](const std::string&) -> const Ceilings& { return ceilings; });
}

namespace {

std::string table_of(const std::vector<OperatorRate>& rates, int64_t row_limit,
                     const std::string& footer) {
  std::vector<std::string> names;
  size_t rows = rates.size();
  if (row_limit >= 0) rows = std::min(rows, size_t(row_limit));
  for (size_t i = 0; i < rows; ++i) names.push_back(rates[i].name);
  TextTable t;
  t.add_column(kColumns[0], width_of(names, 12, 55));
  for (size_t i = 1; i < std::size(kColumns); ++i) t.add_column(kColumns[i], 10);
  for (size_t i = 0; i < rows; ++i) t.add_row(cells_of(rates[i]));
  return t.render("", footer);
}

}  // namespace

std::string rate_table(const std::vector<OperatorRate>& rates, int64_t row_limit) {
  return table_of(rates, row_limit, notes_on(rates));
}

std::string rate_table(const Trace& trace, int64_t row_limit) {
  const std::vector<OperatorRate> rates = operator_rates(trace);
  return table_of(rates, row_limit, notes_on(rates) + doubts_about_all(rates));
}

std::string roofline_svg(const std::vector<OperatorRate>& rates, const Ceilings& ceilings) {
  return Plot(rates, ceilings).svg();
}

void export_roofline(const Trace& trace, const std::string& path) {
  const bool svg = path.ends_with(".svg");
  ARETE_CHECK(svg || path.ends_with(".html") || path.ends_with(".htm"),
              ValueError("export_roofline", "the name's end says what is written")
                  .expected("a name that ends in .svg or .html")
                  .got(path));
  const std::vector<OperatorRate> rates = operator_rates(trace);
  ARETE_CHECK(!rates.empty(),
              ValueError("export_roofline", "the recording holds no operator that computes"));
  std::map<std::string, std::vector<OperatorRate>> by_device;
  for (const OperatorRate& r : rates) by_device[r.device].push_back(r);
  std::string text;
  if (svg) {
    // The device that worked longest.
    const auto busiest =
        std::max_element(by_device.begin(), by_device.end(), [](const auto& a, const auto& b) {
          const auto seconds = [](const auto& all) {
            double s = 0;
            for (const OperatorRate& r : all) s += r.seconds;
            return s;
          };
          return seconds(a.second) < seconds(b.second);
        });
    text = roofline_svg(busiest->second, ceilings(Device(busiest->first)));
  } else {
    text =
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Roofline</title>"
        "<style>" +
        std::string(kPageStyle) + "</style></head><body><main>\n";
    for (const auto& [device, own] : by_device)
      text += "<div class=\"card\">" + roofline_svg(own, ceilings(Device(device))) + "</div>\n";
    text += "<div class=\"card\"><table><tr>";
    for (const char* c : kColumns) text += std::string("<th>") + c + "</th>";
    text += "</tr>\n";
    for (const OperatorRate& r : rates) {
      text += "<tr>";
      for (const std::string& c : cells_of(r)) text += "<td>" + escape(c) + "</td>";
      text += "</tr>\n";
    }
    text += "</table>";
    const std::string notes = notes_on(rates) + doubts_about_all(rates);
    if (!notes.empty()) text += "<p>" + escape(notes) + "</p>";
    text += "</div></main></body></html>\n";
  }
  io::AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace arete::profile
