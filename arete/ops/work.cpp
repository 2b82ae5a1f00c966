#include "arete/ops/work.h"

#include <unordered_map>

namespace arete::ops {
namespace {

// Filled while static objects are made, only read after that.
std::unordered_map<const OpRecord*, IndexedAccess>& accesses() {
  static std::unordered_map<const OpRecord*, IndexedAccess> all;
  return all;
}

}  // namespace

bool touches_at_indices(const OpRecord& op, IndexedAccess access) {
  return accesses().emplace(&op, access).second;
}

const IndexedAccess* indexed_access(const OpRecord& op) {
  const auto it = accesses().find(&op);
  return it == accesses().end() ? nullptr : &it->second;
}

double no_flops(const Call&) { return 0; }

double operations_per_element(const expr::Program& program) {
  using expr::Op;
  double n = 0;
  for (const expr::Instruction& i : program.code())
    n += i.op != Op::input && i.op != Op::param && i.op != Op::constant && i.op != Op::cast &&
         i.op != Op::round_to;
  return n;
}

int64_t bytes_under(const prim::View& view) {
  int64_t elements = 1;
  for (int d = 0; d < view.rank(); ++d)
    if (view.strides[size_t(d)] != 0 || view.sizes[size_t(d)] == 0)
      elements *= view.sizes[size_t(d)];
  return elements * int64_t(size_of(view.dtype));
}

}  // namespace arete::ops
