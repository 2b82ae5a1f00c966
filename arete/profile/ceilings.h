// What this machine can do at most, measured: the roofs under which operators run.
#pragma once

#include <map>
#include <string>

#include "arete/core/device.h"
#include "arete/core/dtype.h"

namespace arete::profile {

struct Ceilings {
  std::string device;          ///< what was measured: the name of the processor, threads or GPU
  double bandwidth = 0;        ///< bytes per second of a large copy, read and written
  double launch_overhead = 0;  ///< seconds that the smallest operator takes
  std::map<std::string, double> gemm;  ///< FLOP per second of a large matrix product, by dtype
  int64_t cache = 0;  ///< bytes of the largest cache: what is smaller may be faster than memory
  std::string date;   ///< of the measurement, "2026-11-22 10:45"; "" if none was made
  /// By what part of it the middle round of the least steady figure was slower than the best.
  double spread = 0;
  double load = 0;  ///< the machine's load before the measurement, by its processors
  /// Of the dtype, or the nearest one that was measured: integers and booleans compute as f32.
  double flops_of(DType dtype) const;
  /// The smaller of both roofs at so many FLOP per byte.
  double roof(DType dtype, double intensity) const;
};

/// Measured at the first call (two seconds, or five where the rounds differ) and kept in
/// ceilings_file() by device and library versions; `again` measures anew. What a busy machine gave
/// (doubts_about) is measured once more by the next process that asks, and the better figures are
/// kept. DeviceError where there is no such device.
Ceilings ceilings(Device device = kCPU, bool again = false);
/// Measures, and keeps nothing.
Ceilings measure_ceilings(Device device);
/// $ARETE_CACHE_DIR/ceilings.json, or that in arete/ under the user's cache folder; "" if there is
/// no such place.
std::string ceilings_file();
/// Why the figures may be too low, for people; "" if nothing speaks against them.
std::string doubts_about(const Ceilings& ceilings);
/// Bytes of the largest cache of a device.
int64_t cache_bytes(Device device);
/// For people: a line for each figure.
std::string to_string(const Ceilings& ceilings);

}  // namespace arete::profile
