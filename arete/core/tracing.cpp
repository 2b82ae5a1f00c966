#include "arete/core/tracing.h"

#include <cctype>

namespace arete::tracing {

namespace detail {
constinit std::atomic<Listener*> current{nullptr};
}

Listener* set_listener(Listener* listener) noexcept {
  return detail::current.exchange(listener, std::memory_order_acq_rel);
}

std::string backward_name(std::string node_name) {
  if (node_name.empty() || node_name == "AccumulateGrad") return node_name;
  node_name[0] = char(std::toupper(static_cast<unsigned char>(node_name[0])));
  return node_name + "Backward0";
}

}  // namespace arete::tracing
