#include "arete/io/html_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string_view>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/base/text.h"

namespace arete::io {
namespace {

// A chart in the units of its SVG.
constexpr double kWidth = 560, kHeight = 320;
constexpr double kLeft = 58, kRight = 14, kTop = 12, kBottom = 44;
// More points than pixels only make the file large.
constexpr size_t kMaxPoints = 1000;
constexpr size_t kMaxMarkers = 60;
// Of a curve with more points than fit, the mean of each of so many parts is drawn on top.
constexpr size_t kMeanPoints = 140;
constexpr int kColours = 8;

constexpr std::string_view kStyle = R"css(
:root{--page:#f6f7f9;--card:#fff;--text:#1c2330;--soft:#5b6575;--line:#dfe3ea;--grid:#e9ecf1;
--c0:#2563eb;--c1:#d9480f;--c2:#0f8a6d;--c3:#9333b8;--c4:#b7791f;--c5:#0e7fa8;--c6:#be2a5b;--c7:#52606d}
@media(prefers-color-scheme:dark){:root{--page:#12151b;--card:#1a1f28;--text:#e6e9ef;--soft:#98a2b3;
--line:#2c3340;--grid:#272d38;--c0:#6ea8fe;--c1:#ff9e64;--c2:#4fd1a5;--c3:#cf9bff;--c4:#e8c468;
--c5:#58c7ee;--c6:#ff85ab;--c7:#a9b4c2}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);line-height:1.45;
font:15px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1200px;margin:0 auto;padding:32px 20px 48px}
h1{font-size:26px;margin:0 0 4px;overflow-wrap:anywhere}
.sub{color:var(--soft);margin:0 0 24px;overflow-wrap:anywhere}
.figures{display:flex;flex-wrap:wrap;gap:14px;margin-bottom:20px}
.figure,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.figure{padding:12px 18px;min-width:130px}
.figure b{display:block;font-size:23px;font-weight:650;font-variant-numeric:tabular-nums}
.figure span{color:var(--soft);font-size:13px}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:18px;
margin-bottom:18px;align-items:start}
.card{padding:16px 18px;min-width:0}
.chart{position:relative}
h2{font-size:16px;margin:0 0 8px}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px;color:var(--soft);margin-bottom:6px}
.legend i{display:inline-block;width:16px;height:3px;border-radius:2px;margin-right:6px;
vertical-align:middle;background:var(--c)}
svg{display:block;width:100%;height:auto;touch-action:pan-y}
svg text{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}
.g{stroke:var(--grid)}.a{stroke:var(--line)}
.l{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.f{stroke-width:1;opacity:.3}
.p{fill:var(--c)}
.guide{stroke:var(--soft);stroke-dasharray:3 3;visibility:hidden}
.tip{position:absolute;pointer-events:none;visibility:hidden;background:var(--card);z-index:1;
border:1px solid var(--line);border-radius:8px;padding:7px 10px;font-size:13px;white-space:nowrap;
box-shadow:0 4px 14px rgba(0,0,0,.18);font-variant-numeric:tabular-nums}
.tip div{display:flex;gap:14px;justify-content:space-between}
.tip .h{color:var(--soft);margin-bottom:2px}
.tip i{display:inline-block;width:9px;height:9px;border-radius:50%;margin-right:6px;background:var(--c)}
table{border-collapse:collapse;width:100%;font-size:14px}
td{padding:5px 0;border-top:1px solid var(--grid);vertical-align:top;overflow-wrap:anywhere}
tr:first-child td{border-top:0}
td:first-child{color:var(--soft);padding-right:16px;width:38%}
footer{color:var(--soft);font-size:13px;margin-top:22px}
@media print{.card,.figure{break-inside:avoid}}
)css";

// Finds the x nearest to the pointer and shows every series' value there. Texts go in as text, not
// as HTML, so names need no escaping here.
constexpr std::string_view kScript = R"js(
for(const box of document.querySelectorAll('.chart')){
 const svg=box.querySelector('svg'),tip=box.querySelector('.tip'),guide=box.querySelector('.guide');
 if(!svg||!svg.dataset.points)continue;
 const d=JSON.parse(svg.dataset.points);
 const hide=()=>{tip.style.visibility=guide.style.visibility='hidden'};
 const show=v=>v===null?'–':Math.abs(v)>=1e6||(v!==0&&Math.abs(v)<1e-4)?v.toExponential(3):String(+v.toPrecision(5));
 svg.addEventListener('pointerleave',hide);
 svg.addEventListener('pointermove',e=>{
  const r=svg.getBoundingClientRect(),px=(e.clientX-r.left)*d.width/r.width;
  let best=null,gap=Infinity;
  for(const s of d.series)s.px.forEach((p,i)=>{if(Math.abs(p-px)<gap){gap=Math.abs(p-px);best=[p,s.x[i]]}});
  if(!best)return hide();
  tip.replaceChildren();
  const line=(text,value,colour)=>{
   const row=document.createElement('div'),a=document.createElement('span'),b=document.createElement('span');
   if(colour!==undefined){const dot=document.createElement('i');dot.style.setProperty('--c','var(--c'+colour+')');a.append(dot)}
   else row.className='h';
   a.append(text);b.textContent=value;row.append(a,b);tip.append(row)};
  line(d.label||'x',show(best[1]));
  for(const s of d.series){
   let k=-1,near=Infinity;
   s.px.forEach((p,i)=>{const q=Math.abs(p-best[0]);if(q<near){near=q;k=i}});
   if(k>=0&&near<=d.reach)line(s.name,show(s.y[k]),s.colour)}
  guide.setAttribute('x1',best[0]);guide.setAttribute('x2',best[0]);
  const b=box.getBoundingClientRect(),at=r.left-b.left+best[0]*r.width/d.width;
  const left=at+14+tip.offsetWidth>b.width?at-14-tip.offsetWidth:at+14;
  tip.style.left=Math.max(4,left)+'px';tip.style.top=(r.top-b.top+16)+'px';
  tip.style.visibility=guide.style.visibility='visible'})}
)js";

std::string escape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_sequence_length(text.substr(i));
    const char c = text[i];
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (length == 1 && static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') {
      out += "\xEF\xBF\xBD";  // HTML allows no other control characters
    } else {
      out += text.substr(i, length);
    }
    i += std::max<size_t>(length, 1);
  }
  return out;
}

