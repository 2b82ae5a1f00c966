#include "arete/nn/container.h"

namespace arete::nn {

Tensor Sequential::forward(const Tensor& input) {
  Tensor x = input;
  for (Module& m : *this) x = m(x);
  return x;
}

bool ModuleDict::contains(std::string_view name) const {
  for (const NamedModule& c : named_children())
    if (c.name == name) return true;
  return false;
}

Module& ModuleDict::operator[](std::string_view name) const {
  for (const NamedModule& c : named_children())
    if (c.name == name) return *c.module;
  std::string there;
  for (const std::string& k : keys()) there += (there.empty() ? "" : ", ") + k;
  throw ValueError("ModuleDict", "there is no module of this name")
      .got(name)
      .expected(there.empty() ? "an inserted name" : "one of: " + there);
}

std::vector<std::string> ModuleDict::keys() const {
  std::vector<std::string> names;
  for (const NamedModule& c : named_children()) names.push_back(c.name);
  return names;
}

}  // namespace arete::nn
