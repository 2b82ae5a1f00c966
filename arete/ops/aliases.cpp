#include "arete/ops/aliases.h"

#include <algorithm>
#include <vector>

namespace arete::ops {

std::span<const Alias> all_aliases() {
  static const std::vector<Alias> aliases = [] {
    std::vector<Alias> v;
#define ARETE_LIST(alias, record) v.push_back({#alias, #record});
    ARETE_ALIASES(ARETE_LIST)
    ARETE_LIST_ALIASES(ARETE_LIST)
#undef ARETE_LIST
    std::sort(v.begin(), v.end(), [](const Alias& a, const Alias& b) { return a.name < b.name; });
    return v;
  }();
  return aliases;
}

}  // namespace arete::ops