std::string fixed(double value, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.*f", decimals, value);
  return buffer;
}

// Pixel positions: a tenth of a pixel is finer than the eye.
std::string px(double value) { return fixed(value, 1); }

std::string tick_text(double value, double step) {
  if (value == 0) return "0";
  char buffer[64];
  if (std::fabs(value) >= 1e6 || std::fabs(value) < 1e-4) {
    std::snprintf(buffer, sizeof(buffer), "%.3g", value);
    return buffer;
  }
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 8);
  return fixed(value, decimals);
}

struct Axis {
  double low = 0, high = 1;  // of the axis, in axis space (log10 of the value if logarithmic)
  bool logarithmic = false;
  std::vector<std::pair<double, std::string>> ticks;  // position in axis space, text

  double fraction(double value) const {
    const double v = logarithmic ? std::log10(value) : value;
    return (v - low) / (high - low);
  }
};

// The step of the form 1, 2 or 5 times a power of ten that gives about `count` steps.
double nice_step(double range, double count) {
  const double rough = range / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double mantissa = rough / power;
  return (mantissa <= 1.0001 ? 1 : mantissa <= 2.0001 ? 2 : mantissa <= 5.0001 ? 5 : 10) * power;
}

Axis make_axis(double low, double high, bool logarithmic, bool whole_numbers, bool widen) {
  Axis axis;
  axis.logarithmic = logarithmic;
  if (logarithmic) {
    low = std::log10(low);
    high = std::log10(high);
  }
  // Steps between numbers near the smallest doubles would round to zero.
  if (std::fabs(low) < 1e-290) low = 0;
  if (std::fabs(high) < 1e-290) high = 0;
  // A flat curve still needs an axis with some extent, also where the numbers are so large that
  // adding one changes nothing.
  if (!(high - low > std::max(std::fabs(low), std::fabs(high)) * 1e-12)) {
    const double pad = low == 0 ? 0.5 : std::fabs(low) * 0.05;
    low -= whole_numbers ? 0.5 : pad;
    high += whole_numbers ? 0.5 : pad;
    if (!(high > low)) {
      low -= pad;
      high += pad;
    }
  }
  if (logarithmic && high - low < 1.5) {
    // Less than two decades: ticks at 1, 2 and 5.
    axis.low = low;
    axis.high = high;
    for (double power = std::floor(low - 0.03); power <= high + 0.03; power += 1) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double value = digit * std::pow(10, power);
        const double at = std::log10(value);
        // A tick just outside is worth moving the end of the axis for.
        if (at < low - 0.03 || at > high + 0.03) continue;
        axis.low = std::min(axis.low, at);
        axis.high = std::max(axis.high, at);
        axis.ticks.emplace_back(at, tick_text(value, value));
      }
    }
    return axis;
  }
  double step = nice_step(high - low, 5);
  if (whole_numbers || logarithmic) step = std::max(step, 1.0);
  if (widen) {
    low = std::floor(low / step + 1e-9) * step;
    high = std::ceil(high / step - 1e-9) * step;
  }
  axis.low = low;
  axis.high = high;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i < 100; ++i) {
    const double at = (first + i) * step;
    if (at > high + step * 1e-9) break;
    axis.ticks.emplace_back(
        at, logarithmic ? tick_text(std::pow(10, at), std::pow(10, at)) : tick_text(at, step));
  }
  return axis;
}

