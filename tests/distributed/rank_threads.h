// Ranks that are threads of one process.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "arete/distributed/distributed.h"

namespace arete::test {

/// Calls f(group) as each of some ranks, all at a time; the first error is thrown again.
inline void with_ranks(int size, const std::function<void(const distributed::ProcessGroupPtr&)>& f,
                       const std::string& backend = distributed::is_gloo_available() ? "gloo"
                                                                                     : "store",
                       distributed::Milliseconds timeout = std::chrono::seconds(60)) {
  const auto store = std::make_shared<distributed::HashStore>();
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(size);
  std::vector<int> ranks(size);
  for (int r = 0; r < size; ++r) ranks[r] = r;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        f(std::make_shared<distributed::ProcessGroup>("g", backend, store, r, ranks, timeout));
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
}

inline std::vector<float> floats(const Tensor& t) {
  return t.detach().to(kFloat32).to_vector<float>();
}

}  // namespace arete::test
