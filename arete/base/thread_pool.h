// Data parallelism over one process-wide set of threads, shared with oneDNN and OpenBLAS.
#pragma once

#include <cstdint>
#include <type_traits>

namespace arete {

/// Threads that parallel_for may use (ARETE_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs this
/// process may run on).
int num_threads() noexcept;
/// Sets the number for the whole process; at least 1 (ValueError). A process that was forked from
/// one with several threads has one: those of its parent are gone, and OpenMP waits for them.
void set_num_threads(int n);
/// Whether the threads are OpenMP's; else they are the library's own (ARETE_THREADS_STD).
bool threads_are_openmp() noexcept;
/// True inside a parallel_for body or a thread marked by SerialRegion: nested loops run inline.
bool in_parallel_region() noexcept;

/// Marks the current thread so that its loops run inline (worker threads of data loaders): the
/// cores belong to the training thread.
class SerialRegion {
 public:
  SerialRegion() noexcept;
  ~SerialRegion();
  SerialRegion(const SerialRegion&) = delete;
  SerialRegion& operator=(const SerialRegion&) = delete;

 private:
  bool previous_;
};

/// The grain of a parallel_for over items that take as long as `work` additions of floats in the
/// first cache, some 0.03 ns each: what wakes a thread must be worth it. Threads that sleep between
/// loops at once (OMP_WAIT_POLICY=passive, GOMP_SPINCOUNT=0, and all that are not OpenMP's) take 10
/// to 40 us to wake, those that look for work first 1 us while they do. ARETE_THREAD_WORK in the
/// environment gives the number of additions itself.
int64_t grain_for(double work) noexcept;

namespace detail {
using RangeFunction = void (*)(void* context, int64_t begin, int64_t end);
void parallel_for(int64_t begin, int64_t end, int64_t grain, RangeFunction f, void* context);
}  // namespace detail

/// Calls body(first, last) over disjoint ranges covering [begin, end), in parallel when the range
/// is longer than `grain`. The first exception is rethrown. The split depends only on the range,
/// grain and num_threads().
template <class F>
void parallel_for(int64_t begin, int64_t end, int64_t grain, F&& body) {
  if (begin >= end) return;
  if (end - begin <= grain) {
    body(begin, end);
    return;
  }
  using Body = std::remove_reference_t<F>;
  detail::parallel_for(
      begin, end, grain,
      [](void* context, int64_t first, int64_t last) {
        (*static_cast<Body*>(context))(first, last);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace arete