bool drawable(const ReportChart& chart, const ReportSeries& s, size_t i) {
  return std::isfinite(s.x[i]) && std::isfinite(s.y[i]) && (!chart.log_y || s.y[i] > 0) &&
         (!chart.log_x || s.x[i] > 0);
}

// The indices to draw: all, or the lowest and highest of each of many buckets, so that spikes stay.
// A bucket's gap (a NaN) stays too.
std::vector<size_t> thin(const ReportChart& chart, const ReportSeries& s) {
  std::vector<size_t> kept;
  const size_t n = s.x.size();
  const size_t buckets = kMaxPoints / 2;
  if (n <= kMaxPoints) {
    for (size_t i = 0; i < n; ++i) kept.push_back(i);
    return kept;
  }
  for (size_t b = 0; b < buckets; ++b) {
    size_t low = n, high = n, gap = n;
    for (size_t i = b * n / buckets; i < (b + 1) * n / buckets; ++i) {
      if (!drawable(chart, s, i)) {
        gap = i;
        continue;
      }
      if (low == n || s.y[i] < s.y[low]) low = i;
      if (high == n || s.y[i] > s.y[high]) high = i;
    }
    std::vector<size_t> chosen;
    for (const size_t i : {low, high, gap}) {
      if (i < n) chosen.push_back(i);
    }
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    kept.insert(kept.end(), chosen.begin(), chosen.end());
  }
  return kept;
}

void draw_axes(std::string& out, const ReportChart& chart, const Axis& x, const Axis& y) {
  const double right = kWidth - kRight, bottom = kHeight - kBottom;
  for (const auto& [at, text] : y.ticks) {
    const std::string py = px(bottom - (at - y.low) / (y.high - y.low) * (bottom - kTop));
    out += "<line class=\"g\" x1=\"" + px(kLeft) + "\" x2=\"" + px(right) + "\" y1=\"" + py +
           "\" y2=\"" + py + "\"/>";
    out += "<text text-anchor=\"end\" dominant-baseline=\"middle\" x=\"" + px(kLeft - 8) +
           "\" y=\"" + py + "\">" + escape(text) + "</text>";
  }
  for (const auto& [at, text] : x.ticks) {
    const std::string at_px = px(kLeft + (at - x.low) / (x.high - x.low) * (right - kLeft));
    out += "<line class=\"a\" x1=\"" + at_px + "\" x2=\"" + at_px + "\" y1=\"" + px(bottom) +
           "\" y2=\"" + px(bottom + 4) + "\"/>";
    out += "<text text-anchor=\"middle\" x=\"" + at_px + "\" y=\"" + px(bottom + 18) + "\">" +
           escape(text) + "</text>";
  }
  out += "<line class=\"a\" x1=\"" + px(kLeft) + "\" x2=\"" + px(right) + "\" y1=\"" + px(bottom) +
         "\" y2=\"" + px(bottom) + "\"/>";
  out += "<text text-anchor=\"middle\" x=\"" + px((kLeft + right) / 2) + "\" y=\"" +
         px(kHeight - 6) + "\">" + escape(chart.x_label) + "</text>";
  out += "<text text-anchor=\"middle\" transform=\"translate(13 " + px((kTop + bottom) / 2) +
         ") rotate(-90)\">" + escape(chart.y_label) + "</text>";
}

