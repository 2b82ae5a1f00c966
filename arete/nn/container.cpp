#include "arete/nn/container.h"

#include "arete/nn/activation.h"
#include "arete/nn/norm.h"

namespace arete::nn {

namespace {
// The batch norm that is to be followed by a relu in the same pass, or null.
BatchNorm* norm_before_relu(Module& m, Module& next) {
  auto* const norm = dynamic_cast<BatchNorm*>(&m);
  if (!norm || norm->has_hooks() || next.has_hooks()) return nullptr;
  return dynamic_cast<ReLU*>(&next) ? norm : nullptr;
}
}  // namespace

Tensor Sequential::forward(const Tensor& input) {
  Tensor x = input;
  const size_t n = num_children();
  for (size_t i = 0; i < n; ++i) {
    Module& m = child_at(i);
    BatchNorm* const norm = i + 1 < n ? norm_before_relu(m, child_at(i + 1)) : nullptr;
    x = norm ? norm->forward_relu(x) : m(x);
    if (norm) ++i;
  }
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
