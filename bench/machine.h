// What the figures were measured on, and how fast it is without Arete.
#pragma once

#include <string>

#include "arete/core/device.h"

namespace arete::bench {

struct Machine {
  std::string cpu;      ///< as the system names it
  int processors = 0;   ///< those this process may run on
  int threads = 0;      ///< those the figures use
  std::string date;     ///< of today, YYYY-MM-DD (UTC)
  std::string arete;    ///< version
  std::string backend;  ///< what the backend says of its device and its libraries
  std::string compiler;
};
Machine this_machine(Device device);

/// Bytes read and written per second by threads that each std::memcpy a share of 64 MiB.
double copy_bandwidth();
/// FLOP/s of a product of two 2048 x 2048 f32 matrices by oneDNN.
double gemm_rate();
/// The same on the GPU: a copy of 1 GiB by the driver, and a product of bf16 matrices of 8192 rows.
double cuda_copy_bandwidth();
double cuda_gemm_rate();

}  // namespace arete::bench
