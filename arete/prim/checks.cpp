#include "arete/prim/checks.h"

#include "arete/base/error.h"

namespace arete::prim {
namespace {

void check_window(const Window& w, const View& x, const View& y) {
  ARETE_ASSERT(w.spatial >= 1 && w.spatial <= 3);
  ARETE_ASSERT(x.rank() == w.spatial + 2 && y.rank() == w.spatial + 2);
  ARETE_ASSERT(x.dtype == y.dtype && x.sizes[0] == y.sizes[0]);
  for (size_t d = 0; d < size_t(w.spatial); ++d) ARETE_ASSERT(w.stride[d] > 0 && w.dilation[d] > 0);
}

}  // namespace

void check(const GemmArgs& g) {
  ARETE_ASSERT(g.out.rank() >= 2 && g.a.rank() == g.out.rank() && g.b.rank() == g.out.rank());
  const IntList a = g.a.sizes, b = g.b.sizes, out = g.out.sizes;
  const size_t r = out.size();
  ARETE_ASSERT(a[r - 1] == b[r - 2] && a[r - 2] == out[r - 2] && b[r - 1] == out[r - 1]);
  for (size_t d = 0; d + 2 < r; ++d)
    ARETE_ASSERT((a[d] == out[d] || a[d] == 1) && (b[d] == out[d] || b[d] == 1));
  ARETE_ASSERT(!g.bias || (g.bias.sizes.back() == out[r - 1] && g.bias.dtype == g.out.dtype));
  if (g.bias && g.bias.rank() != 1) {
    ARETE_ASSERT(g.bias.rank() == g.out.rank() && g.bias.sizes[r - 2] == 1);
    for (size_t d = 0; d + 2 < r; ++d) ARETE_ASSERT(g.bias.sizes[d] == out[d]);
  }
  ARETE_ASSERT(!g.aux || (g.aux.rank() == g.out.rank() && g.aux.dtype == g.out.dtype));
  // Narrow operands may have a wider result; of f8 also two different ones.
  const DType left = g.a_dtype(), right = g.b_dtype(), product = g.product_dtype();
  const bool f8 = is_float8(left) && is_float8(right);
  const bool widens = is_reduced_float(left) && product == kFloat32;
  ARETE_ASSERT(left == right || f8);
  ARETE_ASSERT(left == product || widens || (f8 && is_reduced_float(product)));
  if (!g.has_programs()) return;
  ARETE_ASSERT(g.alpha == 1 && g.beta == 0 && !g.bias && !g.aux && !g.a_sum && !g.a_scale &&
               !g.b_scale && g.activation == Activation::none && !g.differentiate);
  ARETE_ASSERT(!g.a_program || g.a_program.program->inputs()[0] == g.a.dtype);
  ARETE_ASSERT(!g.b_program || g.b_program.program->inputs()[0] == g.b.dtype);
  ARETE_ASSERT(!g.result_program || g.result_program.program->outputs()[0].dtype == g.out.dtype);
  for (const ElementProgram* p : {&g.a_program, &g.b_program, &g.result_program}) {
    if (!*p) continue;
    ARETE_ASSERT(p->program->tables() == 0 && p->program->outputs().size() == 1);
    ARETE_ASSERT(p->program->inputs().size() == 1 + p->inputs.size());
    for (size_t k = 0; k < p->inputs.size(); ++k)
      ARETE_ASSERT(p->inputs[k].dtype == p->program->inputs()[1 + k]);
    ARETE_ASSERT(p->program->params().size() == p->params.size());
  }
}

void check(const ConvArgs& c) {
  check_window(c.window, c.x, c.y);
  ARETE_ASSERT(c.w.rank() == c.x.rank() && c.w.dtype == c.x.dtype);
  ARETE_ASSERT(c.groups >= 1 && c.w.sizes[0] % c.groups == 0);
  ARETE_ASSERT(c.x.sizes[1] == c.w.sizes[1] * c.groups && c.y.sizes[1] == c.w.sizes[0]);
  for (size_t d = 0; d < size_t(c.window.spatial); ++d)
    ARETE_ASSERT(c.w.sizes[d + 2] == c.window.kernel[d]);
}

void check(const PoolArgs& p) {
  check_window(p.window, p.x, p.y);
  const bool max = p.kind == PoolArgs::Kind::max;
  ARETE_ASSERT(p.x.sizes[1] == p.y.sizes[1]);
  ARETE_ASSERT(!max || !p.indices || (p.indices.dtype == kInt64 && p.indices.rank() == p.x.rank()));
  ARETE_ASSERT(!max || !p.backward || p.indices || p.y.numel() == 0);
  const bool random = p.placement == PoolArgs::Placement::random;
  ARETE_ASSERT(!random || max);
  ARETE_ASSERT(!p.samples ||
               (p.samples.rank() == 3 && p.samples.sizes[0] == p.x.sizes[0] &&
                p.samples.sizes[1] == p.x.sizes[1] && p.samples.sizes[2] == p.window.spatial &&
                (p.samples.dtype == kFloat32 || p.samples.dtype == kFloat64)));
  ARETE_ASSERT(!random || p.backward || p.samples);
  for (size_t d = 0; d < size_t(p.window.spatial); ++d) {
    ARETE_ASSERT(p.window.kernel[d] > 0);
    ARETE_ASSERT(!random || p.window.kernel[d] <= p.x.sizes[d + 2]);
  }
}

void check(const RecurrenceArgs& a) {
  const std::span<const DType> inputs = a.program->inputs();
  const auto outputs = a.program->outputs();
  ARETE_ASSERT(inputs.size() == 4 + a.inputs.size() &&
               a.params.size() == a.program->params().size());
  ARETE_ASSERT((a.program->tables() & 0xf) == 1 && inputs[0] == outputs[0].dtype);
  for (size_t k = 1; k < 4; ++k) ARETE_ASSERT(inputs[k] == kInt64);
  for (size_t k = 0; k < a.inputs.size(); ++k) ARETE_ASSERT(a.inputs[k].dtype == inputs[4 + k]);
  ARETE_ASSERT(outputs.size() == 1 || (outputs.size() == 2 && a.out.sizes[0] == a.steps));
  ARETE_ASSERT(a.out.rank() == 3 && a.out.dtype == outputs.back().dtype);
  ARETE_ASSERT((a.out.sizes[0] == a.steps || a.out.sizes[0] == 1) && a.out.sizes[1] == a.rows &&
               a.out.sizes[2] == a.states);
  ARETE_ASSERT(!a.initial || a.initial.dtype == inputs[0]);
  ARETE_ASSERT(!a.lengths || (a.lengths.dtype == kInt64 && a.lengths.rank() == 1));
}

bool is_dilated_average(const PoolArgs& p) {
  for (size_t d = 0; d < size_t(p.window.spatial); ++d)
    if (p.window.dilation[d] != 1) return p.kind == PoolArgs::Kind::avg;
  return false;
}

}  // namespace arete::prim
