// How near each operator comes to what the machine can do, and what holds it back.
#pragma once

#include <string>
#include <vector>

#include "arete/profile/ceilings.h"
#include "arete/profile/trace.h"

namespace arete::profile {

/// What bounds an operator's time: the cost of calling it at all (its work would take less than the
/// smallest call does), the memory's bandwidth, or arithmetic.
enum class Regime : uint8_t { overhead, memory, compute };
const char* name_of(Regime regime);

/// All calls of one operator with one dtype on one device.
struct OperatorRate {
  std::string name, dtype, device;
  int64_t count = 0;
  double seconds =
      0;  ///< in all: on the GPU where there is one, else on the host without inner calls
  double flops = 0, bytes = 0;
  Regime regime = Regime::overhead;
  /// Clearly faster than the roof, with more data than a cache holds: the roof must be too low.
  bool above_roof = false;
  double attained = 0;  ///< the time that the nearer roof allows by the time it took; 1 is the roof
  double flops_per_second() const { return seconds > 0 ? flops / seconds : 0; }
  double bytes_per_second() const { return seconds > 0 ? bytes / seconds : 0; }
  /// FLOP per byte.
  double intensity() const { return bytes > 0 ? flops / bytes : 0; }
};

/// The operators that compute or move something, by time. Measures the ceilings of the devices that
/// occur if they are not known yet.
std::vector<OperatorRate> operator_rates(const Trace& trace);
/// The same with given ceilings for all devices.
std::vector<OperatorRate> operator_rates(const Trace& trace, const Ceilings& ceilings);
/// As a table: calls, time, TFLOP/s, GB/s, FLOP per byte, regime, part of the roof.
std::string rate_table(const Trace& trace, int64_t row_limit = 30);
std::string rate_table(const std::vector<OperatorRate>& rates, int64_t row_limit = 30);

/// The operators of one device under its roofs, both axes logarithmic, as an SVG image that needs
/// nothing else.
std::string roofline_svg(const std::vector<OperatorRate>& rates, const Ceilings& ceilings);
/// Writes it to `path`: an SVG image where it ends in ".svg", an HTML page with a plot for each
/// device and the table below where it ends in ".html" or ".htm"; ValueError otherwise.
void export_roofline(const Trace& trace, const std::string& path);

}  // namespace arete::profile