// The path through the mean of each part of a long curve, which the noise of single steps hides.
std::string mean_path(const ReportChart& chart, const ReportSeries& s, const Axis& x,
                      const Axis& y) {
  const double right = kWidth - kRight, bottom = kHeight - kBottom;
  const size_t n = s.x.size();
  std::string path;
  for (size_t b = 0; b < kMeanPoints; ++b) {
    double at_x = 0, at_y = 0;
    size_t points = 0;
    for (size_t i = b * n / kMeanPoints; i < (b + 1) * n / kMeanPoints; ++i) {
      if (!drawable(chart, s, i)) continue;
      // Fractions of the axes are averaged: the sum of values could overflow.
      at_x += x.fraction(s.x[i]);
      at_y += y.fraction(s.y[i]);
      ++points;
    }
    if (points == 0) continue;
    const auto divisor = static_cast<double>(points);
    path += (path.empty() ? "M" : "L") + px(kLeft + at_x / divisor * (right - kLeft)) + " " +
            px(bottom - at_y / divisor * (bottom - kTop));
  }
  return path;
}

// Draws one series and appends its points, as JSON for the script, to `data`.
void draw_series(std::string& out, std::string& data, const ReportChart& chart, size_t index,
                 const Axis& x, const Axis& y) {
  const ReportSeries& s = chart.series[index];
  const double right = kWidth - kRight, bottom = kHeight - kBottom;
  const auto kept = thin(chart, s);
  const std::string colour = std::to_string(index % kColours);
  std::string path, markers, pxs, xs, ys;
  bool pen_down = false;
  size_t run = 0;
  std::string last;
  auto lift = [&] {
    // A point with gaps on both sides would be an invisible line of no length.
    if (run == 1 || kept.size() <= kMaxMarkers) markers += last;
    last.clear();
    run = 0;
    pen_down = false;
  };
  for (const size_t i : kept) {
    if (!drawable(chart, s, i)) {
      if (pen_down) lift();
      continue;
    }
    const std::string at_x = px(kLeft + x.fraction(s.x[i]) * (right - kLeft));
    const std::string at_y = px(bottom - y.fraction(s.y[i]) * (bottom - kTop));
    path += (pen_down ? "L" : "M") + at_x + " " + at_y;
    pen_down = true;
    ++run;
    if (kept.size() <= kMaxMarkers && run > 1) markers += last;
    last = "<circle class=\"p\" r=\"3\" cx=\"" + at_x + "\" cy=\"" + at_y + "\"/>";
    const char* comma = pxs.empty() ? "" : ",";
    pxs += comma + at_x;
    xs += comma + json_number(s.x[i]);
    ys += comma + json_number(s.y[i]);
  }
  if (pen_down) lift();
  const bool thinned = s.x.size() > kMaxPoints;
  out += "<g style=\"--c:var(--c" + colour + ")\"><path class=\"" + (thinned ? "l f" : "l") +
         "\" d=\"" + path + "\"/>" + markers;
  if (thinned) out += "<path class=\"l\" d=\"" + mean_path(chart, s, x, y) + "\"/>";
  out += "</g>";
  if (!data.empty()) data += ',';
  data += "{\"name\":" + json_string(s.name) + ",\"colour\":" + colour + ",\"px\":[" + pxs +
          "],\"x\":[" + xs + "],\"y\":[" + ys + "]}";
}

