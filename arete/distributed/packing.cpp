#include "arete/distributed/packing_internal.h"

#include <vector>

#include "arete/core/modes.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/ops/multi.h"

namespace arete::distributed {
namespace {

const expr::Program& scale_program(DType from, DType to) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const expr::Type type = expr::compute_type(to);
  return cache.get(pack_key({int(from), int(to)}), {from}, {expr::work_type(to)}, {to},
                   [&](std::span<const expr::Value> v) {
                     return std::vector{expr::cast(v[0], type) * expr::cast(v[1], type)};
                   });
}

}  // namespace

void pack_scaled(std::span<const Tensor> from, std::span<const Tensor> to, double scale) {
  if (to.empty()) return;
  const NoGradGuard no_grad;
  if (is_complex(to[0].dtype())) {  // no programs
    for (size_t i = 0; i < to.size(); ++i) Tensor(to[i]).copy_(from[i]).mul_(scale);
    return;
  }
  std::vector<prim::View> in, out;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].numel() == 0) continue;
    in.push_back(ops::view_of(from[i]));
    out.push_back(ops::view_of(to[i]));
  }
  if (out.empty()) return;
  const expr::Literal literal{.f = scale};
  ops::run_programs("pack_gradients", scale_program(from[0].dtype(), to[0].dtype()), to[0].device(),
                    int64_t(out.size()), in, out, {&literal, 1});
}

}  // namespace arete::distributed
