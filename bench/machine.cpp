#include "bench/machine.h"

#include <dnnl.h>
#include <sched.h>

#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

#include "arete/base/cpu_name.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/random.h"
#include "arete/prim/backend.h"
#include "bench/row.h"

namespace arete::bench {
namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof(text), "%Y-%m-%d", &utc);
  return text;
}

double seconds_of(std::function<void()> call) {
  return measure(Row{.name = "machine", .unit = Unit::ms, .prepare = [&] { return call; }}, 9);
}

}  // namespace

Machine this_machine(Device device) {
  Machine m;
  m.cpu = cpu_name();
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) m.processors = CPU_COUNT(&set);
  m.threads = num_threads();
  m.date = today();
  m.arete = ARETE_VERSION;
  m.backend = prim::backend_for(device).description();
#ifdef __clang__
  m.compiler = __VERSION__;
#else
  m.compiler = "g++ " __VERSION__;
#endif
  return m;
}

double copy_bandwidth() {
  constexpr size_t kBytes = size_t(64) << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 0);
  const double seconds = seconds_of([&] {
    const int64_t shares = num_threads();
    parallel_for(0, shares, 1, [&](int64_t first, int64_t last) {
      const size_t begin = kBytes / size_t(shares) * size_t(first);
      const size_t end = last == shares ? kBytes : kBytes / size_t(shares) * size_t(last);
      std::memcpy(to.data() + begin, from.data() + begin, end - begin);
    });
  });
  return 2 * double(kBytes) / seconds;
}

double gemm_rate() {
  constexpr int n = 2048;
  std::vector<float> a(size_t(n) * n, 0.5f), b(a), c(a);
  const double seconds = seconds_of([&] {
    const dnnl_status_t status =
        dnnl_sgemm('N', 'N', n, n, n, 1, a.data(), n, b.data(), n, 0, c.data(), n);
    if (status != dnnl_success) ARETE_BUG("oneDNN refuses a plain product");
  });
  return 2.0 * n * n * n / seconds;
}

double cuda_copy_bandwidth() {
  const int64_t n = int64_t(1) << 30;
  Row row{.name = "copy", .unit = Unit::gb_per_s, .timing = Timing::device};
  row.prepare = [&] {
    const TensorOptions bytes(kUInt8, kCUDA);
    return [from = full({n}, 1, bytes), to = empty({n}, bytes)]() mutable { to.copy_(from); };
  };
  return 2 * double(n) / measure(row, 20);
}

double cuda_gemm_rate() {
  const int64_t n = 8192;
  Row row{.name = "gemm", .unit = Unit::tflop_per_s, .timing = Timing::device};
  row.prepare = [&] {
    const TensorOptions bf16(kBFloat16, kCUDA);
    return [a = randn({n, n}, bf16), b = randn({n, n}, bf16)] { mm(a, b); };
  };
  return 2 * double(n) * double(n) * double(n) / measure(row, 10);
}

}  // namespace arete::bench