std::string render_chart(const ReportChart& chart) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double x_low = kInfinity, x_high = -kInfinity, y_low = kInfinity, y_high = -kInfinity;
  bool whole_x = true, whole_y = true;
  size_t longest = 0;
  for (const ReportSeries& s : chart.series) {
    ARETE_CHECK(s.x.size() == s.y.size(),
                ValueError("", "the series " + quote_text(s.name) + " of the chart " +
                                   quote_text(chart.title) + " has different numbers of x and y")
                    .got(std::to_string(s.x.size()) + " and " + std::to_string(s.y.size())));
    longest = std::max(longest, s.x.size());
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (!drawable(chart, s, i)) continue;
      x_low = std::min(x_low, s.x[i]);
      x_high = std::max(x_high, s.x[i]);
      y_low = std::min(y_low, s.y[i]);
      y_high = std::max(y_high, s.y[i]);
      whole_x = whole_x && s.x[i] == std::floor(s.x[i]);
      whole_y = whole_y && s.y[i] == std::floor(s.y[i]);
    }
  }
  std::string out = "<section class=\"card chart\"><h2>" + escape(chart.title) + "</h2>";
  if (!(x_low <= x_high)) return out + "<p class=\"sub\">no finite values</p></section>\n";
  // Ranges beyond the doubles cannot be divided into steps.
  const double limit = std::numeric_limits<double>::max() / 8;
  if (!chart.log_x) {
    x_low = std::clamp(x_low, -limit, limit);
    x_high = std::clamp(x_high, -limit, limit);
  }
  if (!chart.log_y) {
    y_low = std::clamp(y_low, -limit, limit);
    y_high = std::clamp(y_high, -limit, limit);
  }

  out += "<div class=\"legend\">";
  for (size_t i = 0; i < chart.series.size(); ++i)
    out += "<span><i style=\"--c:var(--c" + std::to_string(i % kColours) + ")\"></i>" +
           escape(chart.series[i].name) + "</span>";
  out += "</div>";

  const Axis x = make_axis(x_low, x_high, chart.log_x, whole_x, false);
  const Axis y = make_axis(y_low, y_high, chart.log_y, whole_y && y_high - y_low >= 4, true);
  std::string drawing, data;
  draw_axes(drawing, chart, x, y);
  for (size_t i = 0; i < chart.series.size(); ++i) draw_series(drawing, data, chart, i, x, y);
  // Other series show their value if they have a point within half a step of the nearest one.
  const double reach = std::max(
      1.0, (kWidth - kLeft - kRight) / (2.0 * static_cast<double>(std::max<size_t>(longest, 2))));
  data = "{\"width\":" + json_number(kWidth) + ",\"reach\":" + json_number(reach) +
         ",\"label\":" + json_string(chart.x_label) + ",\"series\":[" + data + "]}";
  out += "<svg viewBox=\"0 0 " + fixed(kWidth, 0) + " " + fixed(kHeight, 0) +
         "\" role=\"img\" aria-label=\"" + escape(chart.title) + "\" data-points=\"" +
         escape(data) + "\">" + drawing + "<line class=\"guide\" y1=\"" + px(kTop) + "\" y2=\"" +
         px(kHeight - kBottom) + "\"/></svg><div class=\"tip\"></div></section>\n";
  return out;
}

}  // namespace

std::string render_html_report(const Report& report) {
  std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  // The browser itself enforces that nothing is loaded from anywhere.
  out +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n";
  out += "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" + escape(report.title) +
         "</title>\n<style>";
  out += kStyle;
  out += "</style></head><body><main>\n<h1>" + escape(report.title) + "</h1>\n<p class=\"sub\">" +
         escape(report.subtitle) + "</p>\n";
  if (!report.figures.empty()) {
    out += "<div class=\"figures\">";
    for (const auto& [label, value] : report.figures)
      out += "<div class=\"figure\"><b>" + escape(value) + "</b><span>" + escape(label) +
             "</span></div>";
    out += "</div>\n";
  }
  if (!report.charts.empty()) {
    out += "<div class=\"grid\">\n";
    for (const ReportChart& chart : report.charts) out += render_chart(chart);
    out += "</div>\n";
  }
  if (!report.tables.empty()) {
    out += "<div class=\"grid\">\n";
    for (const ReportTable& table : report.tables) {
      out += "<section class=\"card\"><h2>" + escape(table.title) + "</h2><table>";
      for (const auto& [key, value] : table.rows)
        out += "<tr><td>" + escape(key) + "</td><td>" + escape(value) + "</td></tr>";
      out += "</table></section>\n";
    }
    out += "</div>\n";
  }
  if (!report.footer.empty()) out += "<footer>" + escape(report.footer) + "</footer>\n";
  out += "</main><script>";
  out += kScript;
  return out + "</script></body></html>\n";
}

void write_html_report(const std::string& path, const Report& report) {
  const std::string html = render_html_report(report);
  AtomicFile file(path);
  file.write(html);
  file.commit();
}

}  // namespace arete::io
